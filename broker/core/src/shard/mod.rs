//! Composes the machines of one shard; the only place that knows them all.

mod peer;

pub use peer::Peer;
