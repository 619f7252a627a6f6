//! Runs plugins: WebAssembly components, each under limits and with no more of the world than it was granted.
//!
//! # Owns
//! The engine, compiled components and their cache, warm instances, the threads that guests run on, what guests may import, the
//! inputs of calls that failed.
//!
//! # Invariants
//! - Only the broker's own compiler makes the code that is mapped: what travels is the component (S23).
//! - What is not both asked for and granted is not linked, so there is no check to forget.
//! - A guest that traps, overruns or fails in the host is dropped with its store; the next call gets a fresh one.
//! - No call waits without a bound: the queue is bounded, and every call has a deadline.
//! - A caller's own thread runs only what has proved to be quick, and is held for two ticks of running at most.
//!
//! # Absent
//! Which binding runs when, in which order, and what a failure means: the core decides that.

mod cache;
mod captures;
mod chance;
mod channels;
mod child;
mod component;
mod contract;
mod engine;
pub mod frame;
mod grants;
mod host;
mod imports;
mod instance;
mod keys;
mod limits;
mod manifest;
mod outside;
mod packages;
mod patience;
mod rates;
mod refused;
mod requests;
mod routes;
mod session;
mod status;
#[cfg(test)]
mod tests;
mod typed;
mod worker;

pub use cache::compile_child;
pub use captures::{
    CAPTURE_BYTES_MAX, CAPTURES_BYTES_MAX, CAPTURES_MAX, Capture, CaptureCounts, Captures, Payloads, input_of,
};
pub use channels::{Channels, NoChannels, PublishError, ReadError};
pub use child::{inspect_child, rehearse};
pub use component::{COMPONENT_BYTES_MAX, Hook, Inspected, SUPPORTED_API, inspect};
pub use grants::check_grants;
pub use host::{Host, HostConfig, Judge, LoadRequest, Services};
pub use keys::{COPY_AGE_MAX, KeyError, Keys, NoKeys};
pub use limits::Limits;
pub use manifest::{InstancePolicy, MANIFEST_SECTION, Manifest};
pub use outside::{HttpError, HttpResponse, Nowhere, Outside, Reach, Unanswered};
pub use refused::Refused;
pub use status::{LogLine, Logs, PoolStatus, Status, VersionStatus};
