//! {{name}}: says whom to call when a message comes for somebody who is offline.

use penstock_plugin_sdk::{Failure, Message, Notifier, host};
use serde::Deserialize;
use serde_json::Value;

/// The configuration: the defaults of plugin.toml with what the binding says on top.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    /// How many letters of a message are shown.
    letters: usize,
}

/// One instance of the plugin. What it keeps here lives until the broker replaces the instance.
struct Plugin {
    config: Config,
}

impl Notifier for Plugin {
    /// Called once for each instance. The error is shown to the operator, and the plugin does not run.
    fn new(config: &str) -> Result<Self, String> {
        let config: Config = serde_json::from_str(config).map_err(|error| error.to_string())?;
        if config.letters == 0 {
            return Err("letters: at least 1".to_owned());
        }
        Ok(Self { config })
    }

    /// Called with a stored message and those of its recipients who are offline, some hundreds at most; a large group comes in several
    /// calls. Messages of a channel come in their order and at least once: after a failure, or when the broker went down, the same
    /// ones may come again. The answer is how many of the leading uids are done.
    fn offline(&mut self, message: Message<'_>, uids: &[String]) -> Result<usize, Failure> {
        let text = self.shown(message.payload());
        for uid in uids {
            // An event id and a uid together name a notification: whoever is told twice can leave it out.
            host::info(&format!("{} to {uid}: {} writes {text}", message.event_id(), message.sender()));
        }
        Ok(uids.len())
    }
}

impl Plugin {
    /// A payload is what the clients of an application agree on; those of the demo page send `{"type":1,"content":"…"}`.
    fn shown(&self, payload: &[u8]) -> String {
        let payload: Value = serde_json::from_slice(payload).unwrap_or_default();
        let text = payload.get("content").and_then(Value::as_str).unwrap_or("a message");
        text.chars().take(self.config.letters).collect()
    }
}

penstock_plugin_sdk::notifier!(Plugin);

/// `cargo test` runs these on your machine; `penstock plugin test` runs the component on the fixtures.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_letters_are_shown() {
        let plugin = Plugin::new(r#"{"letters":5}"#).expect("a configuration");
        assert_eq!(plugin.shown(br#"{"type":1,"content":"hello there"}"#), "hello");
        assert_eq!(plugin.shown(b"not JSON"), "a mes");
        assert!(Plugin::new(r#"{"letters":0}"#).is_err());
    }
}
