//! Which nodes are heard of, and in which boots (M-5). Decides nothing by itself: grants and presence read it, and
//! safety never depends on it.

use crate::types::{Boots, NodeId, Now};
use std::collections::BTreeMap;
use std::time::Duration;

/// What is known of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeState {
    /// Its boots when last heard, none before the first time.
    pub boots: Option<Boots>,
    /// Whether it was heard within the deadline.
    pub alive: bool,
}

/// The view of all nodes. Shard 0 of a node exchanges heartbeats and tells its siblings of changes.
#[derive(Debug)]
pub(super) struct Liveness {
    this: NodeId,
    nodes: BTreeMap<NodeId, (NodeState, Duration)>,
    silent_since: BTreeMap<NodeId, Duration>,
    next_beat: Duration,
}

impl Liveness {
    /// Nobody but this node is alive at the start.
    pub(super) fn new(this: NodeId, boots: Boots, nodes: &[NodeId]) -> Liveness {
        let unknown = NodeState {
            boots: None,
            alive: false,
        };
        let mut states: BTreeMap<_, _> = nodes
            .iter()
            .map(|&node| (node, (unknown, Duration::ZERO)))
            .collect();
        states.insert(
            this,
            (
                NodeState {
                    boots: Some(boots),
                    alive: true,
                },
                Duration::ZERO,
            ),
        );
        Liveness {
            this,
            nodes: states,
            silent_since: BTreeMap::new(),
            next_beat: Duration::ZERO,
        }
    }

    /// What is known of `node`.
    pub(super) fn state(&self, node: NodeId) -> NodeState {
        self.nodes.get(&node).map_or(
            NodeState {
                boots: None,
                alive: false,
            },
            |(state, _)| *state,
        )
    }

    /// All nodes, with the time since which a silent one is silent.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (NodeId, NodeState, Duration)> + '_ {
        self.nodes.iter().map(|(&node, &(state, _))| {
            (
                node,
                state,
                self.silent_since.get(&node).copied().unwrap_or(Duration::ZERO),
            )
        })
    }

    /// A heartbeat came: returns the new state when it differs.
    pub(super) fn heard(&mut self, now: Now, node: NodeId, boots: Boots) -> Option<NodeState> {
        let entry = self.nodes.get_mut(&node)?;
        let state = NodeState {
            boots: Some(boots),
            alive: true,
        };
        let changed = entry.0 != state;
        *entry = (state, now.monotonic);
        changed.then_some(state)
    }

    /// Shard 0 said so.
    pub(super) fn set(&mut self, now: Now, node: NodeId, state: NodeState) {
        if !state.alive {
            self.silent_since.insert(node, now.monotonic);
        }
        if let Some(entry) = self.nodes.get_mut(&node) {
            entry.0 = state;
        }
    }

    /// Whether a heartbeat is due; sets the next one.
    pub(super) fn beat_due(&mut self, now: Now, interval: Duration) -> bool {
        if now.monotonic < self.next_beat {
            return false;
        }
        self.next_beat = now.monotonic + interval;
        true
    }

    /// Nodes that fell silent since the last call.
    pub(super) fn fallen_silent(&mut self, now: Now, dead_after: Duration) -> Vec<(NodeId, NodeState)> {
        let this = self.this;
        let mut fallen = Vec::new();
        for (&node, (state, heard)) in &mut self.nodes {
            if node != this && state.alive && now.monotonic > *heard + dead_after {
                state.alive = false;
                self.silent_since.insert(node, now.monotonic);
                fallen.push((node, *state));
            }
        }
        fallen
    }

    /// When the next heartbeat is due.
    pub(super) fn next_deadline(&self) -> Duration {
        self.next_beat
    }
}
