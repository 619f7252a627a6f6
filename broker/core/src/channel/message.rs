//! What replicas of one channel log say to each other. Plain data, and self-describing: each message carries the incarnation,
//! the leader epoch and the sender's boots (CH-4, M-1), so that a late one can be told from a fresh one.

use super::epochs::EpochTable;
use crate::message::Record;
use crate::types::{Boots, DiskBoot, Incarnation, LeaderEpoch, Seq};
use bytes::Bytes;

/// One message between two replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Which creation of the channel.
    pub incarnation: Incarnation,
    /// The epoch that the message belongs to: the sender's leadership, or the one that it answers.
    pub leader_epoch: LeaderEpoch,
    /// The sender's process and disk.
    pub boots: Boots,
    /// What it says.
    pub body: Body,
}

/// Durable positions of post-commit consumers, merged by maximum (M-6): `(consumer, value)`; values of one consumer have one
/// width and compare as bytes.
pub type Cursors = Vec<(Bytes, Bytes)>;

/// What a message says. Positions named `log_end`, `epoch_start`, `log_start`, `first` and `from` are "next to write" or "first
/// held"; `high_watermark` is the last committed position, inclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A leader-elect asks a voter to promise the epoch (CH-5).
    Promise {
        /// The voter's disk by the grant (M-4).
        disk: DiskBoot,
    },
    /// The promise is durable; here is the evidence.
    Promised(Evidence),
    /// Not obeyed: something newer is promised, or this replica may not give evidence.
    Refused {
        /// The highest epoch promised or accepted here.
        promised: LeaderEpoch,
        /// Version of the newest metadata known here.
        version: u64,
        /// Why.
        why: Refusal,
    },
    /// Recovery: a leader-elect copies the log that it chose.
    Fetch {
        /// First position wanted.
        from: Seq,
    },
    /// Recovery: part of the log.
    Fetched {
        /// First position asked for.
        from: Seq,
        /// The records from there, at least one if there is any.
        records: Vec<Record>,
    },
    /// The leader's records, unasked (M-2).
    Replicate(Replicate),
    /// Where a follower durably stands (M-1).
    Progress(Progress),
    /// The leader's log begins after what this follower has (CH-14): fetch the idempotency rows of what is removed, then
    /// begin here.
    Reset(Reset),
    /// Asks for idempotency rows of what is removed at the sender's source, in (day, hash) order.
    FetchDedupe {
        /// Resume after this row; none begins.
        after: Option<(u16, u64)>,
        /// Rows of positions below this are wanted.
        below: Seq,
    },
    /// Idempotency rows.
    FetchedDedupe {
        /// What was asked for.
        after: Option<(u16, u64)>,
        /// The bound that was asked for.
        below: Seq,
        /// The rows `(day, hash, value)`.
        rows: Vec<(u16, u64, Bytes)>,
        /// Where to resume; none at the end.
        next: Option<(u16, u64)>,
    },
    /// The leader asks whether it still leads (M-5).
    Barrier {
        /// The follower's disk by the grant.
        disk: DiskBoot,
        /// Which round.
        round: u64,
    },
    /// Nothing newer is promised here.
    BarrierReply {
        /// Which round.
        round: u64,
    },
}

/// Why a replica does not obey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A newer epoch is promised or accepted.
    Stale,
    /// It lost its disk or part of its log and gives no evidence yet (CH-7, R30).
    NoEvidence,
    /// The disk named by the grant is another one (M-4).
    OtherDisk,
}

/// What a voter reports with its promise (CH-5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Highest accepted epoch.
    pub accepted: LeaderEpoch,
    /// Next position to be written.
    pub log_end: Seq,
    /// First position held.
    pub log_start: Seq,
    /// Which epoch wrote what.
    pub epochs: EpochTable,
    /// Last position known to be committed.
    pub high_watermark: Seq,
    /// Consumers' positions.
    pub cursors: Cursors,
}

/// A leader's records for a follower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replicate {
    /// The follower's disk by the grant (M-4).
    pub disk: DiskBoot,
    /// First position that this epoch may write.
    pub epoch_start: Seq,
    /// Position of the first record, or the log end as known when there is none.
    pub first: Seq,
    /// Epoch of the record before `first`.
    pub previous_epoch: LeaderEpoch,
    /// The records.
    pub records: Vec<Record>,
    /// Last committed position.
    pub high_watermark: Seq,
    /// Consumers' positions that the follower has not confirmed (M-6).
    pub cursors: Cursors,
    /// Confirmed by [`Progress::cursor_mark`].
    pub cursor_mark: u64,
    /// Whether an answer is wanted. Updates of the high watermark alone want none, and may be coalesced (M-2).
    pub answer: bool,
}

/// Where a follower stands: all of it durable before it is said (M-1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Highest accepted epoch: only if it is the leader's does this message count for the high watermark.
    pub accepted: LeaderEpoch,
    /// Next position to be written.
    pub log_end: Seq,
    /// First position held.
    pub log_start: Seq,
    /// Epoch of the last record.
    pub last_epoch: LeaderEpoch,
    /// The epoch is not accepted yet, or the records did not fit: which epoch wrote what here, so that the leader finds the common prefix.
    pub conflict: Option<EpochTable>,
    /// The cursors up to this mark are known here.
    pub cursor_mark: u64,
}

/// Where a log without its beginning begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reset {
    /// The follower's disk by the grant (M-4).
    pub disk: DiskBoot,
    /// First position that this epoch may write.
    pub epoch_start: Seq,
    /// First position held by the leader.
    pub log_start: Seq,
    /// The leader's epoch table up to the log start.
    pub epochs: EpochTable,
    /// Last committed position.
    pub high_watermark: Seq,
    /// All consumers' positions.
    pub cursors: Cursors,
}

/// What a message costs on a link, in bytes, about.
const OVERHEAD_BYTES: usize = 64;

/// What a record costs besides its body, in bytes, about.
pub(crate) const RECORD_BYTES: usize = 48;

/// Size of records as flow control counts them.
#[must_use]
pub fn records_bytes(records: &[Record]) -> usize {
    records.iter().map(record_bytes).sum()
}

/// Size of a record as flow control counts it.
#[must_use]
pub fn record_bytes(record: &Record) -> usize {
    record.body.len() + RECORD_BYTES
}

impl Message {
    /// Size as flow control counts it, in bytes.
    #[must_use]
    pub fn cost_bytes(&self) -> usize {
        OVERHEAD_BYTES
            + match &self.body {
                Body::Fetched { records, .. } => records_bytes(records),
                Body::Replicate(replicate) => {
                    records_bytes(&replicate.records) + cursors_bytes(&replicate.cursors)
                }
                Body::Promised(evidence) => evidence.epochs.len() * 16 + cursors_bytes(&evidence.cursors),
                Body::Reset(reset) => reset.epochs.len() * 16 + cursors_bytes(&reset.cursors),
                Body::FetchedDedupe { rows, .. } => rows.len() * 40,
                _ => 0,
            }
    }

    /// Whether the message carries content that flow control may hold back. The others are small and keep the protocol going.
    #[must_use]
    pub fn is_bulk(&self) -> bool {
        match &self.body {
            Body::Replicate(replicate) => !replicate.records.is_empty(),
            Body::Fetched { .. } | Body::FetchedDedupe { .. } => true,
            _ => false,
        }
    }

    /// Whether the message only tells a newer high watermark (or cursors), so that it may wait and a newer one replaces it (M-2).
    #[must_use]
    pub fn is_watermark_only(&self) -> bool {
        matches!(&self.body, Body::Replicate(replicate) if replicate.records.is_empty() && !replicate.answer)
    }
}

fn cursors_bytes(cursors: &Cursors) -> usize {
    cursors
        .iter()
        .map(|(consumer, value)| consumer.len() + value.len() + 8)
        .sum()
}
