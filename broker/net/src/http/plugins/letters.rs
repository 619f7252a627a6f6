//! Messages that were given up for a binding: list, hand out once more, forget.

use super::super::json::{Body, Parameters, failed, refusal, unexpected};
use super::{Page, Shared, State};
use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use penstock_core::admin::{Answer, Ask, LettersAsk};
use penstock_core::hooks::registry::{DeadLetter, Events, LetterName, Told};
use penstock_core::types::{ChannelKey, ChannelKind, Incarnation, Seq};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Letters that one request may forget.
const DROPPED_MAX: usize = 1_000;

/// Which letters: one with its channel to be handed out, or some to be forgotten.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Which {
    #[serde(default)]
    id: String,
    #[serde(default)]
    channel_id: String,
    #[serde(default)]
    channel_type: u8,
    #[serde(default)]
    ids: Vec<String>,
}

pub(in crate::http) async fn letters(
    axum::extract::State(state): Shared,
    Path(binding): Path<String>,
    Parameters(page): Parameters<Page>,
) -> Response {
    let after = match page.after.as_deref().map(name_of) {
        None => None,
        Some(Some(name)) => Some(name),
        Some(None) => return no_name(),
    };
    let ask = LettersAsk::List {
        binding: Arc::from(binding),
        after,
        limit: page.limit(),
    };
    match state.node.ask(Ask::DeadLetters(ask)).await {
        Answer::DeadLetters { letters, more } => Json(json!({
            "dead_letters": letters.iter().map(letter).collect::<Value>(),
            "more": more,
        }))
        .into_response(),
        Answer::Failed(failure) => failed(&failure),
        _ => unexpected(),
    }
}

/// Replay or drop.
pub(in crate::http) async fn change(
    axum::extract::State(state): Shared,
    Path((binding, action)): Path<(String, String)>,
    Body(which): Body<Which>,
) -> Response {
    let binding = Arc::from(binding);
    let ask = match action.as_str() {
        "replay" => name_of(&which.id).map(|name| LettersAsk::Replay {
            binding,
            channel: ChannelKey::new(&which.channel_id, ChannelKind(which.channel_type)),
            name,
        }),
        "drop" => {
            let ids = std::iter::once(&which.id)
                .filter(|id| !id.is_empty())
                .chain(&which.ids);
            let names: Option<Vec<LetterName>> = ids.map(|id| name_of(id)).collect();
            let names = names.filter(|names| (1..=DROPPED_MAX).contains(&names.len()));
            names.map(|names| LettersAsk::Drop { binding, names })
        }
        _ => return refusal(StatusCode::NOT_FOUND, "there is no such change: replay, drop"),
    };
    let Some(ask) = ask else {
        return no_name();
    };
    match state.node.ask(Ask::DeadLetters(ask)).await {
        Answer::Done => Json(json!({ "status": 200 })).into_response(),
        Answer::Failed(failure) => failed(&failure),
        _ => unexpected(),
    }
}

/// A range of committed messages of a channel.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    channel_id: String,
    channel_type: u8,
    from: u64,
    to: u64,
}

/// Has a webhook deliver a range once more, as much of it as one delivery holds.
pub(super) async fn replay_range(state: &State, binding: &str, body: &[u8]) -> Response {
    let range: Range = match serde_json::from_slice(body) {
        Ok(range) => range,
        Err(error) => return refusal(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let ask = LettersAsk::Range {
        binding: Arc::from(binding),
        channel: ChannelKey::new(&range.channel_id, ChannelKind(range.channel_type)),
        from: Seq(range.from),
        through: Seq(range.to),
    };
    match state.node.ask(Ask::DeadLetters(ask)).await {
        Answer::Replayed { through } => Json(json!({ "status": 200, "through": through.0 })).into_response(),
        Answer::Failed(failure) => failed(&failure),
        _ => unexpected(),
    }
}

fn no_name() -> Response {
    refusal(
        StatusCode::BAD_REQUEST,
        "id: of a dead letter as the list shows it; to drop also `ids`, 1 to 1,000",
    )
}

/// Its id for people: creation of the binding, creation of the channel, position.
fn id(name: LetterName) -> String {
    format!(
        "{}-{}-{}",
        name.binding_incarnation, name.incarnation.0, name.seq.0
    )
}

fn name_of(id: &str) -> Option<LetterName> {
    let mut numbers = id.split('-').map(|part| part.parse::<u64>().ok());
    let name = LetterName {
        binding_incarnation: numbers.next()??,
        incarnation: Incarnation(numbers.next()??),
        seq: Seq(numbers.next()??),
    };
    numbers.next().is_none().then_some(name)
}

fn letter(letter: &DeadLetter) -> Value {
    json!({
        "id": id(letter.name),
        "channel_id": &*letter.channel.id,
        "channel_type": letter.channel.kind.0,
        "message_seq": letter.name.seq.0,
        "attempts": letter.attempts,
        "cause": letter.cause.name(),
        "given_up_ms": letter.wall_ms,
        "event": (letter.name.of().1 == Told::Offline).then_some(Events::NAMES[1]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_what_it_was_made_of() {
        let name = LetterName {
            binding_incarnation: 12,
            incarnation: Incarnation(u64::MAX),
            seq: Seq(7),
        };
        assert_eq!(name_of(&id(name)), Some(name));
        for wrong in ["", "1-2", "1-2-3-4", "1-2-x", "1--3", "-1-2-3"] {
            assert_eq!(name_of(wrong), None, "{wrong}");
        }
    }
}
