//! The machine.

use super::batch::{Appending, Batch, Claim, Item, ItemId, Phase, Place, Queue, State};
use super::commit::Ledger;
use super::dedupe::{Window, key_of};
use super::faults::Faults;
use super::{Input, Leadership, Output, Role, ids};
use crate::limits::Limits;
use crate::message::{DedupeKey, DedupeRow, Draft, Outcome, Refusal};
use crate::rows::{Miss, Rows};
use crate::types::{Now, Reason, Seq, Token};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The append authority of one channel on the node that leads it.
#[derive(Debug)]
pub struct Authority {
    pub(super) backlog_max: usize,
    pub(super) timeout: Duration,
    pub(super) window: Duration,
    pub(super) faults: Faults,
    pub(super) leading: Option<Leadership>,
    pub(super) busy: bool,
    pub(super) queue: Queue,
    pub(super) claims: BTreeMap<u64, Claim>,
    pub(super) appending: BTreeMap<Token, Vec<Appending>>,
    pub(super) ledger: Ledger,
    pub(super) next_token: Token,
}

impl Authority {
    /// An authority that does not lead yet. Its continuation tokens count up from `first_token`: whoever builds one again
    /// for the same channel passes a higher number, so that answers to the former one are not taken for its own (CH-13).
    #[must_use]
    pub fn new(limits: &Limits, faults: Faults, first_token: Token) -> Authority {
        Authority {
            backlog_max: limits.channel_backlog,
            timeout: limits.append_timeout,
            window: limits.dedupe_window,
            faults,
            leading: None,
            busy: false,
            queue: Queue::default(),
            claims: BTreeMap::new(),
            appending: BTreeMap::new(),
            ledger: Ledger::default(),
            next_token: first_token,
        }
    }

    /// Takes one input. A batch reads two rows per message with a client number (more when the window is longer than a day).
    ///
    /// # Errors
    /// Rows that must be loaded first; nothing has changed and the same input is to be given again.
    pub fn handle(
        &mut self,
        now: Now,
        input: Input,
        rows: &dyn Rows,
        ids: &mut ids::Generator,
        out: &mut Vec<Output>,
    ) -> Result<(), Miss> {
        match input {
            Input::Submit { token, drafts } => self.submit(now, token, drafts, rows, out)?,
            Input::Role(role) => self.change_role(role, out),
            Input::HooksDone { token, verdicts } => self.judged(token, verdicts),
            Input::RecordChecked { token, checked } => self.checked(token, checked, out),
            Input::Appended { token, first } => self.appended(token, first),
            Input::AppendRefused { token, reason } => self.append_refused(token, reason),
            Input::Committed {
                leader_epoch,
                through,
            } => {
                if self
                    .leading
                    .is_some_and(|leading| leading.leader_epoch == leader_epoch)
                {
                    self.committed(through);
                }
            }
            Input::LogStart(log_start) => {
                if let Some(leading) = &mut self.leading {
                    leading.log_start = leading.log_start.max(log_start);
                }
            }
            Input::Planned { token, accepted } => self.planned(token, accepted),
            Input::DeliveryBusy(busy) => self.busy = busy,
        }
        self.advance(now, ids, out);
        Ok(())
    }

    /// When the oldest batch is given up.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        self.queue.front().map(|(_, batch)| batch.deadline)
    }

    /// Answers what has waited too long: refused when it was never appended, else unknown (AP-8, CH-8).
    pub fn expire(&mut self, now: Now, ids: &mut ids::Generator, out: &mut Vec<Output>) {
        while let Some((number, batch)) = self.queue.front()
            && batch.deadline <= now.monotonic
        {
            self.give_up(number);
            self.reply_front(out);
        }
        self.advance(now, ids, out);
    }

    /// Whether nothing is under way, so that the authority can be dropped.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.appending.is_empty() && self.ledger.len() == 0
    }

    /// Messages that are under way: not placed, being placed, or placed and not committed (AP-7).
    #[must_use]
    pub fn backlog(&self) -> usize {
        let appending: usize = self.appending.values().map(Vec::len).sum();
        self.queue.unplaced_items() + appending + self.ledger.len()
    }

    pub(super) fn token(&mut self) -> Token {
        let token = self.next_token;
        self.next_token = Token(token.0 + 1);
        token
    }

    fn submit(
        &mut self,
        now: Now,
        token: Token,
        drafts: Vec<Draft>,
        rows: &dyn Rows,
        out: &mut Vec<Output>,
    ) -> Result<(), Miss> {
        let refusal = match self.leading {
            None => Some(Reason::NODE_NOT_MATCH),
            Some(_) if self.busy || self.backlog() + drafts.len() > self.backlog_max => {
                Some(Reason::RATE_LIMITED)
            }
            Some(_) => None,
        };
        if let Some(reason) = refusal {
            out.push(Output::Reply {
                token,
                outcomes: vec![Outcome::Refused(reason); drafts.len()],
            });
            return Ok(());
        }
        let keys: Vec<Option<DedupeKey>> = drafts.iter().map(key_of).collect();
        let candidates = self.look_up(now, &keys, rows)?;
        let number = self.queue.next_number();
        self.queue.push(Batch {
            token,
            deadline: now.after(self.timeout),
            phase: Phase::Checking,
            items: drafts
                .into_iter()
                .zip(&keys)
                .map(|(draft, key)| Item {
                    draft,
                    key: *key,
                    state: State::New,
                })
                .collect(),
        });
        for (index, (key, candidates)) in keys.into_iter().zip(candidates).enumerate() {
            if let Some(key) = key {
                self.claim(ItemId { batch: number, index }, key, candidates, out);
            }
        }
        self.begin_hooks(number, out);
        Ok(())
    }

    /// The stored rows of every key. All that must be loaded is named at once.
    fn look_up(
        &self,
        now: Now,
        keys: &[Option<DedupeKey>],
        rows: &dyn Rows,
    ) -> Result<Vec<VecDeque<DedupeRow>>, Miss> {
        let (Some(leading), false) = (self.leading, self.faults.idempotency_skipped_after_failover()) else {
            return Ok(vec![VecDeque::new(); keys.len()]);
        };
        let window = Window {
            incarnation: leading.incarnation,
            until_ms: now.wall_ms.max(leading.last_stamp_ms),
            length: self.window,
        };
        let mut missing = Vec::new();
        let found = keys
            .iter()
            .map(|key| key.map_or_else(VecDeque::new, |key| window.probe(key.hash, rows, &mut missing)))
            .collect();
        if missing.is_empty() {
            Ok(found)
        } else {
            Err(Miss(missing))
        }
    }

    /// Hands a batch to the hooks once all of its keys are looked up.
    pub(super) fn begin_hooks(&mut self, number: u64, out: &mut Vec<Output>) {
        let token = self.next_token;
        let Some(batch) = self.queue.batch_mut(number) else {
            return;
        };
        let open = batch
            .items
            .iter()
            .any(|item| matches!(item.state, State::Checking { .. }));
        if open || batch.phase != Phase::Checking {
            return;
        }
        let fresh = batch.items.iter().filter(|item| matches!(item.state, State::New));
        let drafts: Vec<Draft> = fresh.map(|item| item.draft.clone()).collect();
        if drafts.is_empty() {
            batch.phase = Phase::Ready;
            return;
        }
        batch.phase = Phase::Hooks(token);
        self.next_token = Token(token.0 + 1);
        out.push(Output::BeforeSend { token, drafts });
    }

    fn judged(&mut self, token: Token, verdicts: Vec<Result<Draft, Refusal>>) {
        let Some(number) = self.queue.with_hooks(token) else {
            return;
        };
        let Some(batch) = self.queue.batch_mut(number) else {
            return;
        };
        batch.phase = Phase::Ready;
        let items = batch.items.iter_mut().enumerate();
        let fresh: Vec<usize> = items
            .filter(|(_, item)| matches!(item.state, State::New))
            .map(|(index, _)| index)
            .collect();
        let complete = verdicts.len() == fresh.len();
        let mut verdicts = verdicts.into_iter();
        for index in fresh {
            let id = ItemId { batch: number, index };
            match verdicts.next().filter(|_| complete) {
                Some(Ok(draft)) => {
                    if let Some(item) = self.queue.item_mut(id) {
                        item.draft.payload = draft.payload;
                        item.draft.expire_s = draft.expire_s;
                        item.draft.topic = draft.topic;
                    }
                }
                Some(Err(refusal)) => self.refuse(id, refusal),
                // An answer that does not fit its question is no permission.
                None => self.refuse(id, Reason::NODE_NOT_MATCH),
            }
        }
    }

    /// Places what may be placed and answers what is over, both in order.
    fn advance(&mut self, now: Now, ids: &mut ids::Generator, out: &mut Vec<Output>) {
        while let Some(number) = self.queue.placeable() {
            self.queue.placed();
            self.place(now, number, ids, out);
        }
        while let Some((number, batch)) = self.queue.front() {
            let open = batch
                .items
                .iter()
                .position(|item| !matches!(item.state, State::Done(_)));
            match open {
                None => self.reply_front(out),
                Some(index) => {
                    let id = ItemId { batch: number, index };
                    if !(batch.phase == Phase::Placed && self.plan_ephemeral(now, id, ids, out)) {
                        return;
                    }
                }
            }
        }
    }

    fn change_role(&mut self, role: Role, out: &mut Vec<Output>) {
        if let (Role::Leading(new), Some(old)) = (role, &mut self.leading)
            && (new.incarnation, new.leader_epoch) == (old.incarnation, old.leader_epoch)
        {
            old.meta_version = old.meta_version.max(new.meta_version);
            old.log_start = old.log_start.max(new.log_start);
            return;
        }
        while let Some((number, _)) = self.queue.front() {
            self.give_up(number);
            self.reply_front(out);
        }
        self.claims.clear();
        self.appending.clear();
        self.queue.aliases.clear();
        self.leading = match role {
            Role::Leading(leading) => Some(leading),
            Role::Not => None,
        };
        self.ledger = Ledger::new(self.leading.map_or(Seq(0), |leading| leading.committed));
    }

    /// Ends every open item of a batch: refused when it was never handed to the log, else unknown with its claim kept.
    fn give_up(&mut self, number: u64) {
        let length = self.queue.batch(number).map_or(0, |batch| batch.items.len());
        for index in 0..length {
            let id = ItemId { batch: number, index };
            let Some(item) = self.queue.item_mut(id) else {
                continue;
            };
            match item.state {
                State::Done(_) => {}
                State::New | State::Checking { .. } | State::Planning { .. } => {
                    self.refuse(id, Reason::NODE_NOT_MATCH);
                }
                State::Alias | State::Appending | State::Waiting => {
                    self.set(id, State::Done(Outcome::Unknown))
                }
            }
        }
    }

    fn reply_front(&mut self, out: &mut Vec<Output>) {
        let Some(batch) = self.queue.pop() else { return };
        let outcomes = batch.items.iter().map(|item| match &item.state {
            State::Done(outcome) => outcome.clone(),
            _ => Outcome::Unknown,
        });
        out.push(Output::Reply {
            token: batch.token,
            outcomes: outcomes.collect(),
        });
    }

    /// Refuses an item that was never appended, and gives its claim back.
    pub(super) fn refuse(&mut self, id: ItemId, refusal: impl Into<Refusal>) {
        if let Some(key) = self.queue.item_mut(id).and_then(|item| item.key) {
            self.release(key.hash, id);
        }
        self.settle(id, Outcome::from(refusal.into()));
    }

    pub(super) fn release(&mut self, hash: u64, id: ItemId) {
        let held = self
            .claims
            .get(&hash)
            .is_some_and(|claim| claim.place == Place::Item(id));
        if held {
            self.claims.remove(&hash);
        }
    }

    /// Ends an item, unless it has been answered already, and whoever repeats it.
    pub(super) fn settle(&mut self, id: ItemId, outcome: Outcome) {
        if let Some(item) = self.queue.item_mut(id)
            && !matches!(item.state, State::Done(_))
        {
            item.state = State::Done(outcome.clone());
        }
        for alias in self.queue.aliases.remove(&id).unwrap_or_default() {
            let outcome = if alias.differs {
                // What it differs from was never appended: it may come again.
                Outcome::Refused(Reason::NODE_NOT_MATCH)
            } else {
                outcome.clone()
            };
            if let Some(item) = self.queue.item_mut(alias.item)
                && !matches!(item.state, State::Done(_))
            {
                item.state = State::Done(outcome);
            }
        }
    }

    pub(super) fn set(&mut self, id: ItemId, state: State) {
        if let Some(item) = self.queue.item_mut(id) {
            item.state = state;
        }
    }
}

#[cfg(test)]
impl Authority {
    /// Keys that are claimed, for tests.
    pub(super) fn claimed(&self) -> usize {
        self.claims.len()
    }
}
