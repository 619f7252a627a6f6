//! Keys of plugins, asked of the node by the threads of guests.

use crate::driver::Node;
use bytes::Bytes;
use penstock_core::admin::{Answer, Ask, Failure, KeysAsk};
use penstock_core::hooks::registry::{KeyOperation, KeyOutcome};
use penstock_plugin_host::{KeyError, Keys};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::runtime::Handle;

/// The node, once it runs.
#[derive(Debug, Default)]
pub(super) struct NodeKeys {
    node: OnceLock<(Handle, Weak<Node>)>,
}

impl NodeKeys {
    /// From now on this node is asked. Called within the runtime that waits for its answers.
    pub(super) fn connect(&self, node: Weak<Node>) {
        // A second node in one process has plugins of its own.
        let _ = self.node.set((Handle::current(), node));
    }

    fn ask(&self, ask: KeysAsk, within: Duration) -> Result<Answer, KeyError> {
        let (handle, node) = self.node.get().ok_or(KeyError::Unavailable)?;
        let node = node.upgrade().ok_or(KeyError::Unavailable)?;
        let answer = handle.block_on(async { tokio::time::timeout(within, node.ask(Ask::Keys(ask))).await });
        match answer {
            Ok(Answer::Failed(Failure::Keys(why))) => Err(why.into()),
            Ok(Answer::Failed(_)) | Err(_) => Err(KeyError::Unavailable),
            Ok(answer) => Ok(answer),
        }
    }
}

impl Keys for NodeKeys {
    fn get(&self, plugin: &str, key: &str, within: Duration) -> Result<Option<Bytes>, KeyError> {
        let ask = KeysAsk::Get {
            plugin: Arc::from(plugin),
            key: Arc::from(key),
        };
        match self.ask(ask, within)? {
            Answer::Key(found) => Ok(found.map(|found| found.value)),
            _ => Err(KeyError::Unavailable),
        }
    }

    fn change(
        &self,
        plugin: &str,
        key: &str,
        operation: KeyOperation,
        within: Duration,
    ) -> Result<KeyOutcome, KeyError> {
        let ask = KeysAsk::Change {
            plugin: Arc::from(plugin),
            key: Arc::from(key),
            operation,
        };
        match self.ask(ask, within)? {
            Answer::KeyChanged(outcome) => Ok(outcome),
            _ => Err(KeyError::Unavailable),
        }
    }
}
