//! {{name}}: a text after a command is sent in capitals. `/shout hello` arrives as `HELLO`.

use penstock_plugin_sdk::{Filter, Message, Rewrite, Verdict, host};
use serde::Deserialize;
use serde_json::Value;

/// The configuration: the defaults of plugin.toml with what the binding says on top.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    /// What a message must begin with.
    command: String,
}

/// One instance of the plugin. What it keeps here lives until the broker replaces the instance.
struct Plugin {
    config: Config,
}

impl Filter for Plugin {
    /// Called once for each instance. The error is shown to the operator, and the plugin does not run.
    fn new(config: &str) -> Result<Self, String> {
        let config: Config = serde_json::from_str(config).map_err(|error| error.to_string())?;
        if config.command.is_empty() {
            return Err("command: give one, such as /shout".to_owned());
        }
        Ok(Self { config })
    }

    /// Called for each message before it is stored. The sender waits for it.
    fn before_send(&mut self, message: Message<'_>) -> Verdict {
        let verdict = self.judge(message.payload());
        if verdict != Verdict::Allow {
            host::info(&format!("a command of {} in {}", message.sender(), message.channel_id()));
        }
        verdict
    }
}

impl Plugin {
    /// A payload is what the clients of an application agree on; those of the demo page send `{"type":1,"content":"…"}`.
    fn judge(&self, payload: &[u8]) -> Verdict {
        let Ok(mut payload) = serde_json::from_slice::<Value>(payload) else {
            return Verdict::Allow;
        };
        let Some(text) = payload.get("content").and_then(Value::as_str) else {
            return Verdict::Allow;
        };
        let Some(text) = text.strip_prefix(&self.config.command) else {
            return Verdict::Allow;
        };
        let text = text.trim();
        if text.is_empty() {
            return Verdict::Reject {
                code: 0,
                text: format!("{} what?", self.config.command),
            };
        }
        payload["content"] = Value::String(text.to_uppercase());
        Verdict::Rewrite(Rewrite {
            payload: Some(payload.to_string().into_bytes()),
            ..Rewrite::default()
        })
    }
}

penstock_plugin_sdk::filter!(Plugin);

/// `cargo test` runs these on your machine; `penstock plugin test` runs the component on the fixtures.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_command_is_changed() {
        let plugin = Plugin::new(r#"{"command":"/shout"}"#).expect("a configuration");
        assert_eq!(plugin.judge(br#"{"type":1,"content":"hello"}"#), Verdict::Allow);
        assert_eq!(plugin.judge(b"not JSON"), Verdict::Allow);
        let rewritten = Rewrite {
            payload: Some(br#"{"content":"HELLO","type":1}"#.to_vec()),
            ..Rewrite::default()
        };
        assert_eq!(plugin.judge(br#"{"type":1,"content":"/shout hello"}"#), Verdict::Rewrite(rewritten));
        assert!(Plugin::new("{}").is_err());
    }
}
