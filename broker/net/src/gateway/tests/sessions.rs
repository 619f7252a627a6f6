//! What a session looks like from its client.

use bytes::{Bytes, BytesMut};
use penstock_core::client::{ClientFrame, CloseReason, Protocol, ServerFrame};
use penstock_core::types::Reason;
use penstock_wire::wkproto::{Disconnect, Flags, Frame, RecvAck, Send, SendAck, Setting, Sub, Version};
use serde_json::json;

use super::Edge;
use super::client::{TcpClient, WebSocketClient, connect, encoded};
use super::shard::Seen;

const BODY: &[u8] = br#"{"type":1,"content":"hi"}"#;

fn message(client_seq: u32, channel: &str) -> Send {
    Send {
        flags: Flags {
            red_dot: true,
            ..Flags::default()
        },
        client_seq,
        client_msg_no: format!("m{client_seq}"),
        channel_id: channel.into(),
        channel_type: 2,
        payload: Bytes::from_static(BODY),
        ..Send::default()
    }
}

async fn send_ack(client: &mut TcpClient) -> SendAck {
    match client.frame().await {
        Some(Frame::SendAck(ack)) => ack,
        other => panic!("not a SENDACK: {other:?}"),
    }
}

#[tokio::test]
async fn a_message_goes_out_and_comes_back_encrypted_in_every_version() {
    let edge = Edge::start().await;
    for version in 1..=6 {
        let uid = format!("u{version}");
        let mut client = TcpClient::session(edge.tcp(), version, &uid).await;
        let mut send = message(5, "echo");
        send.setting = Setting::RECEIPT.with(Setting::TOPIC);
        send.topic = "t".into();
        send.expire_s = 9;
        client.send_sealed(send).await;
        let Some(Frame::Recv(recv)) = client.frame().await else {
            panic!("no RECV")
        };
        assert_eq!(client.open_recv(&recv), BODY);
        assert_ne!(recv.payload, BODY);
        assert!(recv.flags.red_dot);
        assert_eq!(
            (
                recv.from_uid.as_str(),
                recv.topic.as_str(),
                recv.client_msg_no.as_str()
            ),
            ("ü1", "t", "m5")
        );
        assert_eq!((recv.message_seq, recv.timestamp_s), (7, 1_700_000_000));
        assert_eq!(recv.setting, Setting::RECEIPT.with(Setting::TOPIC));
        assert_eq!(recv.expire_s, if version >= 3 { 9 } else { 0 });
        let ack = send_ack(&mut client).await;
        assert_eq!((ack.client_seq, ack.message_seq, ack.reason_code), (5, 7, 1));
        let connection = edge.connection_of(&uid).await;
        assert_eq!(
            edge.shard.sends(connection)[0].payload,
            Ok(Bytes::from_static(BODY))
        );
    }
}

#[tokio::test]
async fn connect_is_translated_and_connack_fits_the_client() {
    let edge = Edge::start().await;
    for (announced, negotiated, has_server_version) in
        [(2, 2, false), (0, 6, false), (4, 4, true), (9, 6, true)]
    {
        let mut client = TcpClient::open(edge.tcp()).await;
        let uid = format!("v{announced}");
        client.send(&Frame::Connect(connect(announced, &uid, "t"))).await;
        client.set_version(Version::negotiate(announced));
        let Some(Frame::Connack(connack)) = client.frame().await else {
            panic!("no CONNACK")
        };
        assert_eq!(connack.server_version, has_server_version.then_some(6));
        assert_eq!((connack.time_diff_ms, connack.reason_code), (-25, 1));
        assert_eq!(connack.node_id, if negotiated >= 4 { 3 } else { 0 });
        assert_eq!((connack.server_key.len(), connack.salt.len()), (44, 16));
        let seen = edge.shard.seen(edge.connection_of(&uid).await);
        let [Seen::Opened, Seen::Frame(ClientFrame::Connect(connect))] = &seen[..] else {
            panic!("{seen:?}")
        };
        assert_eq!(
            (connect.protocol, connect.version),
            (Protocol::WkProto, negotiated)
        );
        assert_eq!(
            (&*connect.device_id, connect.device_flag.0, &*connect.token.0),
            ("d1", 1, "t")
        );
    }
}

#[tokio::test]
async fn every_handshake_has_its_own_key_and_salt() {
    let edge = Edge::start().await;
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..8 {
        let mut client = TcpClient::open(edge.tcp()).await;
        client.send(&Frame::Connect(connect(6, "u1", "t"))).await;
        let Some(Frame::Connack(connack)) = client.frame().await else {
            panic!("no CONNACK")
        };
        assert!(seen.insert(connack.server_key) & seen.insert(connack.salt));
    }
}

#[tokio::test]
async fn what_cannot_be_opened_is_answered_in_its_turn() {
    let edge = Edge::start().await;
    let mut client = TcpClient::session(edge.tcp(), 6, "u1").await;
    let mut wrong_key = message(2, "g");
    client.cipher().seal_send(&mut wrong_key);
    wrong_key.msg_key = "0".repeat(32);
    // The key of this one is right, but the payload is no ciphertext.
    let mut wrong_payload = Send {
        payload: Bytes::from_static(b"AAAA"),
        ..message(3, "g")
    };
    wrong_payload.msg_key = client.cipher().send_message_key(&wrong_payload);
    let plain = Send {
        setting: Setting::NO_ENCRYPT,
        ..message(4, "g")
    };
    client.send_sealed(message(1, "g")).await;
    for frame in [wrong_key, wrong_payload, plain] {
        client.send(&Frame::Send(frame)).await;
    }
    for (client_seq, reason) in [(1, 1), (2, 8), (3, 9), (4, 1)] {
        let ack = send_ack(&mut client).await;
        assert_eq!((ack.client_seq, ack.reason_code), (client_seq, reason));
    }
    let sends = edge.shard.sends(edge.connection_of("u1").await);
    assert_eq!(sends[3].payload, Ok(Bytes::from_static(BODY)));
    assert_eq!(sends[3].setting, 0, "the shard does not see NoEncrypt");
    client.is_well().await;
}

#[tokio::test]
async fn other_frames_are_translated() {
    let edge = Edge::start().await;
    let mut client = TcpClient::session(edge.tcp(), 2, "u1").await;
    client
        .send(&Frame::RecvAck(RecvAck {
            message_id: 5,
            message_seq: 6,
            ..RecvAck::default()
        }))
        .await;
    let sub = Sub {
        sub_no: "s".into(),
        channel_id: "c1".into(),
        channel_type: 7,
        action: 1,
        ..Sub::default()
    };
    client.send(&Frame::Sub(sub)).await;
    let Some(Frame::SubAck(ack)) = client.frame().await else {
        panic!("no SUBACK")
    };
    assert_eq!(
        (ack.sub_no.as_str(), ack.channel_id.as_str(), ack.channel_type),
        ("s", "c1", 7)
    );
    assert_eq!((ack.action, ack.reason_code), (1, 1));
    client
        .send(&Frame::Disconnect(Disconnect {
            reason_code: 1,
            ..Disconnect::default()
        }))
        .await;
    assert_eq!(client.frame().await, None);
    edge.closed(CloseReason::PeerClosed, 1).await;
    let seen = edge.shard.seen(edge.connection_of("u1").await);
    assert!(matches!(seen[2], Seen::Frame(ClientFrame::RecvAck { id, seq }) if (id.0, seq.0) == (5, 6)));
    assert_eq!(
        seen[4],
        Seen::Frame(ClientFrame::Disconnect { reason: Reason(1) })
    );
    assert_eq!(seen[5..], [Seen::Closed]);
}

#[tokio::test]
async fn frames_before_connack_or_out_of_place_break_the_policy() {
    let edge = Edge::start().await;
    let mut pipelined = encoded(&Frame::Connect(connect(6, "silent", "t")), Version::LATEST);
    pipelined.extend_from_slice(&encoded(&Frame::Ping, Version::LATEST));
    let mut client = TcpClient::open(edge.tcp()).await;
    client.raw(&pipelined).await;
    assert_eq!(client.frame().await, None);
    let mut client = WebSocketClient::open(edge.websocket()).await;
    client
        .message(
            2,
            &encoded(&Frame::Connect(connect(6, "silent", "t")), Version::LATEST),
        )
        .await;
    client.message(2, &[0x70]).await;
    assert_eq!(client.close_code().await, 1008);
    for frame in [
        Frame::Connect(connect(6, "u1", "t")),
        Frame::SendAck(SendAck::default()),
        Frame::Event(penstock_wire::wkproto::Event::default()),
    ] {
        let mut client = TcpClient::session(edge.tcp(), 6, "u1").await;
        client.send(&frame).await;
        assert_eq!(client.frame().await, None);
    }
    edge.closed(CloseReason::PolicyViolation, 5).await;
}

#[tokio::test]
async fn a_refused_connect_gets_its_reason_and_a_close() {
    let edge = Edge::start().await;
    for (token, reason) in [("bad", 2), ("late", 15)] {
        let mut client = TcpClient::open(edge.tcp()).await;
        client.send(&Frame::Connect(connect(2, "u1", token))).await;
        client.set_version(Version::UNNEGOTIATED);
        let Some(Frame::Connack(connack)) = client.frame().await else {
            panic!("no CONNACK")
        };
        assert_eq!(
            (
                connack.reason_code,
                connack.server_key.as_str(),
                connack.salt.as_str()
            ),
            (reason, "", "")
        );
        assert_eq!(client.frame().await, None);
    }
    edge.closed(CloseReason::AuthFailed, 1).await;
    edge.closed(CloseReason::ActivationFailed, 1).await;
    let mut client = WebSocketClient::open(edge.websocket()).await;
    client
        .text(r#"{"id":"c","method":"connect","params":{"uid":"u2","token":"bad"}}"#)
        .await;
    assert_eq!(client.json().await["result"]["reasonCode"], 2);
    assert_eq!(client.close_code().await, 1008);
}

#[tokio::test]
async fn a_kick_says_so_before_the_close() {
    let edge = Edge::start().await;
    let kick = |connection| {
        let disconnect = ServerFrame::Disconnect {
            reason: Reason::KICKED,
            text: "kicked",
        };
        edge.connections.push([(connection, disconnect)]);
        edge.connections.close(connection, CloseReason::Kicked);
    };
    let mut tcp = TcpClient::session(edge.tcp(), 2, "tcp").await;
    kick(edge.connection_of("tcp").await);
    let Some(Frame::Disconnect(disconnect)) = tcp.frame().await else {
        panic!("no DISCONNECT")
    };
    assert_eq!(
        (disconnect.reason_code, disconnect.reason.as_str()),
        (12, "kicked")
    );
    assert_eq!(tcp.frame().await, None);
    let mut rpc = WebSocketClient::rpc_session(edge.websocket(), "rpc").await;
    kick(edge.connection_of("rpc").await);
    let notified =
        json!({"jsonrpc":"2.0","method":"disconnect","params":{"reasonCode":12,"reason":"kicked"}});
    assert_eq!(rpc.json().await, notified);
    assert_eq!(rpc.close_code().await, 4001);
    edge.closed(CloseReason::Kicked, 2).await;
    assert_eq!(
        edge.shard.seen(edge.connection_of("tcp").await).last(),
        Some(&Seen::Closed)
    );
    assert_eq!(edge.connections.count(), 0);
}

#[tokio::test]
async fn wkproto_over_websocket_is_one_frame_a_message_outbound_and_a_stream_inbound() {
    let edge = Edge::start().await;
    let mut client = WebSocketClient::open(edge.websocket()).await;
    let connect = encoded(&Frame::Connect(connect(6, "u1", "t")), Version::LATEST);
    // Text is accepted for WKProto too, a frame may span messages, and white space decides nothing.
    client.text(" \r\n").await;
    client.message(2, &connect[..10]).await;
    client.message(2, &connect[10..]).await;
    assert!(matches!(
        client.frame().await.expect("CONNACK").wk(Version::LATEST),
        Frame::Connack(_)
    ));
    client.message(2, &[0x70, 0x70]).await;
    for _ in 0..2 {
        assert_eq!(
            client.frame().await.expect("PONG").wk(Version::LATEST),
            Frame::Pong
        );
    }
    client.message(9, b"ping").await;
    let pong = client.frame().await.expect("a WebSocket pong");
    assert_eq!((pong.opcode, &pong.payload[..]), (10, &b"ping"[..]));
    client.message(8, &1000u16.to_be_bytes()).await;
    assert_eq!(client.close_code().await, 1000);
    edge.closed(CloseReason::PeerClosed, 1).await;
}

#[tokio::test]
async fn the_largest_frames_pass_and_larger_ones_do_not() {
    let edge = Edge::start().await;
    let plain = |length: usize| {
        let send = Send {
            setting: Setting::NO_ENCRYPT,
            payload: Bytes::from(vec![7; length]),
            ..message(1, "echo")
        };
        encoded(&Frame::Send(send), Version::LATEST)
    };
    let mut client = TcpClient::session(edge.tcp(), 6, "u1").await;
    client.raw(&plain(700_000)).await;
    let Some(Frame::Recv(recv)) = client.frame().await else {
        panic!("no RECV")
    };
    assert_eq!(client.open_recv(&recv).len(), 700_000);
    assert_eq!(send_ack(&mut client).await.reason_code, 1);
    let mut rpc = WebSocketClient::rpc_session(edge.websocket(), "u2").await;
    rpc.text(&"x".repeat(1024 * 1024 + 6)).await;
    assert_eq!(rpc.close_code().await, 1009);
    // Before CONNACK the limit is 4 KiB, for both.
    let mut stranger = WebSocketClient::open(edge.websocket()).await;
    stranger.raw(&[0x82, 0xfe, 0x13, 0x88, 0, 0, 0, 0]).await;
    assert_eq!(stranger.close_code().await, 1009);
    let mut stranger = TcpClient::open(edge.tcp()).await;
    stranger.raw(&[0x10, 0x81, 0x20]).await;
    assert_eq!(stranger.frame().await, None);
}

#[tokio::test]
async fn upgrades_are_exact_and_bounded() {
    let edge = Edge::start().await;
    for (path, more, status) in [
        ("/other", String::new(), "HTTP/1.1 404 "),
        ("/", format!("X: {}\r\n", "x".repeat(9_000)), "HTTP/1.1 431 "),
        ("/", "\u{1}\r\n".to_owned(), "HTTP/1.1 400 "),
    ] {
        let mut client = WebSocketClient::requesting(edge.websocket(), path, &more).await;
        let head = client.head().await;
        assert!(head.starts_with(status), "{head}");
    }
    let mut client = TcpClient::open(edge.websocket()).await;
    client.raw(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    edge.closed(CloseReason::ProtocolError, 4).await;
    // A query is no part of the path, and no extension is agreed to.
    let more = "Sec-WebSocket-Extensions: permessage-deflate\r\nSec-WebSocket-Protocol: x\r\n";
    let mut client = WebSocketClient::requesting(edge.websocket(), "/?a=b", more).await;
    let head = client.head().await.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101 ") && !head.contains("extensions") && !head.contains("protocol:"));
}

#[tokio::test]
async fn json_rpc_sessions_speak_plain_json() {
    let edge = Edge::start().await;
    let mut client = WebSocketClient::rpc_session(edge.websocket(), "u1").await;
    let send = json!({"jsonrpc":"2.0","id":"s1","method":"send","params":{"channelId":"echo","channelType":2,
        "clientMsgNo":"m1","payload":{"type":1,"content":"hi"},"header":{"redDot":true}}});
    client.text(&send.to_string()).await;
    let recv = client.json().await;
    assert_eq!(recv["method"], "recv");
    assert_eq!(recv["params"]["payload"], json!({"type":1,"content":"hi"}));
    assert_eq!(recv["params"]["header"], json!({"redDot":true}));
    assert_eq!(
        (&recv["params"]["fromUid"], &recv["params"]["timestamp"]),
        (&json!("ü1"), &json!(1_700_000_000))
    );
    let sent = client.json().await;
    assert_eq!(sent["id"], "s1");
    assert_eq!(
        (&sent["result"]["messageSeq"], &sent["result"]["reasonCode"]),
        (&json!(7), &json!(1))
    );
    assert_eq!(sent["result"]["messageId"], recv["params"]["messageId"]);
    client.text(r#"{"id":"p","method":"ping"}"#).await;
    assert_eq!(
        client.json().await,
        json!({"jsonrpc":"2.0","id":"p","result":null})
    );
    client
        .text(r#"{"id":"u","method":"send","params":{"channelId":"g","channelType":2,"clientMsgNo":"unknown","payload":1}}"#)
        .await;
    let unknown = client.json().await;
    assert_eq!(
        (&unknown["id"], &unknown["error"]["message"]),
        (&json!("u"), &json!("outcome_unknown"))
    );
    assert_eq!(unknown["error"]["data"]["clientMsgNo"], "unknown");
    for (method, action) in [("subscribe", 0), ("unsubscribe", 1)] {
        client
            .text(&format!(r#"{{"id":"{method}","method":"{method}","params":{{"subNo":"n","channelId":"c","channelType":7}}}}"#))
            .await;
        let answer = client.json().await;
        assert_eq!(answer["id"], method);
        assert_eq!(
            answer["result"],
            json!({"subNo":"n","channelId":"c","channelType":7,"action":action,"reasonCode":1})
        );
    }
    client.text(r#"{"id":"d","method":"disconnect"}"#).await;
    assert_eq!(client.json().await["id"], "d");
    assert_eq!(client.close_code().await, 1000);
}

#[tokio::test]
async fn json_rpc_must_connect_first_and_once() {
    let edge = Edge::start().await;
    let mut client = WebSocketClient::open(edge.websocket()).await;
    client.text(r#"{"id":"p","method":"ping"}"#).await;
    let refused = client.json().await;
    assert_eq!(
        (&refused["id"], &refused["error"]["code"]),
        (&json!("p"), &json!(-32001))
    );
    assert_eq!(client.close_code().await, 1008);
    let mut client = WebSocketClient::rpc_session(edge.websocket(), "u1").await;
    client
        .text(r#"{"id":"again","method":"connect","params":{"uid":"u2"}}"#)
        .await;
    assert_eq!(client.json().await["error"]["code"], -32001);
    assert_eq!(client.close_code().await, 1008);
    edge.closed(CloseReason::PolicyViolation, 2).await;
}

#[tokio::test]
async fn many_frames_in_one_write_are_answered_in_order() {
    let edge = Edge::start().await;
    let mut client = TcpClient::session(edge.tcp(), 6, "u1").await;
    let mut bytes = BytesMut::new();
    for client_seq in 1..=500 {
        let mut send = message(client_seq, "g");
        client.cipher().seal_send(&mut send);
        bytes.extend_from_slice(&encoded(&Frame::Send(send), Version::LATEST));
    }
    client.raw(&bytes).await;
    for client_seq in 1..=500 {
        assert_eq!(send_ack(&mut client).await.client_seq, client_seq);
    }
}

#[tokio::test]
async fn more_than_the_output_holds_is_written_without_further_cause() {
    let edge = Edge::start().await;
    let mut client = TcpClient::session(edge.tcp(), 6, "u1").await;
    let mut send = Send {
        payload: Bytes::from(vec![1; 30_000]),
        ..message(1, "echo")
    };
    client.cipher().seal_send(&mut send);
    let mut bytes = BytesMut::new();
    for _ in 0..20 {
        bytes.extend_from_slice(&encoded(&Frame::Send(send.clone()), Version::LATEST));
    }
    client.raw(&bytes).await;
    for _ in 0..20 {
        assert!(matches!(client.frame().await, Some(Frame::Recv(_))));
        assert_eq!(send_ack(&mut client).await.reason_code, 1);
    }
}

#[tokio::test]
async fn more_requests_than_may_wait_are_all_answered() {
    let edge = Edge::start().await;
    let mut client = WebSocketClient::rpc_session(edge.websocket(), "u1").await;
    for number in 0..10_000 {
        client
            .text(&format!(r#"{{"id":"{number}","method":"ping"}}"#))
            .await;
    }
    for number in 0..10_000 {
        assert_eq!(client.json().await["id"], number.to_string());
    }
    // Errors are answered by the gateway itself and fill the output in the same way.
    for number in 0..3_000 {
        client
            .text(&format!(r#"{{"id":"{number}","method":"nope"}}"#))
            .await;
    }
    for number in 0..3_000 {
        assert_eq!(client.json().await["id"], number.to_string());
    }
}

#[tokio::test]
async fn every_send_is_timed_until_its_answer() {
    let edge = Edge::start().await;
    let mut client = TcpClient::session(edge.tcp(), 6, "timed").await;
    for client_seq in 1..=3 {
        client.send_sealed(message(client_seq, "c")).await;
        assert_eq!(send_ack(&mut client).await.client_seq, client_seq);
        assert_eq!(edge.metrics.sendack.count(), u64::from(client_seq));
    }
    client.is_well().await;
    // An outcome that nobody knows is an answer too: it is the slowest of all.
    let mut rpc = WebSocketClient::rpc_session(edge.websocket(), "timed too").await;
    for (id, client_msg_no) in [("s1", "m"), ("s2", "unknown")] {
        let params =
            json!({ "channelId": "c", "channelType": 2, "clientMsgNo": client_msg_no, "payload": {} });
        let send = json!({ "jsonrpc": "2.0", "id": id, "method": "send", "params": params });
        rpc.text(&send.to_string()).await;
        assert_eq!(rpc.json().await["id"], id);
    }
    assert_eq!(edge.metrics.sendack.count(), 5);
}
