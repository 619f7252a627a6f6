//! The sessions of one user at the presence authority.

use super::conflict::{evicts, exclude};
use super::{Caller, Fault, Faults, Fence, Notice};
use crate::limits::Limits;
use crate::types::{ConnectionId, NodeId, ProcessBoot, Reason, Route, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Names one session for ever (PR-2).
type RouteKey = (NodeId, ProcessBoot, ConnectionId, u64);

/// What a user's sessions need to know of their surroundings.
pub(super) struct Context<'a> {
    pub(super) at: Duration,
    pub(super) fence: Fence,
    pub(super) limits: &'a Limits,
    pub(super) faults: Faults,
    pub(super) out: &'a mut Vec<(Caller, Notice)>,
}

#[derive(Debug)]
struct Lease {
    route: Route,
    owner: Caller,
    until: Duration,
    /// Its node is not heard: nobody can tell whether it lives on.
    silent: bool,
    /// A newer session did not wait for this silent one: it ends when it is heard of again (PR-3).
    superseded: bool,
}

/// A session that waits for those that it evicts (PR-3). Nobody sees it yet.
#[derive(Debug)]
struct Candidate {
    route: Route,
    owner: Caller,
    token: Token,
    deadline: Duration,
    /// When the closes are told again.
    repeat_at: Duration,
    waits_for: BTreeSet<RouteKey>,
}

/// The sessions of one user.
#[derive(Debug, Default)]
pub(super) struct User {
    live: BTreeMap<RouteKey, Lease>,
    candidates: Vec<Candidate>,
    /// Sessions that are over, until no late touch can be under way any more.
    tombstones: BTreeMap<RouteKey, Duration>,
    /// The place of this user in the authority's deadlines.
    pub(super) armed: Option<Duration>,
}

impl User {
    pub(super) fn routes(&self) -> Vec<Route> {
        let heard = self.live.values().filter(|lease| !lease.silent);
        heard.map(|lease| lease.route.clone()).collect()
    }

    /// All live sessions, those in doubt too.
    pub(super) fn all(&self) -> impl Iterator<Item = &Route> {
        self.live.values().map(|lease| &lease.route)
    }

    /// All of them, to be compared with later ones.
    pub(super) fn snapshot(&self) -> Vec<Route> {
        self.all().cloned().collect()
    }

    /// Sessions of which nobody can tell whether they live on.
    pub(super) fn doubtful(&self) -> impl Iterator<Item = Route> {
        let silent = self.live.values().filter(|lease| lease.silent);
        silent.map(|lease| lease.route.clone())
    }

    /// A node that was silent has named all its sessions: the others are over.
    pub(super) fn not_named(&mut self, node: NodeId, context: &mut Context<'_>) {
        let over = |lease: &Lease| lease.silent && lease.route.node == node;
        let over = self.live.extract_if(.., |_, lease| over(lease));
        for (key, _) in over.collect::<Vec<_>>() {
            self.bury(key, context);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.live.is_empty() && self.candidates.is_empty() && self.tombstones.is_empty()
    }

    pub(super) fn register(&mut self, from: Caller, token: Token, route: Route, context: &mut Context<'_>) {
        let key = key_of(&route);
        let fence = context.fence;
        let answer = |result| Notice::Registered { token, fence, result };
        if self.tombstones.contains_key(&key) {
            context.out.push((from, answer(Err(Reason::KICKED))));
            return;
        }
        if self.live.contains_key(&key) {
            if self.renew(from, &route, context) {
                context.out.push((from, answer(Ok(()))));
            }
            return;
        }
        if let Some(waiting) = self
            .candidates
            .iter_mut()
            .find(|known| key_of(&known.route) == key)
        {
            (waiting.owner, waiting.token) = (from, token);
            return;
        }
        self.supersede(&route, context);
        let waits_for: BTreeSet<RouteKey> = self
            .live
            .iter()
            .filter(|(_, lease)| !lease.silent && evicts(&route, &lease.route))
            .map(|(key, _)| *key)
            .collect();
        for lease in self.live.values_mut().filter(|lease| lease.silent) {
            lease.superseded |= evicts(&route, &lease.route);
        }
        if self.live.len() + self.candidates.len() - waits_for.len() >= context.limits.sessions_per_uid {
            context.out.push((from, answer(Err(Reason::RATE_LIMITED))));
            return;
        }
        if waits_for.is_empty() {
            self.admit(from, route, context);
            context.out.push((from, answer(Ok(()))));
            return;
        }
        let candidate = Candidate {
            route,
            owner: from,
            token,
            deadline: context.at + context.limits.activation_timeout,
            repeat_at: context.at + context.limits.channel_retry,
            waits_for,
        };
        tell_to_close(&self.live, &candidate, context);
        self.candidates.push(candidate);
    }

    /// A session is said to be alive: by a touch, or by an announcement to a new leader. False when it has lapsed:
    /// `answered` says that look-ups were answered without it.
    pub(super) fn touch(
        &mut self,
        from: Caller,
        route: &Route,
        answered: bool,
        context: &mut Context<'_>,
    ) -> bool {
        let key = key_of(route);
        if self.live.contains_key(&key) {
            self.renew(from, route, context);
            return true;
        }
        if self.candidates.iter().any(|known| key_of(&known.route) == key) {
            return true;
        }
        let candidates = self.candidates.iter().map(|candidate| &candidate.route);
        let mut others = self.live.values().map(|lease| &lease.route).chain(candidates);
        // Who registered under this leadership is newer than who only says that it was registered before.
        let refused = self.tombstones.contains_key(&key)
            || others.any(|other| exclude(route, other))
            || self.live.len() >= context.limits.sessions_per_uid;
        if refused {
            let route = route.clone();
            context.out.push((from, Notice::Close { route }));
        } else if answered {
            return false;
        } else {
            self.admit(from, route.clone(), context);
        }
        true
    }

    /// A live session is heard of; false when a newer one took its place while its node was silent.
    fn renew(&mut self, from: Caller, route: &Route, context: &mut Context<'_>) -> bool {
        let Some(lease) = self.live.get_mut(&key_of(route)) else {
            return false;
        };
        if lease.superseded {
            let route = route.clone();
            context.out.push((from, Notice::Close { route }));
            return false;
        }
        lease.owner = from;
        lease.until = context.at + context.limits.route_lease;
        lease.silent = false;
        true
    }

    /// A session is over: whoever waited only for it becomes live.
    pub(super) fn unregister(&mut self, route: &Route, context: &mut Context<'_>) {
        let key = key_of(route);
        self.live.remove(&key);
        self.candidates
            .retain(|candidate| key_of(&candidate.route) != key);
        if !context.faults.has(Fault::PresenceRevivedAfterUnregister) {
            self.bury(key, context);
        }
        self.gone(&[key], context);
    }

    /// A process ended: its sessions are over, and nothing of it can come late but what a touch of a living process
    /// would repair.
    pub(super) fn node_down(&mut self, node: NodeId, boot: ProcessBoot, context: &mut Context<'_>) {
        let of_it = |route: &Route| route.node == node && route.boot == boot;
        let keys: Vec<RouteKey> = self
            .live
            .iter()
            .filter(|(_, lease)| of_it(&lease.route))
            .map(|(key, _)| *key)
            .collect();
        for key in &keys {
            self.live.remove(key);
        }
        self.candidates.retain(|candidate| !of_it(&candidate.route));
        self.gone(&keys, context);
    }

    /// A process is not heard any more. Its sessions keep their leases, for it may be heard again; nobody waits for them
    /// to close (PR-3).
    pub(super) fn node_silent(&mut self, node: NodeId, boot: ProcessBoot, context: &mut Context<'_>) {
        let mut keys = Vec::new();
        for (key, lease) in &mut self.live {
            if lease.route.node == node && lease.route.boot == boot {
                lease.silent = true;
                let candidates = &mut self.candidates.iter();
                lease.superseded |= candidates.any(|candidate| candidate.waits_for.contains(key));
                keys.push(*key);
            }
        }
        self.candidates
            .retain(|candidate| candidate.route.node != node || candidate.route.boot != boot);
        self.gone(&keys, context);
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        let leases = self.live.values().map(|lease| lease.until);
        let tombstones = self.tombstones.values().copied();
        let candidates = self
            .candidates
            .iter()
            .map(|known| known.deadline.min(known.repeat_at));
        leases.chain(tombstones).chain(candidates).min()
    }

    pub(super) fn expire(&mut self, context: &mut Context<'_>) {
        let at = context.at;
        // A silent session is not a closed one: whoever waits for it goes on waiting until its own deadline.
        self.live.retain(|_, lease| lease.until > at);
        self.tombstones.retain(|_, until| *until > at);
        let (overdue, mut waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.candidates)
            .into_iter()
            .partition(|candidate| candidate.deadline <= at);
        for candidate in overdue {
            self.refuse(candidate, Reason::SYSTEM_ERROR, context);
        }
        for candidate in waiting.iter_mut().filter(|known| known.repeat_at <= at) {
            candidate.repeat_at = at + context.limits.channel_retry;
            tell_to_close(&self.live, candidate, context);
        }
        self.candidates = waiting;
    }

    /// Refuses the candidates that a newer one evicts: they never were live, so there is nothing to wait for.
    fn supersede(&mut self, new: &Route, context: &mut Context<'_>) {
        let (superseded, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.candidates)
            .into_iter()
            .partition(|candidate| evicts(new, &candidate.route));
        self.candidates = waiting;
        for candidate in superseded {
            self.refuse(candidate, Reason::KICKED, context);
        }
    }

    fn refuse(&mut self, candidate: Candidate, reason: Reason, context: &mut Context<'_>) {
        self.bury(key_of(&candidate.route), context);
        let notice = Notice::Registered {
            token: candidate.token,
            fence: context.fence,
            result: Err(reason),
        };
        context.out.push((candidate.owner, notice));
    }

    fn bury(&mut self, key: RouteKey, context: &Context<'_>) {
        self.tombstones
            .insert(key, context.at + context.limits.route_lease);
        let tombstones_max = context.limits.sessions_per_uid.saturating_mul(4);
        while self.tombstones.len() > tombstones_max {
            let oldest = self.tombstones.iter().min_by_key(|(_, until)| **until);
            let Some(key) = oldest.map(|(key, _)| *key) else {
                return;
            };
            self.tombstones.remove(&key);
        }
    }

    fn admit(&mut self, owner: Caller, route: Route, context: &Context<'_>) {
        let until = context.at + context.limits.route_lease;
        let lease = Lease {
            route,
            owner,
            until,
            silent: false,
            superseded: false,
        };
        self.live.insert(key_of(&lease.route), lease);
    }

    fn gone(&mut self, keys: &[RouteKey], context: &mut Context<'_>) {
        for candidate in &mut self.candidates {
            for key in keys {
                candidate.waits_for.remove(key);
            }
        }
        let (free, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.candidates)
            .into_iter()
            .partition(|candidate| candidate.waits_for.is_empty());
        self.candidates = waiting;
        for candidate in free {
            self.admit(candidate.owner, candidate.route, context);
            let notice = Notice::Registered {
                token: candidate.token,
                fence: context.fence,
                result: Ok(()),
            };
            context.out.push((candidate.owner, notice));
        }
    }
}

fn tell_to_close(live: &BTreeMap<RouteKey, Lease>, candidate: &Candidate, context: &mut Context<'_>) {
    for lease in candidate.waits_for.iter().filter_map(|key| live.get(key)) {
        let route = lease.route.clone();
        context.out.push((lease.owner, Notice::Close { route }));
    }
}

fn key_of(route: &Route) -> RouteKey {
    (route.node, route.boot, route.connection, route.owner_seq)
}
