//! Who is online where: the authority of each slot at the slot group's leader, and the owner on every node that has the
//! connections.
//!
//! # Owns
//! [`Authority`]: uid → live routes of the slots that this node leads, in memory, leased. [`Owner`]: which sessions of
//! this shard are registered where, and their re-announcement when a slot's leader or term changes.
//!
//! # Invariants
//! - A changed leader, term or config epoch clears a slot (PR-1); a message under another fence is refused.
//! - A session that an authority did not know of while it answered who is online has lapsed: it is not made live again
//!   but ends, so that its client pulls what it may have missed (PC-1).
//! - A leadership that did not answer a node's announcement may have answered without its sessions from the time when the one
//!   before was lost, however late the node heard of it: unless that was brief, they end when the next one is heard of.
//! - A session lives no longer than its lease as its owner knows it: who was told that it is not there may rely on that.
//! - The sessions of a silent node are neither online nor offline: a look-up names them as doubtful (PR-4).
//! - An unregistered route never comes back by a late touch (PR-2).
//! - A candidate becomes visible only when every session that it evicts is confirmed closed (PR-3), so that of two
//!   devices that exclude each other at most one is visible.
//! - After a change of leadership, or when a node came back, a user is *incomplete* until every expected node has
//!   announced itself (PR-4): never offline by guess.
//!
//! # States
//! ```text
//! slot:      not leading ⇄ incomplete ⇄ complete
//! candidate: pending (close → confirmed) → registered | refused
//! owner:     pending → registered → forgotten;  slot: announcing → announced
//! ```
//!
//! # Absent
//! Nothing is stored, and nothing here decides what offline means for a message. No wall clock.

mod authority;
mod census;
mod conflict;
mod faults;
mod owner;
#[cfg(test)]
mod tests;
mod user;

pub use authority::{Authority, Input, Output};
pub use conflict::{evicts, exclude};
pub use faults::{Fault, Faults};
pub use owner::{Owner, OwnerInput, OwnerOutput};

use crate::types::{ConnectionId, GroupId, NodeId, ProcessBoot, Reason, Route, SlotId, Term, Token, Uid};
use std::time::Duration;

/// Under which leadership a slot's presence is kept (PR-1). The leader's node is not part of it: a term has one leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fence {
    /// The slot's group.
    pub group: GroupId,
    /// Its term.
    pub term: Term,
    /// Its placement.
    pub config_epoch: u64,
}

/// Where a request came from and where its notices go: the shard that owns the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Caller {
    /// The node.
    pub node: NodeId,
    /// Its process.
    pub boot: ProcessBoot,
    /// Its shard.
    pub shard: u16,
    /// How many shards the node has: it is announced when all of them are.
    pub shards: u16,
}

/// To the authority of a slot.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Make a route live. Repeated until answered.
    Register {
        /// The slot.
        slot: SlotId,
        /// The leadership that is asked.
        fence: Fence,
        /// Names the answer.
        token: Token,
        /// The route.
        route: Route,
    },
    /// A route is over: also the confirmation of [`Notice::Close`]. Holds under any leadership.
    Unregister {
        /// The slot.
        slot: SlotId,
        /// The route.
        route: Route,
    },
    /// These routes are alive (PR-2).
    Touch {
        /// The slot.
        slot: SlotId,
        /// The leadership that is told.
        fence: Fence,
        /// The caller's clock, for the answer.
        at: Duration,
        /// The routes.
        routes: Vec<Route>,
    },
    /// One part of all registered routes of the caller's shard, after a change of leadership.
    Announce {
        /// The slot.
        slot: SlotId,
        /// The leadership that is told.
        fence: Fence,
        /// Number of this part, from 0.
        part: u32,
        /// The routes.
        routes: Vec<Route>,
        /// Whether this is the last part.
        last: bool,
    },
    /// Where are these users?
    Lookup {
        /// Names the answer.
        token: Token,
        /// Users by slot.
        slots: Vec<(SlotId, Vec<Uid>)>,
    },
}

/// From the authority of a slot.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// Answer to `Register`.
    Registered {
        /// From the question.
        token: Token,
        /// The leadership that answers: the answer of an earlier one is not enough.
        fence: Fence,
        /// Live, or the reason for CONNACK.
        result: Result<(), Reason>,
    },
    /// Answer to `Touch`: their leases run from the time of the question at least.
    Touched {
        /// The slot.
        slot: SlotId,
        /// The leadership.
        fence: Fence,
        /// From the question.
        at: Duration,
        /// The sessions that have not lapsed.
        alive: Vec<ConnectionId>,
    },
    /// Answer to `Announce`.
    Announced {
        /// The slot.
        slot: SlotId,
        /// The leadership.
        fence: Fence,
        /// The part.
        part: u32,
        /// Sessions of this part that have lapsed: who looked for them was told that they are not there.
        lapsed: Vec<Route>,
    },
    /// This session has lapsed: it was not known here while look-ups were answered. End it, so that its client pulls.
    Lapsed {
        /// The route.
        route: Route,
    },
    /// Announce your sessions again: you were taken for dead.
    Announce {
        /// The slot.
        slot: SlotId,
        /// The leadership.
        fence: Fence,
    },
    /// End this session and unregister it (PR-3). Repeated until it is unregistered.
    Close {
        /// The route.
        route: Route,
    },
    /// This node does not lead the slot under that fence: ask again under the newest route.
    NotLeader {
        /// The slot.
        slot: SlotId,
    },
    /// Answer to `Lookup`.
    Found {
        /// From the question.
        token: Token,
        /// One answer for each slot asked for.
        slots: Vec<(SlotId, Presence)>,
    },
}

/// What is known of the users of one slot.
#[derive(Clone, Debug, PartialEq)]
pub enum Presence {
    /// Live routes. A user without routes is offline only when `complete`; otherwise it is unknown (PR-4).
    Known {
        /// Users that have routes, with all that are known.
        users: Vec<(Uid, Vec<Route>)>,
        /// Whether every node has announced its sessions.
        complete: bool,
        /// Sessions on nodes that are silent now: they live on or not, nobody can tell.
        doubtful: Vec<Route>,
    },
    /// Not the leader here, or no answer: nothing is known.
    Unknown,
}
