//! Endpoints against servers on this machine, and against names that lie.

use bytes::Bytes;
use penstock_egress::{Config, Endpoint, Grants, Reason, Request, Secret, State, Target, Tls};
use penstock_egress::{Resolve, Resolving, SystemResolver};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;

fn endpoint(url: &str, grants: &[&str], resolver: Arc<dyn Resolve>, roots: Option<&[u8]>) -> Arc<Endpoint> {
    Arc::new(Endpoint::new(Config {
        target: Target::parse(url).expect("a URL"),
        grants: Grants::parse(grants.iter().copied()).expect("grants"),
        secrets: vec![Secret::parse(&Secret::text_of(&[1; 32])).expect("a secret")],
        tls: Tls::new(roots).expect("trust"),
        resolver,
    }))
}

/// An endpoint without TLS at this address, which a grant allows.
fn granted(address: SocketAddr) -> Arc<Endpoint> {
    let grant = format!("egress:{address}");
    endpoint(
        &format!("http://{address}/"),
        &[&grant],
        Arc::new(SystemResolver),
        None,
    )
}

fn request() -> Request {
    Request {
        id: "msg_1".to_owned(),
        method: "POST".to_owned(),
        path: "/in?event=x".to_owned(),
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: Bytes::from_static(b"[]"),
    }
}

async fn deliver(endpoint: &Arc<Endpoint>, within: Duration) -> Result<(), Reason> {
    let leave = endpoint.admit().map_err(|_| Reason::Busy)?;
    let delivered = leave.deliver(&[request()], Instant::now() + within).await;
    delivered.expect("a connection").map_err(|trouble| trouble.reason)
}

/// A certificate of `hooks.example`, signed with its own key, and that key: for these tests alone.
const CERTIFICATE: &str = include_str!("../fixtures/hooks.example.cert.pem");
const KEY: &str = include_str!("../fixtures/hooks.example.key.pem");

const WITHIN: Duration = Duration::from_secs(5);

/// A server that answers every request with this text, and counts its connections.
async fn server(answer: String) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let address = listener.local_addr().expect("bound");
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(serve(stream, answer.clone()));
        }
    });
    (address, connections)
}

async fn serve<Stream: AsyncRead + AsyncWrite + Unpin>(mut stream: Stream, answer: String) {
    let mut seen = Vec::new();
    let mut bytes = [0; 4_096];
    while let Ok(count) = stream.read(&mut bytes).await {
        if count == 0 {
            return;
        }
        seen.extend_from_slice(&bytes[..count]);
        if seen.ends_with(b"[]") {
            seen.clear();
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

fn of_status(status: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nok")
}

#[tokio::test]
async fn a_request_is_taken_and_its_connection_used_again() {
    let (address, connections) =
        server(of_status("204 No Content").replace("content-length: 2\r\n\r\nok", "\r\n")).await;
    let endpoint = granted(address);
    for _ in 0..3 {
        assert_eq!(deliver(&endpoint, WITHIN).await, Ok(()));
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    let counts = endpoint.counts();
    assert_eq!((counts.taken, counts.waiting, counts.failures.len()), (3, 0, 0));
}

#[tokio::test]
async fn answers_that_are_no_success() {
    for (status, reason) in [
        ("302 Found\r\nlocation: http://169.254.169.254/", Reason::Redirect),
        ("404 Not Found", Reason::Refused),
        ("410 Gone", Reason::Gone),
        ("429 Too Many Requests", Reason::Busy),
        ("500 Internal Server Error", Reason::Failed),
    ] {
        let (address, connections) = server(of_status(status)).await;
        let endpoint = granted(address);
        assert_eq!(deliver(&endpoint, WITHIN).await, Err(reason), "{status}");
        assert_eq!(connections.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn a_pause_that_is_asked_for_holds_the_next_request_back() {
    let (address, _) = server(of_status("503 Service Unavailable\r\nretry-after: 30")).await;
    let endpoint = granted(address);
    let leave = endpoint.admit().expect("room");
    let delivered = leave.deliver(&[request()], Instant::now() + WITHIN).await;
    let trouble = delivered.expect("a connection").expect_err("busy");
    assert_eq!(
        (trouble.reason, trouble.after),
        (Reason::Busy, Some(Duration::from_secs(30)))
    );
    let pause = endpoint.admit().expect_err("held back");
    assert!(
        (Duration::from_secs(25)..=Duration::from_secs(30)).contains(&pause),
        "{pause:?}"
    );
    assert_eq!(endpoint.state(), State::Open);
}

#[tokio::test]
async fn hangs_and_floods_end() {
    let silent = server(String::new()).await.0;
    let hanging = granted(silent);
    let began = Instant::now();
    assert_eq!(
        deliver(&hanging, Duration::from_millis(300)).await,
        Err(Reason::Timeout)
    );
    assert!(began.elapsed() < Duration::from_secs(2));

    let head = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(200 << 10));
    let flood = server(head).await.0;
    let flooding = granted(flood);
    assert_eq!(deliver(&flooding, WITHIN).await, Err(Reason::Protocol));

    // A body without end: the request was taken, and the connection is not used again.
    let body = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n{}",
        "z".repeat(300 << 10)
    );
    let (address, connections) = server(body).await;
    let endless = granted(address);
    assert_eq!(deliver(&endless, WITHIN).await, Ok(()));
    assert_eq!(deliver(&endless, WITHIN).await, Ok(()));
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn after_failures_in_a_row_an_endpoint_is_left_alone() {
    let (address, connections) = server(of_status("500 No")).await;
    let endpoint = granted(address);
    for _ in 0..5 {
        assert_eq!(deliver(&endpoint, WITHIN).await, Err(Reason::Failed));
    }
    assert!(endpoint.admit().is_err());
    tokio::time::sleep(Duration::from_millis(1_050)).await;
    let probe = endpoint.admit().expect("a probe");
    assert!(endpoint.admit().is_err(), "one at a time");
    drop(probe);
    assert!(endpoint.admit().is_ok());
    assert!(connections.load(Ordering::SeqCst) <= 5);
}

/// Answers one address for the first question, and others from then on.
struct Liar {
    first: Vec<IpAddr>,
    then: Vec<IpAddr>,
    asked: AtomicUsize,
}

impl Resolve for Liar {
    fn resolve<'a>(&'a self, _host: &'a str) -> Resolving<'a> {
        let first = self.asked.fetch_add(1, Ordering::SeqCst) == 0;
        let addresses = if first { &self.first } else { &self.then };
        Box::pin(async move { Ok(addresses.clone()) })
    }
}

fn liar(first: &[&str], then: &[&str]) -> Arc<Liar> {
    let parse = |texts: &[&str]| {
        texts
            .iter()
            .map(|text| text.parse().expect("an address"))
            .collect()
    };
    Arc::new(Liar {
        first: parse(first),
        then: parse(then),
        asked: AtomicUsize::new(0),
    })
}

#[tokio::test]
async fn nothing_goes_inside_without_a_grant() {
    let (address, connections) = server(of_status("200 OK")).await;
    let port = address.port();
    for url in [
        format!("https://127.0.0.1:{port}/"),
        format!("https://[::ffff:127.0.0.1]:{port}/"),
        format!("https://localhost:{port}/"),
        "https://169.254.169.254/".to_owned(),
        "https://[fd00:ec2::254]/".to_owned(),
        // Nor outside without TLS.
        "http://example.org/".to_owned(),
    ] {
        let endpoint = endpoint(&url, &[], Arc::new(SystemResolver), None);
        assert_eq!(deliver(&endpoint, WITHIN).await, Err(Reason::Forbidden), "{url}");
    }
    // One bad address among the good ones is enough.
    let mixed = liar(&["1.1.1.1", "10.0.0.1"], &[]);
    let endpoint = endpoint("https://rebind.example/", &[], mixed, None);
    assert_eq!(deliver(&endpoint, WITHIN).await, Err(Reason::Forbidden));
    assert_eq!(connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_name_is_asked_once_and_what_was_judged_is_connected_to() {
    let (address, connections) = server(of_status("200 OK")).await;
    let liar = liar(&["127.0.0.1"], &["127.0.0.2"]);
    let url = format!("http://hooks.example:{}/", address.port());
    let grant = format!("egress:hooks.example:{}", address.port());
    let endpoint = endpoint(&url, &[&grant], Arc::clone(&liar) as Arc<dyn Resolve>, None);
    assert_eq!(deliver(&endpoint, WITHIN).await, Ok(()));
    assert_eq!(
        (
            liar.asked.load(Ordering::SeqCst),
            connections.load(Ordering::SeqCst)
        ),
        (1, 1)
    );
}

#[tokio::test]
async fn trust_is_needed() {
    let key = PrivateKeyDer::from_pem_slice(KEY.as_bytes()).expect("a key");
    let certificate = CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("a server");
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    serve(stream, of_status("200 OK")).await;
                }
            });
        }
    });
    let here = || liar(&["127.0.0.1"], &["127.0.0.1"]);
    let grants = ["egress:127.0.0.0/8"];
    let url = format!("https://hooks.example:{port}/");
    let trusted = endpoint(&url, &grants, here(), Some(CERTIFICATE.as_bytes()));
    assert_eq!(deliver(&trusted, WITHIN).await, Ok(()));
    let stranger = endpoint(&url, &grants, here(), None);
    assert_eq!(deliver(&stranger, WITHIN).await, Err(Reason::Tls));
    let other = endpoint(
        &format!("https://other.example:{port}/"),
        &grants,
        here(),
        Some(CERTIFICATE.as_bytes()),
    );
    assert_eq!(deliver(&other, WITHIN).await, Err(Reason::Tls));
}
