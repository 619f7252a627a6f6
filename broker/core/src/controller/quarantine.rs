//! Versions that nodes have given up: reports, the quarantine that a majority of them makes, and its end.

use super::NODES_MAX;
use super::machine::{MALFORMED, Refused, read};
use super::plugins::Desk;
use super::registry::{read_digest, read_failure};
use super::rows;
use super::view::node_id;
use crate::codec::encode;
use crate::plugins::{Consequence, PROMOTED_LATELY, Refused as Why};
use penstock_wire::storage::v1;

/// Whether a version is quarantined.
pub(super) fn holds(plugin: &v1::Plugin, digest: &[u8]) -> bool {
    plugin
        .quarantined
        .iter()
        .any(|quarantine| quarantine.digest == digest)
}

/// Whether a version is called anywhere.
fn is_called(plugin: &v1::Plugin, digest: &[u8]) -> bool {
    let shared = plugin
        .rollout
        .as_ref()
        .filter(|rollout| rollout.canary_percent > 0);
    let candidate = shared.and_then(|rollout| rollout.artifact.as_ref());
    let named = |artifact: &v1::PluginArtifact| artifact.digest == digest;
    plugin.active.iter().chain(candidate).any(named) && !holds(plugin, digest)
}

/// Forgets what was said of versions that are not called any more: when they come back, they start afresh.
pub(super) fn forget_trips(plugin: &mut v1::Plugin) {
    let trips = std::mem::take(&mut plugin.trips);
    plugin.trips = trips
        .into_iter()
        .filter(|trip| is_called(plugin, &trip.digest))
        .collect();
}

impl Desk<'_, '_> {
    /// A node gives up a version that is called, or tries it again. The report that makes a majority quarantines the version in the
    /// same step, so that no two of them do.
    pub(super) fn trip(&mut self, wall_ms: u64, tripped: &v1::PluginTripped) -> Result<(), Refused> {
        node_id(tripped.node)?;
        read_digest(&tripped.digest)?;
        read_failure(tripped.failure)?;
        let mut nodes = tripped.nodes.clone();
        nodes.sort_unstable();
        nodes.dedup();
        if !(1..=NODES_MAX).contains(&nodes.len()) || !nodes.contains(&tripped.node) {
            return Err(MALFORMED);
        }
        let mut plugin = read::<v1::Plugin>(self.rows, &rows::plugin(&tripped.name))?.ok_or(Why::NoPlugin)?;
        if !is_called(&plugin, &tripped.digest) {
            return Err(Why::Known.into());
        }
        let place = (&tripped.digest, tripped.node);
        let found = plugin
            .trips
            .binary_search_by(|trip| (&trip.digest, trip.node).cmp(&place));
        match (found, tripped.given_up) {
            (Err(at), true) => plugin.trips.insert(
                at,
                v1::PluginTrip {
                    digest: tripped.digest.clone(),
                    node: tripped.node,
                    at_ms: wall_ms,
                    failure: tripped.failure,
                },
            ),
            (Ok(at), false) => drop(plugin.trips.remove(at)),
            (Ok(_), true) | (Err(_), false) => return Err(Why::Known.into()),
        }
        // A node that is not in the cluster any more has no say.
        plugin.trips.retain(|trip| nodes.contains(&trip.node));
        let said = |trip: &&v1::PluginTrip| trip.digest == tripped.digest;
        let against: Vec<u32> = plugin.trips.iter().filter(said).map(|trip| trip.node).collect();
        if tripped.given_up && against.len() * 2 > nodes.len() {
            let cause = read_failure(tripped.failure)?.name();
            let named: Vec<String> = against.iter().map(u32::to_string).collect();
            let reason = format!(
                "it kept failing, last by {cause}: given up by {} of {} nodes ({})",
                against.len(),
                nodes.len(),
                named.join(", ")
            );
            quarantine(wall_ms, &mut plugin, &tripped.digest, reason);
            // That is a change of intent: whoever decided by what ran before must look again.
            plugin.revision = self.revision();
        }
        self.put_always(rows::plugin(&plugin.name), encode(&plugin))
    }

    pub(super) fn release(&mut self, release: &v1::PluginRelease) -> Result<(), Refused> {
        let mut plugin = self.plugin(&release.name, release.expected_revision)?;
        let before = plugin.quarantined.len();
        plugin
            .quarantined
            .retain(|quarantine| !release.digest.is_empty() && quarantine.digest != release.digest);
        if plugin.quarantined.len() == before {
            return Err(Why::NotQuarantined.into());
        }
        self.put_plugin(plugin)
    }
}

fn quarantine(wall_ms: u64, plugin: &mut v1::Plugin, digest: &[u8], reason: String) {
    let named = |artifact: &Option<v1::PluginArtifact>| {
        artifact
            .as_ref()
            .is_some_and(|artifact| artifact.digest == digest)
    };
    let consequence = if named(&plugin.active) {
        take_back(wall_ms, plugin)
    } else {
        plugin.rollout = None;
        Consequence::Dropped
    };
    plugin.quarantined.push(v1::PluginQuarantine {
        digest: bytes::Bytes::copy_from_slice(digest),
        at_ms: wall_ms,
        reason,
        consequence: consequence as u32,
    });
    forget_trips(plugin);
}

/// What runs instead of a bad active version: what ran before it, if it was promoted lately, or else nothing.
fn take_back(wall_ms: u64, plugin: &mut v1::Plugin) -> Consequence {
    let age = u128::from(wall_ms.saturating_sub(plugin.promoted_ms));
    let is_new = plugin.promoted_ms > 0 && age < PROMOTED_LATELY.as_millis();
    let previous = plugin.previous.clone();
    let Some(previous) = previous.filter(|previous| is_new && !holds(plugin, &previous.digest)) else {
        return Consequence::Disabled;
    };
    let repeats = |rollout: &v1::PluginRollout| {
        let candidate = rollout.artifact.as_ref();
        candidate.is_some_and(|candidate| candidate.digest == previous.digest)
    };
    if plugin.rollout.as_ref().is_some_and(repeats) {
        plugin.rollout = None;
    }
    plugin.previous = plugin.active.replace(previous);
    plugin.promoted_ms = 0;
    Consequence::RolledBack
}
