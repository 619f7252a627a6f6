//! The valid packets that are changed, and what our own decoder says of a changed one.

use anyhow::Result;
use bytes::{Bytes, BytesMut};
use penstock_wire::client::ClientKey;
use penstock_wire::encryption::SessionCipher;
use penstock_wire::jsonrpc::{self, Method};
use penstock_wire::wkproto::{
    BODY_BYTES_BEFORE_AUTH_MAX, BODY_BYTES_MAX, Disconnect, Frame, RecvAck, Send, Setting, Sub, Version,
    decode, encode,
};
use serde_json::json;

/// What a marker is called: a call whose answer shows that all before it was read.
pub(super) const MARKER: &str = "marker";
/// The device of all who attack.
pub(super) const DEVICE: &str = "bad";

/// A CONNECT.
pub(super) fn connect(key: &ClientKey, version: u8, uid: &str) -> Result<Vec<u8>> {
    encoded(
        Frame::Connect(key.connect(version, uid, "any", DEVICE)),
        Version::LATEST,
    )
}

/// The same in JSON-RPC.
pub(super) fn rpc_connect(uid: &str) -> Vec<u8> {
    let params = json!({ "uid": uid, "token": "any", "deviceId": DEVICE, "deviceFlag": 1 });
    call("1", "connect", &params)
}

fn call(id: &str, method: &str, params: &serde_json::Value) -> Vec<u8> {
    json!({ "id": id, "method": method, "params": params })
        .to_string()
        .into_bytes()
}

fn encoded(frame: Frame, version: Version) -> Result<Vec<u8>> {
    let mut bytes = BytesMut::new();
    encode(&frame, version, &mut bytes)?;
    Ok(bytes.to_vec())
}

/// A call whose answer has the name of the marker.
pub(super) fn marker() -> Result<Vec<u8>> {
    let sub = Sub {
        sub_no: MARKER.to_owned(),
        channel_id: "nowhere".to_owned(),
        channel_type: 2,
        ..Sub::default()
    };
    encoded(Frame::Sub(sub), Version::LATEST)
}

/// The same in JSON-RPC: within a session it is answered, before one it is refused, and a stranger may stay.
pub(super) fn rpc_marker(is_in_session: bool) -> Vec<u8> {
    let method = if is_in_session { "ping" } else { "nonsense" };
    call(MARKER, method, &json!({}))
}

/// What a session of this version may send.
pub(super) fn in_session(cipher: &SessionCipher, version: Version) -> Result<Vec<Vec<u8>>> {
    let send = |channel_id: &str, channel_type: u8, setting: Setting| Send {
        setting,
        client_seq: 1,
        channel_id: channel_id.to_owned(),
        channel_type,
        topic: "a topic".to_owned(),
        payload: Bytes::from_static(b"{\"type\":1,\"content\":\"hello\"}"),
        ..Send::default()
    };
    let mut sealed = send("bob", 1, Setting::NONE);
    let mut with_all = send(
        "nowhere",
        2,
        Setting::TOPIC.with(Setting::STREAM).with(Setting::RECEIPT),
    );
    cipher.seal_send(&mut sealed);
    cipher.seal_send(&mut with_all);
    let plain = send("nowhere", 2, Setting::NO_ENCRYPT);
    let ack = RecvAck {
        message_id: 1,
        message_seq: 1,
        ..RecvAck::default()
    };
    let sub = Sub {
        sub_no: "s".to_owned(),
        channel_id: "nowhere".to_owned(),
        channel_type: 2,
        param: "p".to_owned(),
        ..Sub::default()
    };
    let leave = Disconnect {
        reason_code: 1,
        reason: "bye".to_owned(),
        ..Disconnect::default()
    };
    let frames = [
        Frame::Send(sealed),
        Frame::Send(with_all),
        Frame::Send(plain),
        Frame::RecvAck(ack),
        Frame::Sub(sub),
        Frame::Disconnect(leave),
        Frame::Ping,
    ];
    frames.into_iter().map(|frame| encoded(frame, version)).collect()
}

/// The same in JSON-RPC.
pub(super) fn rpc_in_session(uid: &str) -> Vec<Vec<u8>> {
    let send = |channel: &str, kind: u8| {
        json!({
            "channelId": channel, "channelType": kind, "clientMsgNo": "", "payload": { "type": 1 }, "topic": "a topic",
            "header": { "redDot": true }, "setting": { "receipt": true }, "expire": 60,
        })
    };
    let subscription = json!({ "subNo": "s", "channelId": "nowhere", "channelType": 2, "param": "p" });
    vec![
        call("1", "send", &send("bob", 1)),
        call("2", "send", &send("nowhere", 2)),
        call("3", "recvack", &json!({ "messageId": "1", "messageSeq": 1 })),
        call("4", "subscribe", &subscription),
        call("5", "unsubscribe", &subscription),
        call("6", "ping", &json!({})),
        call("7", "disconnect", &json!({ "reasonCode": 1, "reason": "bye" })),
        rpc_connect(uid),
    ]
}

/// Whether a WKProto session goes on after these bytes.
pub(super) fn stays(bytes: &[u8], version: Version) -> bool {
    let mut input = BytesMut::from(bytes);
    while !input.is_empty() {
        match decode(&mut input, version, BODY_BYTES_MAX) {
            Ok(Some(Frame::Send(_) | Frame::RecvAck(_) | Frame::Ping | Frame::Pong | Frame::Sub(_))) => {}
            _ => return false,
        }
    }
    true
}

/// Whether a JSON-RPC session goes on after this message.
pub(super) fn rpc_stays(message: &[u8]) -> bool {
    match jsonrpc::parse(message, BODY_BYTES_MAX) {
        Ok(call) => !matches!(call.method, Method::Connect(_) | Method::Disconnect(_)),
        Err(error) => !error.is_fatal(),
    }
}

/// Whether a stranger may go on after this message: it is JSON, and refused.
pub(super) fn rpc_stranger_stays(message: &[u8]) -> bool {
    let begins = message.trim_ascii_start().first();
    let is_rpc = matches!(begins, Some(b'{' | b'['));
    is_rpc && jsonrpc::parse(message, BODY_BYTES_BEFORE_AUTH_MAX).is_err_and(|error| !error.is_fatal())
}
