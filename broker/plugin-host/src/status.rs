//! What is counted of a version, and the lines that it logged.

use crate::rates::Bucket;
use penstock_core::hooks::call::Version;
use penstock_core::hooks::pipeline::Failure;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Lines that are kept of a version.
const LINES_MAX: usize = 1_000;
/// Longest text of a line with its fields, bytes.
const LINE_BYTES_MAX: usize = 4 << 10;
/// Lines per second, and at once.
const LINES_PER_S: f64 = 100.0;
/// Counters of a plugin's own, and longest name of one.
const COUNTERS_MAX: usize = 32;
const COUNTER_BYTES_MAX: usize = 64;

/// A line that a plugin logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Counts the lines of this version.
    pub number: u64,
    /// When, ms since 1970, as the plugin sees the time.
    pub at_ms: u64,
    /// trace, debug, info, warn or error.
    pub level: &'static str,
    /// Text and fields.
    pub text: String,
}

/// The last lines of a version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Logs {
    /// In order.
    pub lines: Vec<LogLine>,
    /// Lines that came too fast and were dropped.
    pub dropped: u64,
}

/// What is counted of one version.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VersionStatus {
    /// Calls that ended, well or not.
    pub calls: u64,
    /// Messages of these calls.
    pub messages: u64,
    /// Those of them that ran on the thread of the caller, because the version has proved to be quick.
    pub calls_inline: u64,
    /// Whether its calls may run there now.
    pub inline: bool,
    /// How often it earned that.
    pub promotions: u64,
    /// How often it lost that, by reason.
    pub demotions: BTreeMap<&'static str, u64>,
    /// Calls that failed, by class.
    pub failures: BTreeMap<Failure, u64>,
    /// Time inside guests, s.
    pub guest_s: f64,
    /// The part of it that guests waited for what they asked the broker: keys, messages, places outside.
    pub host_s: f64,
    /// Bytes that went to guests: frames, bodies and uids.
    pub bytes_in: u64,
    /// Bytes that came back: frames, changes of keys, requests and bodies.
    pub bytes_out: u64,
    /// Time between the wish to call and its start, s.
    pub queue_s: f64,
    /// Instances that were made.
    pub created: u64,
    /// Instances that are gone, for whatever reason: what was made and is not gone lives.
    pub ended: u64,
    /// Instances that were dropped, by reason.
    pub retired: BTreeMap<&'static str, u64>,
    /// Highest memory of one instance after a call, bytes.
    pub memory_high: u64,
    /// By how much the memory of instances grew in calls, bytes: a plugin that leaks grows by as much in every call.
    pub memory_grown: u64,
    /// Operations on keys that guests asked for.
    pub key_operations: u64,
    /// Those of them that failed, by reason.
    pub key_errors: BTreeMap<&'static str, u64>,
    /// Requests over HTTP by outcome: the class of the status, or why there was no answer.
    pub http_requests: BTreeMap<&'static str, u64>,
    /// Time that they took, s.
    pub http_s: f64,
    /// Values of the operator that guests were shown.
    pub secrets_revealed: u64,
    /// Messages that guests published: committed, or found again by their number.
    pub published: u64,
    /// Those that they could not, by reason.
    pub publish_errors: BTreeMap<&'static str, u64>,
    /// Reads of messages.
    pub reads: u64,
    /// Those that failed, by reason.
    pub read_errors: BTreeMap<&'static str, u64>,
    /// Lines that were dropped.
    pub lines_dropped: u64,
    /// The plugin's own counters.
    pub counters: BTreeMap<String, u64>,
}

/// What one call has used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Memory of the instance after it, bytes; 0 when it did not run.
    pub(crate) memory: u64,
    /// By how much it has grown.
    pub(crate) grown: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
}

impl VersionStatus {
    pub(crate) fn charge(&mut self, usage: &Usage) {
        self.memory_high = self.memory_high.max(usage.memory);
        self.memory_grown += usage.grown;
        self.bytes_in += usage.bytes_in;
        self.bytes_out += usage.bytes_out;
    }
}

/// Instances, memories and tables of the pool that all plugins share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolStatus {
    /// Components that run.
    pub instances: u64,
    /// Their linear memories.
    pub memories: u64,
    /// Their tables.
    pub tables: u64,
    /// Memories that nobody uses, kept for the next instance of the same plugin.
    pub memories_warm: u64,
    /// What those keep of the machine's memory, bytes.
    pub resident_bytes: u64,
}

/// What is counted of all versions that are loaded.
pub type Status = Vec<(Version, VersionStatus)>;

/// Counts and lines of one version, shared by its instances.
#[derive(Debug)]
pub(crate) struct Board {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    status: VersionStatus,
    lines: VecDeque<LogLine>,
    next_line: u64,
    bucket: Bucket,
}

impl Board {
    pub(crate) fn new() -> Board {
        Board {
            inner: Mutex::new(Inner {
                status: VersionStatus::default(),
                lines: VecDeque::new(),
                next_line: 0,
                bucket: Bucket::full(LINES_PER_S, Instant::now()),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Counts stay usable whatever happened to who held them.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut VersionStatus)) {
        change(&mut self.lock().status);
    }

    pub(crate) fn status(&self) -> VersionStatus {
        self.lock().status.clone()
    }

    /// Keeps a line, unless they come too fast.
    pub(crate) fn log(&self, level: &'static str, at_ms: u64, mut text: String) {
        let mut inner = self.lock();
        if !inner.bucket.take(LINES_PER_S, Instant::now()) {
            inner.status.lines_dropped += 1;
            return;
        }
        text.truncate(text.floor_char_boundary(LINE_BYTES_MAX));
        if inner.lines.len() == LINES_MAX {
            inner.lines.pop_front();
        }
        let number = inner.next_line;
        inner.next_line += 1;
        inner.lines.push_back(LogLine {
            number,
            at_ms,
            level,
            text,
        });
    }

    pub(crate) fn logs(&self, from: u64) -> Logs {
        let inner = self.lock();
        Logs {
            lines: inner
                .lines
                .iter()
                .filter(|line| line.number >= from)
                .cloned()
                .collect(),
            dropped: inner.status.lines_dropped,
        }
    }

    /// Adds to a counter of the plugin's own; whether there was room for its name.
    pub(crate) fn add(&self, name: &str, value: u64) -> bool {
        let counters = &mut self.lock().status.counters;
        if let Some(counter) = counters.get_mut(name) {
            *counter = counter.saturating_add(value);
            return true;
        }
        let room = counters.len() < COUNTERS_MAX && name.len() <= COUNTER_BYTES_MAX && !name.is_empty();
        if room {
            counters.insert(name.to_owned(), value);
        }
        room
    }
}
