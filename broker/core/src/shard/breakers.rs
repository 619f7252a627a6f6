//! Breakers of the plugins that a shard calls, and what its node says about them.
//!
//! Each shard has its own: it sees its own calls alone and decides without asking. Shard 0 hears from its siblings which versions
//! they have given up, and tells the controller what the node as a whole says: that one of its shards has given a version up, or
//! that none has any more. What is said and what is true are compared with every beat, so that nothing is lost with a process, an
//! answer or a leader.

use super::Shard;
use super::continuation::Then;
use super::peer::{Peer, Request};
use super::plugins::Waits;
use super::turn::Turn;
use crate::controller::{Nodes, change_registry};
use crate::effect::Effect;
use crate::entrance::is_whole;
use crate::hooks::breaker::{Admission, Change, Head, Outcome, Probe};
use crate::hooks::call::{Answer, Call, Failed, Returned, Version, Work};
use crate::plugins::{self, Digest, Failure, PlacedTrip, Registry};
use crate::slot::Lane;
use crate::types::{GroupId, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A call that was made.
#[derive(Clone, Debug)]
pub(super) struct Made {
    /// What waits for it.
    pub(super) waits: Waits,
    version: Version,
    probe: Option<Probe>,
    /// The first message of a call after the commit.
    head: Option<Head>,
    /// Drafts, messages or uids in it.
    asked: usize,
}

impl Made {
    /// This call, as this probe.
    pub(super) fn new(waits: Waits, call: &Call, probe: Option<Probe>) -> Made {
        let (asked, first) = match &call.work {
            Work::BeforeSend { drafts, .. } => (drafts.len(), None),
            Work::Webhook { messages, uids, .. } if !uids.is_empty() => (uids.len(), messages.first()),
            Work::PersistAfter { messages, .. } | Work::Webhook { messages, .. } => {
                (messages.len(), messages.first())
            }
            Work::Offline { message, uids, .. } => (uids.len(), Some(&**message)),
            Work::OnlineStatus(batch) => (batch.statuses.len(), None),
            Work::Connect { .. } | Work::Route { .. } => (1, None),
        };
        Made {
            waits,
            version: call.version.clone(),
            probe,
            head: call.channel.clone().zip(first.map(|message| message.seq)),
            asked,
        }
    }
}

/// What the shards of a node have given up, as shard 0 knows it.
#[derive(Debug, Default)]
pub(super) struct GivenUp {
    /// How it failed last, by the number of the shard.
    versions: BTreeMap<Version, BTreeMap<u16, Failure>>,
    /// A report is on its way.
    asked: bool,
}

impl GivenUp {
    fn note(&mut self, shard: u16, change: &Change) {
        if change.is_given_up() {
            let shards = self.versions.entry(change.version.clone()).or_default();
            shards.insert(shard, change.cause);
        } else if let Some(shards) = self.versions.get_mut(&change.version) {
            shards.remove(&shard);
            if shards.is_empty() {
                self.versions.remove(&change.version);
            }
        }
    }

    /// How a component failed last in a binding of this plugin, if it is given up.
    fn cause(&self, registry: &Registry, plugin: &str, digest: Digest) -> Option<Failure> {
        let is_its = |version: &Version| {
            version.digest == digest
                && registry
                    .binding(&version.binding)
                    .is_some_and(|bound| &*bound.binding.plugin == plugin)
        };
        let found = self.versions.iter().find(|(version, _)| is_its(version));
        found.and_then(|(_, shards)| shards.values().next().copied())
    }
}

/// What the end of a call says of the code.
fn outcome(returned: &Returned, asked: usize) -> Outcome {
    match returned {
        Ok(Answer::Verdicts(verdicts)) if verdicts.len() == asked => Outcome::Good,
        Ok(Answer::Done { messages, .. }) if *messages as usize <= asked => Outcome::Good,
        Ok(Answer::Decision(decision)) if is_whole(decision) => Outcome::Good,
        Ok(Answer::Response(_)) => Outcome::Good,
        Ok(Answer::Verdicts(_) | Answer::Done { .. } | Answer::Requests(_) | Answer::Decision(_)) => {
            Outcome::Bad(Failure::BadOutput)
        }
        // That an endpoint fails is not the fault of who renders for it.
        Err(
            Failed::Retry { .. }
            | Failed::Busy { .. }
            | Failed::Poison
            | Failed::Undelivered { .. }
            | Failed::Gone,
        ) => Outcome::Good,
        Err(Failed::Later { .. }) => Outcome::Untold,
        Err(Failed::Call(failure)) => Outcome::of(*failure),
    }
}

impl Shard {
    /// Whether a version is called now: as which probe, or why not.
    pub(super) fn admit_call(
        &mut self,
        turn: &mut Turn<'_>,
        version: &Version,
    ) -> Result<Option<Probe>, Failure> {
        if self.plugins.quarantined.contains(version) {
            return Err(Failure::NotReady);
        }
        let (admission, change) = self.plugins.breakers.admit(turn.now, version);
        if let Some(change) = change {
            self.breaker_changed(turn, change);
        }
        match admission {
            Admission::Call(probe) => Ok(probe),
            Admission::Suspended => {
                self.counters.calls_suspended += 1;
                Err(Failure::Suspended)
            }
        }
    }

    /// A call ended.
    pub(super) fn call_ended(&mut self, turn: &mut Turn<'_>, made: &Made, returned: &Returned) {
        let outcome = outcome(returned, made.asked);
        let about = (made.probe, made.head.clone());
        let ended = self
            .plugins
            .breakers
            .ended(turn.now, &made.version, about, outcome);
        if let Some(change) = ended {
            self.breaker_changed(turn, change);
        }
    }

    /// Other versions are called from now on: the others are forgotten.
    pub(super) fn keep_breakers(&mut self, turn: &mut Turn<'_>, registry: &Registry) {
        let bindings = || registry.bindings().iter();
        let called: BTreeSet<&Version> = bindings().flat_map(|bound| bound.called()).collect();
        self.plugins.quarantined = bindings()
            .flat_map(|bound| bound.quarantined())
            .cloned()
            .collect();
        let forgotten = self.plugins.breakers.keep(|version| called.contains(version));
        let is_called = |version: &Version, _: &mut BTreeMap<u16, Failure>| called.contains(version);
        self.plugins.given_up.versions.retain(is_called);
        for change in forgotten {
            self.breaker_changed(turn, change);
        }
    }

    fn breaker_changed(&mut self, turn: &mut Turn<'_>, change: Change) {
        turn.out.push(Effect::Breaker(Box::new(change.clone())));
        let of = self.config.shard;
        if of == 0 {
            self.plugins.given_up.note(of, &change);
        } else {
            let change = Box::new(change);
            turn.out.push(Effect::Send {
                to: self.config.node,
                message: Peer::Breaker { of, change },
            });
        }
    }

    /// A sibling's breaker changed. What it says of a version that is not called any more is late.
    pub(super) fn on_breaker(&mut self, of: u16, change: &Change) {
        let is_called = self.plugins.registry().is_some_and(|registry| {
            let bound = registry.binding(&change.version.binding);
            bound.is_some_and(|bound| bound.called().any(|version| *version == change.version))
        });
        if is_called {
            self.plugins.given_up.note(of, change);
        }
    }

    /// Tells the controller what it does not know yet of the versions that this node has given up.
    pub(super) fn report_given_up(&mut self, turn: &mut Turn<'_>) {
        if self.plugins.given_up.asked {
            return;
        }
        let Some(registry) = self.plugins.registry().cloned() else {
            return;
        };
        let Some(trip) = self.untold(&registry) else {
            return;
        };
        let mut all: Vec<NodeId> = self.liveness.nodes().map(|(node, ..)| node).collect();
        if self.config.faults.hooks.one_node_quarantines() {
            all = vec![self.config.node];
        }
        let nodes = Nodes { all: &all, down: &[] };
        let change = plugins::Change::Trip(trip);
        let request = Request::Propose {
            group: GroupId::CONTROLLER,
            lane: Lane::Background,
            command: change_registry(turn.now.wall_ms, &change, nodes),
        };
        self.plugins.given_up.asked = true;
        self.call(turn, request, Then::GivenUp);
    }

    fn untold(&self, registry: &Registry) -> Option<PlacedTrip> {
        let node = self.config.node;
        registry.plugins.values().find_map(|plugin| {
            plugin.called().find_map(|digest| {
                let cause = self.plugins.given_up.cause(registry, &plugin.name, digest);
                let told = plugin
                    .trips
                    .iter()
                    .any(|trip| (trip.digest, trip.node) == (digest, node));
                (cause.is_some() != told).then(|| PlacedTrip {
                    plugin: Arc::clone(&plugin.name),
                    digest,
                    node,
                    cause,
                })
            })
        })
    }

    /// The controller answered a report, or did not: the next beat looks again.
    pub(super) fn on_given_up(&mut self) {
        self.plugins.given_up.asked = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks::pipeline::Verdict;

    #[test]
    fn only_what_the_code_did_wrong_counts() {
        let done = |messages| {
            let changes = Vec::new();
            Ok(Answer::Done { messages, changes })
        };
        let bad = Outcome::Bad(Failure::BadOutput);
        assert_eq!(
            outcome(&Ok(Answer::Verdicts(vec![Verdict::Allow])), 1),
            Outcome::Good
        );
        assert_eq!(outcome(&Ok(Answer::Verdicts(Vec::new())), 1), bad);
        assert_eq!(outcome(&done(0), 3), Outcome::Good);
        assert_eq!(outcome(&done(4), 3), bad);
        assert_eq!(outcome(&Err(Failed::Poison), 3), Outcome::Good);
        assert_eq!(outcome(&Err(Failed::Retry { after: None }), 3), Outcome::Good);
        assert_eq!(outcome(&Err(Failed::Busy { after: None }), 3), Outcome::Good);
        let trap = Failed::Call(Failure::Trap);
        assert_eq!(outcome(&Err(trap), 3), Outcome::Bad(Failure::Trap));
        assert_eq!(outcome(&Err(Failed::Call(Failure::Busy)), 3), Outcome::Untold);
    }
}
