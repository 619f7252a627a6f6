//! Clients that send without end, or take nothing of what is sent to them.

use crate::hostile::{MIB, make_room, say, still_serves, until};
use anyhow::{Context, Result};
use bytes::BytesMut;
use penstock_e2e::garbage::{self, Flood};
use penstock_e2e::{BINARY, Node, PATIENCE, PING, PONG, Raw, TEXT, masked, post};
use penstock_wire::client::ClientKey;
use penstock_wire::wkproto::{Frame, Version, encode};
use serde_json::{Value, json};
use std::sync::mpsc;
use std::thread;

/// Sends these bytes again and again until the node closes.
fn flood(raw: &mut Raw, bytes: &[u8]) {
    while raw.bytes(bytes).is_ok() {}
}

/// How many connections were closed because their client took nothing.
fn overflows(node: &Node) -> Result<u64> {
    Ok(node.closed("outbound_overflow")? + node.closed("unacknowledged_overflow")?)
}

/// Calls and reads the answer, as often as this.
fn calls(raw: &mut Raw, method: &str, params: &Value, count: usize) -> Result<()> {
    for number in 0..count {
        let id = number.to_string();
        raw.call(&id, method, params)?;
        let answer = raw.answer(&id)?;
        assert_eq!(answer.get("error"), None, "{answer}");
    }
    Ok(())
}

#[test]
fn b29_a_client_that_calls_without_end_and_never_reads_is_closed() -> Result<()> {
    let node = Node::start(&[])?;
    let process = node.process();
    let methods = [
        ("ping", json!({})),
        (
            "send",
            json!({ "channelId": "bob", "channelType": 1, "clientMsgNo": "", "payload": { "type": 1 } }),
        ),
        (
            "send",
            json!({ "channelId": "nowhere", "channelType": 2, "clientMsgNo": "", "payload": { "type": 1 } }),
        ),
        (
            "subscribe",
            json!({ "subNo": "s", "channelId": "nowhere", "channelType": 2 }),
        ),
        ("nonsense", json!({})),
    ];
    let before = node.resident_bytes()?;
    thread::scope(|scope| {
        for (number, (method, params)) in methods.iter().enumerate() {
            let mut raw = Raw::session(node.websocket(), &format!("mallory{number}"), "d")?;
            let call = json!({ "id": "1", "method": method, "params": params }).to_string();
            let bytes = masked(0x80 | TEXT, call.as_bytes()).repeat(500);
            scope.spawn(move || flood(&mut raw, &bytes));
        }
        // Meanwhile others are served.
        let mut honest = Raw::session(node.websocket(), "honest", "d")?;
        calls(
            &mut honest,
            "send",
            &json!({ "channelId": "friend", "channelType": 1, "clientMsgNo": "", "payload": { "type": 1 } }),
            50,
        )?;
        anyhow::Ok(())
    })?;
    // Each of them was closed, for a stated reason.
    until("every flood is closed", || {
        Ok(node.counted("penstock_gateway_connections")? == 0)
    })?;
    assert_eq!(overflows(&node)?, methods.len() as u64);
    let after = node.resident_bytes()?;
    assert!(after < before + 200 * MIB, "{before} bytes before, {after} after");
    still_serves(&node, process, "alice")
}

#[test]
fn b27_garbage_from_many_sessions_delays_nobody_for_good() -> Result<()> {
    let node = Node::start_logged(None, &[])?;
    let flooded = garbage::run(&node, &Flood::SMALL, &|_| {})?;
    assert_eq!(flooded.sent, 10_000);
    assert!(flooded.closed > 0, "what is no JSON ends its session");
    assert!(flooded.served.messages() > 0);
    Ok(())
}

#[test]
fn b49_a_ping_flood_costs_no_memory_and_ends() -> Result<()> {
    let node = Node::start(&[])?;
    let before = node.resident_bytes()?;
    let mut mallory = Raw::session(node.websocket(), "mallory", "d")?;
    let pings = masked(0x80 | PING, &[b'p'; 125]).repeat(500);
    // A client that reads gets a pong for what it sent last, and never another body.
    for _ in 0..20 {
        mallory.bytes(&pings)?;
    }
    mallory.bytes(&masked(0x80 | PING, b"last"))?;
    loop {
        let (opcode, body) = mallory.next_frame()?.context("the session stays")?;
        assert_eq!(opcode, PONG);
        if body == b"last" {
            break;
        }
        assert_eq!(body, [b'p'; 125]);
    }
    // One that does not read is closed.
    thread::scope(|scope| {
        let flooding = scope.spawn(|| flood(&mut mallory, &pings));
        let mut honest = Raw::session(node.websocket(), "honest", "d")?;
        calls(&mut honest, "ping", &json!({}), 50)?;
        flooding.join().expect("no panic");
        anyhow::Ok(())
    })?;
    assert_eq!(node.closed("outbound_overflow")?, 1);
    let after = node.resident_bytes()?;
    assert!(after < before + 64 * MIB, "{before} bytes before, {after} after");
    still_serves(&node, node.process(), "alice")
}

#[test]
fn s12_a_flood_of_empty_messages_costs_no_memory() -> Result<()> {
    let node = Node::start(&[])?;
    let before = node.resident_bytes()?;
    // WKProto takes empty messages: they are a stream of frames, cut anywhere.
    let key = ClientKey::new([9; 32]);
    let mut connect = BytesMut::new();
    let frame = key.connect(6, "mallory", "any", "d");
    encode(&Frame::Connect(frame), Version::LATEST, &mut connect)?;
    let mut mallory = Raw::websocket(node.websocket())?;
    mallory.frame(0x80 | BINARY, &connect)?;
    let (opcode, _) = mallory.next_frame()?.context("a CONNACK")?;
    assert_eq!(opcode, BINARY);
    let empty = masked(0x80 | BINARY, b"").repeat(10_000);
    thread::scope(|scope| {
        let flooding = scope.spawn(|| {
            for _ in 0..100 {
                mallory.bytes(&empty)?;
            }
            anyhow::Ok(())
        });
        let mut honest = Raw::session(node.websocket(), "honest", "d")?;
        calls(&mut honest, "ping", &json!({}), 50)?;
        flooding.join().expect("no panic")
    })?;
    // All of them are read, and what stands behind them is answered.
    let mut ping = BytesMut::new();
    encode(&Frame::Ping, Version::LATEST, &mut ping)?;
    mallory.frame(0x80 | BINARY, &ping)?;
    let (opcode, pong) = mallory.next_frame()?.context("the session stays")?;
    assert_eq!((opcode, pong.as_slice()), (BINARY, &[0x80][..]));
    let after = node.resident_bytes()?;
    assert!(after < before + 32 * MIB, "{before} bytes before, {after} after");
    still_serves(&node, node.process(), "alice")
}

#[test]
fn b31_sixty_four_receivers_that_read_nothing_are_closed_and_the_others_get_all() -> Result<()> {
    const MESSAGES: usize = 400;
    let node = Node::start(&["--set", "gateway.outbound_bytes_max=65536"])?;
    let process = node.process();
    let members: Vec<String> = (0..64).map(|number| format!("stalled{number}")).collect();
    let everyone = [members.clone(), vec!["alice".to_owned(), "bob".to_owned()]].concat();
    make_room(&node, "room", &everyone)?;
    let stalled = members
        .iter()
        .map(|uid| Raw::session(node.websocket(), uid, "d"))
        .collect::<Result<Vec<_>>>()?;
    let mut bob = Raw::session(node.websocket(), "bob", "d")?;
    let before = node.resident_bytes()?;
    // 30 KB a message: 12 MB to each of them, 768 MB in all.
    let payload = "eHh4".repeat(10_000);
    thread::scope(|scope| {
        let (taken, wait) = mpsc::channel();
        let reading = scope.spawn(move || {
            for seq in 1..=MESSAGES {
                let received = bob.json()?;
                assert_eq!(received["params"]["messageSeq"], seq);
                let id = &received["params"]["messageId"];
                let ack = json!({ "method": "recvack", "params": { "messageId": id, "messageSeq": seq } });
                bob.frame(0x80 | TEXT, ack.to_string().as_bytes())?;
                taken.send(())?;
            }
            anyhow::Ok(())
        });
        for number in 0..MESSAGES {
            say(&node, "room", &format!("m{number}"), &payload)?;
            // Bob is no slow reader, however busy the machine is.
            if wait.recv_timeout(PATIENCE).is_err() {
                break;
            }
        }
        reading.join().expect("no panic")
    })?;
    until("the stalled ones are closed", || Ok(overflows(&node)? == 64))?;
    let after = node.resident_bytes()?;
    assert!(after < before + 256 * MIB, "{before} bytes before, {after} after");
    drop(stalled);
    still_serves(&node, process, "carol")
}

#[test]
fn b41_many_devices_of_one_user_all_receive() -> Result<()> {
    const DEVICES: usize = 200;
    let node = Node::start(&[])?;
    let mut devices = (0..DEVICES)
        .map(|number| Raw::session(node.websocket(), "bob", &format!("d{number}")))
        .collect::<Result<Vec<_>>>()?;
    for number in 0..20 {
        let message = json!({
            "from_uid": "alice", "channel_id": "bob", "channel_type": 1, "client_msg_no": format!("m{number}"), "payload": "eA==",
        });
        assert_eq!(post(node.http(), "/message/send", &message)?.body["reason"], 1);
    }
    for device in &mut devices {
        for seq in 1..=20 {
            assert_eq!(device.json()?["params"]["messageSeq"], seq);
        }
    }
    still_serves(&node, node.process(), "carol")
}

#[test]
fn b43_a_user_who_is_made_to_quit_gets_a_reason_and_a_close() -> Result<()> {
    let node = Node::start(&[])?;
    let mut bob = Raw::session(node.websocket(), "bob", "d")?;
    let quit = json!({ "uid": "bob", "device_flag": -1 });
    assert_eq!(post(node.http(), "/user/device_quit", &quit)?.status, 200);
    let ending = bob.ending()?;
    assert_eq!((ending.code, ending.reason.as_str()), (Some(4001), "kicked"));
    let last: Value = serde_json::from_str(ending.texts.last().context("a DISCONNECT")?)?;
    assert_eq!(
        (&last["method"], &last["params"]["reasonCode"]),
        (&json!("disconnect"), &json!(12))
    );
    Ok(())
}

#[test]
fn b81_of_one_device_that_connects_at_once_one_session_stays() -> Result<()> {
    let node = Node::start(&[])?;
    for round in 0..10 {
        let uid = format!("alice{round}");
        // Who comes second may be ended before it is admitted: its CONNACK says why.
        let mut sessions: Vec<Raw> = thread::scope(|scope| {
            let opening: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| Raw::session(node.websocket(), &uid, "same")))
                .collect();
            opening
                .into_iter()
                .filter_map(|one| match one.join().expect("no panic") {
                    Ok(raw) => Some(raw),
                    Err(error) => {
                        assert!(error.to_string().contains("\"reasonCode\":12"), "{error}");
                        None
                    }
                })
                .collect()
        });
        until("one stays", || {
            Ok(node.counted("penstock_gateway_connections")? == 1)
        })?;
        let mut stayed = 0;
        for raw in &mut sessions {
            let asked = raw.call("p", "ping", &json!({})).and_then(|()| raw.answer("p"));
            stayed += usize::from(asked.is_ok());
        }
        assert_eq!(stayed, 1, "round {round}");
        drop(sessions);
        until("all are gone", || {
            Ok(node.counted("penstock_gateway_connections")? == 0)
        })?;
    }
    Ok(())
}
