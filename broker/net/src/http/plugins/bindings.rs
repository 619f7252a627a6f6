//! Bindings: where a plugin takes part.

use super::super::State;
use super::super::json::{Body, refusal};
use super::{Shared, apply, no_binding, registry, shown};
use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use penstock_core::hooks::pipeline::{Failure, OnError, Policy};
use penstock_core::hooks::registry::{
    Binding, Captured, Change, DisabledBy, Events, Hook, PATIENCE, Pattern, ROUTE_DEADLINE_MAX, Selector,
    StartAt,
};
use penstock_core::types::Uid;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How long a call may take when the binding does not say, ms.
const DEADLINE_MS: u64 = 200;
/// Attempts before a message is given up when the binding does not say.
const ATTEMPTS_MAX: u32 = 10;
/// The same for webhooks: the answer of an endpoint takes longer, and its attempts are bounded by a time.
const WEBHOOK_DEADLINE_MS: u64 = 15_000;
const WEBHOOK_ATTEMPTS_MAX: u32 = 0;
const PATIENCE_S: u64 = 24 * 3_600;
/// The same for requests over HTTP.
const ROUTE_DEADLINE_MS: u64 = 5_000;
/// The grant to answer requests without the API key.
const PUBLIC: &str = "route:public";

/// A binding as an operator writes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Wanted {
    plugin: String,
    hook: String,
    #[serde(default)]
    selector: WantedSelector,
    #[serde(default)]
    priority: i32,
    deadline_ms: Option<u64>,
    #[serde(default)]
    on_error: OnErrorOf,
    #[serde(default)]
    grants: BTreeSet<String>,
    #[serde(default)]
    config: Map<String, Value>,
    start: Option<StartOf>,
    attempts_max: Option<u32>,
    #[serde(default)]
    exact: bool,
    inline: Option<bool>,
    patience_s: Option<u64>,
    #[serde(default)]
    own_messages: bool,
    capture: Option<String>,
    /// What it must still be at; without it, what it is at now.
    revision: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WantedSelector {
    #[serde(default)]
    channel_types: BTreeSet<u8>,
    #[serde(default)]
    channel_ids: BTreeSet<String>,
    #[serde(default)]
    uids: BTreeSet<String>,
}

/// One policy for every class, or some by class; the others refuse.
#[derive(Deserialize)]
#[serde(untagged)]
enum OnErrorOf {
    All(PolicyOf),
    Some(BTreeMap<ClassOf, PolicyOf>),
}

impl Default for OnErrorOf {
    fn default() -> OnErrorOf {
        OnErrorOf::All(PolicyOf::Reject)
    }
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum PolicyOf {
    Reject,
    Allow,
    Skip,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "kebab-case")]
enum ClassOf {
    Timeout,
    Trap,
    Memory,
    BadOutput,
    Busy,
    NotReady,
    HostError,
    Suspended,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum StartOf {
    Latest,
    Earliest,
    Seq(u64),
    TimeMs(u64),
}

pub(in crate::http) async fn bindings(axum::extract::State(state): Shared) -> Response {
    match registry(&state).await {
        Ok(registry) => {
            let bindings = registry.bindings().iter().map(|bound| shown::bound(bound));
            Json(json!({ "revision": registry.revision, "bindings": bindings.collect::<Value>() }))
                .into_response()
        }
        Err(response) => response,
    }
}

pub(in crate::http) async fn bind(
    axum::extract::State(state): Shared,
    Path(id): Path<String>,
    Body(wanted): Body<Wanted>,
) -> Response {
    let expected_revision = match revision(&state, &id, wanted.revision).await {
        Ok(revision) => revision,
        Err(response) => return response,
    };
    let wanted = binding(&id, wanted).and_then(|binding| {
        state.node.plugins().check(&binding)?;
        Ok(binding)
    });
    match wanted {
        Ok(binding) => {
            let change = Change::Bind {
                binding: Box::new(binding),
                expected_revision,
            };
            apply(&state, change).await
        }
        Err(why) => refusal(StatusCode::BAD_REQUEST, &why),
    }
}

pub(in crate::http) async fn unbind(axum::extract::State(state): Shared, Path(id): Path<String>) -> Response {
    match revision(&state, &id, None).await {
        Ok(expected_revision) => {
            let change = Change::Unbind {
                id: Arc::from(id),
                expected_revision,
            };
            apply(&state, change).await
        }
        Err(response) => response,
    }
}

/// Enable, disable: of a binding that follows channels.
pub(in crate::http) async fn switch(
    axum::extract::State(state): Shared,
    Path((id, action)): Path<(String, String)>,
    body: Bytes,
) -> Response {
    if action == "replay" {
        return super::letters::replay_range(&state, &id, &body).await;
    }
    let registry = match registry(&state).await {
        Ok(registry) => registry,
        Err(response) => return response,
    };
    let Some(bound) = registry.binding(&id) else {
        return no_binding();
    };
    let id = Arc::from(id);
    let change = match action.as_str() {
        "enable" => Change::Enable {
            id,
            expected_revision: bound.revision,
        },
        "disable" => Change::Disable {
            id,
            incarnation: bound.incarnation,
            generation: bound.generation,
            by: DisabledBy::Operator,
        },
        _ => {
            return refusal(
                StatusCode::NOT_FOUND,
                "there is no such change: enable, disable, replay",
            );
        }
    };
    apply(&state, change).await
}

async fn revision(state: &State, id: &str, named: Option<u64>) -> Result<u64, Response> {
    if let Some(revision) = named {
        return Ok(revision);
    }
    let registry = registry(state).await?;
    Ok(registry.binding(id).map_or(0, |bound| bound.revision))
}

fn binding(id: &str, wanted: Wanted) -> Result<Binding, String> {
    let hook = Hook::named(&wanted.hook).ok_or_else(|| {
        let names = Hook::ALL.map(Hook::name);
        format!("hook `{}`: one of {}", wanted.hook, names.join(", "))
    })?;
    let (deadline_ms, attempts_max) = match hook {
        Hook::Webhook => (WEBHOOK_DEADLINE_MS, WEBHOOK_ATTEMPTS_MAX),
        Hook::Route => (ROUTE_DEADLINE_MS, ATTEMPTS_MAX),
        Hook::BeforeSend | Hook::PersistAfter | Hook::Connect | Hook::Offline => (DEADLINE_MS, ATTEMPTS_MAX),
    };
    let deadline = Duration::from_millis(wanted.deadline_ms.unwrap_or(deadline_ms));
    let public = wanted.grants.contains(PUBLIC);
    check_route(hook, &wanted.selector, deadline, public)?;
    let patience = Duration::from_secs(wanted.patience_s.unwrap_or(PATIENCE_S));
    if !PATIENCE.contains(&patience) {
        let (least, most) = (PATIENCE.start().as_secs(), PATIENCE.end().as_secs());
        return Err(format!("patience_s: from {least} to {most}"));
    }
    let WantedSelector {
        channel_types,
        channel_ids,
        ..
    } = &wanted.selector;
    if hook == Hook::Connect && !(channel_types.is_empty() && channel_ids.is_empty()) {
        return Err(
            "selector: who connects is in no channel yet, so `connect` takes `uids` alone, and no `channel_types` or `channel_ids`"
                .to_owned(),
        );
    }
    let events = match hook {
        Hook::Webhook => events(wanted.config.get("events"))?,
        Hook::BeforeSend | Hook::PersistAfter | Hook::Connect | Hook::Offline | Hook::Route => {
            Events::default()
        }
    };
    let bytes = |value: &Value| Bytes::from(value.to_string());
    // Changes of keys are exact only in windows that are fixed, and told of offline recipients nobody changes any.
    let exact = (wanted.exact && hook != Hook::Offline)
        || (hook == Hook::PersistAfter && wanted.grants.contains("kv"));
    Ok(Binding {
        id: Arc::from(id),
        plugin: Arc::from(wanted.plugin),
        hook,
        selector: Selector {
            kinds: wanted.selector.channel_types,
            ids: wanted.selector.channel_ids.into_iter().map(Pattern).collect(),
            uids: wanted.selector.uids.iter().map(|uid| Uid::new(uid)).collect(),
        },
        priority: wanted.priority,
        deadline,
        on_error: on_error(&wanted.on_error),
        grants: bytes(&json!(wanted.grants)),
        config: bytes(&Value::Object(wanted.config)),
        start: match wanted.start {
            None | Some(StartOf::Latest) => None,
            Some(StartOf::Earliest) => Some(StartAt::Earliest),
            Some(StartOf::Seq(seq)) => Some(StartAt::Seq(seq)),
            Some(StartOf::TimeMs(ms)) => Some(StartAt::Time(ms)),
        },
        attempts_max: wanted.attempts_max.unwrap_or(attempts_max),
        exact,
        patience,
        inline: wanted.inline.unwrap_or(true),
        public,
        events,
        own_messages: wanted.own_messages,
        capture: captured(wanted.capture.as_deref())?,
    })
}

/// What is captured of the input of a failed call.
fn captured(wanted: Option<&str>) -> Result<Captured, String> {
    let Some(wanted) = wanted else {
        return Ok(Captured::default());
    };
    Captured::named(wanted).ok_or_else(|| {
        let names = Captured::ALL.map(Captured::name);
        format!("capture `{wanted}`: one of {}", names.join(", "))
    })
}

/// What is said of a route alone, and what cannot be said of one.
fn check_route(
    hook: Hook,
    selector: &WantedSelector,
    deadline: Duration,
    public: bool,
) -> Result<(), String> {
    if hook != Hook::Route {
        return match public {
            true => Err(format!("grants: `{PUBLIC}` is for the hook `route` alone")),
            false => Ok(()),
        };
    }
    let WantedSelector {
        channel_types,
        channel_ids,
        uids,
    } = selector;
    if !(channel_types.is_empty() && channel_ids.is_empty() && uids.is_empty()) {
        return Err(
            "selector: a request over HTTP is of no channel and no user, so `route` takes none: leave it out"
                .to_owned(),
        );
    }
    if deadline > ROUTE_DEADLINE_MAX {
        let most = ROUTE_DEADLINE_MAX.as_millis();
        return Err(format!("deadline_ms: at most {most} for the hook `route`"));
    }
    Ok(())
}

/// The events that the configuration of a webhook names; without any, those that are the rule.
fn events(wanted: Option<&Value>) -> Result<Events, String> {
    let Some(wanted) = wanted else {
        return Ok(Events::default());
    };
    let names = wanted.as_array().map(Vec::as_slice).unwrap_or_default();
    let known = |events: Events, name: &Value| events.with(name.as_str()?);
    let events = names.iter().try_fold(Events::NONE, known);
    let events = events.filter(|_| wanted.is_array());
    events.ok_or_else(|| format!("config: `events`: a list of {}", Events::NAMES.join(", ")))
}

fn on_error(wanted: &OnErrorOf) -> OnError {
    match wanted {
        OnErrorOf::All(policy) => OnError::all(policy_of(*policy)),
        OnErrorOf::Some(classes) => classes
            .iter()
            .fold(OnError::all(Policy::Reject), |all, (class, policy)| {
                all.with(failure_of(*class), policy_of(*policy))
            }),
    }
}

const fn policy_of(policy: PolicyOf) -> Policy {
    match policy {
        PolicyOf::Reject => Policy::Reject,
        PolicyOf::Allow => Policy::Allow,
        PolicyOf::Skip => Policy::Skip,
    }
}

const fn failure_of(class: ClassOf) -> Failure {
    match class {
        ClassOf::Timeout => Failure::Timeout,
        ClassOf::Trap => Failure::Trap,
        ClassOf::Memory => Failure::Memory,
        ClassOf::BadOutput => Failure::BadOutput,
        ClassOf::Busy => Failure::Busy,
        ClassOf::NotReady => Failure::NotReady,
        ClassOf::HostError => Failure::Host,
        ClassOf::Suspended => Failure::Suspended,
    }
}
