//! A node: the real binary in a process of its own, with a data directory of its own.

use crate::{PATIENCE, get};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::env;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The name of a log that is kept.
const LOG: &str = "penstock.log";

/// A running node. It is killed when it is dropped.
#[derive(Debug)]
pub struct Node {
    child: Child,
    data: TempDir,
    arguments: Vec<String>,
    dev: bool,
    /// Where its log goes, if not to the log of the test.
    log: Option<TempDir>,
    ready: Value,
}

impl Node {
    /// Starts a node that demands tokens and an API key, with this SHA-256 of the key. Further arguments go to
    /// `penstock serve`.
    ///
    /// # Errors
    /// When the binary is missing or the node does not become ready.
    pub fn start_guarded(api_key_sha256: &str, further: &[&str]) -> Result<Self> {
        Self::begin(Some(api_key_sha256), further, None)
    }

    fn begin(api_key_sha256: Option<&str>, further: &[&str], log: Option<TempDir>) -> Result<Self> {
        let data = tempfile::tempdir().context("a data directory")?;
        let key = api_key_sha256.map(|hash| format!("auth.api_key_sha256={hash:?}"));
        let arguments: Vec<String> = key
            .into_iter()
            .flat_map(|key| ["--set".to_owned(), key])
            .chain(further.iter().map(|&argument| argument.to_owned()))
            .collect();
        let dev = api_key_sha256.is_none();
        let path = log.as_ref().map(|folder| folder.path().join(LOG));
        let (child, ready) = launch(data.path(), &arguments, dev, path.as_deref())?;
        Ok(Self {
            child,
            data,
            arguments,
            dev,
            log,
            ready,
        })
    }

    /// The line that it printed when it was ready.
    pub fn ready_line(&self) -> String {
        self.ready.to_string()
    }

    /// Host and port of its TCP listener.
    pub fn tcp(&self) -> &str {
        self.ready["tcp"].as_str().unwrap_or_default()
    }

    /// Kills it without warning while others still talk to it; it is reaped at its restart.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub fn kill_shared(&self) -> Result<()> {
        let killed = Command::new("kill")
            .args(["-9", &self.child.id().to_string()])
            .status()
            .context("kill")?;
        if killed.success() {
            Ok(())
        } else {
            bail!("the node cannot be killed")
        }
    }

    /// Kills it without warning.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().context("the node cannot be killed")?;
        self.child.wait().context("the node cannot be waited for")?;
        Ok(())
    }

    /// Starts it again on the same data.
    ///
    /// # Errors
    /// When it does not become ready again.
    pub fn restart(&mut self) -> Result<()> {
        self.child.wait().context("the node cannot be waited for")?;
        let log = self.log.as_ref().map(|folder| folder.path().join(LOG));
        (self.child, self.ready) = launch(self.data.path(), &self.arguments, self.dev, log.as_deref())?;
        Ok(())
    }

    /// Starts a development node on free ports and waits until it is ready. Further arguments go to `penstock serve`.
    ///
    /// # Errors
    /// When the binary is missing or the node does not become ready.
    pub fn start(arguments: &[&str]) -> Result<Self> {
        Self::begin(None, arguments, None)
    }

    /// Starts a node whose log is kept for [`Node::log`]: a guarded one with the SHA-256 of its API key, otherwise one for
    /// development.
    ///
    /// # Errors
    /// When the binary is missing or the node does not become ready.
    pub fn start_logged(api_key_sha256: Option<&str>, further: &[&str]) -> Result<Self> {
        let log = tempfile::tempdir().context("a log directory")?;
        Self::begin(api_key_sha256, further, Some(log))
    }

    /// What it has logged since it was started with [`Node::start_logged`].
    ///
    /// # Errors
    /// When its log is not kept.
    pub fn log(&self) -> Result<String> {
        let folder = self.log.as_ref().context("the log is not kept")?;
        let bytes = fs::read(folder.path().join(LOG)).context("the log cannot be read")?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Its data directory.
    pub fn data(&self) -> &Path {
        self.data.path()
    }

    /// The id of its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// The memory that it has in use, in bytes.
    ///
    /// # Errors
    /// When it has ended.
    pub fn resident_bytes(&self) -> Result<u64> {
        self.memory("VmRSS:")
    }

    /// The most memory that it has had in use since it was started, in bytes.
    ///
    /// # Errors
    /// When it has ended.
    pub fn resident_bytes_peak(&self) -> Result<u64> {
        self.memory("VmHWM:")
    }

    fn memory(&self, name: &str) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|rest| rest.split_whitespace().next());
        Ok(number.with_context(|| format!("no {name}"))?.parse::<u64>()? * 1_024)
    }

    /// How many files and sockets it has open.
    ///
    /// # Errors
    /// When it has ended.
    pub fn descriptors(&self) -> Result<usize> {
        Ok(fs::read_dir(format!("/proc/{}/fd", self.process()))?.count())
    }

    /// The value of a series of a development node's metrics, named with its labels.
    ///
    /// # Errors
    /// When there is no such series.
    pub fn counted(&self, series: &str) -> Result<u64> {
        let page = get(self.http(), "/metrics")?.text;
        let value = page
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        let value = value.with_context(|| format!("no series {series}"))?;
        value.parse().context("a whole number")
    }

    /// How many connections were closed for this reason.
    ///
    /// # Errors
    /// When there is no such reason.
    pub fn closed(&self, reason: &str) -> Result<u64> {
        self.counted(&format!("penstock_gateway_closed_total{{reason=\"{reason}\"}}"))
    }

    /// How many connections were closed, by reason; reasons that never came are left out.
    ///
    /// # Errors
    /// When its metrics cannot be read.
    pub fn closes(&self) -> Result<BTreeMap<String, u64>> {
        let page = get(self.http(), "/metrics")?.text;
        let lines = page.lines().filter_map(|line| {
            line.strip_prefix("penstock_gateway_closed_total{reason=\"")?
                .split_once("\"} ")
        });
        let counted = lines.map(|(reason, count)| Ok((reason.to_owned(), count.parse()?)));
        let counted: Result<BTreeMap<String, u64>> = counted.collect();
        Ok(counted?.into_iter().filter(|(_, count)| *count > 0).collect())
    }

    /// Where it listens for WebSockets.
    pub fn websocket(&self) -> &str {
        self.ready["ws"].as_str().unwrap_or_default()
    }

    /// Host and port of its HTTP API.
    pub fn http(&self) -> &str {
        self.ready["http"]
            .as_str()
            .unwrap_or_default()
            .trim_start_matches("http://")
    }

    /// The arguments with which it keeps its ports over a restart.
    pub fn same_ports(&self) -> Vec<String> {
        let websocket = self.websocket().trim_start_matches("ws://");
        [("gateway.ws_listen", websocket), ("http.listen", self.http())]
            .into_iter()
            .flat_map(|(key, address)| ["--set".to_owned(), format!("{key}={address:?}")])
            .collect()
    }

    /// Kills it without warning and starts it again on the same data; it gets new ports.
    ///
    /// # Errors
    /// When it does not become ready again.
    pub fn kill_and_restart(&mut self) -> Result<()> {
        self.kill()?;
        self.restart()
    }

    /// Kills it and starts it on the same data with other arguments.
    ///
    /// # Errors
    /// When it does not become ready again.
    pub fn restart_with(&mut self, arguments: &[&str]) -> Result<()> {
        self.arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        self.kill_and_restart()
    }

    /// Asks it to end, as a service manager does, and waits for that.
    ///
    /// # Errors
    /// When it does not end in time.
    pub fn terminate(&mut self) -> Result<ExitStatus> {
        let id = self.child.id();
        Command::new("sh")
            .args(["-c", &format!("kill -TERM {id}")])
            .status()
            .context("kill")?;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().context("the node cannot be waited for")? {
                return Ok(status);
            }
            thread::sleep(Duration::from_millis(20));
        }
        bail!("the node did not end within {PATIENCE:?} of SIGTERM")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn launch(data: &Path, arguments: &[String], dev: bool, log: Option<&Path>) -> Result<(Child, Value)> {
    let binary = binary()?;
    let log = match log {
        Some(path) => {
            let opened = OpenOptions::new().create(true).append(true).open(path);
            Stdio::from(opened.context("the log cannot be written")?)
        }
        None => Stdio::inherit(),
    };
    let ports = ["gateway.tcp_listen", "gateway.ws_listen", "http.listen"];
    let mut child = Command::new(&binary)
        .arg("serve")
        .args(dev.then_some("--dev"))
        .arg("--data-dir")
        .arg(data)
        .args(
            ports
                .iter()
                .flat_map(|key| ["--set".to_owned(), format!("{key}=\"127.0.0.1:0\"")]),
        )
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .with_context(|| format!("{} cannot be started", binary.display()))?;
    let line = first_line(&mut child)?;
    match serde_json::from_str::<Value>(&line) {
        Ok(ready) if ready["ready"] == true => Ok((child, ready)),
        _ => {
            let _ended_already = child.kill();
            bail!("not a ready line: {line:?}; the node's log is above")
        }
    }
}

/// The first line that a node prints, its ready line when all is well.
///
/// # Errors
/// When it prints none in time.
pub fn first_line(child: &mut Child) -> Result<String> {
    let output = child.stdout.take().context("standard output")?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line);
        let _nobody_waits = sender.send(read.map(|_| line));
    });
    let line = receiver.recv_timeout(PATIENCE);
    Ok(line.context("the node printed no ready line")??)
}

/// The binary stands beside a program that was built with it, and in the folder above the one that a test runs from.
///
/// # Errors
/// When it is not built.
pub fn binary() -> Result<PathBuf> {
    let program = env::current_exe().context("the path of this program")?;
    let folders = program.ancestors().skip(1).take(2);
    let mut places = folders.map(|folder| folder.join("penstock"));
    let found = places.find(|binary| binary.is_file());
    found.with_context(|| {
        format!(
            "there is no penstock beside {} or above it; build it first: cargo build -p penstock",
            program.display()
        )
    })
}
