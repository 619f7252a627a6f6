//! Who receives the messages of a channel (PC-2), and under which name each receiver sees it.

use crate::message::Committed;
use crate::types::{ChannelKey, ChannelKind, ConnectionId, NodeId, ProcessBoot, Route, Seq, Uid};
use penstock_wire::channel_id::{agent_sides, command_source, is_command, person_members, person_peer};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// Names one session for ever.
pub(super) type RouteKey = (NodeId, ProcessBoot, ConnectionId, u64);

pub(super) fn key_of(route: &Route) -> RouteKey {
    (route.node, route.boot, route.connection, route.owner_seq)
}

/// What the id and kind of a channel say about its receivers.
#[derive(Debug)]
pub(super) struct Audience {
    /// The channel itself, or the one that a command channel belongs to.
    pub(super) source: ChannelKey,
    /// Receivers that the id names.
    pub(super) derived: Vec<Uid>,
    /// Whether there are receivers beyond those.
    pub(super) listed: bool,
    /// Positions of a command channel have nothing to do with `join_seq`, which counts in its source.
    command: bool,
}

impl Audience {
    pub(super) fn of(channel: &ChannelKey) -> Audience {
        let command = is_command(&channel.id);
        let id = command_source(&channel.id);
        let both = |sides: Option<(&str, &str)>| -> Vec<Uid> {
            let (left, right) = sides.unzip();
            let mut uids: Vec<Uid> = left.into_iter().chain(right).map(Uid::new).collect();
            uids.dedup();
            uids
        };
        let derived = match channel.kind {
            ChannelKind::PERSON => both(person_members(id).ok()),
            ChannelKind::AGENT => both(agent_sides(id).ok()),
            ChannelKind::VISITORS => vec![Uid::new(id)],
            _ => Vec::new(),
        };
        Audience {
            source: ChannelKey::new(id, channel.kind),
            derived,
            listed: ![ChannelKind::PERSON, ChannelKind::AGENT].contains(&channel.kind),
            command,
        }
    }

    /// The channel id as this user sees it: the peer in a person channel, never the command suffix.
    pub(super) fn seen_by(&self, uid: &Uid) -> Arc<str> {
        if self.source.kind == ChannelKind::PERSON
            && let Some(peer) = person_peer(&self.source.id, uid.as_str())
        {
            return Arc::from(peer);
        }
        Arc::clone(&self.source.id)
    }

    /// Position of the first message that a member who joined at `join_seq` receives; none when it receives nothing.
    pub(super) fn first_for(&self, join_seq: Seq, messages: &[Arc<Committed>]) -> Option<u16> {
        let first = if self.command {
            0
        } else {
            messages.partition_point(|known| {
                let seq = known.message.seq;
                seq > Seq(0) && seq < join_seq
            })
        };
        u16::try_from(first).ok().filter(|_| first < messages.len())
    }
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
