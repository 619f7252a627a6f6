//! From text to calls.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::payload::{Payload, PayloadError};
use super::{DEPTH_MAX, ID_BYTES_MAX, RpcHeader, RpcSetting, code, is_too_deep};
use crate::wkproto::{STRING_BYTES_MAX, Setting};

/// A request, with its id, or a notification, without one.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The id to repeat in the answer. `recvack` and `disconnect` may come without one, the others may not.
    pub id: Option<String>,
    /// What is asked for.
    pub method: Method,
}

/// The methods that a client may call.
#[derive(Clone, Debug, PartialEq)]
pub enum Method {
    /// Who am I.
    Connect(ConnectParams),
    /// A message.
    Send(SendParams),
    /// A `recv` arrived.
    RecvAck(RecvAckParams),
    /// Subscribe this session.
    Subscribe(SubscribeParams),
    /// End a subscription.
    Unsubscribe(SubscribeParams),
    /// A sign of life.
    Ping,
    /// The client leaves on purpose.
    Disconnect(DisconnectParams),
}

/// The parameters of `connect`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ConnectParams {
    /// Who connects.
    pub uid: String,
    /// The proof.
    #[serde(default)]
    pub token: String,
    /// Header flags.
    #[serde(default)]
    pub header: RpcHeader,
    /// The protocol version, 0 for the latest.
    #[serde(default)]
    pub version: u8,
    /// Accepted and not used: JSON-RPC sessions are plaintext.
    #[serde(default)]
    pub client_key: String,
    /// The client's name for its device.
    #[serde(default)]
    pub device_id: String,
    /// 0 app, 1 web, 2 PC, 99 system.
    #[serde(default)]
    pub device_flag: u8,
    /// The client's clock in milliseconds since 1970.
    #[serde(default)]
    pub client_timestamp: i64,
}

/// The parameters of `send`, with the payload as the bytes to store.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SendParams {
    /// The channel as the client names it.
    pub channel_id: String,
    /// The channel type.
    pub channel_type: u8,
    /// The client's name for the message, the base of idempotency; empty when it gave none: stored at every call.
    pub client_msg_no: String,
    /// Header flags.
    pub header: RpcHeader,
    /// The setting, with the topic bit exactly when there is a topic.
    pub setting: Setting,
    /// Seconds until the message expires, 0 never.
    pub expire_s: u32,
    /// The topic, empty for none.
    pub topic: String,
    /// The payload.
    pub payload: Bytes,
}

/// The parameters of `recvack`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RecvAckParams {
    /// The id of the message.
    pub message_id: i64,
    /// The sequence of the message.
    pub message_seq: u64,
    /// Header flags.
    pub header: RpcHeader,
}

/// The parameters of `subscribe` and `unsubscribe`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SubscribeParams {
    /// The client's name for the subscription.
    #[serde(default)]
    pub sub_no: String,
    /// The channel as the client names it.
    pub channel_id: String,
    /// The channel type.
    pub channel_type: u8,
    /// Parameters as the client gave them.
    #[serde(default)]
    pub param: String,
    /// Header flags.
    #[serde(default)]
    pub header: RpcHeader,
    /// The setting.
    #[serde(default)]
    pub setting: RpcSetting,
}

/// The parameters of `disconnect`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DisconnectParams {
    /// The code of a `Reason`.
    #[serde(default)]
    pub reason_code: u8,
    /// For people.
    #[serde(default)]
    pub reason: String,
    /// Header flags.
    #[serde(default)]
    pub header: RpcHeader,
}

/// Why a message is not a call. [`ParseError::code`] and the text go into an error object.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ParseError {
    /// Longer than the limit.
    #[error("the message of {length} bytes is over the limit of {limit}")]
    TooLong {
        /// The length in bytes.
        length: usize,
        /// What is allowed at this point, in bytes.
        limit: usize,
    },
    /// Nested deeper than [`DEPTH_MAX`].
    #[error("nested deeper than {DEPTH_MAX} levels")]
    TooDeep,
    /// Not JSON.
    #[error("not JSON: {0}")]
    NotJson(String),
    /// An array of calls.
    #[error("batches are not supported: send one object per message")]
    Batch,
    /// Not a request, with the id if one could be read.
    #[error("{reason}")]
    InvalidRequest {
        /// The id, if it is usable.
        id: Option<String>,
        /// What is wrong.
        reason: String,
    },
    /// No such method.
    #[error("there is no method {method:?}")]
    MethodNotFound {
        /// The id of the request.
        id: Option<String>,
        /// What was asked for, shortened.
        method: String,
    },
    /// The parameters do not fit the method.
    #[error("{reason}")]
    InvalidParams {
        /// The id of the request.
        id: Option<String>,
        /// What is wrong.
        reason: String,
    },
}

impl ParseError {
    /// The code of the error object.
    #[must_use]
    pub const fn code(&self) -> i32 {
        match self {
            Self::NotJson(_) => code::PARSE_ERROR,
            Self::TooLong { .. } | Self::TooDeep | Self::Batch | Self::InvalidRequest { .. } => {
                code::INVALID_REQUEST
            }
            Self::MethodNotFound { .. } => code::METHOD_NOT_FOUND,
            Self::InvalidParams { .. } => code::INVALID_PARAMS,
        }
    }

    /// The id of the request, if it could be read.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        match self {
            Self::InvalidRequest { id, .. }
            | Self::MethodNotFound { id, .. }
            | Self::InvalidParams { id, .. } => id.as_deref(),
            Self::TooLong { .. } | Self::TooDeep | Self::NotJson(_) | Self::Batch => None,
        }
    }

    /// Whether the session must end: the peer does not speak the protocol or tries to exhaust the reader. The others
    /// are answered and the session goes on.
    #[must_use]
    pub const fn is_fatal(&self) -> bool {
        match self {
            Self::TooLong { .. } | Self::TooDeep | Self::NotJson(_) => true,
            Self::Batch
            | Self::InvalidRequest { .. }
            | Self::MethodNotFound { .. }
            | Self::InvalidParams { .. } => false,
        }
    }
}

/// Reads one message of at most `bytes_max` bytes.
///
/// Length and depth are judged over the bytes before any value is built. Unknown members are ignored; a repeated known
/// member is refused.
///
/// # Errors
/// What is wrong, with what the error object needs.
pub fn parse(message: &[u8], bytes_max: usize) -> Result<Call, ParseError> {
    if message.len() > bytes_max {
        return Err(ParseError::TooLong {
            length: message.len(),
            limit: bytes_max,
        });
    }
    if is_too_deep(message) {
        return Err(ParseError::TooDeep);
    }
    let text = std::str::from_utf8(message).map_err(|_| ParseError::NotJson("not UTF-8".to_owned()))?;
    let whole: &RawValue =
        serde_json::from_str(text).map_err(|error| ParseError::NotJson(error.to_string()))?;
    match whole.get().as_bytes().first() {
        Some(b'{') => {}
        Some(b'[') => return Err(ParseError::Batch),
        Some(_) | None => return Err(invalid_request(None, "a request is a JSON object")),
    }
    let envelope: Envelope<'_> =
        serde_json::from_str(whole.get()).map_err(|error| invalid_request(None, error.to_string()))?;
    let id = match envelope.id {
        Some(raw) => Some(request_id(raw)?),
        None => None,
    };
    if envelope.jsonrpc.is_some_and(|version| version != "2.0") {
        return Err(invalid_request(id, "jsonrpc must be \"2.0\""));
    }
    let Some(name) = envelope.method else {
        return Err(invalid_request(id, "method is missing"));
    };
    method(&name, id, envelope.params)
}

fn method(name: &str, id: Option<String>, params: Option<&RawValue>) -> Result<Call, ParseError> {
    let method = match name {
        "connect" => Method::Connect(typed(&id, params)?),
        "send" => Method::Send(send(&id, params)?),
        "recvack" => Method::RecvAck(recv_ack(&id, params)?),
        "subscribe" => Method::Subscribe(typed(&id, params)?),
        "unsubscribe" => Method::Unsubscribe(typed(&id, params)?),
        "ping" => Method::Ping,
        "disconnect" => Method::Disconnect(match params {
            Some(_) => typed(&id, params)?,
            None => DisconnectParams::default(),
        }),
        other => {
            let method = other.chars().take(64).collect();
            return Err(ParseError::MethodNotFound { id, method });
        }
    };
    let needs_id = match &method {
        Method::Connect(_)
        | Method::Send(_)
        | Method::Subscribe(_)
        | Method::Unsubscribe(_)
        | Method::Ping => true,
        Method::RecvAck(_) | Method::Disconnect(_) => false,
    };
    if needs_id && id.is_none() {
        return Err(invalid_request(None, format!("{name} needs an id")));
    }
    check_strings(&method, &id)?;
    Ok(Call { id, method })
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    jsonrpc: Option<Cow<'a, str>>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawSend<'a> {
    channel_id: String,
    channel_type: u8,
    client_msg_no: Option<String>,
    #[serde(borrow)]
    payload: &'a RawValue,
    #[serde(default)]
    header: RpcHeader,
    #[serde(default)]
    setting: RpcSetting,
    expire: Option<u32>,
    topic: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawRecvAck {
    message_id: String,
    #[serde(default)]
    message_seq: u64,
    #[serde(default)]
    header: RpcHeader,
}

fn send(id: &Option<String>, params: Option<&RawValue>) -> Result<SendParams, ParseError> {
    let raw: RawSend<'_> = borrowed(id, params)?;
    let payload = Payload::stored(raw.payload).map_err(|error: PayloadError| ParseError::InvalidParams {
        id: id.clone(),
        reason: error.to_string(),
    })?;
    let topic = raw.topic.unwrap_or_default();
    let setting = raw.setting.bits().without(Setting::TOPIC);
    Ok(SendParams {
        channel_id: raw.channel_id,
        channel_type: raw.channel_type,
        client_msg_no: raw.client_msg_no.unwrap_or_default(),
        header: raw.header,
        setting: if topic.is_empty() {
            setting
        } else {
            setting.with(Setting::TOPIC)
        },
        expire_s: raw.expire.unwrap_or_default(),
        topic,
        payload,
    })
}

fn recv_ack(id: &Option<String>, params: Option<&RawValue>) -> Result<RecvAckParams, ParseError> {
    let raw: RawRecvAck = borrowed(id, params)?;
    let message_id = raw.message_id.parse().map_err(|_| ParseError::InvalidParams {
        id: id.clone(),
        reason: "messageId is not a number in a string".to_owned(),
    })?;
    Ok(RecvAckParams {
        message_id,
        message_seq: raw.message_seq,
        header: raw.header,
    })
}

fn typed<T: DeserializeOwned>(id: &Option<String>, params: Option<&RawValue>) -> Result<T, ParseError> {
    borrowed(id, params)
}

fn borrowed<'a, T: Deserialize<'a>>(
    id: &Option<String>,
    params: Option<&'a RawValue>,
) -> Result<T, ParseError> {
    let text = params.map_or("{}", RawValue::get);
    serde_json::from_str(text).map_err(|error| ParseError::InvalidParams {
        id: id.clone(),
        reason: error.to_string(),
    })
}

fn request_id(raw: &RawValue) -> Result<String, ParseError> {
    let id: String =
        serde_json::from_str(raw.get()).map_err(|_| invalid_request(None, "id must be a string"))?;
    if id.len() > ID_BYTES_MAX {
        return Err(invalid_request(
            None,
            format!("id is longer than {ID_BYTES_MAX} bytes"),
        ));
    }
    Ok(id)
}

fn invalid_request(id: Option<String>, reason: impl Into<String>) -> ParseError {
    ParseError::InvalidRequest {
        id,
        reason: reason.into(),
    }
}

/// Strings that reach other clients must fit a WKProto frame.
fn check_strings(method: &Method, id: &Option<String>) -> Result<(), ParseError> {
    let texts: [&str; 4] = match method {
        Method::Connect(params) => [&params.uid, &params.token, &params.device_id, &params.client_key],
        Method::Send(params) => [&params.channel_id, &params.client_msg_no, &params.topic, ""],
        Method::Subscribe(params) | Method::Unsubscribe(params) => {
            [&params.sub_no, &params.channel_id, &params.param, ""]
        }
        Method::Disconnect(params) => [&params.reason, "", "", ""],
        Method::RecvAck(_) | Method::Ping => [""; 4],
    };
    if texts.iter().any(|text| text.len() > STRING_BYTES_MAX) {
        let reason = format!("a string is longer than {STRING_BYTES_MAX} bytes");
        return Err(ParseError::InvalidParams {
            id: id.clone(),
            reason,
        });
    }
    Ok(())
}
