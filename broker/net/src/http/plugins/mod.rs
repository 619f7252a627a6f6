//! Plugins and bindings: upload, rollout, status.

mod bindings;
mod captures;
mod keys;
mod letters;
mod routes;
mod shown;

pub(super) use bindings::{bind, bindings, switch, unbind};
pub(super) use captures::{capture, captures, clear as clear_captures};
pub(super) use keys::{KEY_BODY_BYTES_MAX, delete as delete_key, key, keys, set as set_key};
pub(super) use letters::{change as change_letter, letters};
pub(super) use routes::answer;

use super::State;
use super::json::{Body, failed, refusal, unexpected};
use axum::Json;
use axum::body::Bytes;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use penstock_core::admin::{Answer, Ask, Failure};
use penstock_core::hooks::call::Digest;
use penstock_core::hooks::registry::{Artifact, Binding, Change, Proposal, Refused, Registry};
use serde::Deserialize;
use serde_json::{Value, json};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// Largest component that is taken, bytes; a little more than the plugin host takes, so that its own error is seen.
pub(super) const UPLOAD_BYTES_MAX: usize = (32 << 20) + (1 << 20);

/// What the API needs of the node's plugin host. Refusals are words for people.
pub trait Plugins: Send + Sync + 'static {
    /// Keeps a component and says what it is.
    fn upload(&self, bytes: Bytes) -> Pin<Box<dyn Future<Output = Result<Artifact, String>> + Send + '_>>;
    /// What an uploaded component is; none when it was not uploaded.
    fn artifact(
        &self,
        digest: Digest,
    ) -> Pin<Box<dyn Future<Output = Result<Option<Artifact>, String>> + Send + '_>>;
    /// Waits, within a bound, until this node runs what this revision of the registry names, or found that it cannot. Whether it is done.
    fn settled(&self, revision: u64) -> Pin<Box<dyn Future<Output = bool> + Send + '_>>;
    /// Whether this node could do what a binding wants of it besides running the plugin.
    ///
    /// # Errors
    /// Why not.
    fn check(&self, binding: &Binding) -> Result<(), String>;
    /// State and counts of the versions on this node.
    fn status(&self) -> Value;
    /// How far each binding that follows channels is behind on this node.
    fn following(&self) -> Value;
    /// Lines that the versions of a binding logged on this node.
    fn logs(&self, binding: &str) -> Value;
    /// Inputs of the failed calls of a binding on this node, newest first, without what stands in them.
    fn captures(&self, binding: &str) -> Value;
    /// A whole one; none when there is none with this id.
    fn capture(&self, binding: &str, id: &str) -> Option<Value>;
    /// Forgets those of a binding. How many there were.
    fn clear_captures(&self, binding: &str) -> usize;
    /// The contract that plugins may be built against.
    fn api(&self) -> Value;
}

type Shared = axum::extract::State<State>;

/// Entries of a list's page when none is said, and at most.
const PAGE: u32 = 100;
const PAGE_MAX: u32 = 1_000;

/// Query of a list that is read page by page.
#[derive(Deserialize)]
pub(super) struct Page {
    after: Option<String>,
    limit: Option<u32>,
}

impl Page {
    fn limit(&self) -> u32 {
        self.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX)
    }
}

/// A change of one plugin.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wish {
    /// What was uploaded: of a proposal. What is released; all that is quarantined without it.
    digest: Option<String>,
    /// Of a canary.
    percent: Option<u8>,
    /// What the plugin must still be at; without it, what it is at now.
    revision: Option<u64>,
}

pub(super) async fn upload(axum::extract::State(state): Shared, bytes: Bytes) -> Response {
    match state.node.plugins().upload(bytes).await {
        Ok(artifact) => Json(shown::artifact(&artifact)).into_response(),
        Err(why) => refusal(StatusCode::BAD_REQUEST, &why),
    }
}

pub(super) async fn list(axum::extract::State(state): Shared) -> Response {
    match registry(&state).await {
        Ok(registry) => Json(json!({
            "revision": registry.revision,
            "plugins": registry.plugins.values().map(shown::plugin).collect::<Value>(),
            "bindings": registry.bindings().iter().map(|bound| shown::bound(bound)).collect::<Value>(),
            "here": state.node.plugins().status(),
            "following": state.node.plugins().following(),
        }))
        .into_response(),
        Err(response) => response,
    }
}

pub(super) async fn api(axum::extract::State(state): Shared) -> Response {
    Json(state.node.plugins().api()).into_response()
}

pub(super) async fn logs(axum::extract::State(state): Shared, Path(binding): Path<String>) -> Response {
    Json(state.node.plugins().logs(&binding)).into_response()
}

/// Propose, canary, promote, rollback, release, remove.
pub(super) async fn change(
    axum::extract::State(state): Shared,
    Path((name, action)): Path<(String, String)>,
    Body(wish): Body<Wish>,
) -> Response {
    let registry = match registry(&state).await {
        Ok(registry) => registry,
        Err(response) => return response,
    };
    let plugin: Arc<str> = Arc::from(name);
    let known = registry.plugins.get(&plugin).map_or(0, |plugin| plugin.revision);
    let expected_revision = wish.revision.unwrap_or(known);
    let change = match action.as_str() {
        "propose" => match proposal(&state, plugin, expected_revision, wish.digest.as_deref()).await {
            Ok(proposal) => Change::Propose(proposal),
            Err(response) => return response,
        },
        "canary" => match wish.percent.filter(|&percent| percent <= 100) {
            Some(percent) => Change::Canary {
                plugin,
                expected_revision,
                percent,
            },
            None => return refusal(StatusCode::BAD_REQUEST, "percent: from 0 to 100"),
        },
        "promote" => Change::Promote {
            plugin,
            expected_revision,
        },
        "rollback" => Change::Rollback {
            plugin,
            expected_revision,
        },
        "release" => match wish.digest.as_deref().map(shown::digest) {
            Some(None) => return refusal(StatusCode::BAD_REQUEST, "digest: 64 hexadecimal digits"),
            digest => Change::Release {
                plugin,
                expected_revision,
                digest: digest.flatten(),
            },
        },
        "remove" => Change::Remove {
            plugin,
            expected_revision,
        },
        _ => {
            return refusal(
                StatusCode::NOT_FOUND,
                "there is no such change: propose, canary, promote, rollback, release, remove",
            );
        }
    };
    apply(&state, change).await
}

async fn proposal(
    state: &State,
    plugin: Arc<str>,
    expected_revision: u64,
    digest: Option<&str>,
) -> Result<Proposal, Response> {
    let bad = |why: &str| refusal(StatusCode::BAD_REQUEST, why);
    let digest = digest
        .and_then(shown::digest)
        .ok_or_else(|| bad("digest: the 64 hexadecimal digits that the upload answered"))?;
    let artifact = state
        .node
        .plugins()
        .artifact(digest)
        .await
        .map_err(|why| bad(&why))?;
    let artifact = artifact
        .ok_or_else(|| bad("no component with this digest was uploaded: POST it to /v1/plugins first"))?;
    let named = shown::facts(&artifact)["name"].as_str().map(str::to_owned);
    if named.as_deref() != Some(&*plugin) {
        return Err(bad(&format!(
            "the manifest of this component names the plugin {}",
            named.unwrap_or_default()
        )));
    }
    Ok(Proposal {
        plugin,
        expected_revision,
        artifact,
    })
}

async fn registry(state: &State) -> Result<Arc<Registry>, Response> {
    match state.node.ask(Ask::Registry).await {
        Answer::Registry(registry) => Ok(registry),
        Answer::Failed(failure) => Err(failed(&failure)),
        _ => Err(unexpected()),
    }
}

fn no_binding() -> Response {
    refusal(StatusCode::NOT_FOUND, &Refused::NoBinding.to_string())
}

async fn apply(state: &State, change: Change) -> Response {
    match state.node.ask(Ask::ChangeRegistry(Box::new(change))).await {
        Answer::Changed { revision } => {
            let settled = state.node.plugins().settled(revision).await;
            Json(json!({ "status": 200, "revision": revision, "here": settled })).into_response()
        }
        Answer::Failed(Failure::NotFound(why)) => refusal(StatusCode::NOT_FOUND, &why),
        Answer::Failed(failure) => failed(&failure),
        _ => unexpected(),
    }
}
