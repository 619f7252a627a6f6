//! From routes to pushes: who gets which messages of a run, by owner node.

use super::{Push, Target};
use crate::audience::Audience;
use crate::message::Committed;
use crate::types::{ConnectionId, NodeId, Route};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The messages of a run, and which connection sent which of them.
#[derive(Debug)]
pub(super) struct Messages {
    pub(super) all: Vec<Arc<Committed>>,
    sent_by: BTreeMap<(NodeId, ConnectionId), Vec<u16>>,
}

impl Messages {
    pub(super) fn new(all: Vec<Arc<Committed>>) -> Messages {
        let mut sent_by: BTreeMap<_, Vec<u16>> = BTreeMap::new();
        for (position, message) in (0_u16..).zip(&all) {
            if let Some(origin) = message.message.draft.origin {
                sent_by.entry(origin).or_default().push(position);
            }
        }
        Messages { all, sent_by }
    }

    /// What a session gets from position `first` on: nothing of what it sent itself. None when nothing is left, unless
    /// it is to be told that it missed something.
    pub(super) fn target(
        &self,
        route: Route,
        first: u16,
        missed: bool,
        audience: &Audience,
    ) -> Option<Target> {
        let sent = self.sent_by.get(&(route.node, route.connection));
        // A connection's number may come again after a restart of its node: the sender must be the same, too.
        let own = |position: &u16| {
            let message = self.all.get(usize::from(*position));
            message.is_some_and(|known| known.message.draft.from_uid == route.uid)
        };
        let except: Vec<u16> = sent
            .into_iter()
            .flatten()
            .copied()
            .filter(|position| *position >= first && own(position))
            .collect();
        let left = usize::from(first) + except.len() < self.all.len();
        (left || missed).then(|| Target {
            channel_id: audience.seen_by(&route.uid),
            route,
            first,
            except,
            missed,
        })
    }

    /// The push of these targets.
    pub(super) fn push(&self, targets: Vec<Target>, audience: &Audience) -> Push {
        Push {
            messages: self.all.clone(),
            kind: audience.source.kind,
            targets,
        }
    }

    /// How many messages a target gets.
    pub(super) fn count_of(&self, target: &Target) -> u64 {
        let count = self.all.len() - usize::from(target.first) - target.except.len();
        u64::try_from(count).unwrap_or(u64::MAX)
    }
}

/// Targets by owner node, in pushes of at most `targets_max`.
pub(super) fn by_node(targets: Vec<Target>, targets_max: usize) -> Vec<(NodeId, Vec<Target>)> {
    let mut nodes: BTreeMap<NodeId, Vec<Target>> = BTreeMap::new();
    for target in targets {
        nodes.entry(target.route.node).or_default().push(target);
    }
    let mut pushes = Vec::new();
    for (node, targets) in nodes {
        for part in targets.chunks(targets_max.clamp(1, usize::from(u16::MAX))) {
            pushes.push((node, part.to_vec()));
        }
    }
    pushes
}
