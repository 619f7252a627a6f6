//! The real binary with real clients.

mod bench;
mod cold;
mod conversations;
mod durability;
mod guarded;
mod hostile;
mod page;
mod plugins;
mod readme;
mod troubleshooting;
mod version_six;
mod webhooks;

use anyhow::Result;
use penstock_e2e::{Client, Node, Raw, Response, get, post};
use serde_json::{Value, json};

const PERSON: u8 = 1;
const GROUP: u8 = 2;

/// `{"type":1,"content":"hello"}`
const HELLO: &str = "eyJ0eXBlIjoxLCJjb250ZW50IjoiaGVsbG8ifQ==";
/// `{"type":1,"content":"other"}`
const OTHER: &str = "eyJ0eXBlIjoxLCJjb250ZW50Ijoib3RoZXIifQ==";

fn make_group(node: &Node, members: &[&str]) -> Result<()> {
    let group = json!({ "channel_id": "room", "channel_type": GROUP, "subscribers": members });
    assert_eq!(post(node.http(), "/channel", &group)?.status, 200);
    Ok(())
}

fn send(node: &Node, from: &str, client_msg_no: &str, payload: &str) -> Result<Response> {
    let message = json!({
        "from_uid": from, "channel_id": "room", "channel_type": GROUP, "client_msg_no": client_msg_no, "payload": payload,
    });
    post(node.http(), "/message/send", &message)
}

#[test]
fn two_users_of_the_sdk_talk_in_order() -> Result<()> {
    let node = Node::start(&[])?;
    let mut bob = Client::sdk(node.websocket(), "bob", "any")?;
    let mut alice = Client::sdk(node.websocket(), "alice", "any")?;
    for number in 1..=20 {
        alice.send("bob", PERSON, &format!("message {number}"), "")?;
    }
    for number in 1..=20 {
        let acknowledged = alice.acknowledgement()?;
        assert_eq!(
            (&acknowledged["seq"], &acknowledged["reason"]),
            (&json!(number), &json!(1))
        );
        let received = bob.received()?;
        assert_eq!(received["text"], format!("message {number}"));
        assert_eq!(received["seq"], number);
        assert_eq!(
            (&received["from"], &received["channel"]),
            (&json!("alice"), &json!("alice"))
        );
        assert_eq!(received["id"], acknowledged["id"]);
    }
    Ok(())
}

#[test]
fn a_back_end_reaches_a_group_and_a_retry_changes_nothing() -> Result<()> {
    let node = Node::start(&[])?;
    make_group(&node, &["alice", "bob"])?;
    let mut bob = Client::sdk(node.websocket(), "bob", "any")?;
    let first = send(&node, "alice", "m1", HELLO)?;
    assert_eq!(
        (first.status, &first.body["message_seq"], &first.body["reason"]),
        (200, &json!(1), &json!(1))
    );
    let received = bob.received()?;
    assert_eq!(
        (&received["text"], &received["channel"]),
        (&json!("hello"), &json!("room"))
    );
    let again = send(&node, "alice", "m1", HELLO)?;
    assert_eq!(again.body["message_idstr"], first.body["message_idstr"]);
    assert_eq!(again.body["message_seq"], 1);
    let conflict = send(&node, "alice", "m1", OTHER)?;
    assert_eq!(conflict.body["reason"], 28);
    // The next push is the next message: neither retry was pushed.
    assert_eq!(send(&node, "alice", "m2", OTHER)?.body["message_seq"], 2);
    assert_eq!(bob.received()?["text"], "other");
    Ok(())
}

#[test]
fn who_is_not_a_member_is_refused() -> Result<()> {
    let node = Node::start(&[])?;
    make_group(&node, &["alice", "bob"])?;
    let mut eve = Client::rpc(node.websocket(), "eve", "any")?;
    eve.send("room", GROUP, "let me in", "e1")?;
    assert_eq!(eve.acknowledgement()?["reason"], 3);
    eve.send("nowhere", GROUP, "is anybody here", "e2")?;
    assert_eq!(eve.acknowledgement()?["reason"], 5);
    Ok(())
}

#[test]
fn json_rpc_and_the_sdk_share_a_channel() -> Result<()> {
    let node = Node::start(&[])?;
    make_group(&node, &["alice", "bob"])?;
    let mut alice = Client::rpc(node.websocket(), "alice", "any")?;
    let mut bob = Client::sdk(node.websocket(), "bob", "any")?;
    alice.send("room", GROUP, "from a script", "a1")?;
    assert_eq!(alice.acknowledgement()?["seq"], 1);
    assert_eq!(bob.received()?["text"], "from a script");
    bob.send("room", GROUP, "from the SDK", "")?;
    assert_eq!(bob.acknowledgement()?["seq"], 2);
    let received = alice.received()?;
    assert_eq!(
        (&received["text"], &received["from"]),
        (&json!("from the SDK"), &json!("bob"))
    );
    Ok(())
}

#[test]
fn json_rpc_sends_without_a_number_are_each_stored() -> Result<()> {
    let node = Node::start(&[])?;
    make_group(&node, &["alice", "bob"])?;
    let mut alice = Raw::session(node.websocket(), "alice", "d")?;
    let message =
        json!({ "channelId": "room", "channelType": GROUP, "payload": { "type": 1, "content": "hello" } });
    for (id, seq) in [("first", 1), ("second", 2)] {
        alice.call(id, "send", &message)?;
        let result = alice.answer(id)?["result"].take();
        assert_eq!(
            (&result["messageSeq"], &result["reasonCode"]),
            (&json!(seq), &json!(1))
        );
    }
    Ok(())
}

#[test]
fn a_second_session_of_a_device_ends_the_first() -> Result<()> {
    let node = Node::start(&[])?;
    let mut first = Client::rpc(node.websocket(), "alice", "any")?;
    let _second = Client::rpc(node.websocket(), "alice", "any")?;
    assert_eq!(first.kicked()?, 12);
    Ok(())
}

#[test]
fn acknowledged_messages_survive_kill_9() -> Result<()> {
    let mut node = Node::start(&[])?;
    make_group(&node, &["alice", "bob"])?;
    let mut acknowledged: Vec<Value> = Vec::new();
    for round in 0..3 {
        for number in 0..20 {
            let answer = send(&node, "alice", &format!("m{round}-{number}"), HELLO)?;
            assert_eq!(
                (answer.status, &answer.body["reason"]),
                (200, &json!(1)),
                "{answer:?}"
            );
            acknowledged.push(answer.body["message_idstr"].clone());
        }
        node.kill_and_restart()?;
        // A retry over the restart still finds its first message.
        let again = send(&node, "alice", &format!("m{round}-7"), HELLO)?;
        assert_eq!(again.body["message_seq"], round * 20 + 8, "{again:?}");
    }
    let question = json!({
        "login_uid": "bob", "channel_id": "room", "channel_type": GROUP,
        "start_message_seq": 1, "end_message_seq": 0, "limit": 1_000, "pull_mode": 1,
    });
    let history = post(node.http(), "/channel/messagesync", &question)?;
    let messages = history.body["messages"].as_array().cloned().unwrap_or_default();
    let found: Vec<Value> = messages
        .iter()
        .map(|message| message["message_idstr"].clone())
        .collect();
    assert_eq!(found, acknowledged);
    assert!(
        (1..)
            .zip(&messages)
            .all(|(seq, message)| message["message_seq"] == seq)
    );
    Ok(())
}

#[test]
fn a_node_says_what_it_is_and_ends_when_asked() -> Result<()> {
    let mut node = Node::start(&[])?;
    assert_eq!(get(node.http(), "/healthz")?.body["status"], "ok");
    let ready = get(node.http(), "/readyz")?;
    assert_eq!((ready.status, &ready.body["ready"]), (200, &json!(true)));
    assert_eq!(ready.body["durability"], "single copy");
    assert_eq!(get(node.http(), "/metrics")?.status, 200);
    assert!(node.terminate()?.success());
    Ok(())
}

#[test]
fn a_node_ends_in_order_however_lately_it_was_asked_something() -> Result<()> {
    let mut node = Node::start(&[])?;
    for round in 0..10 {
        for path in ["/healthz", "/readyz", "/metrics"] {
            assert_eq!(get(node.http(), path)?.status, 200);
        }
        let status = node.terminate()?;
        assert!(status.success(), "round {round}: {status}");
        node.restart()?;
    }
    Ok(())
}

#[test]
fn a_request_that_names_its_receivers_reaches_exactly_them() -> Result<()> {
    let node = Node::start(&[])?;
    let mut bob = Client::rpc(node.websocket(), "bob", "any")?;
    let mut carol = Client::sdk(node.websocket(), "carol", "any")?;
    let mut dave = Client::rpc(node.websocket(), "dave", "any")?;
    let send = |receivers: &[&str], client_msg_no: &str, payload: &str| {
        let message = json!({
            "from_uid": "alice", "subscribers": receivers, "header": { "sync_once": 1 },
            "client_msg_no": client_msg_no, "payload": payload,
        });
        post(node.http(), "/message/send", &message)
    };
    for (number, payload) in [(1, HELLO), (2, OTHER)] {
        let sent = send(&["bob", "carol"], &format!("m{number}"), payload)?;
        let told = (sent.status, &sent.body["message_seq"], &sent.body["reason"]);
        assert_eq!(told, (200, &json!(number), &json!(1)), "{sent:?}");
    }
    assert_eq!(send(&["dave"], "m3", OTHER)?.body["reason"], 1);
    for text in ["hello", "other"] {
        for receiver in [&mut bob, &mut carol] {
            let received = receiver.received()?;
            assert_eq!(
                (&received["text"], &received["from"]),
                (&json!(text), &json!("alice"))
            );
        }
    }
    // His first message is the one that names him.
    assert_eq!(dave.received()?["text"], "other");
    Ok(())
}
