//! One connection to an endpoint, and one request over it.

use crate::address::{plain, refusal};
use crate::endpoint::Request;
use crate::grants::Grants;
use crate::origin::Target;
use crate::outcome::{Reason, Trouble, retry_after};
use crate::resolve::Resolve;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::header::{CONTENT_LENGTH, HOST, RETRY_AFTER, USER_AGENT};
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Largest head of an answer, bytes, and most of its headers.
const HEAD_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 128;
/// Largest body of an answer that is read, to use the connection again; it is thrown away.
const BODY_BYTES_MAX: usize = 64 << 10;
/// So long is it waited for: the request has been taken by then.
const BODY_WITHIN: Duration = Duration::from_millis(500);
/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 4;
/// Longest time for one address to answer.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// How the request calls itself.
const AGENT: &str = concat!("penstock/", env!("CARGO_PKG_VERSION"));

/// A way to send requests.
pub(crate) type Sender = SendRequest<Full<Bytes>>;

/// A connection to an address that was judged.
pub(crate) struct Connection {
    pub(crate) sender: Sender,
    /// The other end, and this one.
    peer: IpAddr,
    local: IpAddr,
    born: Instant,
}

impl Connection {
    /// Whether it is open and no older than this.
    pub(crate) fn is_fresh(&self, age_max: Duration) -> bool {
        self.born.elapsed() < age_max && !self.sender.is_closed()
    }

    /// Whether these grants would let it be made.
    pub(crate) fn may_reach(&self, target: &Target, grants: &Grants) -> bool {
        check_address(self.peer, target, grants).is_ok() && !is_own(self.peer, self.local, target, grants)
    }
}

/// Whom to trust.
#[derive(Clone)]
pub struct Tls(TlsConnector);

/// Why there is nobody to trust.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificates are none.
    #[error("no certificates in PEM: {0}")]
    Pem(String),
    /// The library refuses them.
    #[error("TLS: {0}")]
    Library(#[from] rustls::Error),
}

impl Tls {
    /// Trusts the authorities of the web, and these certificates in PEM besides.
    ///
    /// # Errors
    /// When they are none.
    pub fn new(more: Option<&[u8]>) -> Result<Tls, TlsError> {
        let mut roots = RootCertStore {
            roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
        };
        if let Some(pem) = more {
            let mut count = 0;
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|error| TlsError::Pem(error.to_string()))?;
                roots.add(certificate)?;
                count += 1;
            }
            if count == 0 {
                return Err(TlsError::Pem("there is none".to_owned()));
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Tls(TlsConnector::from(Arc::new(config))))
    }
}

/// The addresses that may be connected to: all of those of the name, or none.
pub(crate) async fn judged(
    resolver: &dyn Resolve,
    target: &Target,
    grants: &Grants,
) -> Result<Vec<IpAddr>, Trouble> {
    check(target, grants)?;
    let addresses = match target.host.parse::<IpAddr>() {
        Ok(address) => return Ok(vec![address]),
        Err(_) => {
            let found = resolver.resolve(&target.host).await;
            found.map_err(|error| Trouble::new(Reason::Resolve, format!("{}: {error}", target.host)))?
        }
    };
    if addresses.is_empty() {
        let text = format!("{} has no address", target.host);
        return Err(Trouble::new(Reason::Resolve, text));
    }
    for address in &addresses {
        check_address(*address, target, grants)?;
    }
    Ok(addresses)
}

/// Whether the rules allow a target, as far as its URL says.
pub(crate) fn check(target: &Target, grants: &Grants) -> Result<(), Trouble> {
    if !target.secure && !grants.has_host(&target.host, target.port) {
        let text = format!(
            "{target} is not https: use https, or grant egress:{}",
            target.host_and_port()
        );
        return Err(Trouble::new(Reason::Forbidden, text));
    }
    match target.host.parse::<IpAddr>() {
        Ok(address) => check_address(address, target, grants),
        Err(_) => Ok(()),
    }
}

fn check_address(address: IpAddr, target: &Target, grants: &Grants) -> Result<(), Trouble> {
    match refusal(address).filter(|_| !is_granted(address, target, grants)) {
        None => Ok(()),
        Some(why) => {
            let place = target.host_and_port();
            let text = format!(
                "{target} is at {address}, {why}: if that is meant, grant egress:{place}, or the network of the address"
            );
            Err(Trouble::new(Reason::Forbidden, text))
        }
    }
}

/// Connects to one of these addresses, and to nothing else.
pub(crate) async fn connect(
    tls: &Tls,
    target: &Target,
    addresses: &[IpAddr],
    grants: &Grants,
) -> Result<Connection, Trouble> {
    let mut last = Trouble::new(Reason::Connect, format!("{target} has no address"));
    for address in addresses.iter().take(ADDRESSES_MAX) {
        let place = SocketAddr::new(*address, target.port);
        match tokio::time::timeout(CONNECT_WITHIN, TcpStream::connect(place)).await {
            Ok(Ok(stream)) => {
                let (peer, local) = ends(&stream, place, target, grants)?;
                return Ok(Connection {
                    sender: over(tls, target, stream).await?,
                    peer,
                    local,
                    born: Instant::now(),
                });
            }
            Ok(Err(error)) => last = Trouble::new(Reason::Connect, format!("{target} at {place}: {error}")),
            Err(_) => last = Trouble::new(Reason::Connect, format!("{target} at {place}: no answer")),
        }
    }
    Err(last)
}

/// Both ends of a connection: who is at the other one is who was judged, and not this machine itself.
fn ends(
    stream: &TcpStream,
    place: SocketAddr,
    target: &Target,
    grants: &Grants,
) -> Result<(IpAddr, IpAddr), Trouble> {
    let forbidden = |why: &str| {
        Err(Trouble::new(
            Reason::Forbidden,
            format!("{target} at {place}: {why}"),
        ))
    };
    let ends = stream
        .peer_addr()
        .and_then(|peer| Ok((peer, stream.local_addr()?)));
    let Ok((peer, local)) = ends else {
        return Err(Trouble::new(
            Reason::Connect,
            format!("{target} at {place}: the connection broke"),
        ));
    };
    if plain(peer.ip()) != plain(place.ip()) || peer.port() != place.port() {
        return forbidden("another address answers");
    }
    if is_own(peer.ip(), local.ip(), target, grants) {
        return forbidden("an address of this very machine");
    }
    Ok((peer.ip(), local.ip()))
}

/// Whether a connection leads to this machine itself, and that is not granted.
fn is_own(peer: IpAddr, local: IpAddr, target: &Target, grants: &Grants) -> bool {
    plain(peer) == plain(local) && !is_granted(peer, target, grants)
}

fn is_granted(address: IpAddr, target: &Target, grants: &Grants) -> bool {
    grants.has_host(&target.host, target.port) || grants.has_address(address)
}

async fn over(tls: &Tls, target: &Target, stream: TcpStream) -> Result<Sender, Trouble> {
    // A small request should not wait for an acknowledgement; without it, it is only slower.
    let _ = stream.set_nodelay(true);
    if !target.secure {
        return handshake(TokioIo::new(stream)).await;
    }
    let name = ServerName::try_from(target.host.clone()).map_err(|_| {
        Trouble::new(
            Reason::Tls,
            format!("{target}: no name that a certificate could have"),
        )
    })?;
    let stream = tls.0.connect(name, stream).await;
    let stream = stream.map_err(|error| Trouble::new(Reason::Tls, format!("{target}: {error}")))?;
    handshake(TokioIo::new(stream)).await
}

async fn handshake<Io>(io: Io) -> Result<Sender, Trouble>
where
    Io: Read + Write + Send + Unpin + 'static,
{
    let mut builder = Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX).max_headers(HEADERS_MAX);
    let (sender, connection) = builder.handshake(io).await.map_err(|error| protocol(&error))?;
    // It ends when the sender is dropped, or the other side closes.
    let _ends_by_itself = tokio::spawn(async move {
        // Who sends over it learns of the error too.
        let _ = connection.await;
    });
    Ok(sender)
}

pub(crate) fn protocol(error: &hyper::Error) -> Trouble {
    let broken = error.is_incomplete_message() || error.is_canceled() || error.is_closed();
    let reason = if broken { Reason::Connect } else { Reason::Protocol };
    Trouble::new(reason, format!("the connection failed: {error}"))
}

/// Sends a request.
///
/// # Errors
/// When no answer came over this connection.
pub(crate) async fn send(
    sender: &mut Sender,
    target: &Target,
    request: &Request,
    signature: &str,
    timestamp_s: u64,
) -> Result<Answered, Trouble> {
    let request = head(target, request, signature, timestamp_s)?;
    let response = sender
        .send_request(request)
        .await
        .map_err(|error| protocol(&error))?;
    let status = response.status().as_u16();
    let after = response
        .headers()
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok());
    let after = after.and_then(|value| retry_after(value, SystemTime::now()));
    // What stands in it is nobody's business; but until it is read the connection has no room for another request.
    let read = async { discard(response.into_body()).await && sender.ready().await.is_ok() };
    let reusable = tokio::time::timeout(BODY_WITHIN, read).await.unwrap_or(false);
    let taken = match Reason::of_status(status) {
        None => Ok(()),
        Some(reason) => Err(Trouble {
            reason,
            text: format!("{target} answered {status}"),
            after: after.filter(|_| reason == Reason::Busy),
        }),
    };
    Ok(Answered { taken, reusable })
}

/// What came back.
pub(crate) struct Answered {
    /// Whether the request was taken.
    pub(crate) taken: Result<(), Trouble>,
    /// Whether the connection has room for another request.
    pub(crate) reusable: bool,
}

fn head(
    target: &Target,
    request: &Request,
    signature: &str,
    timestamp_s: u64,
) -> Result<hyper::Request<Full<Bytes>>, Trouble> {
    let builder = begin(target, &request.method, &request.path)
        .header(CONTENT_LENGTH, request.body.len())
        .header("webhook-id", &request.id)
        .header("webhook-timestamp", timestamp_s)
        .header("webhook-signature", signature);
    complete(builder, &request.headers, &request.body)
}

/// What every request begins with.
pub(crate) fn begin(target: &Target, method: &str, path: &str) -> hyper::http::request::Builder {
    hyper::Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, target.authority())
        .header(USER_AGENT, AGENT)
}

/// The request with its own headers and its body.
pub(crate) fn complete(
    mut builder: hyper::http::request::Builder,
    headers: &[(String, String)],
    body: &Bytes,
) -> Result<hyper::Request<Full<Bytes>>, Trouble> {
    for (name, value) in headers {
        builder = builder.header(name, value);
    }
    builder
        .body(Full::new(body.clone()))
        .map_err(|error| Trouble::new(Reason::Protocol, format!("the request is none: {error}")))
}

/// Reads a body to its end, within the bound. Whether it came to that.
async fn discard(mut body: Incoming) -> bool {
    let mut left = BODY_BYTES_MAX;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return false };
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        match left.checked_sub(bytes) {
            Some(rest) => left = rest,
            None => return false,
        }
    }
    true
}
