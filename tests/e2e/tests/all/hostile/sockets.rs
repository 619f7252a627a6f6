//! Connections that take a place and give nothing: deadlines, caps, heads, compression.

use crate::hostile::{still_serves, until};
use anyhow::Result;
use penstock_e2e::{BINARY, Node, PING, Raw, TEXT, masked};
use serde_json::json;
use std::thread;
use std::time::Duration;

#[test]
fn b55_upgrades_that_say_nothing_end_at_the_deadline() -> Result<()> {
    let node = Node::start(&["--set", "gateway.connect_timeout_ms=1500"])?;
    let websocket = node.websocket().trim_start_matches("ws://");
    let mut waiting = Vec::new();
    let mut upgraded = Vec::new();
    for number in 0..300 {
        match number % 6 {
            0 => waiting.push(Raw::tcp(websocket)?),
            1 => {
                let mut raw = Raw::tcp(websocket)?;
                raw.bytes(b"GET / HTTP/1.1\r\nHost: ")?;
                waiting.push(raw);
            }
            2 => waiting.push(Raw::tcp(node.tcp())?),
            3 => {
                let mut raw = Raw::tcp(node.tcp())?;
                // The head of a CONNECT, and nothing of its body.
                raw.bytes(&[0x10, 0x60])?;
                waiting.push(raw);
            }
            4 => upgraded.push(Raw::websocket(websocket)?),
            _ => {
                let mut raw = Raw::websocket(websocket)?;
                // Empty fragments and pings are no first message.
                raw.frame(BINARY, b"")?;
                raw.frame(0, b"")?;
                raw.frame(0x80 | PING, b"")?;
                upgraded.push(raw);
            }
        }
    }
    for raw in &mut waiting {
        assert_eq!(raw.rest()?, b"");
    }
    for raw in &mut upgraded {
        let ending = raw.ending()?;
        assert_eq!(
            (ending.code, ending.reason.as_str()),
            (Some(1008), "connect_timeout")
        );
    }
    assert_eq!(node.closed("connect_timeout")?, 300);
    drop((waiting, upgraded));
    until("all are forgotten", || {
        Ok(node.counted("penstock_gateway_unauthenticated_connections")? == 0)
    })?;
    still_serves(&node, node.process(), "alice")
}

#[test]
fn b57_protocol_pings_do_not_keep_a_session() -> Result<()> {
    let node = Node::start(&["--set", "gateway.idle_timeout_ms=1500"])?;
    let mut ghost = Raw::session(node.websocket(), "ghost", "d")?;
    // A proxy that goes on for a client that is gone: it pings and answers pings.
    while node.closed("idle_timeout")? == 0 {
        if ghost.frame(0x80 | PING, b"proxy").is_err() || ghost.frame(0x8a, b"proxy").is_err() {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    let ending = ghost.ending()?;
    assert_eq!(
        (ending.code, ending.reason.as_str()),
        (Some(4006), "idle_timeout")
    );
    assert_eq!(node.closed("idle_timeout")?, 1);
    drop(ghost);
    until("it is forgotten", || {
        Ok(node.counted("penstock_gateway_connections")? == 0)
    })
}

#[test]
fn b47_a_long_head_is_refused_at_the_limit() -> Result<()> {
    let node = Node::start(&[])?;
    let address = node.websocket().trim_start_matches("ws://");
    thread::scope(|scope| {
        let tries: Vec<_> = (0..20)
            .map(|_| {
                scope.spawn(|| {
                    let mut raw = Raw::tcp(address)?;
                    raw.bytes(b"GET / HTTP/1.1\r\nX: ")?;
                    // Byte by byte, up to a mebibyte.
                    let sent = (0..1 << 20).take_while(|_| raw.bytes(b"a").is_ok()).count();
                    anyhow::Ok((sent, raw.rest().unwrap_or_default()))
                })
            })
            .collect();
        for one in tries {
            let (sent, _) = one.join().expect("no panic")?;
            assert!(sent < 1 << 20, "all of it was taken");
        }
        anyhow::Ok(())
    })?;
    assert_eq!(node.closed("protocol_error")?, 20);
    // Whole, it gets its answer.
    let mut raw = Raw::tcp(address)?;
    let head = format!("GET / HTTP/1.1\r\nX: {}", "a".repeat(8 * 1024 - 19));
    raw.bytes(head.as_bytes())?;
    assert!(raw.rest()?.starts_with(b"HTTP/1.1 431 "));
    still_serves(&node, node.process(), "alice")
}

#[test]
fn s10_before_the_login_little_is_taken() -> Result<()> {
    let node = Node::start(&[])?;
    let too_long = "a".repeat(4_200);
    let mut raw = Raw::websocket(node.websocket())?;
    raw.call("1", "connect", &json!({ "uid": "alice", "token": too_long }))?;
    assert_eq!(raw.ending()?.code, Some(1009));
    // The same over TCP: CONNECT with a body of 4,200 bytes is refused by its length.
    let mut raw = Raw::tcp(node.tcp())?;
    raw.bytes(&[0x10, 0xe8, 0x20])?;
    assert_eq!(raw.rest()?, b"");
    assert_eq!(node.closed("protocol_error")?, 2);
    // And nothing but CONNECT is.
    for method in ["ping", "send", "subscribe", "recvack"] {
        let mut raw = Raw::websocket(node.websocket())?;
        raw.call("1", method, &json!({ "channelId": "bob", "channelType": 1, "payload": {}, "messageId": "1", "messageSeq": 1, "subNo": "1" }))?;
        let ending = raw.ending()?;
        assert!(matches!(ending.code, Some(1002 | 1008)), "{method}: {ending:?}");
    }
    still_serves(&node, node.process(), "alice")
}

/// Connections that take their place and go no further: silent ones, one in three an upgraded one, and some with half a CONNECT.
fn strangers(node: &Node, count: u64) -> Result<Vec<Raw>> {
    (0..count)
        .map(|number| match number % 3 {
            0 => Raw::websocket(node.websocket()),
            1 => Raw::tcp(node.tcp()),
            _ => {
                let mut raw = Raw::tcp(node.tcp())?;
                raw.bytes(&[0x10, 0x60, 0])?;
                Ok(raw)
            }
        })
        .collect()
}

#[test]
fn s10_who_has_not_logged_in_costs_less_than_ten_kibibytes() -> Result<()> {
    const COUNT: u64 = 600;
    let node = Node::start(&["--set", "gateway.connect_timeout_ms=60000"])?;
    let waiting = || node.counted("penstock_gateway_unauthenticated_connections");
    // Some first, so that what is made at the first use is not counted.
    let first = strangers(&node, 60)?;
    until("the first wait", || Ok(waiting()? == 60))?;
    let before = node.resident_bytes()?;
    let more = strangers(&node, COUNT)?;
    until("all wait", || Ok(waiting()? == 60 + COUNT))?;
    let each = node.resident_bytes()?.saturating_sub(before) / COUNT;
    assert!(each < 10 * 1024, "{each} bytes each");
    drop((first, more));
    still_serves(&node, node.process(), "alice")
}

#[test]
fn s10_nothing_may_follow_a_login_before_its_answer() -> Result<()> {
    let node = Node::start(&[])?;
    // In one write, so that no answer can come in between.
    let mut bytes = Vec::new();
    for (id, method) in [("1", "connect"), ("2", "ping")] {
        let params = json!({ "uid": "alice", "token": "any", "deviceId": "d", "deviceFlag": 1 });
        let call = json!({ "id": id, "method": method, "params": params }).to_string();
        bytes.extend_from_slice(&masked(0x80 | TEXT, call.as_bytes()));
    }
    let mut raw = Raw::websocket(node.websocket())?;
    raw.bytes(&bytes)?;
    let ending = raw.ending()?;
    assert_eq!(
        (ending.code, ending.reason.as_str()),
        (Some(1008), "policy_violation"),
        "{ending:?}"
    );
    still_serves(&node, node.process(), "alice")
}

#[test]
fn s10_connections_are_capped_by_address_and_in_total() -> Result<()> {
    for key in ["gateway.connections_per_ip_max=20", "gateway.connections_max=20"] {
        let node = Node::start(&["--set", key])?;
        let mut open = Vec::new();
        for number in 0..20 {
            open.push(Raw::session(node.websocket(), &format!("u{number}"), "d")?);
        }
        for address in [node.tcp(), node.websocket().trim_start_matches("ws://")] {
            assert_eq!(Raw::tcp(address)?.rest()?, b"", "{key}");
        }
        assert_eq!(node.closed("too_many_connections")?, 2, "{key}");
        // Who is in, is served; who leaves, makes room.
        let first = &mut open[0];
        first.call("p", "ping", &json!({}))?;
        first.answer("p")?;
        drop(open.pop());
        until("there is room", || {
            Ok(node.counted("penstock_gateway_connections")? < 20)
        })?;
        open.push(Raw::session(node.websocket(), "late", "d")?);
    }
    Ok(())
}

#[test]
fn b33_compression_is_declined() -> Result<()> {
    let node = Node::start(&[])?;
    let offer = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n";
    let (mut raw, head) = Raw::upgrade(node.websocket(), "localhost", offer)?;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(
        !head.to_ascii_lowercase().contains("sec-websocket-extensions"),
        "{head}"
    );
    // A message that is compressed all the same is an error.
    raw.frame(0xc0 | TEXT, b"compressed")?;
    assert_eq!(raw.ending()?.code, Some(1002));
    Ok(())
}
