//! Gates: who may connect, as whom, and what filters hear of it.

use super::{bind_to, say};
use crate::{GROUP, PERSON, make_group};
use anyhow::{Context, Result, ensure};
use penstock_e2e::{Client, Node, PATIENCE, Raw, component, deploy, post, put};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const NAME: &str = "scripted-gate";
const SUCCESS: u8 = 1;
/// Who may not come in at all.
const AUTH_FAIL: u8 = 2;
/// The code of a failure that passes.
const SYSTEM_ERROR: u8 = 15;
/// A code that a gate chose.
const BANNED: u8 = 19;

/// A node with the scripted gate.
fn gated(binding: &Value) -> Result<Node> {
    let node = Node::start(&[])?;
    deploy(&node, NAME, &component(NAME)?)?;
    bind_gate(&node, NAME, binding)?;
    Ok(node)
}

fn bind_gate(node: &Node, id: &str, binding: &Value) -> Result<()> {
    let mut whole = binding.clone();
    whole["hook"] = json!("connect");
    bind_to(node, id, NAME, &whole)
}

/// What somebody is told who connects with this token.
fn told(node: &Node, uid: &str, token: &str) -> Result<Value> {
    let (_, answer) = Raw::asking(node.websocket(), (uid, "d"), token)?;
    Ok(answer["result"].clone())
}

fn session(node: &Node, uid: &str, token: &str) -> Result<Raw> {
    let (raw, answer) = Raw::asking(node.websocket(), (uid, "d"), token)?;
    ensure!(
        answer["result"]["reasonCode"] == SUCCESS,
        "not admitted: {answer}"
    );
    Ok(raw)
}

fn online(node: &Node, uid: &str) -> Result<bool> {
    let answer = post(node.http(), "/user/onlinestatus", &json!([uid]))?;
    Ok(answer.text.contains(&format!("\"{uid}\"")))
}

#[test]
fn whom_a_gate_denies_is_told_the_code_and_the_words() -> Result<()> {
    let node = gated(&json!({}))?;
    let denied = told(&node, "eve", "deny:19:not_today")?;
    assert_eq!(
        (&denied["reasonCode"], &denied["reason"]),
        (&json!(BANNED), &json!("not today"))
    );
    // Which code it is may be left to the broker, and success is none.
    for token in ["deny", "deny:1"] {
        assert_eq!(told(&node, "eve", token)?["reasonCode"], AUTH_FAIL, "{token}");
    }
    assert!(!online(&node, "eve")?);
    // WKProto has room for the code alone.
    let mut refused = Client::sdk_unconnected(node.websocket(), "eve", "deny:19:not_today")?;
    assert_eq!(refused.status()?, 3);
    let mut welcome = Client::sdk_unconnected(node.websocket(), "eve", "any")?;
    assert_eq!(welcome.status()?, 1);
    Ok(())
}

#[test]
fn a_gate_says_whose_session_it_is() -> Result<()> {
    let node = gated(&json!({}))?;
    make_group(&node, &["alice", "bob"])?;
    let mut alice = Client::sdk(node.websocket(), "alice", "any")?;
    // Who is let in as somebody who is a member may speak, and is heard as that one.
    let mut raw = session(&node, "guest", "as:bob level:1")?;
    assert!(online(&node, "bob")? && !online(&node, "guest")?);
    assert_eq!(say(&mut raw, "1", "hello")?["reasonCode"], SUCCESS);
    let heard = alice.received()?;
    assert_eq!((&heard["from"], &heard["text"]), (&json!("bob"), &json!("hello")));
    // What is for bob comes here.
    alice.send("bob", PERSON, "to bob", "")?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let push = raw.json()?;
        if push["method"] == "recv" {
            assert_eq!(push["params"]["fromUid"], "alice");
            break;
        }
        ensure!(Instant::now() < deadline, "nothing came: {push}");
    }
    // Nobody gets a name that is none.
    let flawed = told(&node, "guest", "as:bob@home")?;
    assert_eq!(flawed["reasonCode"], SYSTEM_ERROR);
    Ok(())
}

#[test]
fn filters_see_what_gates_know() -> Result<()> {
    let node = gated(&json!({ "priority": 2, "config": { "tag": "first" } }))?;
    // Asked later: what it says of the same name replaces what the first one said.
    bind_gate(
        &node,
        "second",
        &json!({ "priority": 1, "config": { "tag": "second" } }),
    )?;
    deploy(&node, "scripted-filter", &component("scripted-filter")?)?;
    bind_to(&node, "filter", "scripted-filter", &json!({}))?;
    make_group(&node, &["alice", "bob"])?;
    let mut raw = session(&node, "alice", "plan=paid address")?;
    let shown = say(&mut raw, "1", "attributes")?;
    let words = shown["reason"].as_str().context("the filter's words")?;
    let mut all: Vec<&str> = words.split(',').collect();
    all.sort_unstable();
    assert_eq!(all, ["address=127.0.0.1", "plan=paid", "tag=second"]);
    // Another session has its own.
    let mut other = session(&node, "bob", "any")?;
    assert_eq!(say(&mut other, "2", "attributes")?["reason"], "tag=second");
    // What came over HTTP has none.
    let payload = "eyJ0eXBlIjoxLCJjb250ZW50IjoiYXR0cmlidXRlcyJ9";
    let message =
        json!({ "from_uid": "alice", "channel_id": "room", "channel_type": GROUP, "payload": payload });
    let answer = post(node.http(), "/message/send", &message)?.body;
    // The filter had no words: the text is that of the code.
    assert_eq!(answer["reason_text"], "send_not_allowed");
    Ok(())
}

#[test]
fn a_gate_that_fails_lets_nobody_in_unless_its_binding_says_so() -> Result<()> {
    let node = gated(&json!({ "config": { "tag": "1" } }))?;
    for token in ["trap", "panic", "huge", "grow", "level:7"] {
        assert_eq!(told(&node, "eve", token)?["reasonCode"], SYSTEM_ERROR, "{token}");
    }
    // By class, under another configuration, so that what failed before does not count.
    let by_class = json!({ "on_error": { "trap": "allow" }, "config": { "tag": "2" } });
    bind_gate(&node, NAME, &by_class)?;
    assert_eq!(told(&node, "eve", "trap")?["reasonCode"], SUCCESS);
    assert_eq!(told(&node, "eve", "huge")?["reasonCode"], SYSTEM_ERROR);
    bind_gate(
        &node,
        NAME,
        &json!({ "on_error": "allow", "config": { "tag": "3" } }),
    )?;
    assert_eq!(told(&node, "eve", "huge")?["reasonCode"], SUCCESS);
    // A refusal is no failure.
    assert_eq!(told(&node, "eve", "deny:19")?["reasonCode"], BANNED);
    Ok(())
}

#[test]
fn a_slow_gate_is_ended_at_its_deadline_and_holds_up_nobody_else() -> Result<()> {
    let slow = json!({ "deadline_ms": 1_000, "selector": { "uids": ["slow"] } });
    let node = gated(&slow)?;
    make_group(&node, &["alice", "bob"])?;
    let mut open = session(&node, "alice", "any")?;
    let mut waiting = Raw::websocket(node.websocket())?;
    let params = json!({ "uid": "slow", "token": "loop", "deviceId": "d", "deviceFlag": 1 });
    let began = Instant::now();
    waiting.call("connect", "connect", &params)?;
    let mut beside = 0;
    while began.elapsed() < Duration::from_millis(600) {
        let asked = Instant::now();
        session(&node, "bob", "loop")?;
        assert_eq!(
            say(&mut open, &format!("m{beside}"), "on we go")?["reasonCode"],
            SUCCESS
        );
        ensure!(
            asked.elapsed() < Duration::from_millis(900),
            "held up: {:?}",
            asked.elapsed()
        );
        beside += 1;
    }
    assert!(beside > 1);
    let answer = waiting.answer("connect")?;
    assert_eq!(answer["result"]["reasonCode"], SYSTEM_ERROR);
    // Its own deadline, not that of the connection.
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(900), "{took:?}");
    // Who leaves meanwhile is forgotten.
    let mut gone = Raw::websocket(node.websocket())?;
    gone.call("connect", "connect", &params)?;
    drop(gone);
    assert_eq!(told(&node, "slow", "any")?["reasonCode"], SUCCESS);
    Ok(())
}

#[test]
fn nobody_passes_by_a_gate_because_a_node_has_just_started() -> Result<()> {
    let mut node = gated(&json!({}))?;
    node.kill_and_restart()?;
    let began = Instant::now();
    let mut denied = 0;
    while denied < 20 {
        let code = told(&node, "eve", "deny:19")?["reasonCode"].clone();
        // Until the registry is read and the gate is loaded, it is refused as what could not be judged.
        ensure!(code == BANNED || code == SYSTEM_ERROR, "{code}");
        denied += u32::from(code == BANNED);
        ensure!(began.elapsed() < PATIENCE, "the gate does not come back");
    }
    Ok(())
}

#[test]
fn a_gate_is_for_users_and_not_for_channels() -> Result<()> {
    let node = gated(&json!({ "selector": { "uids": ["eve"] } }))?;
    assert_eq!(told(&node, "eve", "deny:19")?["reasonCode"], BANNED);
    assert_eq!(told(&node, "bob", "deny:19")?["reasonCode"], SUCCESS);
    for selector in [
        json!({ "channel_ids": ["room"] }),
        json!({ "channel_types": [GROUP] }),
    ] {
        let binding = json!({ "plugin": NAME, "hook": "connect", "selector": selector });
        let refused = put(node.http(), "/v1/bindings/wrong", &binding)?;
        assert_eq!(refused.status, 400);
        assert!(refused.text.contains("takes `uids` alone"), "{}", refused.text);
    }
    Ok(())
}
