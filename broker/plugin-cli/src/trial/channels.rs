//! Channels of the plugin that is tried: what it publishes is kept, what it reads are the messages of the fixture.

use super::given::{Given, Scene, group, stored};
use penstock_core::admin::{MessagesAsk, PublishAsk};
use penstock_core::message::Committed;
use penstock_plugin_host::{Channels, PublishError, ReadError};
use serde::Deserialize;
use serde_json::Value;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A message that a plugin must publish.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectedPublish {
    #[serde(default = "group")]
    channel_type: u8,
    channel_id: String,
    /// A text, or JSON that the payload must be in any form.
    payload: Value,
    #[serde(default)]
    topic: String,
    #[serde(default)]
    expire: u32,
}

impl ExpectedPublish {
    fn is(&self, found: &PublishAsk) -> bool {
        let payload = match &self.payload {
            Value::String(text) => text.as_bytes() == &found.payload[..],
            wanted => serde_json::from_slice::<Value>(&found.payload).is_ok_and(|found| &found == wanted),
        };
        payload
            && (self.channel_type, &*self.channel_id) == (found.kind.0, &*found.channel_id)
            && (&*self.topic, self.expire) == (&*found.topic, found.expire_s)
    }
}

/// The channels of a case.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    published: Vec<PublishAsk>,
    committed: Vec<Arc<Committed>>,
}

impl Mail {
    fn lock(&self) -> MutexGuard<'_, Held> {
        // It is whole between two statements, whatever a holder died of.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds these messages, and nothing is published yet.
    pub(super) fn begin(&self, messages: &[Given], scene: Scene) {
        *self.lock() = Held {
            published: Vec::new(),
            committed: stored(messages, scene),
        };
    }

    /// How what was published differs; nothing when it does not.
    pub(super) fn difference(&self, expected: &[ExpectedPublish]) -> Option<String> {
        let held = self.lock();
        let found = &held.published;
        let fits = found.len() == expected.len()
            && expected
                .iter()
                .zip(found)
                .all(|(expected, found)| expected.is(found));
        let shown: Vec<String> = found.iter().map(show).collect();
        (!fits).then(|| format!("expected to publish {expected:?}, got [{}]", shown.join("; ")))
    }
}

fn show(message: &PublishAsk) -> String {
    let payload = String::from_utf8_lossy(&message.payload);
    format!("{}/{} {payload}", message.kind.0, message.channel_id)
}

impl Channels for Mail {
    fn publish(&self, message: PublishAsk, _: Duration) -> Result<(), PublishError> {
        let published = &mut self.lock().published;
        let is_same = |known: &PublishAsk| {
            known.client_msg_no == message.client_msg_no && known.channel_id == message.channel_id
        };
        if message.client_msg_no.is_empty() || !published.iter().any(is_same) {
            published.push(message);
        }
        Ok(())
    }

    fn read(&self, wanted: MessagesAsk, _: Duration) -> Result<Vec<Arc<Committed>>, ReadError> {
        let held = self.lock();
        let found = held
            .committed
            .iter()
            .filter(|committed| committed.channel == wanted.channel && committed.message.seq >= wanted.from);
        Ok(found.take(wanted.limit as usize).cloned().collect())
    }
}
