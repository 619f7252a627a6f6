//! Answers messages by their words, in the channel in which they were written.
//!
//! The configuration: `{"replies": [{"contains": "opening hours", "text": "We are here from 9 to 5."}, {"equals": "ping", "text":
//! "pong"}]}`. The first that fits answers, small and capital letters being the same. The answer is a text message of
//! `plugin:auto-reply`; its own answers are not answered, unless the binding asks for them with `own_messages`.
//!
//! In a group all members see it. In a conversation of two people both see it there, although the plugin is none of the two; whoever
//! writes to the uid `plugin:auto-reply` has a conversation with the plugin itself. Command messages are not answered.
//!
//! The binding grants where it may answer, such as `publish:2/*`. `attempts_max` 0 suits it: an answer that cannot be sent now is sent
//! later, each once.

use penstock_plugin_sdk::host::publish::{Message as Outgoing, PublishError, send};
use penstock_plugin_sdk::{Batch, Consumer, Done, Failure, FailureKind, host};
use serde::Deserialize;
use serde_json::{Value, json};

/// Ends the ids of channels of command messages.
const COMMAND_SUFFIX: &str = "____cmd";
/// Most answers of a configuration.
const REPLIES_MAX: usize = 1_000;
/// Pause before what cannot be sent is tried again, ms.
const AGAIN_MS: u32 = 200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    replies: Vec<Reply>,
}

/// An answer, and to what.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reply {
    contains: Option<String>,
    equals: Option<String>,
    text: String,
}

impl Reply {
    fn check(&self) -> Result<(), String> {
        let trigger = match (&self.contains, &self.equals) {
            (Some(text), None) | (None, Some(text)) => text,
            _ => return Err("replies: each has `contains` or `equals`, and not both".to_owned()),
        };
        if trigger.is_empty() || self.text.is_empty() {
            return Err("replies: neither `contains` nor `equals` nor `text` is empty".to_owned());
        }
        Ok(())
    }

    /// Whether it answers a text in small letters.
    fn fits(&self, text: &str) -> bool {
        let contains = |part: &String| text.contains(&part.to_lowercase());
        let equals = |whole: &String| text.trim() == whole.to_lowercase();
        self.contains.as_ref().is_some_and(contains) || self.equals.as_ref().is_some_and(equals)
    }
}

/// The plugin.
pub struct AutoReply {
    replies: Vec<Reply>,
}

impl AutoReply {
    /// The answer to a payload, if there is one.
    fn answer(&self, payload: &[u8]) -> Option<String> {
        let text = content(payload).to_lowercase();
        let reply = self.replies.iter().find(|reply| reply.fits(&text))?;
        Some(json!({ "type": 1, "content": reply.text }).to_string())
    }
}

/// The text of a payload, which is JSON with a `content` or a text.
fn content(payload: &[u8]) -> String {
    let value: Value = serde_json::from_slice(payload).unwrap_or_default();
    match value["content"].as_str() {
        Some(content) => content.to_owned(),
        None => String::from_utf8_lossy(payload).into_owned(),
    }
}

impl Consumer for AutoReply {
    fn new(config: &str) -> Result<Self, String> {
        let config: Config = serde_json::from_str(config).map_err(|error| error.to_string())?;
        if config.replies.len() > REPLIES_MAX {
            return Err(format!(
                "replies: {}, at most {REPLIES_MAX}",
                config.replies.len()
            ));
        }
        config.replies.iter().try_for_each(Reply::check)?;
        Ok(Self {
            replies: config.replies,
        })
    }

    fn persist_after(&mut self, batch: &Batch<'_>) -> Result<Done, Failure> {
        for (place, message) in batch.messages().enumerate() {
            if message.channel_id().ends_with(COMMAND_SUFFIX) {
                continue;
            }
            let Some(answer) = self.answer(message.payload()) else {
                continue;
            };
            match send(&Outgoing::answer(place, &message, answer)) {
                Ok(()) => host::count("answers", 1),
                Err(PublishError::Rate | PublishError::Unavailable) => return later(place),
                // An answer to an answer to an answer is enough.
                Err(PublishError::TooManyHops) => host::count("loops_ended", 1),
                Err(error) => {
                    let channel = format!("{}/{}", message.channel_kind(), message.channel_id());
                    host::warn(&format!("no answer in {channel}: {error:?}"));
                }
            }
        }
        Ok(Done::all(batch))
    }
}

/// What came before this place is done, and the rest comes again.
fn later(place: usize) -> Result<Done, Failure> {
    if place > 0 {
        return Ok(Done::messages(place));
    }
    Err(Failure {
        kind: FailureKind::Busy,
        after_ms: AGAIN_MS,
        message: "the answer cannot be sent now".to_owned(),
    })
}

penstock_plugin_sdk::consumer!(AutoReply);

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin() -> AutoReply {
        let config = r#"{"replies": [{"equals": "Ping", "text": "pong"}, {"contains": "hours", "text": "from 9 to 5"}]}"#;
        AutoReply::new(config).unwrap()
    }

    #[test]
    fn the_first_that_fits_answers() {
        let answer = |payload: &[u8]| {
            let answer = plugin().answer(payload)?;
            let answer: Value = serde_json::from_str(&answer).unwrap();
            Some(answer["content"].as_str().unwrap().to_owned())
        };
        let told = |text: &str| Some(text.to_owned());
        assert_eq!(answer(br#"{"type":1,"content":" PING "}"#), told("pong"));
        assert_eq!(answer(b"ping"), told("pong"));
        assert_eq!(answer(b"your opening Hours?"), told("from 9 to 5"));
        assert_eq!(answer(b"ping pong"), None);
        assert_eq!(answer(b"\xff\xfe"), None);
    }

    #[test]
    fn refuses_a_wrong_configuration() {
        for config in [
            "",
            r#"{"replies": [{"text": "a"}]}"#,
            r#"{"replies": [{"contains": "a", "equals": "a", "text": "b"}]}"#,
            r#"{"replies": [{"contains": "", "text": "b"}]}"#,
            r#"{"replies": [{"contains": "a", "text": ""}]}"#,
            r#"{"replies": [], "other": 1}"#,
        ] {
            assert!(AutoReply::new(config).is_err(), "{config}");
        }
        assert!(AutoReply::new(r#"{"replies": []}"#).is_ok());
    }

    #[test]
    fn what_was_answered_before_is_done() {
        assert_eq!(later(3).unwrap().messages, 3);
        assert_eq!(later(0).unwrap_err().kind, FailureKind::Busy);
    }
}
