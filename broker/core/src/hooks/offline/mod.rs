//! Who of the recipients of a committed message is offline: members page by page, presence, and a page of offline uids for a plugin.
//!
//! # Owns
//! For each consumer of a channel, where in the recipients of one message it stands.
//!
//! # Invariants
//! - Offline is who is known to have no session. Unknown and doubtful presence is asked for again within a bound, and beyond it the
//!   attempt counts as not made (PR-4).
//! - A page follows when the former is done, and a message is done when all pages are. Another attempt of a leadership begins at the
//!   page that failed, after the uids that were done; another leadership begins with the first page.
//! - A page in memory is all that is known of the members. One consumer waits for no other (PC-4).
//! - The sender is not told of, and neither is who joined after the message (PC-2).
//!
//! # States
//! ```text
//! begin → [derived | members page → presence ⇄ pause → call]* → done
//!          └─ failed: rests at the page, until the same message begins again
//! ```
//!
//! # Absent
//! When a failed attempt is made again, and how often: the cursors.

mod machine;
mod sweep;
#[cfg(test)]
mod tests;

pub use machine::Offline;

use super::cursors::Failure;
use crate::audience::{MembersPage, Presence};
use crate::message::Message;
use crate::types::{ChannelKey, Seq, SlotId, Token, Uid};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most uids that a plugin is handed at once.
pub const UIDS_MAX: u32 = 512;

/// What the machine is told. Answers to what is no longer waited for are dropped.
#[derive(Clone, Debug)]
pub enum Input {
    /// A consumer comes to this message, for the first time or once more.
    Begin {
        /// The attempt.
        attempt: Attempt,
        /// The message.
        message: Arc<Message>,
    },
    /// Answer to [`Output::Members`].
    Members {
        /// From the question.
        token: Token,
        /// The page.
        page: MembersPage,
    },
    /// Answer to [`Output::Lookup`], in one or more parts.
    Found {
        /// From the question.
        token: Token,
        /// What is known of these slots.
        slots: Vec<(SlotId, Presence)>,
    },
    /// Answer to [`Output::Call`].
    Returned {
        /// From the question.
        token: Token,
        /// How many of the leading uids are done, at least one; or what the end of the call means for the message.
        result: Result<usize, Failure>,
    },
    /// These consumers follow the channel from now on: what is known of others is forgotten.
    Consumers(BTreeSet<Arc<str>>),
    /// Leadership is over: everything is forgotten.
    Lost,
}

/// One attempt at a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The consumer, or a name that nobody else has.
    pub consumer: Arc<str>,
    /// The caller's name for it.
    pub run: Token,
    /// Whether there is none after it: nothing is kept when it fails.
    pub single: bool,
}

/// What the machine wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Read a page of members, ascending by uid.
    Members {
        /// Names the answer.
        token: Token,
        /// The channel.
        channel: ChannelKey,
        /// Resume position, exclusive.
        after: Option<Uid>,
        /// Most members.
        members_max: u32,
    },
    /// Where are these users?
    Lookup {
        /// Names the answers.
        token: Token,
        /// Users by slot.
        slots: Vec<(SlotId, Vec<Uid>)>,
        /// Whether they were asked for before and it was not known.
        again: bool,
    },
    /// Hand a page of offline uids to the plugin.
    Call {
        /// Names the answer.
        token: Token,
        /// The attempt.
        attempt: Attempt,
        /// The message.
        message: Arc<Message>,
        /// At least one, ascending.
        uids: Vec<Uid>,
    },
    /// All pages of the message are done.
    Done {
        /// The attempt.
        attempt: Attempt,
        /// Position of the message.
        seq: Seq,
    },
    /// The attempt failed.
    Failed {
        /// The attempt.
        attempt: Attempt,
        /// How.
        failure: Failure,
    },
}
