//! Keys of plugins, as operators see and change them.

use super::super::json::{Body, Parameters, done, failed, refusal, unexpected};
use super::{Page, Shared};
use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use penstock_core::admin::{Answer, Ask, KeyPlace, KeysAsk, PluginKey};
use penstock_core::hooks::registry::{KeyOperation, KeyOutcome, KeyValue, VALUE_BYTES_MAX};
use penstock_core::types::SlotId;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Body of a change: a value in base64, with some room.
pub(in crate::http) const KEY_BODY_BYTES_MAX: usize = 2 * VALUE_BYTES_MAX;

/// What a key is to be.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Wanted {
    value: Option<String>,
    value_base64: Option<String>,
    increment: Option<i64>,
    #[serde(default)]
    ttl_ms: u64,
}

pub(in crate::http) async fn keys(
    axum::extract::State(state): Shared,
    Path(plugin): Path<String>,
    Parameters(page): Parameters<Page>,
) -> Response {
    let after = match page.after.as_deref().map(place) {
        None => None,
        Some(Some(place)) => Some(place),
        Some(None) => return refusal(StatusCode::BAD_REQUEST, "after: `next` of the page before"),
    };
    let ask = KeysAsk::List {
        plugin: Arc::from(plugin),
        after,
        limit: page.limit(),
    };
    match state.node.ask(Ask::Keys(ask)).await {
        Answer::Keys { keys, next } => Json(json!({
            "keys": keys.iter().map(listed).collect::<Value>(),
            "next": next.map(|next| shown(&next)),
        }))
        .into_response(),
        Answer::Failed(failure) => failed(&failure),
        _ => unexpected(),
    }
}

pub(in crate::http) async fn key(
    axum::extract::State(state): Shared,
    Path((plugin, key)): Path<(String, String)>,
) -> Response {
    let ask = KeysAsk::Get {
        plugin: Arc::from(plugin),
        key: Arc::from(key),
    };
    match state.node.ask(Ask::Keys(ask)).await {
        Answer::Key(Some(found)) => {
            let mut answer = listed(&found);
            answer["value_base64"] = json!(STANDARD.encode(&found.value));
            if let Ok(text) = std::str::from_utf8(&found.value) {
                answer["value"] = json!(text);
            }
            Json(answer).into_response()
        }
        Answer::Key(None) => refusal(StatusCode::NOT_FOUND, "the plugin has no such key"),
        Answer::Failed(failure) => failed(&failure),
        _ => unexpected(),
    }
}

/// Gives a key a value, or adds to its number.
pub(in crate::http) async fn set(
    axum::extract::State(state): Shared,
    Path((plugin, key)): Path<(String, String)>,
    Body(wanted): Body<Wanted>,
) -> Response {
    let operation = match operation(wanted) {
        Ok(operation) => operation,
        Err(why) => return refusal(StatusCode::BAD_REQUEST, why),
    };
    let ask = KeysAsk::Change {
        plugin: Arc::from(plugin),
        key: Arc::from(key),
        operation,
    };
    match state.node.ask(Ask::Keys(ask)).await {
        Answer::KeyChanged(KeyOutcome::Sum(sum)) => {
            Json(json!({ "status": 200, "value": sum.to_string() })).into_response()
        }
        Answer::KeyChanged(_) => done(),
        Answer::Failed(failure) => failed(&failure),
        _ => unexpected(),
    }
}

pub(in crate::http) async fn delete(
    axum::extract::State(state): Shared,
    Path((plugin, key)): Path<(String, String)>,
) -> Response {
    let ask = KeysAsk::Change {
        plugin: Arc::from(plugin),
        key: Arc::from(key),
        operation: KeyOperation::Delete,
    };
    match state.node.ask(Ask::Keys(ask)).await {
        Answer::KeyChanged(_) => done(),
        Answer::Failed(failure) => failed(&failure),
        _ => unexpected(),
    }
}

fn operation(wanted: Wanted) -> Result<KeyOperation, &'static str> {
    let value = match (wanted.value, wanted.value_base64, wanted.increment) {
        (Some(text), None, None) => Bytes::from(text),
        (None, Some(text), None) => STANDARD
            .decode(text)
            .map(Bytes::from)
            .map_err(|_| "value_base64: not base64")?,
        (None, None, Some(by)) if wanted.ttl_ms == 0 => return Ok(KeyOperation::Increment(by)),
        (None, None, Some(_)) => return Err("ttl_ms: of a value that is set, not of an increment"),
        _ => return Err("one of `value`, `value_base64` and `increment`"),
    };
    let ttl_ms = wanted.ttl_ms;
    Ok(KeyOperation::Set(KeyValue { value, ttl_ms }))
}

fn listed(key: &PluginKey) -> Value {
    json!({
        "key": &*key.key,
        "bytes": key.value.len(),
        "expires_ms": key.expires_ms,
    })
}

/// A place of a list as people hand it back.
fn shown(place: &KeyPlace) -> String {
    match &place.key {
        None => place.slot.0.to_string(),
        Some(key) => format!("{}:{key}", place.slot.0),
    }
}

fn place(text: &str) -> Option<KeyPlace> {
    let (slot, key) = match text.split_once(':') {
        None => (text, None),
        Some((slot, key)) => (slot, Some(Arc::from(key))),
    };
    let slot = SlotId(slot.parse().ok()?);
    Some(KeyPlace { slot, key })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_is_shown() {
        for key in [None, Some(""), Some("a:b/c")] {
            let place_of = KeyPlace {
                slot: SlotId(77),
                key: key.map(Arc::from),
            };
            assert_eq!(place(&shown(&place_of)), Some(place_of));
        }
        for wrong in ["", "x", ":a", "-1", "70000"] {
            assert_eq!(place(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_wish_is_for_one_thing() {
        let wish = |text: &str| operation(serde_json::from_str(text).expect("a wish"));
        let seven = KeyValue {
            value: Bytes::from_static(b"7"),
            ttl_ms: 5,
        };
        assert_eq!(
            wish(r#"{"value":"7","ttl_ms":5}"#),
            Ok(KeyOperation::Set(seven.clone()))
        );
        assert_eq!(
            wish(r#"{"value_base64":"Nw==","ttl_ms":5}"#),
            Ok(KeyOperation::Set(seven))
        );
        assert_eq!(wish(r#"{"increment":-2}"#), Ok(KeyOperation::Increment(-2)));
        for wrong in [
            "{}",
            r#"{"value":"7","increment":1}"#,
            r#"{"increment":1,"ttl_ms":5}"#,
            r#"{"value_base64":"?"}"#,
        ] {
            assert!(wish(wrong).is_err(), "{wrong}");
        }
    }
}
