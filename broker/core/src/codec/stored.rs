//! The stored form of messages: `wire::storage::v1::Message` to and from the core's own type.

use crate::message::{Draft, Message, MessageFlags};
use crate::types::{ConnectionId, MessageId, NodeId, Seq, Uid};
use bytes::Bytes;
use penstock_wire::storage::v1;
use prost::Message as _;
use std::sync::Arc;

const NO_PERSIST: u32 = 1;
const RED_DOT: u32 = 2;
const SYNC_ONCE: u32 = 4;

/// Stored bytes that are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

impl std::fmt::Display for Corrupt {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("stored bytes do not decode")
    }
}

impl std::error::Error for Corrupt {}

/// The version of commands that this build writes and reads.
pub const COMMAND_VERSION: u32 = 1;

/// A command of a Raft group as it stands in the log.
#[must_use]
pub fn encode_command(wall_ms: u64, body: v1::command::Body) -> Bytes {
    encode(&v1::Command {
        version: COMMAND_VERSION,
        wall_ms,
        body: Some(body),
    })
}

/// The stored form of a value.
#[must_use]
pub fn encode<M: prost::Message>(value: &M) -> Bytes {
    value.encode_to_vec().into()
}

/// A value from its stored form.
///
/// # Errors
/// [`Corrupt`] when the bytes are no such value.
pub fn decode<M: prost::Message + Default>(bytes: &[u8]) -> Result<M, Corrupt> {
    M::decode(bytes).map_err(|_| Corrupt)
}

/// The body of a record.
#[must_use]
pub fn encode_message(message: &Message) -> Bytes {
    let draft = &message.draft;
    let flag = |set: bool, bit: u32| if set { bit } else { 0 };
    let (origin_node, origin_connection) = draft
        .origin
        .map_or((0, 0), |(node, connection)| (node.0, connection.0));
    v1::Message {
        id: message.id.0,
        seq: message.seq.0,
        stamp_ms: message.stamp_ms,
        from_uid: draft.from_uid.as_str().to_owned(),
        client_msg_no: draft.client_msg_no.to_string(),
        flags: flag(draft.flags.no_persist, NO_PERSIST)
            | flag(draft.flags.red_dot, RED_DOT)
            | flag(draft.flags.sync_once, SYNC_ONCE),
        setting: u32::from(draft.setting),
        expire_s: draft.expire_s,
        topic: draft.topic.to_string(),
        payload: draft.payload.clone(),
        origin_node: u32::from(origin_node),
        origin_connection,
        subscribers: draft
            .subscribers
            .iter()
            .map(|uid| uid.as_str().to_owned())
            .collect(),
        hops: u32::from(draft.hops),
    }
    .encode_to_vec()
    .into()
}

/// The message in a record's body.
///
/// # Errors
/// [`Corrupt`] when the bytes are no message.
pub fn decode_message(body: Bytes) -> Result<Message, Corrupt> {
    let stored = v1::Message::decode(body).map_err(|_| Corrupt)?;
    let node = u16::try_from(stored.origin_node).map_err(|_| Corrupt)?;
    Ok(Message {
        id: MessageId(stored.id),
        seq: Seq(stored.seq),
        stamp_ms: stored.stamp_ms,
        draft: Draft {
            from_uid: Uid::new(&stored.from_uid),
            client_msg_no: Arc::from(stored.client_msg_no),
            flags: MessageFlags {
                no_persist: stored.flags & NO_PERSIST != 0,
                red_dot: stored.flags & RED_DOT != 0,
                sync_once: stored.flags & SYNC_ONCE != 0,
            },
            setting: u8::try_from(stored.setting).map_err(|_| Corrupt)?,
            expire_s: stored.expire_s,
            topic: Arc::from(stored.topic),
            payload: stored.payload,
            origin: (node != 0).then_some((NodeId(node), ConnectionId(stored.origin_connection))),
            subscribers: stored.subscribers.iter().map(|uid| Uid::new(uid)).collect(),
            attributes: None,
            hops: u8::try_from(stored.hops).map_err(|_| Corrupt)?,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_field_of_a_message_survives() {
        let message = Message {
            id: MessageId(7),
            seq: Seq(3),
            stamp_ms: 1_700_000_000_123,
            draft: Draft {
                from_uid: Uid::new("alice"),
                client_msg_no: Arc::from("n-1"),
                flags: MessageFlags {
                    no_persist: false,
                    red_dot: true,
                    sync_once: true,
                },
                setting: 0xa5,
                expire_s: 60,
                topic: Arc::from("t"),
                payload: Bytes::from_static(b"\0body\xff"),
                origin: Some((NodeId(2), ConnectionId(9))),
                subscribers: Arc::from([Uid::new("u2"), Uid::new("u1")]),
                attributes: None,
                hops: 2,
            },
        };
        assert_eq!(decode_message(encode_message(&message)), Ok(message));
    }

    /// S17: what was stored before there were hops, and what people send, has none, and takes no more room than before.
    #[test]
    fn a_record_without_hops_is_of_a_person() {
        let stored = v1::Message {
            id: 7,
            seq: 3,
            ..v1::Message::default()
        };
        let bytes = encode(&stored);
        assert_eq!(bytes, Bytes::from_static(&[8, 7, 16, 3]));
        let message = decode_message(bytes.clone()).expect("a message");
        assert_eq!(message.draft.hops, 0);
        assert_eq!(encode_message(&message), bytes);
        let many = v1::Message {
            hops: 256,
            ..v1::Message::default()
        };
        assert_eq!(decode_message(encode(&many)), Err(Corrupt));
    }

    proptest! {
        #[test]
        fn decoding_any_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_message(Bytes::from(bytes));
        }
    }
}
