//! Sessions that began or ended, for webhooks: which of them the queue of a slot has as online, its batches, and its readers.
//!
//! A session that is online already, or was never, is no event: what is proposed again, or by the next leader, changes nothing. A batch
//! that may have been handed out takes no more events, so that its number names its content.

use super::{Context, MALFORMED, Refused, checked_uid, done, read};
use crate::plugins::{BINDINGS_MAX, NAME_BYTES_MAX};
use crate::replicated::{Applied, Overlay, Rejection};
use crate::rows::Key;
use crate::slot::keys;
use crate::slot::online::{BATCH_BYTES_MAX, EVENTS_MAX, EVENTS_OF_BATCH, is_another_audience, number_of};
use crate::slot::rows::{encode, read_node};
use crate::types::{SlotId, Uid};
use penstock_wire::storage::v1;
use prost::Message as _;

/// Batches that one command removes at most; the rest goes with the next one.
const TRIMMED_MAX: usize = 1_024;
/// Sessions of a user that are told of; more of them come and go untold.
const SESSIONS_MAX: usize = 1_024;

/// The rows that a command reads, but for the newest batch.
pub(super) fn note_keys(note: &v1::NoteSessions) -> Vec<Key> {
    let uids = note.changes.iter().take(EVENTS_OF_BATCH);
    let users = uids.map(|change| keys::online_user(&Uid::new(&change.uid)));
    let queue = slot_of(note.slot).ok().map(keys::online_queue);
    users.chain(queue).collect()
}

/// Takes sessions that began or ended, and who is to be told.
pub(super) fn note(
    context: Context<'_>,
    note: &v1::NoteSessions,
    rows: &mut Overlay<'_>,
) -> Result<Applied, Refused> {
    let slot = slot_of(note.slot)?;
    context.machine.owns(slot)?;
    if note.changes.len() > EVENTS_OF_BATCH || note.readers.len() > BINDINGS_MAX {
        return Err(Rejection::TooMany.into());
    }
    let mut queue = Queue::read(slot, rows)?;
    queue.follow(note)?;
    let mut events = Vec::new();
    let audience = queue.head.audience;
    for change in &note.changes {
        events.extend(changed((slot, audience), change, rows)?);
    }
    queue.append(context.wall_ms, events, rows)?;
    queue.drop_oldest(rows);
    queue.write(rows);
    Ok(done(Vec::new()))
}

/// A batch is done for a reader; one that is not there any more is told of nothing.
pub(super) fn advance(
    context: Context<'_>,
    advance: &v1::AdvanceOnlineReader,
    rows: &mut Overlay<'_>,
) -> Result<Applied, Refused> {
    let slot = slot_of(advance.slot)?;
    context.machine.owns(slot)?;
    let mut queue = Queue::read(slot, rows)?;
    if advance.done > queue.head.last {
        return Err(MALFORMED);
    }
    let size = queue.size(advance.done);
    let mut readers = queue.head.readers.iter_mut();
    let reader = readers.find(|reader| {
        reader.binding == advance.binding && reader.binding_incarnation == advance.binding_incarnation
    });
    if let Some(reader) = reader
        && reader.done < advance.done
    {
        reader.done = advance.done;
        if advance.given_up {
            queue.head.dropped = queue.head.dropped.saturating_add(size);
        }
        queue.write(rows);
    }
    Ok(done(Vec::new()))
}

fn slot_of(number: u32) -> Result<SlotId, Refused> {
    u16::try_from(number).map(SlotId).map_err(|_| MALFORMED)
}

/// The event that a change makes for an audience; none when the user's row says so already. What another audience was told of is forgotten.
fn changed(
    (slot, audience): (SlotId, u64),
    change: &v1::SessionChange,
    rows: &mut Overlay<'_>,
) -> Result<Option<v1::OnlineEvent>, Refused> {
    let uid = checked_uid(&change.uid)?;
    let session = change.session.as_ref().ok_or(MALFORMED)?;
    if uid.slot() != slot || read_node(session.node).is_err() || session.flag > u32::from(u8::MAX) {
        return Err(MALFORMED);
    }
    let key = keys::online_user(&uid);
    let mut user: v1::OnlineUser = read(rows, &key)?.unwrap_or_default();
    let is_stale = user.audience != audience;
    if is_stale {
        user.sessions.clear();
        user.audience = audience;
    }
    let known = user.sessions.iter().position(|known| known == session);
    match (known, change.online) {
        (None, true) if user.sessions.len() < SESSIONS_MAX => user.sessions.push(*session),
        (Some(at), false) => {
            user.sessions.remove(at);
        }
        _ => {
            if is_stale {
                rows.delete(key);
            }
            return Ok(None);
        }
    }
    if user.sessions.is_empty() {
        rows.delete(key);
    } else {
        rows.put(key, encode(&user));
    }
    let count = |sessions: usize| u32::try_from(sessions).unwrap_or(u32::MAX);
    let of_flag = user.sessions.iter().filter(|other| other.flag == session.flag);
    Ok(Some(v1::OnlineEvent {
        uid: change.uid.clone(),
        flag: session.flag,
        online: change.online,
        session: number_of(session),
        of_flag: count(of_flag.count()),
        of_user: count(user.sessions.len()),
    }))
}

/// The queue of a slot.
struct Queue {
    slot: SlotId,
    head: v1::OnlineQueue,
    /// As it is stored.
    stored: Option<v1::OnlineQueue>,
}

impl Queue {
    fn read(slot: SlotId, rows: &mut Overlay<'_>) -> Result<Queue, Refused> {
        let stored: Option<v1::OnlineQueue> = read(rows, &keys::online_queue(slot))?;
        Ok(Queue {
            slot,
            head: stored.clone().unwrap_or_default(),
            stored,
        })
    }

    /// The number before that of the oldest batch that is kept.
    fn before(&self) -> u64 {
        self.head.last.saturating_sub(self.head.sizes.len() as u64)
    }

    /// Events of a batch; 0 when it is not kept.
    fn size(&self, number: u64) -> u64 {
        let at = number.checked_sub(self.before() + 1);
        let at = at.and_then(|at| usize::try_from(at).ok());
        let size = at.and_then(|at| self.head.sizes.get(at));
        size.map_or(0, |size| u64::from(*size))
    }

    /// Takes the readers of a registry that is not older than the one before. A new one begins behind what is there; when none of them
    /// was one before, they are another audience.
    fn follow(&mut self, note: &v1::NoteSessions) -> Result<(), Refused> {
        if note.registry < self.head.registry {
            return Ok(());
        }
        let mut readers: Vec<v1::OnlineReader> = Vec::with_capacity(note.readers.len());
        for wanted in &note.readers {
            if !(1..=NAME_BYTES_MAX).contains(&wanted.binding.len()) {
                return Err(MALFORMED);
            }
            let same = |reader: &&v1::OnlineReader| {
                reader.binding == wanted.binding && reader.binding_incarnation == wanted.binding_incarnation
            };
            if readers.iter().any(|reader| same(&reader)) {
                continue;
            }
            let known = self.head.readers.iter().find(same).map(|reader| reader.done);
            readers.push(v1::OnlineReader {
                done: known.unwrap_or(self.head.last),
                ..wanted.clone()
            });
            if known.is_none() {
                self.head.sealed = self.head.last;
            }
        }
        let names = readers
            .iter()
            .map(|reader| (reader.binding.as_str(), reader.binding_incarnation));
        if is_another_audience(&self.head.readers, names) {
            self.head.audience += 1;
        }
        self.head.registry = note.registry;
        self.head.readers = readers;
        Ok(())
    }

    fn append(
        &mut self,
        wall_ms: u64,
        events: Vec<v1::OnlineEvent>,
        rows: &mut Overlay<'_>,
    ) -> Result<(), Refused> {
        if events.is_empty() || self.head.readers.is_empty() {
            return Ok(());
        }
        let count = u32::try_from(events.len()).unwrap_or(u32::MAX);
        let fits = |size: u32| size.saturating_add(count) as usize <= EVENTS_OF_BATCH;
        let newest = self.head.sizes.last().copied();
        let is_open = self.head.last > self.head.sealed && newest.is_some_and(fits);
        let key = keys::online_batch(self.slot, self.head.last);
        let open: Option<v1::OnlineBatch> = if is_open { read(rows, &key)? } else { None };
        let open = open.filter(|batch| batch.encoded_len() < BATCH_BYTES_MAX);
        if let (Some(mut batch), Some(size)) = (open, self.head.sizes.last_mut()) {
            batch.events.extend(events);
            *size += count;
            rows.put(key, encode(&batch));
            return Ok(());
        }
        self.head.last += 1;
        self.head.sizes.push(count);
        let batch = v1::OnlineBatch { wall_ms, events };
        rows.put(keys::online_batch(self.slot, self.head.last), encode(&batch));
        Ok(())
    }

    /// Keeps the bound of the queue: readers that are not so far lose the oldest batches.
    fn drop_oldest(&mut self, rows: &mut Overlay<'_>) {
        self.trim(rows);
        let mut kept: u64 = self.head.sizes.iter().map(|size| u64::from(*size)).sum();
        let first = self.before();
        let mut through = first;
        for size in &self.head.sizes {
            if kept <= EVENTS_MAX {
                break;
            }
            kept -= u64::from(*size);
            self.head.dropped = self.head.dropped.saturating_add(u64::from(*size));
            through += 1;
        }
        for reader in &mut self.head.readers {
            reader.done = reader.done.max(through);
        }
    }

    /// Removes what all readers have done.
    fn trim(&mut self, rows: &mut Overlay<'_>) {
        let done = self.head.readers.iter().map(|reader| reader.done);
        let done = done.min().unwrap_or(self.head.last);
        let before = self.before();
        let over = usize::try_from(done.saturating_sub(before)).unwrap_or(usize::MAX);
        let over = over.min(self.head.sizes.len()).min(TRIMMED_MAX);
        self.head.sizes.drain(..over);
        for number in (before + 1..).take(over) {
            rows.delete(keys::online_batch(self.slot, number));
        }
    }

    fn write(mut self, rows: &mut Overlay<'_>) {
        self.trim(rows);
        let next = self.head.readers.iter().map(|reader| reader.done + 1);
        self.head.sealed = next.fold(self.head.sealed, u64::max);
        if self.stored.as_ref() != Some(&self.head) {
            rows.put(keys::online_queue(self.slot), encode(&self.head));
        }
    }
}
