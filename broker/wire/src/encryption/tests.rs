//! The handshake and the message keys against the vectors of the client contract, section 15.

use proptest::prelude::*;

use super::*;
use crate::wkproto::Flags;

const CLIENT_KEY: &str = "B6N8vBQgk8i3VdwbEOhstCY3StFqqFPtC9/AsrhtHHw=";
const SERVER_KEY: &str = "VxR2nRFr92Q2rnS8eT0sMK0ZA8WaxSc4BcfiaYtBDDY=";
const BODY: &[u8] = br#"{"type":1,"content":"hi"}"#;
const WIRE_PAYLOAD: &str = "qJaDLH/tFEVDtQXJMuhlXDhUJx+xcMPNRQX6/Vowp0Q=";

fn counting(first: u8) -> [u8; 32] {
    let mut secret = [0; 32];
    for (byte, value) in secret.iter_mut().zip(first..) {
        *byte = value;
    }
    secret
}

fn entropy() -> Entropy {
    let mut salt = [0; SALT_BYTES];
    for (byte, value) in salt.iter_mut().zip(0..) {
        *byte = value;
    }
    Entropy {
        secret: counting(0x65),
        salt,
    }
}

fn ciphers() -> (SessionCipher, SessionCipher) {
    let handshake = accept(CLIENT_KEY, &entropy()).unwrap();
    let client = SessionCipher::agree(counting(1), &handshake.server_key, &handshake.salt).unwrap();
    (client, handshake.cipher)
}

fn send(payload: &[u8]) -> Send {
    Send {
        flags: Flags {
            red_dot: true,
            ..Flags::default()
        },
        client_seq: 1,
        client_msg_no: "m1".into(),
        channel_id: "u2".into(),
        channel_type: 1,
        payload: Bytes::copy_from_slice(payload),
        ..Send::default()
    }
}

fn recv(payload: &[u8]) -> Recv {
    Recv {
        from_uid: "u1".into(),
        channel_id: "u1".into(),
        channel_type: 1,
        client_msg_no: "m1".into(),
        message_id: 1_234_567_890_123_456_789,
        message_seq: 7,
        timestamp_s: 1_700_000_000,
        payload: Bytes::copy_from_slice(payload),
        ..Recv::default()
    }
}

#[test]
fn handshake_vector() {
    assert_eq!(public_key_text(counting(1)), CLIENT_KEY);
    let handshake = accept(CLIENT_KEY, &entropy()).unwrap();
    assert_eq!(handshake.server_key, SERVER_KEY);
    assert_eq!(handshake.salt, "abcdefghijklmnop");
    assert_eq!(&handshake.cipher.key, b"610a7adb97631e15");
    assert_eq!(&handshake.cipher.iv, b"abcdefghijklmnop");
    let client = SessionCipher::agree(counting(1), SERVER_KEY, "abcdefghijklmnop").unwrap();
    assert_eq!(client.key, handshake.cipher.key);
}

#[test]
fn send_vector() {
    let (client, server) = ciphers();
    let mut sealed = send(BODY);
    client.seal_send(&mut sealed);
    assert_eq!(sealed.payload, WIRE_PAYLOAD);
    assert_eq!(sealed.msg_key, "3929e35cf2eaca579f5e7c64a3793f07");
    assert_eq!(server.open_send(&sealed).unwrap(), BODY);
}

#[test]
fn recv_vector() {
    let (client, server) = ciphers();
    let mut sealed = recv(BODY);
    server.seal_recv(&mut sealed);
    assert_eq!(sealed.payload, WIRE_PAYLOAD);
    assert_eq!(sealed.msg_key, "3465dfcdd0463973c41411f043c56cfb");
    assert_eq!(client.open_recv(&sealed).unwrap(), BODY);
}

#[test]
fn bad_client_keys_have_their_reasons() {
    let refused = |key: &str| accept(key, &entropy()).unwrap_err().reason();
    assert_eq!(refused(""), Reason::ClientKeyEmpty);
    for key in [
        "x",
        "AAAA",
        "B6N8vBQgk8i3VdwbEOhstCY3StFqqFPtC9/AsrhtHHw",
        "not base64 at all!",
    ] {
        assert_eq!(refused(key), Reason::AuthFail, "{key}");
    }
    assert_eq!(refused(&"A".repeat(1000)), Reason::AuthFail);
    // Low-order points: zero, one, and the order-8 points make a shared secret that everybody knows.
    let mut one = [0; 32];
    one[0] = 1;
    let order_eight = [
        0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f, 0xc4, 0x6a, 0xda,
        0x09, 0x8d, 0xeb, 0x9c, 0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00,
    ];
    for point in [[0; 32], one, order_eight] {
        assert_eq!(refused(&BASE64.encode(point)), Reason::AuthFail);
    }
}

#[test]
fn a_changed_field_is_a_message_key_error() {
    let (client, server) = ciphers();
    let mut sealed = send(BODY);
    client.seal_send(&mut sealed);
    let changes: [fn(&mut Send); 7] = [
        |send| send.client_seq = 2,
        |send| send.client_msg_no = "m2".into(),
        |send| send.channel_id = "u3".into(),
        |send| send.channel_type = 2,
        |send| send.payload = Bytes::from_static(b"qJaDLH/tFEVDtQXJMuhlXDhUJx+xcMPNRQX6/Vowp0R="),
        |send| send.msg_key.clear(),
        |send| send.msg_key.push('0'),
    ];
    for change in changes {
        let mut changed = sealed.clone();
        change(&mut changed);
        let refused = server.open_send(&changed).unwrap_err();
        assert_eq!(refused, OpenError::MessageKey);
        assert_eq!(refused.reason(), Reason::MessageKeyError);
    }
}

#[test]
fn an_undecryptable_payload_is_a_payload_error() {
    let (client, server) = ciphers();
    // The key matches, but the payload is not base64, not whole blocks, empty, or badly padded.
    for payload in ["%%%%", "AAAA", "", "AAAAAAAAAAAAAAAAAAAAAA=="] {
        let mut forged = send(payload.as_bytes());
        forged.msg_key = client.send_message_key(&forged);
        let refused = server.open_send(&forged).unwrap_err();
        assert_eq!(refused, OpenError::Payload, "{payload}");
        assert_eq!(refused.reason(), Reason::PayloadDecodeError);
    }
}

#[test]
fn no_encrypt_is_taken_verbatim() {
    let (_, server) = ciphers();
    let plain = Send {
        setting: Setting::NO_ENCRYPT,
        ..send(b"hi")
    };
    assert_eq!(server.open_send(&plain).unwrap(), "hi");
    let mut delivered = Recv {
        setting: Setting::NO_ENCRYPT,
        ..recv(b"hi")
    };
    server.seal_recv(&mut delivered);
    assert_eq!(delivered.payload, "hi");
    assert_eq!(delivered.msg_key, "");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_sealed_opens_again(payload in proptest::collection::vec(any::<u8>(), 0..4000), number: String) {
        let (client, server) = ciphers();
        let mut sealed = Send { client_msg_no: number, ..send(&payload) };
        client.seal_send(&mut sealed);
        prop_assert_eq!(sealed.payload.len(), 4 * (16 * (payload.len() + 1).div_ceil(16)).div_ceil(3));
        prop_assert_eq!(&server.open_send(&sealed).unwrap()[..], &payload[..]);
        let mut delivered = recv(&payload);
        server.seal_recv(&mut delivered);
        prop_assert_eq!(&client.open_recv(&delivered).unwrap()[..], &payload[..]);
    }

    /// The streaming key against the definition spelt out.
    #[test]
    fn the_message_key_is_the_definition(payload in proptest::collection::vec(any::<u8>(), 0..3000)) {
        let (client, _) = ciphers();
        let frame = send(&payload);
        let mut plain = b"1m1u21".to_vec();
        plain.extend_from_slice(&payload);
        let text = BASE64.encode(client.encryptor().encrypt_padded_vec::<Pkcs7>(&plain));
        prop_assert_eq!(client.send_key(&frame), hex(&Md5::digest(text).into()));
    }
}
