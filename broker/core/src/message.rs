//! What a channel stores: a message as its leader stamped it, and the record that carries it verbatim to every replica.

use crate::types::{ChannelKey, Incarnation, LeaderEpoch, MessageId, Reason, Seq, Uid};
use bytes::Bytes;
use std::sync::Arc;

/// Flags of a message (client contract 1.2) that survive to RECV and history (SF-2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageFlags {
    /// Not stored (SF-1).
    pub no_persist: bool,
    /// Counts as unread.
    pub red_dot: bool,
    /// Command message, kept in the command channel.
    pub sync_once: bool,
}

/// What the gates that a session passed know of it: names and values, in order.
pub type Attributes = Arc<[(Arc<str>, Arc<str>)]>;

/// A message to be appended, as the sender gave it, after normalisation and permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// Sender.
    pub from_uid: Uid,
    /// Idempotency number chosen by the client; empty means no de-duplication (AP-2).
    pub client_msg_no: Arc<str>,
    /// Flags.
    pub flags: MessageFlags,
    /// Setting byte (client contract 1.4), without the NoEncrypt bit.
    pub setting: u8,
    /// Seconds until the message is no longer shown; 0 = for ever.
    pub expire_s: u32,
    /// Topic; empty when absent.
    pub topic: Arc<str>,
    /// The bytes of the client (before any hook).
    pub payload: Bytes,
    /// The connection that sent it, which gets no RECV of its own message.
    pub origin: Option<(crate::types::NodeId, crate::types::ConnectionId)>,
    /// The receivers that the request named; empty when the members of the channel receive it. They stand in the record,
    /// because nothing else keeps them (PC-2: a send writes no membership row).
    pub subscribers: Arc<[Uid]>,
    /// The attributes of the session that sent it, for the before-send stages alone: they are not stored.
    pub attributes: Option<Attributes>,
    /// Times that it went through a plugin that published it; 0 for what people send (S17).
    pub hops: u8,
}

/// A stored message (AP-4: id and stamp are set once, by the append authority).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Snowflake id.
    pub id: MessageId,
    /// Position; 0 for a message that is not stored.
    pub seq: Seq,
    /// Server time of the append, ms since 1970.
    pub stamp_ms: u64,
    /// What was sent (payload after hooks).
    pub draft: Draft,
}

impl Message {
    /// Whether the message is no longer shown at this wall clock (SF-2).
    #[must_use]
    pub fn expired(&self, wall_ms: u64) -> bool {
        let lives_ms = u64::from(self.draft.expire_s) * 1_000;
        lives_ms > 0 && self.stamp_ms.saturating_add(lives_ms) <= wall_ms
    }
}

/// A message on its way to sessions, with the channel it belongs to. Shared by all its recipients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The channel.
    pub channel: ChannelKey,
    /// Which creation of it.
    pub incarnation: Incarnation,
    /// The message.
    pub message: Message,
}

/// Idempotency key inside a record (AP-2): it is replicated and stored with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DedupeKey {
    /// First 64 bits of SHA-256 over (from_uid, client_msg_no), length-prefixed.
    pub hash: u64,
    /// First 128 bits of SHA-256 over the bytes that the client sent, before any hook.
    pub digest: u128,
}

/// Value of an idempotency row (AP-2, M-11): written in the batch that stores the record, by leader and followers alike. It
/// outlives the record until the window ends, so it repeats what a retry must be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DedupeRow {
    /// Position of the record. The record may be gone (retention) or replaced by another one (truncation).
    pub seq: Seq,
    /// Digest of the bytes that the client sent.
    pub digest: u128,
    /// Message id.
    pub id: MessageId,
    /// Stamp of the record, ms since 1970: decides its day and its expiry.
    pub stamp_ms: u64,
}

/// Milliseconds of a day, by which idempotency rows are kept (M-11).
const DAY_MS: u64 = 24 * 3_600 * 1_000;

impl DedupeRow {
    /// The row of a record, if it has an idempotency key.
    #[must_use]
    pub fn of(record: &Record) -> Option<DedupeRow> {
        record.key.map(|key| DedupeRow {
            seq: record.seq,
            digest: key.digest,
            id: record.id,
            stamp_ms: record.stamp_ms,
        })
    }

    /// The day of a stamp: days since 1970, at most `u16::MAX` (the year 2149).
    #[must_use]
    pub fn day(stamp_ms: u64) -> u16 {
        u16::try_from(stamp_ms / DAY_MS).unwrap_or(u16::MAX)
    }

    /// The stored bytes: seq, digest, id, stamp, all big-endian.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(40);
        out.extend_from_slice(&self.seq.0.to_be_bytes());
        out.extend_from_slice(&self.digest.to_be_bytes());
        out.extend_from_slice(&self.id.0.to_be_bytes());
        out.extend_from_slice(&self.stamp_ms.to_be_bytes());
        Bytes::from(out)
    }

    /// The row of these bytes; none when they are not one.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<DedupeRow> {
        let (seq, rest) = bytes.split_first_chunk::<8>()?;
        let (digest, rest) = rest.split_first_chunk::<16>()?;
        let (id, rest) = rest.split_first_chunk::<8>()?;
        let (stamp_ms, rest) = rest.split_first_chunk::<8>()?;
        rest.is_empty().then(|| DedupeRow {
            seq: Seq(u64::from_be_bytes(*seq)),
            digest: u128::from_be_bytes(*digest),
            id: MessageId(i64::from_be_bytes(*id)),
            stamp_ms: u64::from_be_bytes(*stamp_ms),
        })
    }
}

/// One record of a channel log: written once by the leader, verbatim by everyone else (R19).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Position.
    pub seq: Seq,
    /// The leadership that wrote it.
    pub leader_epoch: LeaderEpoch,
    /// Stamp of the leader, ms since 1970: decides the day of the idempotency row and its expiry on every replica.
    pub stamp_ms: u64,
    /// Message id, given once by the leader (R19). It stands here besides in the body, so that the idempotency row, which
    /// outlives the record, can repeat it (AP-2).
    pub id: MessageId,
    /// Idempotency key; none when the client gave no number.
    pub key: Option<DedupeKey>,
    /// Encoded message (`wire::storage::v1::Message`).
    pub body: Bytes,
    /// CRC-32 over the fields above, set by the leader, checked at every read and receipt (R30).
    pub crc: u32,
}

impl Record {
    /// CRC-32 over position, leader epoch, stamp, id, key and body.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.seq.0.to_be_bytes());
        hasher.update(&self.leader_epoch.0.to_be_bytes());
        hasher.update(&self.stamp_ms.to_be_bytes());
        hasher.update(&self.id.0.to_be_bytes());
        hasher.update(&[u8::from(self.key.is_some())]);
        if let Some(key) = self.key {
            hasher.update(&key.hash.to_be_bytes());
            hasher.update(&key.digest.to_be_bytes());
        }
        hasher.update(&self.body);
        hasher.finalize()
    }

    /// The record with its checksum set: what a leader does once.
    #[must_use]
    pub fn sealed(mut self) -> Record {
        self.crc = self.checksum();
        self
    }

    /// Whether the checksum matches the content (R30).
    #[must_use]
    pub fn is_intact(&self) -> bool {
        self.crc == self.checksum()
    }
}

/// Why a message is not taken, with a text for its sender where there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The code.
    pub reason: Reason,
    /// Words for the sender, at most [`REFUSAL_BYTES_MAX`].
    pub text: Option<Arc<str>>,
}

/// Longest text of a [`Refusal`], bytes; what is longer is cut.
pub const REFUSAL_BYTES_MAX: usize = 1_024;

impl From<Reason> for Refusal {
    fn from(reason: Reason) -> Refusal {
        Refusal { reason, text: None }
    }
}

impl Refusal {
    /// The refusal within its bound, cut between two characters.
    #[must_use]
    pub fn bounded(mut self) -> Refusal {
        let text = self.text.take().filter(|text| !text.is_empty());
        self.text = text.map(|text| {
            if text.len() <= REFUSAL_BYTES_MAX {
                return text;
            }
            Arc::from(&text[..text.floor_char_boundary(REFUSAL_BYTES_MAX)])
        });
        self
    }
}

/// What became of one send (AP-8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Committed and durable on a quorum (or found again by its idempotency key).
    Committed {
        /// Message id.
        id: MessageId,
        /// Position; 0 for a message that is not stored.
        seq: Seq,
        /// Stamp, ms.
        stamp_ms: u64,
    },
    /// Refused; never appended. The reason says whether a retry makes sense.
    Refused(Reason),
    /// Refused by a plugin, with words for the sender; never appended.
    Rejected {
        /// The code.
        reason: Reason,
        /// The words.
        text: Arc<str>,
    },
    /// Perhaps appended: only a retry with the same client_msg_no tells (R21).
    Unknown,
}

impl From<Refusal> for Outcome {
    fn from(refusal: Refusal) -> Outcome {
        match refusal.text {
            Some(text) => Outcome::Rejected {
                reason: refusal.reason,
                text,
            },
            None => Outcome::Refused(refusal.reason),
        }
    }
}
