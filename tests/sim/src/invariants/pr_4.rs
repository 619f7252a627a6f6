//! PR-4 and PC-1 for bindings that are told of offline recipients: whoever never connects is told of for every committed message, in
//! order, and nobody is told of whom no presence authority has called offline to that shard.

use penstock_core::message::{Message, Record};
use penstock_core::plugins::Bound;
use penstock_core::presence::{Notice, Presence, Request};
use penstock_core::types::{Incarnation, SlotId, Token, Uid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How old what an authority said may be when a plugin is told of it: an answer comes in parts, and the others may take this long.
const FRESH: Duration = Duration::from_secs(4);

/// Node and shard.
type Place = (usize, u16);

/// What is known of look-ups and of those who never connect.
#[derive(Debug, Default)]
pub struct Notified {
    /// Members of every group of users who never connect.
    pub absent: BTreeSet<Uid>,
    /// Who was asked for, by the asker and its name for the question.
    asked: BTreeMap<(Place, Token), BTreeMap<SlotId, Vec<Uid>>>,
    /// When an authority last called somebody offline to a shard.
    offline: BTreeMap<(Place, Uid), Duration>,
    /// (creation of the binding, creation of the channel) → who never connects → positions that are done.
    done: BTreeMap<(u64, Incarnation), BTreeMap<Uid, BTreeSet<u64>>>,
    /// Connections that were open when everything was repaired and announced.
    pub peaceful: BTreeSet<usize>,
    /// Pages that were done.
    pub pages: u64,
}

impl Notified {
    /// A shard asks an authority.
    pub fn asks(&mut self, place: Place, request: &Request) {
        if let Request::Lookup { token, slots } = request {
            let asked = self.asked.entry((place, *token)).or_default();
            asked.extend(slots.iter().cloned());
        }
    }

    /// An authority answers a shard.
    pub fn hears(&mut self, now: Duration, place: Place, notice: &Notice) {
        let Notice::Found { token, slots } = notice else {
            return;
        };
        let Some(asked) = self.asked.get(&(place, *token)) else {
            return;
        };
        for (slot, presence) in slots {
            let Presence::Known {
                users,
                complete: true,
                doubtful,
            } = presence
            else {
                continue;
            };
            let seen = |uid: &Uid| {
                users
                    .iter()
                    .any(|(user, routes)| user == uid && !routes.is_empty())
                    || doubtful.iter().any(|route| route.uid == *uid)
            };
            for uid in asked.get(slot).into_iter().flatten().filter(|uid| !seen(uid)) {
                self.offline.insert((place, uid.clone()), now);
            }
        }
    }

    /// A binding is handed a page. `given_up` are the positions that are kept as its dead letters.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn handed(
        &self,
        now: Duration,
        place: Place,
        (bound, incarnation, given_up): (&Bound, Incarnation, &BTreeSet<u64>),
        (message, uids): (&Message, &[Uid]),
    ) -> Result<(), String> {
        if uids.is_empty() || !uids.is_sorted_by(|left, right| left < right) {
            return Err(format!("a page is empty, or not in order: {uids:?}"));
        }
        if uids.contains(&message.draft.from_uid) {
            return Err(format!("the sender is told of: {uids:?}"));
        }
        let fresh = |uid: &&Uid| {
            let said = self.offline.get(&(place, (*uid).clone()));
            said.is_some_and(|at| *at + FRESH >= now)
        };
        if let Some(uid) = uids.iter().find(|uid| !fresh(uid)) {
            return Err(format!(
                "{uid} is told of for {}, and no authority has called it offline",
                message.seq
            ));
        }
        let done = self.done.get(&(bound.incarnation, incarnation));
        for uid in uids.iter().filter(|uid| self.absent.contains(*uid)) {
            let done = done.and_then(|done| done.get(uid));
            let passed = |seq: &u64| done.is_none_or(|done| !done.contains(seq)) && !given_up.contains(seq);
            if let Some(passed) = (1..message.seq.0).find(passed) {
                return Err(format!(
                    "{uid} is told of for {}, and not for {passed}",
                    message.seq
                ));
            }
        }
        Ok(())
    }

    /// A binding says that these are done.
    pub fn done(&mut self, bound: &Bound, incarnation: Incarnation, seq: u64, uids: &[Uid]) {
        self.pages += 1;
        let done = self.done.entry((bound.incarnation, incarnation)).or_default();
        for uid in uids.iter().filter(|uid| self.absent.contains(*uid)) {
            done.entry(uid.clone()).or_default().insert(seq);
        }
    }

    /// Somebody who never connects and is not told of for a committed message of a group of users.
    #[must_use]
    pub fn missing(
        &self,
        bound: &Bound,
        incarnation: Incarnation,
        (records, given_up): (&[Record], &BTreeSet<u64>),
    ) -> Option<String> {
        let done = self.done.get(&(bound.incarnation, incarnation));
        for record in records.iter().filter(|record| !given_up.contains(&record.seq.0)) {
            for uid in &self.absent {
                let done = done.and_then(|done| done.get(uid));
                if done.is_none_or(|done| !done.contains(&record.seq.0)) {
                    return Some(format!("{uid} for {}", record.seq));
                }
            }
        }
        None
    }

    /// Who never connects in this run.
    pub fn never_connect(&mut self, absent: &[Arc<str>]) {
        self.absent = absent.iter().map(|uid| Uid::new(uid)).collect();
    }
}
