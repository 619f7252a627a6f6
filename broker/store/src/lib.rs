//! A node's durable state: two RocksDB instances, one byte layout, one syncer each.
//!
//! *Owns*: the data directory, with its lock, identity and marks; the layout of keys ([`keys`]); the order in which
//! batches become durable.
//!
//! *Invariants*: a batch is atomic and visible at once; one write-ahead log per instance, so that a crash keeps a prefix of
//! its batches over all column families and shards (M-9); what was reported as stored survives a crash, or the next start
//! says that it may not have ([`Recovered::Amnesiac`], M-8); after a failed write or sync nothing is acknowledged any
//! more (R14).
//!
//! *Absent*: any knowledge of what the rows mean, a clock that decides anything, retries.
//!
//! ```text
//! data directory
//!   LOCK        held by the running process
//!   identity    cluster, node, disk boot, format, checksum
//!   mark-meta   the synced sequence of meta/ and its checksum (M-8)
//!   mark-data   the same of data/
//!   reserve     space that is freed when the disk is full (R14)
//!   meta/       RocksDB: Raft logs, hard states, slot rows (M-7)
//!   data/       RocksDB: records, channel states, idempotency rows, cursors (M-7)
//!   set-aside/  what an amnesiac start replaced, kept for the operator
//! ```

mod batch;
mod cache;
mod directory;
mod engine;
mod error;
pub mod keys;
mod mark;
mod metrics;
mod open;
mod options;
mod pages;
mod read;
mod scan;
mod store;
mod tend;
mod writer;

pub use error::Error;
pub use metrics::{LATENCY_BOUNDS_US, Metrics, SyncMetrics};
pub use open::Recovered;
pub use options::Options;
pub use read::CachedRows;
pub use store::Store;
pub use writer::{Listener, Writer};
