//! Writes another word in the place of one, in every message.

use penstock_plugin_sdk::{Filter, Message, Rewrite, Verdict};
use serde::Deserialize;

/// The configuration: `[config]` of plugin.toml, with what the binding says otherwise.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    word: String,
    instead: String,
}

/// The filter. One is made for each instance; what it keeps here lives until the instance is replaced.
struct Plugin {
    config: Config,
}

impl Filter for Plugin {
    fn new(config: &str) -> Result<Self, String> {
        let config: Config = serde_json::from_str(config).map_err(|error| error.to_string())?;
        if config.word.is_empty() {
            return Err("word: it is empty".to_owned());
        }
        Ok(Self { config })
    }

    fn before_send(&mut self, message: Message<'_>) -> Verdict {
        // A payload is bytes: what is no text goes on as it is.
        let Ok(payload) = std::str::from_utf8(message.payload()) else {
            return Verdict::Allow;
        };
        if !payload.contains(&self.config.word) {
            return Verdict::Allow;
        }
        let payload = payload.replace(&self.config.word, &self.config.instead);
        Verdict::Rewrite(Rewrite {
            payload: Some(payload.into_bytes()),
            ..Rewrite::default()
        })
    }
}

penstock_plugin_sdk::filter!(Plugin);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_without_a_word_is_refused() {
        assert!(Plugin::new(r#"{"word": "tea", "instead": "coffee"}"#).is_ok());
        assert!(Plugin::new(r#"{"word": "", "instead": "coffee"}"#).is_err());
        assert!(Plugin::new("{}").is_err());
    }
}
