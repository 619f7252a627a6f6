//! The delivery of batches to one reader of one slot.

use super::interface::text;
use super::{Delivery, OnlineStatus, Outcome, Output, Purpose, Reader, ReaderKey, Slot, key_of, read};
use crate::replicated::Reply;
use crate::rows::{Miss, Rows};
use crate::slot::interface::ProposeError;
use crate::slot::{command, keys};
use crate::types::{Now, SlotId, Token, Uid};
use penstock_wire::storage::v1::{OnlineBatch, OnlineQueue};
use std::time::Duration;

/// Pause before a position is proposed again.
const RETRY: Duration = Duration::from_millis(250);

/// What is under way for a reader.
#[derive(Debug, Default)]
pub(super) struct Task {
    state: State,
    /// Failed attempts of the batch.
    attempts: u32,
    /// Since when nothing succeeds.
    since: Option<Duration>,
    /// When the first event of the batch came, ms since 1970.
    wall_ms: u64,
}

#[derive(Debug, Default)]
enum State {
    /// The next batch can be delivered.
    #[default]
    Free,
    /// From this time on.
    Paused(Duration),
    /// This batch is.
    UnderWay(Token, u64),
    /// This batch is over, given up or not; its position is proposed at this time.
    Over(u64, bool, Duration),
    /// The position is proposed.
    Advancing(u64, bool),
}

impl Task {
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        match self.state {
            State::Paused(at) | State::Over(.., at) => Some(at),
            State::Free | State::UnderWay(..) | State::Advancing(..) => None,
        }
    }

    fn is_free(&self, now: Now) -> bool {
        match self.state {
            State::Free => true,
            State::Paused(at) => at <= now.monotonic,
            State::UnderWay(..) | State::Over(..) | State::Advancing(..) => false,
        }
    }

    /// Whether nothing has succeeded for the whole time, and the batch is that old.
    fn is_worn_out(&mut self, now: Now, total: Duration) -> bool {
        let since = *self.since.get_or_insert(now.monotonic);
        let age = Duration::from_millis(now.wall_ms.saturating_sub(self.wall_ms));
        now.monotonic.saturating_sub(since) >= total && age >= total
    }

    fn ended(&mut self, now: Now, reader: &Reader, outcome: Outcome, (number, salt): (u64, u64)) {
        let patience = reader.patience;
        let over = |given_up| State::Over(number, given_up, now.monotonic);
        let pause = |attempts, after| State::Paused(now.after(patience.pause(attempts, after, salt)));
        self.state = match outcome {
            Outcome::Done => over(false),
            Outcome::Poison => over(true),
            Outcome::Untried => State::Paused(now.after(patience.first.min(patience.longest))),
            Outcome::Later { .. } if self.is_worn_out(now, patience.total) => over(true),
            Outcome::Later { after } => pause(self.attempts, Some(after)),
            Outcome::Failed { after } => {
                self.attempts = self.attempts.saturating_add(1);
                let many = reader.attempts_max > 0 && self.attempts >= reader.attempts_max;
                if self.is_worn_out(now, patience.total) || many {
                    over(true)
                } else {
                    pause(self.attempts, after)
                }
            }
        };
    }
}

impl OnlineStatus {
    /// The next batch of each reader that can take one.
    pub(super) fn next_batches(
        &self,
        now: Now,
        (id, slot): (SlotId, &Slot),
        head: Option<&OnlineQueue>,
        rows: &dyn Rows,
    ) -> Result<Vec<(ReaderKey, u64, Option<OnlineBatch>)>, Miss> {
        let mut found = Vec::new();
        let mut missing = Vec::new();
        let Some(head) = head else { return Ok(found) };
        for reader in self.readers.all.iter().filter(|reader| reader.enabled) {
            let key = key_of(reader);
            let mut stored = head.readers.iter();
            let stored = stored
                .find(|stored| *stored.binding == *key.0 && stored.binding_incarnation == key.1)
                .filter(|stored| stored.done < head.last);
            let is_free = slot.tasks.get(&key).is_none_or(|task| task.is_free(now));
            let Some(number) = stored.map(|stored| stored.done + 1).filter(|_| is_free) else {
                continue;
            };
            match read(rows, &keys::online_batch(id, number)) {
                Ok(batch) => found.push((key, number, batch)),
                Err(Miss(keys)) => missing.extend(keys),
            }
        }
        if missing.is_empty() {
            return Ok(found);
        }
        missing.sort();
        missing.dedup();
        Err(Miss(missing))
    }

    pub(super) fn deliver(
        &mut self,
        now: Now,
        id: SlotId,
        batches: Vec<(ReaderKey, u64, Option<OnlineBatch>)>,
        out: &mut Vec<Output>,
    ) {
        if let Some(slot) = self.slots.get_mut(&id) {
            for task in slot.tasks.values_mut().filter(|task| task.is_free(now)) {
                task.state = State::Free;
            }
        }
        for (key, number, batch) in batches {
            self.hand_out(now, id, (key, number), batch.unwrap_or_default(), out);
        }
        self.advance(now, id, out);
    }

    fn hand_out(
        &mut self,
        now: Now,
        id: SlotId,
        (key, number): (ReaderKey, u64),
        batch: OnlineBatch,
        out: &mut Vec<Output>,
    ) {
        let token = self.token();
        let reader = self.readers.all.iter().find(|reader| key_of(reader) == key);
        let (Some(reader), Some(slot)) = (reader, self.slots.get_mut(&id)) else {
            return;
        };
        let is_for = |uid: &str| reader.uids.is_empty() || reader.uids.contains(&Uid::new(uid));
        let events = batch.events.iter().filter(|event| is_for(&event.uid));
        let statuses: Vec<String> = events.map(text).collect();
        let task = slot.tasks.entry(key.clone()).or_default();
        task.wall_ms = batch.wall_ms;
        if statuses.is_empty() {
            task.state = State::Over(number, false, now.monotonic);
            return;
        }
        task.state = State::UnderWay(token, number);
        if self.faults.online_done_early() {
            task.state = State::Over(number, false, now.monotonic);
        }
        out.push(Output::Deliver(Delivery {
            token,
            slot: id,
            binding: key.0,
            incarnation: key.1,
            number,
            wall_ms: batch.wall_ms,
            statuses,
        }));
    }

    /// Proposes the positions of readers whose batch is over.
    fn advance(&mut self, now: Now, id: SlotId, out: &mut Vec<Output>) {
        let Some(slot) = self.slots.get_mut(&id) else {
            return;
        };
        for (key, task) in &mut slot.tasks {
            let State::Over(number, given_up, at) = task.state else {
                continue;
            };
            if at > now.monotonic {
                continue;
            }
            task.state = State::Advancing(number, given_up);
            self.last_token += 1;
            let token = Token(self.last_token);
            self.proposals.insert(token, Purpose::Advance(id, key.clone()));
            let reader = (&*key.0, key.1);
            let command = command::advance_online_reader(now.wall_ms, id, reader, (number, given_up));
            out.push(Output::Propose { token, command });
        }
    }

    /// A delivery ended.
    pub(super) fn on_returned(&mut self, now: Now, id: SlotId, token: Token, outcome: Outcome) {
        let Some(slot) = self.slots.get_mut(&id) else {
            return;
        };
        let under_way = slot.tasks.iter_mut().find_map(|(key, task)| match task.state {
            State::UnderWay(known, number) if known == token => Some((key, task, number)),
            _ => None,
        });
        let Some((key, task, number)) = under_way else {
            return;
        };
        if let Some(reader) = self.readers.all.iter().find(|reader| key_of(reader) == *key) {
            let salt = key.1 ^ u64::from(id.0) << 32 ^ number;
            task.ended(now, reader, outcome, (number, salt));
        }
        self.touch(id);
    }

    /// A proposed position was answered.
    pub(super) fn advanced(
        &mut self,
        now: Now,
        id: SlotId,
        key: &ReaderKey,
        result: &Result<Reply, ProposeError>,
    ) {
        let task = self.slots.get_mut(&id).and_then(|slot| slot.tasks.get_mut(key));
        let Some(task) = task else { return };
        let State::Advancing(number, given_up) = task.state else {
            return;
        };
        match result {
            Ok(Reply::Done) => {
                let since = task.since.filter(|_| given_up);
                *task = Task {
                    since,
                    ..Task::default()
                };
            }
            Ok(_) => task.state = State::Paused(now.after(RETRY)),
            Err(_) => task.state = State::Over(number, given_up, now.after(RETRY)),
        }
    }
}
