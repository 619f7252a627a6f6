//! Accepting connections, within limits.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use penstock_core::client::CloseReason;
use penstock_core::types::ConnectionId;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::connection::Connection;
use super::upgrade::upgrade;
use super::{Dispatch, Shared};

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

/// The number of connections of each address.
#[derive(Debug, Default)]
pub(super) struct Addresses(Mutex<HashMap<IpAddr, u32>>);

impl Addresses {
    fn enter(&self, address: IpAddr, most: u32) -> bool {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(counted(address)).or_default();
        if *count >= most {
            return false;
        }
        *count += 1;
        true
    }

    fn leave(&self, address: IpAddr) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&counted(address)) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&counted(address));
            }
        }
    }
}

/// What counts as one address: an IPv4 address, or the /64 network that an IPv6 host can choose addresses from.
fn counted(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let [first, second, third, fourth, ..] = address.segments();
            IpAddr::from([first, second, third, fourth, 0, 0, 0, 0])
        }
    }
}

/// The right of one connection to exist. Giving it up frees its place under every limit.
pub(super) struct Admission<D: Dispatch> {
    shared: Arc<Shared<D>>,
    address: IpAddr,
    is_authenticated: bool,
}

impl<D: Dispatch> Admission<D> {
    fn enter(shared: &Arc<Shared<D>>, address: IpAddr) -> Option<Self> {
        let (config, metrics) = (&shared.config, &shared.metrics);
        if !shared
            .addresses
            .enter(address, config.connections_per_address_max)
        {
            return None;
        }
        let total = metrics.connections.rise();
        let unauthenticated = metrics.unauthenticated.rise();
        // From here on, dropping it undoes all three counts.
        let admission = Self {
            shared: Arc::clone(shared),
            address,
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
        self.shared.addresses.leave(self.address);
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

    #[test]
    fn an_address_is_what_a_host_cannot_multiply() {
        let same = |left: &str, right: &str| {
            counted(left.parse().expect("an address")) == counted(right.parse().expect("an address"))
        };
        assert!(same("10.0.0.1", "::ffff:10.0.0.1"));
        assert!(!same("10.0.0.1", "10.0.0.2"));
        assert!(same("2001:db8::1", "2001:db8::ffff:1"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1"));
    }

    #[test]
    fn addresses_are_counted_and_forgotten() {
        let addresses = Addresses::default();
        let address = IpAddr::from([127, 0, 0, 1]);
        assert!(addresses.enter(address, 2));
        assert!(addresses.enter(address, 2));
        assert!(!addresses.enter(address, 2));
        addresses.leave(address);
        assert!(addresses.enter(address, 2));
        addresses.leave(address);
        addresses.leave(address);
        assert!(
            addresses
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .is_empty()
        );
    }
}
