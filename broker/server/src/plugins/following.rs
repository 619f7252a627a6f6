//! How far the plugins that follow channels have come, for `/metrics` and for those who ask.

use crate::driver::{Clock, Lags, Node};
use crate::metrics::help;
use penstock_core::shard::Lag;
use penstock_core::slot::{keys, rows};
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::Arc;

/// What the bindings that follow channels have not done, and what they have given up, by their ids.
pub(crate) fn show(node: &Node) -> Value {
    let now_ms = Clock::wall_ms();
    let lags = node.lags();
    let letters = letters(node).into_iter().map(|(binding, kept)| {
        let lag = lags.get(&binding).copied().unwrap_or_default();
        let shown = json!({
            "messages": lag.messages,
            "channels": lag.channels,
            "oldest_age_ms": lag.oldest_ms.map(|oldest| now_ms.saturating_sub(oldest)),
            "dead_letters": kept,
        });
        (binding.to_string(), shown)
    });
    Value::Object(letters.collect())
}

/// Appends lag and dead letters of the bindings that follow channels.
pub(crate) fn render(node: &Node, out: &mut String) {
    lags(&node.lags(), Clock::wall_ms(), out);
    let name = "penstock_plugin_dead_letters";
    let text = "Dead letters of a binding, as this node's replica has them: the highest of all nodes counts.";
    help(out, name, "gauge", text);
    for (binding, kept) in letters(node) {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(out, "{name}{{binding=\"{binding}\"}} {kept}");
    }
}

/// How many dead letters each binding that follows channels has.
fn letters(node: &Node) -> Vec<(Arc<str>, u64)> {
    let registry = Arc::clone(&node.registry().borrow());
    let bindings = registry.bindings().iter().map(|bound| &bound.binding);
    let following = bindings.filter(|binding| binding.hook.follows());
    let counted = following.filter_map(|binding| {
        // A failed read has stopped the store, which says so itself.
        let row = node.store().row(&keys::letters_counter(&binding.id)).ok()?;
        Some((Arc::clone(&binding.id), rows::count(row.as_ref()).unwrap_or(0)))
    });
    counted.collect()
}

/// Name, help and value of a series.
type Series = (&'static str, &'static str, fn(&Lag, u64) -> f64);

#[expect(
    clippy::cast_precision_loss,
    reason = "the format has floating point numbers only"
)]
const LAGS: [Series; 3] = [
    (
        "penstock_plugin_lag_messages",
        "Committed messages that a binding has not done, in the channels that are led here.",
        |lag, _| lag.messages as f64,
    ),
    (
        "penstock_plugin_lag_channels",
        "Channels in which it is behind.",
        |lag, _| lag.channels as f64,
    ),
    (
        "penstock_plugin_lag_seconds",
        "How old the oldest message is that it was handed and has not done.",
        |lag, now_ms| {
            lag.oldest_ms
                .map_or(0.0, |oldest| now_ms.saturating_sub(oldest) as f64 / 1_000.0)
        },
    ),
];

fn lags(lags: &Lags, now_ms: u64, out: &mut String) {
    for (name, text, value) in LAGS {
        help(out, name, "gauge", text);
        for (binding, lag) in lags {
            let _ = writeln!(out, "{name}{{binding=\"{binding}\"}} {}", value(lag, now_ms));
        }
    }
}
