//! Plugins and bindings as JSON.

use penstock_core::hooks::call::Digest;
use penstock_core::hooks::pipeline::Policy;
use penstock_core::hooks::registry::{Artifact, Bound, Hook, Plugin, ReportState, StartAt};
use serde_json::{Map, Value, json};

/// The digest of these hexadecimal digits.
pub(super) fn digest(text: &str) -> Option<Digest> {
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut digest = [0; 32];
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(Digest(digest))
}

/// What the manifest said.
pub(super) fn facts(artifact: &Artifact) -> Value {
    serde_json::from_slice(&artifact.facts).unwrap_or_default()
}

pub(super) fn artifact(artifact: &Artifact) -> Value {
    let mut shown = json!({
        "digest": artifact.digest.to_string(),
        "hooks": artifact.hooks.iter().map(|hook| hook.name()).collect::<Vec<_>>(),
    });
    if let Value::Object(facts) = facts(artifact) {
        for (name, value) in facts {
            shown[name] = value;
        }
    }
    shown
}

pub(super) fn plugin(plugin: &Plugin) -> Value {
    let rollout = plugin.rollout.as_ref().map(|rollout| {
        let reports = rollout.reports.iter().map(|(node, report)| {
            let state = match report.state {
                ReportState::Stored => "stored",
                ReportState::Ready => "ready",
                ReportState::Failed => "failed",
            };
            json!({ "node": node.0, "state": state, "text": &*report.text })
        });
        json!({
            "candidate": artifact(&rollout.artifact),
            "ready": rollout.is_ready(),
            "reports": reports.collect::<Value>(),
            "canary_percent": rollout.canary_percent,
        })
    });
    let trips = plugin.trips.iter().map(|trip| {
        json!({
            "digest": trip.digest.to_string(), "node": trip.node.0,
            "since_ms": trip.at_ms, "cause": trip.cause.name(),
        })
    });
    let quarantined = plugin.quarantined.iter().map(|quarantine| {
        json!({
            "digest": quarantine.digest.to_string(),
            "since_ms": quarantine.at_ms,
            "reason": &*quarantine.reason,
            "consequence": quarantine.consequence.name(),
        })
    });
    json!({
        "name": &*plugin.name,
        "revision": plugin.revision,
        "active": plugin.active.as_ref().map(artifact),
        "previous": plugin.previous.as_ref().map(artifact),
        "rollout": rollout,
        "disabled": plugin.is_disabled(),
        "given_up": trips.collect::<Value>(),
        "quarantined": quarantined.collect::<Value>(),
    })
}

pub(super) fn bound(bound: &Bound) -> Value {
    let binding = &bound.binding;
    let on_error: Map<String, Value> = binding
        .on_error
        .each()
        .map(|(failure, policy)| (failure.name().to_owned(), json!(policy_name(policy))))
        .collect();
    let json_of = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap_or_default();
    json!({
        "id": &*binding.id,
        "revision": bound.revision,
        "generation": bound.generation,
        "plugin": &*binding.plugin,
        "hook": binding.hook.name(),
        "selector": {
            "channel_types": &binding.selector.kinds,
            "channel_ids": binding.selector.ids.iter().map(|pattern| &pattern.0).collect::<Vec<_>>(),
            "uids": binding.selector.uids.iter().map(|uid| uid.as_str()).collect::<Vec<_>>(),
        },
        "priority": binding.priority,
        "deadline_ms": u64::try_from(binding.deadline.as_millis()).unwrap_or(u64::MAX),
        "on_error": on_error,
        "grants": json_of(&binding.grants),
        "config": json_of(&binding.config),
        "start": match binding.start {
            None => json!("latest"),
            Some(StartAt::Earliest) => json!("earliest"),
            Some(StartAt::Seq(seq)) => json!({ "seq": seq }),
            Some(StartAt::Time(ms)) => json!({ "time_ms": ms }),
        },
        "attempts_max": binding.attempts_max,
        "exact": binding.exact,
        "inline": binding.inline,
        "own_messages": binding.own_messages,
        "capture": binding.capture.name(),
        "patience_s": (binding.hook == Hook::Webhook).then_some(binding.patience.as_secs()),
        "disabled": bound.disabled.map(|disabled| {
            json!({ "by": disabled.by.name(), "since_ms": disabled.since_ms })
        }),
    })
}

const fn policy_name(policy: Policy) -> &'static str {
    match policy {
        Policy::Reject => "reject",
        Policy::Allow => "allow",
        Policy::Skip => "skip",
    }
}
