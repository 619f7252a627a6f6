//! The protocol state of client connections: who is connected, what was sent, offered and acknowledged.
//!
//! # Owns
//! The connections of one shard of one node, the order of each connection's SENDACKs per channel, the ACK state of what
//! was offered to it, and its ephemeral subscriptions.
//!
//! # Invariants
//! - Whose token is good is let in by the gates first, and registered as whom they say.
//! - Nothing but CONNACK is written before the route is registered at the presence authority.
//! - First offers of one incarnation to one session strictly increase (PC-5, M-15).
//! - What is offered and not acknowledged is bounded in count, bytes and tries; past a bound the session is closed, so
//!   that the client pulls.
//! - SENDACKs of one channel leave in the order in which its SENDs came; other channels do not wait for it.
//! - An unknown outcome is never a SENDACK on WKProto (AP-8).
//! - A kicked client reads DISCONNECT 12 before its connection closes (PR-3).
//! - A client never has the system device id: it is taken as an ordinary empty device id.
//!
//! # States
//! ```text
//! Opened → awaiting CONNECT → authenticating → at the gates → activating → open ─┐
//!               └──────────────────┴───────────────┴─────────────┴───────────┴→ closed (forgotten)
//! ```
//!
//! # Absent
//! No bytes, encryption or idle timers (the gateway's), no permission rules, no routing: a SEND leaves as it came, and the
//! shard finds its authority. An idle session has no timer.

mod collection;
mod faults;
mod offers;
mod phase;
mod sends;
mod state;
mod subscriptions;
#[cfg(test)]
mod tests;

pub use collection::Sessions;
pub use faults::{Fault, Faults};

use crate::client::{ClientFrame, CloseReason, Secret, Send, ServerFrame};
use crate::entrance;
use crate::limits::Limits;
use crate::message::{Attributes, Committed, Outcome, Refusal};
use crate::types::{
    ChannelKind, ConnectionId, DeviceFlag, DeviceLevel, NodeId, ProcessBoot, Reason, Route, Token, Uid,
};
use std::sync::Arc;

/// What the sessions of a shard are told.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A client connected.
    Opened {
        /// The connection.
        connection: ConnectionId,
    },
    /// A client's frame.
    Frame {
        /// The connection.
        connection: ConnectionId,
        /// The frame.
        frame: ClientFrame,
    },
    /// A client is gone.
    Closed {
        /// The connection.
        connection: ConnectionId,
    },
    /// Answer to [`Output::Authenticate`]: the level of the device, or the reason for CONNACK.
    Authenticated {
        /// From the question.
        token: Token,
        /// Level or refusal.
        result: Result<DeviceLevel, Reason>,
    },
    /// Answer to [`Output::Enter`]: as whom the session is let in, or why not.
    Entered {
        /// From the question.
        connection: ConnectionId,
        /// Let in or refused.
        result: Result<entrance::Admitted, Refusal>,
    },
    /// Answer to [`Output::Register`]: the route is live at the presence authority, or the reason for CONNACK.
    Registered {
        /// From the question.
        token: Token,
        /// Live or refused.
        result: Result<(), Reason>,
    },
    /// Answer to [`Output::Submit`].
    SendDone {
        /// From the question.
        token: Token,
        /// What became of it.
        outcome: Outcome,
    },
    /// Answer to [`Output::Subscribe`].
    SubscribeDone {
        /// From the question.
        token: Token,
        /// Success or why not.
        reason: Reason,
        /// The node that leads the channel, if it answered.
        leader: Option<NodeId>,
    },
    /// A node is dead or has restarted: subscriptions at it are renewed at once (PC-6).
    NodeLost {
        /// The node.
        node: NodeId,
    },
    /// Messages for sessions of this shard; answered by [`Output::Offered`] with one outcome for each.
    Offer {
        /// Chosen by the caller.
        token: Token,
        /// What to offer to whom, in order.
        offers: Vec<Offer>,
    },
    /// Ends the session of this route (device conflict, PR-3). A session that is already gone is unregistered again,
    /// which is the confirmation that the authority waits for.
    Kick {
        /// The route.
        route: Route,
    },
    /// Ends the session of this route: it may have missed messages, and its client is to pull (PC-1).
    Lapsed {
        /// The route.
        route: Route,
    },
    /// Ends all sessions of a user, or those of one device flag (its token was cleared).
    KickUser {
        /// The user.
        uid: Uid,
        /// The flag, or all.
        flag: Option<DeviceFlag>,
    },
    /// The node drains or stops: every session ends.
    Stop,
}

/// One session's share of a push.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// The session; all of it is compared before anything is written (PC-3).
    pub route: Route,
    /// Channel id as this receiver sees it.
    pub channel_id: Arc<str>,
    /// Channel kind as this receiver sees it.
    pub kind: ChannelKind,
    /// Messages of one channel, ascending.
    pub messages: Vec<Arc<Committed>>,
    /// Delivery gave up on this user earlier: a session with that hole is closed, so that the client pulls.
    pub missed: bool,
}

/// What became of an [`Offer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// Written and bound to ACK state, or offered before.
    Bound,
    /// There is no such session (any more). Its route is unregistered.
    Gone,
    /// The session is not open yet: offer again soon.
    NotYet,
    /// Too much is not acknowledged: perhaps a part is bound, offer all again very soon.
    Full,
}

/// What the sessions want done.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Write a frame.
    Frame {
        /// The connection.
        connection: ConnectionId,
        /// The frame.
        frame: ServerFrame,
    },
    /// Close the connection after what was written. The session is already forgotten.
    Close {
        /// The connection.
        connection: ConnectionId,
        /// Why.
        reason: CloseReason,
    },
    /// Compare the token with the stored one.
    Authenticate {
        /// Names the answer.
        token: Token,
        /// User.
        uid: Uid,
        /// Device flag.
        flag: DeviceFlag,
        /// What the client showed.
        secret: Secret,
    },
    /// Ask the gates; answered at most once for each connection.
    Enter {
        /// The connection: it names the answer.
        connection: ConnectionId,
        /// Who wants in.
        request: Box<entrance::Request>,
        /// The level of the token.
        level: DeviceLevel,
    },
    /// The question to the gates is not asked any more.
    Left {
        /// The connection.
        connection: ConnectionId,
    },
    /// Make the route live at the presence authority.
    Register {
        /// Names the answer.
        token: Token,
        /// The route.
        route: Route,
    },
    /// The route is over. May be repeated.
    Unregister {
        /// The route.
        route: Route,
    },
    /// These sessions had inbound frames since the last touch (PR-5).
    Touch {
        /// Their routes.
        routes: Vec<Route>,
    },
    /// Send this message, in the order of these outputs.
    Submit {
        /// Names the answer.
        token: Token,
        /// The sending session.
        route: Route,
        /// The message; its payload is `Ok`.
        send: Send,
        /// What the gates know of the session.
        attributes: Option<Attributes>,
    },
    /// Ask the permission for, and set up, an ephemeral subscription; `renewal` repeats it for its lease.
    Subscribe {
        /// Names the answer.
        token: Token,
        /// The session.
        route: Route,
        /// Channel id as the client names it.
        channel_id: Arc<str>,
        /// Channel kind.
        kind: ChannelKind,
        /// Whether it was granted before.
        renewal: bool,
    },
    /// The ephemeral subscription is over.
    Unsubscribe {
        /// The session.
        route: Route,
        /// Channel id as the client named it.
        channel_id: Arc<str>,
        /// Channel kind.
        kind: ChannelKind,
    },
    /// Answer to [`Input::Offer`], aligned with its offers.
    Offered {
        /// From the question.
        token: Token,
        /// One for each offer.
        outcomes: Vec<Offered>,
    },
}

/// What the sessions of a node know from the start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This node.
    pub node: NodeId,
    /// This process.
    pub boot: ProcessBoot,
    /// Development only: every token is accepted, as a slave device.
    pub any_token: bool,
    /// Bounds.
    pub limits: Limits,
    /// Planted faults, none in production.
    pub faults: Faults,
}
