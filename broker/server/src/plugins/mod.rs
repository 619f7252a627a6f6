//! The plugins of this node: the components that were uploaded, and the host that runs what the registry names.
//!
//! # Owns
//! The folder of components, the plugin host, what became of each version that the registry wants here.
//!
//! # Absent
//! Which version runs in which channel: the core decides by the registry.

mod api;
mod artifacts;
mod asking;
mod breakers;
mod captures;
mod channels;
mod follow;
pub(crate) mod following;
mod keys;
mod metrics;
mod outside;
mod webhooks;

pub use api::Api;
pub use artifacts::Artifacts;
pub use follow::follow;

use crate::config::Settings;
use asking::Asking;
use bytes::Bytes;
use channels::NodeChannels;
use keys::NodeKeys;
use penstock_core::hooks::breaker::Change;
use penstock_core::hooks::call::{Call, Digest, Returned, Version, Work};
use penstock_core::hooks::registry::{Artifact, Binding, Hook};
use penstock_egress::{Resolve, SystemResolver, Tls};
use penstock_plugin_host::{Host, HostConfig, Refused, Services, check_grants};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// The hidden command of the binary that compiles a component.
pub const COMPILE_COMMAND: &str = "plugin-compile";
/// The one that looks at a component.
pub const INSPECT_COMMAND: &str = "plugin-inspect";

/// Threads that plugins run on. More than processors, because a plugin may hold one until its deadline.
const THREADS: usize = 4;

/// The plugins of a node.
#[derive(Debug)]
pub struct Plugins {
    host: Host,
    /// The way of guests to the node.
    asking: Arc<Asking>,
    /// Their way to the outside.
    outside: Arc<outside::Outside>,
    /// Whether quick filters may run on the shards.
    inline: bool,
    artifacts: Artifacts,
    /// What could not be loaded, and why.
    failed: Mutex<BTreeMap<Version, String>>,
    progress: watch::Sender<Progress>,
    breakers: breakers::Board,
    webhooks: webhooks::Desk,
}

/// How far this node is with what the registry names.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// Its revision.
    revision: u64,
    /// Versions that are being loaded.
    loading: usize,
}

impl Plugins {
    /// Starts the host over the folder of plugins within the data directory. Nothing is written yet: whether the directory is one of a
    /// node is found out later. Within a tokio runtime, which delivers webhooks.
    ///
    /// # Errors
    /// When the system gives no threads, or nobody is to be trusted.
    pub fn start(settings: &Settings) -> Result<Plugins, Refused> {
        let folder = settings.data_dir.join("plugins");
        let this = std::env::current_exe()
            .map_err(|error| Refused::Io(format!("the path of this program is unknown: {error}")))?
            .into_os_string();
        let config = HostConfig {
            cache: folder.join("compiled"),
            compiler: child(&this, COMPILE_COMMAND),
            threads: THREADS,
        };
        let asking = Arc::new(Asking::default());
        let authorities = settings.webhooks.authorities.as_deref();
        let tls = Tls::new(authorities).map_err(|error| Refused::Io(error.to_string()))?;
        let resolver: Arc<dyn Resolve> = Arc::new(SystemResolver);
        let outside = outside::Outside::start(
            settings.plugin_secrets.clone(),
            tls.clone(),
            Arc::clone(&resolver),
        );
        let outside = Arc::new(outside);
        let services = Services {
            keys: Arc::new(NodeKeys(Arc::clone(&asking))),
            channels: Arc::new(NodeChannels(Arc::clone(&asking))),
            outside: Arc::clone(&outside) as Arc<dyn penstock_plugin_host::Outside>,
            ..Services::default()
        };
        Ok(Plugins {
            host: Host::with_services(config, services)?,
            asking,
            outside,
            inline: settings.plugins_inline,
            artifacts: Artifacts::new(folder.join("components"), child(&this, INSPECT_COMMAND)),
            failed: Mutex::default(),
            progress: watch::Sender::default(),
            breakers: breakers::Board::default(),
            webhooks: webhooks::Desk::start(settings.webhooks.secrets.clone(), tls, resolver),
        })
    }

    /// Waits until this node has loaded all that this revision of the registry names, or found that it cannot; or until the time is
    /// up. Whether it is done.
    pub async fn settled(&self, revision: u64, within: Duration) -> bool {
        let mut progress = self.progress.subscribe();
        let settled = progress.wait_for(|now| now.revision >= revision && now.loading == 0);
        tokio::time::timeout(within, settled).await.is_ok()
    }

    fn failed(&self) -> MutexGuard<'_, BTreeMap<Version, String>> {
        // The map is whole between two statements, whatever a holder died of.
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts and state of each version that this node runs or could not load.
    #[must_use]
    pub fn status(&self) -> Value {
        let loaded = self.host.status().into_iter().map(|(version, status)| {
            let failures: BTreeMap<String, u64> = status
                .failures
                .iter()
                .map(|(failure, count)| (failure.name().to_owned(), *count))
                .collect();
            json!({
                "binding": &*version.binding,
                "digest": version.digest.to_string(),
                "generation": version.generation,
                "state": "ready",
                "breaker": self.breakers.state(&version).name(),
                "calls": status.calls,
                "calls_inline": status.calls_inline,
                "inline": status.inline,
                "promotions": status.promotions,
                "demotions": status.demotions,
                "messages": status.messages,
                "failures": failures,
                "guest_seconds": status.guest_s,
                "host_seconds": status.host_s,
                "bytes_in": status.bytes_in,
                "bytes_out": status.bytes_out,
                "queue_seconds": status.queue_s,
                "instances": status.created.saturating_sub(status.ended),
                "instances_created": status.created,
                "instances_retired": status.retired,
                "memory_high_bytes": status.memory_high,
                "memory_grown_bytes": status.memory_grown,
                "key_operations": status.key_operations,
                "key_errors": status.key_errors,
                "http_requests": status.http_requests,
                "http_seconds": status.http_s,
                "secrets_revealed": status.secrets_revealed,
                "published": status.published,
                "publish_errors": status.publish_errors,
                "message_reads": status.reads,
                "message_read_errors": status.read_errors,
                "log_lines_dropped": status.lines_dropped,
                "counters": status.counters,
                "endpoint": self.webhooks.status(&version),
            })
        });
        let failed = self.failed();
        let failed = failed.iter().map(|(version, why)| {
            json!({
                "binding": &*version.binding,
                "digest": version.digest.to_string(),
                "generation": version.generation,
                "state": "failed",
                "reason": why,
            })
        });
        loaded.chain(failed).collect()
    }

    /// Appends the series of all bindings, in the Prometheus text format.
    pub fn metrics(&self, out: &mut String) {
        let failed = self.failed().len();
        metrics::render(&self.host.status(), failed, out);
        captures::render(self.host.captures(), out);
        if let Some(pool) = self.host.pool() {
            metrics::render_pool(&pool, out);
        }
        self.breakers.render(out);
        self.webhooks.render(out);
    }

    /// Lines that the versions of a binding logged.
    #[must_use]
    pub fn logs(&self, binding: &str) -> Value {
        let loaded = self.host.status().into_iter();
        let versions = loaded.filter(|(version, _)| &*version.binding == binding);
        let lines = versions.flat_map(|(version, _)| {
            let logs = self.host.logs(&version, 0);
            logs.lines.into_iter().map(move |line| {
                json!({
                    "digest": version.digest.to_string(),
                    "number": line.number,
                    "at_ms": line.at_ms,
                    "level": line.level,
                    "text": line.text,
                })
            })
        });
        lines.collect()
    }

    /// Inputs of the failed calls of a binding, newest first, without what stands in them.
    #[must_use]
    pub fn captures(&self, binding: &str) -> Value {
        captures::list(self.host.captures(), binding)
    }

    /// A whole one, if there is one with this id.
    #[must_use]
    pub fn capture(&self, binding: &str, id: &str) -> Option<Value> {
        captures::whole(self.host.captures(), binding, id)
    }

    /// Forgets those of a binding. How many there were.
    pub fn clear_captures(&self, binding: &str) -> usize {
        self.host.captures().clear(binding)
    }

    /// Keeps a component, and says what it is.
    ///
    /// # Errors
    /// Why this broker could not run it.
    pub fn upload(&self, bytes: &[u8]) -> Result<Artifact, Refused> {
        self.artifacts.keep(bytes)
    }

    /// What a component that was uploaded is; none when it was not.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn artifact(&self, digest: Digest) -> Result<Option<Artifact>, Refused> {
        self.artifacts.describe(digest)
    }

    /// Whether this node could do what a binding wants of it besides running the plugin.
    ///
    /// # Errors
    /// Why not, in words for people.
    pub fn check(&self, binding: &Binding) -> Result<(), String> {
        let grants: BTreeSet<String> = serde_json::from_slice(&binding.grants).unwrap_or_default();
        check_grants(&grants)?;
        match binding.hook {
            Hook::Webhook => self.webhooks.check(binding),
            Hook::PersistAfter | Hook::Offline | Hook::Connect | Hook::Route => {
                let checked = self.outside.check(&grants);
                checked.map_err(|why| format!("grants: {why}"))
            }
            Hook::BeforeSend => Ok(()),
        }
    }

    /// Ends the host.
    pub fn stop(&self) {
        self.host.stop();
    }
}

impl crate::driver::Plugins for Plugins {
    fn call_inline(&self, call: Box<Call>, patience: &mut Duration) -> Result<Returned, Box<Call>> {
        self.host.call_inline(call, patience)
    }

    fn call(&self, call: Call, reply: Box<dyn FnOnce(Returned) + Send>) {
        match &call.work {
            Work::Webhook { .. } | Work::OnlineStatus(_) => self.webhooks.call(&self.host, call, reply),
            Work::BeforeSend { .. }
            | Work::PersistAfter { .. }
            | Work::Connect { .. }
            | Work::Offline { .. }
            | Work::Route { .. } => self.host.call(call, reply),
        }
    }

    fn breaker(&self, shard: u16, change: &Change) {
        self.breakers.changed(shard, change);
    }
}

/// This program under one of its hidden commands. Tests that run a node inside their own program have none, and do in place what it
/// would do.
fn child(this: &OsStr, command: &str) -> Option<Vec<OsString>> {
    let is_broker = Path::new(this).file_stem().is_some_and(|stem| stem == "penstock");
    is_broker.then(|| vec![this.to_owned(), OsString::from(command)])
}

/// The facts of a component that the registry carries for people: name, version and imports.
pub(crate) fn facts(inspected: &penstock_plugin_host::Inspected) -> Bytes {
    let facts = json!({
        "name": inspected.manifest.name,
        "version": inspected.manifest.version,
        "imports": inspected.imports,
        "capabilities": inspected.manifest.capabilities,
        "bytes": inspected.component.len(),
    });
    Bytes::from(facts.to_string())
}
