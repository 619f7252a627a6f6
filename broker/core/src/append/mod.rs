//! The append authority of one channel: who may give a message its place, and who says that it has one.
//!
//! # Owns
//! The queue of submitted batches, the claims on idempotency keys of what is not yet committed, and the ledger of records
//! that wait for their commit. It exists on the node that leads the channel, one per channel (AP-0).
//!
//! # Invariants
//! - A success is made from a commit notification only: [`commit::Committed`] cannot be built anywhere else (AP-1, R25).
//! - There is one way into the log: the function that places a batch is the only one that emits [`Output::Append`] (R25).
//! - Batches are placed and answered in the order of their submission (AP-3); only a submission that is refused at the door
//!   (not leading, backlog, busy delivery) is answered at once.
//! - An idempotency key has one position per window, whatever fails in between (AP-2, R20).
//! - A refusal means: never appended. What may have been appended is `Unknown` and keeps its claim (AP-8, R21).
//!
//! # States
//! A batch: keys are looked up → before-send hooks → placed → every item has its outcome → answered. An item that is
//! known already leaves this path and waits for the commit of the record that it repeats.
//!
//! # Absent
//! No permission (decided before), no positions and no bytes of records (the replica gives and writes them), no fan-out.

mod authority;
mod batch;
pub mod commit;
mod dedupe;
pub mod faults;
mod identity;
pub mod ids;
mod placing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod walk_tests;

pub use authority::Authority;
pub use dedupe::key_of;

use crate::message::{DedupeKey, Draft, Message, Outcome, Record, Refusal};
use crate::types::{Incarnation, LeaderEpoch, Reason, Seq, Token};

/// What an authority is told. Tokens of answers are those of the output that asked; an answer to a question of an earlier
/// leadership is dropped (CH-13).
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Messages to append in this order, already permitted and normalised. Answered by one [`Output::Reply`].
    Submit {
        /// Echoed in the reply.
        token: Token,
        /// The messages.
        drafts: Vec<Draft>,
    },
    /// Whether this node leads the channel now, and what its log was when it began.
    Role(Role),
    /// The before-send hooks have judged the drafts of a [`Output::BeforeSend`], one verdict per draft in their order. Of a
    /// changed draft only payload, expiry and topic are taken.
    HooksDone {
        /// Echo.
        token: Token,
        /// The draft to append, or why it is refused.
        verdicts: Vec<Result<Draft, Refusal>>,
    },
    /// What stands at the position of a [`Output::CheckRecord`].
    RecordChecked {
        /// Echo.
        token: Token,
        /// What was found.
        checked: Checked,
    },
    /// The replica has taken the entries of a [`Output::Append`] and gave them contiguous positions.
    Appended {
        /// Echo.
        token: Token,
        /// Position of the first entry.
        first: Seq,
    },
    /// The replica has not taken the entries of a [`Output::Append`] and never will.
    AppendRefused {
        /// Echo.
        token: Token,
        /// Why.
        reason: Reason,
    },
    /// The high watermark: everything up to here is durable on a quorum.
    Committed {
        /// The leadership that says so.
        leader_epoch: LeaderEpoch,
        /// Last committed position.
        through: Seq,
    },
    /// Retention moved the first kept position of the log.
    LogStart(Seq),
    /// Delivery has accepted the plan for an [`Output::Ephemeral`], or could not.
    Planned {
        /// Echo.
        token: Token,
        /// Whether it accepted.
        accepted: bool,
    },
    /// Delivery of this channel lags beyond its bound (true), or has caught up (M-15).
    DeliveryBusy(bool),
}

/// What an authority wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Ask the before-send hooks about these drafts of one batch; answered by [`Input::HooksDone`].
    BeforeSend {
        /// Names the question.
        token: Token,
        /// The drafts, in order.
        drafts: Vec<Draft>,
    },
    /// Append to the channel's log; answered by [`Input::Appended`] or [`Input::AppendRefused`]. Appends are to be taken in
    /// the order in which they are emitted.
    Append(Append),
    /// Read the record at this position; answered by [`Input::RecordChecked`].
    CheckRecord {
        /// Names the question.
        token: Token,
        /// The position.
        seq: Seq,
    },
    /// Offer a message that is not stored to the members who are online (SF-1); answered by [`Input::Planned`].
    Ephemeral {
        /// Names the question.
        token: Token,
        /// The message, with seq 0.
        message: Message,
    },
    /// What became of the messages of a submission, one outcome per draft in their order.
    Reply {
        /// Token of the submission.
        token: Token,
        /// The outcomes.
        outcomes: Vec<Outcome>,
    },
}

/// Entries for the channel's log. The replica refuses them unless it leads exactly this epoch and is not fenced.
#[derive(Clone, Debug, PartialEq)]
pub struct Append {
    /// Names the append.
    pub token: Token,
    /// The creation of the channel that they belong to.
    pub incarnation: Incarnation,
    /// The leadership that they were admitted under.
    pub leader_epoch: LeaderEpoch,
    /// At least one entry, in order.
    pub entries: Vec<Entry>,
}

/// One entry: the replica adds position and leader epoch, and seals the record.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The message with its id and stamp; seq is 0 until the replica gave it one.
    pub message: Message,
    /// Idempotency key; none when the client gave no number.
    pub key: Option<DedupeKey>,
}

/// Whether this node leads the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It leads.
    Leading(Leadership),
    /// It does not, or not any more.
    Not,
}

/// A leadership at its start. The same epoch again updates version and log start; another one ends the former first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// The creation of the channel.
    pub incarnation: Incarnation,
    /// The epoch.
    pub leader_epoch: LeaderEpoch,
    /// Version of the metadata that granted it.
    pub meta_version: u64,
    /// First position that retention has kept.
    pub log_start: Seq,
    /// High watermark that is known at the start.
    pub committed: Seq,
    /// Stamp of the last record of the log, 0 when it is empty: stamps of a channel do not go back, so that idempotency rows
    /// of a leader with a faster clock are still found.
    pub last_stamp_ms: u64,
}

/// What stands at a position.
#[derive(Clone, Debug, PartialEq)]
pub enum Checked {
    /// This record.
    Record(Record),
    /// Nothing: the position is beyond the log's end.
    Missing,
    /// Retention removed it: the position is below this log start.
    Removed {
        /// First position kept.
        log_start: Seq,
    },
    /// It could not be read now; the send is refused as worth a retry (SF-4).
    Failed,
}
