//! Long conversations in real texts: order and content exact, in a person channel and in a group of twenty.

use crate::{GROUP, PERSON};
use anyhow::{Context, Result, bail};
use penstock_e2e::{Client, Node, post};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Where Debian and Homebrew put fortunes.
const FORTUNES: [&str; 3] = [
    "/usr/share/games/fortunes",
    "/opt/homebrew/share/games/fortunes",
    "/usr/local/share/games/fortunes",
];
/// Texts of one conversation.
const TEXTS: usize = 2_000;
/// Sends without an acknowledgement: enough to keep the pipe full, few enough to stay below every queue's bound.
const AHEAD: usize = 200;

/// English and Chinese texts, taken in turn.
fn texts() -> Result<Vec<String>> {
    let folder = FORTUNES.iter().map(Path::new).find(|folder| folder.is_dir());
    let folder = folder.context("no fortunes here: apt install fortunes fortunes-zh")?;
    let english = read(&folder.join("fortunes"))?;
    let chinese = read(&folder.join("chinese")).or_else(|_| read(&folder.join("tang300")))?;
    let texts: Vec<String> = english
        .iter()
        .cycle()
        .zip(chinese.iter().cycle())
        .flat_map(|(left, right)| [left.clone(), right.clone()])
        .take(TEXTS)
        .collect();
    Ok(texts)
}

fn read(file: &Path) -> Result<Vec<String>> {
    let bytes = std::fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let texts: Vec<String> = text
        .split("\n%\n")
        .map(|text| text.trim().to_owned())
        .filter(|text| !text.is_empty())
        .collect();
    if texts.is_empty() {
        bail!("{} holds no texts", file.display())
    }
    Ok(texts)
}

/// Sends all texts with at most [`AHEAD`] open, and checks that acknowledgements come in order.
fn send_all(sender: &mut Client, channel: &str, kind: u8, texts: &[String], first_seq: usize) -> Result<()> {
    let mut acknowledged = 0;
    for (number, text) in texts.iter().enumerate() {
        if number - acknowledged >= AHEAD {
            acknowledge(sender, first_seq + acknowledged)?;
            acknowledged += 1;
        }
        sender.send(channel, kind, text, &format!("{channel}-{first_seq}-{number}"))?;
    }
    while acknowledged < texts.len() {
        acknowledge(sender, first_seq + acknowledged)?;
        acknowledged += 1;
    }
    Ok(())
}

fn acknowledge(sender: &mut Client, seq: usize) -> Result<()> {
    let ack = sender.acknowledgement()?;
    assert_eq!((&ack["seq"], &ack["reason"]), (&json!(seq), &json!(1)));
    Ok(())
}

fn receive_all(receiver: &mut Client, texts: &[String], first_seq: usize) -> Result<()> {
    for (number, text) in texts.iter().enumerate() {
        let received = receiver.received()?;
        assert_eq!(
            (&received["seq"], &received["text"]),
            (&json!(first_seq + number), &json!(text))
        );
    }
    Ok(())
}

#[test]
fn two_thousand_texts_go_both_ways_between_two_users_of_the_sdk() -> Result<()> {
    let texts = texts()?;
    let (there, back) = texts.split_at(TEXTS / 2);
    let node = Node::start(&[])?;
    let mut alice = Client::sdk(node.websocket(), "alice", "any")?;
    let mut bob = Client::sdk(node.websocket(), "bob", "any")?;
    let before = now_s()?;
    send_all(&mut alice, "bob", PERSON, there, 1)?;
    receive_all(&mut bob, there, 1)?;
    send_all(&mut bob, "alice", PERSON, back, 1 + there.len())?;
    receive_all(&mut alice, back, 1 + there.len())?;

    let question = json!({ "http": node.http(), "channel": "alice", "type": PERSON, "limit": 5_000 });
    bob.command(&json!({ "history": question }))?;
    let history = bob.event("history")?;
    let history = history.as_array().cloned().unwrap_or_default();
    assert_eq!(history.len(), TEXTS);
    for (number, (found, text)) in history.iter().zip(&texts).enumerate() {
        assert_eq!(
            (&found["seq"], &found["text"]),
            (&json!(number + 1), &json!(text))
        );
        let stamp = found["timestamp"].as_u64().unwrap_or_default();
        assert!(
            (before..=now_s()?).contains(&stamp),
            "timestamp {stamp} of message {number}"
        );
    }
    Ok(())
}

#[test]
fn two_thousand_texts_reach_a_group_of_twenty() -> Result<()> {
    let texts = texts()?;
    let node = Node::start(&[])?;
    let members: Vec<String> = (1..=20).map(|number| format!("member{number}")).collect();
    let group = json!({ "channel_id": "room", "channel_type": GROUP, "subscribers": members });
    assert_eq!(post(node.http(), "/channel", &group)?.status, 200);
    // The SDK, JSON-RPC, and for the rest JSON-RPC again: twenty processes of the SDK would only heat the machine.
    let mut sender = Client::sdk(node.websocket(), &members[0], "any")?;
    let mut receivers = vec![Client::sdk(node.websocket(), &members[1], "any")?];
    for member in members.get(2..).unwrap_or_default() {
        receivers.push(Client::rpc(node.websocket(), member, "any")?);
    }
    send_all(&mut sender, "room", GROUP, &texts, 1)?;
    for receiver in &mut receivers {
        receive_all(receiver, &texts, 1)?;
    }
    Ok(())
}

#[test]
fn a_subscription_of_the_sdk_is_answered_and_keeps_the_connection() -> Result<()> {
    let node = Node::start(&[])?;
    let room = json!({ "channel_id": "live", "channel_type": 7, "subscribers": ["alice", "bob"] });
    assert_eq!(post(node.http(), "/channel", &room)?.status, 200);
    let mut bob = Client::sdk(node.websocket(), "bob", "any")?;
    bob.command(&json!({ "subscribe": "live" }))?;
    assert_eq!(bob.event("subscribed")?["reason"], 1);
    let mut alice = Client::sdk(node.websocket(), "alice", "any")?;
    alice.send("bob", PERSON, "still there?", "")?;
    assert_eq!(bob.received()?["text"], "still there?");
    Ok(())
}

#[test]
fn a_lost_connection_resends_without_duplicates() -> Result<()> {
    let node = Node::start(&[])?;
    let mut alice = Client::sdk(node.websocket(), "alice", "any")?;
    for round in 0..5 {
        for number in 0..20 {
            alice.send("bob", PERSON, &format!("{round}-{number}"), "")?;
        }
        // The socket goes away with sends under way; the SDK reconnects by itself and sends them again.
        alice.command(&json!({ "drop": true }))?;
        while alice.status()? != 1 {}
    }
    let mut acknowledged = BTreeMap::new();
    while acknowledged.len() < 100 {
        let ack = alice.acknowledgement()?;
        assert_eq!(ack["reason"], 1);
        acknowledged.insert(ack["seq"].as_u64(), ack["id"].clone());
    }
    alice.command(
        &json!({ "history": { "http": node.http(), "channel": "bob", "type": PERSON, "limit": 1_000 } }),
    )?;
    let history = alice.event("history")?;
    let mut found: Vec<&str> = history
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|message| message["text"].as_str())
        .collect();
    found.sort_unstable();
    let mut sent: Vec<String> = (0..5)
        .flat_map(|round| (0..20).map(move |number| format!("{round}-{number}")))
        .collect();
    sent.sort_unstable();
    assert_eq!(found, sent);
    Ok(())
}

fn now_s() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())
}
