//! Versions that keep failing: not called for a while, taken back, and switched off, each by itself.

use super::{another, bind_to, history, say, with};
use crate::make_group;
use anyhow::{Context, Result, ensure};
use penstock_e2e::{Node, Raw, binary, component, deploy, get, post, propose, until, until_ready};
use serde_json::{Value, json};
use std::process::Command;

const NAME: &str = "scripted-filter";
const SUCCESS: u8 = 1;

/// Sends, one after another.
struct Sender {
    raw: Raw,
    sent: u32,
}

impl Sender {
    fn new(node: &Node) -> Result<Sender> {
        let raw = Raw::session(node.websocket(), "alice", "d")?;
        Ok(Sender { raw, sent: 0 })
    }

    /// Whether a message with this text is stored.
    fn say(&mut self, text: &str) -> Result<bool> {
        self.sent += 1;
        let answer = say(&mut self.raw, &format!("m{}", self.sent), text)?;
        Ok(answer["reasonCode"] == SUCCESS)
    }
}

fn calls(node: &Node) -> Result<u64> {
    node.counted(&format!("penstock_plugin_calls_total{{binding=\"{NAME}\"}}"))
}

fn suspended(node: &Node) -> Result<u64> {
    node.counted("penstock_plugin_calls_suspended_total")
}

fn breaker(node: &Node) -> Result<u64> {
    node.counted(&format!("penstock_plugin_breaker_state{{binding=\"{NAME}\"}}"))
}

fn plugin(node: &Node) -> Result<Value> {
    Ok(get(node.http(), "/v1/plugins")?.body["plugins"][0].clone())
}

/// Sends what makes the filter trap until a send is refused without a call.
fn suspend(node: &Node, sender: &mut Sender) -> Result<()> {
    until("a send is refused without a call", || {
        let called = calls(node)?;
        ensure!(!sender.say("trap")?, "a trap lets nothing pass");
        Ok(calls(node)? == called)
    })?;
    ensure!(breaker(node)? > 0, "its breaker is closed");
    // Shards post this number a moment later.
    until("the refused call is counted", || Ok(suspended(node)? > 0))
}

/// Sends what makes the filter trap until one of its versions is quarantined. The plugin then.
fn ruin(node: &Node, sender: &mut Sender) -> Result<Value> {
    until("a version is quarantined", || {
        ensure!(!sender.say("trap")?, "a trap lets nothing pass");
        let plugin = plugin(node)?;
        Ok(plugin["quarantined"]
            .as_array()
            .is_some_and(|list| !list.is_empty()))
    })?;
    plugin(node)
}

#[test]
fn repeated_traps_suspend_a_filter_and_a_good_call_brings_it_back() -> Result<()> {
    let node = with(NAME, &json!({}))?;
    let mut sender = Sender::new(&node)?;
    assert!(sender.say("fine")?);
    suspend(&node, &mut sender)?;
    // Nothing is known to be better yet; the version stays.
    assert_eq!(plugin(&node)?["disabled"], false);
    until("the filter is tried again", || sender.say("fine"))?;
    assert_eq!(breaker(&node)?, 0);
    let before = calls(&node)?;
    for _ in 0..20 {
        assert!(sender.say("fine")?);
    }
    assert_eq!(calls(&node)?, before + 20, "every message is judged");
    let opened = format!("penstock_plugin_breaker_openings_total{{binding=\"{NAME}\"}}");
    assert!(node.counted(&opened)? > 0);
    assert_eq!(history(&node)?, ["fine"; 22]);
    Ok(())
}

#[test]
fn while_it_is_suspended_the_binding_says_what_becomes_of_messages() -> Result<()> {
    let node = with(NAME, &json!({ "on_error": { "suspended": "allow" } }))?;
    let mut sender = Sender::new(&node)?;
    // A trap refuses, a suspended filter lets the same words pass.
    until("a message passes by the filter", || sender.say("trap"))?;
    let here = get(node.http(), "/v1/plugins")?.body["here"][0].clone();
    assert_ne!(here["breaker"], "closed", "{here}");
    until("it is counted", || Ok(suspended(&node)? > 0))?;
    assert_eq!(history(&node)?, ["trap"]);
    // Another configuration is another version: it begins afresh.
    bind_to(&node, NAME, NAME, &json!({ "config": { "round": 2 } }))?;
    until("it is not suspended any more", || Ok(breaker(&node)? == 0))?;
    assert!(sender.say("fine")?);
    Ok(())
}

#[test]
fn a_bad_version_is_taken_back_by_itself_and_stays_away_until_it_is_released() -> Result<()> {
    let node = Node::start_logged(None, &[])?;
    let good = component(NAME)?;
    deploy(&node, NAME, &good)?;
    bind_to(&node, NAME, NAME, &json!({}))?;
    make_group(&node, &["alice", "bob"])?;
    let first = plugin(&node)?["active"]["digest"].clone();
    deploy(&node, NAME, &another(&good, "bad"))?;
    let bad = plugin(&node)?["active"]["digest"].clone();
    assert_ne!(first, bad);

    let mut sender = Sender::new(&node)?;
    let ruined = ruin(&node, &mut sender)?;
    let quarantine = ruined["quarantined"][0].clone();
    assert_eq!(
        (&quarantine["digest"], &quarantine["consequence"]),
        (&bad, &json!("rolled-back"))
    );
    let reason = quarantine["reason"].as_str().context("a reason")?;
    assert!(
        reason.contains("trap") && reason.contains("1 of 1 nodes"),
        "{reason}"
    );
    assert_eq!(
        (&ruined["active"]["digest"], &ruined["disabled"]),
        (&first, &json!(false))
    );
    // Sends go on, through the version from before, as soon as the shards know.
    until("a message passes", || sender.say("fine"))?;
    for _ in 0..20 {
        assert!(sender.say("fine")?);
    }
    let quarantined = format!("penstock_plugin_quarantined{{plugin=\"{NAME}\"}}");
    until("the metrics say so", || Ok(node.counted(&quarantined)? == 1))?;
    until("the log says so", || {
        Ok(node.log()?.contains("a version of a plugin is quarantined"))
    })?;

    for again in [
        propose(&node, NAME, &another(&good, "bad"))?,
        post(node.http(), &format!("/v1/plugins/{NAME}/rollback"), &json!({}))?,
    ] {
        assert_eq!(again.status, 409, "{}", again.text);
        assert!(again.text.contains("quarantined"), "{}", again.text);
    }
    let operator = |arguments: &[&str]| -> Result<String> {
        let server = format!("http://{}", node.http());
        let output = Command::new(binary()?)
            .args(["plugin"])
            .args(arguments)
            .args([NAME, "--server", &server])
            .output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            output.status.success(),
            "{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(said)
    };
    let status = operator(&["status"])?;
    assert!(
        status.contains(&format!(
            "rolled-back: {}",
            &bad.as_str().context("a digest")?[..12]
        )),
        "{status}"
    );
    operator(&["release"])?;
    assert_eq!(node.counted(&quarantined)?, 0);
    let proposed = propose(&node, NAME, &another(&good, "bad"))?;
    assert_eq!(proposed.status, 200, "{}", proposed.text);
    Ok(())
}

#[test]
fn a_first_version_that_is_bad_is_switched_off_and_its_policy_decides() -> Result<()> {
    let node = with(NAME, &json!({}))?;
    let mut sender = Sender::new(&node)?;
    let ruined = ruin(&node, &mut sender)?;
    assert_eq!(
        (&ruined["disabled"], &ruined["quarantined"][0]["consequence"]),
        (&json!(true), &json!("disabled"))
    );
    let disabled = format!("penstock_plugin_disabled{{plugin=\"{NAME}\"}}");
    until("the alarm is raised", || Ok(node.counted(&disabled)? == 1))?;
    let before = calls(&node)?;
    for _ in 0..10 {
        assert!(!sender.say("fine")?);
    }
    assert_eq!(calls(&node)?, before, "it is not called");
    bind_to(
        &node,
        NAME,
        NAME,
        &json!({ "on_error": { "not-ready": "allow" } }),
    )?;
    assert!(sender.say("fine")?);
    bind_to(&node, NAME, NAME, &json!({}))?;
    let released = post(node.http(), &format!("/v1/plugins/{NAME}/release"), &json!({}))?;
    assert_eq!(released.status, 200, "{}", released.text);
    assert!(sender.say("fine")?);
    assert_eq!(node.counted(&disabled)?, 0);
    assert_eq!(history(&node)?, ["fine"; 2]);
    Ok(())
}

#[test]
fn a_bad_candidate_loses_its_share_of_the_channels() -> Result<()> {
    let node = with(NAME, &json!({}))?;
    let first = plugin(&node)?["active"]["digest"].clone();
    let proposed = propose(&node, NAME, &another(&component(NAME)?, "bad"))?;
    assert_eq!(proposed.status, 200, "{}", proposed.text);
    until_ready(&node, NAME)?;
    let canary = post(
        node.http(),
        &format!("/v1/plugins/{NAME}/canary"),
        &json!({ "percent": 100 }),
    )?;
    assert_eq!(canary.status, 200, "{}", canary.text);
    let mut sender = Sender::new(&node)?;
    let ruined = ruin(&node, &mut sender)?;
    assert_eq!(ruined["quarantined"][0]["consequence"], "dropped");
    assert_eq!(
        (&ruined["active"]["digest"], &ruined["rollout"]),
        (&first, &Value::Null)
    );
    until("a message passes", || sender.say("fine"))?;
    for _ in 0..20 {
        assert!(sender.say("fine")?);
    }
    Ok(())
}
