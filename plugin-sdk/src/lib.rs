#![doc = include_str!("../README.md")]

mod frame;
mod guest;
pub mod host;
mod macros;
#[cfg(test)]
mod tests;
mod verdict;

pub use frame::{Attributes, Batch, FrameError, Message};
pub use guest::{
    Acceptance, ConnectRequest, Consumer, Denial, Done, Event, Failure, FailureKind, Filter, Gate, Header,
    HttpRequest, HttpResponse, KvChange, KvOperation, KvValue, Notifier, Router, Webhook,
};
pub use verdict::{Rewrite, Verdict, Verdicts};

/// What the macros of this crate need; not for plugins.
#[doc(hidden)]
#[allow(
    clippy::allow_attributes_without_reason,
    clippy::too_many_lines,
    elided_lifetimes_in_paths,
    missing_docs,
    unreachable_pub,
    unsafe_code,
    unused_qualifications,
    reason = "generated from the contract, which has the docs"
)]
pub mod bindings;
