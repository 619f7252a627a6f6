//! The gateway over real loopback sockets, against a scripted shard.

mod byte_cases;
mod client;
mod deadlines;
mod limits;
mod sessions;
mod shard;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use penstock_core::client::CloseReason;
use penstock_core::types::ConnectionId;
use tokio::time::{Instant, sleep};

use super::{Config, Connections, Gateway, Metrics, OutboundLimits, Sockets};
use shard::ScriptedShard;

/// A gateway on loopback with its shard.
struct Edge {
    gateway: Gateway<ScriptedShard>,
    shard: Arc<ScriptedShard>,
    connections: Arc<Connections>,
    metrics: Arc<Metrics>,
}

impl Edge {
    async fn start() -> Self {
        Self::with(Config::default(), OutboundLimits::default()).await
    }

    async fn with(config: Config, limits: OutboundLimits) -> Self {
        let loopback = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        let config = Config {
            tcp: loopback,
            websocket: loopback,
            ..config
        };
        let connections = Arc::new(Connections::new(limits));
        let metrics = Arc::new(Metrics::default());
        let shard = Arc::new(ScriptedShard::new(Arc::clone(&connections)));
        let sockets = Sockets::bind(&config).expect("loopback can be bound");
        let gateway = Gateway::start(
            config,
            sockets,
            Arc::clone(&shard),
            Arc::clone(&connections),
            Arc::clone(&metrics),
        )
        .expect("nobody else listens");
        Self {
            gateway,
            shard,
            connections,
            metrics,
        }
    }

    fn tcp(&self) -> SocketAddr {
        self.gateway.tcp_address().expect("TCP is served")
    }

    fn websocket(&self) -> SocketAddr {
        self.gateway.websocket_address().expect("WebSocket is served")
    }

    /// Waits until so many connections have been closed for the reason.
    async fn closed(&self, reason: CloseReason, count: u64) {
        until(|| self.metrics.closed(reason) >= count).await;
        assert_eq!(self.metrics.closed(reason), count, "{reason:?}");
    }

    /// The connection of the only user with this uid.
    async fn connection_of(&self, uid: &str) -> ConnectionId {
        until(|| self.shard.connection_of(uid).is_some()).await;
        self.shard.connection_of(uid).expect("just seen")
    }
}

/// Waits for a condition that must come true within a few seconds.
async fn until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "the condition did not come true");
        sleep(Duration::from_millis(2)).await;
    }
}
