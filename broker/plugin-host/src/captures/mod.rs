//! Captures: the inputs of calls that failed, for the author of the plugin.
//!
//! # Owns
//! The captures of every binding of this node, and how many there may be.
//!
//! # Invariants
//! - Nothing is kept of what the binding does not want kept, and what it does not want any more is forgotten.
//! - A token is never kept.
//! - There is a bound for one capture, for those of a binding and for all of them; the bytes that count are those that are held.
//! - A call that ends well costs nothing here, and a binding that fails all the time so much in a second.
//!
//! # Absent
//! Captures that outlive the process, and those of other nodes.

mod input;
#[cfg(test)]
mod tests;

pub use input::{Payloads, input_of};

use crate::instance::Prepared;
use crate::rates::Bucket;
use penstock_core::hooks::call::{Call, Failed, Returned, Version, Work};
use penstock_core::hooks::pipeline::Failure;
use penstock_core::hooks::registry::Captured;
use penstock_core::types::{ChannelKey, Seq, Uid};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Captures that are kept of a binding.
pub const CAPTURES_MAX: usize = 32;
/// Bytes of one capture.
pub const CAPTURE_BYTES_MAX: usize = 1 << 20;
/// Bytes of all captures of a node.
pub const CAPTURES_BYTES_MAX: usize = 16 << 20;
/// Captures that a binding may cost in a second, and at once.
const CAPTURES_PER_S: f64 = 5.0;
/// Longest text of an error, bytes: a backtrace of twenty frames with long names.
const ERROR_BYTES_MAX: usize = 8 << 10;
/// What a capture takes besides its texts, bytes.
const OVERHEAD_BYTES: usize = 512;
/// The class of a message that the guest says can never be done.
const POISON: &str = "poison";

/// A call that failed, and its input.
#[derive(Clone, Debug)]
pub struct Capture {
    /// Names it on this node: when it was taken, and a number.
    pub id: String,
    /// What ran.
    pub version: Version,
    /// The plugin.
    pub plugin: Arc<str>,
    /// The hook that was called.
    pub hook: &'static str,
    /// How it failed: the class of a call that failed, or `poison`.
    pub class: &'static str,
    /// What went wrong, with the guest's backtrace where there is one.
    pub error: Arc<str>,
    /// When it failed the last time, ms since 1970.
    pub at_ms: u64,
    /// How often: attempts that are repeated for the same messages are counted here.
    pub times: u64,
    /// How long the guest ran.
    pub took: Duration,
    /// How long it might have run.
    pub within: Duration,
    /// Whether the payloads are in the input.
    pub payloads: Payloads,
    /// The input in the form of a fixture, JSON.
    pub input: Arc<str>,
    which: Option<Which>,
}

impl Capture {
    fn bytes(&self) -> usize {
        self.input.len() + self.error.len() + OVERHEAD_BYTES
    }
}

/// How a call failed that is worth a capture.
pub(crate) struct Fault {
    class: &'static str,
    error: String,
    took: Duration,
}

impl Fault {
    /// The fault of a call that the guest is to blame for; none of one that went well, did not run, or is to be made again.
    pub(crate) fn of(returned: &Returned, error: Option<String>, took: Duration) -> Option<Fault> {
        let class = match returned {
            Err(Failed::Call(
                failure @ (Failure::Timeout
                | Failure::Trap
                | Failure::Memory
                | Failure::BadOutput
                | Failure::Host),
            )) => failure.name(),
            Err(Failed::Poison) => POISON,
            _ => return None,
        };
        Some(Fault {
            class,
            error: error.unwrap_or_default(),
            took,
        })
    }
}

/// Which messages or users a call is about that is made again when it fails.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Which {
    channel: Option<ChannelKey>,
    /// Of the channel, or the slot of users that came or went.
    incarnation: u64,
    first: Seq,
    last: Seq,
    uid: Option<Uid>,
}

impl Which {
    fn of(call: &Call) -> Option<Which> {
        let channel = call.channel.clone();
        let of = |incarnation: u64, first: Option<Seq>, last: Option<Seq>, uid: Option<&Uid>| {
            Some(Which {
                channel: channel.clone(),
                incarnation,
                first: first?,
                last: last?,
                uid: uid.cloned(),
            })
        };
        match &call.work {
            Work::BeforeSend { .. } | Work::Connect { .. } | Work::Route { .. } => None,
            Work::PersistAfter {
                incarnation,
                messages,
                ..
            } => {
                let seq = |message: &penstock_core::message::Message| message.seq;
                of(
                    incarnation.0,
                    messages.first().map(seq),
                    messages.last().map(seq),
                    None,
                )
            }
            Work::Offline {
                incarnation,
                message,
                uids,
            } => of(incarnation.0, Some(message.seq), Some(message.seq), uids.first()),
            Work::Webhook { window, uids, .. } => of(
                window.incarnation.0,
                Some(window.first),
                Some(window.last),
                uids.first(),
            ),
            Work::OnlineStatus(batch) => of(
                u64::from(batch.slot.0),
                Some(Seq(batch.number)),
                Some(Seq(batch.number)),
                None,
            ),
        }
    }
}

/// What is counted of a binding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureCounts {
    /// Captures that were taken.
    pub taken: u64,
    /// Failures that came too fast for one.
    pub dropped_rate: u64,
    /// Captures that were too large without their payloads.
    pub dropped_size: u64,
    /// Bytes that are held.
    pub bytes: usize,
}

/// The captures of a binding.
struct Shelf {
    captured: Captured,
    bucket: Bucket,
    /// The oldest first.
    captures: VecDeque<Capture>,
    counts: CaptureCounts,
}

impl Shelf {
    fn new(captured: Captured) -> Shelf {
        Shelf {
            captured,
            bucket: Bucket::full(CAPTURES_PER_S, Instant::now()),
            captures: VecDeque::new(),
            counts: CaptureCounts::default(),
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.captures.pop_front() {
            self.counts.bytes = self.counts.bytes.saturating_sub(oldest.bytes());
        }
    }

    fn clear(&mut self) -> usize {
        self.counts.bytes = 0;
        std::mem::take(&mut self.captures).len()
    }
}

#[derive(Default)]
struct Inner {
    shelves: BTreeMap<Arc<str>, Shelf>,
    numbers: u64,
}

impl Inner {
    fn bytes(&self) -> usize {
        self.shelves.values().map(|shelf| shelf.counts.bytes).sum()
    }

    /// Makes room for so many bytes. Who holds the most gives up its oldest: a binding that fails all the time takes nothing from
    /// one that failed once.
    fn make_room(&mut self, bytes: usize) {
        while self.bytes() + bytes > CAPTURES_BYTES_MAX {
            let most = self.shelves.values_mut().max_by_key(|shelf| shelf.counts.bytes);
            let Some(most) = most.filter(|shelf| !shelf.captures.is_empty()) else {
                return;
            };
            most.drop_oldest();
        }
    }
}

/// The captures of a node, newest last. They are gone with the process.
#[derive(Default)]
pub struct Captures(Mutex<Inner>);

impl std::fmt::Debug for Captures {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Captures").finish_non_exhaustive()
    }
}

impl Captures {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // It is whole between two statements, whatever a holder died of.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Captures for these bindings alone from now on, and of each what it wants. What a binding does not want kept any more is
    /// forgotten, and so is what belonged to one that is gone. Of a binding that was never named here nothing is captured.
    pub fn learn(&self, wanted: &BTreeMap<Arc<str>, Captured>) {
        let mut inner = self.lock();
        inner.shelves.retain(|binding, _| wanted.contains_key(binding));
        for (binding, captured) in wanted {
            let shelf = inner
                .shelves
                .entry(Arc::clone(binding))
                .or_insert_with(|| Shelf::new(*captured));
            if shelf.captured.keeps_more_than(*captured) {
                shelf.clear();
            }
            shelf.captured = *captured;
        }
    }

    /// Whether this failure is to be kept by [`Captures::keep`]. One that is known already is counted there.
    pub(crate) fn admit(&self, call: &Call, fault: &Fault) -> bool {
        self.admit_at(call, fault, Instant::now())
    }

    fn admit_at(&self, call: &Call, fault: &Fault, now: Instant) -> bool {
        let mut inner = self.lock();
        let Some(shelf) = inner.shelves.get_mut(&call.version.binding) else {
            return false;
        };
        if shelf.captured == Captured::Off {
            return false;
        }
        if let Some(which) = Which::of(call) {
            let is_known = |capture: &&mut Capture| {
                capture.class == fault.class
                    && capture.version == call.version
                    && capture.which.as_ref() == Some(&which)
            };
            if let Some(known) = shelf.captures.iter_mut().find(is_known) {
                known.times += 1;
                known.at_ms = now_ms();
                return false;
            }
        }
        let admitted = shelf.bucket.take(CAPTURES_PER_S, now);
        shelf.counts.dropped_rate += u64::from(!admitted);
        admitted
    }

    /// Keeps a failure that was admitted.
    pub(crate) fn keep(&self, call: &Call, prepared: &Prepared, fault: Fault) {
        let binding = &call.version.binding;
        let captured = match self.lock().shelves.get(binding) {
            Some(shelf) if shelf.captured != Captured::Off => shelf.captured,
            _ => return,
        };
        // Not within the lock: this copies what may be a megabyte.
        let (input, payloads) = input_of(call, &prepared.config, captured);
        let mut error = without_token(call, fault.error);
        error.truncate(error.floor_char_boundary(ERROR_BYTES_MAX));
        let capture = Capture {
            id: String::new(),
            version: call.version.clone(),
            plugin: Arc::clone(&prepared.plugin),
            hook: call.work.hook().name(),
            class: fault.class,
            error: Arc::from(error),
            at_ms: now_ms(),
            times: 1,
            took: fault.took,
            within: call.within,
            payloads,
            input: Arc::from(input.to_string()),
            which: Which::of(call),
        };
        self.put(capture, captured);
    }

    fn put(&self, mut capture: Capture, captured: Captured) {
        let bytes = capture.bytes();
        let mut inner = self.lock();
        let number = inner.numbers;
        let Some(shelf) = inner.shelves.get_mut(&capture.version.binding) else {
            return;
        };
        // Less may be wanted by now.
        if captured.keeps_more_than(shelf.captured) {
            return;
        }
        if bytes > CAPTURE_BYTES_MAX {
            shelf.counts.dropped_size += 1;
            return;
        }
        if shelf.captures.len() >= CAPTURES_MAX {
            shelf.drop_oldest();
        }
        inner.numbers += 1;
        inner.make_room(bytes);
        if let Some(shelf) = inner.shelves.get_mut(&capture.version.binding) {
            capture.id = format!("{}-{number}", capture.at_ms);
            shelf.counts.taken += 1;
            shelf.counts.bytes += bytes;
            shelf.captures.push_back(capture);
        }
    }

    /// A failure that was admitted is not kept after all, because nobody has time for it.
    pub(crate) fn pass_over(&self, binding: &str) {
        if let Some(shelf) = self.lock().shelves.get_mut(binding) {
            shelf.counts.dropped_rate += 1;
        }
    }

    /// The captures of a binding, newest first.
    #[must_use]
    pub fn list(&self, binding: &str) -> Vec<Capture> {
        let inner = self.lock();
        let captures = inner.shelves.get(binding).map(|shelf| &shelf.captures);
        captures.into_iter().flatten().rev().cloned().collect()
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, binding: &str, id: &str) -> Option<Capture> {
        let inner = self.lock();
        let mut captures = inner.shelves.get(binding)?.captures.iter();
        captures.find(|capture| capture.id == id).cloned()
    }

    /// Forgets those of a binding. How many there were.
    pub fn clear(&self, binding: &str) -> usize {
        self.lock().shelves.get_mut(binding).map_or(0, Shelf::clear)
    }

    /// What is counted of each binding.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<Arc<str>, CaptureCounts> {
        let inner = self.lock();
        let counts = inner.shelves.iter();
        counts
            .map(|(binding, shelf)| (Arc::clone(binding), shelf.counts))
            .collect()
    }
}

/// The text of an error without the token of who wanted to connect: a guest may have put it into its answer.
fn without_token(call: &Call, error: String) -> String {
    match &call.work {
        Work::Connect { request, .. } if !request.token.0.is_empty() => {
            error.replace(&*request.token.0, input::NO_TOKEN)
        }
        _ => error,
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
