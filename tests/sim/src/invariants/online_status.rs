//! Online status: every session that lived for a while is told as online, and every one that was told as online and is over as ended,
//! in the order of the queue and under names that keep their content.

use penstock_core::hooks::call::StatusBatch;
use penstock_core::plugins::Bound;
use penstock_core::types::{SlotId, Uid};
use penstock_wire::storage::v1;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A session that is live for so long has to be told.
const LIVED: Duration = Duration::from_secs(10);
/// Batches are tried for so long in runs in which none of them is given up.
const FOR_EVER: Duration = Duration::from_secs(3_600);

/// A binding and its creation.
type Reader = (String, u64);
/// Where an event stands in the queue of its slot: the batch, and its place in it.
type Place = (u64, usize);

/// What endpoints were told, and what was to be told.
#[derive(Debug, Default)]
pub struct OnlineStatus {
    contents: BTreeMap<(Reader, SlotId), BTreeMap<u64, Vec<String>>>,
    taken: BTreeMap<(Reader, SlotId), BTreeSet<u64>>,
    /// The last word on each session.
    last: BTreeMap<(Reader, String, u64), (Place, bool)>,
    /// Sessions that were told as online at some time.
    online: BTreeSet<(Reader, String, u64)>,
    /// When a session was seen first and last.
    lived: BTreeMap<(String, u64), (Duration, Duration)>,
    /// When a reader was seen first in the rows of a slot.
    joined: BTreeMap<(Reader, SlotId), Duration>,
    /// Events that were taken.
    pub told: u64,
}

fn reader(bound: &Bound) -> Reader {
    (bound.binding.id.to_string(), bound.incarnation)
}

/// User, session, and whether it began.
fn parse(status: &str) -> Option<(String, u64, bool)> {
    let mut parts = status.rsplitn(6, '-').skip(2);
    let session = parts.next()?.parse().ok()?;
    let online = parts.next()? == "1";
    let uid = parts.nth(1)?;
    Some((uid.to_owned(), session, online))
}

impl OnlineStatus {
    /// A batch is handed out.
    ///
    /// # Errors
    /// Says why it should not be.
    pub fn handed(&mut self, bound: &Bound, batch: &StatusBatch) -> Result<(), String> {
        let key = (reader(bound), batch.slot);
        let contents = self.contents.entry(key.clone()).or_default();
        if let Some(before) = contents.get(&batch.number) {
            return if *before == batch.statuses {
                Ok(())
            } else {
                Err(format!(
                    "batch {} was {before:?} and is {:?}",
                    batch.number, batch.statuses
                ))
            };
        }
        let taken = self.taken.entry(key).or_default();
        let open = contents.keys().find(|number| !taken.contains(number));
        if let Some(open) = open
            && bound.binding.patience >= FOR_EVER
        {
            return Err(format!(
                "batch {} is told, and {open} was not taken",
                batch.number
            ));
        }
        contents.insert(batch.number, batch.statuses.clone());
        Ok(())
    }

    /// An endpoint has taken a batch.
    pub fn took(&mut self, bound: &Bound, batch: &StatusBatch) {
        let reader = reader(bound);
        let key = (reader.clone(), batch.slot);
        self.taken.entry(key).or_default().insert(batch.number);
        for (at, status) in batch.statuses.iter().enumerate() {
            let Some((uid, session, online)) = parse(status) else {
                continue;
            };
            self.told += 1;
            let place = (batch.number, at);
            let key = (reader.clone(), uid, session);
            let last = self.last.entry(key.clone()).or_insert((place, online));
            if last.0 <= place {
                *last = (place, online);
            }
            if online {
                self.online.insert(key);
            }
        }
    }

    /// These sessions of a user are live.
    pub fn live(&mut self, now: Duration, uid: &Uid, sessions: &[u64]) {
        for session in sessions {
            let key = (uid.as_str().to_owned(), *session);
            let times = self.lived.entry(key).or_insert((now, now));
            times.1 = now;
        }
    }

    /// The rows of a slot have these readers.
    pub fn stored(&mut self, now: Duration, slot: SlotId, queue: &v1::OnlineQueue) {
        for stored in &queue.readers {
            let reader = (stored.binding.clone(), stored.binding_incarnation);
            self.joined.entry((reader, slot)).or_insert(now);
        }
    }

    /// What a binding was not told of a user whose live sessions are these.
    #[must_use]
    pub fn untold(&self, bound: &Bound, uid: &Uid, live: &[u64]) -> Option<String> {
        let reader = reader(bound);
        let uid_text = uid.as_str().to_owned();
        let of_user = (reader.clone(), uid_text.clone(), 0)..=(reader.clone(), uid_text.clone(), u64::MAX);
        for ((_, _, session), (_, online)) in self.last.range(of_user) {
            if *online && !live.contains(session) {
                return Some(format!("the end of session {session} of {uid}"));
            }
        }
        let joined = *self.joined.get(&(reader.clone(), uid.slot()))?;
        let sessions = (uid_text.clone(), 0)..=(uid_text, u64::MAX);
        for ((uid, session), (first, last)) in self.lived.range(sessions) {
            let lived = live.contains(session) || *last >= *first + LIVED;
            let key = (reader.clone(), uid.clone(), *session);
            if *first > joined && lived && !self.online.contains(&key) {
                return Some(format!(
                    "session {session} of {uid}, live from {first:?} to {last:?}"
                ));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_from_its_end() {
        assert_eq!(parse("a-b-1-0-77-1-2"), Some(("a-b".to_owned(), 77, false)));
        assert_eq!(parse("amy-0-1-5-1-1"), Some(("amy".to_owned(), 5, true)));
        assert_eq!(parse("amy"), None);
    }
}
