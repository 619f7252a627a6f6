//! The client gateway: WKProto over TCP, WKProto and JSON-RPC over WebSocket.
//!
//! It moves bytes and knows frames; what a frame means is decided by the session machine in a shard. A [`Dispatch`]
//! carries frames to the shards, [`Connections`] carries frames and closes back, and neither ever waits for a client.
//!
//! # Owns
//! Listeners, sockets, framing, the session encryption, JSON-RPC request ids, connection limits, deadlines, the bounded
//! outbound queue of each connection, and the counters about all of it.
//!
//! # Invariants
//! A connection that was announced to its shard is reported closed exactly once, after everything else about it. Unread
//! input, queued frames and written bytes of one connection are bounded. A frame is answered in the order that the shard
//! answers. Only a whole inbound frame counts as a sign of life (rule PR-5).
//!
//! # Absent
//! No permission, no channel, no token check: those are the shard's. No TLS: it is terminated outside.

mod clock;
mod connection;
mod connections;
mod fragments;
mod latency;
mod link;
mod listen;
mod metrics;
mod rpc;
#[cfg(test)]
mod tests;
mod upgrade;
mod wk;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use penstock_core::client::{ClientFrame, CloseReason};
use penstock_core::types::ConnectionId;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

pub use connections::{Connections, OutboundLimits};
pub use latency::Latency;
pub use metrics::{Counter, Gauge, Metrics, close_label};

use crate::addresses::Addresses;
use crate::bound::Bound;
use crate::origin::Origins;
use listen::Carrier;

/// The settings of the gateway.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Config {
    /// Where WKProto over TCP is served, if anywhere.
    pub tcp: Option<SocketAddr>,
    /// Where WebSocket is served, if anywhere.
    pub websocket: Option<SocketAddr>,
    /// The only path that is upgraded.
    pub websocket_path: String,
    /// The web pages that may open a WebSocket.
    pub origins: Origins,
    /// How long a peer may take for the upgrade, and then for CONNECT.
    pub connect_timeout: Duration,
    /// How long the answer to CONNECT may take before it is refused.
    pub activation_timeout: Duration,
    /// How long a session may stay without an inbound frame.
    pub idle_timeout: Duration,
    /// How long the peer may take no byte while some are waiting.
    pub write_timeout: Duration,
    /// How long the peer has to take the last bytes of a closed connection.
    pub close_timeout: Duration,
    /// Connections in total.
    pub connections_max: u64,
    /// Connections from one IPv4 address or IPv6 /64 network.
    pub connections_per_address_max: u32,
    /// Connections without CONNACK. Together with 4 KiB a frame it bounds the memory that strangers can take.
    pub unauthenticated_max: u64,
    /// Accepts a second and listener; more wait in the system's queue.
    pub accepts_per_second: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            tcp: None,
            websocket: None,
            websocket_path: "/".to_owned(),
            origins: Origins::default(),
            connect_timeout: Duration::from_secs(5),
            activation_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(180),
            write_timeout: Duration::from_secs(10),
            close_timeout: Duration::from_secs(2),
            connections_max: 1_000_000,
            connections_per_address_max: 100_000,
            unauthenticated_max: 20_000,
            accepts_per_second: 5_000,
        }
    }
}

impl Default for OutboundLimits {
    fn default() -> Self {
        Self {
            bytes: 1024 * 1024,
            frames: 8_192,
        }
    }
}

/// What a connection tells its shard.
#[derive(Clone, Debug, PartialEq)]
pub enum Inbound {
    /// It exists. Its CONNECT follows at once.
    Opened,
    /// A frame.
    Frame(ClientFrame),
}

/// What became of an offered event.
#[derive(Clone, Debug, PartialEq)]
pub enum Offer {
    /// The shard will handle it.
    Taken,
    /// The shard has no room; here it is back.
    Full(Inbound),
}

/// The way from connections to shards. `connection % shards` names the shard.
pub trait Dispatch: Send + Sync + 'static {
    /// Offers an event. Must not block. Taking [`Inbound::Opened`] includes keeping a place for the end of this
    /// connection (mechanism M-14).
    fn offer(&self, connection: ConnectionId, event: Inbound) -> Offer;

    /// Completes when it is worth offering again, after an offer found no room; at once if room came in between, or a
    /// connection would wait for ever. May complete early, but not without any change, or it spins. Must do nothing
    /// before it is polled.
    fn room(&self, connection: ConnectionId) -> impl Future<Output = ()> + Send;

    /// The connection has ended. Called once for each connection whose [`Inbound::Opened`] was taken, and always taken.
    fn closed(&self, connection: ConnectionId);
}

/// What all connections share.
struct Shared<D: Dispatch> {
    config: Config,
    dispatch: Arc<D>,
    connections: Arc<Connections>,
    metrics: Arc<Metrics>,
    addresses: Arc<Addresses>,
    next_connection: AtomicU64,
    is_stopping: AtomicBool,
}

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {error}")]
pub struct BindError {
    /// The address that was asked for.
    pub address: SocketAddr,
    /// The system's answer.
    #[source]
    pub error: io::Error,
}

/// The addresses of a gateway that is to be started.
#[derive(Debug)]
pub struct Sockets {
    tcp: Option<Bound>,
    websocket: Option<Bound>,
}

impl Sockets {
    /// Takes the addresses that the configuration names. Nothing listens there yet. Within a tokio runtime.
    ///
    /// # Errors
    /// An address that cannot be had.
    pub fn bind(config: &Config) -> Result<Self, BindError> {
        let bind = |address: Option<SocketAddr>| {
            let bound =
                address.map(|address| Bound::new(address).map_err(|error| BindError { address, error }));
            bound.transpose()
        };
        Ok(Self {
            tcp: bind(config.tcp)?,
            websocket: bind(config.websocket)?,
        })
    }
}

/// A running gateway. Dropping it stops accepting but leaves open connections alone; see [`Gateway::stop`].
pub struct Gateway<D: Dispatch> {
    shared: Arc<Shared<D>>,
    stop: watch::Sender<bool>,
    tcp: Option<SocketAddr>,
    websocket: Option<SocketAddr>,
}

impl<D: Dispatch> Gateway<D> {
    /// Starts to listen. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// An address that another program has begun to listen on since it was bound.
    pub fn start(
        config: Config,
        sockets: Sockets,
        dispatch: Arc<D>,
        connections: Arc<Connections>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, BindError> {
        let (stop, _) = watch::channel(false);
        let shared = Arc::new(Shared {
            config,
            dispatch,
            connections,
            metrics,
            addresses: Arc::default(),
            next_connection: AtomicU64::new(1),
            is_stopping: AtomicBool::new(false),
        });
        let Sockets { tcp, websocket } = sockets;
        let addresses = [&tcp, &websocket].map(|bound| bound.as_ref().map(Bound::address));
        let mut listeners = Vec::new();
        for (bound, carrier) in [(tcp, Carrier::Tcp), (websocket, Carrier::WebSocket)] {
            if let Some(bound) = bound {
                let address = bound.address();
                let listener = bound.listen().map_err(|error| BindError { address, error })?;
                listeners.push((listener, carrier));
            }
        }
        for (listener, carrier) in listeners {
            let shared = Arc::clone(&shared);
            tokio::spawn(listen::accept(shared, listener, carrier, stop.subscribe()));
        }
        let [tcp, websocket] = addresses;
        Ok(Self {
            shared,
            stop,
            tcp,
            websocket,
        })
    }

    /// Where TCP is served, with the port that was given if it was asked for as 0.
    #[must_use]
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp
    }

    /// Where WebSocket is served.
    #[must_use]
    pub fn websocket_address(&self) -> Option<SocketAddr> {
        self.websocket
    }

    /// Stops accepting, closes every connection, and waits for them within the connect and close timeouts. Says how
    /// many were still open then; they end with the runtime.
    pub async fn stop(&self) -> u64 {
        self.shared.is_stopping.store(true, Ordering::Release);
        self.stop.send_replace(true);
        self.shared.connections.close_all(CloseReason::ServerStop);
        let config = &self.shared.config;
        let deadline = Instant::now() + config.connect_timeout + config.close_timeout;
        while self.shared.metrics.connections.value() > 0 && Instant::now() < deadline {
            sleep(Duration::from_millis(10)).await;
        }
        self.shared.metrics.connections.value()
    }
}
