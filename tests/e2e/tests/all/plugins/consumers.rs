//! What is done with messages once they are stored: in order, again after a failure, and on after a crash.

use super::say;
use crate::make_group;
use anyhow::{Context, Result, ensure};
use penstock_e2e::{Node, PATIENCE, Raw, bind, component, deploy, get};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

pub(super) const NAME: &str = "scripted-consumer";
const SUCCESS: u8 = 1;

/// A node with the scripted consumer bound to every channel; what `binding` says comes on top.
pub(super) fn followed(binding: &Value) -> Result<Node> {
    let node = Node::start(&[])?;
    deploy(&node, NAME, &component(NAME)?)?;
    follow(&node, binding)?;
    make_group(&node, &["alice", "bob"])?;
    Ok(node)
}

pub(super) fn follow(node: &Node, binding: &Value) -> Result<()> {
    // Room enough for a busy machine.
    let mut whole = json!({ "plugin": NAME, "hook": "persist-after", "deadline_ms": 5_000 });
    for (key, value) in binding.as_object().context("an object")? {
        whole[key] = value.clone();
    }
    bind(node, NAME, &whole)
}

/// Says these texts in the group.
pub(super) fn say_all(node: &Node, texts: &[&str]) -> Result<()> {
    let mut raw = Raw::session(node.websocket(), "alice", "d")?;
    for text in texts {
        assert_eq!(say(&mut raw, text, text)?["reasonCode"], SUCCESS);
    }
    Ok(())
}

/// What the plugin of a binding was asked and how it answered: outcome, position, and the first word of the message.
pub(super) fn lines_of(node: &Node, id: &str) -> Result<Vec<String>> {
    let logs = get(node.http(), &format!("/v1/bindings/{id}/logs"))?.body;
    let logs = logs.as_array().with_context(|| logs.to_string())?;
    let lines = logs.iter().filter_map(|line| line["text"].as_str());
    // The broker's own lines about failures stand between them.
    lines
        .filter_map(|line| line.split_once(" {"))
        .map(|(asked, payload)| {
            let payload: Value = serde_json::from_str(&format!("{{{payload}"))?;
            let content = payload["content"].as_str().context("a content")?;
            let word = content.split(' ').next().unwrap_or_default();
            Ok(format!("{asked} {word}"))
        })
        .collect()
}

/// The lines, once this one is among them.
pub(super) fn lines_until(node: &Node, wanted: &str) -> Result<Vec<String>> {
    lines_of_until(node, NAME, wanted)
}

/// The same for another binding.
pub(super) fn lines_of_until(node: &Node, id: &str, wanted: &str) -> Result<Vec<String>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let lines = lines_of(node, id)?;
        if lines.iter().any(|line| line == wanted) {
            return Ok(lines);
        }
        ensure!(Instant::now() < deadline, "no `{wanted}`: {lines:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn messages_are_done_in_order_and_a_failure_holds_up_what_follows() -> Result<()> {
    let node = followed(&json!({}))?;
    say_all(&node, &["first", "second retry once", "third", "fourth"])?;
    assert_eq!(
        lines_until(&node, "done 4 fourth")?,
        [
            "done 1 first",
            "retry 2 second",
            "done 2 second",
            "done 3 third",
            "done 4 fourth"
        ]
    );
    Ok(())
}

#[test]
fn a_message_is_given_up_after_so_many_attempts_and_poison_at_once() -> Result<()> {
    let node = followed(&json!({ "attempts_max": 2 }))?;
    say_all(&node, &["first retry:1", "second poison", "third trap", "fourth"])?;
    let lines = lines_until(&node, "done 4 fourth")?;
    // A trap says nothing before it ends the instance.
    assert_eq!(
        lines,
        [
            "retry 1 first",
            "retry 1 first",
            "poison 2 second",
            "done 4 fourth"
        ]
    );
    Ok(())
}

#[test]
fn who_has_no_time_is_asked_again_and_that_is_no_attempt() -> Result<()> {
    let node = followed(&json!({ "attempts_max": 1 }))?;
    say_all(&node, &["first busy:1 once", "second busy once", "third"])?;
    assert_eq!(
        lines_until(&node, "done 3 third")?,
        [
            "busy 1 first",
            "done 1 first",
            "busy 2 second",
            "done 2 second",
            "done 3 third"
        ]
    );
    let letters = get(node.http(), &format!("/v1/bindings/{NAME}/dead-letters"))?.body;
    assert_eq!(letters["dead_letters"], json!([]), "{letters}");
    Ok(())
}

#[test]
fn after_a_crash_it_goes_on_where_it_was() -> Result<()> {
    let mut node = followed(&json!({ "attempts_max": 0 }))?;
    say_all(&node, &["first", "second retry", "third"])?;
    lines_until(&node, "retry 2 second")?;
    node.kill_and_restart()?;
    // Although nobody uses the channel the one that fails is tried again, and what follows waits for it still.
    let lines = lines_until(&node, "retry 2 second")?;
    assert!(!lines.contains(&"done 3 third".to_owned()), "{lines:?}");
    say_all(&node, &["fourth"])?;
    follow(&node, &json!({ "attempts_max": 0, "config": { "calm": true } }))?;
    let lines = lines_until(&node, "done 4 fourth")?;
    let done: Vec<&String> = lines
        .iter()
        .filter(|line| line.starts_with("done") && *line != "done 1 first")
        .collect();
    assert_eq!(done, ["done 2 second", "done 3 third", "done 4 fourth"]);
    Ok(())
}

#[test]
fn a_binding_begins_where_it_says() -> Result<()> {
    let node = followed(&json!({}))?;
    say_all(&node, &["first", "second"])?;
    lines_until(&node, "done 2 second")?;
    let mut earlier = json!({ "plugin": NAME, "hook": "persist-after", "start": "earliest" });
    earlier["config"] = json!({ "calm": true });
    bind(&node, "earlier", &earlier)?;
    say_all(&node, &["third"])?;
    lines_until(&node, "done 3 third")?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let logs = get(node.http(), "/v1/bindings/earlier/logs")?.body;
        let texts: Vec<&str> = logs
            .as_array()
            .context("lines")?
            .iter()
            .filter_map(|line| line["text"].as_str()?.split(" {").next())
            .collect();
        if texts == ["done 1", "done 2", "done 3"] {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{texts:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
