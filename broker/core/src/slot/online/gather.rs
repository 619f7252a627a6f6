//! From changes to batches: what is news is proposed, and what was told and is over is found.

use super::{
    BATCH_BYTES_MAX, CHANGES_MAX, EVENTS_OF_BATCH, OnlineStatus, Output, Purpose, ReaderKey, SessionChange,
    Slot, Sweep, is_another_audience, key_of, read,
};
use crate::replicated::Reply;
use crate::rows::{Miss, Page, ReadRequest, Rows, Table};
use crate::slot::interface::ProposeError;
use crate::slot::rows::decode;
use crate::slot::{command, keys};
use crate::types::{Now, SlotId, Token, Uid};
use bytes::Bytes;
use penstock_wire::storage::v1::{OnlineQueue, OnlineSession, OnlineUser};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// So long are changes gathered for one command.
const GATHERED_FOR: Duration = Duration::from_millis(100);
/// Pause before a command is proposed again.
const RETRY: Duration = Duration::from_millis(250);
/// Pause before it is asked again who is online.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Users of one page of a sweep.
const PAGE: u32 = 256;

impl OnlineStatus {
    pub(super) fn on_change(&mut self, now: Now, id: SlotId, change: SessionChange, out: &mut Vec<Output>) {
        let Some(slot) = self.slots.get_mut(&id) else {
            return;
        };
        slot.gather(now, change, out);
        self.rearm(id);
    }

    /// Changes that the rows do not have yet, of those that are due.
    pub(super) fn news(
        &self,
        now: Now,
        (slot, head): (&Slot, Option<&OnlineQueue>),
        rows: &dyn Rows,
    ) -> Result<Option<(Vec<SessionChange>, usize)>, Miss> {
        let is_due = slot.gathered_at.is_some_and(|at| at <= now.monotonic);
        if !is_due || slot.proposing.is_some() {
            return Ok(None);
        }
        let audience = self.audience(head);
        let mut users: BTreeMap<&Uid, Told> = BTreeMap::new();
        let mut missing = Vec::new();
        let mut bytes = 0;
        let fits = |change: &&SessionChange| {
            let before = bytes;
            bytes += change.uid.as_str().len() + size_of::<OnlineSession>();
            before < BATCH_BYTES_MAX
        };
        let due: Vec<&SessionChange> = slot
            .changes
            .iter()
            .take(EVENTS_OF_BATCH)
            .take_while(fits)
            .collect();
        for change in &due {
            if users.contains_key(&change.uid) {
                continue;
            }
            match read::<OnlineUser>(rows, &keys::online_user(&change.uid)) {
                Ok(user) => {
                    users.insert(&change.uid, Told::of(user.unwrap_or_default(), audience));
                }
                Err(Miss(keys)) => missing.extend(keys),
            }
        }
        if !missing.is_empty() {
            missing.sort();
            missing.dedup();
            return Err(Miss(missing));
        }
        let is_news =
            |change: &&SessionChange| users.get_mut(&change.uid).is_some_and(|told| told.takes(change));
        let count = due.len();
        let news = due.into_iter().filter(is_news).cloned().collect();
        Ok(Some((news, count)))
    }

    /// Proposes what is news, and who is to be told where the rows say otherwise.
    pub(super) fn note(
        &mut self,
        now: Now,
        id: SlotId,
        (head, news): (Option<&OnlineQueue>, Option<(Vec<SessionChange>, usize)>),
        out: &mut Vec<Output>,
    ) {
        let (news, count) = news.unwrap_or_default();
        let differ = self.readers_differ(head);
        let token = self.token();
        let Some(slot) = self.slots.get_mut(&id) else {
            return;
        };
        let waits = slot.gathered_at.is_some_and(|at| at > now.monotonic);
        if waits || slot.proposing.is_some() {
            return;
        }
        if news.is_empty() && !differ {
            slot.take(now, count);
            return;
        }
        slot.proposing = Some((token, count));
        let readers: Vec<ReaderKey> = self.readers.all.iter().map(key_of).collect();
        let readers = (self.readers.revision, &readers[..]);
        self.proposals.insert(token, Purpose::Note(id));
        let command = command::note_sessions(now.wall_ms, id, readers, &news);
        out.push(Output::Propose { token, command });
    }

    /// The audience once the rows have the readers of this registry.
    fn audience(&self, head: Option<&OnlineQueue>) -> u64 {
        let stored = head.map_or(0, |head| head.audience);
        let before = head.map(|head| &head.readers[..]).unwrap_or_default();
        let names = self
            .readers
            .all
            .iter()
            .map(|reader| (&*reader.binding, reader.incarnation));
        stored + u64::from(is_another_audience(before, names) && self.readers_differ(head))
    }

    /// Whether the rows have other readers than this or a newer revision of the registry.
    fn readers_differ(&self, head: Option<&OnlineQueue>) -> bool {
        let Some(head) = head else {
            return !self.readers.all.is_empty();
        };
        let stored = head.readers.iter();
        let stored: BTreeSet<(&str, u64)> = stored
            .map(|reader| (reader.binding.as_str(), reader.binding_incarnation))
            .collect();
        let wanted = self.readers.all.iter();
        let wanted: BTreeSet<(&str, u64)> = wanted
            .map(|reader| (&*reader.binding, reader.incarnation))
            .collect();
        stored != wanted && self.readers.revision >= head.registry
    }

    /// A proposal of changes was answered.
    pub(super) fn noted(&mut self, now: Now, id: SlotId, token: Token, result: &Result<Reply, ProposeError>) {
        let Some(slot) = self.slots.get_mut(&id) else {
            return;
        };
        let Some((_, count)) = slot.proposing.take_if(|(under_way, _)| *under_way == token) else {
            return;
        };
        match result {
            Ok(Reply::Done) => slot.take(now, count),
            Ok(_) => {
                slot.take(now, count);
                slot.gathered_at = Some(now.after(RETRY));
            }
            // The slot keeps what is gathered; what was noted all the same is no news the next time.
            Err(_) => slot.gathered_at = Some(now.after(RETRY)),
        }
    }

    /// Reads the next page of what was told.
    pub(super) fn sweep_on(&mut self, now: Now, id: SlotId, is_noted: bool, out: &mut Vec<Output>) {
        let token = self.token();
        let Some(slot) = self.slots.get_mut(&id) else {
            return;
        };
        match &mut slot.sweep {
            Sweep::At(..) if !is_noted => slot.sweep = Sweep::Idle,
            Sweep::At(at, after) if *at <= now.monotonic && slot.changes.len() < EVENTS_OF_BATCH => {
                let after = after.take();
                let request = ReadRequest::SlotRows {
                    slot: id,
                    table: Table::OnlineUser,
                    prefix: Bytes::new(),
                    after: after.clone(),
                    rows_max: PAGE,
                };
                slot.sweep = Sweep::Reading(token, after);
                out.push(Output::Read { token, request });
            }
            _ => {}
        }
    }

    /// A page of what was told: are they online still?
    pub(super) fn on_page(&mut self, now: Now, token: Token, page: Page, out: &mut Vec<Output>) {
        let reads = |slot: &Slot| matches!(&slot.sweep, Sweep::Reading(known, _) if *known == token);
        let Some((&id, slot)) = self.slots.iter_mut().find(|(_, slot)| reads(slot)) else {
            return;
        };
        let Sweep::Reading(_, here) = std::mem::take(&mut slot.sweep) else {
            return;
        };
        let Page::Rows { rows, more } = page else {
            slot.sweep = Sweep::At(now.after(ASK_AGAIN), here);
            return self.rearm(id);
        };
        let next = rows.last().filter(|_| more).map(|(_, key, _)| key.clone());
        let mut uids = Vec::new();
        let mut told = Vec::new();
        for (_, key, value) in &rows {
            let user = keys::read_uid(key).zip(decode::<OnlineUser>(value).ok());
            if let Some((uid, user)) = user {
                told.extend(user.sessions.iter().map(|session| (uid.clone(), *session)));
                uids.push(uid);
            }
        }
        slot.sweep = Sweep::Asked(here, told, next);
        if self.readers.all.is_empty() {
            return self.on_online(now, id, Some(Vec::new()), out);
        }
        out.push(Output::WhoIsOnline { slot: id, uids });
    }

    /// Those who are not have ended unseen.
    pub(super) fn on_online(
        &mut self,
        now: Now,
        id: SlotId,
        sessions: Option<Vec<OnlineSession>>,
        out: &mut Vec<Output>,
    ) {
        let Some(slot) = self.slots.get_mut(&id) else {
            return;
        };
        match (std::mem::take(&mut slot.sweep), sessions) {
            (Sweep::Asked(here, ..), None) => slot.sweep = Sweep::At(now.after(ASK_AGAIN), here),
            (Sweep::Asked(_, told, next), Some(sessions)) => {
                let online: BTreeSet<u64> = sessions.iter().map(super::number_of).collect();
                let over = told
                    .into_iter()
                    .filter(|(_, session)| !online.contains(&super::number_of(session)));
                for (uid, session) in over {
                    let change = SessionChange {
                        uid,
                        session,
                        online: false,
                    };
                    slot.gather(now, change, out);
                }
                if next.is_some() {
                    slot.sweep = Sweep::At(now.monotonic, next);
                }
            }
            (other, _) => slot.sweep = other,
        }
        self.touch(id);
    }
}

/// What an audience was told of a user.
#[derive(Default)]
struct Told {
    sessions: Vec<OnlineSession>,
    /// The row is of another audience, and goes or becomes one of this audience.
    is_stale: bool,
}

impl Told {
    fn of(user: OnlineUser, audience: u64) -> Told {
        if user.audience == audience {
            return Told {
                sessions: user.sessions,
                is_stale: false,
            };
        }
        Told {
            sessions: Vec::new(),
            is_stale: !user.sessions.is_empty(),
        }
    }

    /// Whether a change is news, which it is not any more then.
    fn takes(&mut self, change: &SessionChange) -> bool {
        let was_stale = std::mem::take(&mut self.is_stale);
        let known = self.sessions.iter().position(|known| *known == change.session);
        match (known, change.online) {
            (None, true) => self.sessions.push(change.session),
            (Some(at), false) => {
                self.sessions.remove(at);
            }
            _ => return was_stale,
        }
        true
    }
}

impl Slot {
    /// Takes a change. Where there are too many, the oldest that is not under way is dropped; if it was an end, what was told is
    /// compared again.
    fn gather(&mut self, now: Now, change: SessionChange, out: &mut Vec<Output>) {
        if self.changes.len() >= CHANGES_MAX {
            let under_way = self.proposing.map_or(0, |(_, count)| count);
            let dropped = self.changes.remove(under_way);
            let was_end = dropped.is_some_and(|dropped| !dropped.online);
            if was_end && matches!(self.sweep, Sweep::Idle) {
                self.sweep = Sweep::At(now.after(ASK_AGAIN), None);
            }
            out.push(Output::Dropped(1));
        }
        self.changes.push_back(change);
        // A pause after a failure is not cut short.
        self.gathered_at.get_or_insert_with(|| now.after(GATHERED_FOR));
    }

    /// Forgets what is gathered, but for what is proposed already.
    pub(super) fn forget_gathered(&mut self) {
        let under_way = self.proposing.map_or(0, |(_, count)| count);
        self.changes.truncate(under_way);
        if self.changes.is_empty() {
            self.gathered_at = None;
        }
    }

    /// So many changes are done.
    fn take(&mut self, now: Now, count: usize) {
        self.changes.drain(..count.min(self.changes.len()));
        self.gathered_at = (!self.changes.is_empty()).then_some(now.monotonic);
    }
}
