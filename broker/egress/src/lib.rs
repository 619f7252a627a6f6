//! Requests to places outside, within rules about where they may go, and within bounds: webhooks, signed after Standard Webhooks, and
//! what plugins ask.
//!
//! # Owns
//! An [`Endpoint`] for each place that webhooks go to: its secrets, its connections, its breaker, its queue. A [`Client`] for what
//! plugins ask: its connections by place. The grammar of grants: [`Grants`], [`AllowList`].
//!
//! # Invariants
//! - A request goes to an address that was judged: a name is resolved once, every address of it is judged, and one of these very
//!   addresses is connected to. Redirects are not followed.
//! - A request that is repeated carries the id of the first attempt; who makes the request chooses it.
//! - Nobody waits without a bound: connections and waiting requests of an endpoint are counted, and each request has a deadline.
//! - Secrets are not in logs, errors or metrics: those of webhooks have no text form, those for plugins ([`Credential`]) none but
//!   [`Credential::reveal`].
//!
//! # Absent
//! When a request is tried again, and what becomes of one that is not taken: the core decides that.

mod address;
mod allow_list;
mod breaker;
mod client;
mod connection;
mod credential;
mod endpoint;
mod grants;
mod origin;
mod outcome;
mod pool;
mod resolve;
mod secret;
mod sign;

pub use allow_list::{AllowList, InvalidRule};
pub use breaker::State;
pub use client::{ANSWER_BYTES_MAX, Answer, Client, Question, Unanswered};
pub use connection::{Tls, TlsError};
pub use credential::{Credential, HeaderRefused, InvalidCredential, fill, is_credential_name};
pub use endpoint::{Config, Counts, Endpoint, Leave, Request};
pub use grants::{Grants, InvalidGrant};
pub use origin::{InvalidUrl, Target};
pub use outcome::{Reason, Trouble};
pub use resolve::{Resolve, Resolving, SystemResolver};
pub use secret::{InvalidSecret, Secret};
