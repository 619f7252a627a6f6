//! The frames as values (client contract, section 1.3). Fields stand in the order of the wire.

use bytes::Bytes;

use super::{Flags, Setting};

/// One frame of either direction.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Frame {
    /// Client: who am I.
    Connect(Connect),
    /// Server: the answer to CONNECT.
    Connack(Connack),
    /// Client: a message.
    Send(Send),
    /// Server: the answer to SEND.
    SendAck(SendAck),
    /// Server: a message for this client.
    Recv(Recv),
    /// Client: a RECV arrived.
    RecvAck(RecvAck),
    /// Client: a sign of life. A server never sends it: the JavaScript SDK does not know the byte.
    Ping,
    /// Server: the answer to PING.
    Pong,
    /// Either: the connection ends on purpose.
    Disconnect(Disconnect),
    /// Client: subscribe or unsubscribe this session.
    Sub(Sub),
    /// Server: the answer to SUB.
    SubAck(SubAck),
    /// Server: an event. Never sent to the JavaScript SDK, which cannot decode it.
    Event(Event),
}

/// The type of a frame: the high nibble of its first byte.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
#[expect(
    missing_docs,
    reason = "each is documented at the variant of `Frame` with the same name"
)]
pub enum FrameType {
    Connect = 1,
    Connack = 2,
    Send = 3,
    SendAck = 4,
    Recv = 5,
    RecvAck = 6,
    Ping = 7,
    Pong = 8,
    Disconnect = 9,
    Sub = 10,
    SubAck = 11,
    Event = 12,
}

impl FrameType {
    /// The type of a first byte, `None` for the reserved 0 and 13 to 15.
    #[must_use]
    pub const fn from_header(header: u8) -> Option<Self> {
        match header >> 4 {
            1 => Some(Self::Connect),
            2 => Some(Self::Connack),
            3 => Some(Self::Send),
            4 => Some(Self::SendAck),
            5 => Some(Self::Recv),
            6 => Some(Self::RecvAck),
            7 => Some(Self::Ping),
            8 => Some(Self::Pong),
            9 => Some(Self::Disconnect),
            10 => Some(Self::Sub),
            11 => Some(Self::SubAck),
            12 => Some(Self::Event),
            _ => None,
        }
    }
}

impl Frame {
    /// The type of this frame.
    #[must_use]
    pub const fn frame_type(&self) -> FrameType {
        match self {
            Self::Connect(_) => FrameType::Connect,
            Self::Connack(_) => FrameType::Connack,
            Self::Send(_) => FrameType::Send,
            Self::SendAck(_) => FrameType::SendAck,
            Self::Recv(_) => FrameType::Recv,
            Self::RecvAck(_) => FrameType::RecvAck,
            Self::Ping => FrameType::Ping,
            Self::Pong => FrameType::Pong,
            Self::Disconnect(_) => FrameType::Disconnect,
            Self::Sub(_) => FrameType::Sub,
            Self::SubAck(_) => FrameType::SubAck,
            Self::Event(_) => FrameType::Event,
        }
    }
}

/// The first frame of a session.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Connect {
    /// Header flags.
    pub flags: Flags,
    /// The version that the client announces, not negotiated yet.
    pub version: u8,
    /// 0 app, 1 web, 2 PC, 99 system.
    pub device_flag: u8,
    /// The client's name for its device.
    pub device_id: String,
    /// Who connects.
    pub uid: String,
    /// The proof.
    pub token: String,
    /// The client's clock in milliseconds since 1970.
    pub client_timestamp_ms: i64,
    /// The client's public key, base64.
    pub client_key: String,
}

/// The answer to CONNECT.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Connack {
    /// The server's version, only for a client that announced more than 3: see `Version::server_version_for`.
    pub server_version: Option<u8>,
    /// The server's clock minus the client's, in milliseconds.
    pub time_diff_ms: i64,
    /// The code of a `Reason`.
    pub reason_code: u8,
    /// The server's public key, base64; empty on failure.
    pub server_key: String,
    /// The salt of the session, 16 characters; empty on failure.
    pub salt: String,
    /// The node that holds the session, from version 4.
    pub node_id: u64,
}

/// A message from a client.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Send {
    /// Header flags.
    pub flags: Flags,
    /// The setting byte.
    pub setting: Setting,
    /// The client's counter, repeated in the SENDACK.
    pub client_seq: u32,
    /// The client's name for the message, the base of idempotency; may be empty.
    pub client_msg_no: String,
    /// The stream, in versions 2 to 4 with the stream bit.
    pub stream_no: String,
    /// The channel as the client names it.
    pub channel_id: String,
    /// The channel type.
    pub channel_type: u8,
    /// Seconds until the message expires, 0 never; from version 3.
    pub expire_s: u32,
    /// The message key over the ciphertext.
    pub msg_key: String,
    /// The topic; on the wire only with the topic bit.
    pub topic: String,
    /// The payload as on the wire: base64 ciphertext, or plaintext with the NoEncrypt bit.
    pub payload: Bytes,
}

/// The answer to a SEND.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SendAck {
    /// Header flags.
    pub flags: Flags,
    /// The id of the message, 0 if there is none.
    pub message_id: i64,
    /// The counter of the SEND.
    pub client_seq: u32,
    /// The sequence in the channel, 0 if there is none.
    pub message_seq: u64,
    /// The code of a `Reason`.
    pub reason_code: u8,
    /// The client's name for the message; on the wire only if not empty.
    pub client_msg_no: String,
}

/// A message for a client.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Recv {
    /// Header flags.
    pub flags: Flags,
    /// The setting byte.
    pub setting: Setting,
    /// The message key over the ciphertext.
    pub msg_key: String,
    /// Who sent it.
    pub from_uid: String,
    /// The channel as the receiver knows it: the peer's uid for a person channel.
    pub channel_id: String,
    /// The channel type.
    pub channel_type: u8,
    /// Seconds until the message expires, 0 never; from version 3.
    pub expire_s: u32,
    /// The sender's name for the message.
    pub client_msg_no: String,
    /// The stream, in versions 2 to 4 with the stream bit.
    pub stream: LegacyStream,
    /// The id of the message.
    pub message_id: i64,
    /// The sequence in the channel, 0 for a message that is not stored.
    pub message_seq: u64,
    /// When it was appended, in seconds since 1970.
    pub timestamp_s: i32,
    /// The topic; on the wire only with the topic bit.
    pub topic: String,
    /// The payload as on the wire: base64 ciphertext, or plaintext with the NoEncrypt bit.
    pub payload: Bytes,
}

/// The stream fields of a RECV in versions 2 to 4.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LegacyStream {
    /// 0 start, 1 ongoing, 2 end.
    pub flag: u8,
    /// The stream.
    pub stream_no: String,
    /// The position in the stream.
    pub stream_id: u64,
}

/// A RECV arrived.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RecvAck {
    /// Header flags, copied from the RECV.
    pub flags: Flags,
    /// The id of the message.
    pub message_id: i64,
    /// The sequence of the message.
    pub message_seq: u64,
}

/// The connection ends on purpose.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Disconnect {
    /// Header flags.
    pub flags: Flags,
    /// The code of a `Reason`.
    pub reason_code: u8,
    /// For people.
    pub reason: String,
}

/// Subscribe or unsubscribe this session.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Sub {
    /// Header flags.
    pub flags: Flags,
    /// The setting byte.
    pub setting: Setting,
    /// The client's name for the subscription, often empty.
    pub sub_no: String,
    /// The channel as the client names it.
    pub channel_id: String,
    /// The channel type.
    pub channel_type: u8,
    /// 0 subscribe, 1 unsubscribe.
    pub action: u8,
    /// Parameters as the client gave them, JSON by custom.
    pub param: String,
}

/// The answer to a SUB.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SubAck {
    /// Header flags.
    pub flags: Flags,
    /// The client's name for the subscription.
    pub sub_no: String,
    /// The channel as the client named it.
    pub channel_id: String,
    /// The channel type.
    pub channel_type: u8,
    /// The action that was asked for.
    pub action: u8,
    /// The code of a `Reason`.
    pub reason_code: u8,
}

/// An event.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Event {
    /// Header flags.
    pub flags: Flags,
    /// The id of the event.
    pub id: String,
    /// Its type.
    pub event_type: String,
    /// When it happened, in milliseconds since 1970.
    pub timestamp_ms: i64,
    /// Its data.
    pub data: Bytes,
}
