//! How far each post-commit consumer of a channel has come (PC-1, M-6, M-18).

mod machine;
mod patience;
mod progress;
#[cfg(test)]
mod tests;

pub use crate::cursor::Cursor;
pub use crate::patience::Patience;
pub use machine::Cursors;

use crate::limits::Limits;
use crate::message::Record;
pub use crate::plugins::Cause;
use crate::types::{ChannelKey, ChannelKind, Incarnation, LeaderEpoch, Seq, Token};
use penstock_wire::channel_id;
use std::sync::Arc;
use std::time::Duration;

/// What the cursors of a channel are told. Answers to questions of an earlier leadership are dropped (CH-13).
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Whether this node leads the channel. A new leader continues at the stored cursors (R27).
    Role(Role),
    /// The high watermark.
    Committed {
        /// The leadership that says so.
        leader_epoch: LeaderEpoch,
        /// Last committed position.
        through: Seq,
    },
    /// Retention moved the first kept position. What a consumer has not seen below it is skipped and reported (CH-14).
    LogStart(Seq),
    /// The consumers that follow the channel from now on, besides those of its first record.
    Consumers(Vec<Consumer>),
    /// Another replica knows of a cursor (side lane of Replicate and Promise): the larger one stands.
    Learned {
        /// The consumer.
        consumer: Arc<str>,
        /// Its cursor.
        cursor: Cursor,
    },
    /// Records that an [`Output::Read`] asked for.
    ReadDone {
        /// Echo.
        token: Token,
        /// Committed, contiguous, from the later of the asked position and the log start; none when they could not be read.
        records: Option<Vec<Record>>,
    },
    /// The cursor of an [`Output::Fix`] is held durably by as many replicas as a commit needs.
    Fixed {
        /// Echo.
        token: Token,
    },
    /// Fewer records of an [`Output::Consume`] are done than it has, and their effects are still to be made. The window of an exact
    /// consumer ends with them from now on: answered by [`Output::Narrowed`], and then `Done` or `Failed` is told.
    Narrow {
        /// Echo.
        token: Token,
        /// Last position that is done.
        through: Seq,
    },
    /// The effect of an [`Output::Consume`] is done for its records up to here; fewer than all is allowed.
    Done {
        /// Echo.
        token: Token,
        /// Last position that is done.
        through: Seq,
    },
    /// The effect of an [`Output::Consume`] failed and may be tried again, or never can be done.
    Failed {
        /// Echo.
        token: Token,
        /// How.
        failure: Failure,
    },
}

/// What the cursors want done.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Have the replica read committed records, which judges what its disk gives (R30); answered by [`Input::ReadDone`].
    Read {
        /// Names the read.
        token: Token,
        /// Which.
        range: Range,
    },
    /// Tell the other replicas a cursor with an open window, and have it held durably by as many of them as a commit needs, or the
    /// next leader would cut another window (M-18). Answered by [`Input::Fixed`].
    Fix {
        /// Names the answer.
        token: Token,
        /// The consumer.
        consumer: Arc<str>,
        /// Its cursor.
        cursor: Cursor,
    },
    /// The window ends where [`Input::Narrow`] said.
    Narrowed {
        /// The token of the run.
        token: Token,
    },
    /// Do the effect of these committed records, in order; answered by [`Input::Done`] or [`Input::Failed`].
    Consume {
        /// Names the call.
        token: Token,
        /// The consumer.
        consumer: Arc<str>,
        /// At least one record, contiguous.
        records: Vec<Record>,
    },
    /// A cursor moved: tell the other replicas on the side lane (M-6).
    Moved {
        /// The consumer.
        consumer: Arc<str>,
        /// Its cursor.
        cursor: Cursor,
    },
    /// A record is to be given up for a consumer after its last attempt, or was called poison. To be kept durably before the cursor
    /// passes it (M-6): answered by [`Input::Done`] or [`Input::Failed`], after which the consumer is asked once more.
    DeadLetter(GivenUp),
    /// Retention removed records that a consumer has not seen (CH-14). To be counted.
    Skipped {
        /// The consumer.
        consumer: Arc<str>,
        /// First position skipped.
        from: Seq,
        /// Last position skipped.
        through: Seq,
    },
}

/// Records that are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First position.
    pub from: Seq,
    /// Most records.
    pub records_max: u32,
    /// Most bytes; one record always fits.
    pub bytes_max: u32,
}

/// How far a consumer is behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// Committed records that it has not done.
    pub records: u64,
    /// Stamp of the first of them, ms since 1970, once it was read.
    pub oldest_ms: Option<u64>,
}

/// A record that is to be given up for a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenUp {
    /// Names the answer.
    pub token: Token,
    /// The consumer.
    pub consumer: Arc<str>,
    /// The record's position.
    pub seq: Seq,
    /// Attempts that were made.
    pub attempts: u32,
    /// How the last one failed.
    pub cause: Cause,
}

/// Whether this node leads the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It leads. The same epoch again changes nothing.
    Leading {
        /// The creation of the channel.
        incarnation: Incarnation,
        /// The epoch.
        leader_epoch: LeaderEpoch,
        /// First position that retention has kept.
        log_start: Seq,
        /// High watermark that is known at the start.
        committed: Seq,
    },
    /// It does not, or not any more: what is under way is forgotten; the next leader repeats it.
    Not,
}

/// Where a consumer without a stored cursor begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the first kept record.
    Earliest,
    /// After what is committed when its first leadership here begins.
    Latest,
    /// At this position.
    At(Seq),
    /// At the first record stamped at or after this time, ms since 1970: the same place whoever leads, and whenever.
    Since(u64),
}

/// A consumer of committed records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumer {
    /// Unique name; part of the row's key.
    pub name: Arc<str>,
    /// Where it begins.
    pub start: Start,
    /// Whether windows are fixed durably before they are handed out (M-18).
    pub exact: bool,
    /// Whether it wants the first record of the channel only (the membership rows of a person channel, PC-2).
    pub first_only: bool,
    /// Attempts before a record is given up; none tries for ever, also what was called poison.
    pub attempts_max: Option<u32>,
    /// Records of one run.
    pub run_max: u32,
    /// How long a record is tried, whatever the number of attempts, and how the pauses between them grow. None pauses as all
    /// others do, and counts attempts alone.
    pub patience: Option<Patience>,
}

/// How an effect failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// To be tried again, not before this time when the consumer named one.
    Retry {
        /// Wished pause.
        after: Option<Duration>,
        /// Why.
        cause: Cause,
    },
    /// The first record of the run can never be done.
    Poison,
    /// The consumer has no time for it: no attempt of any record. To be tried again, not before this time when it named one.
    Busy {
        /// Wished pause.
        after: Option<Duration>,
    },
    /// It was not tried: no attempt of any record.
    Untried,
    /// It was not tried, and is not to be for this long.
    Later {
        /// Wished pause.
        after: Duration,
    },
}

/// The built-in consumers of a channel that move by a cursor of [`Cursors`]: a person channel's membership rows (not those of a
/// command channel). Online delivery keeps its own cursor.
#[must_use]
pub fn built_in(channel: &ChannelKey) -> Vec<Consumer> {
    let person = channel.kind == ChannelKind::PERSON && !channel_id::is_command(&channel.id);
    person.then(Consumer::membership).into_iter().collect()
}

impl Consumer {
    /// First position that it has not done, by its stored cursor; none if it wants nothing, whatever the channel holds. One
    /// without a cursor that begins at the latest has never been led here: it begins when the channel is used.
    #[must_use]
    pub fn owed_from(&self, stored: Option<Cursor>) -> Option<Seq> {
        match (stored, self.start) {
            (Some(cursor), _) if self.first_only && cursor.done >= Seq(1) => None,
            (Some(cursor), _) => Some(cursor.done.next()),
            (None, Start::Earliest | Start::Since(_)) => Some(Seq(1)),
            (None, Start::At(seq)) => Some(seq),
            (None, Start::Latest) => None,
        }
    }

    /// The built-in delivery to sessions: at least once, never given up.
    #[must_use]
    pub fn delivery(limits: &Limits) -> Consumer {
        Consumer {
            name: Arc::from(super::DELIVERY),
            start: Start::Earliest,
            exact: false,
            first_only: false,
            attempts_max: None,
            run_max: limits.delivery_run,
            patience: None,
        }
    }

    /// The built-in writer of the two membership rows of a person channel (PC-2).
    #[must_use]
    pub fn membership() -> Consumer {
        Consumer {
            name: Arc::from(super::MEMBERSHIP),
            start: Start::Earliest,
            exact: false,
            first_only: true,
            attempts_max: None,
            run_max: 1,
            patience: None,
        }
    }
}
