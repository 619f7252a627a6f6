//! Refuses messages with listed words, or masks the words. Letters of ASCII are compared without their case.
//!
//! The configuration: `{"words": ["..."], "mode": "mask"}` or `"reject"`, and for the latter `"text"`, shown to the sender.

use aho_corasick::{AhoCorasick, MatchKind};
use penstock_plugin_sdk::{Filter, Message, Rewrite, Verdict};
use serde::Deserialize;

/// Most words of a list.
const WORDS_MAX: usize = 10_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    #[serde(default)]
    words: Vec<String>,
    #[serde(default)]
    mode: Mode,
    #[serde(default = "text")]
    text: String,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Mode {
    #[default]
    Mask,
    Reject,
}

fn text() -> String {
    "the message has a word that is not allowed here".to_owned()
}

/// The filter.
pub struct ProfanityFilter {
    words: AhoCorasick,
    mode: Mode,
    text: String,
}

impl ProfanityFilter {
    fn judge(&self, payload: &[u8]) -> Verdict {
        if !self.words.is_match(payload) {
            return Verdict::Allow;
        }
        match self.mode {
            Mode::Reject => Verdict::Reject {
                code: 0,
                text: self.text.clone(),
            },
            Mode::Mask => Verdict::Rewrite(Rewrite {
                payload: Some(self.mask(payload)),
                ..Rewrite::default()
            }),
        }
    }

    /// The payload with a star for each character of a word.
    fn mask(&self, payload: &[u8]) -> Vec<u8> {
        let mut masked = Vec::with_capacity(payload.len());
        let mut rest = 0;
        for word in self.words.find_iter(payload) {
            masked.extend_from_slice(&payload[rest..word.start()]);
            let characters = String::from_utf8_lossy(&payload[word.range()]).chars().count();
            masked.extend(std::iter::repeat_n(b'*', characters));
            rest = word.end();
        }
        masked.extend_from_slice(&payload[rest..]);
        masked
    }
}

impl Filter for ProfanityFilter {
    fn new(config: &str) -> Result<Self, String> {
        let config: Config = serde_json::from_str(config).map_err(|error| error.to_string())?;
        if config.words.len() > WORDS_MAX {
            return Err(format!("words: {}, at most {WORDS_MAX}", config.words.len()));
        }
        if config.words.iter().any(String::is_empty) {
            return Err("words: one is empty".to_owned());
        }
        let words = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::LeftmostLongest)
            .build(&config.words)
            .map_err(|error| format!("words: {error}"))?;
        Ok(Self {
            words,
            mode: config.mode,
            text: config.text,
        })
    }

    fn before_send(&mut self, message: Message<'_>) -> Verdict {
        self.judge(message.payload())
    }
}

penstock_plugin_sdk::filter!(ProfanityFilter);

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(config: &str, payload: &str) -> Verdict {
        ProfanityFilter::new(config).unwrap().judge(payload.as_bytes())
    }

    fn masked(payload: &str) -> Verdict {
        Verdict::Rewrite(Rewrite {
            payload: Some(payload.into()),
            ..Rewrite::default()
        })
    }

    #[test]
    fn masks_each_character_of_the_longest_word() {
        let config = r#"{"words": ["darn", "darned", "坏话"]}"#;
        assert_eq!(judge(config, "all is well"), Verdict::Allow);
        assert_eq!(judge(config, "DARNED darn!"), masked("****** ****!"));
        assert_eq!(judge(config, "说坏话了"), masked("说**了"));
    }

    #[test]
    fn rejects_with_the_text_of_the_configuration() {
        let config = r#"{"words": ["darn"], "mode": "reject", "text": "mind your words"}"#;
        assert_eq!(judge(config, "fine"), Verdict::Allow);
        let text = "mind your words".to_owned();
        assert_eq!(judge(config, "oh darn"), Verdict::Reject { code: 0, text });
    }

    #[test]
    fn an_empty_list_allows_everything() {
        assert_eq!(judge("{}", "darn"), Verdict::Allow);
    }

    #[test]
    fn refuses_a_wrong_configuration() {
        for config in [
            "",
            "[1]",
            r#"{"words": [""]}"#,
            r#"{"mode": "shout"}"#,
            r#"{"wrods": []}"#,
        ] {
            assert!(ProfanityFilter::new(config).is_err(), "{config}");
        }
    }
}
