//! Whom a plugin is told of when a message comes: recipients without a session, and nobody else.

use super::consumers::{lines_of, lines_of_until};
use super::{bind_to, say};
use crate::{GROUP, PERSON, make_group};
use anyhow::{Result, ensure};
use penstock_e2e::{Client, Node, PATIENCE, Raw, component, deploy, get, post};
use serde_json::{Value, json};
use std::thread;
use std::time::{Duration, Instant};

const NAME: &str = "scripted-notifier";
const SUCCESS: u8 = 1;
/// Members of a large group, and of one page of them.
const LARGE: usize = 1_200;
const PAGE: usize = 512;

/// A node with the scripted notifier bound to every channel; what `binding` says comes on top.
fn notified(binding: &Value) -> Result<Node> {
    let node = Node::start(&[])?;
    deploy(&node, NAME, &component(NAME)?)?;
    bind_notifier(&node, binding)?;
    Ok(node)
}

fn bind_notifier(node: &Node, binding: &Value) -> Result<()> {
    let mut whole = binding.clone();
    whole["hook"] = json!("offline");
    bind_to(node, NAME, NAME, &whole)
}

/// Waits until somebody has no session any more.
fn until_gone(node: &Node, uid: &str) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while post(node.http(), "/user/onlinestatus", &json!([uid]))?
        .text
        .contains(&format!("\"{uid}\""))
    {
        ensure!(Instant::now() < deadline, "{uid} stays online");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

#[test]
fn a_plugin_is_told_of_the_members_who_are_offline() -> Result<()> {
    let node = notified(&json!({}))?;
    make_group(&node, &["alice", "bob", "carol"])?;
    let bob = Raw::session(node.websocket(), "bob", "d")?;
    let mut alice = Raw::session(node.websocket(), "alice", "d")?;
    for text in ["first", "second"] {
        assert_eq!(say(&mut alice, text, text)?["reasonCode"], SUCCESS);
    }
    lines_of_until(&node, NAME, "done 2 1 carol carol second")?;
    drop(bob);
    until_gone(&node, "bob")?;
    assert_eq!(say(&mut alice, "third", "third")?["reasonCode"], SUCCESS);
    // The sender is never told of, also without a session.
    drop(alice);
    until_gone(&node, "alice")?;
    crate::send(
        &node,
        "alice",
        "fourth",
        "eyJ0eXBlIjoxLCJjb250ZW50IjoiZm91cnRoIn0=",
    )?;
    let lines = lines_of_until(&node, NAME, "done 4 2 bob carol fourth")?;
    assert_eq!(
        lines,
        [
            "done 1 1 carol carol first",
            "done 2 1 carol carol second",
            "done 3 2 bob carol third",
            "done 4 2 bob carol fourth",
        ]
    );
    // They are counted when the answer of the last call is there, which is after its line.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let metrics = get(node.http(), "/metrics")?.text;
        let counted = |line: &str| line == "penstock_offline_uids_total 6";
        if metrics.lines().any(counted) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{metrics}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn in_a_person_channel_it_is_the_other_one() -> Result<()> {
    let node = notified(&json!({}))?;
    let mut alice = Client::sdk(node.websocket(), "alice", "any")?;
    alice.send("dave", PERSON, "absent", "")?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let logs = get(node.http(), &format!("/v1/bindings/{NAME}/logs"))?.text;
        if logs.contains("done 1 1 dave dave ") {
            break;
        }
        ensure!(Instant::now() < deadline, "{logs}");
        thread::sleep(Duration::from_millis(20));
    }
    // Nobody is told of who is there, and of commands nobody at all: the next line is of the message after them.
    let mut dave = Client::sdk(node.websocket(), "dave", "any")?;
    alice.send("dave", PERSON, "present", "")?;
    dave.received()?;
    let command = json!({
        "from_uid": "alice", "channel_id": "erin", "channel_type": PERSON, "client_msg_no": "c",
        "header": { "sync_once": 1 }, "payload": "eyJjb250ZW50IjoiYyJ9",
    });
    assert_eq!(post(node.http(), "/message/send", &command)?.status, 200);
    alice.send("erin", PERSON, "absent", "")?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let logs = get(node.http(), &format!("/v1/bindings/{NAME}/logs"))?.body;
        let texts: Vec<&str> = logs
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|line| line["text"].as_str()?.split(" {").next())
            .collect();
        if texts == ["done 1 1 dave dave", "done 1 1 erin erin"] {
            return Ok(());
        }
        ensure!(Instant::now() < deadline && texts.len() < 3, "{texts:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_large_group_comes_page_by_page() -> Result<()> {
    let node = notified(&json!({}))?;
    let members: Vec<String> = (0..LARGE).map(|index| format!("member{index:04}")).collect();
    let group = json!({ "channel_id": "room", "channel_type": GROUP, "subscribers": members });
    assert_eq!(post(node.http(), "/channel", &group)?.status, 200);
    let mut sender = Raw::session(node.websocket(), "member0000", "d")?;
    assert_eq!(say(&mut sender, "1", "all")?["reasonCode"], SUCCESS);
    let lines = lines_of_until(&node, NAME, "done 1 176 member1024 member1199 all")?;
    assert_eq!(
        lines,
        [
            "done 1 511 member0001 member0511 all",
            "done 1 512 member0512 member1023 all",
            "done 1 176 member1024 member1199 all",
        ]
    );
    // A page of which a part is done goes on with the rest, before the next page.
    assert_eq!(say(&mut sender, "2", "half")?["reasonCode"], SUCCESS);
    let lines = lines_of_until(&node, NAME, "done 2 1 member1199 member1199 half")?;
    let counts: Vec<usize> = lines[3..]
        .iter()
        .filter_map(|line| line.split(' ').nth(2)?.parse().ok())
        .collect();
    assert_eq!(counts[..3], [PAGE - 1, 255, 127], "{counts:?}");
    let starts = counts.iter().filter(|count| [511, 512, 176].contains(*count));
    assert_eq!(starts.count(), 3, "{counts:?}");
    Ok(())
}

#[test]
fn after_crashes_it_goes_on_where_it_was() -> Result<()> {
    let mut node = notified(&json!({ "attempts_max": 0 }))?;
    make_group(&node, &["alice", "carol"])?;
    let mut alice = Raw::session(node.websocket(), "alice", "d")?;
    for text in ["first", "second retry:50", "third"] {
        assert_eq!(say(&mut alice, text, text)?["reasonCode"], SUCCESS);
    }
    lines_of_until(&node, NAME, "retry 2 1 carol carol second")?;
    for _ in 0..5 {
        node.kill_and_restart()?;
        // The sender has no session now, and is not told of all the same.
        let lines = lines_of_until(&node, NAME, "retry 2 1 carol carol second")?;
        ensure!(
            !lines
                .iter()
                .any(|line| line.contains(" 3 ") || line.contains("alice")),
            "{lines:?}"
        );
    }
    bind_notifier(&node, &json!({ "attempts_max": 0, "config": { "calm": true } }))?;
    lines_of_until(&node, NAME, "done 3 1 carol carol third")?;
    let lines = lines_of(&node, NAME)?;
    let position = |line: &str| lines.iter().position(|known| known == line);
    assert!(
        position("done 2 1 carol carol second") < position("done 3 1 carol carol third"),
        "{lines:?}"
    );
    Ok(())
}

#[test]
fn what_cannot_be_done_is_given_up_and_may_be_replayed() -> Result<()> {
    let node = notified(&json!({ "attempts_max": 2 }))?;
    make_group(&node, &["alice", "carol"])?;
    let mut alice = Raw::session(node.websocket(), "alice", "d")?;
    for text in ["first poison", "second nothing", "third overdone", "fourth"] {
        assert_eq!(say(&mut alice, text, text)?["reasonCode"], SUCCESS);
    }
    lines_of_until(&node, NAME, "done 4 1 carol carol fourth")?;
    let path = format!("/v1/bindings/{NAME}/dead-letters");
    let letters = get(node.http(), &path)?.body["dead_letters"].clone();
    let shown: Vec<Value> = letters
        .as_array()
        .into_iter()
        .flatten()
        .map(|letter| json!([letter["message_seq"], letter["attempts"], letter["cause"]]))
        .collect();
    assert_eq!(
        json!(shown),
        json!([[1, 1, "poison"], [2, 2, "retry"], [3, 2, "bad-output"]])
    );
    bind_notifier(&node, &json!({ "attempts_max": 2, "config": { "calm": true } }))?;
    let which = json!({ "id": letters[1]["id"], "channel_id": "room", "channel_type": GROUP });
    let replayed = post(node.http(), &format!("{path}/replay"), &which)?;
    assert_eq!(replayed.status, 200, "{}", replayed.text);
    lines_of_until(&node, NAME, "done 2 1 carol carol second")?;
    Ok(())
}
