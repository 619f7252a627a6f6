//! What nodes and shards say to each other.

use crate::types::Boots;

/// A message between nodes, or between the shards of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Peer {
    /// Liveness of a node (M-5).
    Heartbeat {
        /// The sender's boots.
        boots: Boots,
    },
}

impl Peer {
    /// The shard of the receiving node that handles the message.
    #[must_use]
    pub fn shard(&self, _shards: u16) -> u16 {
        match self {
            Peer::Heartbeat { .. } => 0,
        }
    }

    /// Whether the receiver may refuse the message when its mailbox is full (M-14): requests are admissions and are
    /// answered by a timeout at the sender; replies and completions always fit.
    #[must_use]
    pub fn is_admission(&self) -> bool {
        false
    }
}
