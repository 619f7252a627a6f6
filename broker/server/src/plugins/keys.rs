//! Keys of plugins, asked of the node by the threads of guests.

use super::asking::Asking;
use bytes::Bytes;
use penstock_core::admin::{Answer, Ask, Failure, KeysAsk};
use penstock_core::hooks::registry::{KeyOperation, KeyOutcome};
use penstock_plugin_host::{KeyError, Keys};
use std::sync::Arc;
use std::time::Duration;

/// The node's keys, once it runs.
#[derive(Debug)]
pub(super) struct NodeKeys(pub(super) Arc<Asking>);

impl NodeKeys {
    fn ask(&self, ask: KeysAsk, within: Duration) -> Result<Answer, KeyError> {
        match self.0.ask(Ask::Keys(ask), within) {
            Some(Answer::Failed(Failure::Keys(why))) => Err(why.into()),
            Some(Answer::Failed(_)) | None => Err(KeyError::Unavailable),
            Some(answer) => Ok(answer),
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
