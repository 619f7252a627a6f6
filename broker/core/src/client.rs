//! What a gateway and a session say to each other, free of any wire format. The gateway decodes, encrypts and counts
//! bytes; the session decides.

use crate::message::Committed;
use crate::types::{ChannelKind, ConnectionId, DeviceFlag, MessageId, Reason, Seq};
use bytes::Bytes;
use std::sync::Arc;

/// The protocol a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// WKProto over TCP or WebSocket.
    WkProto,
    /// JSON-RPC over WebSocket.
    JsonRpc,
}

/// A frame from a client, decoded and decrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientFrame {
    /// First frame of a connection.
    Connect(Connect),
    /// A message.
    Send(Send),
    /// The client has a message.
    RecvAck {
        /// Message id.
        id: MessageId,
        /// Position.
        seq: Seq,
    },
    /// Liveness.
    Ping,
    /// Subscribe to or leave a channel while online (PC-6).
    Subscribe(Subscribe),
    /// The client leaves.
    Disconnect {
        /// Why.
        reason: Reason,
    },
}

/// CONNECT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Protocol the connection speaks.
    pub protocol: Protocol,
    /// Negotiated version, 1..=6.
    pub version: u8,
    /// User.
    pub uid: Arc<str>,
    /// Token; compared with the stored hash.
    pub token: Secret,
    /// Device id as announced.
    pub device_id: Arc<str>,
    /// Device flag.
    pub device_flag: DeviceFlag,
    /// Client clock, ms since 1970.
    pub client_timestamp_ms: i64,
    /// Address of the client as its gateway sees it, without the port; empty when it is not known.
    pub address: Arc<str>,
}

/// A secret text: never printed (S24).
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub Arc<str>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Secret(***)")
    }
}

/// SEND.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Send {
    /// Number of the frame, echoed in SENDACK (for JSON-RPC: a counter of the gateway that stands for the id).
    pub client_seq: u64,
    /// Idempotency number; may be empty.
    pub client_msg_no: Arc<str>,
    /// Channel id as the client names it (for a person channel: the peer's uid).
    pub channel_id: Arc<str>,
    /// Channel kind.
    pub kind: ChannelKind,
    /// NoPersist flag.
    pub no_persist: bool,
    /// RedDot flag.
    pub red_dot: bool,
    /// SyncOnce flag.
    pub sync_once: bool,
    /// Setting byte without NoEncrypt.
    pub setting: u8,
    /// Expiry in seconds, 0 = none.
    pub expire_s: u32,
    /// Topic, empty when absent.
    pub topic: Arc<str>,
    /// Decrypted payload, or the reason why it could not be opened (8 or 9): answered in order, never appended.
    pub payload: Result<Bytes, Reason>,
}

/// SUB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscribe {
    /// Number of the subscription, echoed.
    pub sub_no: Arc<str>,
    /// Channel id as the client names it.
    pub channel_id: Arc<str>,
    /// Channel kind.
    pub kind: ChannelKind,
    /// True to subscribe, false to leave.
    pub subscribe: bool,
    /// Free parameter text.
    pub param: Arc<str>,
}

/// A frame to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerFrame {
    /// Answer to CONNECT. With any reason but success the gateway closes after writing it.
    Connack {
        /// Success or why not.
        reason: Reason,
        /// Words of a plugin for the client, where the protocol has room for them (JSON-RPC).
        text: Option<Arc<str>>,
        /// Server clock minus client clock, ms.
        time_difference_ms: i64,
        /// This node.
        node: u64,
    },
    /// Answer to SEND.
    SendAck {
        /// Echo.
        client_seq: u64,
        /// Echo.
        client_msg_no: Arc<str>,
        /// Message id, 0 when refused.
        id: MessageId,
        /// Position, 0 when refused or not stored.
        seq: Seq,
        /// Success or why not.
        reason: Reason,
        /// Words of a plugin for the sender, where the protocol has room for them (JSON-RPC).
        text: Option<Arc<str>>,
    },
    /// The outcome of a SEND is unknown: JSON-RPC gets the error `outcome_unknown`. On WKProto the session closes the
    /// connection instead (AP-8).
    OutcomeUnknown {
        /// Echo.
        client_seq: u64,
        /// Echo.
        client_msg_no: Arc<str>,
    },
    /// A message.
    Recv {
        /// The message; shared by all recipients.
        message: Arc<Committed>,
        /// Channel id as this receiver sees it (the peer's uid in a person channel).
        channel_id: Arc<str>,
        /// Channel kind as this receiver sees it.
        kind: ChannelKind,
        /// Offered before and not acknowledged.
        duplicate: bool,
    },
    /// Answer to PING.
    Pong,
    /// Answer to SUB.
    SubAck {
        /// Echo.
        sub_no: Arc<str>,
        /// Echo.
        channel_id: Arc<str>,
        /// Echo.
        kind: ChannelKind,
        /// Echo.
        subscribe: bool,
        /// Success or why not.
        reason: Reason,
    },
    /// The server ends the session; written before the close (PR-3).
    Disconnect {
        /// Why.
        reason: Reason,
        /// Text for people.
        text: &'static str,
    },
}

impl ServerFrame {
    /// A CONNACK that refuses with this reason alone.
    #[must_use]
    pub fn refusal(reason: Reason) -> ServerFrame {
        ServerFrame::Connack {
            reason,
            text: None,
            time_difference_ms: 0,
            node: 0,
        }
    }
}

/// Why a connection was closed: a metrics label and, on WebSocket, the close text. Bounded set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CloseReason {
    /// The client closed.
    PeerClosed,
    /// Bytes that are not the protocol.
    ProtocolError,
    /// A frame that is not allowed in this state.
    PolicyViolation,
    /// No CONNECT within the connect timeout.
    ConnectTimeout,
    /// No inbound frame within the idle timeout.
    IdleTimeout,
    /// Authentication failed.
    AuthFailed,
    /// Presence could not be registered in time.
    ActivationFailed,
    /// Another session of the same device took over.
    Kicked,
    /// The client reads too slowly: outbound queue over its bound.
    OutboundOverflow,
    /// Too many offered messages without RECVACK.
    UnacknowledgedOverflow,
    /// Too much unread input.
    InboundOverflow,
    /// The session may have missed messages, because delivery could not reach it: reconnect and pull (PC-1).
    DeliveryMissed,
    /// A send's outcome is unknown: reconnect and resend (AP-8).
    OutcomeUnknown,
    /// The node is over its connection limits.
    TooManyConnections,
    /// The node drains or stops.
    ServerStop,
}

/// Ids a gateway gives: `connection % shards` names the shard.
#[must_use]
pub fn shard_of(connection: ConnectionId, shards: u16) -> u16 {
    // The remainder is below `shards`, so it fits.
    (connection.0 % u64::from(shards.max(1))) as u16
}
