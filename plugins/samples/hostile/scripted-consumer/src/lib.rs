//! A consumer that does what a message tells it to, for tests of the broker. A word anywhere in the payload says what; a message
//! without one is done.
//!
//! | word | what it does |
//! |---|---|
//! | `trap`, `panic`, `loop`, `grow` | as it says; what came before in the batch is lost with the call |
//! | `retry`, `retry:ms` | stops before this message: to be tried again, after so many ms |
//! | `poison`, `busy` | stops before this message, which can never be done, or for which there is no time |
//! | `increment:key` | adds 1 to the number at this key |
//! | `set:key` | gives this key the payload as its value |
//! | `delete:key` | removes this key |
//! | `overdone` | says that one message more than the batch has is done |
//! | `stranger` | a change of a message that the batch does not have |
//!
//! A stop answers the messages before it as done; at the first message of a batch it is the failure. The configuration
//! `{"init": "fail"}` makes the instance fail to start.

use penstock_plugin_sdk::{
    Batch, Consumer, Done, Failure, FailureKind, KvChange, KvOperation, KvValue, Message,
};
use std::hint::black_box;

/// What one step of endless growth takes, bytes.
const STEP: usize = 1 << 20;

/// The consumer.
pub struct Scripted;

impl Consumer for Scripted {
    fn new(config: &str) -> Result<Self, String> {
        if config.contains("\"fail\"") {
            return Err("scripted to fail".to_owned());
        }
        Ok(Self)
    }

    fn persist_after(&mut self, batch: &Batch<'_>) -> Result<Done, Failure> {
        let mut done = Done {
            messages: 0,
            changes: Vec::new(),
        };
        for message in batch.messages() {
            harm(message.payload());
            match failure(message) {
                Some(failure) if done.messages == 0 => return Err(failure),
                Some(_) => return Ok(done),
                None => {}
            }
            done.changes.extend(changes(done.messages, message));
            done.messages += 1;
        }
        if batch.messages().any(|message| has(message.payload(), "overdone")) {
            done.messages += 1;
        }
        Ok(done)
    }
}

penstock_plugin_sdk::consumer!(Scripted);

fn has(payload: &[u8], word: &str) -> bool {
    payload
        .windows(word.len())
        .any(|window| window == word.as_bytes())
}

/// What follows a word and a colon, up to a space or a quotation mark.
fn argument(payload: &[u8], word: &str) -> Option<String> {
    let text = String::from_utf8_lossy(payload);
    let (_, rest) = text.split_once(&format!("{word}:"))?;
    Some(rest.split(['"', ' ']).next().unwrap_or(rest).to_owned())
}

/// Does harm where a word asks for it.
fn harm(payload: &[u8]) {
    assert!(!has(payload, "panic"), "scripted to panic");
    if has(payload, "trap") {
        std::process::abort();
    }
    while has(payload, "loop") {
        black_box(payload);
    }
    if has(payload, "grow") {
        let mut kept = Vec::new();
        loop {
            kept.push(black_box(vec![1_u8; STEP]));
        }
    }
}

fn failure(message: Message<'_>) -> Option<Failure> {
    let payload = message.payload();
    let (word, kind) = [
        ("retry", FailureKind::Retry),
        ("poison", FailureKind::Poison),
        ("busy", FailureKind::Busy),
    ]
    .into_iter()
    .find(|(word, _)| has(payload, word))?;
    let after_ms = argument(payload, word).and_then(|text| text.parse().ok());
    Some(Failure {
        kind,
        after_ms: after_ms.unwrap_or(0),
        message: format!("scripted: {word}"),
    })
}

/// The changes that a message at this place asks for.
fn changes(place: u32, message: Message<'_>) -> Vec<KvChange> {
    let payload = message.payload();
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
    if has(payload, "stranger") {
        changes.push(KvChange {
            message: u32::MAX,
            key: "stranger".to_owned(),
            change: KvOperation::Increment(1),
        });
    }
    changes
}
