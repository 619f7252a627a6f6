//! The whole surface between the core and the world: what a shard wants done, and what it is told.
#![expect(
    missing_docs,
    reason = "each variant documents its fields in its own sentence; the page must fit one screen"
)]

use crate::admin::{Answer, Ask};
use crate::client::{ClientFrame, CloseReason, ServerFrame};
use crate::hooks::breaker::Change;
use crate::hooks::call::{Call, Returned};
use crate::plugins::Registry;
use crate::rows::{Instance, Key, Page, ReadRequest, Row, Write};
use crate::shard::Peer;
use crate::types::{ConnectionId, NodeId, Ticket, Token};
use std::sync::Arc;

/// What a shard wants done. Executed in order; nothing here blocks a shard (M-14).
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Deliver to a node (perhaps this one). May be lost, repeated or reordered between nodes; never inside a node.
    Send { to: NodeId, message: Peer },
    /// Write atomically, in order; visible to `Rows` and reads at once, durable only when `Stored` says so.
    Store {
        instance: Instance,
        ticket: Ticket,
        writes: Vec<Write>,
    },
    /// Scan; answered by `ReadDone`.
    Read { token: Token, request: ReadRequest },
    /// Load these rows and keep them until the answer `Loaded` is handled (M-13).
    Load { token: Token, keys: Vec<Key> },
    /// Write a frame to a client.
    Client {
        connection: ConnectionId,
        frame: ServerFrame,
    },
    /// Close a client after what was written.
    CloseClient {
        connection: ConnectionId,
        reason: CloseReason,
    },
    /// Answer an `Ask`.
    Answer { token: Token, answer: Answer },
    /// Call a plugin; answered exactly once by `PluginReturned`, whatever becomes of the call.
    CallPlugin { token: Token, call: Box<Call> },
    /// Shard 0 knows a newer registry of plugins: what it names is to be kept loaded.
    Registry(Arc<Registry>),
    /// The breaker of a version changed on this shard: to be shown and logged.
    Breaker(Box<Change>),
}

/// What a shard is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A message from a node (perhaps this one).
    Peer { from: NodeId, message: Peer },
    /// A client connected; nothing is known of it before its `Connect` frame.
    ClientOpened { connection: ConnectionId },
    /// A client's frame.
    ClientFrame {
        connection: ConnectionId,
        frame: ClientFrame,
    },
    /// A client is gone.
    ClientClosed { connection: ConnectionId },
    /// Every Store effect of the instance up to this ticket is durable.
    Stored { instance: Instance, through: Ticket },
    /// A scan is done.
    ReadDone { token: Token, page: Page },
    /// Rows are loaded; they stay readable until this event is handled.
    Loaded {
        token: Token,
        rows: Vec<(Key, Option<Row>)>,
    },
    /// A request of the HTTP API, to be answered once under `token`.
    Ask { token: Token, ask: Ask },
    /// A plugin answered, or failed to.
    PluginReturned { token: Token, returned: Returned },
    /// The disk has less free space than the low-space mark (true), or enough again: new messages are refused before a
    /// write could fail (R14). A shard begins with enough.
    Space { low: bool },
    /// The deadline that the shard asked for has passed.
    Expired,
}
