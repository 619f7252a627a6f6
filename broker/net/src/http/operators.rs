//! Health, metrics and where to connect.

use super::State;
use super::bounded::Id;
use super::json::{Body, Parameters, refusal, unexpected};
use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use penstock_core::admin::{Answer, Ask};
use serde::Deserialize;
use serde_json::{Value, json};

/// Query of `GET /route`.
#[derive(Deserialize)]
pub(super) struct RouteOf {
    #[serde(default)]
    intranet: u8,
}

fn addresses(state: &State) -> Value {
    json!({ "tcp_addr": state.config.tcp_addr, "ws_addr": state.config.ws_addr, "wss_addr": "" })
}

pub(super) async fn route(
    axum::extract::State(state): axum::extract::State<State>,
    Parameters(query): Parameters<RouteOf>,
) -> Response {
    if query.intranet == 1 {
        return Json(json!({ "tcp_addr": state.config.tcp_addr, "ws_addr": "", "wss_addr": "" }))
            .into_response();
    }
    Json(addresses(&state)).into_response()
}

pub(super) async fn route_batch(
    axum::extract::State(state): axum::extract::State<State>,
    Body(uids): Body<Vec<Id>>,
) -> Response {
    let mut route = addresses(&state);
    route["uids"] = uids.iter().map(|uid| json!(&**uid)).collect();
    Json(json!([route])).into_response()
}

pub(super) async fn healthz() -> Response {
    Json(json!({ "status": "ok" })).into_response()
}

pub(super) async fn readyz(axum::extract::State(state): axum::extract::State<State>) -> Response {
    match state.node.ask(Ask::Ready).await {
        Answer::Ready(found) => {
            let status = if found.ready {
                StatusCode::OK
            } else {
                StatusCode::SERVICE_UNAVAILABLE
            };
            let mut answer = json!({
                "ready": found.ready,
                "copies": found.copies,
                "groups_without_leader": found.groups_without_leader,
            });
            if found.copies == 1 {
                answer["durability"] = json!("single copy");
            }
            if found.space_low {
                answer["sends"] = json!("refused: free space is below store.low_space_bytes");
            }
            if !found.ready {
                answer["reason"] = json!(found.reason);
            }
            (status, Json(answer)).into_response()
        }
        Answer::Failed(_) => refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "the node does not answer: it is starting or busy",
        ),
        _ => unexpected(),
    }
}

pub(super) async fn metrics(axum::extract::State(state): axum::extract::State<State>) -> Response {
    (
        [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
        state.node.metrics(),
    )
        .into_response()
}
