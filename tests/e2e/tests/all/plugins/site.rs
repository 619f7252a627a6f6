//! A site of this machine that plugins ask: it keeps what came, and answers as the path says.

use anyhow::Result;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// A page with a title.
const PAGE: &str =
    "<html><head><title>A &amp; B</title><meta name=\"description\" content=\"What it says\"></head></html>";

/// A request as it came.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) method: String,
    pub(super) path: String,
    /// Names in small letters.
    pub(super) headers: BTreeMap<String, String>,
}

/// The site.
pub(super) struct Site {
    pub(super) address: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Site {
    pub(super) fn start() -> Result<Site> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let shared = Arc::clone(&seen);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let seen = Arc::clone(&shared);
                thread::spawn(move || {
                    // A connection that breaks is one that the broker closed.
                    let _ = serve(stream, &seen);
                });
            }
        });
        Ok(Site { address, seen })
    }

    /// A URL of it.
    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// What lets a plugin get all of it.
    pub(super) fn grants(&self) -> [String; 2] {
        [
            format!("http:GET,POST http://{}/", self.address),
            format!("egress:{}", self.address),
        ]
    }

    /// Everything that came so far.
    pub(super) fn seen(&self) -> Vec<Seen> {
        lock(&self.seen).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(stream: TcpStream, seen: &Mutex<Vec<Seen>>) -> Result<()> {
    let mut answers = stream.try_clone()?;
    let mut requests = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if requests.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut words = line.split(' ').map(str::to_owned);
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let mut headers: BTreeMap<String, String> = BTreeMap::new();
        loop {
            let mut line = String::new();
            requests.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else {
                break;
            };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let length = headers
            .get("content-length")
            .map_or(Ok(0), |length| length.parse())?;
        requests.read_exact(&mut vec![0; length])?;
        let answer = answer(&path);
        lock(seen).push(Seen {
            method,
            path,
            headers,
        });
        answers.write_all(answer.as_bytes())?;
    }
}

fn answer(path: &str) -> String {
    let of =
        |head: &str, body: &str| format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    match path {
        "/page" => of("200 OK\r\ncontent-type: text/html", PAGE),
        "/large" => of("200 OK", &"x".repeat((1 << 20) + 1)),
        "/inside" => of("302 Found\r\nlocation: http://169.254.169.254/latest", ""),
        "/flood" => format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(1 << 20)),
        "/hang" => {
            thread::sleep(Duration::from_secs(30));
            String::new()
        }
        _ => of("200 OK", "fine"),
    }
}
