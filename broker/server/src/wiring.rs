//! What joins the parts of a node: shards to gateway and HTTP, and back.

use crate::driver::{Clients, Fatal, Mailbox, Node, Transport};
use crate::{metrics, plugins};
use penstock_core::admin::{Answer, Ask};
use penstock_core::client::{CloseReason, ServerFrame, shard_of};
use penstock_core::effect::Event;
use penstock_core::shard::Peer;
use penstock_core::types::{ConnectionId, NodeId};
use penstock_net::gateway::{self, Connections, Dispatch, Inbound, Offer};
use penstock_net::http;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// Frames from shards to the gateway.
pub(crate) struct GatewayClients(pub(crate) Arc<Connections>);

impl Clients for GatewayClients {
    fn deliver(&self, frames: &mut Vec<(ConnectionId, ServerFrame)>) {
        self.0.push(frames.drain(..));
    }

    fn close(&self, connection: ConnectionId, reason: CloseReason) {
        self.0.close(connection, reason);
    }
}

/// A cluster of one has nobody to talk to.
pub(crate) struct NoPeers;

impl Transport for NoPeers {
    fn send(&self, _to: NodeId, _message: Peer) {}
}

/// Ends the process at once: whatever was acknowledged is durable, the rest must not be (R14).
pub(crate) struct EndProcess;

impl Fatal for EndProcess {
    fn fail(&self, why: &str) {
        tracing::error!(why, "this node cannot go on");
        std::process::exit(70);
    }
}

/// Frames from the gateway to the shards.
pub(crate) struct Mailboxes(pub(crate) Vec<Arc<Mailbox>>);

impl Mailboxes {
    fn of(&self, connection: ConnectionId) -> &Mailbox {
        // There are at most 8 shards, so the count fits.
        &self.0[usize::from(shard_of(connection, self.0.len() as u16))]
    }
}

impl Dispatch for Mailboxes {
    fn offer(&self, connection: ConnectionId, event: Inbound) -> Offer {
        let event = match event {
            Inbound::Opened => Event::ClientOpened { connection },
            Inbound::Frame(frame) => Event::ClientFrame { connection, frame },
        };
        match self.of(connection).admit(event).map_err(|back| *back) {
            Ok(()) => Offer::Taken,
            Err(Event::ClientFrame { frame, .. }) => Offer::Full(Inbound::Frame(frame)),
            Err(_) => Offer::Full(Inbound::Opened),
        }
    }

    fn room(&self, connection: ConnectionId) -> impl Future<Output = ()> + Send {
        self.of(connection).room()
    }

    fn closed(&self, connection: ConnectionId) {
        self.of(connection).complete(Event::ClientClosed { connection });
    }
}

/// The node as the HTTP API sees it.
pub(crate) struct Api {
    pub(crate) node: Arc<Node>,
    pub(crate) plugins: plugins::Api,
    pub(crate) gateway: Arc<gateway::Metrics>,
}

impl http::Node for Api {
    fn ask(&self, ask: Ask) -> Pin<Box<dyn Future<Output = Answer> + Send + '_>> {
        Box::pin(self.node.ask(ask))
    }

    fn metrics(&self) -> String {
        metrics::render(&self.node, &self.gateway, self.plugins.plugins())
    }

    fn plugins(&self) -> &dyn http::Plugins {
        &self.plugins
    }
}
