//! The frames against the vectors of the client contract, section 15, and against arbitrary and damaged input.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use super::*;
use crate::reason::Reason;

const V2: Version = Version::negotiate(2);
const V6: Version = Version::LATEST;
const CLIENT_KEY: &str = "B6N8vBQgk8i3VdwbEOhstCY3StFqqFPtC9/AsrhtHHw=";
const SERVER_KEY: &str = "VxR2nRFr92Q2rnS8eT0sMK0ZA8WaxSc4BcfiaYtBDDY=";
const SALT: &str = "abcdefghijklmnop";
const WIRE_PAYLOAD: &[u8] = b"qJaDLH/tFEVDtQXJMuhlXDhUJx+xcMPNRQX6/Vowp0Q=";
const MESSAGE_ID: i64 = 1_234_567_890_123_456_789;
const RED_DOT: Flags = Flags {
    dup: false,
    sync_once: false,
    red_dot: true,
    no_persist: false,
};

fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn encoded(frame: &Frame, version: Version) -> BytesMut {
    let mut out = BytesMut::new();
    encode(frame, version, &mut out).unwrap();
    assert_eq!(encoded_length(frame, version), Ok(out.len()));
    out
}

/// Contract section 15: the frame has exactly these bytes, and these bytes are exactly this frame.
fn is_vector(frame: &Frame, version: Version, hex: &str) {
    assert_eq!(encoded(frame, version), unhex(hex));
    assert_eq!(
        decode_all(&unhex(hex), version, BODY_BYTES_MAX).as_ref(),
        Ok(frame)
    );
}

fn recv() -> Recv {
    Recv {
        flags: RED_DOT,
        msg_key: "3465dfcdd0463973c41411f043c56cfb".into(),
        from_uid: "u1".into(),
        channel_id: "u1".into(),
        channel_type: 1,
        client_msg_no: "m1".into(),
        message_id: MESSAGE_ID,
        message_seq: 7,
        timestamp_s: 1_700_000_000,
        payload: Bytes::from_static(WIRE_PAYLOAD),
        ..Recv::default()
    }
}

#[test]
fn section_15_connect() {
    let connect = Connect {
        version: 2,
        device_flag: 1,
        device_id: "d1W".into(),
        uid: "u1".into(),
        token: "t".into(),
        client_timestamp_ms: 1_700_000_000_000,
        client_key: CLIENT_KEY.into(),
        ..Connect::default()
    };
    let bytes = "104402010003643157000275310001740000018bcfe56800002c42364e38764251676b38693356647762454f6873\
                 74435933537446717146507443392f41737268744848773d";
    is_vector(&Frame::Connect(connect.clone()), V2, bytes);
    // CONNECT has one layout: before the session has a version it is read with the latest.
    is_vector(&Frame::Connect(connect), V6, bytes);
}

#[test]
fn section_15_connack() {
    let mut connack = Connack {
        server_version: Version::server_version_for(2),
        time_diff_ms: -25,
        reason_code: Reason::Success.code(),
        server_key: SERVER_KEY.into(),
        salt: SALT.into(),
        node_id: 0,
    };
    is_vector(
        &Frame::Connack(connack.clone()),
        V2,
        "2049ffffffffffffffe701002c567852326e52467239325132726e5338655430734d4b305a4138576178536334426366696159\
         74424444593d00106162636465666768696a6b6c6d6e6f70",
    );
    connack.server_version = Version::server_version_for(6);
    connack.node_id = 3;
    is_vector(
        &Frame::Connack(connack),
        V6,
        "215206ffffffffffffffe701002c567852326e52467239325132726e5338655430734d4b305a41385761785363344263666961\
         5974424444593d00106162636465666768696a6b6c6d6e6f700000000000000003",
    );
}

#[test]
fn server_version_goes_only_to_clients_above_three() {
    for announced in 0..=3 {
        assert_eq!(Version::server_version_for(announced), None);
    }
    assert_eq!(Version::server_version_for(4), Some(6));
    // Even when a caller sets it, an old peer does not get the byte.
    let connack = Connack {
        server_version: Some(6),
        ..Connack::default()
    };
    let bytes = encoded(&Frame::Connack(connack), Version::negotiate(3));
    assert_eq!(bytes[0], 0x20);
}

#[test]
fn failure_connack_before_negotiation_has_a_node_id() {
    let failure = Connack {
        reason_code: Reason::ClientKeyEmpty.code(),
        ..Connack::default()
    };
    let bytes = encoded(&Frame::Connack(failure.clone()), Version::UNNEGOTIATED);
    assert_eq!(
        bytes,
        unhex(
            "201500000000000000001500000000000000000000 0000"
                .replace(' ', "")
                .as_str()
        )
    );
    assert_eq!(
        decode_all(&bytes, V2, BODY_BYTES_MAX),
        Ok(Frame::Connack(failure))
    );
}

#[test]
fn section_15_send() {
    let mut send = Send {
        flags: RED_DOT,
        client_seq: 1,
        client_msg_no: "m1".into(),
        channel_id: "u2".into(),
        channel_type: 1,
        msg_key: "3929e35cf2eaca579f5e7c64a3793f07".into(),
        payload: Bytes::from_static(WIRE_PAYLOAD),
        ..Send::default()
    };
    is_vector(
        &Frame::Send(send.clone()),
        V2,
        "325c000000000100026d31000275320100203339323965333563663265616361353739663565376336346133373933663037714a\
         61444c482f74464556447451584a4d75686c584468554a782b78634d504e525158362f566f777030513d",
    );
    send.flags = Flags::default();
    send.setting = Setting::NO_ENCRYPT;
    send.msg_key.clear();
    send.payload = Bytes::from_static(b"hi");
    is_vector(
        &Frame::Send(send),
        V6,
        "3016100000000100026d3100027532010000000000006869",
    );
}

#[test]
fn section_15_send_ack() {
    let ack = Frame::SendAck(SendAck {
        message_id: MESSAGE_ID,
        client_seq: 1,
        message_seq: 7,
        reason_code: 1,
        client_msg_no: "m1".into(),
        ..SendAck::default()
    });
    is_vector(&ack, V2, "4015112210f47de9811500000001000000070100026d31");
    is_vector(&ack, V6, "4019112210f47de981150000000100000000000000070100026d31");
}

#[test]
fn section_15_recv() {
    let recv = Frame::Recv(recv());
    is_vector(
        &recv,
        V2,
        "526c000020333436356466636464303436333937336334313431316630343363353663666200027531000275310100026d311122\
         10f47de98115000000076553f100714a61444c482f74464556447451584a4d75686c584468554a782b78634d504e525158362f56\
         6f777030513d",
    );
    is_vector(
        &recv,
        V6,
        "527400002033343635646663646430343633393733633431343131663034336335366366620002753100027531010000000000\
         026d31112210f47de9811500000000000000076553f100714a61444c482f74464556447451584a4d75686c584468554a782b7863\
         4d504e525158362f566f777030513d",
    );
}

#[test]
fn section_15_recv_ack() {
    let mut ack = RecvAck {
        flags: RED_DOT,
        message_id: MESSAGE_ID,
        message_seq: 7,
    };
    is_vector(&Frame::RecvAck(ack.clone()), V2, "620c112210f47de9811500000007");
    ack.flags = Flags::default();
    is_vector(&Frame::RecvAck(ack), V6, "6010112210f47de981150000000000000007");
}

#[test]
fn section_15_small_frames() {
    is_vector(&Frame::Ping, V2, "70");
    is_vector(&Frame::Pong, V2, "80");
    let disconnect = Disconnect {
        reason_code: Reason::Kicked.code(),
        reason: "kicked".into(),
        ..Disconnect::default()
    };
    is_vector(&Frame::Disconnect(disconnect), V2, "90090c00066b69636b6564");
    let sub = Sub {
        channel_id: "c1".into(),
        channel_type: 7,
        ..Sub::default()
    };
    is_vector(&Frame::Sub(sub), V2, "a00b0000000002633107000000");
    let sub_ack = SubAck {
        channel_id: "c1".into(),
        channel_type: 7,
        reason_code: 1,
        ..SubAck::default()
    };
    is_vector(&Frame::SubAck(sub_ack), V2, "b009000000026331070001");
    let event = Event {
        id: "e1".into(),
        event_type: "t".into(),
        timestamp_ms: 1_700_000_000_000,
        data: Bytes::from_static(b"hi"),
        ..Event::default()
    };
    is_vector(&Frame::Event(event), V2, "c011000265310001740000018bcfe568006869");
}

/// Contract, section 1.2: the varint examples, seen through the head of an EVENT.
#[test]
fn section_1_varints() {
    for (length, groups) in [
        (127, "7f"),
        (128, "8001"),
        (16_383, "ff7f"),
        (16_384, "808001"),
        (1_048_576, "808040"),
    ] {
        let event = Event {
            data: Bytes::from(vec![7; length - 12]),
            ..Event::default()
        };
        let bytes = encoded(&Frame::Event(event.clone()), V6);
        assert_eq!(bytes[1..bytes.len() - length], unhex(groups)[..]);
        assert_eq!(decode_all(&bytes, V6, BODY_BYTES_MAX), Ok(Frame::Event(event)));
    }
}

#[test]
fn encode_refuses_what_a_peer_cannot_read() {
    let mut out = BytesMut::from(&b"kept"[..]);
    let mut refused = |frame: Frame, version| {
        let error = encode(&frame, version, &mut out).unwrap_err();
        assert_eq!(&out[..], b"kept");
        error
    };
    let wide = u64::from(u32::MAX) + 1;
    let ack = SendAck {
        message_seq: wide,
        ..SendAck::default()
    };
    assert_eq!(
        refused(Frame::SendAck(ack), Version::negotiate(5)),
        EncodeError::SequenceTooLarge(wide)
    );
    let long = Disconnect {
        reason: "x".repeat(32_768),
        ..Disconnect::default()
    };
    assert_eq!(
        refused(Frame::Disconnect(long), V6),
        EncodeError::StringTooLong(32_768)
    );
    let event = Event {
        data: Bytes::from(vec![0; BODY_BYTES_MAX]),
        ..Event::default()
    };
    assert_eq!(
        refused(Frame::Event(event), V6),
        EncodeError::BodyTooLong(BODY_BYTES_MAX + 12)
    );
}

#[test]
fn versions_are_negotiated() {
    for (announced, negotiated) in [(0, 6), (1, 1), (2, 2), (5, 5), (6, 6), (7, 6), (255, 6)] {
        assert_eq!(Version::negotiate(announced).number(), negotiated);
    }
}

/// The `wk-*` rows of the shared byte cases that the decoder alone decides.
#[test]
fn malformed_input_is_refused_at_once() {
    let refused = |hex: &str, limit| decode(&mut BytesMut::from(&unhex(hex)[..]), V6, limit).unwrap_err();
    assert_eq!(refused("00", BODY_BYTES_MAX), DecodeError::ReservedType(0));
    for kind in 13..=15u8 {
        assert_eq!(
            refused(&format!("{:02x}", kind << 4), BODY_BYTES_MAX),
            DecodeError::ReservedType(kind)
        );
    }
    assert_eq!(
        refused("30ffffffff7f", BODY_BYTES_MAX),
        DecodeError::LengthOverlong
    );
    assert_eq!(refused("30ffffffff", BODY_BYTES_MAX), DecodeError::LengthOverlong);
    let over = DecodeError::LengthOverLimit {
        length: BODY_BYTES_MAX + 1,
        limit: BODY_BYTES_MAX,
    };
    assert_eq!(refused("30818040", BODY_BYTES_MAX), over);
    let over = DecodeError::LengthOverLimit {
        length: 4097,
        limit: BODY_BYTES_BEFORE_AUTH_MAX,
    };
    assert_eq!(refused("108120", BODY_BYTES_BEFORE_AUTH_MAX), over);
    assert_eq!(refused("3000", BODY_BYTES_MAX), DecodeError::LengthZero);
    assert_eq!(refused("308000", BODY_BYTES_MAX), DecodeError::LengthZero);
    assert_eq!(
        refused("1006060001007531", BODY_BYTES_MAX),
        DecodeError::Truncated
    );
    assert_eq!(
        refused("10050600ffff61", BODY_BYTES_MAX),
        DecodeError::NegativeString
    );
    assert_eq!(refused("90040c0001ff", BODY_BYTES_MAX), DecodeError::NotUtf8);
    assert_eq!(
        refused("90040c000000", BODY_BYTES_MAX),
        DecodeError::TrailingBytes
    );
}

/// The `wk-connect-empty-key` row is a well-formed CONNECT.
#[test]
fn connect_with_an_empty_key_decodes() {
    let bytes = unhex("101802010003643157000275310001740000018bcfe568000000");
    let Ok(Frame::Connect(connect)) = decode_all(&bytes, V6, BODY_BYTES_BEFORE_AUTH_MAX) else {
        panic!("not a CONNECT");
    };
    assert_eq!((connect.uid.as_str(), connect.client_key.as_str()), ("u1", ""));
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-z0-9@_]{1,20}", ".{0,12}"]
}

fn payload() -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(any::<u8>(), 0..200).prop_map(Bytes::from)
}

fn flags() -> impl Strategy<Value = Flags> {
    (0u8..16).prop_map(Flags::from_bits)
}

/// A sequence that the version can carry.
fn sequence(version: u8) -> impl Strategy<Value = u64> {
    let largest = if version >= 6 {
        u64::MAX
    } else {
        u64::from(u32::MAX)
    };
    prop_oneof![0..=largest, Just(largest)]
}

fn connect() -> impl Strategy<Value = Frame> {
    (flags(), any::<(u8, u8, i64)>(), text(), text(), text(), text()).prop_map(
        |(flags, (version, device_flag, client_timestamp_ms), device_id, uid, token, client_key)| {
            Frame::Connect(Connect {
                flags,
                version,
                device_flag,
                device_id,
                uid,
                token,
                client_timestamp_ms,
                client_key,
            })
        },
    )
}

fn connack(version: u8) -> impl Strategy<Value = Frame> {
    (any::<(i64, u8, u64, bool)>(), text(), text()).prop_map(
        move |((time_diff_ms, reason_code, node_id, newer), server_key, salt)| {
            Frame::Connack(Connack {
                server_version: (newer && version > 3).then_some(6),
                time_diff_ms,
                reason_code,
                server_key,
                salt,
                node_id: if version >= 4 { node_id } else { 0 },
            })
        },
    )
}

fn send(version: u8) -> impl Strategy<Value = Frame> {
    (
        flags(),
        any::<(u8, u32, u8, u32)>(),
        (text(), text(), text(), text(), text()),
        payload(),
    )
        .prop_map(
            move |(flags, (bits, client_seq, channel_type, expire_s), texts, payload)| {
                let setting = Setting::from_bits(bits);
                let (client_msg_no, stream_no, channel_id, msg_key, topic) = texts;
                let streams = (2..5).contains(&version) && setting.contains(Setting::STREAM);
                Frame::Send(Send {
                    flags,
                    setting,
                    client_seq,
                    client_msg_no,
                    stream_no: if streams { stream_no } else { String::new() },
                    channel_id,
                    channel_type,
                    expire_s: if version >= 3 { expire_s } else { 0 },
                    msg_key,
                    topic: if setting.contains(Setting::TOPIC) {
                        topic
                    } else {
                        String::new()
                    },
                    payload,
                })
            },
        )
}

fn received(version: u8) -> impl Strategy<Value = Frame> {
    let texts = (text(), text(), text(), text(), text(), text());
    (
        flags(),
        any::<(u8, u8, u32, u8, u64, i64, i32)>(),
        sequence(version),
        texts,
        payload(),
    )
        .prop_map(move |(flags, numbers, message_seq, texts, payload)| {
            let (bits, channel_type, expire_s, flag, stream_id, message_id, timestamp_s) = numbers;
            let (msg_key, from_uid, channel_id, client_msg_no, stream_no, topic) = texts;
            let setting = Setting::from_bits(bits);
            let streams = (2..5).contains(&version) && setting.contains(Setting::STREAM);
            Frame::Recv(Recv {
                flags,
                setting,
                msg_key,
                from_uid,
                channel_id,
                channel_type,
                expire_s: if version >= 3 { expire_s } else { 0 },
                client_msg_no,
                stream: if streams {
                    LegacyStream {
                        flag,
                        stream_no,
                        stream_id,
                    }
                } else {
                    LegacyStream::default()
                },
                message_id,
                message_seq,
                timestamp_s,
                topic: if setting.contains(Setting::TOPIC) {
                    topic
                } else {
                    String::new()
                },
                payload,
            })
        })
}

fn acks(version: u8) -> impl Strategy<Value = Frame> {
    prop_oneof![
        (flags(), any::<(i64, u32, u8)>(), sequence(version), text()).prop_map(
            |(flags, (message_id, client_seq, reason_code), message_seq, client_msg_no)| {
                Frame::SendAck(SendAck {
                    flags,
                    message_id,
                    client_seq,
                    message_seq,
                    reason_code,
                    client_msg_no,
                })
            }
        ),
        (flags(), any::<i64>(), sequence(version)).prop_map(|(flags, message_id, message_seq)| {
            Frame::RecvAck(RecvAck {
                flags,
                message_id,
                message_seq,
            })
        }),
    ]
}

fn small() -> impl Strategy<Value = Frame> {
    prop_oneof![
        Just(Frame::Ping),
        Just(Frame::Pong),
        (flags(), any::<u8>(), text()).prop_map(|(flags, reason_code, reason)| Frame::Disconnect(
            Disconnect {
                flags,
                reason_code,
                reason
            }
        )),
        (flags(), any::<(u8, u8, u8)>(), text(), text(), text()).prop_map(
            |(flags, (setting, channel_type, action), sub_no, channel_id, param)| {
                let setting = Setting::from_bits(setting);
                Frame::Sub(Sub {
                    flags,
                    setting,
                    sub_no,
                    channel_id,
                    channel_type,
                    action,
                    param,
                })
            }
        ),
        (flags(), any::<(u8, u8, u8)>(), text(), text()).prop_map(
            |(flags, (channel_type, action, reason_code), sub_no, channel_id)| {
                Frame::SubAck(SubAck {
                    flags,
                    sub_no,
                    channel_id,
                    channel_type,
                    action,
                    reason_code,
                })
            }
        ),
        (flags(), text(), text(), any::<i64>(), payload()).prop_map(
            |(flags, id, event_type, timestamp_ms, data)| {
                Frame::Event(Event {
                    flags,
                    id,
                    event_type,
                    timestamp_ms,
                    data,
                })
            }
        ),
    ]
}

fn version_and_frame() -> impl Strategy<Value = (Version, Frame)> {
    (1u8..=6).prop_flat_map(|version| {
        (
            Just(Version::negotiate(version)),
            prop_oneof![
                connect(),
                connack(version),
                send(version),
                received(version),
                acks(version),
                small()
            ],
        )
    })
}

proptest! {
    #[test]
    fn every_frame_survives_the_round_trip((version, frame) in version_and_frame()) {
        let bytes = encoded(&frame, version);
        prop_assert_eq!(decode_all(&bytes, version, BODY_BYTES_MAX), Ok(frame));
    }

    /// Arbitrary segmentation gives the same frames, and an incomplete frame is never an error.
    #[test]
    fn any_segmentation_gives_the_same_frames(
        frames in proptest::collection::vec(received(6), 1..4),
        cut in 1usize..50,
    ) {
        let mut stream = BytesMut::new();
        for frame in &frames {
            encode(frame, V6, &mut stream).unwrap();
        }
        let (mut input, mut seen) = (BytesMut::new(), Vec::new());
        for piece in stream.chunks(cut) {
            input.extend_from_slice(piece);
            while let Some(frame) = decode(&mut input, V6, BODY_BYTES_MAX).unwrap() {
                seen.push(frame);
            }
        }
        prop_assert!(input.is_empty());
        prop_assert_eq!(seen, frames);
    }

    /// Damage never panics, and the decoder never asks for more than the limit: it answers or refuses, and what it
    /// leaves pending is below the limit.
    #[test]
    fn damaged_bytes_are_answered_within_the_limit(
        (version, frame) in version_and_frame(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = encoded(&frame, version);
        for (index, value) in damage {
            let index = index.index(bytes.len());
            bytes[index] = value;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        let held = bytes.len();
        let capacity = bytes.capacity();
        if let Ok(None) = decode(&mut bytes, version, BODY_BYTES_BEFORE_AUTH_MAX) {
            prop_assert_eq!(bytes.len(), held);
            prop_assert!(held < BODY_BYTES_BEFORE_AUTH_MAX + 5);
            prop_assert_eq!(bytes.capacity(), capacity);
        }
    }

    #[test]
    fn noise_never_panics(noise in proptest::collection::vec(any::<u8>(), 0..300), version in 1u8..=6) {
        let mut input = BytesMut::from(&noise[..]);
        while let Ok(Some(_)) = decode(&mut input, Version::negotiate(version), BODY_BYTES_MAX) {}
    }
}
