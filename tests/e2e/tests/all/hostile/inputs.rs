//! Ids and bodies that were made to hurt: empty, huge, with separators, control characters and quotes.

use crate::hostile::{make_room, say, still_serves, until};
use anyhow::Result;
use penstock_e2e::{Node, Raw, exchange, get, post};
use serde_json::{Value, json};
use std::net::Ipv4Addr;

/// Sends a body as it is.
fn post_bytes(node: &Node, path: &str, body: &[u8]) -> Result<u16> {
    let mut request = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(body);
    Ok(exchange(node.http(), &request)?.status)
}

/// Bodies of each route that changes something, with this text for every id.
fn bodies(id: &str) -> Vec<(&'static str, Value)> {
    let channel = json!({ "channel_id": id, "channel_type": 2 });
    let members = json!({ "channel_id": id, "channel_type": 2, "subscribers": [id] });
    let uids = json!({ "channel_id": id, "channel_type": 2, "uids": [id] });
    vec![
        ("/channel", members.clone()),
        ("/channel/info", channel.clone()),
        ("/channel/delete", channel.clone()),
        ("/channel/subscriber_add", members.clone()),
        ("/channel/subscriber_remove", members),
        ("/channel/subscriber_remove_all", channel.clone()),
        ("/channel/blacklist_add", uids.clone()),
        ("/channel/blacklist_set", uids.clone()),
        ("/channel/whitelist_add", uids.clone()),
        ("/channel/whitelist_remove", uids),
        ("/channel/whitelist_remove_all", channel),
        (
            "/user/token",
            json!({ "uid": id, "token": "t", "device_flag": 1, "device_level": 0 }),
        ),
        ("/user/device_quit", json!({ "uid": id, "device_flag": -1 })),
        ("/user/systemuids_add", json!({ "uids": [id] })),
        (
            "/message/send",
            json!({ "from_uid": id, "channel_id": id, "channel_type": 2, "payload": "eA==" }),
        ),
        (
            "/channel/messagesync",
            json!({ "login_uid": id, "channel_id": id, "channel_type": 2 }),
        ),
    ]
}

#[test]
fn b75_keys_that_are_empty_huge_or_strange_are_refused_and_the_node_starts_again() -> Result<()> {
    let mut node = Node::start(&[])?;
    let process = node.process();
    let huge = "a".repeat(500_000);
    for (path, body) in bodies("") {
        let answer = post(node.http(), path, &body)?;
        assert_eq!(answer.status, 400, "{path} with empty ids: {answer:?}");
    }
    for (path, body) in bodies(&huge) {
        let answer = post(node.http(), path, &body)?;
        assert_eq!(answer.status, 400, "{path} with huge ids");
        assert!(answer.text.contains("an id has at most 1000 bytes"), "{answer:?}");
    }
    for id in [
        "\0",
        "a\0b",
        "../../etc/passwd",
        "a@b@c",
        "#",
        "@",
        "&",
        "\u{1b}[31m\r\n",
        "\u{202e}\u{feff}",
        "____system",
    ] {
        for (path, body) in bodies(id) {
            let answer = post(node.http(), path, &body)?;
            assert!(answer.status < 500, "{path} with {id:?}: {answer:?}");
        }
    }
    for (path, _) in bodies("a") {
        assert_eq!(
            post_bytes(&node, path, b"{\"channel_id\":\"\xff\xfe\",\"uid\":\"\xff\"}")?,
            400,
            "{path}"
        );
        assert_eq!(
            post_bytes(&node, path, "[".repeat(100_000).as_bytes())?,
            400,
            "{path}"
        );
        assert_eq!(post_bytes(&node, path, b"")?, 400, "{path}");
    }
    still_serves(&node, process, "alice")?;
    node.kill_and_restart()?;
    still_serves(&node, node.process(), "alice")
}

#[test]
fn b75_the_longest_id_is_served_and_one_byte_more_is_refused_at_every_entry() -> Result<()> {
    let node = Node::start(&[])?;
    let (longest, longer) = ("a".repeat(1_000), "a".repeat(1_001));
    make_room(&node, &longest, std::slice::from_ref(&longest))?;
    let mut member = Raw::session(node.websocket(), &longest, "d")?;
    // The peer's uid and one's own together are a channel id too: one that is too long.
    for (channel, kind, reason) in [(&longest, 2, 1), (&longer, 2, 16), (&longest, 1, 16)] {
        let message = json!({ "channelId": channel, "channelType": kind, "payload": { "type": 1 } });
        member.call("s", "send", &message)?;
        assert_eq!(member.answer("s")?["result"]["reasonCode"], reason, "type {kind}");
    }
    let mut stranger = Raw::websocket(node.websocket())?;
    let params = json!({ "uid": longer, "token": "any", "deviceId": "d", "deviceFlag": 1 });
    stranger.call("c", "connect", &params)?;
    assert_eq!(stranger.answer("c")?["result"]["reasonCode"], 2);
    for (path, body) in bodies(&longer) {
        assert_eq!(post(node.http(), path, &body)?.status, 400, "{path}");
    }
    for path in [
        format!("/channel/whitelist?channel_type=2&channel_id={longer}"),
        format!("/message/outcome?channel_type=2&channel_id=room&client_msg_no=m&from_uid={longer}"),
    ] {
        let answer = get(node.http(), &path)?;
        assert_eq!(answer.status, 400, "{path}");
        assert!(answer.text.contains("an id has at most 1000 bytes"), "{answer:?}");
    }
    for path in ["/user/onlinestatus", "/route/batch"] {
        assert_eq!(post(node.http(), path, &json!([longer]))?.status, 400, "{path}");
    }
    // What goes into a frame has to fit one.
    for field in ["client_msg_no", "topic"] {
        let mut message =
            json!({ "from_uid": longest, "channel_id": longest, "channel_type": 2, "payload": "eA==" });
        message[field] = json!("t".repeat(32_768));
        let answer = post(node.http(), "/message/send", &message)?;
        assert_eq!(answer.status, 400, "{field}");
        assert!(
            answer.body["error"]
                .as_str()
                .is_some_and(|text| text.contains("at most 32767 bytes")),
            "{answer:?}"
        );
    }
    Ok(())
}

#[test]
fn s10_a_body_beyond_the_limit_is_refused_by_its_announcement() -> Result<()> {
    let node = Node::start(&[])?;
    let before = node.resident_bytes()?;
    for _ in 0..100 {
        let head = "POST /channel HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 1073741824\r\n\r\n{";
        assert_eq!(exchange(node.http(), head.as_bytes())?.status, 413);
    }
    let after = node.resident_bytes()?;
    assert!(
        after < before + 64 * super::MIB,
        "{before} bytes before, {after} after"
    );
    still_serves(&node, node.process(), "alice")
}

#[test]
fn s6_reserved_and_malformed_ids_are_refused_at_every_entry() -> Result<()> {
    let node = Node::start(&[])?;
    for uid in ["____system", "", "a@b", "a#b", "a&b"] {
        let mut raw = Raw::websocket(node.websocket())?;
        let params = json!({ "uid": uid, "token": "any", "deviceId": "d", "deviceFlag": 1 });
        raw.call("c", "connect", &params)?;
        assert_eq!(raw.answer("c")?["result"]["reasonCode"], 2, "{uid}");
        assert_eq!(raw.ending()?.code, Some(1008), "{uid}");
    }
    // The device of the system may do what others may not; who takes its name is an ordinary device.
    make_room(&node, "room", &["alice".to_owned()])?;
    let mut eve = Raw::session(node.websocket(), "eve", "____device")?;
    let message =
        json!({ "channelId": "room", "channelType": 2, "clientMsgNo": "", "payload": { "type": 1 } });
    eve.call("s", "send", &message)?;
    assert_eq!(eve.answer("s")?["result"]["reasonCode"], 3);
    for uid in ["", "____system", "a@b", "a#b", "a&b"] {
        let token = json!({ "uid": uid, "token": "t", "device_flag": 1, "device_level": 0 });
        assert_eq!(post(node.http(), "/user/token", &token)?.status, 400, "{uid}");
    }
    for id in ["", "a#b", "a@b"] {
        let group = json!({ "channel_id": id, "channel_type": 2, "subscribers": ["alice"] });
        assert_eq!(post(node.http(), "/channel", &group)?.status, 400, "{id}");
    }
    Ok(())
}

#[test]
fn s25_ids_with_newlines_and_quotes_forge_no_line_of_the_log() -> Result<()> {
    const FORGED: &str = "x\nFORGED level=error\r\nFORGED\u{1b}[31mFORGED\"} FORGED 1\n";
    for format in ["log.json=false", "log.json=true"] {
        let node = Node::start_logged(None, &["--set", "log.level=trace", "--set", format])?;
        let mut raw = Raw::websocket(node.websocket())?;
        raw.call(
            FORGED,
            "connect",
            &json!({ "uid": FORGED, "token": FORGED, "deviceId": FORGED, "deviceFlag": 1 }),
        )?;
        drop(raw.json());
        let mut alice = Raw::session(node.websocket(), "alice", FORGED)?;
        alice.call(FORGED, FORGED, &json!({ "channelId": FORGED }))?;
        alice.json()?;
        for (_, body) in bodies(FORGED) {
            for path in ["/channel", "/message/send", "/user/token"] {
                post(node.http(), path, &body)?;
            }
        }
        still_serves(&node, node.process(), "bob")?;
        let log = node.log()?;
        assert!(!log.contains("\u{1b}[31mFORGED"), "{format}");
        for line in log.lines() {
            assert!(!line.starts_with("FORGED"), "{format}: {line}");
            if format == "log.json=true" {
                assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}");
            }
        }
        assert!(!get(node.http(), "/metrics")?.text.contains("FORGED"));
    }
    Ok(())
}

#[test]
fn s25_channels_and_users_add_no_series() -> Result<()> {
    let node = Node::start(&[])?;
    make_room(&node, "first", &["alice".to_owned()])?;
    say(&node, "first", "m", "eA==")?;
    let series = || Ok::<_, anyhow::Error>(get(node.http(), "/metrics")?.text.lines().count());
    let before = series()?;
    for number in 0..300 {
        let group = format!("room{number}");
        make_room(&node, &group, &["alice".to_owned(), format!("user{number}")])?;
        say(&node, &group, "m", "eA==")?;
    }
    assert_eq!(series()?, before);
    Ok(())
}

#[test]
fn s10_http_connections_are_capped_and_end_when_they_ask_nothing() -> Result<()> {
    let node = Node::start(&["--set", "http.connections_max=20"])?;
    let open: Vec<Raw> = (0..20).map(|_| Raw::tcp(node.http())).collect::<Result<_>>()?;
    assert_eq!(Raw::tcp(node.http())?.rest()?, b"");
    // Who leaves makes room.
    drop(open);
    until("there is room", || Ok(get(node.http(), "/healthz").is_ok()))?;
    let node = Node::start(&["--set", "http.request_timeout_ms=1000"])?;
    let mut silent = Raw::tcp(node.http())?;
    let mut slow = Raw::tcp(node.http())?;
    slow.bytes(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ")?;
    assert_eq!((silent.rest()?, slow.rest()?), (Vec::new(), Vec::new()));
    let half =
        b"POST /channel HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 100\r\n\r\n{";
    assert_eq!(exchange(node.http(), half)?.status, 408);
    let head = format!(
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
        "a".repeat(17_000)
    );
    assert_eq!(exchange(node.http(), head.as_bytes())?.status, 431);
    still_serves(&node, node.process(), "alice")
}

#[test]
fn s10_one_address_does_not_take_all_connections_of_http() -> Result<()> {
    let node = Node::start(&["--set", "http.connections_per_ip_max=20"])?;
    let mut open: Vec<Raw> = (0..20).map(|_| Raw::tcp(node.http())).collect::<Result<_>>()?;
    assert_eq!(Raw::tcp(node.http())?.rest()?, b"");
    // Another address is served.
    let mut other = Raw::tcp_from(Ipv4Addr::new(127, 0, 0, 2), node.http())?;
    let health = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    other.bytes(health)?;
    assert!(other.rest()?.starts_with(b"HTTP/1.1 200 "));
    // So are those who have their places, and who comes when one of them has left.
    let mut first = open.swap_remove(0);
    first.bytes(health)?;
    assert!(first.rest()?.starts_with(b"HTTP/1.1 200 "));
    until("there is room", || Ok(get(node.http(), "/healthz").is_ok()))?;
    drop(open);
    still_serves(&node, node.process(), "alice")
}
