//! Inputs of calls that failed: list, show, forget.

use super::super::json::refusal;
use super::{Shared, no_binding, registry};
use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

pub(in crate::http) async fn captures(
    axum::extract::State(state): Shared,
    Path(binding): Path<String>,
) -> Response {
    if let Err(response) = known(&state, &binding).await {
        return response;
    }
    Json(json!({ "captures": state.node.plugins().captures(&binding) })).into_response()
}

pub(in crate::http) async fn capture(
    axum::extract::State(state): Shared,
    Path((binding, id)): Path<(String, String)>,
) -> Response {
    if let Err(response) = known(&state, &binding).await {
        return response;
    }
    match state.node.plugins().capture(&binding, &id) {
        Some(capture) => Json(capture).into_response(),
        None => refusal(
            StatusCode::NOT_FOUND,
            "no capture has this id here: newer ones took its place, it was taken by another node, or this one was restarted",
        ),
    }
}

pub(in crate::http) async fn clear(
    axum::extract::State(state): Shared,
    Path(binding): Path<String>,
) -> Response {
    if let Err(response) = known(&state, &binding).await {
        return response;
    }
    let removed = state.node.plugins().clear_captures(&binding);
    Json(json!({ "status": 200, "removed": removed })).into_response()
}

async fn known(state: &super::State, binding: &str) -> Result<(), Response> {
    match registry(state).await?.binding(binding) {
        Some(_) => Ok(()),
        None => Err(no_binding()),
    }
}
