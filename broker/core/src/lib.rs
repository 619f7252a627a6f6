//! Every decision of the broker, as synchronous values without IO.
//!
//! A machine takes `(now, input)` and pushes outputs. Time, sockets, disks and randomness are arguments, so that the
//! same machines run in production, where threads step them over tokio and RocksDB, and in the simulator, where a
//! cluster is a value. This crate knows no socket, no file, no clock and no thread.
#![forbid(unsafe_code)]

pub mod admin;
pub mod append;
mod audience;
pub mod channel;
pub mod client;
pub mod codec;
pub mod controller;
pub mod cursor;
pub mod delivery;
pub mod effect;
pub mod entrance;
pub mod hooks;
pub mod invariant;
pub mod limits;
pub mod message;
pub mod patience;
mod pending;
pub mod permission;
pub mod plugins;
pub mod presence;
pub mod replicated;
pub mod rows;
pub mod session;
pub mod shard;
pub mod slot;
pub mod types;
