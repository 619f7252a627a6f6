//! {{name}}: posts a line of JSON for each stored message: who wrote where, and what.

use penstock_plugin_sdk::{Batch, Event, Failure, FailureKind, Header, HttpRequest, Message, Webhook};
use serde::Deserialize;
use serde_json::json;

/// The configuration: the defaults of plugin.toml with what the binding says on top.
#[derive(Deserialize)]
struct Config {
    /// Where to. The broker delivers to no other host.
    url: String,
}

/// One instance of the plugin. What it keeps here lives until the broker replaces the instance.
struct Plugin {
    config: Config,
}

impl Webhook for Plugin {
    /// Called once for each instance. The error is shown to the operator, and the plugin does not run.
    fn new(config: &str) -> Result<Self, String> {
        let config: Config = serde_json::from_str(config).map_err(|error| error.to_string())?;
        Ok(Self { config })
    }

    /// Called with messages of one channel that are stored, in their order. The requests are delivered in order too, before the next
    /// messages of the channel.
    fn render(&mut self, event: Event, batch: &Batch<'_>, _uids: &[String]) -> Result<Vec<HttpRequest>, Failure> {
        if event != Event::MessageNotify {
            return Ok(Vec::new());
        }
        if self.config.url.is_empty() {
            let message = "config: give a url".to_owned();
            return Err(Failure { kind: FailureKind::Retry, after_ms: 0, message });
        }
        let lines: String = batch.messages().map(|message| line(&message)).collect();
        Ok(vec![HttpRequest {
            method: "POST".to_owned(),
            url: self.config.url.clone(),
            headers: vec![Header { name: "content-type".to_owned(), value: "application/x-ndjson".to_owned() }],
            body: lines.into_bytes(),
        }])
    }
}

fn line(message: &Message<'_>) -> String {
    let text = String::from_utf8_lossy(message.payload());
    let line = json!({ "channel": message.channel_id(), "seq": message.position(), "from": message.sender(), "text": text });
    format!("{line}\n")
}

penstock_plugin_sdk::webhook!(Plugin);

/// `cargo test` runs these on your machine; `penstock plugin test` runs the component on the fixtures.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_has_a_url() {
        assert!(Plugin::new(r#"{"url":"https://hooks.example.org/"}"#).is_ok());
        assert!(Plugin::new("{}").is_err());
    }
}
