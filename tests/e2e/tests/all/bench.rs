//! `penstock bench` against the real node: its accounts agree with themselves, and nothing is missing, doubled or out of order.

use anyhow::{Context, Result};
use penstock_e2e::{Node, binary};
use serde_json::{Value, json};
use std::fs;
use std::process::{Command, Output};

/// Runs the load generator and gives its output and its JSON report.
fn bench(target: &str, arguments: &[&str]) -> Result<(Output, Value)> {
    let folder = tempfile::tempdir()?;
    let report = folder.path().join("report.json");
    let page = folder.path().join("report.html");
    let output = Command::new(binary()?)
        .args(["bench", "--target", target])
        .args(arguments)
        .arg("--json")
        .arg(&report)
        .arg("--html")
        .arg(&page)
        .output()
        .context("the load generator cannot be started")?;
    let text = fs::read_to_string(&report)
        .with_context(|| format!("no report: {}", String::from_utf8_lossy(&output.stderr)))?;
    assert!(fs::read_to_string(&page)?.contains("<!doctype html>"));
    Ok((output, serde_json::from_str(&text)?))
}

/// A clean run in which every acknowledged message came to this many others.
fn assert_clean(output: &Output, report: &Value, receivers: u64) {
    assert!(
        output.status.success(),
        "{report}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for (wrong, count) in report["verify"].as_object().expect("an account") {
        assert_eq!(count, 0, "{wrong}");
    }
    let total = |name: &str| report["totals"][name].as_u64().expect("a count");
    assert!(total("acked") > 0);
    assert_eq!(total("owed"), total("acked") * receivers);
    assert_eq!(total("delivered"), total("owed"));
    let refused: u64 = report["refused"]
        .as_object()
        .expect("an account")
        .values()
        .filter_map(Value::as_u64)
        .sum();
    assert_eq!(total("sent"), total("acked") + refused);
    assert_eq!((total("unanswered"), total("foreign")), (0, 0));
    assert_eq!(report["connect"]["lost"], json!({}));
    // What was due in the measured time is a part of the whole.
    let counted = |name: &str| report[name]["count"].as_u64().expect("a count");
    assert!(counted("sendack_ms") > 0 && counted("sendack_ms") <= total("acked"));
    assert!(counted("recv_ms") > 0 && counted("recv_ms") <= total("delivered"));
    for part in ["p50", "p90", "p99", "p999", "max"] {
        assert!(report["recv_ms"][part].as_f64() > Some(0.0), "{part}");
    }
}

#[test]
fn person_traffic_in_a_closed_loop_over_tcp_is_exact() -> Result<()> {
    let node = Node::start(&[])?;
    let target = format!("wkproto://{}", node.tcp());
    let load = [
        "--mode",
        "person",
        "--connections",
        "20",
        "--duration",
        "2s",
        "--warm-up",
        "500ms",
    ];
    let (output, report) = bench(&target, &load)?;
    assert_clean(&output, &report, 1);
    assert_eq!(
        (&report["mode"], &report["connections"]),
        (&json!("person"), &json!(20))
    );
    Ok(())
}

/// Members who write as fast as they are answered are pushed more than their windows hold: delivery waits for their
/// acknowledgements instead of closing them (PC-4).
#[test]
fn a_group_that_outruns_the_windows_of_its_members_is_exact() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("penstock.toml");
    fs::write(&file, "[session]\nunacknowledged_max = 16\n")?;
    let node = Node::start(&["--config", &file.display().to_string()])?;
    let target = format!("wkproto://{}", node.tcp());
    let api = format!("http://{}", node.http());
    let load = [
        "--mode",
        "group",
        "--members",
        "10",
        "--duration",
        "500ms",
        "--warm-up",
        "100ms",
        // Through windows of 16 it takes longer to deliver than to send.
        "--drain",
        "60s",
        "--api",
        &api,
    ];
    let (output, report) = bench(&target, &load)?;
    assert_clean(&output, &report, 9);
    assert_eq!(node.closed("unacknowledged_overflow")?, 0);
    Ok(())
}

#[test]
fn group_traffic_in_an_open_loop_over_websockets_is_exact() -> Result<()> {
    let node = Node::start(&[])?;
    let api = format!("http://{}", node.http());
    let load = [
        "--mode",
        "group",
        "--groups",
        "2",
        "--members",
        "5",
        "--rate",
        "200",
        "--duration",
        "2s",
        "--warm-up",
        "500ms",
        "--api",
        &api,
    ];
    let (output, report) = bench(node.websocket(), &load)?;
    assert_clean(&output, &report, 4);
    // 200 a second for two and a half seconds.
    assert_eq!(report["totals"]["sent"], 500);
    assert_eq!(report["sendack_ms"]["count"], 400);
    Ok(())
}

#[test]
fn a_storm_of_logins_beside_traffic_is_reported() -> Result<()> {
    let node = Node::start(&[])?;
    let target = format!("wkproto://{}", node.tcp());
    let load = [
        "--mode",
        "login",
        "--connections",
        "60",
        "--connect-rate",
        "60",
        "--background",
        "10",
        "--rate",
        "100",
        "--duration",
        "1s",
        "--warm-up",
        "500ms",
    ];
    let (output, report) = bench(&target, &load)?;
    assert_clean(&output, &report, 1);
    assert_eq!(report["connect"]["connected"], 60);
    assert_eq!(report["connect"]["connack_ms"]["count"], 60);
    assert_eq!(report["login"]["background"], 10);
    assert!(report["login"]["sendack_during_ms"]["count"].as_u64() > Some(0));
    Ok(())
}

#[test]
fn a_server_that_admits_nobody_fails_the_run_with_its_reason() -> Result<()> {
    // It demands tokens, and nobody has one.
    let node = Node::start_guarded(&"0".repeat(64), &[])?;
    let target = format!("wkproto://{}", node.tcp());
    let load = ["--mode", "idle", "--connections", "3", "--duration", "1s"];
    let (output, report) = bench(&target, &load)?;
    assert!(!output.status.success());
    assert_eq!(report["connect"]["failed"], json!({ "CONNACK auth_fail": 3 }));
    Ok(())
}
