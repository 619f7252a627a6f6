//! What a Raft message says that its sender holds, and what a stored row says that it does: for checkers that look from outside
//! (F1, M-20). Nothing here decides anything.

use super::interface::Message;
use super::rows::decode;
use crate::rows::Row;
use crate::types::Term;
use penstock_wire::storage::v1;
use prost_raft::Message as _;
use raft::eraftpb::{self, MessageType};

/// What a message to another node rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The sender is in this term.
    pub term: Term,
    /// It has voted in this term for the member with this Raft id.
    pub vote: Option<u64>,
    /// Its log reaches this index.
    pub last: u64,
}

/// What the row of a group's hard state holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Term.
    pub term: Term,
    /// Vote in it, 0 for none.
    pub vote: u64,
    /// Commit index.
    pub commit: u64,
    /// Last index that compaction removed.
    pub truncated: u64,
}

/// What a message claims; none for one that rests on nothing: a pre-vote promises nothing.
#[must_use]
pub fn claim(message: &Message) -> Option<Claim> {
    let Message::Raft { body, .. } = message else {
        return None;
    };
    let message = eraftpb::Message::decode(body.as_ref()).ok()?;
    let (vote, last) = match message.get_msg_type() {
        MessageType::MsgRequestPreVote | MessageType::MsgRequestPreVoteResponse => return None,
        MessageType::MsgRequestVote => (Some(message.from), 0),
        MessageType::MsgRequestVoteResponse if !message.reject => (Some(message.to), 0),
        MessageType::MsgAppendResponse if !message.reject => (None, message.index),
        _ => (None, 0),
    };
    Some(Claim {
        term: Term(message.term),
        vote,
        last,
    })
}

/// What a row of [`crate::rows::Key::RaftState`] holds; none if it cannot be read.
#[must_use]
pub fn kept(row: &Row) -> Option<Kept> {
    let state: v1::RaftState = decode(row).ok()?;
    Some(Kept {
        term: Term(state.term),
        vote: state.vote,
        commit: state.commit,
        truncated: state.truncated_index,
    })
}
