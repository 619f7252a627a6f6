//! Requests to endpoints outside: signed after Standard Webhooks, within rules about where they may go, and within bounds.
//!
//! # Owns
//! An [`Endpoint`] for each place that requests go to: its secrets, its connections, its breaker, its queue.
//!
//! # Invariants
//! - A request goes to an address that was judged: a name is resolved once, every address of it is judged, and one of these very
//!   addresses is connected to. Redirects are not followed.
//! - A request that is repeated carries the id of the first attempt; who makes the request chooses it.
//! - Nobody waits without a bound: connections and waiting requests of an endpoint are counted, and each request has a deadline.
//! - Secrets have no text form: they are not in logs, errors or metrics.
//!
//! # Absent
//! When a request is tried again, and what becomes of one that is not taken: the core decides that.

mod address;
mod breaker;
mod connection;
mod endpoint;
mod grants;
mod origin;
mod outcome;
mod resolve;
mod secret;
mod sign;

pub use breaker::State;
pub use connection::{Tls, TlsError};
pub use endpoint::{Config, Counts, Endpoint, Leave, Request};
pub use grants::{Grants, InvalidGrant};
pub use origin::{InvalidUrl, Target};
pub use outcome::{Reason, Trouble};
pub use resolve::{Resolve, Resolving, SystemResolver};
pub use secret::{InvalidSecret, Secret};
