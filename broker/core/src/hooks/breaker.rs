//! Breakers: a version that fails again and again is left alone for a while.
//!
//! # Owns
//! For each version that has failed lately, how its calls ended and whether it may be called. One value per shard: a shard
//! shares nothing, and sees failures of its own calls alone.
//!
//! # Invariants
//! - An open breaker lets no call through before its pause is over; after it, one call at a time, until one has ended well.
//! - What says nothing of the code (no room to run it, not loaded) changes nothing. Nor does one stored message that fails again
//!   and again: that it cannot be done is known, and it ends as a dead letter.
//! - A version that is not called any more is forgotten: when it comes back, it starts afresh.
//!
//! # States
//! closed → open (failures) → half-open (pause over, one probe) → closed (the probe ended well) or open again, for twice as long.
//!
//! # Absent
//! What is answered instead of a call (the binding's policy), and what becomes of a version whose breaker does not close on
//! many nodes (the controller).

use super::call::Version;
use super::faults::Faults;
use crate::plugins::Failure;
use crate::types::{ChannelKey, Now, Seq};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// So many failures within [`WINDOW`] open a breaker, however many calls went well beside them.
pub const FAILURES_MAX: usize = 5;
/// See [`FAILURES_MAX`]; and closed for so long, a breaker has recovered.
pub const WINDOW: Duration = Duration::from_secs(10);
/// When half of the last so many calls failed, a breaker opens, however long they took to come.
pub const CALLS: u32 = 20;
/// How long a breaker stays open for the first time; doubles each time that it opens again without having recovered.
pub const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// Longest pause.
pub const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A version whose breaker opened so often without having recovered is given up by its node: it was tried again, and is no better.
pub const GIVEN_UP_AFTER: u32 = 3;

/// Messages that are remembered because a call failed at them, of each version.
const HEADS_MAX: usize = 64;

/// The first message of a call after the commit: it comes again when the call failed.
pub type Head = (ChannelKey, Seq);

/// Whether a version is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It is.
    Closed,
    /// By one call at a time.
    HalfOpen,
    /// It is not, until the pause is over and somebody wants to call it.
    Open,
}

impl State {
    /// Its name, as people read it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            State::Closed => "closed",
            State::HalfOpen => "half-open",
            State::Open => "open",
        }
    }
}

/// What became of a breaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Of which version.
    pub version: Version,
    /// Its state from now on.
    pub state: State,
    /// How often it has opened without having recovered.
    pub openings: u32,
    /// The failure that opened it last.
    pub cause: Failure,
}

impl Change {
    /// Whether the version is given up here.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        self.state != State::Closed && self.openings >= GIVEN_UP_AFTER
    }
}

/// Names the one call that may end a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe(u64);

/// Whether a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is; its end is to be told with this probe.
    Call(Option<Probe>),
    /// It is not.
    Suspended,
}

/// How a call ended, as far as it speaks of the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The code ran to its end. What it wants (to be asked again, poison) is its own business.
    Good,
    /// It did not.
    Bad(Failure),
    /// It did not run.
    Untold,
}

impl Outcome {
    /// What a failed call says.
    #[must_use]
    pub fn of(failure: Failure) -> Outcome {
        match failure {
            Failure::Timeout | Failure::Trap | Failure::Memory | Failure::BadOutput | Failure::Host => {
                Outcome::Bad(failure)
            }
            Failure::Busy | Failure::NotReady | Failure::Suspended => Outcome::Untold,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Closed,
    Open {
        until: Duration,
    },
    /// No probe is out when the last one said nothing.
    HalfOpen {
        probe: Option<Probe>,
    },
}

#[derive(Debug)]
struct Breaker {
    phase: Phase,
    /// When the last failures were told, the oldest first.
    failures: VecDeque<Duration>,
    /// How the last calls ended, the newest in the lowest bit; 1 is a failure.
    recent: u32,
    /// How many of these bits count.
    calls: u32,
    /// Messages at which calls failed.
    heads: VecDeque<Head>,
    openings: u32,
    closed_at: Duration,
    cause: Failure,
}

impl Breaker {
    fn new(cause: Failure) -> Breaker {
        Breaker {
            phase: Phase::Closed,
            failures: VecDeque::new(),
            recent: 0,
            calls: 0,
            heads: VecDeque::new(),
            openings: 0,
            closed_at: Duration::ZERO,
            cause,
        }
    }

    /// What a call at this message says besides what is known of it.
    fn news(&mut self, head: Option<Head>, outcome: Outcome) -> Outcome {
        let Some(head) = head else { return outcome };
        let place = self.heads.iter().position(|known| *known == head);
        match (outcome, place) {
            (Outcome::Bad(_), Some(_)) => return Outcome::Untold,
            (Outcome::Bad(_), None) => {
                self.heads.push_back(head);
                if self.heads.len() > HEADS_MAX {
                    self.heads.pop_front();
                }
            }
            (Outcome::Good, Some(at)) => drop(self.heads.remove(at)),
            (Outcome::Good | Outcome::Untold, _) => {}
        }
        outcome
    }

    fn count(&mut self, failure: Option<Duration>) {
        self.recent = (self.recent << 1 | u32::from(failure.is_some())) & ((1 << CALLS) - 1);
        self.calls = (self.calls + 1).min(CALLS);
        if let Some(at) = failure {
            self.failures.push_back(at);
            if self.failures.len() > FAILURES_MAX {
                self.failures.pop_front();
            }
        }
    }

    fn is_too_much(&self, now: Now) -> bool {
        let oldest = self.failures.front().copied().unwrap_or_default();
        let together = self.failures.len() >= FAILURES_MAX && now.monotonic <= oldest + WINDOW;
        together || (self.calls >= CALLS && self.recent.count_ones() * 2 >= CALLS)
    }

    /// Whether nothing is left to remember.
    fn is_well(&self, now: Now) -> bool {
        let recovered = self.openings == 0 || now.monotonic > self.closed_at + WINDOW;
        self.phase == Phase::Closed && self.recent == 0 && recovered
    }

    fn open(&mut self, now: Now, cause: Failure) {
        if self.phase == Phase::Closed && now.monotonic > self.closed_at + WINDOW {
            self.openings = 0;
        }
        let pause = PAUSE_FIRST
            .saturating_mul(1 << self.openings.min(16))
            .min(PAUSE_MAX);
        self.openings = self.openings.saturating_add(1);
        self.phase = Phase::Open {
            until: now.after(pause),
        };
        self.cause = cause;
    }

    fn close(&mut self, now: Now) {
        self.phase = Phase::Closed;
        self.failures.clear();
        (self.recent, self.calls) = (0, 0);
        self.closed_at = now.monotonic;
    }

    fn change(&self, version: &Version) -> Change {
        Change {
            version: version.clone(),
            state: match self.phase {
                Phase::Closed => State::Closed,
                Phase::HalfOpen { .. } => State::HalfOpen,
                Phase::Open { .. } => State::Open,
            },
            openings: self.openings,
            cause: self.cause,
        }
    }
}

/// The breakers of a shard.
#[derive(Debug)]
pub struct Breakers {
    of: BTreeMap<Version, Breaker>,
    last_probe: u64,
    faults: Faults,
}

impl Breakers {
    /// All closed.
    #[must_use]
    pub fn new(faults: Faults) -> Breakers {
        Breakers {
            of: BTreeMap::new(),
            last_probe: 0,
            faults,
        }
    }

    /// Whether the version is called now, and the change that this makes.
    pub fn admit(&mut self, now: Now, version: &Version) -> (Admission, Option<Change>) {
        let Some(breaker) = self.of.get_mut(version) else {
            return (Admission::Call(None), None);
        };
        let (due, is_new) = match breaker.phase {
            Phase::Closed => return (Admission::Call(None), None),
            Phase::Open { until } => (now.monotonic >= until, true),
            Phase::HalfOpen { probe: Some(probe) } if self.faults.half_open_lets_all_through() => {
                return (Admission::Call(Some(probe)), None);
            }
            Phase::HalfOpen { probe } => (probe.is_none(), false),
        };
        if !due {
            return (Admission::Suspended, None);
        }
        self.last_probe += 1;
        let probe = Some(Probe(self.last_probe));
        breaker.phase = Phase::HalfOpen { probe };
        (Admission::Call(probe), is_new.then(|| breaker.change(version)))
    }

    /// A call ended, which was this probe and began with this stored message. The change that this makes.
    pub fn ended(
        &mut self,
        now: Now,
        version: &Version,
        (probe, head): (Option<Probe>, Option<Head>),
        outcome: Outcome,
    ) -> Option<Change> {
        if let Outcome::Bad(cause) = outcome
            && !self.of.contains_key(version)
        {
            self.of.insert(version.clone(), Breaker::new(cause));
        }
        let breaker = self.of.get_mut(version)?;
        let outcome = breaker.news(head, outcome);
        match (breaker.phase, outcome) {
            (Phase::Closed, Outcome::Good) => {
                breaker.count(None);
                if breaker.is_well(now) {
                    self.of.remove(version);
                }
                None
            }
            (Phase::Closed, Outcome::Bad(cause)) => {
                breaker.count(Some(now.monotonic));
                if !breaker.is_too_much(now) {
                    return None;
                }
                breaker.open(now, cause);
                Some(breaker.change(version))
            }
            (Phase::HalfOpen { probe: Some(out) }, outcome) if Some(out) == probe => {
                match outcome {
                    Outcome::Good => breaker.close(now),
                    Outcome::Bad(cause) => breaker.open(now, cause),
                    Outcome::Untold => {
                        breaker.phase = Phase::HalfOpen { probe: None };
                        return None;
                    }
                }
                Some(breaker.change(version))
            }
            // Calls from before the breaker opened: they say what is known already.
            (Phase::Closed | Phase::Open { .. } | Phase::HalfOpen { .. }, _) => None,
        }
    }

    /// Forgets the versions that are not called any more. The changes of those whose breakers were not closed.
    pub fn keep(&mut self, is_called: impl Fn(&Version) -> bool) -> Vec<Change> {
        let mut changes = Vec::new();
        self.of.retain(|version, breaker| {
            if is_called(version) {
                return true;
            }
            if breaker.phase != Phase::Closed {
                changes.push(Change {
                    state: State::Closed,
                    ..breaker.change(version)
                });
            }
            false
        });
        changes
    }
}

#[cfg(test)]
#[path = "breaker_tests.rs"]
mod tests;
