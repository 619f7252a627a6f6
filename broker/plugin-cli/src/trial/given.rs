//! Messages of a fixture, and the calls that they make.

use super::content::{Content, Forms};
use anyhow::{Context as _, Result};
use penstock_core::hooks::call::{StatusBatch, Window, Work};
use penstock_core::message::{Committed, Draft, Message, MessageFlags};
use penstock_core::types::{ChannelKey, ChannelKind, Incarnation, MessageId, Seq, SlotId, Uid};
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

/// The time of a fixture that names none, ms since 1970: the plugin sees it as the time, so that a run is like the one before.
pub(super) const WALL_MS: u64 = 1_700_000_000_000;
/// The first message id.
const MESSAGE_ID: i64 = 1_000;

/// What the calls of a case have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scene {
    /// The time of what is not stored yet, ms since 1970.
    pub(super) time_ms: u64,
    /// Which creation of the channel it is.
    pub(super) incarnation: u64,
}

impl Default for Scene {
    fn default() -> Scene {
        Scene {
            time_ms: WALL_MS,
            incarnation: 1,
        }
    }
}

/// A message as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    /// The sender.
    from: String,
    /// 1 a person, 2 a group.
    #[serde(default = "group")]
    channel_type: u8,
    /// The channel; of two persons the canonical id.
    channel_id: String,
    /// A text, or any other JSON, which is sent as its text.
    payload: Option<Value>,
    payload_base64: Option<String>,
    payload_bytes: Option<usize>,
    #[serde(default)]
    topic: String,
    /// Seconds until it is no longer shown; 0 for ever.
    #[serde(default)]
    expire: u32,
    client_msg_no: Option<String>,
    /// Times that it went through a plugin that published it.
    #[serde(default)]
    hops: u8,
    #[serde(default)]
    setting: u8,
    #[serde(default)]
    flags: Vec<Flag>,
    /// Of the sender's session: names and values, in their order.
    #[serde(default)]
    attributes: Vec<(String, String)>,
    /// What it has once it is stored.
    message_id: Option<i64>,
    message_seq: Option<u64>,
    timestamp_ms: Option<u64>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Flag {
    NoPersist,
    RedDot,
    SyncOnce,
}

pub(super) fn group() -> u8 {
    ChannelKind::GROUP.0
}

/// A message.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Written")]
pub(super) struct Given {
    channel: ChannelKey,
    content: Content,
    /// All but the payload and, where none was named, the number of the client.
    draft: Draft,
    client_msg_no: Option<Arc<str>>,
    message_id: Option<i64>,
    message_seq: Option<u64>,
    timestamp_ms: Option<u64>,
}

impl TryFrom<Written> for Given {
    type Error = String;

    fn try_from(written: Written) -> Result<Given, String> {
        Given::read(written).map_err(|error| format!("{error:#}"))
    }
}

impl Given {
    fn read(written: Written) -> Result<Given> {
        let forms = Forms {
            value: written.payload,
            base64: written.payload_base64,
            length: written.payload_bytes,
        };
        let content = forms.read("payload")?;
        let is_set = |flag| written.flags.contains(&flag);
        let flags = MessageFlags {
            no_persist: is_set(Flag::NoPersist),
            red_dot: is_set(Flag::RedDot),
            sync_once: is_set(Flag::SyncOnce),
        };
        let attributes: Vec<(Arc<str>, Arc<str>)> = written
            .attributes
            .into_iter()
            .map(|(name, value)| (Arc::from(name), Arc::from(value)))
            .collect();
        let draft = Draft {
            flags,
            setting: written.setting,
            expire_s: written.expire,
            topic: Arc::from(written.topic),
            attributes: (!attributes.is_empty()).then(|| Arc::from(attributes)),
            hops: written.hops,
            ..bare(&written.from)
        };
        Ok(Given {
            channel: ChannelKey::new(&written.channel_id, ChannelKind(written.channel_type)),
            content: content.context("payload: a message has one")?,
            draft,
            client_msg_no: written.client_msg_no.map(Arc::from),
            message_id: written.message_id,
            message_seq: written.message_seq,
            timestamp_ms: written.timestamp_ms,
        })
    }

    /// A message of this payload, from nobody in particular.
    pub(super) fn of(payload: &str) -> Given {
        Given {
            channel: ChannelKey::new("room", ChannelKind::GROUP),
            content: Content::text(payload),
            draft: bare("ann"),
            client_msg_no: None,
            message_id: None,
            message_seq: None,
            timestamp_ms: None,
        }
    }

    pub(super) fn channel(&self) -> &ChannelKey {
        &self.channel
    }

    /// Where it stands in its channel, if that is said.
    pub(super) fn seq(&self) -> Option<u64> {
        self.message_seq
    }

    /// Whether its payload is one that was not kept.
    pub(super) fn stands_in(&self) -> bool {
        self.content.stands_in
    }

    /// The payload as a text.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.content.bytes).into_owned()
    }

    fn draft(&self, at: usize) -> Draft {
        let number = || Arc::from(format!("fixture-{at}"));
        Draft {
            client_msg_no: self.client_msg_no.clone().unwrap_or_else(number),
            payload: self.content.bytes.clone(),
            ..self.draft.clone()
        }
    }

    fn stored(&self, at: usize, scene: Scene) -> Message {
        Message {
            id: MessageId(self.message_id.unwrap_or(MESSAGE_ID + at as i64)),
            seq: Seq(self.message_seq.unwrap_or(1 + at as u64)),
            stamp_ms: self.timestamp_ms.unwrap_or(scene.time_ms),
            draft: self.draft(at),
        }
    }
}

/// A draft without anything that a message may say of itself.
fn bare(from: &str) -> Draft {
    Draft {
        from_uid: Uid::new(from),
        client_msg_no: Arc::from(""),
        flags: MessageFlags::default(),
        setting: 0,
        expire_s: 0,
        topic: Arc::from(""),
        payload: bytes::Bytes::new(),
        origin: None,
        subscribers: Arc::from([]),
        attributes: None,
        hops: 0,
    }
}

/// The messages as one call of before-send.
pub(super) fn before_send(messages: &[Given], scene: Scene) -> Work {
    let drafts = messages.iter().enumerate();
    Work::BeforeSend {
        drafts: drafts.map(|(at, given)| given.draft(at)).collect(),
        wall_ms: scene.time_ms,
    }
}

/// The messages as one call of persist-after.
pub(super) fn persist_after(messages: &[Given], scene: Scene) -> Work {
    Work::PersistAfter {
        binding_incarnation: 1,
        incarnation: Incarnation(scene.incarnation),
        messages: committed(messages, scene),
    }
}

/// A message as one call of offline, for these recipients.
pub(super) fn offline(message: &Given, uids: &[String], scene: Scene) -> Work {
    Work::Offline {
        incarnation: Incarnation(scene.incarnation),
        message: Box::new(message.stored(0, scene)),
        uids: uids.iter().map(|uid| Uid::new(uid)).collect(),
    }
}

/// The messages as a plugin reads them.
pub(super) fn stored(messages: &[Given], scene: Scene) -> Vec<Arc<Committed>> {
    let channels = messages.iter().map(Given::channel);
    let stored = channels
        .zip(committed(messages, scene))
        .map(|(channel, message)| {
            Arc::new(Committed {
                channel: channel.clone(),
                incarnation: Incarnation(scene.incarnation),
                message,
            })
        });
    stored.collect()
}

/// The messages as one call of webhook; with uids one message and recipients of it who are offline.
pub(super) fn webhook(messages: &[Given], uids: &[String], scene: Scene) -> Work {
    let messages = committed(messages, scene);
    let seq = |message: Option<&Message>| message.map_or(Seq(1), |message| message.seq);
    Work::Webhook {
        window: Window {
            binding_incarnation: 1,
            incarnation: Incarnation(scene.incarnation),
            first: seq(messages.first()),
            last: seq(messages.last()),
        },
        messages,
        uids: uids.iter().map(|uid| Uid::new(uid)).collect(),
    }
}

fn committed(messages: &[Given], scene: Scene) -> Vec<Message> {
    let messages = messages.iter().enumerate();
    messages.map(|(at, given)| given.stored(at, scene)).collect()
}

/// Users that came or went, of webhook for `user.onlinestatus`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Statuses {
    /// One text for each, as receivers get it.
    users: Vec<String>,
    /// Where the batch comes from: the random numbers of the plugin depend on it.
    #[serde(default)]
    slot: u16,
    #[serde(default = "one")]
    number: u64,
}

const fn one() -> u64 {
    1
}

impl Statuses {
    /// As one call.
    pub(super) fn work(&self, scene: Scene) -> Work {
        Work::OnlineStatus(StatusBatch {
            binding_incarnation: 1,
            slot: SlotId(self.slot),
            number: self.number,
            wall_ms: scene.time_ms,
            statuses: self.users.clone(),
        })
    }
}
