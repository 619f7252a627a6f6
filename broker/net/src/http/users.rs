//! `/user/…`

use super::State;
use super::bounded::{Id, Text, text, uids};
use super::json::{Body, changed, done, failed, refusal, unexpected};
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use penstock_core::admin::{Answer, Ask};
use penstock_core::client::Secret;
use penstock_core::types::{DeviceFlag, DeviceLevel, Uid};
use serde::Deserialize;
use serde_json::{Value, json};

/// Body of `POST /user/token`.
#[derive(Deserialize)]
pub(super) struct Token {
    #[serde(default)]
    uid: Id,
    #[serde(default)]
    token: Text,
    #[serde(default)]
    device_flag: u8,
    #[serde(default)]
    device_level: u8,
}

pub(super) async fn token(
    axum::extract::State(state): axum::extract::State<State>,
    Body(body): Body<Token>,
) -> Response {
    if body.device_level > 1 {
        return refusal(
            StatusCode::BAD_REQUEST,
            "`device_level` must be 0 (slave) or 1 (master)",
        );
    }
    let level = if body.device_level == 1 {
        DeviceLevel::Master
    } else {
        DeviceLevel::Slave
    };
    let ask = Ask::SetToken {
        uid: Uid::new(&body.uid),
        token: Secret(text(&body.token)),
        flag: DeviceFlag(body.device_flag),
        level,
    };
    changed(state.node.ask(ask).await)
}

/// Body of `POST /user/device_quit`.
#[derive(Deserialize)]
pub(super) struct DeviceQuit {
    uid: Id,
    device_flag: i16,
}

pub(super) async fn device_quit(
    axum::extract::State(state): axum::extract::State<State>,
    Body(body): Body<DeviceQuit>,
) -> Response {
    let flag = match (body.device_flag, u8::try_from(body.device_flag)) {
        (-1, _) => None,
        (_, Ok(flag)) => Some(DeviceFlag(flag)),
        _ => {
            return refusal(
                StatusCode::BAD_REQUEST,
                "`device_flag` must be -1 (all), 0, 1 or 2",
            );
        }
    };
    changed(
        state
            .node
            .ask(Ask::DeviceQuit {
                uid: Uid::new(&body.uid),
                flag,
            })
            .await,
    )
}

pub(super) async fn online_status(
    axum::extract::State(state): axum::extract::State<State>,
    Body(body): Body<Vec<Id>>,
) -> Response {
    if body.is_empty() {
        return done();
    }
    match state.node.ask(Ask::OnlineStatus(uids(&body))).await {
        Answer::Online(found) => {
            let list: Vec<Value> = found
                .iter()
                .map(|(uid, flag)| json!({ "uid": uid.as_str(), "device_flag": flag.0, "online": 1 }))
                .collect();
            Json(list).into_response()
        }
        Answer::Failed(failure) => failed(&failure),
        _ => unexpected(),
    }
}

pub(super) async fn system_uids(axum::extract::State(state): axum::extract::State<State>) -> Response {
    match state.node.ask(Ask::SystemUids).await {
        Answer::Uids(found) => {
            Json(found.iter().map(|uid| json!(uid.as_str())).collect::<Vec<_>>()).into_response()
        }
        Answer::Failed(failure) => failed(&failure),
        _ => unexpected(),
    }
}

/// `{"uids":[…]}`.
#[derive(Deserialize)]
pub(super) struct Uids {
    #[serde(default)]
    uids: Vec<Id>,
}

pub(super) async fn system_uids_add(
    axum::extract::State(state): axum::extract::State<State>,
    Body(body): Body<Uids>,
) -> Response {
    change_system_uids(&state, &body, true).await
}

pub(super) async fn system_uids_remove(
    axum::extract::State(state): axum::extract::State<State>,
    Body(body): Body<Uids>,
) -> Response {
    change_system_uids(&state, &body, false).await
}

async fn change_system_uids(state: &State, body: &Uids, add: bool) -> Response {
    if body.uids.is_empty() || body.uids.iter().any(|uid| uid.is_empty()) {
        return refusal(
            StatusCode::BAD_REQUEST,
            "`uids` must be a list of uids that are not empty",
        );
    }
    changed(
        state
            .node
            .ask(Ask::ChangeSystemUids {
                uids: uids(&body.uids),
                add,
            })
            .await,
    )
}
