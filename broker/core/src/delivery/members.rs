//! Sessions that receive the messages of a channel because they subscribed (PC-6).

use crate::types::{ConnectionId, NodeId, ProcessBoot, Route};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

/// Names one session for ever.
pub(super) type RouteKey = (NodeId, ProcessBoot, ConnectionId, u64);

pub(super) fn key_of(route: &Route) -> RouteKey {
    (route.node, route.boot, route.connection, route.owner_seq)
}

/// One ephemeral subscription.
#[derive(Debug)]
struct Lease {
    route: Route,
    until: Duration,
    number: u64,
}

/// Ephemeral subscribers (PC-6): leases, renewed by their sessions.
#[derive(Debug, Default)]
pub(super) struct Subscribers {
    leases: BTreeMap<RouteKey, Lease>,
    /// How many subscriptions there have been.
    issued: u64,
    /// When to look for leases that are over: not before the first of them can be.
    look_at: Option<Duration>,
}

impl Subscribers {
    pub(super) fn hold(&mut self, route: Route, until: Duration) {
        let key = key_of(&route);
        let known = self.leases.get(&key).map(|lease| lease.number);
        self.issued += u64::from(known.is_none());
        let number = known.unwrap_or(self.issued);
        self.leases.insert(key, Lease { route, until, number });
        self.look_at.get_or_insert(until);
    }

    pub(super) fn release(&mut self, route: &Route) {
        self.leases.remove(&key_of(route));
    }

    /// Names the subscriptions so far: a run serves these, and nobody who joins while it goes on.
    pub(super) fn mark(&self) -> u64 {
        self.issued
    }

    /// Whether a session had subscribed by that mark.
    pub(super) fn contains(&self, route: &Route, mark: u64) -> bool {
        self.leases
            .get(&key_of(route))
            .is_some_and(|lease| lease.number <= mark)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.look_at
    }

    pub(super) fn forget_overdue(&mut self, at: Duration) {
        if self.look_at.is_some_and(|look_at| look_at <= at) {
            self.leases.retain(|_, lease| lease.until > at);
            self.look_at = self.leases.values().map(|lease| lease.until).min();
        }
    }

    /// The next routes after `after` that had subscribed by the mark, with the place to go on from when there may be more.
    pub(super) fn page(
        &self,
        after: Option<RouteKey>,
        routes_max: usize,
        mark: u64,
    ) -> (Vec<Route>, Option<RouteKey>) {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rest = self.leases.range((from, Bound::Unbounded));
        let page: Vec<&Lease> = rest.take(routes_max).map(|(_, lease)| lease).collect();
        let next = page
            .last()
            .filter(|_| page.len() == routes_max)
            .map(|lease| key_of(&lease.route));
        let served = page.into_iter().filter(|lease| lease.number <= mark);
        let routes = served.map(|lease| lease.route.clone()).collect();
        (routes, next)
    }
}
