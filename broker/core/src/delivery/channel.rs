//! The delivery of one channel: what is due, and the one run in progress.

use super::members::Audience;
use super::memory::{Context, Memory};
use super::run::Run;
use super::{Counters, Fault, Input, Output, Settings};
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
            } => {
                self.lose();
                self.leading = Some((incarnation, leader_epoch));
                (self.cursor, self.committed) = (cursor, committed);
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
            Progress::Idle => self.memory.subscribers.next_deadline(),
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
    }

    /// What was delivered and given up.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.memory.counters
    }

    fn lose(&mut self) {
        self.leading = None;
        let running_ephemeral = match &self.progress {
            Progress::Running(run) => run.through.is_none(),
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
        let count = messages.len();
        let due: Vec<_> = messages
            .into_iter()
            .filter(|known| known.message.seq > self.cursor && !known.message.expired(now.wall_ms))
            .collect();
        self.memory.counters.expired += u64::try_from(count - due.len()).unwrap_or(u64::MAX);
        self.start(now, due, Some(through), out);
    }

    fn start(
        &mut self,
        now: Now,
        messages: Vec<Arc<Committed>>,
        through: Option<Seq>,
        out: &mut Vec<Output>,
    ) {
        if let Some(through) = through
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
        let run = Run::new(messages, through, &context);
        self.progress = Progress::Running(Box::new(run));
    }

    /// Goes on with the run, or finds the next one, until something must be waited for.
    fn advance(&mut self, now: Now, out: &mut Vec<Output>) {
        loop {
            let mut finished = None;
            self.running(now, out, |run, context| {
                finished = run.advance(context).then_some(run.through);
            });
            if let Some(through) = finished {
                self.progress = Progress::Idle;
                if let Some(through) = through {
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
            let messages = self.ephemeral.drain(..count.min(self.ephemeral.len())).collect();
            self.start(now, messages, None, out);
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
        }
        false
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
