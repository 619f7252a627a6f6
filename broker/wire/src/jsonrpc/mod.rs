//! JSON-RPC, the text protocol on the WebSocket listener (client contract, section 4).
//!
//! One JSON object per message; requests and notifications come in through [`parse`], answers and notifications go out
//! through [`Outbound`]. Payloads are plain JSON where they can be, strict base64 otherwise ([`Payload`]).
//!
//! Refusals are JSON-RPC error objects with the codes in [`code`]; a refusal that leaves the stream usable does not end
//! the session ([`ParseError::is_fatal`]).

mod inbound;
mod outbound;
mod payload;
#[cfg(test)]
mod tests;

pub use inbound::{
    Call, ConnectParams, DisconnectParams, Method, ParseError, RecvAckParams, SendParams, SubscribeParams,
    parse,
};
pub use outbound::{
    ConnectResult, Outbound, RecvParams, RpcEvent, RpcHeader, RpcSetting, SendResult, SubscriptionResult,
};
pub use payload::{Payload, PayloadError};

/// The deepest nesting of objects and arrays in a message.
pub const DEPTH_MAX: usize = 64;
/// The longest request id, in bytes. It is kept while the request is under way.
pub const ID_BYTES_MAX: usize = 256;

/// The codes of error objects. From -32768 to -32600 they are JSON-RPC's own; ours stand in its server range.
pub mod code {
    /// The text is not JSON.
    pub const PARSE_ERROR: i32 = -32700;
    /// The JSON is not a request: an array, no method, an id that is not a string.
    pub const INVALID_REQUEST: i32 = -32600;
    /// There is no such method.
    pub const METHOD_NOT_FOUND: i32 = -32601;
    /// The parameters do not fit the method.
    pub const INVALID_PARAMS: i32 = -32602;
    /// The first request of a session must be `connect`, and only the first.
    pub const OUT_OF_ORDER: i32 = -32001;
    /// Nobody knows whether the message was stored: retry with the same `clientMsgNo` (rule AP-8).
    pub const OUTCOME_UNKNOWN: i32 = -32002;
}

/// Whether brackets outside of strings nest deeper than allowed. It runs over text that may not be JSON, so it only has
/// to be right for text that is.
fn is_too_deep(message: &[u8]) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for byte in message {
        if in_string {
            match (escaped, byte) {
                (true, _) => escaped = false,
                (false, b'\\') => escaped = true,
                (false, b'"') => in_string = false,
                (false, _) => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return true;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}
