//! {{name}}: says which tags are used, once their messages are stored. `hello #penstock` is a line of the log.

use penstock_plugin_sdk::{Batch, Consumer, Done, Failure, Message, host};
use serde::Deserialize;
use serde_json::Value;

/// The configuration: the defaults of plugin.toml with what the binding says on top.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    /// What a tag begins with.
    mark: String,
}

/// One instance of the plugin. What it keeps here lives until the broker replaces the instance.
struct Plugin {
    config: Config,
}

impl Consumer for Plugin {
    /// Called once for each instance. The error is shown to the operator, and the plugin does not run.
    fn new(config: &str) -> Result<Self, String> {
        let config: Config = serde_json::from_str(config).map_err(|error| error.to_string())?;
        if config.mark.is_empty() {
            return Err("mark: give one, such as #".to_owned());
        }
        Ok(Self { config })
    }

    /// Called with messages of one channel that are stored, in their order and at least once: after a failure, or when the
    /// broker went down, the same ones come again, with the same event ids.
    fn persist_after(&mut self, batch: &Batch<'_>) -> Result<Done, Failure> {
        for message in batch.messages() {
            self.note(&message);
        }
        Ok(Done { messages: batch.len() as u32, changes: Vec::new() })
    }
}

impl Plugin {
    fn note(&self, message: &Message<'_>) {
        let tags = self.tags(message.payload());
        if !tags.is_empty() {
            host::info(&format!("{} of {}: {}", message.event_id(), message.sender(), tags.join(" ")));
        }
    }

    /// A payload is what the clients of an application agree on; those of the demo page send `{"type":1,"content":"…"}`.
    fn tags(&self, payload: &[u8]) -> Vec<String> {
        let Ok(payload) = serde_json::from_slice::<Value>(payload) else {
            return Vec::new();
        };
        let text = payload.get("content").and_then(Value::as_str).unwrap_or_default();
        let is_tag = |word: &&str| word.len() > self.config.mark.len() && word.starts_with(&self.config.mark);
        text.split_whitespace().filter(is_tag).map(str::to_owned).collect()
    }
}

penstock_plugin_sdk::consumer!(Plugin);

/// `cargo test` runs these on your machine; `penstock plugin test` runs the component on the fixtures.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_a_word_behind_its_mark() {
        let plugin = Plugin::new(r##"{"mark":"#"}"##).expect("a configuration");
        assert_eq!(plugin.tags(br##"{"type":1,"content":"a #b # c#d #e"}"##), ["#b", "#e"]);
        assert!(plugin.tags(b"not JSON").is_empty());
        assert!(Plugin::new("{}").is_err());
    }
}
