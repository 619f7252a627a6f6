//! A consumer that reads and publishes messages as a message tells it to, for tests of the broker. A message is a JSON text:
//!
//! | field | what it does |
//! |---|---|
//! | `read` | reads in this channel of type 2, from position `from` (1 unless given) on, at most `limit` messages (100 unless given) |
//! | `publish` | sends `text` to this channel of type 2, `times` times |
//!
//! What came of it is a line of the log: `read room: 1 hello, 2 there` or the error, `published room: 3 sent, 1 rate`. A message that tells it
//! nothing is done.

use penstock_plugin_sdk::{Batch, Consumer, Done, Failure, host};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Groups.
const GROUP: u8 = 2;
const READ_MAX: u32 = 100;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Script {
    read: Option<String>,
    from: Option<u64>,
    limit: Option<u32>,
    publish: Option<String>,
    text: String,
    times: Option<u32>,
}

/// The content of a payload.
#[derive(Default, Deserialize)]
struct Text {
    content: String,
}

/// The consumer.
pub struct Publisher;

impl Consumer for Publisher {
    fn new(_config: &str) -> Result<Self, String> {
        Ok(Self)
    }

    fn persist_after(&mut self, batch: &Batch<'_>) -> Result<Done, Failure> {
        for (place, message) in (0..).zip(batch.messages()) {
            let script: Script = serde_json::from_str(&content(message.payload())).unwrap_or_default();
            if let Some(channel) = &script.read {
                host::info(&format!("read {channel}: {}", read(channel, &script)));
            }
            if let Some(channel) = &script.publish {
                host::info(&format!(
                    "published {channel}: {}",
                    publish(channel, place, &script)
                ));
            }
        }
        Ok(Done::all(batch))
    }
}

penstock_plugin_sdk::consumer!(Publisher);

fn content(payload: &[u8]) -> String {
    let text: Text = serde_json::from_slice(payload).unwrap_or_default();
    text.content
}

/// Positions and contents of what is read.
fn read(channel: &str, script: &Script) -> String {
    let (from, limit) = (script.from.unwrap_or(1), script.limit.unwrap_or(READ_MAX));
    let (arena, index) = match host::messages::read(channel, GROUP, from, limit) {
        Ok(frame) => frame,
        Err(error) => return error.name().to_owned(),
    };
    let batch = Batch::parse(&arena, &index).expect("a whole frame");
    let shown: Vec<String> = batch
        .messages()
        .map(|message| format!("{} {}", message.position(), content(message.payload())))
        .collect();
    shown.join(", ")
}

/// How many sends ended how.
fn publish(channel: &str, cause: u32, script: &Script) -> String {
    let mut ends: BTreeMap<&str, u32> = BTreeMap::new();
    let payload = serde_json::json!({ "type": 1, "content": script.text }).to_string();
    for _ in 0..script.times.unwrap_or(1) {
        let sent = host::publish::send(&host::publish::Message {
            cause,
            channel_id: channel.to_owned(),
            channel_kind: GROUP,
            payload: payload.clone().into_bytes(),
            topic: String::new(),
            expire_seconds: 0,
        });
        let end = sent.map_or_else(|error| error.name(), |()| "sent");
        *ends.entry(end).or_default() += 1;
    }
    let shown: Vec<String> = ends.iter().map(|(end, count)| format!("{count} {end}")).collect();
    shown.join(", ")
}
