//! Which nodes have announced their sessions to a slot's leader (PR-4).

use super::{Caller, Fence, Notice};
use crate::types::{NodeId, ProcessBoot, SlotId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Who is expected to announce itself under one leadership, and who has. It is complete when each expected node has, or
/// when the wait was long enough: a node that is silent for so long had every chance to touch its routes.
#[derive(Debug, Default)]
pub(super) struct Census {
    expected: BTreeSet<NodeId>,
    announced: BTreeMap<NodeId, Announced>,
    /// Shards that were heard of, to be asked again.
    callers: BTreeMap<(NodeId, u16), Caller>,
    /// While incomplete: until when, and when those that are missing are asked again.
    open: Option<(Duration, Duration)>,
}

#[derive(Debug)]
struct Announced {
    boot: ProcessBoot,
    shards: BTreeSet<u16>,
    of: u16,
}

/// The waits of a census.
#[derive(Clone, Copy)]
pub(super) struct Waits {
    pub(super) longest: Duration,
    pub(super) between_questions: Duration,
}

impl Census {
    pub(super) fn is_complete(&self) -> bool {
        self.open.is_none()
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.open.map(|(until, ask_at)| until.min(ask_at))
    }

    /// The live nodes changed. One that came back lost its routes here: it has to announce itself again.
    pub(super) fn expect(&mut self, expected: BTreeSet<NodeId>, at: Duration, waits: Waits) {
        let new = expected.iter().any(|node| !self.expected.contains(node));
        self.expected = expected;
        if new && self.open.is_none() {
            self.open = Some((at + waits.longest, at));
        }
        self.settle();
    }

    pub(super) fn heard(&mut self, from: Caller) {
        self.callers.insert((from.node, from.shard), from);
    }

    pub(super) fn announced(&mut self, from: Caller) {
        let fresh = || Announced {
            boot: from.boot,
            shards: BTreeSet::new(),
            of: from.shards,
        };
        let known = self.announced.entry(from.node).or_insert_with(fresh);
        if known.boot != from.boot {
            *known = fresh();
        }
        known.shards.insert(from.shard);
        self.settle();
    }

    pub(super) fn node_down(&mut self, node: NodeId, boot: ProcessBoot) {
        if self.announced.get(&node).is_some_and(|known| known.boot == boot) {
            self.announced.remove(&node);
        }
        self.expected.remove(&node);
        self.settle();
    }

    /// Ends the wait, or asks those that are missing again.
    pub(super) fn expire(
        &mut self,
        at: Duration,
        (slot, fence): (SlotId, Fence),
        waits: Waits,
    ) -> Vec<(Caller, Notice)> {
        match &mut self.open {
            Some((until, _)) if *until <= at => self.open = None,
            Some((_, ask_at)) if *ask_at <= at => {
                *ask_at = at + waits.between_questions;
                let missing = self.callers.values().filter(|caller| !self.whole(caller.node));
                let missing = missing.filter(|caller| self.expected.contains(&caller.node));
                return missing
                    .map(|caller| (*caller, Notice::Announce { slot, fence }))
                    .collect();
            }
            _ => {}
        }
        Vec::new()
    }

    fn settle(&mut self) {
        if self.expected.iter().all(|node| self.whole(*node)) {
            self.open = None;
        }
    }

    pub(super) fn whole(&self, node: NodeId) -> bool {
        let known = self.announced.get(&node);
        known.is_some_and(|known| known.shards.len() >= usize::from(known.of))
    }
}
