//! Whom a channel still owes something: users for whom a run was given up although they may have sessions (PC-1).

use super::members::{RouteKey, key_of};
use crate::types::{LeaderEpoch, Route, Uid};
use bytes::{BufMut, Bytes};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Users that are remembered. Beyond, what was given up is only counted.
pub(super) const OWED_MAX: usize = 512;

/// Which sessions of one user have a hole.
#[derive(Debug, Default)]
struct Debt {
    /// These.
    known: BTreeSet<RouteKey>,
    /// All that there may be, but those that were reached.
    all_but: Option<BTreeSet<RouteKey>>,
}

/// Users whose sessions have a hole: each of these sessions is to be closed, so that its client pulls.
#[derive(Debug, Default)]
pub(super) struct Owed {
    users: BTreeMap<Uid, Debt>,
    /// Whether the users are others than were told last.
    changed: bool,
    tries: u32,
    /// When they are looked for without a message for them.
    pub(super) settle_at: Option<Duration>,
}

impl Owed {
    /// What an earlier leader told: it is not known any more which sessions have the hole.
    pub(super) fn inherit(users: impl IntoIterator<Item = Uid>, at: Duration) -> Owed {
        let debt = |uid| {
            let all_but = Some(BTreeSet::new());
            let known = BTreeSet::new();
            (uid, Debt { known, all_but })
        };
        let users: BTreeMap<Uid, Debt> = users.into_iter().map(debt).collect();
        Owed {
            settle_at: (!users.is_empty()).then_some(at),
            users,
            changed: false,
            tries: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// The users, to be looked for.
    pub(super) fn users(&self) -> Vec<Uid> {
        self.users.keys().cloned().collect()
    }

    /// Whether this session has a hole.
    pub(super) fn owes(&self, route: &Route) -> bool {
        let key = key_of(route);
        self.users.get(&route.uid).is_some_and(|debt| {
            let unseen = debt
                .all_but
                .as_ref()
                .is_some_and(|reached| !reached.contains(&key));
            debt.known.contains(&key) || unseen
        })
    }

    /// A session could not be reached.
    pub(super) fn note_session(&mut self, route: &Route, again_at: Duration) {
        if let Some(debt) = self.debt(&route.uid, again_at) {
            debt.known.insert(key_of(route));
        }
    }

    /// A user may have other sessions than those that were reached.
    pub(super) fn note_user(&mut self, uid: &Uid, reached: &BTreeSet<RouteKey>, again_at: Duration) {
        if let Some(debt) = self.debt(uid, again_at) {
            debt.all_but = Some(reached.clone());
        }
    }

    /// All sessions of the user are known; these have a hole.
    pub(super) fn settle(&mut self, uid: &Uid, still: &[&Route], again_at: Duration) {
        if still.is_empty() {
            self.release(uid);
        } else if let Some(debt) = self.debt(uid, again_at) {
            debt.known = still.iter().map(|route| key_of(route)).collect();
            debt.all_but = None;
        }
    }

    /// A session was told that it has a hole, or is over.
    pub(super) fn paid(&mut self, route: &Route) {
        let Some(debt) = self.users.get_mut(&route.uid) else {
            return;
        };
        debt.known.remove(&key_of(route));
        match &mut debt.all_but {
            Some(reached) => {
                reached.insert(key_of(route));
            }
            None if debt.known.is_empty() => self.release(&route.uid),
            None => {}
        }
    }

    /// Nothing is owed to the user any more.
    fn release(&mut self, uid: &Uid) {
        self.changed |= self.users.remove(uid).is_some();
        if self.users.is_empty() {
            (self.tries, self.settle_at) = (0, None);
        }
    }

    /// Starts looking for the users; the next time waits longer.
    pub(super) fn start(&mut self, at: Duration, pause: Duration, longest: Duration) {
        let pause = pause.saturating_mul(1 << self.tries.min(6)).min(longest);
        self.tries += 1;
        self.settle_at = Some(at + pause);
    }

    /// The users, if they are others than were told last.
    pub(super) fn take_change(&mut self) -> Option<Vec<Uid>> {
        std::mem::take(&mut self.changed).then(|| self.users())
    }

    fn debt(&mut self, uid: &Uid, again_at: Duration) -> Option<&mut Debt> {
        if !self.users.contains_key(uid) {
            if self.users.len() >= OWED_MAX {
                return None;
            }
            self.changed = true;
            self.settle_at.get_or_insert(again_at);
        }
        Some(self.users.entry(uid.clone()).or_default())
    }
}

/// What a leader tells the other replicas of whom it owes something. A later word is larger, as the side lane of
/// cursors wants it (M-6).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwedWord {
    /// The leadership that tells it.
    pub leader_epoch: LeaderEpoch,
    /// Which word of this leadership it is.
    pub number: u64,
    /// The users.
    pub users: Vec<Uid>,
}

impl OwedWord {
    /// The stored bytes: leader epoch, number, big-endian, then the users, each behind its length.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(16);
        out.put_u64(self.leader_epoch.0);
        out.put_u64(self.number);
        for uid in &self.users {
            // A uid is shorter than that by the rules of the client contract.
            let text = uid.as_str().as_bytes();
            out.put_u16(u16::try_from(text.len()).unwrap_or(u16::MAX));
            out.put_slice(text.get(..usize::from(u16::MAX)).unwrap_or(text));
        }
        Bytes::from(out)
    }

    /// The word of these bytes; none when they are not one.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<OwedWord> {
        let (leader_epoch, rest) = bytes.split_first_chunk::<8>()?;
        let (number, mut rest) = rest.split_first_chunk::<8>()?;
        let mut users = Vec::new();
        while !rest.is_empty() {
            let (length, text) = rest.split_first_chunk::<2>()?;
            let (text, after) = text.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
            users.push(Uid::new(std::str::from_utf8(text).ok()?));
            rest = after;
        }
        Some(OwedWord {
            leader_epoch: LeaderEpoch(u64::from_be_bytes(*leader_epoch)),
            number: u64::from_be_bytes(*number),
            users,
        })
    }
}
