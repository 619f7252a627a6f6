//! Who may send, read and subscribe: pure rules over looked-up facts, deny by default (client contract 5.5).
//!
//! # Owns
//! Nothing that lasts. A [`Question`] is made from what a client said, names the facts it [`Question::needs`], and is decided
//! by [`decide`] once they are looked up.
//!
//! # Invariants
//! - A fact that is needed and was not found out refuses, worth a retry; it never allows (SF-4).
//! - A kind of channel without a membership or ACL rule refuses (23): it does not admit everyone.
//! - The system device is nobody's choice: only system uids are trusted. A request-scoped send exists for the HTTP API only,
//!   whose callers proved who they are.
//! - Disband is terminal, for system senders and for command messages too: those are judged by the channel they belong to.
//!
//! # States
//! None.
//!
//! # Absent
//! No rows and no tables: a fact names what it is about, and whoever asks finds the row. No tokens, no rates.

mod facts;
mod question;
mod rules;
#[cfg(test)]
mod tests;

pub use facts::{Fact, Facts, Membership, Value};
pub use question::{Question, normalise};
pub use rules::decide;
