//! What runs before a message is appended and after it is committed, around the log and never inside it.
//!
//! # Owns
//! [`pipeline::Pipeline`]: batches on their way through the before-send stages of a shard. [`gates::Gates`]: connections on their way
//! through its gates. [`cursors::Cursors`]: how far each post-commit consumer of a channel has come, and the run of records that it works on. [`offline::Offline`]: the recipients of a message
//! who are offline. [`breaker::Breakers`]: which versions are left alone for
//! a while. Which plugins are bound to what: [`crate::plugins`].
//!
//! # Invariants
//! - One batch sees one registry snapshot; a rewrite is the next stage's input and survives a later failure that is let
//!   through.
//! - A consumer sees committed records only, in order, at least once (PC-1, R27).
//! - A cursor is stored after the effect that it stands for (M-6); one slow consumer delays no other (PC-4).
//!
//! # States
//! A batch is at one stage and waits for its verdicts until a deadline. A consumer is idle, reads, waits for its window to be
//! durable, has a run out, or waits to try again.
//!
//! # Absent
//! No plugin runs here: a stage or consumer that lives elsewhere is an output, and its answer comes by token.

pub mod breaker;
pub mod call;
pub mod cursors;
pub mod faults;
pub mod gates;
pub mod offline;
pub mod pipeline;

pub use crate::plugins as registry;

/// Name of the built-in consumer that delivers to sessions (PC-1).
pub const DELIVERY: &str = "delivery";
/// Under which name the delivery keeps whom it owes something (PC-1); no consumer.
pub const OWED: &str = "delivery-owed";
/// Name of the built-in consumer that writes the two membership rows of a person channel (PC-2).
pub const MEMBERSHIP: &str = "membership";
