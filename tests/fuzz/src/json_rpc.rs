//! `json_rpc`: messages of JSON-RPC, to the decoder and to sessions of the gateway.
//!
//! The decoder agrees with a second reader of JSON on what is JSON, and keeps to its bounds. A session answers every
//! request that has an id with that id, once; it goes on after whatever leaves the stream readable, and ends with an error object
//! and a close where it does not.

use crate::input::Input;
use crate::node::{self, GROUP, UIDS, Users};
use crate::peer::message;
use crate::rpc::{self, Expected, MESSAGE_BYTES_MAX, RpcSession};
use penstock_wire::jsonrpc::{DEPTH_MAX, ID_BYTES_MAX, Outbound, ParseError, parse};
use serde_json::Value;

/// Most messages of one session.
const MESSAGES_MAX: usize = 16;

/// Runs one input.
///
/// # Panics
/// When something does not hold.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    if input.rarely(2) {
        let limit = [64, 4_096, MESSAGE_BYTES_MAX][input.below(3)];
        decoder(input.remaining(), limit);
    } else {
        session(&mut input);
        node::assert_well();
    }
}

fn decoder(text: &[u8], limit: usize) {
    let parsed = parse(text, limit);
    let reference = serde_json::from_slice::<Value>(text);
    match &parsed {
        Ok(call) => {
            let object = reference.expect("what is a call is JSON");
            assert!(object["method"].is_string() && text.len() <= limit);
            assert_eq!(object.get("id").and_then(Value::as_str), call.id.as_deref());
            assert!(call.id.as_ref().is_none_or(|id| id.len() <= ID_BYTES_MAX));
            assert!(depth(&object) <= DEPTH_MAX);
        }
        Err(ParseError::NotJson(_)) => assert!(reference.is_err(), "JSON was not taken for JSON"),
        Err(ParseError::TooLong { length, .. }) => assert!(*length == text.len() && *length > limit),
        Err(error) => {
            let answer: Value = serde_json::from_str(&Outbound::Refused(error).text()).expect("JSON");
            assert_eq!(answer["error"]["code"], error.code());
        }
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn session(input: &mut Input<'_>) {
    let mut session = RpcSession::open(Users::JsonRpc, input.below(16));
    let mut expected = Expected::default();
    for number in 0..=input.below(MESSAGES_MAX) {
        if input.is_empty() || expected.ending.is_some() {
            break;
        }
        let text = body(input, number);
        expected.sent(&text);
        let opcode = if std::str::from_utf8(&text).is_ok() && !input.rarely(4) {
            1
        } else {
            2
        };
        session.peer.write(&[&message(opcode, &text)]);
        if input.rarely(4) && expected.ending.is_none() {
            session.settle(&expected);
        }
    }
    match expected.ending {
        None => {
            session.settle(&expected);
            session.end();
        }
        Some(ending) => session.ended(ending),
    }
}

/// A message: mostly a request with some members as they should be.
fn body(input: &mut Input<'_>, number: usize) -> Vec<u8> {
    if input.rarely(8) {
        return input.chunk().to_vec();
    }
    let method = match input.below(12) {
        0..=4 => "\"send\"".to_owned(),
        5 => "\"recvack\"".to_owned(),
        6 => "\"subscribe\"".to_owned(),
        7 => "\"unsubscribe\"".to_owned(),
        8 => "\"ping\"".to_owned(),
        9 if input.rarely(4) => "\"disconnect\"".to_owned(),
        10 if input.rarely(4) => "\"connect\"".to_owned(),
        11 => value(input, 2),
        _ => "\"nothing\"".to_owned(),
    };
    let mut members = vec![format!("\"method\":{method}")];
    if !input.rarely(8) {
        members.push(format!("\"id\":\"{number}\""));
    } else {
        members.push(format!("\"id\":{}", value(input, 2)));
    }
    if input.rarely(2) {
        members.push("\"jsonrpc\":\"2.0\"".to_owned());
    }
    members.push(format!("\"params\":{}", params(input)));
    if input.rarely(8) {
        members.push(format!("{}:{}", quoted(&input.text()), value(input, 3)));
    }
    if input.rarely(8) {
        members.rotate_left(1);
    }
    format!("{{{}}}", members.join(",")).into_bytes()
}

/// Parameters that fit most methods, with some members as the input has them.
fn params(input: &mut Input<'_>) -> String {
    if input.rarely(12) {
        return value(input, 4);
    }
    let channel = match input.below(6) {
        0..=2 => quoted(GROUP),
        3 => quoted(input.one_of(UIDS)),
        4 => quoted(&input.text()),
        _ => value(input, 1),
    };
    let kind = if input.rarely(6) {
        value(input, 1)
    } else {
        (1 + input.below(2)).to_string()
    };
    let mut members = vec![
        format!("\"channelId\":{channel}"),
        format!("\"channelType\":{kind}"),
    ];
    for name in [
        "clientMsgNo",
        "payload",
        "messageId",
        "messageSeq",
        "header",
        "setting",
        "expire",
        "topic",
        "subNo",
        "param",
        "reasonCode",
        "reason",
    ] {
        let usual = match name {
            "clientMsgNo" => quoted(&input.u8().to_string()),
            "payload" => "{\"type\":1,\"content\":\"hi\"}".to_owned(),
            "messageId" => quoted(&input.number().to_string()),
            "messageSeq" => input.number().to_string(),
            _ if input.rarely(4) => value(input, 3),
            _ => continue,
        };
        let shown = if input.rarely(8) { value(input, 3) } else { usual };
        members.push(format!("{}:{shown}", quoted(name)));
    }
    format!("{{{}}}", members.join(","))
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Any JSON value, and sometimes what is none.
fn value(input: &mut Input<'_>, depth: usize) -> String {
    match input.below(if depth == 0 { 8 } else { 12 }) {
        0 => "null".to_owned(),
        1 => "true".to_owned(),
        2 => input.number().to_string(),
        3 => format!("-{}", input.number()),
        4 => format!("{}.{}e{}", input.u8(), input.u8(), input.u8()),
        5 => quoted(&input.text()),
        6 => "\"aGVsbG8=\"".to_owned(),
        7 if input.rarely(4) => String::from_utf8_lossy(input.bytes(6)).into_owned(),
        7 => "0".to_owned(),
        8 | 9 => {
            let items: Vec<String> = (0..input.below(4)).map(|_| value(input, depth - 1)).collect();
            format!("[{}]", items.join(","))
        }
        _ => {
            let names = [
                "noPersist",
                "redDot",
                "syncOnce",
                "dup",
                "receipt",
                "signal",
                "stream",
                "topic",
                "type",
            ];
            let member =
                |input: &mut Input<'_>| format!("\"{}\":{}", input.one_of(&names), value(input, depth - 1));
            let members: Vec<String> = (0..input.below(4)).map(|_| member(input)).collect();
            format!("{{{}}}", members.join(","))
        }
    }
}

/// The shared byte cases, a request of each method, and whole sessions.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    let mut decoder = |text: &[u8]| seeds.push([&[1, 2], text].concat());
    for (name, bytes) in crate::cases() {
        if name.starts_with("rpc") {
            decoder(&bytes);
        }
    }
    decoder(rpc::send("1", "m1").as_bytes());
    for text in [
        r#"{"jsonrpc":"2.0","id":"a","method":"connect","params":{"uid":"u1","token":"t","deviceId":"d","deviceFlag":1}}"#,
        r#"{"id":"a","method":"send","params":{"channelId":"g","channelType":2,"clientMsgNo":"m","payload":"aGk=","topic":"t"}}"#,
        r#"{"method":"recvack","params":{"messageId":"9007199254740993","messageSeq":7}}"#,
        r#"{"id":"b","method":"subscribe","params":{"channelId":"g","channelType":2,"subNo":"s","param":"{}"}}"#,
        r#"{"id":"c","method":"ping"}"#,
        r#"{"method":"disconnect","params":{"reasonCode":1,"reason":"bye"}}"#,
    ] {
        decoder(text.as_bytes());
    }
    // Sessions: what each byte chooses stands in `session` and `body`.
    for user in 0..4 {
        let mut seed = vec![0, user, 7];
        for method in 0..8 {
            seed.extend([
                0, method, 0, 0, 0, 0, 1, method, 0, 0, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            ]);
        }
        seeds.push(seed);
    }
    seeds
}
