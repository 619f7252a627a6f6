//! Captures, as people read them: JSON and metrics.

use crate::metrics::help;
use penstock_plugin_host::{Capture, CaptureCounts, Captures};
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;

/// The captures of a binding without their inputs, newest first.
pub(super) fn list(captures: &Captures, binding: &str) -> Value {
    captures.list(binding).iter().map(summary).collect()
}

/// A whole one.
pub(super) fn whole(captures: &Captures, binding: &str, id: &str) -> Option<Value> {
    let capture = captures.get(binding, id)?;
    let mut shown = summary(&capture);
    shown["input"] = serde_json::from_str(&capture.input).unwrap_or_default();
    Some(shown)
}

fn summary(capture: &Capture) -> Value {
    json!({
        "id": capture.id,
        "binding": &*capture.version.binding,
        "plugin": &*capture.plugin,
        "digest": capture.version.digest.to_string(),
        "generation": capture.version.generation,
        "hook": capture.hook,
        "class": capture.class,
        "error": &*capture.error,
        "at_ms": capture.at_ms,
        "times": capture.times,
        "took_us": whole_us(capture.took),
        "deadline_ms": whole_us(capture.within) / 1_000,
        "payloads": capture.payloads.name(),
        "bytes": capture.input.len(),
    })
}

fn whole_us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Appends the series of all bindings.
pub(super) fn render(captures: &Captures, out: &mut String) {
    let counts = captures.counts();
    // Writing to a string cannot fail, here and below.
    let mut series =
        |name: &str, kind: &str, text: &str, values: &dyn Fn(&CaptureCounts) -> Vec<(&str, u64)>| {
            help(out, name, kind, text);
            for (binding, counted) in &counts {
                for (label, value) in values(counted) {
                    let _ = writeln!(out, "{name}{{binding=\"{binding}\"{label}}} {value}");
                }
            }
        };
    series(
        "penstock_plugin_captures_total",
        "counter",
        "Inputs of failed calls that were captured.",
        &|counted| vec![("", counted.taken)],
    );
    series(
        "penstock_plugin_captures_dropped_total",
        "counter",
        "Inputs of failed calls that were not captured, by reason: they came too fast, or one was too large.",
        &|counted| {
            vec![
                (",reason=\"rate\"", counted.dropped_rate),
                (",reason=\"size\"", counted.dropped_size),
            ]
        },
    );
    series(
        "penstock_plugin_captures_bytes",
        "gauge",
        "Bytes of the captures that are held.",
        &|counted| vec![("", u64::try_from(counted.bytes).unwrap_or(u64::MAX))],
    );
}
