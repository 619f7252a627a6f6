//! A Raft group and the replicated metadata of its slots (semantics section 3).
//!
//! *Owns*: the log, the hard state and the applied rows of one group on one node; the snapshots that it sends and
//! installs; which proposal is answered by which committed command. [`grants`] decides who leads and keeps a channel.
//!
//! *Invariants*: what leaves in a persisted message is durable (F1); a command is applied once, in order, with the applied
//! index in the same write (SL-1); a row of a slot that is not the group's is never touched (SL-2); a snapshot is
//! installed whole or not at all (SL-7, M-10).
//!
//! *States*: follower, candidate or leader as Raft has them, and stopped after a command that this build does not know
//! (F12). A follower may be installing: chunks are staged, then one write makes them current.
//!
//! *Absent*: routing to the leader, retries, and the members of other groups; the shard does these.

mod apply;
pub mod claims;
pub mod command;
pub mod faults;
pub mod fsm;
pub mod grants;
mod group;
pub mod hash;
mod interface;
pub mod keys;
mod lead;
mod log;
mod members;
pub mod online;
mod proposals;
mod reads;
mod ready;
pub mod rows;
pub mod rules;
mod snapshot;
mod stop;

pub use group::{Group, GroupConfig, Image};
pub use interface::{
    ChunkAnswer, Input, Lane, MemberChange, Message, Output, ProposeError, Status, Transfer,
};

#[cfg(test)]
mod tests;
