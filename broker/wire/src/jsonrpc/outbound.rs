//! From answers and notifications to text.

use serde::{Deserialize, Serialize};

use super::{ParseError, Payload, code};
use crate::wkproto::{Flags, Setting};

/// Header flags as an object; a false member is left out.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RpcHeader {
    /// Not to be stored.
    #[serde(skip_serializing_if = "is_false")]
    pub no_persist: bool,
    /// Counts as unread.
    #[serde(skip_serializing_if = "is_false")]
    pub red_dot: bool,
    /// A command.
    #[serde(skip_serializing_if = "is_false")]
    pub sync_once: bool,
    /// May repeat an earlier message.
    #[serde(skip_serializing_if = "is_false")]
    pub dup: bool,
    /// The last block of a stream; it has no bit in WKProto.
    #[serde(skip_serializing_if = "is_false")]
    pub end: bool,
}

impl RpcHeader {
    /// The WKProto flags with the same meaning.
    #[must_use]
    pub const fn flags(self) -> Flags {
        Flags {
            dup: self.dup,
            sync_once: self.sync_once,
            red_dot: self.red_dot,
            no_persist: self.no_persist,
        }
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl From<Flags> for RpcHeader {
    fn from(flags: Flags) -> Self {
        Self {
            no_persist: flags.no_persist,
            red_dot: flags.red_dot,
            sync_once: flags.sync_once,
            dup: flags.dup,
            end: false,
        }
    }
}

/// The setting as an object; a false member is left out.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RpcSetting {
    /// A read receipt is asked for.
    #[serde(skip_serializing_if = "is_false")]
    pub receipt: bool,
    /// The payload is end-to-end encrypted by the clients.
    #[serde(skip_serializing_if = "is_false")]
    pub signal: bool,
    /// The message belongs to a stream.
    #[serde(skip_serializing_if = "is_false")]
    pub stream: bool,
    /// The message has a topic.
    #[serde(skip_serializing_if = "is_false")]
    pub topic: bool,
}

impl RpcSetting {
    /// The setting byte with the same meaning.
    #[must_use]
    pub fn bits(self) -> Setting {
        [
            (self.receipt, Setting::RECEIPT),
            (self.signal, Setting::SIGNAL),
            (self.stream, Setting::STREAM),
            (self.topic, Setting::TOPIC),
        ]
        .into_iter()
        .filter(|(is_set, _)| *is_set)
        .fold(Setting::NONE, |setting, (_, bit)| setting.with(bit))
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl From<Setting> for RpcSetting {
    fn from(setting: Setting) -> Self {
        Self {
            receipt: setting.contains(Setting::RECEIPT),
            signal: setting.contains(Setting::SIGNAL),
            stream: setting.contains(Setting::STREAM),
            topic: setting.contains(Setting::TOPIC),
        }
    }
}

/// The result of `connect`. A refusal is a result too, with another reason code than 1.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectResult {
    /// The newest protocol version of the server.
    pub server_version: u8,
    /// The server's clock minus the client's, in milliseconds.
    pub time_diff: i64,
    /// The code of a `Reason`.
    pub reason_code: u8,
    /// Why a plugin refused the connection, in its words for the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The node that holds the session.
    pub node_id: u64,
}

/// The result of `send`.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SendResult {
    /// Header flags.
    #[serde(skip_serializing_if = "RpcHeader::is_empty")]
    pub header: RpcHeader,
    /// The id of the message; a string, because JavaScript numbers lose its last digits.
    #[serde(serialize_with = "as_text")]
    pub message_id: i64,
    /// The sequence in the channel, 0 if there is none.
    pub message_seq: u64,
    /// The code of a `Reason`.
    pub reason_code: u8,
    /// Why a plugin refused the message, in its words for the sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The result of `subscribe` and `unsubscribe`.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SubscriptionResult {
    /// The client's name for the subscription.
    pub sub_no: String,
    /// The channel as the client named it.
    pub channel_id: String,
    /// The channel type.
    pub channel_type: u8,
    /// 0 subscribe, 1 unsubscribe.
    pub action: u8,
    /// The code of a `Reason`.
    pub reason_code: u8,
}

/// The parameters of the `recv` notification.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecvParams<'a> {
    /// Header flags.
    #[serde(skip_serializing_if = "RpcHeader::is_empty")]
    pub header: RpcHeader,
    /// The setting.
    #[serde(skip_serializing_if = "RpcSetting::is_empty")]
    pub setting: RpcSetting,
    /// Seconds until the message expires, 0 never.
    #[serde(skip_serializing_if = "is_zero")]
    pub expire: u32,
    /// The id of the message.
    #[serde(serialize_with = "as_text")]
    pub message_id: i64,
    /// The sequence in the channel, 0 for a message that is not stored.
    pub message_seq: u64,
    /// The sender's name for the message.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub client_msg_no: &'a str,
    /// When it was appended, in seconds since 1970.
    pub timestamp: i64,
    /// The channel as the receiver knows it.
    pub channel_id: &'a str,
    /// The channel type.
    pub channel_type: u8,
    /// The topic.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub topic: &'a str,
    /// Who sent it.
    pub from_uid: &'a str,
    /// The payload.
    pub payload: Payload<'a>,
}

/// The parameters of the `event` notification.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RpcEvent<'a> {
    /// The id of the event.
    pub id: &'a str,
    /// Its type.
    #[serde(rename = "type")]
    pub event_type: &'a str,
    /// When it happened, in milliseconds since 1970.
    pub timestamp: i64,
    /// Its data as text.
    pub data: &'a str,
}

/// Everything that a server sends.
#[derive(Clone, Debug)]
pub enum Outbound<'a> {
    /// The answer to `connect`.
    Connected(&'a str, &'a ConnectResult),
    /// The answer to `send`.
    Sent(&'a str, &'a SendResult),
    /// The answer to `subscribe` or `unsubscribe`.
    Subscription(&'a str, &'a SubscriptionResult),
    /// The answer to `ping`.
    Pong(&'a str),
    /// A refusal of something that is not a call.
    Refused(&'a ParseError),
    /// An error object with a code and text of the caller's.
    Error {
        /// The id of the request, null if there is none.
        id: Option<&'a str>,
        /// One of [`code`].
        code: i32,
        /// For people.
        message: &'a str,
    },
    /// Nobody knows whether the message was stored (rule AP-8).
    OutcomeUnknown {
        /// The id of the `send`.
        id: &'a str,
        /// What to retry with.
        client_msg_no: &'a str,
    },
    /// A message for this client.
    Recv(&'a RecvParams<'a>),
    /// An event.
    Event(&'a RpcEvent<'a>),
    /// The connection ends on purpose.
    Disconnect {
        /// The code of a `Reason`.
        reason_code: u8,
        /// For people.
        reason: &'a str,
    },
}

impl Outbound<'_> {
    /// The text of one message.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Connected(id, result) => answer(id, result),
            Self::Sent(id, result) => answer(id, result),
            Self::Subscription(id, result) => answer(id, result),
            // The contract documents a reply without a `result` member, which JSON-RPC 2.0 forbids: standard clients
            // settle a request only when `result` or `error` is there. A null satisfies both, because a client of the
            // documented form looks at the id alone.
            Self::Pong(id) => answer(id, &()),
            Self::Refused(error) => error_object(error.id(), error.code(), &error.to_string(), None),
            Self::Error { id, code, message } => error_object(*id, *code, message, None),
            Self::OutcomeUnknown { id, client_msg_no } => {
                let data = UnknownData {
                    client_msg_no,
                    // Without a name for it, another call is another message.
                    retry: !client_msg_no.is_empty(),
                };
                error_object(Some(id), code::OUTCOME_UNKNOWN, "outcome_unknown", Some(data))
            }
            Self::Recv(params) => notification("recv", params),
            Self::Event(params) => notification("event", params),
            Self::Disconnect { reason_code, reason } => notification(
                "disconnect",
                &DisconnectData {
                    reason_code: *reason_code,
                    reason,
                },
            ),
        }
    }
}

#[derive(Serialize)]
struct Answer<'a, T> {
    jsonrpc: &'static str,
    id: &'a str,
    result: &'a T,
}

#[derive(Serialize)]
struct Notification<'a, T> {
    jsonrpc: &'static str,
    method: &'static str,
    params: &'a T,
}

#[derive(Serialize)]
struct Failure<'a> {
    jsonrpc: &'static str,
    id: Option<&'a str>,
    error: ErrorObject<'a>,
}

#[derive(Serialize)]
struct ErrorObject<'a> {
    code: i32,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<UnknownData<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UnknownData<'a> {
    client_msg_no: &'a str,
    retry: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DisconnectData<'a> {
    reason_code: u8,
    reason: &'a str,
}

fn answer<T: Serialize>(id: &str, result: &T) -> String {
    text_of(&Answer {
        jsonrpc: "2.0",
        id,
        result,
    })
}

fn notification<T: Serialize>(method: &'static str, params: &T) -> String {
    text_of(&Notification {
        jsonrpc: "2.0",
        method,
        params,
    })
}

fn error_object(id: Option<&str>, code: i32, message: &str, data: Option<UnknownData<'_>>) -> String {
    text_of(&Failure {
        jsonrpc: "2.0",
        id,
        error: ErrorObject { code, message, data },
    })
}

fn text_of<T: Serialize>(message: &T) -> String {
    let text = serde_json::to_string(message);
    // Only a map with keys that are not strings can fail, and there is none.
    debug_assert!(text.is_ok(), "an outbound message cannot be written");
    text.unwrap_or_default()
}

fn as_text<S: serde::Serializer>(number: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(value: &u32) -> bool {
    *value == 0
}
