//! Keeps loaded what the registry names, and reports on candidates.

use super::Plugins;
use crate::driver::Node;
use penstock_core::admin::{Answer, Ask};
use penstock_core::hooks::call::{Digest, Version};
use penstock_core::hooks::registry::{
    Bound, Change, Hook, PlacedReport, REPORT_BYTES_MAX, Registry, ReportState,
};
use penstock_core::types::NodeId;
use penstock_plugin_host::{LoadRequest, Refused, inspect};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::watch;

/// Follows the registry until the node is gone.
pub async fn follow(
    plugins: Arc<Plugins>,
    node: Weak<Node>,
    this: NodeId,
    mut registry: watch::Receiver<Arc<Registry>>,
) {
    plugins.asking.connect(Weak::clone(&node));
    let mut keeper = Keeper {
        plugins,
        this,
        known: BTreeSet::new(),
        reported: Arc::default(),
    };
    loop {
        let now = Arc::clone(&registry.borrow_and_update());
        keeper.plugins.breakers.learn(&now);
        keeper.plugins.webhooks.learn(&now);
        let bindings = now.bindings().iter().map(|bound| &bound.binding);
        let wanted = bindings.map(|binding| (Arc::clone(&binding.id), binding.capture));
        keeper.plugins.host.captures().learn(&wanted.collect());
        keeper.load(&now);
        keeper.report(&now, &node);
        if registry.changed().await.is_err() {
            return;
        }
    }
}

struct Keeper {
    plugins: Arc<Plugins>,
    this: NodeId,
    /// What the registry names, loaded or on its way.
    known: BTreeSet<Version>,
    /// Rollouts that were reported on.
    reported: Arc<Mutex<BTreeSet<u64>>>,
}

impl Keeper {
    /// Begins to load what is new, and lets go of what the registry does not name any more.
    fn load(&mut self, registry: &Registry) {
        let wanted: BTreeMap<Version, Arc<Bound>> = registry
            .versions()
            .map(|(bound, version)| (version.clone(), Arc::clone(bound)))
            .collect();
        self.known.retain(|version| {
            let stays = wanted.contains_key(version);
            if !stays {
                self.plugins.host.unload(version);
                self.plugins.failed().remove(version);
            }
            stays
        });
        for (version, bound) in wanted {
            let known = self.known.contains(&version);
            if !known {
                self.plugins.host.expect(&version);
            }
            let inline = self.plugins.inline && bound.binding.inline;
            self.plugins.host.allow_inline(&version, inline);
            if known {
                continue;
            }
            let plugins = Arc::clone(&self.plugins);
            let of = version.clone();
            plugins.progress.send_modify(|progress| progress.loading += 1);
            let _ends_by_itself = tokio::task::spawn_blocking(move || {
                load(&plugins, of, &bound);
                plugins.progress.send_modify(|progress| progress.loading -= 1);
            });
            self.known.insert(version);
        }
        let revision = registry.revision;
        self.plugins
            .progress
            .send_modify(|progress| progress.revision = revision);
    }

    /// Tries out the candidates that nobody here has reported on. A large one takes minutes, and other changes do not wait for it.
    fn report(&self, registry: &Registry, node: &Weak<Node>) {
        for plugin in registry.plugins.values() {
            let Some(rollout) = &plugin.rollout else { continue };
            let known = rollout.reports.contains_key(&self.this) || !rollout.wanted.contains(&self.this);
            if known || !lock(&self.reported).insert(rollout.id) {
                continue;
            }
            let bindings = registry.bindings().iter();
            let candidate = Candidate {
                plugin: Arc::clone(&plugin.name),
                rollout: rollout.id,
                digest: rollout.artifact.digest,
                bindings: bindings
                    .filter(|bound| bound.binding.plugin == plugin.name)
                    .cloned()
                    .collect(),
                node: self.this,
            };
            let (plugins, node) = (Arc::clone(&self.plugins), Weak::clone(node));
            let reported = Arc::clone(&self.reported);
            let _ends_by_itself = tokio::spawn(async move {
                let rollout = candidate.rollout;
                if !candidate.report(plugins, &node).await {
                    // The next change of the registry tries it again.
                    lock(&reported).remove(&rollout);
                }
            });
        }
    }
}

fn lock(reported: &Mutex<BTreeSet<u64>>) -> MutexGuard<'_, BTreeSet<u64>> {
    // The set is whole between two statements, whatever a holder died of.
    reported.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A candidate that this node says something about.
struct Candidate {
    plugin: Arc<str>,
    rollout: u64,
    digest: Digest,
    bindings: Vec<Arc<Bound>>,
    node: NodeId,
}

impl Candidate {
    /// Tries it out and says how that went. Whether the report was taken.
    async fn report(self, plugins: Arc<Plugins>, node: &Weak<Node>) -> bool {
        let (digest, bindings) = (self.digest, self.bindings);
        let tried = tokio::task::spawn_blocking(move || try_out(&plugins, digest, &bindings)).await;
        let tried = tried.unwrap_or_else(|error| Err(Refused::Io(error.to_string())));
        let state = if tried.is_ok() {
            ReportState::Ready
        } else {
            ReportState::Failed
        };
        let mut text = tried.err().map_or_else(String::new, |error| error.to_string());
        text.truncate(text.floor_char_boundary(REPORT_BYTES_MAX));
        let change = Change::Report(PlacedReport {
            plugin: Arc::clone(&self.plugin),
            rollout: self.rollout,
            node: self.node,
            state,
            text: Arc::from(text),
        });
        let Some(node) = node.upgrade() else { return true };
        if let Answer::Failed(failure) = node.ask(Ask::ChangeRegistry(Box::new(change))).await {
            tracing::warn!(
                plugin = &*self.plugin,
                ?failure,
                "the report on a candidate was not taken"
            );
            return false;
        }
        true
    }
}

fn load(plugins: &Plugins, version: Version, bound: &Bound) {
    let loaded =
        request(plugins, version.clone(), bound).and_then(|request| plugins.host.load_expected(request));
    match loaded {
        Ok(_) => {
            plugins.failed().remove(&version);
            tracing::info!(binding = &*version.binding, digest = %version.digest, "a plugin is loaded");
        }
        Err(error) => {
            // What waits for it is answered; the binding's policy decides.
            if !plugins.host.give_up(&version) {
                // The registry does not name it any more.
                return;
            }
            tracing::error!(binding = &*version.binding, digest = %version.digest, %error, "a plugin cannot be loaded");
            plugins.failed().insert(version, error.to_string());
        }
    }
}

fn request(plugins: &Plugins, version: Version, bound: &Bound) -> Result<LoadRequest, Refused> {
    let component = component(plugins, version.digest)?;
    Ok(LoadRequest {
        version,
        component,
        config: serde_json::from_slice(&bound.binding.config).unwrap_or_default(),
        grants: serde_json::from_slice(&bound.binding.grants).unwrap_or_default(),
        hook: bound.binding.hook.name().to_owned(),
    })
}

fn component(plugins: &Plugins, digest: Digest) -> Result<Vec<u8>, Refused> {
    plugins.artifacts.read(digest)?.ok_or_else(|| {
        Refused::Io(format!(
            "the component {digest} is not on this node: upload it to `POST /v1/plugins` here too"
        ))
    })
}

/// Compiles and starts a candidate for each of its plugin's bindings, or as its manifest has it when there is none.
fn try_out(plugins: &Plugins, digest: Digest, bindings: &[Arc<Bound>]) -> Result<(), Refused> {
    let version = |binding: &str| Version {
        binding: Arc::from(binding),
        digest,
        generation: 0,
    };
    for bound in bindings {
        let request = request(plugins, version(&bound.binding.id), bound)?;
        plugins.host.try_out(request)?;
    }
    if bindings.is_empty() {
        let component = component(plugins, digest)?;
        let inspected = inspect(&component)?;
        let hook = inspected
            .hooks
            .iter()
            .next()
            .map_or_else(|| Hook::BeforeSend.name(), |hook| hook.name());
        plugins.host.try_out(LoadRequest {
            version: version(""),
            component,
            config: serde_json::Map::new(),
            grants: inspected.manifest.capabilities,
            hook: hook.to_owned(),
        })?;
    }
    Ok(())
}
