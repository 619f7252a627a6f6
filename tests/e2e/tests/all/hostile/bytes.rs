//! Bytes that no proper client sends.

use crate::hostile::{MIB, make_room, still_serves};
use anyhow::{Context, Result};
use penstock_e2e::mutations::{self, Dice};
use penstock_e2e::{BINARY, Node, PING, PONG, Raw, TEXT, Vitals, masked};
use serde_json::{Value, json};

const CASES: &str = include_str!("../../../../conformance/cases/frames.tsv");

/// The reasons for which a peer is closed that sends what it may not.
const REFUSALS: [&str; 3] = ["protocol_error", "policy_violation", "auth_failed"];

/// How many connections have been refused for what they sent.
fn refused(node: &Node) -> Result<u64> {
    REFUSALS.iter().map(|reason| node.closed(reason)).sum()
}

/// Every row of the table of byte cases; each connection ends as its row says.
fn run_cases(node: &Node) -> Result<usize> {
    let mut count = 0;
    for line in CASES.lines().skip(1) {
        let mut columns = line.split('\t');
        let (name, hex, must) = (columns.next(), columns.next(), columns.next());
        let (name, hex, must) = (
            name.context("a name")?,
            hex.context("bytes")?,
            must.context("an outcome")?,
        );
        let bytes: Vec<u8> = (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16))
            .collect::<Result<_, _>>()?;
        run_case(node, name, &bytes, must).with_context(|| name.to_owned())?;
        count += 1;
    }
    Ok(count)
}

fn run_case(node: &Node, name: &str, bytes: &[u8], must: &str) -> Result<()> {
    let before = refused(node)?;
    if name.starts_with("wk") {
        let mut raw = Raw::tcp(node.tcp())?;
        raw.bytes(bytes)?;
        let said = raw.rest()?;
        assert_eq!(!said.is_empty(), must.starts_with("CONNACK"), "{name}: {said:?}");
        assert_eq!(refused(node)?, before + 1, "{name}");
        let mut raw = Raw::websocket(node.websocket())?;
        raw.frame(0x80 | BINARY, bytes)?;
        let code = raw.ending()?.code;
        assert!(matches!(code, Some(1002 | 1008 | 1009)), "{name}: {code:?}");
        assert_eq!(refused(node)?, before + 2, "{name}");
        return Ok(());
    }
    let mut raw = Raw::websocket(node.websocket())?;
    if name.starts_with("rpc") {
        raw.frame(0x80 | TEXT, bytes)?;
        let code = raw.json()?["error"]["code"].as_i64();
        let wanted: &[i64] = match must {
            "closed with a parse error object" => &[-32700],
            "error object code -32601, connection stays" => &[-32601],
            _ => &[-32600],
        };
        assert!(
            code.is_some_and(|code| wanted.contains(&code)),
            "{name}: {code:?}"
        );
        return Ok(());
    }
    raw.bytes(bytes)?;
    if must == "pong with the same 125 bytes" {
        let pong = raw.next_frame()?.context("a pong")?;
        assert_eq!((pong.0, pong.1.len()), (PONG, 125), "{name}");
        assert_eq!(pong.1, bytes[bytes.len() - 125..]);
        return Ok(());
    }
    let code = raw.ending()?.code.context("a close with a code")?;
    let is_stated = must.contains(&code.to_string());
    // A frame that is accepted is a PING here, which may not come first.
    assert!(
        is_stated || must.starts_with("accept") && code == 1008,
        "{name}: {code}"
    );
    Ok(())
}

#[test]
fn b53_every_byte_case_ends_as_stated_and_the_process_lives() -> Result<()> {
    let node = Node::start(&[])?;
    let process = node.process();
    let mut bystander = Raw::session(node.websocket(), "bystander", "d")?;
    assert_eq!(run_cases(&node)?, 28);
    bystander.call("p", "ping", &json!({}))?;
    bystander.answer("p")?;
    still_serves(&node, process, "alice")
}

#[test]
fn s26_a_claimed_length_allocates_nothing() -> Result<()> {
    let node = Node::start(&[])?;
    let before = node.resident_bytes()?;
    let mut open = Vec::new();
    for number in 0..200 {
        // Before and after the login: a WebSocket frame of 1 GiB, and one of 1 MiB of which nothing follows.
        let mut stranger = Raw::websocket(node.websocket())?;
        stranger.bytes(&[0x82, 0xff, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0])?;
        assert_eq!(stranger.ending()?.code, Some(1009));
        let mut session = Raw::session(node.websocket(), "mallory", &format!("a{number}"))?;
        session.bytes(&[0x82, 0xff, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0])?;
        assert_eq!(session.ending()?.code, Some(1009));
        let mut session = Raw::session(node.websocket(), "mallory", &format!("b{number}"))?;
        session.bytes(&[0x82, 0xff, 0, 0, 0, 0, 0, 0x0f, 0, 0, 0, 0, 0, 0])?;
        open.push(session);
    }
    let after = node.resident_bytes()?;
    assert!(after < before + 100 * MIB, "{before} bytes before, {after} after");
    still_serves(&node, node.process(), "alice")
}

#[test]
fn b45_a_message_of_many_fragments_is_closed_by_their_number() -> Result<()> {
    let node = Node::start(&[])?;
    let open = |is_session: bool| match is_session {
        true => Raw::session(node.websocket(), "mallory", "d"),
        false => Raw::websocket(node.websocket()),
    };
    for length in [0, 1, 200] {
        for is_session in [false, true] {
            let mut raw = open(is_session)?;
            raw.frame(BINARY, &vec![b'a'; length])?;
            for _ in 1..16 {
                raw.frame(0, &vec![b'a'; length])?;
            }
            // So many are taken: the ping that stands behind them is answered.
            raw.frame(0x80 | PING, b"still")?;
            let pong = raw.next_frame()?.context("a pong")?;
            assert_eq!(pong, (PONG, b"still".to_vec()));
            raw.frame(0, b"a")?;
            let ending = raw.ending()?;
            assert_eq!(
                (ending.code, ending.reason.as_str()),
                (Some(1008), "too_many_fragments"),
                "fragments of {length}"
            );
        }
    }
    assert_eq!(node.closed("policy_violation")?, 6);
    still_serves(&node, node.process(), "alice")
}

#[test]
fn b45_a_long_message_may_come_in_as_many_pieces_as_a_browser_makes_of_it() -> Result<()> {
    let node = Node::start(&[])?;
    let mut alice = Raw::session(node.websocket(), "alice", "d")?;
    let filling = "a".repeat(900_000);
    for length in [4_096, 48_000, 131_000] {
        let id = length.to_string();
        let call = json!({ "id": id, "method": "ping", "params": { "filling": filling } }).to_string();
        let mut first = TEXT;
        for piece in call.as_bytes().chunks(length) {
            alice.frame(first, piece)?;
            first = 0;
        }
        alice.frame(0x80, b"")?;
        assert!(alice.answer(&id)?["error"].is_null(), "pieces of {length}");
    }
    // But not in more bytes than a message may have, whether or not it ends.
    let mut sent = 0;
    let piece = masked(TEXT, &[b'a'; 4_096]);
    let next = masked(0, &[b'a'; 4_096]);
    while sent < 2 * MIB && alice.bytes(if sent == 0 { &piece } else { &next }).is_ok() {
        sent += 4_096;
    }
    assert_eq!(alice.ending()?.code, Some(1009), "after {sent} bytes");
    still_serves(&node, node.process(), "bob")
}

#[test]
fn b51_pings_between_large_messages_leave_both_whole() -> Result<()> {
    let node = Node::start(&[])?;
    make_room(&node, "room", &["alice".to_owned()])?;
    let mut alice = Raw::session(node.websocket(), "alice", "d")?;
    let mut dice = Dice::new(3);
    for number in 0..20_u64 {
        let body: Vec<u8> = (0..125).map(|_| dice.draw() as u8).collect();
        let text: String = (0..30_000)
            .map(|_| char::from(b'a' + (dice.draw() % 26) as u8))
            .collect();
        let params = json!({ "channelId": "room", "channelType": 2, "clientMsgNo": "", "payload": { "content": text } });
        let call = json!({ "id": "s", "method": "send", "params": params }).to_string();
        // The ping stands between two fragments of the message.
        let (first, second) = call.as_bytes().split_at(call.len() / 2);
        let mut bytes = masked(TEXT, first);
        bytes.extend_from_slice(&masked(0x80 | PING, &body));
        bytes.extend_from_slice(&masked(0x80, second));
        alice.bytes(&bytes)?;
        let mut seen = 0;
        while seen < 2 {
            let (opcode, payload) = alice.next_frame()?.context("the session stays")?;
            if opcode == PONG {
                assert_eq!(payload, body);
                seen += 1;
                continue;
            }
            let answer: Value = serde_json::from_slice(&payload)?;
            if answer["id"] == "s" {
                assert_eq!(answer["result"]["messageSeq"], number + 1, "{answer}");
                seen += 1;
            }
        }
        let page = super::histories::page(&node, "alice", "room", number + 1)?;
        let stored: Value = serde_json::from_slice(&super::histories::payload(&page[0])?)?;
        assert_eq!(stored["content"], text);
    }
    Ok(())
}

#[test]
fn b53_changed_packets_end_their_session_at_most() -> Result<()> {
    let node = Node::start_logged(None, &[])?;
    let process = node.process();
    // Once around first, so that what is made at the first use is not counted.
    run_cases(&node)?;
    still_serves(&node, process, "warm")?;
    let before = Vitals::of(&node)?;
    let tried = mutations::run(&node, mutations::SMALL, &|_| {})?;
    assert!(tried.judged >= mutations::SMALL, "{tried:?}");
    // Our own decoder foretells which packets a session survives.
    assert!(tried.cut_short * 100 < tried.connections, "{tried:?}");
    assert!(tried.served.messages() > 0);
    run_cases(&node)?;
    before.hold(&node)?;
    Ok(())
}
