//! Requests whose answers are read, against servers on this machine.

use bytes::Bytes;
use penstock_egress::{ANSWER_BYTES_MAX, Answer, Client, Grants, Question, Reason, SystemResolver};
use penstock_egress::{Target, Tls, Unanswered};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const WITHIN: Duration = Duration::from_secs(5);

/// A server that answers by the path of a request.
struct Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    /// Requests at the same time, the most so far.
    most: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

#[derive(Clone, Default)]
struct Counts {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

async fn server() -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let address = listener.local_addr().expect("bound");
    let connections = Arc::new(AtomicUsize::new(0));
    let counts = Counts::default();
    let (most, requests) = (Arc::clone(&counts.most), Arc::clone(&counts.requests));
    let accepted = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            accepted.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(serve(stream, counts.clone()));
        }
    });
    Server {
        address,
        connections,
        most,
        requests,
    }
}

async fn serve(mut stream: TcpStream, counts: Counts) {
    let mut seen = Vec::new();
    let mut bytes = [0; 4_096];
    let mut before = 0;
    while let Ok(count @ 1..) = stream.read(&mut bytes).await {
        seen.extend_from_slice(&bytes[..count]);
        let head = String::from_utf8_lossy(&seen).into_owned();
        let Some((head, body)) = head.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        if body.len() < length.and_then(|length| length.parse().ok()).unwrap_or(0) {
            continue;
        }
        counts.requests.fetch_add(1, Ordering::SeqCst);
        let now = counts.now.fetch_add(1, Ordering::SeqCst) + 1;
        counts.most.fetch_max(now, Ordering::SeqCst);
        let path = head.split(' ').nth(1).unwrap_or_default();
        let answer = match path {
            "/large" => of(&"x".repeat(ANSWER_BYTES_MAX + 1)),
            "/whole" => of(&"x".repeat(ANSWER_BYTES_MAX)),
            "/hang" => {
                tokio::time::sleep(Duration::from_secs(60)).await;
                return;
            }
            "/slow" => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                of("slow")
            }
            "/cut" => "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\ncut".to_owned(),
            "/moved" => {
                "HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n"
                    .to_owned()
            }
            "/once" if before > 0 => String::new(),
            _ => of(&format!("{head}\n{body}")),
        };
        before += 1;
        counts.now.fetch_sub(1, Ordering::SeqCst);
        if stream.write_all(answer.as_bytes()).await.is_err() || answer.is_empty() || path == "/cut" {
            return;
        }
        seen.clear();
    }
}

fn of(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nX-Of: test\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn client() -> Client {
    Client::new(Tls::new(None).expect("trust"), Arc::new(SystemResolver))
}

fn question(method: &str, url: &str) -> Question {
    Question {
        method: method.to_owned(),
        target: Target::parse(url).expect("a URL"),
        headers: vec![("x-more".to_owned(), "more".to_owned())],
        body: Bytes::new(),
    }
}

fn grants(server: &Server) -> Grants {
    let grant = format!("egress:{}", server.address);
    Grants::parse([grant.as_str()]).expect("a grant")
}

async fn ask(client: &Client, server: &Server, method: &str, path: &str) -> Result<Answer, Unanswered> {
    let url = format!("http://{}{path}", server.address);
    client.ask(&question(method, &url), &grants(server), WITHIN).await
}

fn reason(unanswered: Unanswered) -> Option<Reason> {
    match unanswered {
        Unanswered::Trouble(trouble) => Some(trouble.reason),
        Unanswered::TooLarge(_) => None,
    }
}

#[tokio::test]
async fn an_answer_is_read_and_its_connection_used_again() {
    let (client, server) = (client(), server().await);
    for _ in 0..3 {
        let answer = ask(&client, &server, "GET", "/a?b=c").await.expect("an answer");
        let text = String::from_utf8(answer.body.to_vec()).expect("text");
        assert!(
            text.starts_with("GET /a?b=c HTTP/1.1")
                && text.contains("x-more: more")
                && !text.contains("content-length"),
            "{text}"
        );
        assert_eq!(answer.status, 200);
        assert!(answer.headers.contains(&("x-of".to_owned(), "test".to_owned())));
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
    let url = format!("http://{}/", server.address);
    let post = Question {
        body: Bytes::from_static(b"the body"),
        ..question("POST", &url)
    };
    let answer = client
        .ask(&post, &grants(&server), WITHIN)
        .await
        .expect("an answer");
    assert!(answer.body.ends_with(b"the body"));
}

#[tokio::test]
async fn what_is_too_large_cut_slow_or_moved() {
    let (client, server) = (client(), server().await);
    let whole = ask(&client, &server, "GET", "/whole").await.expect("an answer");
    assert_eq!(whole.body.len(), ANSWER_BYTES_MAX);
    assert_eq!(
        ask(&client, &server, "GET", "/large").await.map_err(reason),
        Err(None)
    );
    let cut = ask(&client, &server, "GET", "/cut").await;
    assert!(cut.is_err(), "{cut:?}");
    let url = format!("http://{}/hang", server.address);
    let hung = client
        .ask(
            &question("GET", &url),
            &grants(&server),
            Duration::from_millis(200),
        )
        .await;
    assert_eq!(hung.map_err(reason), Err(Some(Reason::Timeout)));
    let moved = ask(&client, &server, "GET", "/moved").await.expect("an answer");
    assert_eq!(moved.status, 302);
}

/// A connection is kept for all, but each may use it only within grants of its own.
#[tokio::test]
async fn grants_of_others_do_not_count() {
    let (client, server) = (client(), server().await);
    ask(&client, &server, "GET", "/").await.expect("an answer");
    let url = format!("http://{}/", server.address);
    let none = Grants::default();
    let refused = client.ask(&question("GET", &url), &none, WITHIN).await;
    assert_eq!(refused.map_err(reason), Err(Some(Reason::Forbidden)));
    // A name that is granted to one leads to where it is not granted to another.
    let port = server.address.port();
    let url = format!("http://localhost:{port}/");
    let one = Grants::parse([format!("egress:localhost:{port}").as_str()]).expect("a grant");
    client
        .ask(&question("GET", &url), &one, WITHIN)
        .await
        .expect("an answer");
    let before = server.requests.load(Ordering::SeqCst);
    let https = format!("https://localhost:{port}/");
    let refused = client.ask(&question("GET", &https), &none, WITHIN).await;
    assert_eq!(refused.map_err(reason), Err(Some(Reason::Forbidden)));
    assert_eq!(server.requests.load(Ordering::SeqCst), before);
}

#[tokio::test]
async fn a_connection_that_was_closed_is_replaced_for_what_may_be_sent_twice() {
    let (client, server) = (client(), server().await);
    ask(&client, &server, "GET", "/once").await.expect("an answer");
    ask(&client, &server, "GET", "/once")
        .await
        .expect("over a fresh one");
    assert_eq!(server.connections.load(Ordering::SeqCst), 2);
    // A request that may have been taken is not sent again.
    let requests = server.requests.load(Ordering::SeqCst);
    let lost = ask(&client, &server, "POST", "/once").await;
    assert_eq!(lost.map_err(reason), Err(Some(Reason::Connect)));
    assert_eq!(server.requests.load(Ordering::SeqCst), requests + 1);
}

#[tokio::test]
async fn a_place_gets_so_many_requests_at_a_time() {
    let (client, server) = (Arc::new(client()), server().await);
    let asked: Vec<_> = (0..40)
        .map(|_| {
            let client = Arc::clone(&client);
            let question = question("GET", &format!("http://{}/slow", server.address));
            let grants = grants(&server);
            tokio::spawn(async move { client.ask(&question, &grants, WITHIN).await.is_ok() })
        })
        .collect();
    for one in asked {
        assert!(one.await.expect("no panic"));
    }
    let most = server.most.load(Ordering::SeqCst);
    assert!((2..=8).contains(&most), "{most}");
    assert!(server.connections.load(Ordering::SeqCst) <= 8);
}
