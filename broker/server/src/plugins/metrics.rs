//! What plugins cost, for `/metrics`. A series carries the binding's id, of which there is a bounded number (S25).

use crate::metrics::help;
use penstock_plugin_host::{PoolStatus, Status, VersionStatus};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Appends the series of all bindings that run on this node.
pub(super) fn render(status: &Status, failed: usize, out: &mut String) {
    let mut bindings: BTreeMap<&str, VersionStatus> = BTreeMap::new();
    for (version, counted) in status {
        add(bindings.entry(&version.binding).or_default(), counted);
    }
    help(
        out,
        "penstock_plugin_versions_failed",
        "gauge",
        "Versions that this node cannot load.",
    );
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(out, "penstock_plugin_versions_failed {failed}");
    for (name, text, value) in SERIES {
        help(out, name, "counter", text);
        for (binding, counted) in &bindings {
            let _ = writeln!(out, "{name}{{binding=\"{binding}\"}} {}", value(counted));
        }
    }
    for (name, text, value) in GAUGES {
        help(out, name, "gauge", text);
        for (binding, counted) in &bindings {
            let _ = writeln!(out, "{name}{{binding=\"{binding}\"}} {}", value(counted));
        }
    }
    for (name, text, counts) in LABELLED {
        labelled(out, &bindings, name, text, counts);
    }
}

/// Appends what the pool of instances holds, which all plugins share.
pub(super) fn render_pool(pool: &PoolStatus, out: &mut String) {
    let series: [(&str, &str, u64); 5] = [
        (
            "penstock_plugin_pool_instances",
            "Instances of the pool that are in use.",
            pool.instances,
        ),
        (
            "penstock_plugin_pool_memories",
            "Linear memories of the pool that are in use.",
            pool.memories,
        ),
        (
            "penstock_plugin_pool_tables",
            "Tables of the pool that are in use.",
            pool.tables,
        ),
        (
            "penstock_plugin_pool_memories_warm",
            "Linear memories that nobody uses, kept for the next instance of the same plugin.",
            pool.memories_warm,
        ),
        (
            "penstock_plugin_pool_resident_bytes",
            "What those keep of the machine's memory.",
            pool.resident_bytes,
        ),
    ];
    for (name, text, value) in series {
        help(out, name, "gauge", text);
        let _ = writeln!(out, "{name} {value}");
    }
}

/// Name, help and value of what is there now.
type Gauge = (&'static str, &'static str, fn(&VersionStatus) -> u64);

const GAUGES: [Gauge; 2] = [
    ("penstock_plugin_instances", "Instances that live.", |status| {
        status.created.saturating_sub(status.ended)
    }),
    (
        "penstock_plugin_memory_high_bytes",
        "Highest memory of one instance after a call.",
        |status| status.memory_high,
    ),
];

/// Counters with a label beside the binding: name and label, help, counts.
type Labelled = (
    (&'static str, &'static str),
    &'static str,
    fn(&VersionStatus) -> Vec<(&'static str, u64)>,
);

const LABELLED: [Labelled; 7] = [
    (
        ("penstock_plugin_failures_total", "class"),
        "Calls that failed, by class.",
        failures,
    ),
    (
        ("penstock_plugin_instances_retired_total", "reason"),
        "Instances that were dropped, by reason.",
        |status| by_reason(&status.retired),
    ),
    (
        ("penstock_plugin_key_errors_total", "reason"),
        "Operations on keys that failed, by reason.",
        |status| by_reason(&status.key_errors),
    ),
    (
        ("penstock_plugin_http_requests_total", "outcome"),
        "Requests of plugins, by the class of the status or why there was no answer.",
        |status| by_reason(&status.http_requests),
    ),
    (
        ("penstock_plugin_publish_errors_total", "reason"),
        "Messages that plugins could not publish, by reason.",
        |status| by_reason(&status.publish_errors),
    ),
    (
        ("penstock_plugin_message_read_errors_total", "reason"),
        "Reads of messages by plugins that failed, by reason.",
        |status| by_reason(&status.read_errors),
    ),
    (
        ("penstock_plugin_demotions_total", "reason"),
        "How often calls of a version were sent back from the threads of shards, by reason.",
        |status| by_reason(&status.demotions),
    ),
];

fn failures(status: &VersionStatus) -> Vec<(&'static str, u64)> {
    let counts = status.failures.iter();
    counts.map(|(failure, count)| (failure.name(), *count)).collect()
}

fn by_reason(counts: &BTreeMap<&'static str, u64>) -> Vec<(&'static str, u64)> {
    counts.iter().map(|(reason, count)| (*reason, *count)).collect()
}

/// Appends a counter that has a label beside the binding, under this name.
fn labelled(
    out: &mut String,
    bindings: &BTreeMap<&str, VersionStatus>,
    (name, label): (&'static str, &'static str),
    text: &'static str,
    counts: fn(&VersionStatus) -> Vec<(&'static str, u64)>,
) {
    help(out, name, "counter", text);
    for (binding, counted) in bindings {
        for (value, count) in counts(counted) {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{name}{{binding=\"{binding}\",{label}=\"{value}\"}} {count}");
        }
    }
}

/// Name, help and value of a counter.
type Series = (&'static str, &'static str, fn(&VersionStatus) -> f64);

#[expect(
    clippy::cast_precision_loss,
    reason = "the format has floating point numbers only"
)]
const SERIES: [Series; 17] = [
    (
        "penstock_plugin_calls_total",
        "Calls that ended, well or not.",
        |status| status.calls as f64,
    ),
    (
        "penstock_plugin_calls_inline_total",
        "Those of them that ran on the thread of a shard.",
        |status| status.calls_inline as f64,
    ),
    (
        "penstock_plugin_promotions_total",
        "How often a version earned it that its calls run on the threads of shards.",
        |status| status.promotions as f64,
    ),
    (
        "penstock_plugin_messages_total",
        "Messages of these calls.",
        |status| status.messages as f64,
    ),
    (
        "penstock_plugin_guest_seconds_total",
        "Time inside guests.",
        |status| status.guest_s,
    ),
    (
        "penstock_plugin_host_seconds_total",
        "The part of it that guests waited for what they asked the broker: keys, messages, places outside.",
        |status| status.host_s,
    ),
    (
        "penstock_plugin_bytes_in_total",
        "Bytes that went to guests: frames, bodies and uids.",
        |status| status.bytes_in as f64,
    ),
    (
        "penstock_plugin_bytes_out_total",
        "Bytes that came back: frames, changes of keys, requests and bodies.",
        |status| status.bytes_out as f64,
    ),
    (
        "penstock_plugin_memory_grown_bytes_total",
        "By how much the memory of instances grew in calls.",
        |status| status.memory_grown as f64,
    ),
    (
        "penstock_plugin_queue_seconds_total",
        "Time that calls waited for a thread.",
        |status| status.queue_s,
    ),
    (
        "penstock_plugin_instances_created_total",
        "Instances that were made.",
        |status| status.created as f64,
    ),
    (
        "penstock_plugin_key_operations_total",
        "Operations on keys that plugins asked for in calls.",
        |status| status.key_operations as f64,
    ),
    (
        "penstock_plugin_http_seconds_total",
        "Time that requests of plugins took.",
        |status| status.http_s,
    ),
    (
        "penstock_plugin_secrets_revealed_total",
        "Values of [plugins.secrets] that plugins were shown.",
        |status| status.secrets_revealed as f64,
    ),
    (
        "penstock_plugin_published_total",
        "Messages that plugins published: committed, or found again by their number.",
        |status| status.published as f64,
    ),
    (
        "penstock_plugin_message_reads_total",
        "Reads of messages by plugins.",
        |status| status.reads as f64,
    ),
    (
        "penstock_plugin_log_lines_dropped_total",
        "Lines that plugins logged too fast.",
        |status| status.lines_dropped as f64,
    ),
];

/// The versions of a binding are counted together.
fn add(sum: &mut VersionStatus, counted: &VersionStatus) {
    sum.calls += counted.calls;
    sum.calls_inline += counted.calls_inline;
    sum.promotions += counted.promotions;
    sum.messages += counted.messages;
    sum.guest_s += counted.guest_s;
    sum.host_s += counted.host_s;
    sum.bytes_in += counted.bytes_in;
    sum.bytes_out += counted.bytes_out;
    sum.memory_grown += counted.memory_grown;
    sum.ended += counted.ended;
    sum.queue_s += counted.queue_s;
    sum.created += counted.created;
    sum.lines_dropped += counted.lines_dropped;
    sum.key_operations += counted.key_operations;
    for (reason, count) in &counted.key_errors {
        *sum.key_errors.entry(reason).or_default() += count;
    }
    sum.http_s += counted.http_s;
    sum.secrets_revealed += counted.secrets_revealed;
    for (outcome, count) in &counted.http_requests {
        *sum.http_requests.entry(outcome).or_default() += count;
    }
    sum.published += counted.published;
    sum.reads += counted.reads;
    for (reason, count) in &counted.publish_errors {
        *sum.publish_errors.entry(reason).or_default() += count;
    }
    for (reason, count) in &counted.read_errors {
        *sum.read_errors.entry(reason).or_default() += count;
    }
    sum.memory_high = sum.memory_high.max(counted.memory_high);
    for (failure, count) in &counted.failures {
        *sum.failures.entry(*failure).or_default() += count;
    }
    for (reason, count) in &counted.retired {
        *sum.retired.entry(reason).or_default() += count;
    }
    for (reason, count) in &counted.demotions {
        *sum.demotions.entry(reason).or_default() += count;
    }
}
