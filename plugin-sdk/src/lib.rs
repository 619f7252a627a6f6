#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod frame;
mod guest;
pub mod host;
#[cfg(test)]
mod tests;
mod verdict;

pub use frame::{Attributes, Batch, FrameError, Message};
pub use guest::{Consumer, Done, Failure, FailureKind, Filter, KvChange, KvOperation, KvValue};
pub use verdict::{Rewrite, Verdict, Verdicts};

/// What the macros of this crate need; not for plugins.
#[doc(hidden)]
#[allow(missing_docs, reason = "generated from the contract, which has the docs")]
pub mod bindings;
