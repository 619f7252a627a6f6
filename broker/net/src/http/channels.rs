//! `/channel/…`

use super::State;
use super::bounded::{Id, text, uids};
use super::json::{Body, Parameters, changed, failed, flag, refusal, unexpected};
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use penstock_core::admin::{Answer, Ask, ChannelFlags, List, ListChange};
use penstock_core::types::ChannelKind;
use serde::Deserialize;
use serde_json::json;

/// A channel and its flags.
#[derive(Deserialize)]
pub(super) struct Channel {
    #[serde(default)]
    channel_id: Id,
    #[serde(default)]
    channel_type: u8,
    #[serde(default, deserialize_with = "flag")]
    large: bool,
    #[serde(default, deserialize_with = "flag")]
    ban: bool,
    #[serde(default, deserialize_with = "flag")]
    disband: bool,
    #[serde(default, deserialize_with = "flag")]
    send_ban: bool,
    #[serde(default, deserialize_with = "flag")]
    allow_stranger: bool,
    #[serde(default, deserialize_with = "flag")]
    reset: bool,
    #[serde(default)]
    subscribers: Vec<Id>,
}

impl Channel {
    fn flags(&self) -> ChannelFlags {
        ChannelFlags {
            large: self.large,
            ban: self.ban,
            disband: self.disband,
            send_ban: self.send_ban,
            allow_stranger: self.allow_stranger,
        }
    }

    fn ask(&self, reset: bool, subscribers: &[Id]) -> Ask {
        Ask::PutChannel {
            channel_id: text(&self.channel_id),
            kind: ChannelKind(self.channel_type),
            flags: self.flags(),
            reset,
            subscribers: uids(subscribers),
        }
    }
}

pub(super) async fn put(
    axum::extract::State(state): axum::extract::State<State>,
    Body(body): Body<Channel>,
) -> Response {
    changed(state.node.ask(body.ask(body.reset, &body.subscribers)).await)
}

pub(super) async fn info(
    axum::extract::State(state): axum::extract::State<State>,
    Body(body): Body<Channel>,
) -> Response {
    changed(state.node.ask(body.ask(false, &[])).await)
}

pub(super) async fn delete(
    axum::extract::State(state): axum::extract::State<State>,
    Body(body): Body<Channel>,
) -> Response {
    let ask = Ask::DeleteChannel {
        channel_id: text(&body.channel_id),
        kind: ChannelKind(body.channel_type),
    };
    changed(state.node.ask(ask).await)
}

/// A change of a member list; subscribers and uids are the same thing by two names.
#[derive(Deserialize)]
pub(super) struct Members {
    #[serde(default)]
    channel_id: Id,
    #[serde(default)]
    channel_type: u8,
    #[serde(default, deserialize_with = "flag")]
    reset: bool,
    #[serde(default)]
    subscribers: Vec<Id>,
    #[serde(default)]
    uids: Vec<Id>,
    #[serde(default, deserialize_with = "flag")]
    temp_subscriber: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Add,
    Remove,
    Set,
    Clear,
}

async fn change(state: &State, body: &Members, list: List, how: How) -> Response {
    let members = if list == List::Subscribers {
        &body.subscribers
    } else {
        &body.uids
    };
    let name = if list == List::Subscribers {
        "subscribers"
    } else {
        "uids"
    };
    if body.temp_subscriber {
        return refusal(StatusCode::BAD_REQUEST, "`temp_subscriber` is not supported");
    }
    let needs_some = matches!(how, How::Add | How::Remove);
    if (needs_some && members.is_empty()) || members.iter().any(|uid| uid.trim().is_empty()) {
        return refusal(
            StatusCode::BAD_REQUEST,
            &format!("`{name}` must be a list of uids that are not blank"),
        );
    }
    // Existing backends leave the type out for groups.
    let kind = if body.channel_type == 0 && list == List::Subscribers {
        2
    } else {
        body.channel_type
    };
    let members = uids(members);
    let change = match how {
        How::Add => ListChange::Add(members),
        How::Remove => ListChange::Remove(members),
        How::Set => ListChange::Set(members),
        How::Clear => ListChange::Clear,
    };
    let ask = Ask::ChangeList {
        channel_id: text(&body.channel_id),
        kind: ChannelKind(kind),
        list,
        change,
    };
    changed(state.node.ask(ask).await)
}

macro_rules! member_routes {
    ($($name:ident => ($list:expr, $how:expr)),+ $(,)?) => {
        $(
            pub(super) async fn $name(
                axum::extract::State(state): axum::extract::State<State>,
                Body(body): Body<Members>,
            ) -> Response {
                change(&state, &body, $list, $how).await
            }
        )+
    };
}

member_routes! {
    subscriber_remove => (List::Subscribers, How::Remove),
    subscriber_remove_all => (List::Subscribers, How::Clear),
    blacklist_add => (List::Deny, How::Add),
    blacklist_set => (List::Deny, How::Set),
    blacklist_remove => (List::Deny, How::Remove),
    blacklist_remove_all => (List::Deny, How::Clear),
    whitelist_add => (List::Allow, How::Add),
    whitelist_set => (List::Allow, How::Set),
    whitelist_remove => (List::Allow, How::Remove),
    whitelist_remove_all => (List::Allow, How::Clear),
}

pub(super) async fn subscriber_add(
    axum::extract::State(state): axum::extract::State<State>,
    Body(body): Body<Members>,
) -> Response {
    let how = if body.reset { How::Set } else { How::Add };
    if body.subscribers.is_empty() {
        return refusal(
            StatusCode::BAD_REQUEST,
            "`subscribers` must be a list of uids that are not blank",
        );
    }
    change(&state, &body, List::Subscribers, how).await
}

/// Which list.
#[derive(Deserialize)]
pub(super) struct Named {
    #[serde(default)]
    channel_id: Id,
    #[serde(default)]
    channel_type: u8,
}

pub(super) async fn whitelist(
    axum::extract::State(state): axum::extract::State<State>,
    Parameters(query): Parameters<Named>,
) -> Response {
    let ask = Ask::ReadList {
        channel_id: text(&query.channel_id),
        kind: ChannelKind(query.channel_type),
        list: List::Allow,
    };
    match state.node.ask(ask).await {
        Answer::Uids(found) => Json(
            found
                .iter()
                .map(|uid| json!({ "uid": uid.as_str() }))
                .collect::<Vec<_>>(),
        )
        .into_response(),
        Answer::Failed(failure) => failed(&failure),
        _ => unexpected(),
    }
}
