//! JSON in and out: strict bodies, one error shape, the message object of the contract.

use super::State;
use super::auth::NO_KEY;
use axum::Json;
use axum::body::{Bytes, HttpBody as _};
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use penstock_core::admin::{Answer, Failure};
use penstock_core::hooks::registry::{KEY_BYTES_MAX, KeyRefused, VALUE_BYTES_MAX};
use penstock_core::message::Committed;
use penstock_core::types::{ChannelKind, Reason, Uid};
use penstock_wire::channel_id;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;

const TOO_LARGE: &str = "the body is too large or was cut: see http.body_bytes_max";

/// A JSON body, whatever its content type says: existing backends do not all set it.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<State> for Body<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &State) -> Result<Body<T>, Response> {
        let refuse = refusal_of(request.uri());
        // By its announcement, before any of it is waited for; what is not announced is counted as it comes.
        if request.body().size_hint().lower() > state.config.body_bytes_max as u64 {
            return Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, TOO_LARGE));
        }
        let reading = Bytes::from_request(request, state);
        let read = timeout(state.config.request_timeout, reading)
            .await
            .map_err(|_| {
                refuse(
                    StatusCode::REQUEST_TIMEOUT,
                    "the body did not come in time: see http.request_timeout_ms",
                )
            })?;
        let bytes = read.map_err(|rejection| refuse(rejection.status(), TOO_LARGE))?;
        serde_json::from_slice(&bytes)
            .map(Body)
            .map_err(|error| refuse(StatusCode::BAD_REQUEST, &format!("invalid JSON body: {error}")))
    }
}

/// The parameters behind the `?` of a request.
pub(super) struct Parameters<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<State> for Parameters<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _state: &State) -> Result<Parameters<T>, Response> {
        Query::try_from_uri(&parts.uri)
            .map(|Query(read)| Parameters(read))
            .map_err(|error| {
                let why =
                    std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
                refusal_of(&parts.uri)(StatusCode::BAD_REQUEST, &format!("invalid parameters: {why}"))
            })
    }
}

/// Where there is no route.
pub(super) async fn no_route(uri: Uri) -> Response {
    refusal_of(&uri)(StatusCode::NOT_FOUND, "there is no such route")
}

/// Where there is a route, by another method.
pub(super) async fn no_method(uri: Uri) -> Response {
    refusal_of(&uri)(
        StatusCode::METHOD_NOT_ALLOWED,
        "this route has another method: see the header `Allow`",
    )
}

/// The shape in which the route of this address refuses.
pub(super) fn refusal_of(uri: &Uri) -> fn(StatusCode, &str) -> Response {
    if uri.path().starts_with("/message/") {
        send_error
    } else {
        refusal
    }
}

/// `{"error":…}`, the shape of the routes below `/message`.
pub(super) fn send_error(status: StatusCode, text: &str) -> Response {
    (status, Json(json!({ "error": text }))).into_response()
}

/// `{"msg":…,"status":…}`, the error shape of the contract.
pub(super) fn refusal(status: StatusCode, text: &str) -> Response {
    (status, Json(json!({ "msg": text, "status": status.as_u16() }))).into_response()
}

/// `{"status":200}`.
pub(super) fn done() -> Response {
    Json(json!({ "status": 200 })).into_response()
}

/// The answer to a change.
pub(super) fn changed(answer: Answer) -> Response {
    match answer {
        Answer::Done => done(),
        Answer::Failed(failure) => failed(&failure),
        _ => unexpected(),
    }
}

/// What went wrong, with what to do.
pub(super) fn failed(failure: &Failure) -> Response {
    let (status, text) = describe(failure);
    refusal(status, &text)
}

/// Status and text of a failure.
pub(super) fn describe(failure: &Failure) -> (StatusCode, String) {
    match failure {
        Failure::Invalid(text) | Failure::NotFound(text) => (StatusCode::BAD_REQUEST, text.clone()),
        Failure::Refused(reason) => (
            StatusCode::BAD_REQUEST,
            format!("refused: {}", reason_text(*reason)),
        ),
        Failure::Keys(KeyRefused::Quota) => (
            StatusCode::INSUFFICIENT_STORAGE,
            "the plugin has no room left where this key is: delete keys, or give them a life time".to_owned(),
        ),
        Failure::Keys(KeyRefused::NotANumber) => (
            StatusCode::CONFLICT,
            "the value is no number, or has no room for the sum".to_owned(),
        ),
        Failure::Keys(KeyRefused::TooLarge) => (
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("a key has at most {KEY_BYTES_MAX} bytes and a value at most {VALUE_BYTES_MAX}"),
        ),
        Failure::Conflict(text) => (StatusCode::CONFLICT, text.clone()),
        Failure::KeyNeeded => (StatusCode::UNAUTHORIZED, NO_KEY.to_owned()),
        Failure::Plugin(class) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("the plugin gave no answer: {}", class.name()),
        ),
        Failure::Busy => (
            StatusCode::SERVICE_UNAVAILABLE,
            "busy: retry in a moment".to_owned(),
        ),
        Failure::Unavailable(text) => (StatusCode::SERVICE_UNAVAILABLE, format!("retry required: {text}")),
        Failure::Timeout => (
            StatusCode::SERVICE_UNAVAILABLE,
            "no answer in time: it may or may not have happened; retrying is safe".to_owned(),
        ),
    }
}

/// An answer that this route does not know.
pub(super) fn unexpected() -> Response {
    refusal(
        StatusCode::INTERNAL_SERVER_ERROR,
        "the core answered with something else: please report this",
    )
}

/// A reason for people.
pub(super) fn reason_text(reason: Reason) -> &'static str {
    penstock_wire::reason::Reason::from_code(reason.0)
        .map_or("unknown reason", penstock_wire::reason::Reason::name)
}

/// A message of `/channel/messagesync` as its reader sees it (client contract 7.4).
pub(super) fn message(committed: &Committed, reader: &Uid) -> Value {
    let message = &committed.message;
    let draft = &message.draft;
    let channel = &committed.channel;
    let shown = match channel.kind {
        ChannelKind::PERSON => channel_id::person_peer(&channel.id, reader.as_str()).unwrap_or(&channel.id),
        _ => &channel.id,
    };
    let mut object = json!({
        "header": {
            "no_persist": u8::from(draft.flags.no_persist),
            "red_dot": u8::from(draft.flags.red_dot),
            "sync_once": u8::from(draft.flags.sync_once),
        },
        "setting": draft.setting,
        "message_id": message.id.0,
        "message_idstr": message.id.0.to_string(),
        "client_msg_no": &*draft.client_msg_no,
        "message_seq": message.seq.0,
        "from_uid": draft.from_uid.as_str(),
        "channel_id": shown,
        "channel_type": channel.kind.0,
        "expire": draft.expire_s,
        "timestamp": message.stamp_ms / 1_000,
        "payload": STANDARD.encode(&draft.payload),
    });
    if !draft.topic.is_empty() {
        object["topic"] = json!(&*draft.topic);
    }
    object
}

/// 0/1 integers and booleans are both flags.
pub(super) fn flag<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    use serde::Deserialize;
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(false),
        Value::Bool(flag) => Ok(flag),
        Value::Number(number) => Ok(number.as_i64() != Some(0)),
        other => Err(serde::de::Error::custom(format!(
            "a flag must be 0 or 1, not {other}"
        ))),
    }
}
