//! The rows about plugins: to and from the core's own types, and what a row may hold.

use super::machine::{MALFORMED, Refused};
use super::rows;
use super::view::node_id;
use crate::codec::{Corrupt, decode, encode_command};
use crate::plugins::{
    Artifact, Binding, Bound, CONFIG_BYTES_MAX, Captured, Change, Consequence, DEADLINE, Digest, Disabled,
    DisabledBy, Events, FACTS_BYTES_MAX, FAILURES, Failure, Hook, NAME_BYTES_MAX, OnError, PATIENCE, Pattern,
    PlacedReport, PlacedTrip, Plugin, Policy, Proposal, Quarantine, ROUTE_DEADLINE_MAX, Registry, Report,
    ReportState, Rollout, Selector, StartAt, Trip,
};
use crate::types::{NodeId, Uid};
use bytes::Bytes;
use penstock_wire::storage::v1::{self, binding::Start, command::Body};
use std::sync::Arc;
use std::time::Duration;

const POLICIES: [Policy; 3] = [Policy::Reject, Policy::Allow, Policy::Skip];

/// The nodes of a cluster, as who asks for a change knows them.
#[derive(Clone, Copy, Debug)]
pub struct Nodes<'a> {
    /// All of them: a version is given up by a majority of these.
    pub all: &'a [NodeId],
    /// Those that are down: no candidate waits for them.
    pub down: &'a [NodeId],
}

/// A change as a command.
#[must_use]
pub fn change_registry(wall_ms: u64, change: &Change, nodes: Nodes<'_>) -> Bytes {
    let body = match change {
        Change::Propose(proposal) => proposed(proposal, nodes),
        Change::Report(report) => reported(report),
        Change::Canary {
            plugin,
            expected_revision,
            percent,
        } => canary((plugin, *expected_revision), *percent, nodes.down),
        Change::Promote {
            plugin,
            expected_revision,
        } => promoted((plugin, *expected_revision), nodes.down),
        Change::Rollback {
            plugin,
            expected_revision,
        } => Body::PluginRollback(v1::PluginRollback {
            name: plugin.to_string(),
            expected_revision: *expected_revision,
        }),
        Change::Trip(trip) => tripped(trip, nodes),
        Change::Release {
            plugin,
            expected_revision,
            digest,
        } => released((plugin, *expected_revision), *digest),
        Change::Remove {
            plugin,
            expected_revision,
        } => Body::PluginRemove(v1::PluginRemove {
            name: plugin.to_string(),
            expected_revision: *expected_revision,
        }),
        Change::Bind {
            binding,
            expected_revision,
        } => Body::PutBinding(v1::PutBinding {
            binding: Some(stored_binding(binding)),
            expected_revision: *expected_revision,
        }),
        Change::Disable {
            id,
            incarnation,
            generation,
            by,
        } => Body::DisableBinding(v1::DisableBinding {
            id: id.to_string(),
            incarnation: *incarnation,
            generation: *generation,
            by: *by as u32,
        }),
        Change::Enable {
            id,
            expected_revision,
        } => Body::EnableBinding(v1::EnableBinding {
            id: id.to_string(),
            expected_revision: *expected_revision,
        }),
        Change::Unbind {
            id,
            expected_revision,
        } => Body::RemoveBinding(v1::RemoveBinding {
            id: id.to_string(),
            expected_revision: *expected_revision,
        }),
    };
    encode_command(wall_ms, body)
}

fn numbers(nodes: &[NodeId]) -> Vec<u32> {
    nodes.iter().map(|node| u32::from(node.0)).collect()
}

fn proposed(proposal: &Proposal, nodes: Nodes<'_>) -> Body {
    let mut wanted = numbers(nodes.all);
    wanted.retain(|node| !nodes.down.iter().any(|down| u32::from(down.0) == *node));
    Body::PluginPropose(v1::PluginPropose {
        name: proposal.plugin.to_string(),
        expected_revision: proposal.expected_revision,
        artifact: Some(stored_artifact(&proposal.artifact)),
        wanted,
    })
}

fn reported(report: &PlacedReport) -> Body {
    Body::PluginReady(v1::PluginReady {
        name: report.plugin.to_string(),
        rollout: report.rollout,
        report: Some(v1::PluginReport {
            node: u32::from(report.node.0),
            state: report.state as u32,
            text: report.text.to_string(),
        }),
    })
}

fn canary((plugin, expected_revision): (&str, u64), percent: u8, down: &[NodeId]) -> Body {
    Body::PluginCanary(v1::PluginCanary {
        name: plugin.to_owned(),
        expected_revision,
        percent: u32::from(percent),
        down: numbers(down),
    })
}

fn promoted((plugin, expected_revision): (&str, u64), down: &[NodeId]) -> Body {
    Body::PluginPromote(v1::PluginPromote {
        name: plugin.to_owned(),
        expected_revision,
        down: numbers(down),
    })
}

fn released((plugin, expected_revision): (&str, u64), digest: Option<Digest>) -> Body {
    Body::PluginRelease(v1::PluginRelease {
        name: plugin.to_owned(),
        expected_revision,
        digest: digest.map_or_else(Bytes::new, |digest| Bytes::copy_from_slice(&digest.0)),
    })
}

fn tripped(trip: &PlacedTrip, nodes: Nodes<'_>) -> Body {
    Body::PluginTripped(v1::PluginTripped {
        name: trip.plugin.to_string(),
        digest: Bytes::copy_from_slice(&trip.digest.0),
        node: u32::from(trip.node.0),
        given_up: trip.cause.is_some(),
        failure: trip.cause.map_or(0, |cause| cause as u32),
        nodes: numbers(nodes.all),
    })
}

fn stored_artifact(artifact: &Artifact) -> v1::PluginArtifact {
    v1::PluginArtifact {
        digest: Bytes::copy_from_slice(&artifact.digest.0),
        hooks: artifact.hooks.iter().map(|hook| *hook as u32).collect(),
        facts: artifact.facts.clone(),
    }
}

fn stored_binding(binding: &Binding) -> v1::Binding {
    let policies = binding
        .on_error
        .each()
        .map(|(failure, policy)| v1::BindingPolicy {
            failure: failure as u32,
            policy: policy as u32,
        });
    v1::Binding {
        id: binding.id.to_string(),
        plugin: binding.plugin.to_string(),
        hook: binding.hook as u32,
        selector: Some(v1::BindingSelector {
            kinds: binding
                .selector
                .kinds
                .iter()
                .map(|&kind| u32::from(kind))
                .collect(),
            ids: binding
                .selector
                .ids
                .iter()
                .map(|pattern| pattern.0.clone())
                .collect(),
            uids: binding
                .selector
                .uids
                .iter()
                .map(|uid| uid.as_str().to_owned())
                .collect(),
        }),
        priority: binding.priority,
        deadline_ms: u32::try_from(binding.deadline.as_millis()).unwrap_or(u32::MAX),
        on_error: policies.collect(),
        grants: binding.grants.clone(),
        config: binding.config.clone(),
        start: binding.start.map(|start| match start {
            StartAt::Earliest => Start::StartSeq(1),
            StartAt::Seq(seq) => Start::StartSeq(seq),
            StartAt::Time(ms) => Start::StartMs(ms),
        }),
        attempts_max: binding.attempts_max,
        exact: binding.exact,
        revision: 0,
        incarnation: 0,
        generation: 0,
        off_shard: !binding.inline,
        patience_s: u32::try_from(binding.patience.as_secs()).unwrap_or(u32::MAX),
        disabled: None,
        public: binding.public,
        events: binding.events.number(),
        own_messages: binding.own_messages,
        capture: binding.capture as u32,
    }
}

/// Names of plugins and ids of bindings stand in keys, logs and addresses.
pub(super) fn check_name(name: &str) -> Result<(), Refused> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let named = (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain);
    if named { Ok(()) } else { Err(MALFORMED) }
}

pub(super) fn check_artifact(artifact: &v1::PluginArtifact) -> Result<(), Refused> {
    let small = artifact.facts.len() <= FACTS_BYTES_MAX && artifact.hooks.len() <= 8;
    if small && read_artifact(artifact).is_ok_and(|read| !read.hooks.is_empty()) {
        Ok(())
    } else {
        Err(MALFORMED)
    }
}

pub(super) fn check_binding(binding: &v1::Binding) -> Result<(), Refused> {
    check_name(&binding.id)?;
    check_name(&binding.plugin)?;
    let read = read_binding(binding)?;
    let whole = read.selector.is_bounded()
        && !(read.hook == Hook::Connect && read.selector.names_channels())
        && (read.hook == Hook::Route || !read.public)
        && (read.hook != Hook::Route || is_route(&read))
        && DEADLINE.contains(&read.deadline)
        && (read.hook != Hook::Webhook || PATIENCE.contains(&read.patience))
        && read.config.len() + read.grants.len() <= CONFIG_BYTES_MAX
        && binding.on_error.len() <= FAILURES.len();
    if whole { Ok(()) } else { Err(MALFORMED) }
}

/// Whoever asks over HTTP is in no channel, is no user, and does not wait for long.
fn is_route(binding: &Binding) -> bool {
    binding.selector == Selector::default() && binding.deadline <= ROUTE_DEADLINE_MAX
}

fn read_artifact(stored: &v1::PluginArtifact) -> Result<Artifact, Corrupt> {
    Ok(Artifact {
        digest: read_digest(&stored.digest)?,
        hooks: stored
            .hooks
            .iter()
            .map(|&hook| Hook::of(hook).ok_or(Corrupt))
            .collect::<Result<_, _>>()?,
        facts: stored.facts.clone(),
    })
}

fn read_report(stored: &v1::PluginReport) -> Result<(NodeId, Report), Corrupt> {
    let report = Report {
        state: ReportState::of(stored.state).ok_or(Corrupt)?,
        text: Arc::from(stored.text.as_str()),
    };
    Ok((node_id(stored.node)?, report))
}

fn read_rollout(stored: &v1::PluginRollout) -> Result<Rollout, Corrupt> {
    Ok(Rollout {
        id: stored.id,
        artifact: read_artifact(stored.artifact.as_ref().ok_or(Corrupt)?)?,
        wanted: stored
            .wanted
            .iter()
            .map(|&node| node_id(node))
            .collect::<Result<_, _>>()?,
        reports: stored.reports.iter().map(read_report).collect::<Result<_, _>>()?,
        canary_percent: u8::try_from(stored.canary_percent).map_err(|_| Corrupt)?,
    })
}

fn read_plugin(stored: &v1::Plugin) -> Result<Plugin, Corrupt> {
    Ok(Plugin {
        name: Arc::from(stored.name.as_str()),
        revision: stored.revision,
        active: stored.active.as_ref().map(read_artifact).transpose()?,
        previous: stored.previous.as_ref().map(read_artifact).transpose()?,
        rollout: stored.rollout.as_ref().map(read_rollout).transpose()?,
        promoted_ms: stored.promoted_ms,
        trips: stored.trips.iter().map(read_trip).collect::<Result<_, _>>()?,
        quarantined: stored
            .quarantined
            .iter()
            .map(read_quarantine)
            .collect::<Result<_, _>>()?,
    })
}

pub(super) fn read_digest(stored: &[u8]) -> Result<Digest, Corrupt> {
    <[u8; 32]>::try_from(stored).map(Digest).map_err(|_| Corrupt)
}

pub(super) fn read_failure(number: u32) -> Result<Failure, Corrupt> {
    FAILURES.get(number as usize).copied().ok_or(Corrupt)
}

fn read_trip(stored: &v1::PluginTrip) -> Result<Trip, Corrupt> {
    Ok(Trip {
        digest: read_digest(&stored.digest)?,
        node: node_id(stored.node)?,
        at_ms: stored.at_ms,
        cause: read_failure(stored.failure)?,
    })
}

fn read_quarantine(stored: &v1::PluginQuarantine) -> Result<Quarantine, Corrupt> {
    Ok(Quarantine {
        digest: read_digest(&stored.digest)?,
        at_ms: stored.at_ms,
        reason: Arc::from(stored.reason.as_str()),
        consequence: Consequence::of(stored.consequence).ok_or(Corrupt)?,
    })
}

fn read_selector(stored: &v1::BindingSelector) -> Result<Selector, Corrupt> {
    Ok(Selector {
        kinds: stored
            .kinds
            .iter()
            .map(|&kind| u8::try_from(kind).map_err(|_| Corrupt))
            .collect::<Result<_, _>>()?,
        ids: stored.ids.iter().cloned().map(Pattern).collect(),
        uids: stored.uids.iter().map(|uid| Uid::new(uid)).collect(),
    })
}

fn read_on_error(stored: &[v1::BindingPolicy]) -> Result<OnError, Corrupt> {
    let mut on_error = OnError::all(Policy::Reject);
    for entry in stored {
        let failure = read_failure(entry.failure)?;
        let policy = POLICIES.get(entry.policy as usize).ok_or(Corrupt)?;
        on_error = on_error.with(failure, *policy);
    }
    Ok(on_error)
}

fn read_binding(stored: &v1::Binding) -> Result<Binding, Corrupt> {
    Ok(Binding {
        id: Arc::from(stored.id.as_str()),
        plugin: Arc::from(stored.plugin.as_str()),
        hook: Hook::of(stored.hook).ok_or(Corrupt)?,
        selector: read_selector(&stored.selector.clone().unwrap_or_default())?,
        priority: stored.priority,
        deadline: Duration::from_millis(u64::from(stored.deadline_ms)),
        on_error: read_on_error(&stored.on_error)?,
        grants: stored.grants.clone(),
        config: stored.config.clone(),
        start: stored.start.map(|start| match start {
            Start::StartSeq(seq) => StartAt::Seq(seq),
            Start::StartMs(ms) => StartAt::Time(ms),
        }),
        attempts_max: stored.attempts_max,
        exact: stored.exact,
        inline: !stored.off_shard,
        own_messages: stored.own_messages,
        capture: Captured::of(stored.capture).ok_or(Corrupt)?,
        patience: Duration::from_secs(u64::from(stored.patience_s)),
        public: stored.public,
        events: Events::of(stored.events),
    })
}

fn read_disabled(stored: &v1::BindingDisabled) -> Result<Disabled, Corrupt> {
    Ok(Disabled {
        by: DisabledBy::of(stored.by).ok_or(Corrupt)?,
        since_ms: stored.since_ms,
    })
}

/// The registry in these rows `(key, value)` of the controller; other rows are passed over.
///
/// # Errors
/// [`Corrupt`] when a row does not decode.
pub(crate) fn read_registry(stored: &[(Bytes, Bytes)]) -> Result<Registry, Corrupt> {
    let mut revision = 0;
    let mut plugins = Vec::new();
    let mut bindings: Vec<v1::Binding> = Vec::new();
    for (key, value) in stored {
        match key.first() {
            Some(&rows::PLUGIN) => plugins.push(read_plugin(&decode::<v1::Plugin>(value)?)?),
            Some(&rows::BINDING) => bindings.push(decode(value)?),
            Some(&rows::REGISTRY) => revision = decode::<v1::PluginRegistry>(value)?.revision,
            _ => {}
        }
    }
    let mut bounds = Vec::new();
    for stored in &bindings {
        let binding = read_binding(stored)?;
        let named = |plugin: &&Plugin| plugin.name == binding.plugin;
        let Some(plugin) = plugins.iter().find(named) else {
            continue;
        };
        let bound = Bound::new(
            binding,
            stored.revision,
            stored.incarnation,
            stored.generation,
            plugin,
        );
        let disabled = stored.disabled.as_ref().map(read_disabled).transpose()?;
        bounds.push(bound.with_disabled(disabled));
    }
    Ok(Registry::new(revision, plugins, bounds))
}
