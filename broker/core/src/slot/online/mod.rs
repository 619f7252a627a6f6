//! Online status of users: sessions that began or ended become batches of a queue in the slot's rows, and webhooks are told batch by
//! batch. On every node that hosts the group, active while the node leads it.
//!
//! # Owns
//! Changes that are not proposed yet, how far the sweep over what was told is, and the delivery to each reader of each slot.
//!
//! # Invariants
//! - A reader's position moves when its delivery has ended, and one batch is under way for it at a time: at least once, in order.
//! - A session that is told as online and is over is told as ended, also when it ended while nobody led the slot: a new leader
//!   compares the rows with the sessions it knows, once all nodes have announced theirs.
//! - Bindings of whom none was told before are another audience: what the one before was told of is no news that they missed, so they
//!   hear of every session that is open.
//! - While no binding wants to be told, nothing is gathered, read or written, except that the rows of the last one are removed.
//!
//! # States
//! ```text
//! change → gathered → noted in the rows (a batch) → delivered to each reader → done → removed
//! ```
//!
//! # Absent
//! Who is online (the presence authority), rendering and requests (the node), which rows a command changes (`slot/fsm`).

mod deliver;
mod gather;
mod interface;
#[cfg(test)]
mod tests;

pub use interface::{
    Delivery, Input, Outcome, Output, Reader, Readers, SessionChange, number_of, session_of,
};

use super::faults::Faults;
use super::interface::ProposeError;
use super::keys;
use super::rows::decode;
use crate::replicated::Reply;
use crate::rows::{Key, Miss, Rows};
use crate::types::{Now, SlotId, Term, Token, Uid};
use bytes::Bytes;
use deliver::Task;
use penstock_wire::storage::v1::{OnlineBatch, OnlineQueue, OnlineReader, OnlineSession};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Most events of one batch, which is what one delivery carries, and most changes of one command.
pub const EVENTS_OF_BATCH: usize = 512;
/// A batch of so many bytes takes no more events.
pub const BATCH_BYTES_MAX: usize = 64 << 10;
/// Most events that the queue of a slot keeps; beyond, the oldest batches are dropped.
pub const EVENTS_MAX: u64 = 10_000;
/// Most changes of a slot that wait to be proposed; beyond, the oldest is dropped.
pub const CHANGES_MAX: usize = 10_000;

/// Names a reader.
type ReaderKey = (Arc<str>, u64);

/// Where the sweep over what was told is.
#[derive(Debug, Default)]
enum Sweep {
    /// Over, or not wanted.
    #[default]
    Idle,
    /// Goes on at this time, behind this key.
    At(Duration, Option<Bytes>),
    /// Waits for a page.
    Reading(Token, Option<Bytes>),
    /// Waits for who is online of a page: where the page begins, its sessions, and where the next one begins, if there is one.
    Asked(Option<Bytes>, Vec<(Uid, OnlineSession)>, Option<Bytes>),
}

/// A slot that is led here.
#[derive(Debug, Default)]
struct Slot {
    /// What was not proposed yet, or is being proposed.
    changes: VecDeque<SessionChange>,
    /// When it is proposed.
    gathered_at: Option<Duration>,
    /// The proposal under way, and how many of the changes it stands for.
    proposing: Option<(Token, usize)>,
    sweep: Sweep,
    tasks: BTreeMap<ReaderKey, Task>,
    /// Dropped events that are counted.
    dropped: Option<u64>,
    /// Its place among the deadlines.
    due: Option<Duration>,
}

/// What a proposal is for.
#[derive(Debug)]
enum Purpose {
    Note(SlotId),
    Advance(SlotId, ReaderKey),
}

/// What the rows say for one piece of work.
struct View {
    head: Option<OnlineQueue>,
    /// Changes that are news, and how many they stand for.
    news: Option<(Vec<SessionChange>, usize)>,
    /// The next batch of each reader that is free.
    batches: Vec<(ReaderKey, u64, Option<OnlineBatch>)>,
}

/// The machine of one group.
#[derive(Debug)]
pub struct OnlineStatus {
    owned: Vec<SlotId>,
    faults: Faults,
    leads: Option<Term>,
    readers: Readers,
    slots: BTreeMap<SlotId, Slot>,
    proposals: BTreeMap<Token, Purpose>,
    dirty: BTreeSet<SlotId>,
    due: BTreeSet<(Duration, SlotId)>,
    /// [`Output::Work`] is not answered.
    asked: bool,
    last_token: u64,
}

impl OnlineStatus {
    /// The machine of the group with these slots. Tokens are its own: the shard translates them.
    #[must_use]
    pub fn new(owned: Vec<SlotId>, faults: Faults) -> OnlineStatus {
        OnlineStatus {
            owned,
            faults,
            leads: None,
            readers: Readers::default(),
            slots: BTreeMap::new(),
            proposals: BTreeMap::new(),
            dirty: BTreeSet::new(),
            due: BTreeSet::new(),
            asked: false,
            last_token: 0,
        }
    }

    /// Handles one input.
    ///
    /// # Errors
    /// [`Miss`] with rows that must be loaded: nothing has changed. Only for [`Input::Work`].
    pub fn handle(
        &mut self,
        now: Now,
        input: Input,
        rows: &dyn Rows,
        out: &mut Vec<Output>,
    ) -> Result<(), Miss> {
        match input {
            Input::Leads(leads) => self.on_leads(now, leads),
            Input::Readers(readers) => self.on_readers(now, readers),
            Input::Changed { slot, change } => self.on_change(now, slot, change, out),
            Input::Proposed { token, result } => self.on_proposed(now, token, &result),
            Input::ReadDone { token, page } => self.on_page(now, token, page, out),
            Input::Online { slot, sessions } => self.on_online(now, slot, sessions, out),
            Input::Returned { slot, token, outcome } => self.on_returned(now, slot, token, outcome),
            Input::Work => self.work(now, rows, out)?,
        }
        let waits = !self.dirty.is_empty() || self.next_deadline().is_some_and(|at| at <= now.monotonic);
        if waits && !self.asked {
            self.asked = true;
            out.push(Output::Work);
        }
        Ok(())
    }

    /// Whether somebody is told, and will not be told any more when these are in their place: who is told then has heard of none of the
    /// sessions that are open.
    #[must_use]
    pub fn makes_way(&self, readers: &Readers) -> bool {
        let stays = |reader: &Reader| {
            self.readers
                .all
                .iter()
                .any(|before| key_of(before) == key_of(reader))
        };
        !self.readers.all.is_empty() && !readers.all.iter().any(stays)
    }

    /// When [`Input::Work`] is wanted at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        self.due.first().map(|(at, _)| *at).filter(|_| !self.asked)
    }

    fn token(&mut self) -> Token {
        self.last_token += 1;
        Token(self.last_token)
    }

    /// A new leader begins with what the rows say.
    fn on_leads(&mut self, now: Now, leads: Option<Term>) {
        if std::mem::replace(&mut self.leads, leads) == leads {
            return;
        }
        self.slots.clear();
        self.proposals.clear();
        self.dirty.clear();
        self.due.clear();
        if leads.is_some() && !self.readers.all.is_empty() {
            self.begin(now);
        }
    }

    fn on_readers(&mut self, now: Now, readers: Readers) {
        let before = std::mem::replace(&mut self.readers, readers);
        if self.leads.is_none() {
            return;
        }
        match (before.all.is_empty(), self.readers.all.is_empty()) {
            (true, true) => {}
            (true, false) => {
                // What was noted was on its way out: that is no end of a session that somebody is to be told of.
                self.slots.values_mut().for_each(Slot::forget_gathered);
                self.begin(now);
            }
            // Nobody is told any more: what is noted goes.
            (false, true) => {
                for slot in self.slots.values_mut() {
                    slot.tasks.clear();
                    slot.sweep = Sweep::At(now.monotonic, None);
                }
            }
            (false, false) => {
                let wanted: BTreeSet<ReaderKey> = self.readers.all.iter().map(key_of).collect();
                for slot in self.slots.values_mut() {
                    slot.tasks.retain(|key, _| wanted.contains(key));
                }
            }
        }
        self.dirty.extend(self.slots.keys());
    }

    fn begin(&mut self, now: Now) {
        let swept = !self.faults.ends_not_swept();
        for slot in &self.owned {
            let slot = self.slots.entry(*slot).or_default();
            if swept {
                slot.sweep = Sweep::At(now.monotonic, None);
            }
        }
        self.dirty.extend(&self.owned);
    }

    /// Does what can be done in one slot. Everything is read first, so that a miss has changed nothing.
    fn work(&mut self, now: Now, rows: &dyn Rows, out: &mut Vec<Output>) -> Result<(), Miss> {
        let due = self.due.first().filter(|(at, _)| *at <= now.monotonic);
        let next = self.dirty.first().copied().or_else(|| due.map(|(_, slot)| *slot));
        let found = match next.and_then(|id| Some((id, self.slots.get(&id)?))) {
            Some((id, slot)) => Some((id, self.look(now, (id, slot), rows)?)),
            None => None,
        };
        self.asked = false;
        self.dirty.extract_if(.., |id| Some(*id) == next).for_each(drop);
        if let Some((id, view)) = found {
            self.act(now, id, view, out);
            self.rearm(id);
        }
        Ok(())
    }

    fn look(&self, now: Now, (id, slot): (SlotId, &Slot), rows: &dyn Rows) -> Result<View, Miss> {
        let head: Option<OnlineQueue> = read(rows, &keys::online_queue(id))?;
        let news = self.news(now, (slot, head.as_ref()), rows)?;
        let batches = self.next_batches(now, (id, slot), head.as_ref(), rows)?;
        Ok(View { head, news, batches })
    }

    fn act(&mut self, now: Now, id: SlotId, view: View, out: &mut Vec<Output>) {
        let Some(slot) = self.slots.get_mut(&id) else {
            return;
        };
        let dropped = view.head.as_ref().map_or(0, |head| head.dropped);
        let counted = slot.dropped.replace(dropped).unwrap_or(dropped);
        if dropped > counted {
            out.push(Output::Dropped(dropped - counted));
        }
        self.note(now, id, (view.head.as_ref(), view.news), out);
        self.sweep_on(now, id, view.head.is_some(), out);
        self.deliver(now, id, view.batches, out);
        self.leave(id, view.head.as_ref());
    }

    /// Forgets a slot when nobody is told any more and nothing is left of those who were.
    fn leave(&mut self, id: SlotId, head: Option<&OnlineQueue>) {
        let is_left = self.slots.get(&id).is_some_and(|slot| {
            slot.changes.is_empty() && slot.proposing.is_none() && matches!(slot.sweep, Sweep::Idle)
        });
        let is_empty = head.is_none_or(|head| head.readers.is_empty());
        if self.readers.all.is_empty() && is_left && is_empty {
            self.slots.remove(&id);
        }
    }

    fn on_proposed(&mut self, now: Now, token: Token, result: &Result<Reply, ProposeError>) {
        match self.proposals.remove(&token) {
            Some(Purpose::Note(id)) => {
                self.noted(now, id, token, result);
                self.touch(id);
            }
            Some(Purpose::Advance(id, key)) => {
                self.advanced(now, id, &key, result);
                self.touch(id);
            }
            None => {}
        }
    }

    /// Something has changed in a slot.
    fn touch(&mut self, id: SlotId) {
        if self.slots.contains_key(&id) {
            self.dirty.insert(id);
            self.rearm(id);
        }
    }

    fn rearm(&mut self, id: SlotId) {
        let Some(slot) = self.slots.get_mut(&id) else {
            self.due.retain(|(_, other)| *other != id);
            return;
        };
        let due = slot.next_deadline();
        if slot.due != due {
            if let Some(at) = slot.due {
                self.due.remove(&(at, id));
            }
            slot.due = due;
            self.due.extend(due.map(|at| (at, id)));
        }
    }
}

impl Slot {
    fn next_deadline(&self) -> Option<Duration> {
        let gathered = self.gathered_at.filter(|_| self.proposing.is_none());
        let sweep = match self.sweep {
            Sweep::At(at, _) if self.changes.len() < EVENTS_OF_BATCH => Some(at),
            _ => None,
        };
        let tasks = self.tasks.values().filter_map(Task::next_deadline);
        tasks.chain(gathered).chain(sweep).min()
    }
}

/// Whether these readers, by binding and its incarnation, are another audience than those of the rows: there are some, and none of them was
/// one before. Who gathers and who applies must say the same.
pub fn is_another_audience<'a>(
    before: &[OnlineReader],
    now: impl IntoIterator<Item = (&'a str, u64)>,
) -> bool {
    let was_one = |(binding, incarnation): (&str, u64)| {
        let mut before = before.iter();
        before.any(|known| known.binding == binding && known.binding_incarnation == incarnation)
    };
    let mut now = now.into_iter().peekable();
    now.peek().is_some() && !now.any(was_one)
}

fn key_of(reader: &Reader) -> ReaderKey {
    (Arc::clone(&reader.binding), reader.incarnation)
}

/// A row that does not decode stops the group when a command meets it; here it is as good as none.
fn read<M: prost::Message + Default>(rows: &dyn Rows, key: &Key) -> Result<Option<M>, Miss> {
    Ok(rows.row(key)?.and_then(|row| decode(&row).ok()))
}
