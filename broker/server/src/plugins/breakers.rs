//! The breakers of this node's shards and the quarantines of the cluster, for people: log lines, metrics, status.

use crate::metrics::help;
use penstock_core::hooks::breaker::{Change, State};
use penstock_core::hooks::call::Version;
use penstock_core::hooks::registry::{Digest, Plugin, Registry};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is known of breakers and quarantines.
#[derive(Debug, Default)]
pub(super) struct Board(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Of every version that is not closed on a shard.
    states: BTreeMap<(Version, u16), State>,
    /// How often the breakers of a binding have opened.
    openings: BTreeMap<Arc<str>, u64>,
    registry: Arc<Registry>,
}

impl Board {
    fn known(&self) -> MutexGuard<'_, Known> {
        // The maps are whole between two statements, whatever a holder died of.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The breaker of a version changed on a shard.
    pub(super) fn changed(&self, shard: u16, change: &Change) {
        let Change { version, state, .. } = change;
        let (binding, digest) = (&*version.binding, version.digest);
        let mut known = self.known();
        let place = (version.clone(), shard);
        let before = match state {
            State::Closed => known.states.remove(&place),
            State::HalfOpen | State::Open => known.states.insert(place, *state),
        };
        match state {
            State::Open => {
                *known.openings.entry(Arc::clone(&version.binding)).or_default() += 1;
                let (cause, openings) = (change.cause.name(), change.openings);
                tracing::warn!(
                    binding,
                    %digest,
                    shard,
                    cause,
                    openings,
                    "a plugin keeps failing: it is not called for a while"
                );
            }
            State::Closed if before == Some(State::HalfOpen) => {
                tracing::info!(binding, %digest, shard, "a plugin that kept failing is called again");
            }
            State::Closed | State::HalfOpen => {}
        }
    }

    /// This registry holds from now on.
    pub(super) fn learn(&self, registry: &Arc<Registry>) {
        let before = std::mem::replace(&mut self.known().registry, Arc::clone(registry));
        let none = BTreeSet::new();
        for (name, plugin) in &registry.plugins {
            let known = before.plugins.get(name).map_or_else(|| none.clone(), digests);
            for quarantine in &plugin.quarantined {
                if known.contains(&quarantine.digest) {
                    continue;
                }
                let (digest, reason) = (quarantine.digest, &*quarantine.reason);
                let consequence = quarantine.consequence.name();
                tracing::warn!(plugin = &**name, %digest, reason, consequence, "a version of a plugin is quarantined");
            }
        }
    }

    /// Whether a version is called on this node: the worst of its shards.
    pub(super) fn state(&self, version: &Version) -> State {
        let known = self.known();
        let places = (version.clone(), 0)..=(version.clone(), u16::MAX);
        let states = known.states.range(places).map(|(_, state)| *state);
        states.max().unwrap_or(State::Closed)
    }

    /// Appends the series of all bindings and plugins.
    pub(super) fn render(&self, out: &mut String) {
        let known = self.known();
        let mut states: BTreeMap<&str, State> = BTreeMap::new();
        for bound in known.registry.bindings() {
            states.insert(&bound.binding.id, State::Closed);
        }
        for ((version, _), state) in &known.states {
            let worst = states.entry(&version.binding).or_insert(*state);
            *worst = (*worst).max(*state);
        }
        let name = "penstock_plugin_breaker_state";
        let text = "Whether the versions of a binding are called on this node: 0 yes (closed), 1 one call at a time (half-open), 2 not (open).";
        help(out, name, "gauge", text);
        // Writing to a string cannot fail, here and below.
        for (binding, state) in &states {
            let number = match state {
                State::Closed => 0,
                State::HalfOpen => 1,
                State::Open => 2,
            };
            let _ = writeln!(out, "{name}{{binding=\"{binding}\"}} {number}");
        }
        let name = "penstock_plugin_breaker_openings_total";
        help(out, name, "counter", "Times that a breaker of a binding opened.");
        for binding in states.keys() {
            let openings = known.openings.get(*binding).copied().unwrap_or(0);
            let _ = writeln!(out, "{name}{{binding=\"{binding}\"}} {openings}");
        }
        let name = "penstock_plugin_info";
        help(
            out,
            name,
            "gauge",
            "1 for each version that a plugin has: what runs, what ran before, the candidate of a rollout.",
        );
        for (plugin, state) in &known.registry.plugins {
            let roles = [
                ("active", state.active.as_ref()),
                ("previous", state.previous.as_ref()),
                (
                    "candidate",
                    state.rollout.as_ref().map(|rollout| &rollout.artifact),
                ),
            ];
            for (role, artifact) in roles {
                let Some(artifact) = artifact else { continue };
                let digest = artifact.digest;
                let _ = writeln!(
                    out,
                    "{name}{{plugin=\"{plugin}\",role=\"{role}\",digest=\"{digest}\"}} 1"
                );
            }
        }
        let name = "penstock_plugin_quarantined";
        help(out, name, "gauge", "Versions of a plugin that are quarantined.");
        for (plugin, state) in &known.registry.plugins {
            let _ = writeln!(out, "{name}{{plugin=\"{plugin}\"}} {}", state.quarantined.len());
        }
        let name = "penstock_plugin_disabled";
        let text = "1 when a plugin runs nowhere because its version is quarantined: act on this.";
        help(out, name, "gauge", text);
        for (plugin, state) in &known.registry.plugins {
            let disabled = u8::from(state.is_disabled());
            let _ = writeln!(out, "{name}{{plugin=\"{plugin}\"}} {disabled}");
        }
    }
}

fn digests(plugin: &Plugin) -> BTreeSet<Digest> {
    plugin
        .quarantined
        .iter()
        .map(|quarantine| quarantine.digest)
        .collect()
}
