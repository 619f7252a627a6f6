//! Composes the machines of one shard; the only place that knows them all.
//!
//! # Owns
//! The machines of its slots' groups and channels (by hash) and of its connections. Another shard, of this node or of
//! another, is just another address: everything between them is a [`Peer`] message.
//!
//! # Invariants
//! A handled event never blocks; its effects are executed in order before the next event is handled.
//!
//! # Absent
//! Threads, sockets, files, clocks. The driver (production) and the world (simulator) step the same value.

mod config;
mod peer;

pub use config::{Config, Image};
pub use peer::Peer;

use crate::effect::{Effect, Event};
use crate::rows::Rows;
use crate::types::Now;
use std::time::Duration;

/// One shard of a node: a value that is stepped.
pub struct Shard {
    config: Config,
}

impl Shard {
    /// A shard from its configuration and what the node's disk held at the start.
    #[must_use]
    pub fn new(config: Config, _image: Image) -> Shard {
        Shard { config }
    }

    /// Handles one event; pushes what must be done, in order. The driver executes every effect before the next call.
    pub fn handle(&mut self, _now: Now, _event: Event, _rows: &dyn Rows, _out: &mut Vec<Effect>) {}

    /// When `Event::Expired` is wanted at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        None
    }

    /// Its configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }
}
