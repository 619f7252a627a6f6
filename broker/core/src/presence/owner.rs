//! The owner's side of presence: which sessions of this shard are registered where.

use super::{Fence, Notice, Request};
use crate::types::{NodeId, Reason, Route, SlotId, Token};

/// What the owner is told.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnerInput {
    /// Make a session's route live; answered by [`OwnerOutput::Registered`] unless it is unregistered before.
    Register {
        /// Chosen by the caller.
        token: Token,
        /// The route.
        route: Route,
    },
    /// A session is over. May be repeated.
    Unregister {
        /// Its route.
        route: Route,
    },
    /// Sessions had inbound frames.
    Touch {
        /// Their routes.
        routes: Vec<Route>,
    },
    /// The observed leader of a slot, and its fence. Repeating it changes nothing.
    Leader {
        /// The slot.
        slot: SlotId,
        /// Leader node and fence, none while unknown.
        leader: Option<(NodeId, Fence)>,
    },
    /// From an authority.
    Notice {
        /// What.
        notice: Notice,
    },
}

/// What the owner wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnerOutput {
    /// Tell the authority at this node, with this shard as the caller. May be lost.
    Send {
        /// The leader of the request's slot.
        to: NodeId,
        /// What.
        request: Request,
    },
    /// A route is live, or the reason for CONNACK.
    Registered {
        /// From the question.
        token: Token,
        /// Live or refused.
        result: Result<(), Reason>,
    },
    /// End this session (PR-3); unregister it in any case.
    Kick {
        /// Its route.
        route: Route,
    },
}
