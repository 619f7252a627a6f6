//! The plugins as the HTTP API sees them.

use super::{Plugins, following};
use crate::driver::Node;
use bytes::Bytes;
use penstock_core::hooks::call::Digest;
use penstock_core::hooks::registry::{Artifact, Binding};
use penstock_net::http;
use penstock_plugin_host::{COMPONENT_BYTES_MAX, Hook, SUPPORTED_API};
use serde_json::{Value, json};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// Uploads that are looked at at a time: each holds its component in memory.
const UPLOADS_MAX: usize = 2;

/// How long a change waits for this node to run what it names. A request takes longer than that to time out.
const SETTLED_WITHIN: Duration = Duration::from_secs(5);

/// The plugins as the HTTP API sees them.
pub struct Api {
    plugins: Arc<Plugins>,
    node: Arc<Node>,
    uploads: Semaphore,
}

impl Api {
    /// Of these plugins, which run on this node.
    #[must_use]
    pub fn new(plugins: &Arc<Plugins>, node: &Arc<Node>) -> Api {
        Api {
            plugins: Arc::clone(plugins),
            node: Arc::clone(node),
            uploads: Semaphore::new(UPLOADS_MAX),
        }
    }
}

impl Api {
    /// The plugins.
    #[must_use]
    pub fn plugins(&self) -> &Plugins {
        &self.plugins
    }
}

impl http::Plugins for Api {
    fn upload(&self, bytes: Bytes) -> Pin<Box<dyn Future<Output = Result<Artifact, String>> + Send + '_>> {
        Box::pin(async move {
            let _permit = self.uploads.acquire().await.map_err(|error| error.to_string())?;
            let plugins = Arc::clone(&self.plugins);
            let kept = spawn_blocking(move || plugins.upload(&bytes)).await;
            kept.map_err(|error| error.to_string())?
                .map_err(|refused| refused.to_string())
        })
    }

    fn artifact(
        &self,
        digest: Digest,
    ) -> Pin<Box<dyn Future<Output = Result<Option<Artifact>, String>> + Send + '_>> {
        Box::pin(async move {
            let plugins = Arc::clone(&self.plugins);
            let found = spawn_blocking(move || plugins.artifact(digest)).await;
            found
                .map_err(|error| error.to_string())?
                .map_err(|refused| refused.to_string())
        })
    }

    fn settled(&self, revision: u64) -> Pin<Box<dyn Future<Output = bool> + Send + '_>> {
        Box::pin(self.plugins.settled(revision, SETTLED_WITHIN))
    }

    fn check(&self, binding: &Binding) -> Result<(), String> {
        self.plugins.check(binding)
    }

    fn status(&self) -> Value {
        self.plugins.status()
    }

    fn following(&self) -> Value {
        following::show(&self.node)
    }

    fn logs(&self, binding: &str) -> Value {
        self.plugins.logs(binding)
    }

    fn captures(&self, binding: &str) -> Value {
        self.plugins.captures(binding)
    }

    fn capture(&self, binding: &str, id: &str) -> Option<Value> {
        self.plugins.capture(binding, id)
    }

    fn clear_captures(&self, binding: &str) -> usize {
        self.plugins.clear_captures(binding)
    }

    fn api(&self) -> Value {
        let (major, minor, patch) = SUPPORTED_API;
        json!({
            "packages": [format!("penstock:plugin@{major}.{minor}.{patch}")],
            "hooks": Hook::ALL.map(Hook::interface),
            "component_bytes_max": COMPONENT_BYTES_MAX,
        })
    }
}
