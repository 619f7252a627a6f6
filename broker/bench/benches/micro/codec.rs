//! Formats: WKProto frames, the session encryption, and the value that the records of one append are stored as.

use bytes::{Bytes, BytesMut};
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use penstock_core::codec::record_block;
use penstock_core::message::{DedupeKey, Record};
use penstock_core::types::{LeaderEpoch, MessageId, Seq};
use penstock_wire::client::ClientKey;
use penstock_wire::encryption::{Entropy, SessionCipher, accept};
use penstock_wire::wkproto::{BODY_BYTES_MAX, Connack, Frame, Recv, Send, Version, decode, encode};

/// A payload as apps send them, in bytes.
const PAYLOAD: &[u8] = &[b'p'; 100];
/// What a message of that payload is stored as, in bytes, more or less.
const BODY_BYTES: usize = 180;

/// Both ends of one session's encryption.
fn ciphers() -> (SessionCipher, SessionCipher) {
    let client = ClientKey::new([3; 32]);
    let entropy = Entropy {
        secret: [4; 32],
        salt: [5; 16],
    };
    let server = accept(&client.connect(6, "alice", "t", "d").client_key, &entropy).expect("a good key");
    let connack = Connack {
        reason_code: 1,
        server_key: server.server_key,
        salt: server.salt,
        ..Connack::default()
    };
    (server.cipher, client.admitted(&connack).expect("admitted"))
}

/// What a client sends, not encrypted yet.
fn send() -> Send {
    Send {
        client_seq: 7,
        client_msg_no: "3f2b8c1e9d4a4f6b8c1e9d4a4f6b8c1e".to_owned(),
        channel_id: "room-of-many".to_owned(),
        channel_type: 2,
        payload: Bytes::from_static(PAYLOAD),
        ..Send::default()
    }
}

/// What a client receives, not encrypted yet.
fn recv() -> Recv {
    Recv {
        from_uid: "alice".to_owned(),
        channel_id: "room-of-many".to_owned(),
        channel_type: 2,
        client_msg_no: "3f2b8c1e9d4a4f6b8c1e9d4a4f6b8c1e".to_owned(),
        message_id: 1_234_567_890_123_456_789,
        message_seq: 100_000,
        timestamp_s: 1_900_000_000,
        payload: Bytes::from_static(PAYLOAD),
        ..Recv::default()
    }
}

/// The two frames of a message as they travel, encrypted, by name.
fn frame(name: &str) -> Frame {
    let (server, client) = ciphers();
    if name == "SEND" {
        let mut frame = send();
        client.seal_send(&mut frame);
        return Frame::Send(frame);
    }
    let mut frame = recv();
    server.seal_recv(&mut frame);
    Frame::Recv(frame)
}

#[divan::bench(args = ["SEND", "RECV"])]
fn wkproto_encode(bencher: Bencher<'_, '_>, name: &str) {
    let frame = frame(name);
    let mut out = BytesMut::with_capacity(1024);
    bencher.counter(ItemsCount::new(1_u32)).bench_local(|| {
        out.clear();
        encode(black_box(&frame), Version::LATEST, &mut out)
    });
    let back = decode(&mut out, Version::LATEST, BODY_BYTES_MAX);
    assert_eq!(back, Ok(Some(frame)), "what was encoded last");
}

#[divan::bench(args = ["SEND", "RECV"])]
fn wkproto_decode(bencher: Bencher<'_, '_>, name: &str) {
    let frame = frame(name);
    let mut bytes = BytesMut::new();
    encode(&frame, Version::LATEST, &mut bytes).expect("it fits");
    bencher
        .counter(ItemsCount::new(1_u32))
        .with_inputs(|| bytes.clone())
        .bench_local_values(|mut bytes| {
            let decoded = decode(&mut bytes, Version::LATEST, BODY_BYTES_MAX);
            assert!(
                matches!(decoded, Ok(Some(_))) && bytes.is_empty(),
                "one whole frame"
            );
            decoded
        });
    assert_eq!(
        decode(&mut bytes, Version::LATEST, BODY_BYTES_MAX),
        Ok(Some(frame))
    );
}

#[divan::bench]
fn cipher_seal_recv(bencher: Bencher<'_, '_>) {
    let (server, client) = ciphers();
    bencher
        .counter(ItemsCount::new(1_u32))
        .with_inputs(recv)
        .bench_local_values(|mut frame| {
            server.seal_recv(&mut frame);
            frame
        });
    let mut frame = recv();
    server.seal_recv(&mut frame);
    assert_eq!(client.open_recv(&frame).expect("it opens"), PAYLOAD);
}

#[divan::bench]
fn cipher_open_send(bencher: Bencher<'_, '_>) {
    let (server, client) = ciphers();
    let mut frame = send();
    client.seal_send(&mut frame);
    bencher.counter(ItemsCount::new(1_u32)).bench_local(|| {
        let opened = server.open_send(black_box(&frame));
        assert!(
            opened
                .as_ref()
                .is_ok_and(|payload| payload.len() == PAYLOAD.len())
        );
        opened
    });
    assert_eq!(server.open_send(&frame).expect("it opens"), PAYLOAD);
}

/// Contiguous sealed records with idempotency keys.
fn records(count: u64) -> Vec<Record> {
    let record = |seq: u64| Record {
        seq: Seq(seq),
        leader_epoch: LeaderEpoch(3),
        stamp_ms: 1_900_000_000_000,
        id: MessageId(1_000_000 + seq as i64),
        key: Some(DedupeKey {
            hash: seq,
            digest: u128::from(seq),
        }),
        body: Bytes::from(vec![b'b'; BODY_BYTES]),
        crc: 0,
    };
    (1..=count).map(|seq| record(seq).sealed()).collect()
}

#[divan::bench(args = [1, 16, 128])]
fn record_block_encode(bencher: Bencher<'_, '_>, count: u64) {
    let records = records(count);
    bencher
        .counter(ItemsCount::new(count))
        .bench_local(|| record_block::encode(black_box(&records)));
    let value = record_block::encode(&records);
    assert_eq!(record_block::decode(Seq(1), &value), Ok(records));
}

/// Every record's checksum is tested, as at each read of the store.
#[divan::bench(args = [1, 16, 128])]
fn record_block_decode(bencher: Bencher<'_, '_>, count: u64) {
    let written = records(count);
    let value = record_block::encode(&written);
    bencher.counter(ItemsCount::new(count)).bench_local(|| {
        let read = record_block::decode(Seq(1), black_box(&value));
        assert!(read.as_ref().is_ok_and(|read| read.len() as u64 == count));
        read
    });
    assert_eq!(record_block::decode(Seq(1), &value), Ok(written));
}
