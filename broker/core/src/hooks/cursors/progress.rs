//! How far one consumer has come, and what it is doing.

use super::machine::Leading;
use super::patience::Trouble;
use super::{Cause, Consumer, Cursor, GivenUp, Output, Range, Start};
use crate::hooks::faults::Faults;
use crate::message::Record;
use crate::rows::Key;
use crate::types::{Incarnation, Now, Seq, Token};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of one run.
pub(super) const RUN_BYTES_MAX: u32 = 1 << 20;

/// First pause after a failure; doubles with each.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// One consumer.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) consumer: Consumer,
    pub(super) cursor: Cursor,
    pub(super) state: State,
    /// Failures of the run that begins after the cursor.
    pub(super) attempts: u32,
    /// How often the consumer had no time for it, which is no failure.
    pub(super) refusals: u32,
    /// What a patient consumer knows of its failures.
    pub(super) trouble: Trouble,
    /// Where it begins is being looked for.
    pub(super) seek: Option<Seek>,
    /// The replicas hold the open window of an exact consumer.
    pub(super) fixed: bool,
    /// Stamp of the first record that is not done, ms since 1970, once it was read.
    pub(super) head_ms: Option<u64>,
}

#[derive(Debug)]
pub(super) enum State {
    /// Nothing is under way.
    Idle,
    /// A record is read to find where it begins.
    Seeking(Token),
    /// Records are being read.
    Reading(Token),
    /// The window waits to be held by the replicas before it is handed out (M-18).
    Opening(Token, Vec<Record>),
    /// So does a smaller one, of a run that is done in part.
    Narrowing {
        /// Names the answer.
        token: Token,
        /// The run.
        run: Token,
    },
    /// The consumer has a run that ends here.
    Working(Token, Seq),
    /// A failure waits to be tried again.
    Paused(Duration),
}

/// The first record of a time lies at or after `low`, and before `high` or nowhere. Stamps of a channel do not go back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seek {
    since_ms: u64,
    low: Seq,
    high: Seq,
    /// Whether a record was looked at already: the last one comes first, since most channels have nothing newer.
    looked: bool,
}

impl Seek {
    /// A search in what is committed.
    pub(super) fn new(since_ms: u64, leading: &Leading) -> Seek {
        Seek {
            since_ms,
            low: leading.log_start,
            high: leading.committed.next(),
            looked: false,
        }
    }

    /// Retention moved the log start.
    pub(super) fn raise(&mut self, log_start: Seq) {
        self.low = self.low.max(log_start);
    }

    /// The position to look at next; none when it is found: the consumer begins at `low`.
    pub(super) fn probe(&self) -> Option<Seq> {
        if self.low >= self.high {
            None
        } else if self.looked {
            Some(Seq(self.low.0 + (self.high.0 - self.low.0) / 2))
        } else {
            Some(self.high.previous())
        }
    }

    /// Where it begins as far as is known.
    pub(super) fn begin(&self) -> Seq {
        self.low
    }

    /// This record stands at the position that was looked at.
    pub(super) fn saw(&mut self, record: &Record) {
        self.looked = true;
        if record.stamp_ms < self.since_ms {
            self.low = record.seq.next();
        } else {
            self.high = record.seq;
        }
    }
}

impl Start {
    pub(super) fn cursor(self, leading: &Leading) -> Cursor {
        let done = match self {
            Start::Earliest | Start::Since(_) => leading.log_start.previous(),
            Start::Latest => leading.committed,
            Start::At(seq) => seq.previous(),
        };
        Cursor::at(done)
    }
}

impl Progress {
    /// A consumer that does nothing yet.
    pub(super) fn new(consumer: Consumer) -> Progress {
        Progress {
            consumer,
            cursor: Cursor::default(),
            state: State::Idle,
            attempts: 0,
            refusals: 0,
            trouble: Trouble::default(),
            seek: None,
            fixed: false,
            head_ms: None,
        }
    }

    /// It goes on at its stored cursor, or begins where it is to.
    pub(super) fn begin(&mut self, stored: Option<Cursor>, leading: &Leading, out: &mut Vec<Output>) {
        self.forget();
        self.cursor = stored.unwrap_or_else(|| self.consumer.start.cursor(leading));
        if stored.is_some() {
            return;
        }
        match self.consumer.start {
            Start::Earliest => {}
            Start::Since(since_ms) => self.seek = Some(Seek::new(since_ms, leading)),
            // Where it began must be known to the next leader, or it would begin later and lose what lies between.
            Start::Latest | Start::At(_) => out.push(self.moved()),
        }
    }

    /// The position to look at to find where it begins; none when that is known.
    pub(super) fn looks_at(&mut self, out: &mut Vec<Output>) -> Option<Seq> {
        let seek = self.seek?;
        if let Some(seq) = seek.probe() {
            return Some(seq);
        }
        self.seek = None;
        let done = seek.begin().previous();
        if done > self.cursor.done {
            self.cursor = Cursor::at(done);
            out.push(self.moved());
        }
        None
    }

    pub(super) fn key(&self, incarnation: Incarnation) -> Key {
        Key::Cursor {
            incarnation,
            consumer: Bytes::copy_from_slice(self.consumer.name.as_bytes()),
        }
    }

    pub(super) fn paused_until(&self) -> Option<Duration> {
        match self.state {
            State::Paused(until) => Some(until),
            State::Idle
            | State::Seeking(_)
            | State::Reading(_)
            | State::Opening(..)
            | State::Narrowing { .. }
            | State::Working(..) => None,
        }
    }

    /// Drops what is under way; its answers will find nobody.
    pub(super) fn forget(&mut self) {
        self.state = State::Idle;
        self.attempts = 0;
        self.refusals = 0;
        self.trouble = Trouble::default();
        self.seek = None;
        self.fixed = false;
        self.head_ms = None;
    }

    /// Whether a consumer of the first record has had it.
    pub(super) fn is_finished(&self) -> bool {
        self.consumer.first_only && self.cursor.done >= Seq(1)
    }

    /// Up to where there is something to do.
    pub(super) fn target(&self, committed: Seq) -> Seq {
        if self.consumer.first_only {
            committed.min(Seq(1))
        } else {
            committed
        }
    }

    /// The end of the window that was handed out and is not done, which the next run covers whole.
    pub(super) fn window(&self, faults: Faults) -> Option<Seq> {
        let open = self.cursor.is_open() && !faults.window_grows_on_redelivery();
        open.then_some(self.cursor.open_to)
    }

    /// What to read next of what is committed up to `target`; none while there is nothing.
    pub(super) fn range(&self, target: Seq, faults: Faults) -> Option<Range> {
        let from = self.cursor.done.next();
        if from > target {
            return None;
        }
        let count = |through: Seq| u32::try_from(through.0 - self.cursor.done.0).unwrap_or(u32::MAX);
        let (records_max, bytes_max) = match self.window(faults) {
            // A new leader does not know yet that all of it is committed.
            Some(through) if through > target => return None,
            // Whatever its bytes: what is in memory is measured otherwise than what is on disk.
            Some(through) => (count(through), u32::MAX),
            None if faults.before_commit_effects() => (self.run_max(), RUN_BYTES_MAX),
            // The rest of a window that was made smaller comes one by one, under whatever leader: one record crosses no earlier end.
            None if self.cursor.cut_to > self.cursor.done && !faults.window_grows_on_redelivery() => {
                (1, RUN_BYTES_MAX)
            }
            None => (self.run_max().min(count(target)), RUN_BYTES_MAX),
        };
        Some(Range {
            from,
            records_max,
            bytes_max,
        })
    }

    /// After a failure one record at a time, so that the one that cannot be done is found; windows of an exact consumer keep
    /// their bounds until they have failed for good.
    pub(super) fn run_max(&self) -> u32 {
        if self.attempts > 0 && !self.consumer.exact {
            1
        } else {
            self.consumer.run_max.max(1)
        }
    }

    pub(super) fn hand_out(
        &mut self,
        token: Token,
        records: Vec<Record>,
        faults: Faults,
        out: &mut Vec<Output>,
    ) {
        let last = records.last().map_or(self.cursor.done, |record| record.seq);
        self.trouble.head(&records);
        self.state = State::Working(token, last);
        if faults.cursor_ahead_of_effect() {
            self.cursor.done = last;
            self.cursor.open_to = self.cursor.open_to.max(last);
            self.cursor.cut_to = self.cursor.cut_to.max(last);
            out.push(self.moved());
        }
        out.push(Output::Consume {
            token,
            consumer: Arc::clone(&self.consumer.name),
            records,
        });
    }

    /// Waits for another attempt after so many in vain, for the time that the consumer wishes if it does.
    pub(super) fn pause(&mut self, now: Now, wished: Option<Duration>, times: u32) {
        let doubled = PAUSE_FIRST.saturating_mul(1 << times.saturating_sub(1).min(16));
        self.state = State::Paused(now.after(wished.unwrap_or(doubled).min(PAUSE_MAX)));
    }

    /// The record after the cursor is to be kept as a dead letter. Until it is, it has not been done.
    pub(super) fn bury(&mut self, token: Token, cause: Cause, out: &mut Vec<Output>) {
        let seq = self.cursor.done.next();
        self.trouble.bury();
        self.state = State::Working(token, seq);
        out.push(Output::DeadLetter(GivenUp {
            token,
            consumer: Arc::clone(&self.consumer.name),
            seq,
            attempts: self.attempts,
            cause,
        }));
    }

    pub(super) fn move_to(&mut self, done: Seq, out: &mut Vec<Output>) {
        self.attempts = 0;
        self.refusals = 0;
        self.head_ms = None;
        let open_to = self.cursor.open_to.max(done);
        let cuts = if open_to > done { self.cursor.cuts } else { 0 };
        self.fixed &= open_to > done;
        self.cursor = Cursor {
            done,
            cuts,
            open_to,
            cut_to: self.cursor.cut_to.max(done),
        };
        out.push(self.moved());
    }

    /// The open window ends here from now on, once the replicas hold it.
    pub(super) fn narrow(&mut self, through: Seq) {
        self.fixed = false;
        self.cursor.open_to = through;
        self.cursor.cuts = self.cursor.cuts.saturating_add(1);
    }

    /// A window of several records has failed for good: which of them is to blame is found one by one.
    pub(super) fn split(&mut self) {
        self.attempts = 0;
        self.narrow(self.cursor.done.next());
        self.state = State::Idle;
    }

    /// Has the open window held by the replicas.
    pub(super) fn fix(&self, token: Token) -> Output {
        Output::Fix {
            token,
            consumer: Arc::clone(&self.consumer.name),
            cursor: self.cursor,
        }
    }

    pub(super) fn skip_to(&mut self, log_start: Seq, out: &mut Vec<Output>) {
        out.push(Output::Skipped {
            consumer: Arc::clone(&self.consumer.name),
            from: self.cursor.done.next(),
            through: log_start.previous(),
        });
        self.move_to(log_start.previous(), out);
    }

    pub(super) fn moved(&self) -> Output {
        Output::Moved {
            consumer: Arc::clone(&self.consumer.name),
            cursor: self.cursor,
        }
    }
}
