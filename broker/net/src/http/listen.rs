//! Connections of the HTTP API: a bounded number, and none that keeps its place without asking anything (rule S10).

use crate::addresses::{Addresses, Place};
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::sleep;

/// How long to wait after a failed accept: it fails for want of file descriptors, which does not pass at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The longest head of a request, in bytes: room for the largest key and the headers of proxies.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// What a listener allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Open connections.
    pub(super) connections_max: usize,
    /// Open connections from one IPv4 address or IPv6 /64 network.
    pub(super) connections_per_address_max: u32,
    /// How long the head of a request may take, counted from the connection or from the answer before.
    pub(super) head_timeout: Duration,
}

/// Serves until told to stop, and then until the last request is answered.
pub(super) async fn serve(
    listener: TcpListener,
    app: Router,
    bounds: Bounds,
    mut stop: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(bounds.connections_max));
    let addresses = Arc::new(Addresses::default());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            // A dropped sender means that the server is gone.
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match accepted {
            // Dropping the stream closes it. An answer would cost more than the limits are meant to save.
            Ok((stream, peer)) => match admit(&places, &addresses, peer.ip(), bounds) {
                Ok(admission) => {
                    tokio::spawn(connection(admission, stream, app.clone(), bounds, stop.clone()));
                }
                Err(limit) => tracing::debug!(address = %peer.ip(), "more connections than {limit}"),
            },
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let all = u32::try_from(bounds.connections_max).unwrap_or(u32::MAX);
    let _ = places.acquire_many(all).await;
}

/// The places of one connection: among all, and among those of its address.
type Admission = (OwnedSemaphorePermit, Place);

/// Says otherwise which limit is reached.
fn admit(
    places: &Arc<Semaphore>,
    addresses: &Arc<Addresses>,
    address: IpAddr,
    bounds: Bounds,
) -> Result<Admission, &'static str> {
    let of_address = addresses
        .enter(address, bounds.connections_per_address_max)
        .ok_or("http.connections_per_ip_max")?;
    let of_all = Arc::clone(places).try_acquire_owned();
    Ok((of_all.map_err(|_| "http.connections_max")?, of_address))
}

/// Its place is given back last: whoever waits for all places may rely on nobody holding the application any more.
async fn connection(
    _admission: Admission,
    stream: TcpStream,
    app: Router,
    bounds: Bounds,
    mut stop: watch::Receiver<bool>,
) {
    // Answers are small and waited for; a failure only costs latency.
    let _ = stream.set_nodelay(true);
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head_timeout)
        .max_header_size(HEAD_BYTES_MAX);
    let service = TowerToHyperService::new(app);
    let mut serving = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        result = serving.as_mut() => {
            if let Err(error) = result {
                tracing::debug!(%error, "an HTTP connection ended early");
            }
            return;
        }
        _ = stop.wait_for(|stop| *stop) => serving.as_mut().graceful_shutdown(),
    }
    // The peer is told with the last answer; how that ends is its own affair.
    let _ = serving.await;
}
