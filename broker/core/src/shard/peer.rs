//! What nodes say to each other.

use crate::types::Boots;

/// A message between nodes, or between the shards of a node: another shard is just another address.
#[derive(Clone, Debug, PartialEq)]
pub enum Peer {
    /// Liveness of a node (M-5).
    Heartbeat {
        /// The sender's boots.
        boots: Boots,
    },
}
