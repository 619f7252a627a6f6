//! The presence authority: uid → live routes of the slots that this node leads.

use super::{Caller, Fence, Notice, Request};
use crate::types::{NodeId, ProcessBoot, SlotId};
use std::collections::BTreeSet;

/// What the authority is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Who leads a slot changed. Repeating the same fence keeps what is known.
    Leadership {
        /// The slot.
        slot: SlotId,
        /// The fence while this node leads the slot's group and has applied its term; none otherwise.
        fence: Option<Fence>,
        /// Live nodes that may own sessions: the slot is complete when each has announced itself (PR-4).
        expected: BTreeSet<NodeId>,
    },
    /// A request, perhaps from this node.
    Request {
        /// Who asks.
        from: Caller,
        /// What.
        request: Request,
    },
    /// A node is dead or has restarted: this process of it owns nothing any more.
    NodeDown {
        /// The node.
        node: NodeId,
        /// The process that ended.
        boot: ProcessBoot,
    },
}

/// What the authority wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Tell a shard. May be lost: what matters is repeated.
    Send {
        /// The shard.
        to: Caller,
        /// What.
        notice: Notice,
    },
}
