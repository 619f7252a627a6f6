//! Penstock's edges: what stands between sockets and shards.
//!
//! It moves and translates bytes and keeps limits. It decides nothing about messages, users or channels.

mod addresses;
mod bound;
pub mod gateway;
pub mod http;
pub mod origin;

pub use bound::Bound;
