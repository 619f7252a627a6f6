//! What is read back, by whom, and with which numbers.

use crate::hostile::{make_room, say, still_serves};
use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use penstock_e2e::{Node, Raw, exchange, post};
use serde_json::{Value, json};

/// Up to 100 messages of a group from this seq on, as this user sees them.
pub(super) fn page(node: &Node, uid: &str, group: &str, start: u64) -> Result<Vec<Value>> {
    let question = json!({
        "login_uid": uid, "channel_id": group, "channel_type": 2, "start_message_seq": start, "pull_mode": 1,
    });
    let mut answer = post(node.http(), "/channel/messagesync", &question)?;
    assert_eq!(answer.status, 200, "{answer:?}");
    let messages = answer.body["messages"].take();
    serde_json::from_value(messages).context("a list of messages")
}

/// The payload of a message.
pub(super) fn payload(message: &Value) -> Result<Vec<u8>> {
    let text = message["payload"].as_str().context("a payload")?;
    STANDARD.decode(text).context("base64")
}

#[test]
fn b05_what_is_acknowledged_can_be_read_at_once() -> Result<()> {
    let node = Node::start(&[])?;
    make_room(&node, "room", &["alice".to_owned()])?;
    for seq in 1..=300 {
        let sent = say(&node, "room", &format!("m{seq}"), "eA==")?;
        let read = page(&node, "alice", "room", seq)?;
        assert_eq!(read.len(), 1, "seq {seq}");
        assert_eq!(read[0]["message_idstr"], sent["message_idstr"]);
        assert_eq!(payload(&read[0])?, b"x");
    }
    Ok(())
}

#[test]
fn b13_a_number_names_one_message_over_restarts_and_surfaces() -> Result<()> {
    let mut node = Node::start(&[])?;
    make_room(&node, "room", &["alice".to_owned()])?;
    let first = say(&node, "room", "once", "eyJhIjoxfQ==")?;
    for round in 0..3 {
        let mut alice = Raw::session(node.websocket(), "alice", "d")?;
        let again =
            json!({ "channelId": "room", "channelType": 2, "clientMsgNo": "once", "payload": { "a": 1 } });
        alice.call("s", "send", &again)?;
        let answer = alice.answer("s")?;
        assert_eq!(
            answer["result"]["messageId"], first["message_idstr"],
            "round {round}: {answer}"
        );
        assert_eq!(say(&node, "room", "once", "eyJhIjoxfQ==")?, first);
        drop(alice);
        node.kill_and_restart()?;
    }
    assert_eq!(page(&node, "alice", "room", 1)?.len(), 1);
    Ok(())
}

#[test]
fn b65_who_may_not_read_learns_no_more_than_of_a_channel_that_is_not_there() -> Result<()> {
    let node = Node::start(&[])?;
    make_room(&node, "room", &["alice".to_owned()])?;
    say(&node, "room", "m1", "c2VjcmV0")?;
    let ask = |group: &str, kind: u8| {
        let question =
            json!({ "login_uid": "eve", "channel_id": group, "channel_type": kind, "pull_mode": 1 });
        post(node.http(), "/channel/messagesync", &question)
    };
    let foreign = ask("room", 2)?;
    let missing = ask("nowhere", 2)?;
    assert_eq!((foreign.status, &foreign.body), (missing.status, &missing.body));
    assert!(!foreign.text.contains("c2VjcmV0"), "{}", foreign.text);
    // A person channel of two others, by its canonical id.
    let person = json!({
        "from_uid": "alice", "channel_id": "bob", "channel_type": 1, "client_msg_no": "p1", "payload": "c2VjcmV0",
    });
    assert_eq!(post(node.http(), "/message/send", &person)?.body["reason"], 1);
    for id in ["bob@alice", "alice@bob"] {
        let foreign = ask(id, 1)?;
        assert!(!foreign.text.contains("c2VjcmV0"), "{}", foreign.text);
        assert!(foreign.status >= 400, "{foreign:?}");
    }
    Ok(())
}

/// A question about the history of the room, with these words in the place of its numbers.
fn sync_with(node: &Node, field: &str, value: &str) -> Result<(u16, Vec<u64>)> {
    let fields = [
        "channel_type",
        "start_message_seq",
        "end_message_seq",
        "limit",
        "pull_mode",
    ];
    let values = fields.map(|name| match name {
        _ if name == field => format!("\"{name}\":{value}"),
        "channel_type" => format!("\"{name}\":2"),
        "limit" => format!("\"{name}\":3"),
        "pull_mode" => format!("\"{name}\":1"),
        _ => format!("\"{name}\":0"),
    });
    let body = format!(
        "{{\"login_uid\":\"alice\",\"channel_id\":\"room\",{}}}",
        values.join(",")
    );
    let request = format!(
        "POST /channel/messagesync HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = exchange(node.http(), request.as_bytes())?;
    let messages = answer.body["messages"].as_array().cloned().unwrap_or_default();
    let seqs = messages
        .iter()
        .filter_map(|message| message["message_seq"].as_u64());
    Ok((answer.status, seqs.collect()))
}

#[test]
fn b75_negative_and_huge_numbers_in_a_question_are_refused_or_exact() -> Result<()> {
    let node = Node::start(&[])?;
    make_room(&node, "room", &["alice".to_owned()])?;
    for number in 1..=5 {
        say(&node, "room", &format!("m{number}"), "eA==")?;
    }
    for field in [
        "start_message_seq",
        "end_message_seq",
        "limit",
        "pull_mode",
        "channel_type",
    ] {
        for value in [
            "-1",
            "-9223372036854775808",
            "18446744073709551616",
            "1e30",
            "1.5",
            "\"1\"",
            "[]",
            "NaN",
        ] {
            assert_eq!(
                sync_with(&node, field, value)?,
                (400, Vec::new()),
                "{field} {value}"
            );
        }
    }
    for (field, value, wanted) in [
        ("start_message_seq", "3", vec![3, 4, 5]),
        ("start_message_seq", "18446744073709551615", vec![]),
        ("end_message_seq", "18446744073709551615", vec![1, 2, 3]),
        ("end_message_seq", "1", vec![]),
        ("limit", "0", vec![1, 2, 3, 4, 5]),
        ("limit", "10000", vec![1, 2, 3, 4, 5]),
    ] {
        assert_eq!(sync_with(&node, field, value)?, (200, wanted), "{field} {value}");
    }
    // More than the contract's 10,000 is taken for that or refused.
    let (status, seqs) = sync_with(&node, "limit", "4294967295")?;
    assert!(
        matches!((status, seqs.len()), (200, 5) | (400, 0)),
        "{status} {seqs:?}"
    );
    still_serves(&node, node.process(), "alice")
}

#[test]
fn s4_who_was_removed_receives_and_reads_nothing_more() -> Result<()> {
    let node = Node::start(&[])?;
    make_room(&node, "room", &["alice".to_owned(), "bob".to_owned()])?;
    let mut bob = Raw::session(node.websocket(), "bob", "d")?;
    say(&node, "room", "m1", "eA==")?;
    assert_eq!(bob.json()?["params"]["messageSeq"], 1);
    let removal = json!({ "channel_id": "room", "channel_type": 2, "subscribers": ["bob"] });
    assert_eq!(
        post(node.http(), "/channel/subscriber_remove", &removal)?.status,
        200
    );
    for number in 2..=20 {
        say(&node, "room", &format!("m{number}"), "eA==")?;
    }
    // A message to him alone comes next: none of the group's stands before it.
    let person =
        json!({ "from_uid": "alice", "channel_id": "bob", "channel_type": 1, "payload": "eyJhIjoxfQ==" });
    assert_eq!(post(node.http(), "/message/send", &person)?.body["reason"], 1);
    let next = bob.json()?;
    assert_eq!(next["params"]["channelType"], 1, "{next}");
    bob.call(
        "s",
        "send",
        &json!({ "channelId": "room", "channelType": 2, "clientMsgNo": "", "payload": { "a": 1 } }),
    )?;
    assert_eq!(bob.answer("s")?["result"]["reasonCode"], 3);
    let question = json!({ "login_uid": "bob", "channel_id": "room", "channel_type": 2, "start_message_seq": 2, "pull_mode": 1 });
    let read = post(node.http(), "/channel/messagesync", &question)?;
    assert!(!read.text.contains("eA=="), "{}", read.text);
    Ok(())
}
