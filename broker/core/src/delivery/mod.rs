//! Online fan-out of one channel at its leader: committed record → recipients (in pages) → routes → pushes by owner node.
//!
//! # Owns
//! The online-delivery cursor of the channel while it leads, the run of messages in progress, the queue of messages that
//! are not stored, and the leased ephemeral subscribers (SUB).
//!
//! # Invariants
//! - Nothing above the committed position is read or pushed (CH-3).
//! - The cursor passes a message only when each of its targets has bound it, is gone, or was given up and is owed (PC-1).
//! - Who is owed something is looked for until found: a session with a hole is closed, so that its client pulls. The next
//!   leader inherits the debt.
//! - Runs follow each other: a session sees the channel in order.
//! - A member receives only seq >= its join_seq (PC-2), nobody an expired message (SF-2), and the origin connection no RECV
//!   of its own message.
//! - Memory is bounded by a page of targets and a run of messages; one failed target delays a run at most by
//!   `request_timeout`, and the next runs by `channel_retry` while it stays failed (PC-4).
//! - "Unknown" is asked again within that bound and never taken as offline (PR-4).
//!
//! # States
//! ```text
//! not leading → idle ⇄ run: reading → [subscribers | members page → lookups → pushes ⇄ retries]* → cursor
//!               idle ⇄ settling: lookups → pushes without messages
//! ```
//!
//! # Absent
//! No permission, no member rows (the shard reads them), no bytes of a wire format, nothing for offline users.

mod channel;
mod faults;
mod members;
mod memory;
mod owed;
mod run;
mod targets;
#[cfg(test)]
mod tests;

pub use crate::audience::{MembersPage, Presence};
pub use channel::Channel;
pub use faults::{Fault, Faults};
pub use owed::OwedWord;

use crate::limits::Limits;
use crate::message::Committed;
use crate::types::{
    ChannelKey, ChannelKind, Incarnation, LeaderEpoch, NodeId, Reason, Route, Seq, SlotId, Token, Uid,
};
use std::sync::Arc;

/// What the delivery of a channel is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// This node leads the channel and may deliver: everything after `cursor` up to `committed` is due.
    Leading {
        /// Which creation of the channel.
        incarnation: Incarnation,
        /// Under which leadership.
        leader_epoch: LeaderEpoch,
        /// Durable online-delivery cursor.
        cursor: Seq,
        /// Committed so far.
        committed: Seq,
        /// What the leaders told last of whom they owe something.
        owed: OwedWord,
    },
    /// Leadership is over: everything in progress is dropped.
    Lost,
    /// The high watermark moved.
    Committed {
        /// Last committed position.
        through: Seq,
    },
    /// A message that is not stored; answered by [`Output::Accepted`].
    Ephemeral {
        /// Chosen by the caller.
        token: Token,
        /// The message, seq 0.
        message: Arc<Committed>,
    },
    /// Answer to [`Output::ReadRecords`]: decoded, contiguous. What is before the log start was removed by retention and is
    /// passed; any other gap, like an error, is read again.
    Records {
        /// From the question.
        token: Token,
        /// The messages, or nothing because the read failed.
        messages: Option<Vec<Arc<Committed>>>,
        /// First position that the log still has.
        log_start: Seq,
    },
    /// Answer to [`Output::Members`].
    Members {
        /// From the question.
        token: Token,
        /// The page.
        page: MembersPage,
    },
    /// Answer to [`Output::Lookup`], in one or more parts.
    Found {
        /// From the question.
        token: Token,
        /// What is known of these slots.
        slots: Vec<(SlotId, Presence)>,
    },
    /// Answer to [`Output::Push`], in one or more parts: (position in `targets`, outcome).
    Pushed {
        /// From the question.
        token: Token,
        /// Outcomes by position.
        outcomes: Vec<(u16, Pushed)>,
    },
    /// A session subscribed (SUB), or renewed its lease; permission was asked by the shard.
    Subscribe {
        /// The session.
        route: Route,
    },
    /// A session left.
    Unsubscribe {
        /// The session.
        route: Route,
    },
}

/// What the delivery of a channel wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Read and decode committed records from `from` to `through`, inclusive, at most `records_max`.
    ReadRecords {
        /// Names the answer.
        token: Token,
        /// Which creation of the channel.
        incarnation: Incarnation,
        /// First position.
        from: Seq,
        /// Last position.
        through: Seq,
        /// Most records.
        records_max: u32,
    },
    /// Read a page of the channel's members, ascending by uid, after `after`.
    Members {
        /// Names the answer.
        token: Token,
        /// The channel whose members receive: the source of a command channel.
        channel: ChannelKey,
        /// Member revision of a list that is kept here: if it is current, the answer is `Unchanged`.
        known_revision: Option<u64>,
        /// Resume position, exclusive.
        after: Option<Uid>,
        /// Most members.
        members_max: u32,
    },
    /// Where are these users? Each slot is asked at its presence authority; the answers may come in parts.
    Lookup {
        /// Names the answers.
        token: Token,
        /// Users by slot.
        slots: Vec<(SlotId, Vec<Uid>)>,
    },
    /// Offer messages to sessions of a node; answered for each target.
    Push {
        /// Names the answers.
        token: Token,
        /// The owner node.
        node: NodeId,
        /// What to offer to whom.
        push: Push,
    },
    /// Targets up to here have bound their messages (PC-1). To be made durable lazily (M-6).
    Cursor {
        /// Which creation of the channel.
        incarnation: Incarnation,
        /// Under which leadership.
        leader_epoch: LeaderEpoch,
        /// Position.
        through: Seq,
    },
    /// Whom the channel owes something now. To be made durable before the cursor that follows it (PC-1).
    Owed {
        /// What to tell the other replicas.
        word: OwedWord,
    },
    /// Answer to [`Input::Ephemeral`]: queued in writer order, or the reason for SENDACK (SF-1).
    Accepted {
        /// From the question.
        token: Token,
        /// Queued or refused.
        result: Result<(), Reason>,
    },
}

/// Messages for sessions of one node. The messages are shared by the targets.
#[derive(Clone, Debug, PartialEq)]
pub struct Push {
    /// Messages of one channel, ascending, at most one run.
    pub messages: Vec<Arc<Committed>>,
    /// Channel kind as the receivers see it.
    pub kind: ChannelKind,
    /// Who gets which of them; at most a page.
    pub targets: Vec<Target>,
}

/// One session's share of a [`Push`].
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The session.
    pub route: Route,
    /// Channel id as this receiver sees it.
    pub channel_id: Arc<str>,
    /// Position of the first message that it gets.
    pub first: u16,
    /// Positions that it does not get: it sent them itself.
    pub except: Vec<u16>,
    /// An earlier run was given up for this session: it has a hole and is to be closed, so that the client pulls.
    pub missed: bool,
}

impl Push {
    /// The messages of one target, in order.
    #[must_use]
    pub fn messages_of(&self, target: &Target) -> Vec<Arc<Committed>> {
        let positions = 0_u16..;
        positions
            .zip(&self.messages)
            .filter(|(position, _)| *position >= target.first && !target.except.contains(position))
            .map(|(_, message)| Arc::clone(message))
            .collect()
    }
}

/// What became of one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The owner has bound ACK state.
    Bound,
    /// There is no such session.
    Gone,
    /// Not now: pushed again within the bound.
    NotYet,
    /// The session's window is full: pushed again very soon. The session ends itself when it stays full.
    Full,
}

/// What was not delivered and why it was not waited for, since the machine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages × targets that were bound.
    pub bound: u64,
    /// Targets given up after retries (their clients pull).
    pub given_up: u64,
    /// Messages skipped because they were expired.
    pub expired: u64,
    /// Messages that were not stored and lost with the leadership.
    pub ephemeral_lost: u64,
}

/// What the delivery of a channel knows from the start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Bounds.
    pub limits: Limits,
    /// Planted faults, none in production.
    pub faults: Faults,
}
