//! An endpoint that verifies what it gets as Standard Webhooks says, keeps it, and answers as its script says.

use anyhow::{Context as _, Result};
use serde_json::Value;
use standardwebhooks::Webhook;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What the endpoint answers.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// This status.
    Status(u16),
    /// 503, and the wish to be left alone for so many seconds.
    Later(u64),
    /// The wish that the request goes elsewhere.
    Elsewhere(String),
    /// Nothing, for so long.
    Hang(Duration),
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) at: Instant,
    pub(super) path: String,
    pub(super) id: String,
    /// Which of the receiver's secrets verify it, in their order.
    pub(super) verified: Vec<bool>,
    /// Those of `msg.notify`, or the one of `msg.offline`.
    pub(super) messages: Vec<Value>,
    /// Whether it was answered with 2xx.
    pub(super) taken: bool,
}

type Script = Box<dyn FnMut(usize) -> Answer + Send>;

struct State {
    secrets: Vec<String>,
    seen: Mutex<Vec<Seen>>,
    script: Mutex<Script>,
}

/// The endpoint.
pub(super) struct Receiver {
    address: String,
    state: Arc<State>,
}

impl Receiver {
    /// One with these secrets, which answers the nth request (from 0) by this script.
    pub(super) fn start(
        secrets: &[&str],
        script: impl FnMut(usize) -> Answer + Send + 'static,
    ) -> Result<Receiver> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let state = Arc::new(State {
            secrets: secrets.iter().map(|&secret| secret.to_owned()).collect(),
            seen: Mutex::default(),
            script: Mutex::new(Box::new(script)),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&shared);
                thread::spawn(move || {
                    // A connection that breaks is one that the broker closed.
                    let _ = state.serve(stream);
                });
            }
        });
        Ok(Receiver { address, state })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/in?token=t", self.address)
    }

    pub(super) fn grant(&self) -> String {
        format!("egress:{}", self.address)
    }

    /// Everything that came so far.
    pub(super) fn seen(&self) -> Vec<Seen> {
        lock(&self.state.seen).clone()
    }

    /// From now on it answers by this script.
    pub(super) fn script(&self, script: impl FnMut(usize) -> Answer + Send + 'static) {
        *lock(&self.state.script) = Box::new(script);
    }

    /// Positions of the messages in the requests that were taken, in the order in which they came.
    pub(super) fn taken(&self, channel: &str) -> Vec<u64> {
        let seen = self.seen();
        let taken = seen.iter().filter(|seen| seen.taken);
        taken
            .flat_map(|seen| &seen.messages)
            .filter(|message| message["channel_id"] == channel)
            .filter_map(|message| message["message_seq"].as_u64())
            .collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn serve(&self, stream: TcpStream) -> Result<()> {
        let mut answers = stream.try_clone()?;
        let mut requests = BufReader::new(stream);
        loop {
            let mut line = String::new();
            if requests.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let path = line.split(' ').nth(1).context("a path")?.to_owned();
            let mut headers: BTreeMap<String, String> = BTreeMap::new();
            loop {
                let mut line = String::new();
                requests.read_line(&mut line)?;
                let Some((name, value)) = line.trim_end().split_once(':') else {
                    break;
                };
                headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
            }
            let length: usize = headers.get("content-length").context("a length")?.parse()?;
            let mut body = vec![0; length];
            requests.read_exact(&mut body)?;
            self.take(path, &headers, &body, &mut answers)?;
        }
    }

    fn take(
        &self,
        path: String,
        headers: &BTreeMap<String, String>,
        body: &[u8],
        answers: &mut TcpStream,
    ) -> Result<()> {
        let at = Instant::now();
        let verified = self
            .secrets
            .iter()
            .map(|secret| verifies(secret, headers, body))
            .collect();
        let messages = match serde_json::from_slice(body)? {
            Value::Array(messages) => messages,
            one => vec![one],
        };
        let answer = {
            let mut seen = lock(&self.seen);
            let answer = (lock(&self.script))(seen.len());
            seen.push(Seen {
                at,
                path,
                id: headers.get("webhook-id").cloned().unwrap_or_default(),
                verified,
                messages,
                taken: matches!(answer, Answer::Status(200..=299)),
            });
            answer
        };
        let text = match answer {
            Answer::Status(status) => format!("HTTP/1.1 {status} X\r\ncontent-length: 2\r\n\r\nok"),
            Answer::Later(seconds) => {
                format!("HTTP/1.1 503 X\r\nretry-after: {seconds}\r\ncontent-length: 0\r\n\r\n")
            }
            Answer::Elsewhere(url) => {
                format!("HTTP/1.1 307 X\r\nlocation: {url}\r\ncontent-length: 0\r\n\r\n")
            }
            Answer::Hang(time) => {
                thread::sleep(time);
                return Ok(());
            }
        };
        Ok(answers.write_all(text.as_bytes())?)
    }
}

/// Whether the crate of the standard verifies it.
fn verifies(secret: &str, headers: &BTreeMap<String, String>, body: &[u8]) -> bool {
    let mut map = http::HeaderMap::new();
    for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        let value = headers.get(name).and_then(|value| value.parse().ok());
        if let Some(value) = value {
            map.insert(name, value);
        }
    }
    Webhook::new(secret).is_ok_and(|webhook| webhook.verify(body, &map).is_ok())
}
