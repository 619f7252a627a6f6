//! S16, switched off after repeated traps, seen from outside: from the calls that shards make and the answers that they get it
//! follows when a version may not be called, and which nodes have reason to give it up.

use crate::coverage::Met;
use penstock_core::effect::Effect;
use penstock_core::hooks::breaker::{CALLS, FAILURES_MAX, GIVEN_UP_AFTER, PAUSE_FIRST, State, WINDOW};
use penstock_core::hooks::call::{Answer, Call, Digest, Failed, Returned, Version, Work};
use penstock_core::plugins::{Failure, Registry};
use penstock_core::types::{ChannelKey, Seq, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A shard gives a call up so long after its deadline.
const GIVEN_UP_LATE: Duration = Duration::from_secs(2);

/// Node and shard.
type Place = (usize, u16);
/// The first message of a call after the commit.
type Head = (ChannelKey, Seq);

/// A call that is not answered.
#[derive(Clone, Debug)]
struct Open {
    version: Version,
    /// When its shard stops to wait for it.
    until: Duration,
    head: Option<Head>,
    /// Since when the version was suspended, when it was: it is the one that is tried.
    probe: Option<Duration>,
}

/// How the calls of a version ended on one shard.
#[derive(Debug, Default)]
struct Ends {
    failures: Vec<Duration>,
    recent: Vec<bool>,
    heads: Vec<Head>,
    /// Since when it is not to be called.
    opened: Option<Duration>,
    closed_at: Duration,
    openings: u32,
    /// An end was not seen: nothing more is known.
    is_blurred: bool,
}

/// What was seen of suspended versions.
#[derive(Debug, Default)]
pub struct Suspended {
    calls: BTreeMap<(Place, Token), Open>,
    ends: BTreeMap<(Place, Version), Ends>,
    acting: BTreeMap<Place, u64>,
    /// The nodes that have had reason to give up a component.
    given_up: BTreeMap<Digest, BTreeSet<usize>>,
    /// (plugin, component) → since when it is quarantined, ms.
    quarantined: BTreeMap<(Arc<str>, Digest), u64>,
    /// Plugins of which an operator has released versions.
    released: BTreeSet<Arc<str>>,
    /// Breakers that are not closed, as their shards say.
    open: BTreeSet<(Place, Version)>,
    /// Quarantines.
    pub quarantines: u64,
}

/// Whether an end speaks against the code, if it says anything.
fn is_bad(returned: &Returned) -> Option<bool> {
    match returned {
        Ok(Answer::Verdicts(_) | Answer::Done { .. } | Answer::Decision(_) | Answer::Response(_))
        | Err(
            Failed::Retry { .. }
            | Failed::Busy { .. }
            | Failed::Poison
            | Failed::Undelivered { .. }
            | Failed::Gone,
        ) => Some(false),
        Err(Failed::Call(Failure::Busy | Failure::NotReady | Failure::Suspended) | Failed::Later { .. }) => {
            None
        }
        Ok(Answer::Requests(_)) | Err(Failed::Call(_)) => Some(true),
    }
}

impl Ends {
    fn note(&mut self, now: Duration, open: &Open, bad: Option<bool>) {
        let Some(bad) = bad else { return };
        if let Some(head) = &open.head {
            let known = self.heads.iter().position(|known| known == head);
            match (bad, known) {
                (true, Some(_)) => return,
                (true, None) => self.heads.push(head.clone()),
                (false, Some(at)) => drop(self.heads.remove(at)),
                (false, None) => {}
            }
        }
        if self.opened.is_some() {
            // One from before says nothing.
            let is_probe = open.probe == self.opened;
            if is_probe && bad {
                self.open(now);
            } else if is_probe {
                self.opened = None;
                self.closed_at = now;
                self.failures.clear();
                self.recent.clear();
            }
            return;
        }
        if !bad && self.failures.is_empty() && self.openings == 0 {
            // Calls are counted from the first failure on.
            return;
        }
        self.recent.push(bad);
        if bad {
            self.failures.push(now);
        }
        let last = self.failures.iter().rev().nth(FAILURES_MAX - 1);
        let together = last.is_some_and(|first| now <= *first + WINDOW);
        let calls = CALLS as usize;
        let newest = &self.recent[self.recent.len().saturating_sub(calls)..];
        let half = newest.len() == calls && newest.iter().filter(|bad| **bad).count() * 2 >= calls;
        // A good end opens nothing.
        if bad && (together || half) {
            if now > self.closed_at + WINDOW {
                self.openings = 0;
            }
            self.open(now);
        }
        let is_recovered = self.openings == 0 || now > self.closed_at + WINDOW;
        if !bad && is_recovered && self.recent.iter().rev().take(calls).all(|bad| !bad) {
            *self = Ends {
                is_blurred: self.is_blurred,
                ..Ends::default()
            };
        }
    }

    fn open(&mut self, now: Duration) {
        self.opened = Some(now);
        self.openings += 1;
    }
}

impl Suspended {
    /// A shard calls a version.
    ///
    /// # Errors
    /// Says why it should not.
    pub fn called(
        &mut self,
        now: Duration,
        place: Place,
        (token, call): (Token, &Call),
    ) -> Result<(), String> {
        let (version, head) = (
            &call.version,
            match &call.work {
                Work::BeforeSend { .. }
                | Work::Connect { .. }
                | Work::Route { .. }
                | Work::OnlineStatus(_) => None,
                Work::Offline { message, .. } => call.channel.clone().zip(Some(message.seq)),
                Work::PersistAfter { messages, .. } | Work::Webhook { messages, .. } => {
                    let first = messages.first().map(|message| message.seq);
                    call.channel.clone().zip(first)
                }
            },
        );
        let overdue = self.is_overdue(now, place, version);
        let ends = self.ends.entry((place, version.clone())).or_default();
        ends.is_blurred |= overdue;
        if let Some(opened) = ends.opened.filter(|_| !ends.is_blurred) {
            if now < opened + PAUSE_FIRST {
                return Err(format!(
                    "{version:?} is called at {now:?} on {place:?}, and was found bad at {opened:?}"
                ));
            }
            let same = |((of, _), open): (&(Place, Token), &Open)| {
                *of == place && open.probe == Some(opened) && open.version == *version && now < open.until
            };
            if self.calls.iter().any(same) {
                return Err(format!("{version:?} is tried on {place:?} by two calls at once"));
            }
        }
        let probe = ends.opened;
        let open = Open {
            version: version.clone(),
            until: now + call.within + GIVEN_UP_LATE,
            head,
            probe,
        };
        self.calls.insert((place, token), open);
        Ok(())
    }

    /// Whether a shard has given up a call that it made: its end came from the shard itself, and was not seen.
    fn is_overdue(&self, now: Duration, place: Place, version: &Version) -> bool {
        let mut calls = self.calls.iter();
        calls.any(|((of, _), open)| *of == place && open.version == *version && now >= open.until)
    }

    /// A shard is about to be told how a call ended.
    pub fn returned(&mut self, now: Duration, place: Place, (token, returned): (Token, &Returned)) {
        let Some(open) = self.calls.remove(&(place, token)) else {
            return;
        };
        let node = place.0;
        let overdue = self.is_overdue(now, place, &open.version);
        let ends = self.ends.entry((place, open.version.clone())).or_default();
        ends.is_blurred |= overdue || now >= open.until;
        ends.note(now, &open, is_bad(returned));
        if ends.is_blurred || ends.openings >= GIVEN_UP_AFTER {
            self.given_up.entry(open.version.digest).or_default().insert(node);
        }
    }

    /// The host has lost a call: its shard will find out by itself.
    pub fn lost(&mut self, place: Place, version: &Version) {
        let ends = self.ends.entry((place, version.clone())).or_default();
        ends.is_blurred = true;
        self.given_up.entry(version.digest).or_default().insert(place.0);
    }

    /// A shard acts on this registry: what it does not call any more it has forgotten.
    pub fn acts(&mut self, place: Place, registry: Option<&Arc<Registry>>) {
        let Some(registry) = registry else { return };
        if self.acting.insert(place, registry.revision) == Some(registry.revision) {
            return;
        }
        let bindings = registry.bindings().iter();
        let called: BTreeSet<&Version> = bindings.flat_map(|bound| bound.called()).collect();
        self.ends
            .retain(|(of, version), _| *of != place || called.contains(version));
    }

    /// A process ended.
    pub fn ended(&mut self, node: usize) {
        self.calls.retain(|((of, _), _), _| *of != node);
        self.ends.retain(|(of, _), _| of.0 != node);
        self.acting.retain(|of, _| of.0 != node);
        self.open.retain(|(of, _)| of.0 != node);
    }

    /// An operator releases versions of a plugin.
    pub fn released(&mut self, plugin: &Arc<str>) {
        self.released.insert(Arc::clone(plugin));
    }

    /// Somebody knows a registry.
    ///
    /// # Errors
    /// Says which quarantine has no reason.
    pub fn learned(&mut self, registry: &Registry, nodes: usize) -> Result<(), String> {
        for (name, plugin) in &registry.plugins {
            for quarantine in &plugin.quarantined {
                let (digest, key) = (quarantine.digest, (Arc::clone(name), quarantine.digest));
                let before = self.quarantined.insert(key, quarantine.at_ms);
                if before == Some(quarantine.at_ms) {
                    continue;
                }
                self.quarantines += 1;
                if before.is_some() && !self.released.contains(name) {
                    return Err(format!(
                        "{digest} of {name} is quarantined again: nobody released it"
                    ));
                }
                let against = self.given_up.get(&digest).map_or(0, BTreeSet::len);
                if against * 2 <= nodes {
                    return Err(format!(
                        "{digest} of {name} is quarantined ({}): {against} of {nodes} nodes had reason to give it up",
                        quarantine.reason
                    ));
                }
            }
        }
        Ok(())
    }

    /// What a shard says of its breakers, and what that is to the run.
    pub fn said(&mut self, place: Place, effect: &Effect) -> Option<Met> {
        let Effect::Breaker(change) = effect else {
            return None;
        };
        let key = (place, change.version.clone());
        match change.state {
            State::Closed => {
                self.open.remove(&key);
                // What is forgotten has not recovered.
                let seen = self.ends.get(&key);
                seen.is_some_and(|ends| ends.opened.is_none())
                    .then_some(Met::Recoveries)
            }
            State::HalfOpen => None,
            State::Open => {
                self.open.insert(key);
                Some(Met::Suspensions)
            }
        }
    }

    /// A version that some shard does not call.
    #[must_use]
    pub fn one(&self) -> Option<&(Place, Version)> {
        self.open.first()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::m_19::digest;
    use penstock_core::types::ChannelKind;

    fn call() -> Call {
        Call {
            version: Version {
                binding: Arc::from("first"),
                digest: digest(1),
                generation: 1,
            },
            channel: Some(ChannelKey::new("g", ChannelKind::GROUP)),
            within: Duration::from_secs(1),
            work: Work::BeforeSend {
                drafts: Vec::new(),
                wall_ms: 0,
            },
        }
    }

    fn failed(seen: &mut Suspended, at: u64, token: u64) {
        let (now, token) = (Duration::from_millis(at), Token(token));
        seen.called(now, (0, 0), (token, &call()))
            .expect("it may be called");
        let returned = Err(Failed::Call(Failure::Trap));
        seen.returned(now, (0, 0), (token, &returned));
    }

    #[test]
    fn a_call_of_a_suspended_version_and_a_second_probe_are_found() {
        let seen = &mut Suspended::default();
        for token in 0..5 {
            failed(seen, 0, token);
        }
        let at = Duration::from_millis;
        assert!(seen.called(at(999), (0, 0), (Token(6), &call())).is_err());
        assert!(
            seen.called(at(999), (0, 1), (Token(6), &call())).is_ok(),
            "another shard"
        );
        assert!(seen.called(at(1_000), (0, 0), (Token(7), &call())).is_ok());
        assert!(seen.called(at(1_001), (0, 0), (Token(8), &call())).is_err());
        seen.returned(at(1_002), (0, 0), (Token(7), &Err(Failed::Poison)));
        assert!(seen.called(at(1_003), (0, 0), (Token(9), &call())).is_ok());
    }

    #[test]
    fn a_quarantine_without_a_majority_is_found() {
        let seen = &mut Suspended::default();
        for (at, token) in [0, 0, 0, 0, 0, 1_000, 3_000].into_iter().zip(0..) {
            failed(seen, at, token);
        }
        assert_eq!(seen.given_up[&digest(1)].len(), 1);
        let quarantine = penstock_core::plugins::Quarantine {
            digest: digest(1),
            at_ms: 1,
            reason: Arc::from("why"),
            consequence: penstock_core::plugins::Consequence::Disabled,
        };
        let plugin = penstock_core::plugins::Plugin {
            name: Arc::from("alpha"),
            revision: 1,
            quarantined: vec![quarantine],
            ..penstock_core::plugins::Plugin::default()
        };
        let registry = Registry::new(1, vec![plugin.clone()], Vec::new());
        assert!(seen.learned(&registry, 3).is_err());
        let seen = &mut Suspended::default();
        seen.lost((1, 0), &call().version);
        seen.lost((2, 0), &call().version);
        assert!(seen.learned(&registry, 3).is_ok());
        let mut again = plugin;
        again.quarantined[0].at_ms = 2;
        let again = Registry::new(2, vec![again], Vec::new());
        assert!(seen.learned(&again, 3).is_err(), "nobody released it");
    }
}
