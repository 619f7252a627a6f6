//! The machine.

use super::patience::Next;
use super::progress::{Progress, RUN_BYTES_MAX, State};
use super::{Cause, Consumer, Cursor, Failure, Input, Lag, Output, Range, Role};
use crate::hooks::faults::Faults;
use crate::limits::Limits;
use crate::message::Record;
use crate::rows::{Miss, Rows};
use crate::types::{ChannelKey, Incarnation, LeaderEpoch, Now, Seq, Token};
use std::sync::Arc;
use std::time::Duration;

/// The cursors of one channel. They move only while this node leads it.
#[derive(Debug)]
pub struct Cursors {
    leading: Option<Leading>,
    consumers: Vec<Progress>,
    retry: Duration,
    faults: Faults,
    next_token: Token,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Leading {
    pub(super) incarnation: Incarnation,
    leader_epoch: LeaderEpoch,
    pub(super) log_start: Seq,
    pub(super) committed: Seq,
}

impl Cursors {
    /// The built-in consumers of a channel. Continuation tokens count up from `first_token`; whoever builds the machine again
    /// passes a higher one (CH-13).
    #[must_use]
    pub fn new(channel: &ChannelKey, limits: &Limits, faults: Faults, first_token: Token) -> Cursors {
        Cursors::with(super::built_in(channel), limits, faults, first_token)
    }

    /// These consumers, each with a name of its own.
    #[must_use]
    pub fn with(consumers: Vec<Consumer>, limits: &Limits, faults: Faults, first_token: Token) -> Cursors {
        Cursors {
            leading: None,
            consumers: consumers.into_iter().map(Progress::new).collect(),
            retry: limits.channel_retry,
            faults,
            next_token: first_token,
        }
    }

    /// Takes one input. Becoming leader reads one row per consumer.
    ///
    /// # Errors
    /// Rows that must be loaded first; nothing has changed and the same input is to be given again.
    pub fn handle(
        &mut self,
        now: Now,
        input: Input,
        rows: &dyn Rows,
        out: &mut Vec<Output>,
    ) -> Result<(), Miss> {
        match input {
            Input::Role(role) => self.change_role(role, rows, out)?,
            Input::Committed {
                leader_epoch,
                through,
            } => {
                if let Some(leading) = &mut self.leading
                    && leading.leader_epoch == leader_epoch
                {
                    leading.committed = leading.committed.max(through);
                }
            }
            Input::LogStart(log_start) => {
                if let Some(leading) = &mut self.leading {
                    leading.log_start = leading.log_start.max(log_start);
                }
                for seek in self
                    .consumers
                    .iter_mut()
                    .filter_map(|progress| progress.seek.as_mut())
                {
                    seek.raise(log_start);
                }
            }
            Input::Consumers(consumers) => self.change_consumers(consumers, rows, out)?,
            Input::Learned { consumer, cursor } => self.learned(&consumer, cursor),
            Input::ReadDone { token, records } => self.read_done(now, token, records, out),
            Input::Fixed { token } => self.window_fixed(token, out),
            Input::Narrow { token, through } => self.narrow(token, through, out),
            Input::Done { token, through } => self.effect_done(token, through, out),
            Input::Failed { token, failure } => self.effect_failed(now, token, failure, out),
        }
        self.advance(out);
        Ok(())
    }

    /// When a failure may be tried again.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        self.consumers
            .iter()
            .filter_map(|progress| progress.paused_until())
            .min()
    }

    /// Tries again what has paused long enough.
    pub fn expire(&mut self, now: Now, out: &mut Vec<Output>) {
        for progress in &mut self.consumers {
            if progress
                .paused_until()
                .is_some_and(|until| until <= now.monotonic)
            {
                progress.state = State::Idle;
            }
        }
        self.advance(out);
    }

    /// Whether no consumer has anything left to do, so that the channel may be evicted (CH-10).
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let Some(leading) = self.leading else { return true };
        self.consumers.iter().all(|progress| {
            matches!(progress.state, State::Idle)
                && progress.cursor.done >= progress.target(leading.committed)
        })
    }

    /// The consumers that are behind, and by how much.
    pub fn behind(&self) -> impl Iterator<Item = (&Arc<str>, Lag)> {
        let committed = self.leading.map_or(Seq(0), |leading| leading.committed);
        self.consumers.iter().filter_map(move |progress| {
            let target = progress.target(committed).0;
            let records = target.saturating_sub(progress.cursor.done.0);
            let lag = Lag {
                records,
                oldest_ms: progress.head_ms,
            };
            (records > 0).then_some((&progress.consumer.name, lag))
        })
    }

    /// How far a consumer is behind; not at all if its name is unknown.
    #[must_use]
    pub fn lag(&self, consumer: &str) -> Lag {
        let mut behind = self.behind();
        behind
            .find(|(name, _)| &***name == consumer)
            .map_or_else(Lag::default, |(_, lag)| lag)
    }

    fn change_role(&mut self, role: Role, rows: &dyn Rows, out: &mut Vec<Output>) -> Result<(), Miss> {
        let Role::Leading {
            incarnation,
            leader_epoch,
            log_start,
            committed,
        } = role
        else {
            self.leading = None;
            for progress in &mut self.consumers {
                progress.forget();
            }
            return Ok(());
        };
        let same =
            |leading: &Leading| (leading.incarnation, leading.leader_epoch) == (incarnation, leader_epoch);
        if self.leading.as_ref().is_some_and(same) {
            return Ok(());
        }
        let leading = Leading {
            incarnation,
            leader_epoch,
            log_start,
            committed,
        };
        let cursors = stored_cursors(&self.consumers, incarnation, rows)?;
        self.leading = Some(leading);
        for (progress, stored) in self.consumers.iter_mut().zip(cursors) {
            progress.begin(stored, &leading, out);
        }
        Ok(())
    }

    /// Other consumers follow the channel from now on: those that stay go on, new ones begin, the others end.
    fn change_consumers(
        &mut self,
        wanted: Vec<Consumer>,
        rows: &dyn Rows,
        out: &mut Vec<Output>,
    ) -> Result<(), Miss> {
        let known = |consumer: &Consumer| {
            let same = |progress: &Progress| progress.consumer.name == consumer.name;
            self.consumers.iter().position(same)
        };
        let mut fresh: Vec<Progress> = wanted
            .iter()
            .filter(|consumer| known(consumer).is_none())
            .map(|consumer| Progress::new(consumer.clone()))
            .collect();
        if let Some(leading) = self.leading {
            let cursors = stored_cursors(&fresh, leading.incarnation, rows)?;
            for (progress, stored) in fresh.iter_mut().zip(cursors) {
                progress.begin(stored, &leading, out);
            }
        }
        let stays = |progress: &mut Progress| {
            let same = |consumer: &&Consumer| consumer.name == progress.consumer.name;
            match wanted.iter().find(same) {
                Some(consumer) => {
                    progress.consumer = consumer.clone();
                    true
                }
                None => progress.consumer.first_only,
            }
        };
        self.consumers.retain_mut(stays);
        self.consumers.append(&mut fresh);
        Ok(())
    }

    fn learned(&mut self, name: &str, cursor: Cursor) {
        let wanted = |progress: &&mut Progress| &*progress.consumer.name == name;
        if self.leading.is_none() {
            return;
        }
        let Some(progress) = self.consumers.iter_mut().find(wanted) else {
            return;
        };
        let merged = progress.cursor.max(cursor);
        if merged != progress.cursor {
            progress.cursor = merged;
            progress.forget();
        }
    }

    /// Starts every consumer that is idle and has something to do. None waits for another (PC-4).
    fn advance(&mut self, out: &mut Vec<Output>) {
        let Some(leading) = self.leading else { return };
        for progress in &mut self.consumers {
            if !matches!(progress.state, State::Idle) {
                continue;
            }
            if let Some(seq) = progress.looks_at(out) {
                let token = self.next_token;
                self.next_token = Token(token.0 + 1);
                progress.state = State::Seeking(token);
                let range = Range {
                    from: seq,
                    records_max: 1,
                    bytes_max: RUN_BYTES_MAX,
                };
                out.push(Output::Read { token, range });
                continue;
            }
            if progress.cursor.done.next() < leading.log_start && !progress.is_finished() {
                progress.skip_to(leading.log_start, out);
            }
            let target = progress.target(leading.committed);
            let Some(range) = progress.range(target, self.faults) else {
                continue;
            };
            let token = self.next_token;
            self.next_token = Token(token.0 + 1);
            progress.state = State::Reading(token);
            out.push(Output::Read { token, range });
        }
    }

    fn read_done(&mut self, now: Now, token: Token, records: Option<Vec<Record>>, out: &mut Vec<Output>) {
        let reading = |progress: &&mut Progress| matches!(progress.state, State::Reading(asked) | State::Seeking(asked) if asked == token);
        let next_token = self.next_token;
        if self.leading.is_none() {
            return;
        }
        let faults = self.faults;
        let Some(progress) = self.consumers.iter_mut().find(reading) else {
            return;
        };
        let pause = State::Paused(now.after(self.retry));
        let records = records.unwrap_or_default();
        if let (State::Seeking(_), Some(seek)) = (&progress.state, &mut progress.seek) {
            match records.first().filter(|record| Some(record.seq) == seek.probe()) {
                Some(record) => {
                    seek.saw(record);
                    progress.state = State::Idle;
                }
                None => progress.state = pause,
            }
            return;
        }
        let expected = progress.cursor.done.next();
        let (Some(first), Some(last)) = (records.first(), records.last().map(|record| record.seq)) else {
            progress.state = pause;
            return;
        };
        if first.seq != expected {
            // Retention has cut in meanwhile: the log start that is on its way says up to where.
            progress.state = pause;
            return;
        }
        progress.head_ms = Some(first.stamp_ms);
        let window = progress.window(faults);
        if window.is_some_and(|through| last < through) {
            // A part of a window would be another window.
            progress.state = pause;
            return;
        }
        self.next_token = Token(next_token.0 + 1);
        let grows = faults.window_grows_on_redelivery();
        let is_whole = progress.fixed && last == progress.cursor.open_to;
        if !progress.consumer.exact || (is_whole && !grows) || faults.window_not_held() {
            progress.hand_out(next_token, records, faults, out);
            return;
        }
        if !progress.cursor.is_open() || grows {
            progress.cursor.open_to = last;
            progress.cursor.cut_to = progress.cursor.cut_to.max(last);
        }
        out.push(progress.fix(next_token));
        progress.state = State::Opening(next_token, records);
    }

    /// The replicas hold a window: its run is handed out, or its effects are made.
    fn window_fixed(&mut self, token: Token, out: &mut Vec<Output>) {
        let waits = |progress: &&mut Progress| match progress.state {
            State::Opening(asked, _) | State::Narrowing { token: asked, .. } => asked == token,
            _ => false,
        };
        let Some(progress) = self.consumers.iter_mut().find(waits) else {
            return;
        };
        progress.fixed = true;
        match std::mem::replace(&mut progress.state, State::Idle) {
            State::Opening(_, records) => {
                let token = self.next_token;
                self.next_token = Token(token.0 + 1);
                progress.hand_out(token, records, self.faults, out);
            }
            State::Narrowing { run, .. } => {
                progress.state = State::Working(run, progress.cursor.open_to);
                out.push(Output::Narrowed { token: run });
            }
            other => progress.state = other,
        }
    }

    fn narrow(&mut self, run: Token, through: Seq, out: &mut Vec<Output>) {
        let token = self.next_token;
        let Some((progress, last)) = self.working(run) else {
            return;
        };
        if !progress.consumer.exact || through >= last || through <= progress.cursor.done {
            out.push(Output::Narrowed { token: run });
            return;
        }
        progress.narrow(through);
        progress.state = State::Narrowing { token, run };
        out.push(progress.fix(token));
        self.next_token = Token(token.0 + 1);
    }

    fn working(&mut self, token: Token) -> Option<(&mut Progress, Seq)> {
        self.consumers
            .iter_mut()
            .find_map(|progress| match progress.state {
                State::Working(asked, last) if asked == token => Some((progress, last)),
                _ => None,
            })
    }

    fn effect_done(&mut self, token: Token, through: Seq, out: &mut Vec<Output>) {
        let Some((progress, last)) = self.working(token) else {
            return;
        };
        progress.state = State::Idle;
        progress.trouble.end();
        let through = through.min(last);
        if through > progress.cursor.done {
            progress.move_to(through, out);
        }
    }

    fn effect_failed(&mut self, now: Now, token: Token, failure: Failure, out: &mut Vec<Output>) {
        let (pause, next_token) = (self.retry, self.next_token);
        let incarnation = self.leading.map_or(Incarnation(0), |leading| leading.incarnation);
        let Some((progress, _)) = self.working(token) else {
            return;
        };
        if let Some(patience) = progress.consumer.patience {
            match progress.fail_patiently(now, patience, incarnation, failure) {
                Next::Pause(pause) => progress.state = State::Paused(now.after(pause)),
                Next::GiveUp(cause) => {
                    progress.bury(next_token, cause, out);
                    self.next_token = Token(next_token.0 + 1);
                }
            }
            return;
        }
        let (after, cause) = match failure {
            Failure::Retry { after, cause } => (after, cause),
            Failure::Poison => (None, Cause::Poison),
            Failure::Busy { after } => {
                progress.refusals = progress.refusals.saturating_add(1);
                progress.pause(now, after, progress.refusals);
                return;
            }
            Failure::Untried | Failure::Later { .. } => {
                progress.state = State::Paused(now.after(pause));
                return;
            }
        };
        progress.attempts = progress.attempts.saturating_add(1);
        let most = progress.consumer.attempts_max;
        if most.is_some_and(|most| progress.attempts >= most || failure == Failure::Poison) {
            let several = progress.cursor.open_to > progress.cursor.done.next();
            if progress.consumer.exact && several && failure != Failure::Poison {
                return progress.split();
            }
            progress.bury(next_token, cause, out);
            self.next_token = Token(next_token.0 + 1);
            return;
        }
        progress.pause(now, after, progress.attempts);
    }
}

/// The stored cursor of each consumer.
fn stored_cursors(
    consumers: &[Progress],
    incarnation: Incarnation,
    rows: &dyn Rows,
) -> Result<Vec<Option<Cursor>>, Miss> {
    let mut cursors = Vec::new();
    let mut missing = Vec::new();
    for progress in consumers {
        match rows.row(&progress.key(incarnation)) {
            Ok(row) => cursors.push(row.and_then(|row| Cursor::decode(&row))),
            Err(Miss(keys)) => missing.extend(keys),
        }
    }
    if missing.is_empty() {
        Ok(cursors)
    } else {
        Err(Miss(missing))
    }
}
