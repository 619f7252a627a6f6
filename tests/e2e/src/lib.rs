//! What the end-to-end tests stand on: a node as a process, clients and a browser as processes, and HTTP by hand.
//!
//! Nothing here links the broker: the tests see what a user sees. `cargo xtask test` builds the binary and installs the
//! JavaScript packages before it runs them.

mod browser;
mod client;
pub mod garbage;
pub mod honest;
mod http;
pub mod mutations;
pub mod neighbours;
mod node;
mod plugins;
mod raw;
mod vitals;

pub use browser::Browser;
pub use client::Client;
pub use http::{Response, delete, exchange, get, get_unless, post, post_with_key, put, upload};
pub use node::{Node, binary, first_line};
pub use plugins::{bind, component, deploy, propose, target_folder, until_ready};
pub use raw::{BINARY, CLOSE, Ending, PING, PONG, Raw, TEXT, masked};
pub use vitals::{MIB, Vitals, still_serves, until};

use std::time::Duration;

/// Where a long attack tells how far it has come, and what it found, line by line.
pub type Say<'a> = &'a (dyn Fn(&str) + Sync);

/// How long anything may take before a test fails: generous, since it is never waited for when all is well.
pub const PATIENCE: Duration = Duration::from_secs(60);
