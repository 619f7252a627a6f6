//! The messages of the client contract, section 4, and the `rpc-*` rows of the shared byte cases.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::reason::Reason;
use crate::wkproto::{Flags, Setting};

const LIMIT: usize = 1024 * 1024;

fn parsed(text: &str) -> Result<Call, ParseError> {
    parse(text.as_bytes(), LIMIT)
}

fn refused(text: &str) -> (i32, Value) {
    let error = parsed(text).unwrap_err();
    let object: Value = serde_json::from_str(&Outbound::Refused(&error).text()).unwrap();
    assert_eq!(object["jsonrpc"], "2.0");
    assert!(!object["error"]["message"].as_str().unwrap().is_empty());
    (
        i32::try_from(object["error"]["code"].as_i64().unwrap()).unwrap(),
        object["id"].clone(),
    )
}

fn send_payload(payload: &str) -> Result<Bytes, i32> {
    let text = format!(
        r#"{{"id":"1","method":"send","params":{{"channelId":"g","channelType":2,"clientMsgNo":"","payload":{payload}}}}}"#
    );
    match parsed(&text) {
        Ok(Call {
            method: Method::Send(params),
            ..
        }) => Ok(params.payload),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.code()),
    }
}

#[test]
fn connect_is_read() {
    let call = parsed(
        r#" {"jsonrpc":"2.0","id":"a","method":"connect","params":{"uid":"u1","token":"t","version":0,
            "deviceId":"d","deviceFlag":1,"clientTimestamp":5,"other":{"x":[1]}}}"#,
    );
    let connect = ConnectParams {
        uid: "u1".into(),
        token: "t".into(),
        device_id: "d".into(),
        device_flag: 1,
        client_timestamp: 5,
        ..ConnectParams::default()
    };
    assert_eq!(
        call,
        Ok(Call {
            id: Some("a".into()),
            method: Method::Connect(connect)
        })
    );
}

#[test]
fn send_is_read() {
    let call = parsed(
        r#"{"id":"b","method":"send","params":{"channelId":"g","channelType":2,"clientMsgNo":"m",
            "payload":{"b":1, "a":1.50},"header":{"redDot":true,"end":true},"setting":{"receipt":true,"topic":true},
            "expire":9,"topic":"t"}}"#,
    );
    let send = SendParams {
        channel_id: "g".into(),
        channel_type: 2,
        client_msg_no: "m".into(),
        header: RpcHeader {
            red_dot: true,
            end: true,
            ..RpcHeader::default()
        },
        setting: Setting::RECEIPT.with(Setting::TOPIC),
        expire_s: 9,
        topic: "t".into(),
        payload: Bytes::from_static(br#"{"b":1, "a":1.50}"#),
    };
    assert_eq!(
        call,
        Ok(Call {
            id: Some("b".into()),
            method: Method::Send(send)
        })
    );
}

#[test]
fn the_topic_bit_follows_the_topic() {
    let call = parsed(
        r#"{"id":"b","method":"send","params":{"channelId":"g","channelType":2,"clientMsgNo":"m","payload":1,
            "setting":{"topic":true}}}"#,
    );
    let Ok(Call {
        method: Method::Send(send),
        ..
    }) = call
    else {
        panic!("{call:?}")
    };
    assert_eq!(send.setting, Setting::NONE);
}

#[test]
fn the_other_methods_are_read() {
    let ack = parsed(r#"{"method":"recvack","params":{"messageId":"1234567890123456789","messageSeq":7}}"#);
    let params = RecvAckParams {
        message_id: 1_234_567_890_123_456_789,
        message_seq: 7,
        ..RecvAckParams::default()
    };
    assert_eq!(
        ack,
        Ok(Call {
            id: None,
            method: Method::RecvAck(params)
        })
    );
    let subscription = SubscribeParams {
        channel_id: "c".into(),
        channel_type: 7,
        ..SubscribeParams::default()
    };
    let subscribe = parsed(r#"{"id":"1","method":"subscribe","params":{"channelId":"c","channelType":7}}"#);
    assert_eq!(subscribe.unwrap().method, Method::Subscribe(subscription.clone()));
    let unsubscribe =
        parsed(r#"{"id":"1","method":"unsubscribe","params":{"channelId":"c","channelType":7}}"#);
    assert_eq!(unsubscribe.unwrap().method, Method::Unsubscribe(subscription));
    for params in ["", r#","params":null"#, r#","params":{}"#] {
        let ping = parsed(&format!(r#"{{"id":"1","method":"ping"{params}}}"#));
        assert_eq!(
            ping,
            Ok(Call {
                id: Some("1".into()),
                method: Method::Ping
            }),
            "{params}"
        );
        let leave = parsed(&format!(r#"{{"method":"disconnect"{params}}}"#));
        assert_eq!(
            leave.unwrap().method,
            Method::Disconnect(DisconnectParams::default()),
            "{params}"
        );
    }
}

#[test]
fn payload_rules_inbound() {
    for kept in [
        r#"{"z":1,"a":[ 2 ]}"#,
        "[1,2]",
        "7",
        "-1.50",
        "123456789012345678901234567890",
    ] {
        assert_eq!(send_payload(kept), Ok(Bytes::copy_from_slice(kept.as_bytes())));
    }
    assert_eq!(send_payload(r#""aGk=""#), Ok(Bytes::from_static(b"hi")));
    assert_eq!(send_payload(r#""\u0061Gk=""#), Ok(Bytes::from_static(b"hi")));
    assert_eq!(send_payload(r#""""#), Ok(Bytes::new()));
    for bad in [
        r#""aGk""#,
        r#""aGl=""#,
        r#""hi there""#,
        r#""aG k=""#,
        "true",
        "false",
        "null",
    ] {
        assert_eq!(send_payload(bad), Err(code::INVALID_PARAMS), "{bad}");
    }
}

#[test]
fn payload_rules_outbound() {
    let text = |bytes: &[u8]| serde_json::to_string(&Payload::of(bytes)).unwrap();
    assert_eq!(text(br#"{"z":1.50,"a":2}"#), r#"{"z":1.50,"a":2}"#);
    assert_eq!(text(b"[1]"), "[1]");
    for (bytes, base64) in [
        (&b"7"[..], r#""Nw==""#),
        (b"\"x\"", r#""Ingi""#),
        (b"{\"a\":1", r#""eyJhIjox""#),
        (b"{} {}", r#""e30ge30=""#),
        (b"[\xff]", r#""W/9d""#),
        (b"", r#""""#),
    ] {
        assert_eq!(text(bytes), base64);
    }
    // What no receiver could parse is not embedded.
    assert!(text("[".repeat(200).as_bytes()).starts_with('"'));
    assert!(text(format!("{}{}", "[".repeat(200), "]".repeat(200)).as_bytes()).starts_with('"'));
}

#[test]
fn refusals_have_codes_ids_and_fates() {
    // The rpc rows of the shared cases.
    assert_eq!(refused("{not json"), (code::PARSE_ERROR, Value::Null));
    assert!(parsed("{not json").unwrap_err().is_fatal());
    assert_eq!(
        refused(r#"[{"method":"ping","id":"1"}]"#),
        (code::INVALID_REQUEST, Value::Null)
    );
    assert!(!parsed(r#"[{"method":"ping","id":"1"}]"#).unwrap_err().is_fatal());
    assert_eq!(
        refused(r#"{"method":"nope","id":"1"}"#),
        (code::METHOD_NOT_FOUND, json!("1"))
    );
    assert!(!parsed(r#"{"method":"nope","id":"1"}"#).unwrap_err().is_fatal());
    assert_eq!(parsed(&"[".repeat(4000)), Err(ParseError::TooDeep));
    assert!(ParseError::TooDeep.is_fatal());
    // And their neighbours.
    assert_eq!(
        refused(r#"{"method":"ping","id":1}"#),
        (code::INVALID_REQUEST, Value::Null)
    );
    assert_eq!(
        refused(r#"{"method":"ping"}"#),
        (code::INVALID_REQUEST, Value::Null)
    );
    assert_eq!(refused(r#"{"id":"1"}"#), (code::INVALID_REQUEST, json!("1")));
    assert_eq!(
        refused(r#"{"jsonrpc":"1.0","id":"1","method":"ping"}"#),
        (code::INVALID_REQUEST, json!("1"))
    );
    assert_eq!(
        refused(r#"{"id":"1","id":"2","method":"ping"}"#).0,
        code::INVALID_REQUEST
    );
    assert_eq!(
        refused(r#"{"id":"1","method":"connect","params":{}}"#),
        (code::INVALID_PARAMS, json!("1"))
    );
    assert_eq!(
        refused(r#"{"id":"1","method":"send","params":[]}"#),
        (code::INVALID_PARAMS, json!("1"))
    );
    let long_id = format!(r#"{{"id":"{}","method":"ping"}}"#, "x".repeat(ID_BYTES_MAX + 1));
    assert_eq!(refused(&long_id), (code::INVALID_REQUEST, Value::Null));
    let long_uid = format!(
        r#"{{"id":"1","method":"connect","params":{{"uid":"{}"}}}}"#,
        "x".repeat(32_768)
    );
    assert_eq!(refused(&long_uid), (code::INVALID_PARAMS, json!("1")));
}

#[test]
fn a_send_needs_no_client_msg_no() {
    for absent in ["", r#""clientMsgNo":null,"#, r#""clientMsgNo":"","#] {
        let text = format!(
            r#"{{"id":"1","method":"send","params":{{{absent}"channelId":"g","channelType":2,"payload":{{}}}}}}"#
        );
        match parsed(&text) {
            Ok(Call {
                method: Method::Send(params),
                ..
            }) => assert_eq!(params.client_msg_no, ""),
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn length_and_depth_are_judged_before_parsing() {
    assert_eq!(
        parse(b"{}  ", 3),
        Err(ParseError::TooLong { length: 4, limit: 3 })
    );
    let nested = |depth: usize| {
        format!(
            r#"{{"id":"1","method":"send","params":{{"channelId":"g","channelType":2,"clientMsgNo":"","payload":{}{}}}}}"#,
            "[".repeat(depth),
            "]".repeat(depth)
        )
    };
    assert!(parsed(&nested(DEPTH_MAX - 2)).is_ok());
    assert_eq!(parsed(&nested(DEPTH_MAX - 1)), Err(ParseError::TooDeep));
    // Brackets in strings, also after escaped quotes, do not count.
    let text = format!(r#"{{"id":"\"{}","method":"ping"}}"#, "[".repeat(200));
    assert!(parsed(&text).is_ok());
}

#[test]
fn outbound_messages_are_as_documented() {
    let text = |outbound: Outbound<'_>| serde_json::from_str::<Value>(&outbound.text()).unwrap();
    let connected = ConnectResult {
        server_version: 6,
        time_diff: -3,
        reason_code: 1,
        reason: None,
        node_id: 4,
    };
    assert_eq!(
        text(Outbound::Connected("a", &connected)),
        json!({"jsonrpc":"2.0","id":"a","result":{"serverVersion":6,"timeDiff":-3,"reasonCode":1,"nodeId":4}})
    );
    let sent = SendResult {
        message_id: i64::MAX,
        message_seq: 7,
        reason_code: 1,
        ..SendResult::default()
    };
    assert_eq!(
        text(Outbound::Sent("b", &sent)),
        json!({"jsonrpc":"2.0","id":"b","result":{"messageId":"9223372036854775807","messageSeq":7,"reasonCode":1}})
    );
    assert_eq!(
        Outbound::Pong("c").text(),
        r#"{"jsonrpc":"2.0","id":"c","result":null}"#
    );
    assert_eq!(
        text(Outbound::OutcomeUnknown {
            id: "d",
            client_msg_no: "m"
        }),
        json!({"jsonrpc":"2.0","id":"d","error":{"code":code::OUTCOME_UNKNOWN,"message":"outcome_unknown",
            "data":{"clientMsgNo":"m","retry":true}}})
    );
    assert_eq!(
        text(Outbound::OutcomeUnknown {
            id: "d",
            client_msg_no: ""
        })["error"]["data"],
        json!({"clientMsgNo":"","retry":false})
    );
    assert_eq!(
        text(Outbound::Disconnect {
            reason_code: Reason::Kicked.code(),
            reason: "kicked"
        }),
        json!({"jsonrpc":"2.0","method":"disconnect","params":{"reasonCode":12,"reason":"kicked"}})
    );
    let event = RpcEvent {
        id: "e",
        event_type: "t",
        timestamp: 5,
        data: "hi",
    };
    assert_eq!(
        text(Outbound::Event(&event)),
        json!({"jsonrpc":"2.0","method":"event","params":{"id":"e","type":"t","timestamp":5,"data":"hi"}})
    );
    let subscription = SubscriptionResult {
        channel_id: "c".into(),
        channel_type: 7,
        reason_code: 1,
        ..Default::default()
    };
    assert_eq!(
        text(Outbound::Subscription("f", &subscription))["result"],
        json!({"subNo":"","channelId":"c","channelType":7,"action":0,"reasonCode":1})
    );
}

#[test]
fn recv_is_as_documented() {
    let recv = RecvParams {
        header: Flags {
            red_dot: true,
            ..Flags::default()
        }
        .into(),
        setting: Setting::RECEIPT.into(),
        expire: 0,
        message_id: 5,
        message_seq: 7,
        client_msg_no: "m",
        timestamp: 1_700_000_000,
        channel_id: "u1",
        channel_type: 1,
        topic: "",
        from_uid: "u1",
        payload: Payload::of(br#"{"type":1}"#),
    };
    assert_eq!(
        serde_json::from_str::<Value>(&Outbound::Recv(&recv).text()).unwrap(),
        json!({"jsonrpc":"2.0","method":"recv","params":{"header":{"redDot":true},"setting":{"receipt":true},
            "messageId":"5","messageSeq":7,"clientMsgNo":"m","timestamp":1_700_000_000,"channelId":"u1",
            "channelType":1,"fromUid":"u1","payload":{"type":1}}})
    );
}

proptest! {
    /// Whatever is stored comes out as one JSON value that a client can turn back into the same bytes.
    #[test]
    fn stored_bytes_survive_the_way_out_and_in(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let text = serde_json::to_string(&Payload::of(&bytes)).unwrap();
        prop_assert_eq!(send_payload(&text), Ok(Bytes::from(bytes)));
    }

    #[test]
    fn damaged_text_never_panics(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut text = br#"{"jsonrpc":"2.0","id":"b","method":"send","params":{"channelId":"g","channelType":2,
            "clientMsgNo":"m","payload":{"b":[1,"\u0041"]},"header":{"redDot":true}}}"#.to_vec();
        for (index, value) in damage {
            let index = index.index(text.len());
            text[index] = value;
        }
        if let Err(error) = parse(&text, LIMIT) {
            let object: Value = serde_json::from_str(&Outbound::Refused(&error).text()).unwrap();
            prop_assert!(object["error"]["code"].is_i64());
        }
    }

    #[test]
    fn noise_never_panics(noise in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(parse(&noise, LIMIT).is_err());
    }
}
