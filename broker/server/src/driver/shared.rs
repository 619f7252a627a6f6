//! What the shards of a node share: mailboxes, the store, the way to clients, callers and other nodes.

use super::answers::Answers;
use super::clock::Clock;
use super::mailbox::Mailbox;
use super::reader::Readers;
use penstock_core::client::{CloseReason, ServerFrame};
use penstock_core::effect::Event;
use penstock_core::hooks::breaker::Change;
use penstock_core::hooks::call::{Call, Returned};
use penstock_core::hooks::registry::Registry;
use penstock_core::shard::Peer;
use penstock_core::types::{ConnectionId, NodeId};
use penstock_store::{Store, Writer};
use std::sync::Arc;
use std::time::Duration;

/// The way to the clients of this node: the gateway.
pub trait Clients: Send + Sync {
    /// Queues frames, in their order, and takes them out of `frames`; a full queue closes its connection (slow client).
    fn deliver(&self, frames: &mut Vec<(ConnectionId, ServerFrame)>);
    /// Closes after what was queued.
    fn close(&self, connection: ConnectionId, reason: CloseReason);
}

/// Runs plugins.
pub trait Plugins: Send + Sync {
    /// Does a call on the thread of the caller, when it may run there and there is patience left: what it takes is taken from that.
    ///
    /// # Errors
    /// Gives the call back, to be done by [`Plugins::call`].
    fn call_inline(&self, call: Box<Call>, patience: &mut Duration) -> Result<Returned, Box<Call>>;
    /// Does a call without blocking. The reply is called exactly once, whatever becomes of the call.
    fn call(&self, call: Call, reply: Box<dyn FnOnce(Returned) + Send>);
    /// The breaker of a version changed on a shard.
    fn breaker(&self, shard: u16, change: &Change);
}

/// The way to other nodes. May lose messages.
pub trait Transport: Send + Sync {
    /// Sends to another node.
    fn send(&self, to: NodeId, message: Peer);
}

/// What happens when the node cannot go on (R14): stop acknowledging and end the process.
pub trait Fatal: Send + Sync {
    /// Ends the node.
    fn fail(&self, why: &str);
}

/// Shared by all shards of a node.
pub(super) struct Shared {
    pub(super) node: NodeId,
    pub(super) clock: Clock,
    pub(super) store: Arc<Store>,
    pub(super) writer: Writer,
    pub(super) mailboxes: Vec<Arc<Mailbox>>,
    pub(super) readers: Readers,
    pub(super) answers: Answers,
    pub(super) clients: Arc<dyn Clients>,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) fatal: Arc<dyn Fatal>,
    pub(super) counted: super::counted::Board,
    pub(super) plugins: Arc<dyn Plugins>,
    /// The plugins and bindings that the shards act on.
    pub(super) registry: tokio::sync::watch::Sender<Arc<Registry>>,
}

impl Shared {
    /// Routes a message to a shard of this node or to another node.
    pub(super) fn send(&self, to: NodeId, message: Peer) {
        if to == self.node {
            self.receive(to, message);
        } else {
            self.transport.send(to, message);
        }
    }

    /// A message from a node, perhaps this one. What a full mailbox may refuse is dropped: the sender's deadline
    /// answers it (M-14). Inside a node nothing is dropped.
    pub(super) fn receive(&self, from: NodeId, message: Peer) {
        // There are at most 8 shards, so the count fits.
        let shard = message.shard(self.mailboxes.len() as u16);
        let Some(mailbox) = self.mailboxes.get(usize::from(shard)) else {
            return;
        };
        let admission = from != self.node && message.is_admission();
        let event = Event::Peer { from, message };
        if admission {
            let _ = mailbox.admit(event);
        } else {
            mailbox.complete(event);
        }
    }

    /// Ends the node.
    pub(super) fn fail(&self, why: &str) {
        self.fatal.fail(why);
    }
}
