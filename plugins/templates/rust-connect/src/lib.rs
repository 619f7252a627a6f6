//! {{name}}: keeps out who is banned, and says of everybody else what kind of device they use.

use penstock_plugin_sdk::{Acceptance, ConnectRequest, Denial, Gate, host};
use serde::Deserialize;

/// The code that says that somebody is banned.
const BANNED: u8 = 19;

/// The configuration: the defaults of plugin.toml with what the binding says on top.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    /// Who is kept out.
    banned: Vec<String>,
}

/// One instance of the plugin. What it keeps here lives until the broker replaces the instance.
struct Plugin {
    config: Config,
}

impl Gate for Plugin {
    /// Called once for each instance. The error is shown to the operator, and the plugin does not run.
    fn new(config: &str) -> Result<Self, String> {
        let config = serde_json::from_str(config).map_err(|error| error.to_string())?;
        Ok(Self { config })
    }

    /// Called whenever somebody connects whose token is good. The client waits for the answer.
    fn connect(&mut self, request: ConnectRequest) -> Result<Acceptance, Denial> {
        if self.config.banned.contains(&request.uid) {
            host::info(&format!("{} is kept out, who came from {}", request.uid, request.address));
            return Err(Denial { code: BANNED, text: "you are banned".to_owned() });
        }
        // Filters see attributes with every message of the session, under `attributes()`.
        let device = match request.device_flag {
            0 => "app",
            1 => "web",
            _ => "computer",
        };
        Ok(Acceptance {
            uid: request.uid,
            level: 0,
            attributes: vec![("device".to_owned(), device.to_owned())],
        })
    }
}

penstock_plugin_sdk::gate!(Plugin);

/// `cargo test` runs these on your machine; `penstock plugin test` runs the component on the fixtures.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_banned_is_kept_out() {
        let mut plugin = Plugin::new(r#"{"banned":["mallory"]}"#).expect("a configuration");
        let request = |uid: &str| ConnectRequest {
            uid: uid.to_owned(),
            token: String::new(),
            device_id: String::new(),
            device_flag: 1,
            address: String::new(),
        };
        assert_eq!(plugin.connect(request("mallory")).map(|_| ()).unwrap_err().code, BANNED);
        assert!(plugin.connect(request("ann")).is_ok());
        assert!(Plugin::new("{}").is_err());
    }
}
