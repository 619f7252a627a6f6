//! A consumer that does what a message tells it to, for tests of the broker. A word anywhere in the payload says what; a message
//! without one is done.
//!
//! | word | what it does |
//! |---|---|
//! | `trap`, `panic`, `loop`, `grow`, `recurse` | as it says; what came before in the batch is lost with the call |
//! | `flood` | writes 100,000 lines to the log first |
//! | `huge` | answers with more bytes than the broker takes |
//! | `retry`, `retry:ms` | stops before this message: to be tried again, after so many ms |
//! | `poison`, `busy` | stops before this message, which can never be done, or for which there is no time |
//! | `increment:key` | adds 1 to the number at this key |
//! | `set:key` | gives this key the payload as its value |
//! | `delete:key` | removes this key |
//! | `overdone` | says that one message more than the batch has is done |
//! | `stranger` | a change of a message that the batch does not have |
//!
//! Before `retry`, `poison` and `busy` the word `once` makes it fail the first time alone, for as long as the instance lives.
//!
//! Every message that it is asked about is a line of the log: the outcome, the position and the payload.
//!
//! A stop answers the messages before it as done; at the first message of a batch it is the failure. The configuration
//! `{"init": "fail"}` makes the instance fail to start, `{"calm": true}` makes it do every message without a word about it.

use penstock_harm::{harm, has};
use penstock_plugin_sdk::{
    Batch, Consumer, Done, Failure, FailureKind, KvChange, KvOperation, KvValue, Message, host,
};
use std::collections::HashSet;

/// A value that is too large, bytes.
const HUGE: usize = 8 << 20;

/// The consumer.
#[derive(Default)]
pub struct Scripted {
    /// The events that failed once, as they were told to.
    failed: HashSet<String>,
    /// No word is obeyed.
    calm: bool,
}

impl Consumer for Scripted {
    fn new(config: &str) -> Result<Self, String> {
        if config.contains("\"fail\"") {
            return Err("scripted to fail".to_owned());
        }
        Ok(Self {
            calm: config.contains("\"calm\""),
            ..Self::default()
        })
    }

    fn persist_after(&mut self, batch: &Batch<'_>) -> Result<Done, Failure> {
        let mut done = Done {
            messages: 0,
            changes: Vec::new(),
        };
        for message in batch.messages() {
            let words = self.words(message);
            harm(words);
            let failure = self.failure(words, message.event_id());
            let outcome = failure
                .as_ref()
                .map_or("done", |failure| failure.message.as_str());
            let payload = String::from_utf8_lossy(message.payload());
            host::info(&format!("{outcome} {} {payload}", message.position()));
            match failure {
                Some(failure) if done.messages == 0 => return Err(failure),
                Some(_) => return Ok(done),
                None => {}
            }
            done.changes.extend(changes(done.messages, words));
            done.messages += 1;
        }
        if batch
            .messages()
            .any(|message| has(self.words(message), "overdone"))
        {
            done.messages += 1;
        }
        Ok(done)
    }
}

impl Scripted {
    /// What a message tells it to do.
    fn words<'a>(&self, message: Message<'a>) -> &'a [u8] {
        if self.calm { &[] } else { message.payload() }
    }

    fn failure(&mut self, payload: &[u8], event_id: &str) -> Option<Failure> {
        let (word, kind) = [
            ("retry", FailureKind::Retry),
            ("poison", FailureKind::Poison),
            ("busy", FailureKind::Busy),
        ]
        .into_iter()
        .find(|(word, _)| has(payload, word))?;
        if has(payload, "once") && !self.failed.insert(event_id.to_owned()) {
            return None;
        }
        let after_ms = argument(payload, word).and_then(|text| text.parse().ok());
        Some(Failure {
            kind,
            after_ms: after_ms.unwrap_or(0),
            message: word.to_owned(),
        })
    }
}

penstock_plugin_sdk::consumer!(Scripted);

/// What follows a word and a colon, up to a space or a quotation mark.
fn argument(payload: &[u8], word: &str) -> Option<String> {
    let text = String::from_utf8_lossy(payload);
    let (_, rest) = text.split_once(&format!("{word}:"))?;
    Some(rest.split(['"', ' ']).next().unwrap_or(rest).to_owned())
}

/// The changes that a message at this place asks for.
fn changes(place: u32, payload: &[u8]) -> Vec<KvChange> {
    let value = KvValue {
        value: payload.to_vec(),
        ttl_ms: 0,
    };
    let mut changes = Vec::new();
    for (word, change) in [
        ("increment", KvOperation::Increment(1)),
        ("set", KvOperation::Set(value)),
        ("delete", KvOperation::Delete),
    ] {
        if let Some(key) = argument(payload, word) {
            changes.push(KvChange {
                message: place,
                key,
                change,
            });
        }
    }
    if has(payload, "huge") {
        let value = KvValue {
            value: vec![0; HUGE],
            ttl_ms: 0,
        };
        changes.push(KvChange {
            message: place,
            key: "huge".to_owned(),
            change: KvOperation::Set(value),
        });
    }
    if has(payload, "stranger") {
        changes.push(KvChange {
            message: u32::MAX,
            key: "stranger".to_owned(),
            change: KvOperation::Increment(1),
        });
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_a_word_is_its_argument() {
        let payload = br#"{"content":"retry:50 set:key"}"#;
        assert_eq!(argument(payload, "retry"), Some("50".to_owned()));
        assert_eq!(argument(payload, "set"), Some("key".to_owned()));
        assert_eq!(argument(payload, "delete"), None);
    }
}
