//! Accepting connections, within limits.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use penstock_core::client::CloseReason;
use penstock_core::types::ConnectionId;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::connection::Connection;
use super::upgrade::upgrade;
use super::{Dispatch, Shared};
use crate::addresses::Place;

/// How long to wait after a failed accept: it fails for want of file descriptors, which does not pass at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How far accepts may run ahead of their rate.
const ACCEPT_BURST: Duration = Duration::from_secs(1);

/// What a listener speaks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Carrier {
    Tcp,
    WebSocket,
}

/// The right of one connection to exist. Giving it up frees its place under every limit.
pub(super) struct Admission<D: Dispatch> {
    shared: Arc<Shared<D>>,
    _place: Place,
    is_authenticated: bool,
}

impl<D: Dispatch> Admission<D> {
    fn enter(shared: &Arc<Shared<D>>, address: IpAddr) -> Option<Self> {
        let (config, metrics) = (&shared.config, &shared.metrics);
        let place = shared
            .addresses
            .enter(address, config.connections_per_address_max)?;
        let total = metrics.connections.rise();
        let unauthenticated = metrics.unauthenticated.rise();
        // From here on, dropping it undoes all three counts.
        let admission = Self {
            shared: Arc::clone(shared),
            _place: place,
            is_authenticated: false,
        };
        let is_within = total <= config.connections_max && unauthenticated <= config.unauthenticated_max;
        is_within.then_some(admission)
    }

    pub(super) fn shared(&self) -> Arc<Shared<D>> {
        Arc::clone(&self.shared)
    }

    pub(super) fn authenticated(&mut self) {
        if !self.is_authenticated {
            self.is_authenticated = true;
            self.shared.metrics.unauthenticated.fall();
        }
    }
}

impl<D: Dispatch> Drop for Admission<D> {
    fn drop(&mut self) {
        self.authenticated();
        self.shared.metrics.connections.fall();
    }
}

/// Accepts until told to stop.
pub(super) async fn accept<D: Dispatch>(
    shared: Arc<Shared<D>>,
    listener: TcpListener,
    carrier: Carrier,
    mut stop: watch::Receiver<bool>,
) {
    let mut pace = Pace::new(shared.config.accepts_per_second);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // A dropped sender means that the gateway is gone.
            _ = stop.changed() => return,
        };
        match accepted {
            Ok((stream, peer)) => admit(&shared, stream, peer, carrier),
            Err(error) => {
                shared.metrics.accept_errors.add(1);
                tracing::warn!(%error, "accept failed");
                sleep(ACCEPT_PAUSE).await;
            }
        }
        if let Some(pause) = pace.pause(Instant::now()) {
            sleep(pause).await;
        }
    }
}

fn admit<D: Dispatch>(shared: &Arc<Shared<D>>, stream: TcpStream, peer: SocketAddr, carrier: Carrier) {
    shared.metrics.accepted.add(1);
    let Some(admission) = Admission::enter(shared, peer.ip()) else {
        // Dropping the stream closes it. A reply would cost more than the limit is meant to save.
        shared.metrics.count_close(CloseReason::TooManyConnections);
        return;
    };
    // Frames are small and answers are waited for; a failure only costs latency.
    let _ = stream.set_nodelay(true);
    tokio::spawn(serve(admission, stream, carrier));
}

async fn serve<D: Dispatch>(admission: Admission<D>, mut stream: TcpStream, carrier: Carrier) {
    let shared = admission.shared();
    let upgraded = match carrier {
        Carrier::Tcp => None,
        Carrier::WebSocket => {
            let upgrading = upgrade(&mut stream, &shared.config);
            match timeout(shared.config.connect_timeout, upgrading).await {
                Ok(Ok(input)) => Some(input),
                Ok(Err(refused)) => {
                    tracing::debug!(%refused, "upgrade refused");
                    shared.metrics.count_close(refused.reason());
                    return;
                }
                Err(_) => {
                    shared.metrics.count_close(CloseReason::ConnectTimeout);
                    return;
                }
            }
        }
    };
    let id = ConnectionId(shared.next_connection.fetch_add(1, Ordering::Relaxed));
    let outbox = shared.connections.open(id);
    if shared.is_stopping.load(Ordering::Acquire) {
        // The stop may have closed all connections just before this one was among them.
        outbox.close(CloseReason::ServerStop);
    }
    Connection::new(id, stream, upgraded, outbox, admission)
        .run()
        .await;
}

/// A rate with a burst: the time at which the next accept would be due runs ahead of now by at most the burst.
struct Pace {
    interval: Duration,
    next: Instant,
}

impl Pace {
    fn new(per_second: u32) -> Self {
        Self {
            interval: Duration::from_secs(1) / per_second.max(1),
            next: Instant::now(),
        }
    }

    fn pause(&mut self, now: Instant) -> Option<Duration> {
        self.next = self.next.max(now) + self.interval;
        self.next.checked_duration_since(now + ACCEPT_BURST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pace_lets_a_burst_through_and_then_the_rate() {
        let mut pace = Pace::new(10);
        let start = Instant::now();
        pace.next = start;
        for _ in 0..10 {
            assert_eq!(pace.pause(start).unwrap_or_default(), Duration::ZERO);
        }
        assert_eq!(pace.pause(start), Some(Duration::from_millis(100)));
        assert_eq!(pace.pause(start), Some(Duration::from_millis(200)));
        let later = start + Duration::from_secs(5);
        assert_eq!(pace.pause(later), None);
    }
}
