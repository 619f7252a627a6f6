//! Whether a node that was attacked is as well as before.

use crate::{Node, PATIENCE, Raw, get};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

/// A mebibyte, in bytes.
pub const MIB: u64 = 1_024 * 1_024;
/// What a node may keep beyond what it had before, in bytes.
const MEMORY_LEEWAY: u64 = 64 * MIB;
/// What it may keep besides for each message that was stored meanwhile, in bytes: rows stay in the memory of the store until
/// they are as many as it holds, and channels until they are idle for minutes.
const MESSAGE_LEEWAY: u64 = 1_024;
/// What it may have open besides: files of its store.
const DESCRIPTORS_LEEWAY: usize = 20;

/// What a node has in use while nobody is connected.
#[derive(Clone, Copy, Debug)]
pub struct Vitals {
    process: u32,
    memory: u64,
    descriptors: usize,
    /// Messages stored since its start.
    stored: u64,
}

impl fmt::Display for Vitals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} MiB, {} descriptors, {} messages stored",
            self.memory / MIB,
            self.descriptors,
            self.stored
        )
    }
}

impl Vitals {
    /// Those of this node, once its last connection is gone.
    ///
    /// # Errors
    /// When connections stay, or the node has ended.
    pub fn of(node: &Node) -> Result<Self> {
        until("all connections are gone", || {
            Ok(node.counted("penstock_gateway_connections")? == 0)
        })?;
        Self::now(node)
    }

    fn now(node: &Node) -> Result<Self> {
        Ok(Self {
            process: node.process(),
            memory: node.resident_bytes()?,
            descriptors: node.descriptors()?,
            stored: node.counted("penstock_sends_committed_total")?,
        })
    }

    /// Demands that the node is as well as it was when these were taken: the same process, in which nothing panicked,
    /// with no more memory and descriptors but a leeway, that serves. Returns what it has now.
    ///
    /// # Errors
    /// What is not so. Of a node whose log is not kept, no panic can be excluded, which is an error too.
    pub fn hold(&self, node: &Node) -> Result<Self> {
        let log = node.log()?;
        let panic = log.lines().find(|line| line.contains("panicked"));
        ensure!(
            panic.is_none(),
            "the node panicked: {}",
            panic.unwrap_or_default()
        );
        still_serves(node, self.process, "after")?;
        let mut now = Self::of(node)?;
        // Memory goes back to the system a moment after it was freed.
        let deadline = Instant::now() + PATIENCE;
        while now.leaks(self) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(200));
            now = Self::now(node)?;
        }
        ensure!(!now.leaks(self), "before it had {self}, now {now}");
        Ok(now)
    }

    fn leaks(&self, before: &Self) -> bool {
        let stored = self.stored - before.stored;
        self.memory > before.memory + MEMORY_LEEWAY + stored * MESSAGE_LEEWAY
            || self.descriptors > before.descriptors + DESCRIPTORS_LEEWAY
    }
}

/// Demands that the node still serves: it is this process, admits a user, and stores what that user sends.
///
/// # Errors
/// What it does not do.
pub fn still_serves(node: &Node, process: u32, name: &str) -> Result<()> {
    ensure!(node.process() == process, "it is another process");
    let ready = get(node.http(), "/readyz").context("the node does not answer")?;
    ensure!(ready.status == 200, "not ready: {ready:?}");
    let mut alice = Raw::session(node.websocket(), name, name)?;
    let message =
        json!({ "channelId": "bob", "channelType": 1, "clientMsgNo": "", "payload": { "type": 1 } });
    alice.call("send", "send", &message)?;
    let answer = alice.answer("send")?;
    ensure!(answer["result"]["reasonCode"] == 1, "not stored: {answer}");
    Ok(())
}

/// Looks again and again until this holds.
///
/// # Errors
/// When it does not in time.
pub fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !holds()? {
        if Instant::now() > deadline {
            bail!("not within {PATIENCE:?}: {what}");
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
