//! `/message/…` and history.

use super::State;
use super::bounded::{Id, Text, text, uids};
use super::json::{
    Body, Parameters, describe, failed, flag, message, reason_text, refusal, send_error, unexpected,
};
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use penstock_core::admin::{Answer, Ask, Failure, HistoryQuery, SendAsk};
use penstock_core::message::{MessageFlags, Outcome};
use penstock_core::types::{ChannelKind, Reason, Seq, Uid};
use penstock_wire::channel_id::is_plugin;
use serde::Deserialize;
use serde_json::{Value, json};

/// Header object of a send.
#[derive(Default, Deserialize)]
struct Header {
    #[serde(default, deserialize_with = "flag")]
    no_persist: bool,
    #[serde(default, deserialize_with = "flag")]
    red_dot: bool,
    #[serde(default, deserialize_with = "flag")]
    sync_once: bool,
}

/// Body of `POST /message/send`.
#[derive(Deserialize)]
pub(super) struct Send {
    #[serde(default, alias = "sender_uid")]
    from_uid: Id,
    #[serde(default)]
    channel_id: Id,
    #[serde(default)]
    channel_type: u8,
    #[serde(default)]
    payload: String,
    #[serde(default)]
    client_msg_no: Text,
    #[serde(default)]
    setting: u8,
    #[serde(default)]
    topic: Text,
    #[serde(default)]
    expire: u32,
    #[serde(default)]
    header: Header,
    #[serde(default, deserialize_with = "flag")]
    no_persist: bool,
    #[serde(default, deserialize_with = "flag")]
    red_dot: bool,
    #[serde(default, deserialize_with = "flag")]
    sync_once: bool,
    #[serde(default)]
    subscribers: Vec<Id>,
}

pub(super) async fn send(
    axum::extract::State(state): axum::extract::State<State>,
    Body(body): Body<Send>,
) -> Response {
    let ask = match checked(&state, body) {
        Ok(ask) => ask,
        Err(text) => return send_error(StatusCode::BAD_REQUEST, text),
    };
    match state.node.ask(Ask::Send(Box::new(ask))).await {
        Answer::Sent(outcome) => sent(outcome),
        Answer::Failed(failure) => {
            let (status, text) = describe(&failure);
            send_error(status, &text)
        }
        _ => unexpected(),
    }
}

/// Receivers that one request may name: they stand in the record of its message.
const SUBSCRIBERS_MAX: usize = 1_000;

fn checked(state: &State, body: Send) -> Result<SendAsk, &'static str> {
    let flags = MessageFlags {
        no_persist: body.no_persist || body.header.no_persist,
        red_dot: body.red_dot || body.header.red_dot,
        sync_once: body.sync_once || body.header.sync_once,
    };
    if body.from_uid.is_empty() {
        return Err("invalid request: `from_uid` is empty");
    }
    if is_plugin(&body.from_uid) {
        return Err(
            "invalid request: `from_uid` is one of a plugin: `plugin:` begins the uids that only plugins send as",
        );
    }
    match (body.channel_id.is_empty(), body.subscribers.is_empty()) {
        (true, true) => return Err("invalid request: `channel_id` is empty"),
        (false, false) => return Err("invalid request: give `channel_id` or `subscribers`, not both"),
        (true, false) if !flags.sync_once => {
            return Err("invalid request: `subscribers` needs header.sync_once");
        }
        _ if body.subscribers.len() > SUBSCRIBERS_MAX => {
            return Err("invalid request: `subscribers` names too many users: make a channel of them");
        }
        _ => {}
    }
    let payload = STANDARD
        .decode(&body.payload)
        .map_err(|_| "invalid payload: it must be standard base64")?;
    if payload.is_empty() {
        return Err("invalid payload: it is empty");
    }
    if payload.len() > state.config.payload_bytes_max {
        return Err("invalid payload: it is over message.payload_bytes_max");
    }
    Ok(SendAsk {
        from_uid: Uid::new(&body.from_uid),
        channel_id: text(&body.channel_id),
        kind: ChannelKind(body.channel_type),
        subscribers: uids(&body.subscribers),
        client_msg_no: text(&body.client_msg_no),
        flags,
        setting: body.setting,
        expire_s: body.expire,
        topic: text(&body.topic),
        payload: Bytes::from(payload),
    })
}

fn sent(outcome: Outcome) -> Response {
    match outcome {
        Outcome::Committed { id, seq, .. } => Json(json!({
            "message_id": id.0,
            "message_idstr": id.0.to_string(),
            "message_seq": seq.0,
            "reason": Reason::SUCCESS.0,
        }))
        .into_response(),
        Outcome::Refused(Reason::CHANNEL_NOT_EXIST) => send_error(StatusCode::NOT_FOUND, "channel not found"),
        Outcome::Refused(Reason::NODE_NOT_MATCH | Reason::RATE_LIMITED) => {
            send_error(StatusCode::SERVICE_UNAVAILABLE, "retry required")
        }
        Outcome::Refused(Reason::CHANNEL_ID) => send_error(StatusCode::BAD_REQUEST, "invalid channel id"),
        Outcome::Refused(reason) => Json(json!({
            "message_id": 0,
            "message_seq": 0,
            "reason": reason.0,
            "reason_text": reason_text(reason),
        }))
        .into_response(),
        Outcome::Rejected { reason, text } => Json(json!({
            "message_id": 0,
            "message_seq": 0,
            "reason": reason.0,
            "reason_text": &*text,
        }))
        .into_response(),
        Outcome::Unknown => (
            StatusCode::GATEWAY_TIMEOUT,
            Json(json!({
                "error": "outcome_unknown",
                "message": "the message may or may not be stored: retry with the same client_msg_no, or ask /message/outcome",
            })),
        )
            .into_response(),
    }
}

/// Query of `GET /message/outcome`.
#[derive(Deserialize)]
pub(super) struct OutcomeOf {
    channel_id: Id,
    channel_type: u8,
    from_uid: Id,
    client_msg_no: Text,
}

/// What became of a send (SF-5): `committed` with its place, `unknown` while it is open, or `not_found`.
pub(super) async fn outcome(
    axum::extract::State(state): axum::extract::State<State>,
    Parameters(query): Parameters<OutcomeOf>,
) -> Response {
    let ask = Ask::SendOutcome {
        channel_id: text(&query.channel_id),
        kind: ChannelKind(query.channel_type),
        from_uid: Uid::new(&query.from_uid),
        client_msg_no: text(&query.client_msg_no),
    };
    match state.node.ask(ask).await {
        Answer::Sent(Outcome::Committed { id, seq, stamp_ms }) => Json(json!({
            "outcome": "committed",
            "message_id": id.0,
            "message_idstr": id.0.to_string(),
            "message_seq": seq.0,
            "timestamp": stamp_ms / 1_000,
        }))
        .into_response(),
        Answer::Sent(Outcome::Unknown) => Json(json!({ "outcome": "unknown" })).into_response(),
        Answer::Sent(Outcome::Refused(_) | Outcome::Rejected { .. }) | Answer::NoSuchSend => {
            Json(json!({ "outcome": "not_found" })).into_response()
        }
        Answer::Failed(failure) => {
            let (status, text) = describe(&failure);
            send_error(status, &text)
        }
        _ => unexpected(),
    }
}

/// Body of `POST /channel/messagesync`.
#[derive(Deserialize)]
pub(super) struct Sync {
    #[serde(default)]
    login_uid: Id,
    #[serde(default)]
    channel_id: Id,
    #[serde(default)]
    channel_type: u8,
    #[serde(default)]
    start_message_seq: u64,
    #[serde(default)]
    end_message_seq: u64,
    #[serde(default)]
    limit: u32,
    #[serde(default)]
    pull_mode: u8,
}

pub(super) async fn sync(
    axum::extract::State(state): axum::extract::State<State>,
    Body(body): Body<Sync>,
) -> Response {
    if body.login_uid.is_empty() || body.channel_id.is_empty() {
        return refusal(
            StatusCode::BAD_REQUEST,
            "`login_uid` and `channel_id` must not be empty",
        );
    }
    let limit = if body.limit == 0 { 100 } else { body.limit };
    let reader = Uid::new(&body.login_uid);
    let ask = Ask::History(HistoryQuery {
        login_uid: reader.clone(),
        channel_id: text(&body.channel_id),
        kind: ChannelKind(body.channel_type),
        start: Seq(body.start_message_seq),
        end: Seq(body.end_message_seq),
        limit,
        newer: body.pull_mode == 1,
    });
    match state.node.ask(ask).await {
        Answer::Messages {
            messages,
            more,
            gap_until,
        } => {
            let messages: Vec<Value> = messages.iter().map(|one| message(one, &reader)).collect();
            let mut answer = json!({
                "start_message_seq": body.start_message_seq,
                "end_message_seq": body.end_message_seq,
                "more": u8::from(more),
                "messages": messages,
            });
            if let Some(first) = gap_until {
                answer["gap"] = json!({ "first_kept_message_seq": first.0 });
            }
            Json(answer).into_response()
        }
        // Who may not read a channel does not learn that it exists (S7).
        Answer::Failed(Failure::Refused(Reason::NOT_SUBSCRIBER | Reason::CHANNEL_NOT_EXIST)) => refusal(
            StatusCode::BAD_REQUEST,
            "refused: there is no such channel, or `login_uid` may not read it",
        ),
        Answer::Failed(failure) => failed(&failure),
        _ => unexpected(),
    }
}
