//! A client of one user: a Node.js process with the SDK, or with a JSON-RPC session.

use crate::PATIENCE;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Instant;

/// The SDK's own number for "connected".
const CONNECTED: i64 = 1;

/// A client. It is killed when it is dropped.
#[derive(Debug)]
pub struct Client {
    child: Child,
    input: ChildStdin,
    events: Receiver<Value>,
    /// Events that were passed over while another was waited for.
    seen: Vec<Value>,
}

impl Client {
    /// The JavaScript SDK of this user, connected.
    ///
    /// # Errors
    /// When it cannot be started or is not admitted.
    pub fn sdk(address: &str, uid: &str, token: &str) -> Result<Self> {
        Self::start("sdk", address, uid, token)?.connected()
    }

    /// A JSON-RPC session of this user, connected.
    ///
    /// # Errors
    /// When it cannot be started or is not admitted.
    pub fn rpc(address: &str, uid: &str, token: &str) -> Result<Self> {
        Self::start("rpc", address, uid, token)?.connected()
    }

    fn start(kind: &str, address: &str, uid: &str, token: &str) -> Result<Self> {
        let mut child = Command::new("node")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("client.mjs"))
            .args([kind, address, uid, token])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("node cannot be started")?;
        let input = child.stdin.take().context("standard input")?;
        let output = child.stdout.take().context("standard output")?;
        let (sender, events) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::io::Result::ok) {
                let event = serde_json::from_str(&line).unwrap_or_else(|_| json!({ "line": line }));
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            child,
            input,
            events,
            seen: Vec::new(),
        })
    }

    fn connected(mut self) -> Result<Self> {
        let status = self.wait("status", |status| {
            status.as_i64().is_some_and(|status| status != 2)
        })?;
        if status == CONNECTED {
            Ok(self)
        } else {
            bail!("not admitted: status {status}, {:?}", self.seen)
        }
    }

    /// Sends a text.
    ///
    /// # Errors
    /// When the client has ended.
    pub fn send(&mut self, channel: &str, kind: u8, text: &str, client_msg_no: &str) -> Result<()> {
        let send = json!({ "channel": channel, "type": kind, "text": text, "clientMsgNo": client_msg_no });
        writeln!(self.input, "{}", json!({ "send": send })).context("the client has ended")
    }

    /// Starts the JavaScript SDK of this user without waiting for it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn sdk_unconnected(address: &str, uid: &str, token: &str) -> Result<Self> {
        Self::start("sdk", address, uid, token)
    }

    /// The next status that is not "connecting": 1 connected, 3 refused, 0 closed.
    ///
    /// # Errors
    /// When none comes in time.
    pub fn status(&mut self) -> Result<i64> {
        let status = self.wait("status", |status| {
            status.as_i64().is_some_and(|status| status != 2)
        })?;
        Ok(status.as_i64().unwrap_or_default())
    }

    /// Gives the client process a command.
    ///
    /// # Errors
    /// When the client has ended.
    pub fn command(&mut self, command: &Value) -> Result<()> {
        writeln!(self.input, "{command}").context("the client has ended")
    }

    /// The next event of this name.
    ///
    /// # Errors
    /// When none comes in time.
    pub fn event(&mut self, name: &str) -> Result<Value> {
        self.wait(name, |_| true)
    }

    /// The next acknowledgement of a send.
    ///
    /// # Errors
    /// When none comes in time.
    pub fn acknowledgement(&mut self) -> Result<Value> {
        self.wait("ack", |_| true)
    }

    /// The next message that the server pushed.
    ///
    /// # Errors
    /// When none comes in time.
    pub fn received(&mut self) -> Result<Value> {
        self.wait("received", |_| true)
    }

    /// The reason with which the server ended the session for good.
    ///
    /// # Errors
    /// When it does not in time.
    pub fn kicked(&mut self) -> Result<i64> {
        self.wait("kicked", |_| true)
            .map(|reason| reason.as_i64().unwrap_or_default())
    }

    /// The next event of this name that fits; others are kept for later.
    fn wait(&mut self, name: &str, fits: impl Fn(&Value) -> bool) -> Result<Value> {
        let wanted = |event: &Value| event.get(name).is_some_and(&fits);
        if let Some(place) = self.seen.iter().position(wanted) {
            return Ok(self.seen.remove(place)[name].take());
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(mut event) = self.events.recv_timeout(left) else {
                bail!("no `{name}` within {PATIENCE:?}; seen besides: {:?}", self.seen)
            };
            if wanted(&event) {
                return Ok(event[name].take());
            }
            self.seen.push(event);
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}
