//! Frames of a session: mostly what a client may send, made so that the node must answer.

use super::{Answers, Session};
use crate::input::Input;
use crate::node::{GROUP, UIDS};
use bytes::{Bytes, BytesMut};
use penstock_wire::client::{ClientKey, acknowledgement};
use penstock_wire::wkproto::{
    self, BODY_BYTES_MAX, Connack, Disconnect, Flags, Frame, Recv, RecvAck, Send, Setting, Sub, Version,
    decode_all, encode, encoded_length,
};

/// What one step of a session makes.
pub(super) enum Made<'a> {
    /// A frame that keeps the session.
    Good(Frame),
    /// A frame after which the session may end.
    Last(Frame),
    /// Any bytes.
    Raw(&'a [u8]),
    /// Nothing: wait for the answers so far.
    Wait,
}

/// The next step. What it wants to be answered is added to what is wanted.
pub(super) fn frame<'a>(
    input: &mut Input<'a>,
    session: &Session,
    wanted: &mut Answers,
    last: Option<&Recv>,
) -> Made<'a> {
    match input.below(16) {
        0..=4 => {
            let mut send = send(input);
            match input.below(8) {
                0 => send.msg_key = input.text(),
                1 => send.setting = send.setting.with(Setting::NO_ENCRYPT),
                _ => session.cipher.seal_send(&mut send),
            }
            if encoded_length(&Frame::Send(send.clone()), session.version).is_ok() {
                *wanted.sends.entry(send.client_seq).or_default() += 1;
            }
            Made::Good(Frame::Send(send))
        }
        5 | 6 => {
            wanted.pongs += 1;
            Made::Good(Frame::Ping)
        }
        7 | 8 => {
            let ack = match last {
                Some(recv) if input.rarely(2) => acknowledgement(recv),
                _ => RecvAck {
                    flags: Flags::from_bits(input.u8()),
                    message_id: input.number().cast_signed(),
                    message_seq: input.number() & u64::from(u32::MAX),
                },
            };
            Made::Good(Frame::RecvAck(ack))
        }
        9 | 10 => {
            let sub = Sub {
                flags: Flags::from_bits(input.u8()),
                setting: Setting::from_bits(input.u8()),
                sub_no: input.text(),
                channel_id: channel(input),
                channel_type: kind(input),
                action: input.u8() % 3,
                param: input.text(),
            };
            wanted.subscriptions.push(sub.sub_no.clone());
            Made::Good(Frame::Sub(sub))
        }
        11 | 12 => Made::Wait,
        13 => Made::Last(Frame::Disconnect(Disconnect {
            flags: Flags::from_bits(input.u8()),
            reason_code: input.u8(),
            reason: input.text(),
        })),
        14 => Made::Raw(input.chunk()),
        _ => {
            // A frame of any type and any body.
            let mut whole = vec![input.u8()];
            let body = input.chunk();
            whole.extend([u8::try_from(body.len() & 0x7f).unwrap_or_default() | 0x80, 0x00]);
            whole.extend_from_slice(body);
            match decode_all(&whole, session.version, BODY_BYTES_MAX) {
                Ok(frame) => Made::Last(frame),
                Err(_) => Made::Raw(body),
            }
        }
    }
}

fn send(input: &mut Input<'_>) -> Send {
    let times = [1, 1, 1, 1, 1, 40, 400, 4_000][input.below(8)];
    Send {
        flags: Flags::from_bits(input.u8()),
        setting: Setting::from_bits(input.u8()).without(Setting::NO_ENCRYPT),
        client_seq: (input.number() & u64::from(u32::MAX)) as u32,
        client_msg_no: input.text(),
        stream_no: String::new(),
        channel_id: channel(input),
        channel_type: kind(input),
        expire_s: (input.number() & u64::from(u32::MAX)) as u32,
        msg_key: String::new(),
        topic: input.text(),
        payload: Bytes::from(input.bytes(16).repeat(times)),
    }
}

fn channel(input: &mut Input<'_>) -> String {
    match input.below(8) {
        0..=3 => GROUP.to_owned(),
        4 => (*input.one_of(UIDS)).to_owned(),
        5 => "nowhere".to_owned(),
        6 => format!("{}@{}", input.one_of(UIDS), input.one_of(UIDS)),
        _ => input.text(),
    }
}

fn kind(input: &mut Input<'_>) -> u8 {
    match input.below(4) {
        0 | 1 => 2,
        2 => 1,
        _ => input.u8(),
    }
}

/// One frame of each type in some versions, the shared byte cases, and whole sessions.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (name, bytes) in crate::cases() {
        if name.starts_with("wk") {
            seeds.push([&[0, 6, 0][..], &[0; 15], &bytes].concat());
        }
    }
    for number in 1..=6 {
        let version = Version::negotiate(number);
        let mut stream = BytesMut::new();
        for frame in examples() {
            encode(&frame, version, &mut stream).unwrap_or_default();
        }
        seeds.push([&[0, number, 0][..], &[2, 0, 40, 0, 9], &[0; 10], &stream].concat());
    }
    // Sessions: a send to the group, a wait, an acknowledgement, a ping, a subscription.
    for announced in [2, 4, 6] {
        for carrier in [0, 1] {
            let mut seed = vec![1, carrier, announced, 1, 0, 1, 0, 0, 12];
            seed.extend([0, 2, 0, 0, 0, 1, 2, b'm', b'1', 0, 0, 0, 0]);
            seed.extend(b"{\"type\":1,\"a\":2}");
            seed.extend([11, 0, 7, 1, 5, 9, 0, 0, 1, b's', 0, 0, 0, 0, 11, 0]);
            seeds.push(seed);
        }
    }
    seeds
}

fn examples() -> Vec<Frame> {
    let send = Send {
        client_seq: 1,
        client_msg_no: "m1".into(),
        channel_id: GROUP.into(),
        channel_type: 2,
        topic: "t".into(),
        setting: Setting::from_bits(0x0a),
        payload: Bytes::from_static(b"{\"type\":1}"),
        ..Send::default()
    };
    let recv = Recv {
        from_uid: "ann".into(),
        channel_id: GROUP.into(),
        message_id: 1 << 40,
        message_seq: 7,
        timestamp_s: 1_700_000_000,
        payload: Bytes::from_static(b"cipher"),
        setting: Setting::from_bits(0x0a),
        ..Recv::default()
    };
    vec![
        Frame::Connect(ClientKey::new([7; 32]).connect(6, "ann", "token", "d1")),
        Frame::Connack(Connack {
            server_version: Some(6),
            reason_code: 1,
            salt: "abcdefghijklmnop".into(),
            node_id: 1,
            ..Connack::default()
        }),
        Frame::Send(send),
        Frame::SendAck(wkproto::SendAck {
            message_id: 1 << 40,
            message_seq: 7,
            client_msg_no: "m1".into(),
            ..wkproto::SendAck::default()
        }),
        Frame::Recv(recv.clone()),
        Frame::RecvAck(acknowledgement(&recv)),
        Frame::Ping,
        Frame::Pong,
        Frame::Disconnect(Disconnect {
            reason_code: 12,
            reason: "kicked".into(),
            ..Disconnect::default()
        }),
        Frame::Sub(Sub {
            channel_id: GROUP.into(),
            channel_type: 2,
            ..Sub::default()
        }),
        Frame::SubAck(wkproto::SubAck {
            channel_id: GROUP.into(),
            reason_code: 1,
            ..wkproto::SubAck::default()
        }),
        Frame::Event(wkproto::Event {
            id: "e".into(),
            event_type: "t".into(),
            data: Bytes::from_static(b"data"),
            ..wkproto::Event::default()
        }),
    ]
}
