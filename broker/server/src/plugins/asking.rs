//! The node, asked by the threads of guests.

use crate::driver::Node;
use penstock_core::admin::{Answer, Ask};
use std::sync::{OnceLock, Weak};
use std::time::Duration;
use tokio::runtime::Handle;

/// The node, once it runs.
#[derive(Debug, Default)]
pub(super) struct Asking {
    node: OnceLock<(Handle, Weak<Node>)>,
}

impl Asking {
    /// From now on this node is asked. Called within the runtime that waits for its answers.
    pub(super) fn connect(&self, node: Weak<Node>) {
        // A second node in one process has plugins of its own.
        let _ = self.node.set((Handle::current(), node));
    }

    /// Asks, and holds the thread until there is an answer; none within this time, or when there is no node.
    pub(super) fn ask(&self, ask: Ask, within: Duration) -> Option<Answer> {
        let (handle, node) = self.node.get()?;
        let node = node.upgrade()?;
        let answer = handle.block_on(async { tokio::time::timeout(within, node.ask(ask)).await });
        answer.ok()
    }
}
