//! The machine.

use super::batch::{Alias, Appending, Batch, Claim, Item, ItemId, Phase, Place, Queue, State};
use super::commit::{self, Ledger, Placed};
use super::dedupe::{Window, key_of};
use super::faults::Faults;
use super::{Append, Checked, Entry, Input, Leadership, Output, Role, ids};
use crate::limits::Limits;
use crate::message::{DedupeKey, DedupeRow, Draft, Message, Outcome, Record};
use crate::rows::{Miss, Rows};
use crate::types::{Now, Reason, Seq, Token};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The append authority of one channel on the node that leads it.
#[derive(Debug)]
pub struct Authority {
    backlog_max: usize,
    timeout: Duration,
    window: Duration,
    faults: Faults,
    leading: Option<Leadership>,
    busy: bool,
    queue: Queue,
    claims: BTreeMap<u64, Claim>,
    appending: BTreeMap<Token, Vec<Appending>>,
    ledger: Ledger,
    next_token: Token,
}

impl Authority {
    /// An authority that does not lead yet. Its continuation tokens count up from `first_token`: whoever builds one again
    /// for the same channel passes a higher number, so that answers to the former one are not taken for its own (CH-13).
    #[must_use]
    pub fn new(limits: &Limits, first_token: Token) -> Authority {
        Authority {
            backlog_max: limits.channel_backlog,
            timeout: limits.append_timeout,
            window: limits.dedupe_window,
            faults: Faults::default(),
            leading: None,
            busy: false,
            queue: Queue::default(),
            claims: BTreeMap::new(),
            appending: BTreeMap::new(),
            ledger: Ledger::default(),
            next_token: first_token,
        }
    }

    /// Plants faults.
    #[cfg(feature = "mutants")]
    pub fn plant(&mut self, faults: Faults) {
        self.faults = faults;
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

    fn token(&mut self) -> Token {
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

    /// Gives an item the claim on its key, or joins it to whatever holds it.
    fn claim(&mut self, id: ItemId, key: DedupeKey, candidates: VecDeque<DedupeRow>, out: &mut Vec<Output>) {
        let Some(claim) = self.claims.get(&key.hash).copied() else {
            let claim = Claim {
                digest: key.digest,
                place: Place::Item(id),
            };
            self.claims.insert(key.hash, claim);
            self.check_next(id, candidates, out);
            return;
        };
        let differs = self.differs(claim.digest, key.digest);
        match claim.place {
            Place::Record(placed) => self.repeats(id, placed, differs),
            Place::Item(of) => {
                self.set(id, State::Alias);
                self.queue
                    .aliases
                    .entry(of)
                    .or_default()
                    .push(Alias { item: id, differs });
            }
        }
    }

    fn differs(&self, known: u128, given: u128) -> bool {
        known != given && !self.faults.digest_ignored()
    }

    /// Looks at the front candidate of an item; without one its key is unknown.
    fn check_next(&mut self, id: ItemId, mut candidates: VecDeque<DedupeRow>, out: &mut Vec<Output>) {
        let Some(row) = candidates.front().copied() else {
            self.set(id, State::New);
            return;
        };
        // Below the log start the record is gone, but it was committed: nothing else can stand for it.
        if self.leading.is_some_and(|leading| row.seq < leading.log_start) {
            candidates.clear();
            let placed = Placed {
                seq: row.seq,
                id: row.id,
                stamp_ms: row.stamp_ms,
            };
            self.is_known(id, row.digest, placed);
            return;
        }
        let token = self.token();
        self.set(id, State::Checking { token, candidates });
        out.push(Output::CheckRecord { token, seq: row.seq });
    }

    fn checked(&mut self, token: Token, checked: Checked, out: &mut Vec<Output>) {
        let asked =
            |item: &Item| matches!(&item.state, State::Checking { token: asked, .. } if *asked == token);
        let Some(id) = self.queue.find(asked) else { return };
        let Some(item) = self.queue.item_mut(id) else {
            return;
        };
        let hash = item.key.map(|key| key.hash);
        let State::Checking { mut candidates, .. } = std::mem::replace(&mut item.state, State::New) else {
            return;
        };
        match checked {
            Checked::Failed => self.refuse(id, Reason::NODE_NOT_MATCH),
            Checked::Record(Record {
                seq,
                stamp_ms,
                id: message,
                key: Some(key),
                ..
            }) if Some(key.hash) == hash => {
                let placed = Placed {
                    seq,
                    id: message,
                    stamp_ms,
                };
                self.is_known(id, key.digest, placed);
            }
            // The row outlived its record: another one stands there, or none.
            Checked::Record(_) | Checked::Missing => {
                candidates.pop_front();
                self.check_next(id, candidates, out);
            }
        }
        self.begin_hooks(id.batch, out);
    }

    /// An item, which holds the claim on its key, turns out to repeat a record.
    fn is_known(&mut self, id: ItemId, known_digest: u128, placed: Placed) {
        let Some(key) = self.queue.item_mut(id).and_then(|item| item.key) else {
            return;
        };
        self.claims.remove(&key.hash);
        let differs = self.differs(known_digest, key.digest);
        // Whoever repeats this item is compared with the record, not with this item.
        for alias in self.queue.aliases.remove(&id).unwrap_or_default() {
            let digest = self.queue.item_mut(alias.item).and_then(|item| item.key);
            let differs = digest.is_some_and(|key| self.differs(known_digest, key.digest));
            self.repeats(alias.item, placed, differs);
        }
        self.repeats(id, placed, differs);
    }

    /// The item repeats a record with a position.
    fn repeats(&mut self, id: ItemId, placed: Placed, differs: bool) {
        if differs {
            self.settle(id, Outcome::Refused(Reason::IDEMPOTENCY_CONFLICT));
        } else if let Some(proof) = self.ledger.prove(placed) {
            self.settle(id, proof.outcome());
        } else {
            self.set(id, State::Waiting);
            self.ledger.wait(placed, id);
        }
    }

    /// Hands a batch to the hooks once all of its keys are looked up.
    fn begin_hooks(&mut self, number: u64, out: &mut Vec<Output>) {
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

    fn judged(&mut self, token: Token, verdicts: Vec<Result<Draft, Reason>>) {
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
                Some(Err(reason)) => self.refuse(id, reason),
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

    /// The one way into the log (R25): gives the stored messages of a batch their ids and hands them to the replica.
    fn place(&mut self, now: Now, number: u64, ids: &mut ids::Generator, out: &mut Vec<Output>) {
        let Some(leading) = &mut self.leading else { return };
        let stamp_ms = now.wall_ms.max(leading.last_stamp_ms);
        leading.last_stamp_ms = stamp_ms;
        let leading = *leading;
        let length = self.queue.batch(number).map_or(0, |batch| batch.items.len());
        let mut entries = Vec::new();
        let mut appending = Vec::new();
        for index in 0..length {
            let id = ItemId { batch: number, index };
            let Some(item) = self.queue.item_mut(id) else {
                continue;
            };
            if !matches!(item.state, State::New) || item.draft.flags.no_persist {
                continue;
            }
            let Some(message_id) = ids.next(now) else {
                self.refuse(id, Reason::RATE_LIMITED);
                continue;
            };
            item.state = State::Appending;
            entries.push(Entry {
                message: Message {
                    id: message_id,
                    seq: Seq(0),
                    stamp_ms,
                    draft: item.draft.clone(),
                },
                key: item.key,
            });
            appending.push(Appending {
                item: id,
                hash: item.key.map(|key| key.hash),
                id: message_id,
                stamp_ms,
            });
        }
        if entries.is_empty() {
            return;
        }
        let token = self.token();
        self.appending.insert(token, appending);
        out.push(Output::Append(Append {
            token,
            incarnation: leading.incarnation,
            leader_epoch: leading.leader_epoch,
            entries,
        }));
    }

    /// Hands a message that is not stored to delivery, after everything before it is over (SF-1). False when the item is
    /// something else or is already with delivery.
    fn plan_ephemeral(
        &mut self,
        now: Now,
        id: ItemId,
        ids: &mut ids::Generator,
        out: &mut Vec<Output>,
    ) -> bool {
        let Some(item) = self.queue.item_mut(id) else {
            return false;
        };
        if !matches!(item.state, State::New) {
            return false;
        }
        let draft = item.draft.clone();
        let Some(message_id) = ids.next(now) else {
            self.refuse(id, Reason::RATE_LIMITED);
            return true;
        };
        let token = self.token();
        let last = self.leading.map_or(0, |leading| leading.last_stamp_ms);
        let stamp_ms = now.wall_ms.max(last);
        self.set(
            id,
            State::Planning {
                token,
                id: message_id,
                stamp_ms,
            },
        );
        out.push(Output::Ephemeral {
            token,
            message: Message {
                id: message_id,
                seq: Seq(0),
                stamp_ms,
                draft,
            },
        });
        false
    }

    fn planned(&mut self, token: Token, accepted: bool) {
        let asked =
            |item: &Item| matches!(item.state, State::Planning { token: asked, .. } if asked == token);
        let Some(item) = self.queue.find(asked).and_then(|id| self.queue.item_mut(id)) else {
            return;
        };
        let State::Planning { id, stamp_ms, .. } = item.state else {
            return;
        };
        item.state = State::Done(if accepted {
            commit::ephemeral(id, stamp_ms)
        } else {
            Outcome::Refused(Reason::RATE_LIMITED)
        });
    }

    fn appended(&mut self, token: Token, first: Seq) {
        let Some(entries) = self.appending.remove(&token) else {
            return;
        };
        for (seq, entry) in (first.0..).map(Seq).zip(entries) {
            let placed = Placed {
                seq,
                id: entry.id,
                stamp_ms: entry.stamp_ms,
            };
            self.ledger.open(placed, entry.hash);
            if let Some(claim) = entry.hash.and_then(|hash| self.claims.get_mut(&hash)) {
                claim.place = Place::Record(placed);
            }
            for alias in self.queue.aliases.remove(&entry.item).unwrap_or_default() {
                self.repeats(alias.item, placed, alias.differs);
            }
            // The item may have been answered as unknown meanwhile.
            let waits = |item: &&mut Item| matches!(item.state, State::Appending);
            if self.queue.item_mut(entry.item).filter(waits).is_some() {
                self.repeats(entry.item, placed, false);
            }
            #[cfg(feature = "mutants")]
            if self.faults.ack_on_append() {
                self.set(entry.item, State::Done(commit::without_proof(placed)));
            }
        }
    }

    fn append_refused(&mut self, token: Token, reason: Reason) {
        for entry in self.appending.remove(&token).unwrap_or_default() {
            if let Some(hash) = entry.hash {
                self.release(hash, entry.item);
            }
            self.settle(entry.item, Outcome::Refused(reason));
        }
    }

    fn committed(&mut self, through: Seq) {
        for proof in self.ledger.commit(through) {
            let (proof, claim, waiting) = proof.into_parts();
            // The stored row stands for the claim from now on.
            if let Some(hash) = claim
                && !self.faults.idempotency_skipped_after_failover()
            {
                self.claims.remove(&hash);
            }
            for id in waiting {
                self.settle(id, proof.outcome());
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
        let outcomes = batch.items.iter().map(|item| match item.state {
            State::Done(outcome) => outcome,
            _ => Outcome::Unknown,
        });
        out.push(Output::Reply {
            token: batch.token,
            outcomes: outcomes.collect(),
        });
    }

    /// Refuses an item that was never appended, and gives its claim back.
    fn refuse(&mut self, id: ItemId, reason: Reason) {
        if let Some(key) = self.queue.item_mut(id).and_then(|item| item.key) {
            self.release(key.hash, id);
        }
        self.settle(id, Outcome::Refused(reason));
    }

    fn release(&mut self, hash: u64, id: ItemId) {
        let held = self
            .claims
            .get(&hash)
            .is_some_and(|claim| claim.place == Place::Item(id));
        if held {
            self.claims.remove(&hash);
        }
    }

    /// Ends an item, unless it has been answered already, and whoever repeats it.
    fn settle(&mut self, id: ItemId, outcome: Outcome) {
        if let Some(item) = self.queue.item_mut(id)
            && !matches!(item.state, State::Done(_))
        {
            item.state = State::Done(outcome);
        }
        for alias in self.queue.aliases.remove(&id).unwrap_or_default() {
            let outcome = if alias.differs {
                // What it differs from was never appended: it may come again.
                Outcome::Refused(Reason::NODE_NOT_MATCH)
            } else {
                outcome
            };
            if let Some(item) = self.queue.item_mut(alias.item)
                && !matches!(item.state, State::Done(_))
            {
                item.state = State::Done(outcome);
            }
        }
    }

    fn set(&mut self, id: ItemId, state: State) {
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
