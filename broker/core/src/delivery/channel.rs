//! The delivery of one channel: what is due, and the one run in progress.

use super::memory::{Context, Kind, Memory};
use super::owed::{Owed, OwedWord};
use super::run::Run;
use super::{Counters, Fault, Input, Output, Settings};
use crate::audience::Audience;
use crate::ensure;
use crate::message::Committed;
use crate::types::{ChannelKey, Incarnation, LeaderEpoch, Now, Reason, Seq, Token};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The delivery of one channel at its leader.
#[derive(Debug)]
pub struct Channel {
    settings: Settings,
    audience: Audience,
    leading: Option<(Incarnation, LeaderEpoch)>,
    committed: Seq,
    cursor: Seq,
    /// Messages that are not stored, in writer order; a place in here is their reservation (M-15).
    ephemeral: VecDeque<Arc<Committed>>,
    /// Whether the next run is theirs: the two kinds take turns.
    ephemeral_turn: bool,
    progress: Progress,
    memory: Memory,
    /// Words of this leadership about whom it owes something, so far.
    words: u64,
}

/// How many of the first messages have the same receivers.
fn of_one_audience<'a>(mut messages: impl Iterator<Item = &'a Arc<Committed>>) -> usize {
    let Some(first) = messages.next() else { return 0 };
    let named = &first.message.draft.subscribers;
    1 + messages
        .take_while(|known| known.message.draft.subscribers == *named)
        .count()
}

#[derive(Debug)]
enum Progress {
    Idle,
    Reading { token: Token, again_at: Duration },
    Paused { until: Duration },
    Running(Box<Run>),
}

impl Channel {
    /// The delivery of this channel; it leads nothing yet.
    #[must_use]
    pub fn new(channel: &ChannelKey, settings: Settings) -> Channel {
        Channel {
            settings,
            audience: Audience::of(channel),
            leading: None,
            committed: Seq(0),
            cursor: Seq(0),
            ephemeral: VecDeque::new(),
            ephemeral_turn: false,
            progress: Progress::Idle,
            memory: Memory::default(),
            words: 0,
        }
    }

    /// Handles one input. Answers to what is no longer waited for are dropped.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Leading {
                incarnation,
                leader_epoch,
                cursor,
                committed,
                owed,
            } => {
                self.lose();
                self.leading = Some((incarnation, leader_epoch));
                (self.cursor, self.committed) = (cursor, committed);
                self.words = if owed.leader_epoch == leader_epoch {
                    owed.number
                } else {
                    0
                };
                self.memory.owed = Owed::inherit(owed.users, now.monotonic);
            }
            Input::Lost => self.lose(),
            Input::Committed { through } => {
                if self.leading.is_some() {
                    self.committed = self.committed.max(through);
                }
            }
            Input::Ephemeral { token, message } => {
                let result = self.queue(message);
                out.push(Output::Accepted { token, result });
            }
            Input::Records {
                token,
                messages,
                log_start,
            } => {
                if self.awaits(token) {
                    self.records(now, messages, log_start, out);
                }
            }
            Input::Members { token, page } => {
                self.running(now, out, |run, context| run.members(token, page, context));
            }
            Input::Found { token, slots } => {
                self.running(now, out, |run, context| run.found(token, slots, context));
            }
            Input::Pushed { token, outcomes } => {
                self.running(now, out, |run, context| run.pushed(token, outcomes, context));
            }
            Input::Subscribe { route } => {
                if self.leading.is_some() {
                    let until = now.after(self.settings.limits.route_lease);
                    self.memory.subscribers.hold(route, until);
                }
            }
            Input::Unsubscribe { route } => self.memory.subscribers.release(&route),
        }
        self.advance(now, out);
    }

    /// When [`Channel::expire`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        match &self.progress {
            Progress::Idle => {
                let settle_at = self.memory.owed.settle_at;
                let subscribers = self.memory.subscribers.next_deadline();
                subscribers.into_iter().chain(settle_at).min()
            }
            Progress::Reading { again_at, .. } => Some(*again_at),
            Progress::Paused { until } => Some(*until),
            Progress::Running(run) => run.next_deadline(),
        }
    }

    /// Repeats or gives up what was not answered.
    pub fn expire(&mut self, now: Now, out: &mut Vec<Output>) {
        self.memory.subscribers.forget_overdue(now.monotonic);
        match &self.progress {
            Progress::Reading { again_at, .. } if *again_at <= now.monotonic => {
                self.progress = Progress::Idle;
            }
            Progress::Paused { until } if *until <= now.monotonic => self.progress = Progress::Idle,
            _ => self.running(now, out, Run::expire),
        }
        self.advance(now, out);
    }

    /// Committed messages that are not delivered yet (M-15): over `delivery_lag_max`, sends are refused as busy.
    #[must_use]
    pub fn lag(&self) -> u64 {
        self.committed.0.saturating_sub(self.cursor.0)
    }

    /// Everything up to here has been bound by its receivers.
    #[must_use]
    pub fn cursor(&self) -> Seq {
        self.cursor
    }

    /// Whether nothing would be lost by forgetting this machine (CH-10).
    #[must_use]
    pub fn is_idle(&self) -> bool {
        matches!(self.progress, Progress::Idle)
            && self.ephemeral.is_empty()
            && self.lag() == 0
            && self.memory.subscribers.is_empty()
            && self.memory.owed.is_empty()
    }

    /// What was delivered and given up.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.memory.counters
    }

    fn lose(&mut self) {
        self.leading = None;
        let running_ephemeral = match &self.progress {
            Progress::Running(run) => run.kind == Kind::Ephemeral,
            _ => false,
        };
        let lost = self.ephemeral.len() + usize::from(running_ephemeral);
        self.memory.counters.ephemeral_lost += u64::try_from(lost).unwrap_or(u64::MAX);
        self.ephemeral.clear();
        self.progress = Progress::Idle;
        self.memory.forget();
        (self.cursor, self.committed) = (Seq(0), Seq(0));
    }

    /// Reserves the way of a message that is not stored (SF-1).
    fn queue(&mut self, message: Arc<Committed>) -> Result<(), Reason> {
        if self.leading.is_none() {
            return Err(Reason::NODE_NOT_MATCH);
        }
        if self.ephemeral.len() >= self.settings.limits.channel_backlog {
            return Err(Reason::RATE_LIMITED);
        }
        self.ephemeral.push_back(message);
        Ok(())
    }

    fn awaits(&self, read: Token) -> bool {
        matches!(&self.progress, Progress::Reading { token, .. } if *token == read)
    }

    fn records(
        &mut self,
        now: Now,
        messages: Option<Vec<Arc<Committed>>>,
        log_start: Seq,
        out: &mut Vec<Output>,
    ) {
        let messages = messages.unwrap_or_default();
        let next = self.cursor.next().max(log_start);
        let through = match (messages.first(), messages.last()) {
            (Some(first), Some(last)) if first.message.seq <= next && last.message.seq >= next => {
                Some(last.message.seq)
            }
            // Nothing is left of what was due, because retention removed it.
            (None, None) if log_start > self.cursor.next() => Some(log_start.previous().min(self.committed)),
            _ => None,
        };
        let Some(through) = through else {
            let until = now.after(self.settings.limits.channel_retry);
            self.progress = Progress::Paused { until };
            return;
        };
        ensure!(
            CH_3,
            through <= self.committed || self.settings.faults.has(Fault::DeliverUncommitted),
            "read up to {through}, committed {}",
            self.committed
        );
        let mut due: Vec<_> = messages
            .into_iter()
            .filter(|known| known.message.seq > self.cursor)
            .collect();
        // One run has one audience: what is for others waits for the next one.
        let mut through = through;
        let alike = of_one_audience(due.iter());
        if let Some(other) = due.get(alike) {
            through = other.message.seq.previous();
            due.truncate(alike);
        }
        let count = due.len();
        due.retain(|known| !known.message.expired(now.wall_ms));
        self.memory.counters.expired += u64::try_from(count - due.len()).unwrap_or(u64::MAX);
        self.start(now, due, Kind::Stored(through), out);
    }

    fn start(&mut self, now: Now, messages: Vec<Arc<Committed>>, kind: Kind, out: &mut Vec<Output>) {
        if let Kind::Stored(through) = kind
            && self.settings.faults.has(Fault::CursorBeforeBound)
        {
            self.move_cursor(through, out);
        }
        let context = Context {
            now,
            settings: &self.settings,
            audience: &self.audience,
            memory: &mut self.memory,
            out,
        };
        let run = Run::new(messages, kind, &context);
        self.progress = Progress::Running(Box::new(run));
    }

    /// Goes on with the run, or finds the next one, until something must be waited for.
    fn advance(&mut self, now: Now, out: &mut Vec<Output>) {
        loop {
            let mut finished = None;
            self.running(now, out, |run, context| {
                finished = run.advance(context).then_some(run.kind);
            });
            self.tell_owed(out);
            if let Some(kind) = finished {
                self.progress = Progress::Idle;
                if let Kind::Stored(through) = kind {
                    self.move_cursor(through, out);
                }
            }
            let idle = matches!(self.progress, Progress::Idle);
            if !idle || !self.next(now, out) {
                return;
            }
        }
    }

    /// Starts what is due; false when that has to wait.
    fn next(&mut self, now: Now, out: &mut Vec<Output>) -> bool {
        let Some((incarnation, _)) = self.leading else {
            return false;
        };
        let records_max = self.settings.limits.delivery_run.clamp(1, u32::from(u16::MAX));
        let due = self.cursor < self.committed;
        if !self.ephemeral.is_empty() && (self.ephemeral_turn || !due) {
            self.ephemeral_turn = false;
            let count = usize::try_from(records_max).unwrap_or(usize::MAX);
            let count = of_one_audience(self.ephemeral.iter().take(count));
            let messages = self.ephemeral.drain(..count).collect();
            self.start(now, messages, Kind::Ephemeral, out);
            return true;
        }
        if due {
            self.ephemeral_turn = true;
            let through = if self.settings.faults.has(Fault::DeliverUncommitted) {
                Seq(u64::MAX)
            } else {
                self.committed
            };
            let token = self.memory.issue();
            out.push(Output::ReadRecords {
                token,
                incarnation,
                from: self.cursor.next(),
                through,
                records_max,
            });
            self.progress = Progress::Reading {
                token,
                again_at: now.after(self.settings.limits.request_timeout),
            };
            return false;
        }
        self.settle(now, out)
    }

    /// Looks for those that are owed something, when it is time.
    fn settle(&mut self, now: Now, out: &mut Vec<Output>) -> bool {
        let due = self.memory.owed.settle_at.is_some_and(|at| at <= now.monotonic);
        if due {
            let mut context = Context {
                now,
                settings: &self.settings,
                audience: &self.audience,
                memory: &mut self.memory,
                out,
            };
            let run = Run::settling(&mut context);
            self.progress = Progress::Running(Box::new(run));
        }
        due
    }

    /// Whom the channel owes something travels before the cursor that passes it.
    fn tell_owed(&mut self, out: &mut Vec<Output>) {
        if let Some((_, leader_epoch)) = self.leading
            && let Some(users) = self.memory.owed.take_change()
        {
            self.words += 1;
            let word = OwedWord {
                leader_epoch,
                number: self.words,
                users,
            };
            out.push(Output::Owed { word });
        }
    }

    fn move_cursor(&mut self, through: Seq, out: &mut Vec<Output>) {
        if let Some((incarnation, leader_epoch)) = self.leading
            && through > self.cursor
        {
            self.cursor = through;
            out.push(Output::Cursor {
                incarnation,
                leader_epoch,
                through,
            });
        }
    }

    /// Lets the run act, if there is one.
    fn running(&mut self, now: Now, out: &mut Vec<Output>, act: impl FnOnce(&mut Run, &mut Context<'_>)) {
        if let Progress::Running(run) = &mut self.progress {
            let mut context = Context {
                now,
                settings: &self.settings,
                audience: &self.audience,
                memory: &mut self.memory,
                out,
            };
            act(run, &mut context);
        }
    }
}
