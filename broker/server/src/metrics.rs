//! `/metrics` in the Prometheus text format. No label holds a user or a channel, so that the number of series is constant
//! (S25).

use crate::driver::{Counted, Node};
use crate::plugins::{Plugins, following};
use penstock_core::rows::Instance;
use penstock_net::gateway;
use std::fmt::Write;
use std::sync::atomic::Ordering;

/// Everything a node can count.
#[must_use]
pub fn render(node: &Node, gateway: &gateway::Metrics, plugins: &Plugins) -> String {
    let mut out = String::with_capacity(8_192);
    gateway.render(&mut out);
    store(node, &mut out);
    shards(node, &mut out);
    plugins.metrics(&mut out);
    following::render(node, &mut out);
    out
}

fn store(node: &Node, out: &mut String) {
    let metrics = node.store().metrics();
    help(
        out,
        "penstock_store_syncs_total",
        "counter",
        "Syncs of the write-ahead log.",
    );
    for (name, instance) in [("meta", Instance::Meta), ("data", Instance::Data)] {
        let value = metrics.of(instance).syncs.load(Ordering::Relaxed);
        line(
            out,
            "penstock_store_syncs_total",
            &format!("instance=\"{name}\""),
            value,
        );
    }
    help(
        out,
        "penstock_store_space_low",
        "gauge",
        "1 when free space is below store.low_space_bytes.",
    );
    line(
        out,
        "penstock_store_space_low",
        "",
        u64::from(node.store().space_low()),
    );
}

fn shards(node: &Node, out: &mut String) {
    let counted = node.counted();
    let grown = happened(&counted).into_iter().chain(of_keys(&counted));
    for (name, text, value) in grown.chain(of_presence(&counted)) {
        help(out, name, "counter", text);
        line(out, name, "", value);
    }
    for (name, text, value) in present(&counted) {
        help(out, name, "gauge", text);
        line(out, name, "", value);
    }
}

/// Name, help and value of a series.
type Series = (&'static str, &'static str, u64);

/// What only ever grows.
fn happened(counted: &Counted) -> [Series; 13] {
    let counters = &counted.counters;
    [
        (
            "penstock_sends_committed_total",
            "Sends acknowledged as committed.",
            counters.sends_committed,
        ),
        (
            "penstock_sends_refused_total",
            "Sends refused.",
            counters.sends_refused,
        ),
        (
            "penstock_sends_unknown_total",
            "Sends with an unknown outcome.",
            counters.sends_unknown,
        ),
        (
            "penstock_channel_activations_total",
            "Channels activated.",
            counters.activations,
        ),
        (
            "penstock_channel_evictions_total",
            "Channels evicted from memory.",
            counters.evictions,
        ),
        (
            "penstock_channel_openings_refused_total",
            "Requests refused because too many channels were being opened.",
            counters.openings_refused,
        ),
        (
            "penstock_channel_leaderships_total",
            "Channel leaderships begun.",
            counters.leaderships,
        ),
        (
            "penstock_records_damaged_total",
            "Damage found in stored records.",
            counters.damaged,
        ),
        (
            "penstock_alarms_total",
            "Contradictions from outside that were refused.",
            counters.alarms,
        ),
        (
            "penstock_plugin_calls_suspended_total",
            "Calls of plugins that were not made because a breaker was open.",
            counters.calls_suspended,
        ),
        (
            "penstock_dead_letters_total",
            "Messages given up for a consumer.",
            counters.dead_letters,
        ),
        (
            "penstock_channels_resumed_total",
            "Sleeping channels that were woken because something that follows them was behind.",
            counters.resumed,
        ),
        (
            "penstock_row_misses_total",
            "Row reads that had to go to disk.",
            counted.misses,
        ),
    ]
}

/// What became of changes of plugins' keys.
fn of_keys(counted: &Counted) -> [Series; 5] {
    let counters = &counted.counters;
    [
        (
            "penstock_key_changes_total",
            "Changes of keys that messages have caused or somebody asked for, made together in one slot.",
            counters.key_changes,
        ),
        (
            "penstock_key_refusals_quota_total",
            "Changes of keys refused because the plugin has no room left in a slot.",
            counters.key_quota,
        ),
        (
            "penstock_key_refusals_not_a_number_total",
            "Changes of keys refused because a value is no number.",
            counters.key_not_a_number,
        ),
        (
            "penstock_key_refusals_too_large_total",
            "Changes of keys refused because something is too large.",
            counters.key_too_large,
        ),
        (
            "penstock_key_changes_unavailable_total",
            "Changes of keys not made because their slot could not be asked.",
            counters.key_unavailable,
        ),
    ]
}

/// What plugins were told of who is there and who is not.
fn of_presence(counted: &Counted) -> [Series; 3] {
    let counters = &counted.counters;
    [
        (
            "penstock_online_status_dropped_total",
            "Sessions that began or ended of which some webhook is never told.",
            counters.online_status_dropped,
        ),
        (
            "penstock_offline_uids_total",
            "Offline recipients that plugins have taken note of.",
            counters.offline_uids,
        ),
        (
            "penstock_offline_presence_retries_total",
            "Times that presence was asked for again for offline recipients, because it was not known.",
            counters.presence_retries,
        ),
    ]
}

/// What is there now.
fn present(counted: &Counted) -> [Series; 5] {
    [
        ("penstock_sessions", "Open sessions.", counted.sessions),
        (
            "penstock_unacknowledged_messages",
            "Messages offered and not acknowledged.",
            counted.unacknowledged,
        ),
        ("penstock_steps_held", "Inputs that wait for rows.", counted.held),
        (
            "penstock_channels_opening",
            "Channels on their way from cold to led.",
            counted.opening,
        ),
        ("penstock_channels", "Channels in memory.", counted.hosted),
    ]
}

pub(crate) fn help(out: &mut String, name: &str, kind: &str, text: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "# HELP {name} {text}\n# TYPE {name} {kind}");
}

fn line(out: &mut String, name: &str, labels: &str, value: u64) {
    let labels = if labels.is_empty() {
        String::new()
    } else {
        format!("{{{labels}}}")
    };
    let _ = writeln!(out, "{name}{labels} {value}");
}
