//! What a shard is told once, at its start.

use crate::limits::Limits;
use crate::rows::Key;
use crate::types::{Boots, ChannelMeta, GroupId, NodeId};
use bytes::Bytes;

/// Configuration of a shard, already valid.
#[derive(Clone, Debug)]
pub struct Config {
    /// This node.
    pub node: NodeId,
    /// Its boots.
    pub boots: Boots,
    /// This shard, `0..shards`.
    pub shard: u16,
    /// Shards of this node.
    pub shards: u16,
    /// The nodes of the cluster at bootstrap, this one included, sorted.
    pub nodes: Vec<NodeId>,
    /// Slot groups chosen at bootstrap (default 8).
    pub groups: u32,
    /// Copies of a slot group and of a channel log: `min(copies, nodes)` are used.
    pub copies: u8,
    /// Seed of the drawn election timeouts.
    pub seed: u64,
    /// Bounds.
    pub limits: Limits,
    /// Whether any token is accepted (development mode).
    pub any_token: bool,
    /// Whether a person channel needs the sender in the receiver's allowlist.
    pub person_allowlist_required: bool,
    /// Planted faults.
    pub faults: Faults,
}

impl Config {
    /// Whether the metadata grant leadership to this very process.
    #[must_use]
    pub fn leads(&self, meta: &ChannelMeta) -> bool {
        meta.leader
            .is_some_and(|leader| leader.node == self.node && leader.process == self.boots.process)
    }
}

/// Faults planted in the machines of a shard; without the feature `mutants` there are none.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// In channel replicas.
    pub channel: crate::channel::Faults,
    /// In slot groups.
    pub slot: crate::slot::faults::Faults,
    /// In append authorities.
    pub append: crate::append::faults::Faults,
    /// In before-send pipelines and post-commit cursors.
    pub hooks: crate::hooks::faults::Faults,
    /// In delivery.
    pub delivery: crate::delivery::Faults,
    /// In presence authorities.
    pub presence: crate::presence::Faults,
    /// In sessions.
    pub session: crate::session::Faults,
    /// In the bound on channels that become led.
    pub opening: super::opening::Faults,
}

/// What the node's disk held when it was opened.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// Per group hosted on this shard that has been stored before: its rows (Raft state, applied, install, entries).
    pub groups: Vec<(GroupId, Vec<(Key, Bytes)>)>,
    /// Rows of `Key::Node` (message id floors and the like).
    pub node: Vec<(Key, Bytes)>,
}
