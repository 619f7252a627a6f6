//! What operators see of plugins in `/metrics`: what is behind, what was given up, what calls used, which versions there are.

use super::consumers::{NAME, follow, followed, lines_until, say_all};
use anyhow::{Context, Result, ensure};
use penstock_e2e::{Node, PATIENCE, get};
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The value of a series of the binding; none when it is not shown.
fn shown(page: &str, name: &str) -> Option<f64> {
    let begin = format!("{name}{{binding=\"{NAME}\"}} ");
    let line = page.lines().find_map(|line| line.strip_prefix(&begin))?;
    line.parse().ok()
}

/// The page, once a series of the binding is what is wanted.
fn page_when(node: &Node, name: &str, wanted: impl Fn(f64) -> bool) -> Result<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let page = get(node.http(), "/metrics")?.text;
        if shown(&page, name).is_some_and(&wanted) {
            return Ok(page);
        }
        ensure!(Instant::now() < deadline, "{name}: {page}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The series that the page for operators names; where it leaves the end of a name open it promises none.
fn promised() -> Result<BTreeSet<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../broker/docs/plugins.md");
    let page = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let spans = page.split('`').filter(|span| span.starts_with("penstock_"));
    let whole = |span: &&str| span.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let named: BTreeSet<String> = spans.filter(whole).map(str::to_owned).collect();
    ensure!(named.len() > 20, "{named:?}");
    Ok(named)
}

#[test]
#[expect(clippy::float_cmp, reason = "whole numbers")]
fn metrics_say_how_far_a_binding_is_behind_and_what_it_gave_up() -> Result<()> {
    let node = followed(&json!({ "attempts_max": 100 }))?;
    say_all(&node, &["first poison", "second retry", "third", "fourth"])?;
    lines_until(&node, "retry 2 second")?;
    let page = page_when(&node, "penstock_plugin_lag_messages", |lag| lag == 3.0)?;
    assert_eq!(shown(&page, "penstock_plugin_lag_channels"), Some(1.0), "{page}");
    assert_eq!(shown(&page, "penstock_plugin_dead_letters"), Some(1.0), "{page}");
    let age = shown(&page, "penstock_plugin_lag_seconds");
    assert!(age.is_some_and(|age| age > 0.0 && age < 120.0), "{page}");
    let older = page_when(&node, "penstock_plugin_lag_seconds", |later| Some(later) > age)?;
    assert_eq!(
        shown(&older, "penstock_plugin_lag_messages"),
        Some(3.0),
        "{older}"
    );

    follow(&node, &json!({ "attempts_max": 100, "config": { "calm": true } }))?;
    lines_until(&node, "done 4 fourth")?;
    let page = page_when(&node, "penstock_plugin_lag_messages", |lag| lag == 0.0)?;
    assert_eq!(shown(&page, "penstock_plugin_lag_channels"), Some(0.0), "{page}");
    assert_eq!(shown(&page, "penstock_plugin_lag_seconds"), Some(0.0), "{page}");
    Ok(())
}

#[test]
fn metrics_say_what_calls_used_and_which_versions_there_are() -> Result<()> {
    let node = followed(&json!({}))?;
    say_all(&node, &["first", "second"])?;
    lines_until(&node, "done 2 second")?;
    let page = page_when(&node, "penstock_plugin_bytes_in_total", |bytes| bytes > 20.0)?;
    let some = |name| shown(&page, name).is_some_and(|value| value > 0.0);
    assert!(some("penstock_plugin_instances"), "{page}");
    assert!(some("penstock_plugin_guest_seconds_total"), "{page}");
    for name in [
        "penstock_plugin_host_seconds_total",
        "penstock_plugin_bytes_out_total",
        "penstock_plugin_memory_grown_bytes_total",
    ] {
        assert!(shown(&page, name).is_some(), "{name}: {page}");
    }
    for name in promised()? {
        assert!(page.contains(&format!("# TYPE {name} ")), "{name}: {page}");
    }
    let status = get(node.http(), "/v1/plugins")?.body;
    let digest = status["plugins"][0]["active"]["digest"]
        .as_str()
        .unwrap_or_default();
    assert_eq!(digest.len(), 64, "{status}");
    let info = format!("penstock_plugin_info{{plugin=\"{NAME}\",role=\"active\",digest=\"{digest}\"}} 1");
    assert!(page.lines().any(|line| line == info), "{info}: {page}");
    Ok(())
}
