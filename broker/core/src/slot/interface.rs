//! The words of a group: what it is told, what it wants done, what groups of other nodes say to each other.

use crate::replicated::{Notice, Reply};
use crate::rows::{Page, ReadRequest, Write};
use crate::types::{DiskBoot, NodeId, RaftIndex, Replica, Term, Token};
use bytes::Bytes;

/// The lane of a proposal. A lane is served only while the ones before it are empty, and each has its own bound, so that a
/// flood of cursors never delays a grant (SL-9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Grants, fences, placement, membership of the cluster.
    Reserved,
    /// Users, channels, lists.
    Ordinary,
    /// Read cursors, outbox rows and the like.
    Background,
}

/// What a group is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A message of the same group on another node.
    Peer {
        /// The sender.
        from: NodeId,
        /// What it says.
        message: Message,
    },
    /// Commit a command (encoded by [`crate::slot::command`]). Answered once by [`Output::Proposed`] within
    /// `Limits::request_timeout`.
    Propose {
        /// Named in the answer.
        token: Token,
        /// Its lane.
        lane: Lane,
        /// The command.
        command: Bytes,
    },
    /// Is everything committed before this moment applied here? Answered once by [`Output::ReadReady`] (SL-5).
    ReadIndex {
        /// Named in the answer.
        token: Token,
    },
    /// The Store output of this token, and all before it, are durable.
    Stored {
        /// The token.
        token: Token,
    },
    /// The answer to [`Output::Read`].
    ReadDone {
        /// The token.
        token: Token,
        /// The rows.
        page: Page,
    },
    /// Apply committed commands: the only input that reads rows and may miss.
    Apply,
    /// Hand leadership over (F8). Answered once by [`Output::Transferred`].
    Transfer {
        /// Named in the answer.
        token: Token,
        /// To whom.
        to: NodeId,
    },
    /// Change the group's members, one at a time (F6). Answered once by [`Output::Proposed`].
    ChangeMember {
        /// Named in the answer.
        token: Token,
        /// The change.
        change: MemberChange,
    },
}

/// A change of a group's members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// Adds a member without a vote. A wiped node is removed first and added with its new disk boot (CO-5).
    AddLearner(Replica),
    /// Gives a caught-up learner its vote.
    Promote(NodeId),
    /// Removes a member.
    Remove(NodeId),
}

/// What a group wants done, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Send to the same group on another node. May be lost, repeated or reordered.
    Send {
        /// The receiver.
        node: NodeId,
        /// What to say.
        message: Message,
    },
    /// Write into the meta instance, atomically and in order; answered by [`Input::Stored`].
    Store {
        /// Named in the answer; rises.
        token: Token,
        /// The writes.
        writes: Vec<Write>,
    },
    /// Scan rows (for a snapshot); answered by [`Input::ReadDone`].
    Read {
        /// Named in the answer.
        token: Token,
        /// What to read.
        request: ReadRequest,
    },
    /// Committed commands wait: hand in [`Input::Apply`] soon.
    Apply,
    /// The answer to a proposal or member change.
    Proposed {
        /// The token of the input.
        token: Token,
        /// The state machine's answer, or why it was not asked.
        result: Result<Reply, ProposeError>,
    },
    /// The answer to [`Input::ReadIndex`]: rows here include everything committed before it was asked.
    ReadReady {
        /// The token of the input.
        token: Token,
        /// Ready, or why not.
        result: Result<(), ProposeError>,
    },
    /// The answer to [`Input::Transfer`].
    Transferred {
        /// The token of the input.
        token: Token,
        /// Whether the target leads now.
        result: Result<(), ProposeError>,
    },
    /// Who leads changed, as this replica knows it.
    LeaderChanged {
        /// The leader, if known.
        leader: Option<NodeId>,
        /// The term.
        term: Term,
        /// Whether it is this node; then everything committed before its term is applied.
        is_self: bool,
    },
    /// What applied commands changed.
    Changed(Vec<Notice>),
    /// The group met something that it may not skip and does nothing any more (F12).
    Stopped {
        /// For people.
        reason: String,
    },
}

/// Why a proposal was not answered by the state machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProposeError {
    /// Not committed: this replica does not lead. Ask the hinted node (SL-4).
    NotLeader {
        /// Who leads, as far as this replica knows.
        hint: Option<NodeId>,
    },
    /// Not committed: the lane is full; retry later (SL-6).
    Full,
    /// Not committed: larger than this many bytes; cut it (F14).
    TooLarge {
        /// The bound.
        bytes_max: usize,
    },
    /// Not committed: the change of members or the transfer is not possible now (F6, F8).
    Refused,
    /// No outcome within the deadline: perhaps committed. Commands are idempotent or compare-and-set: ask again.
    Unknown,
    /// The group has stopped.
    Stopped,
}

/// What the replicas of a group say to each other.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// A Raft message, opaque outside of the group.
    Raft {
        /// The disk content of the sender: an older one is not listened to (CO-5).
        disk: DiskBoot,
        /// The disk content that the sender speaks to, 0 when it is not known: another one has lost what Raft relies on.
        to_disk: DiskBoot,
        /// Encoded Raft message.
        body: Bytes,
    },
    /// One chunk of a snapshot, sent again until it is acknowledged (SL-7).
    Chunk {
        /// Which transfer.
        transfer: Transfer,
        /// Position of the chunk, from 0.
        number: u64,
        /// CRC-32 of `body`.
        crc: u32,
        /// Encoded `wire::storage::v1::SnapshotChunk`.
        body: Bytes,
    },
    /// The receiver's answer to a chunk, or to a snapshot message whose rows it does not have.
    ChunkAck {
        /// Which transfer.
        transfer: Transfer,
        /// What became of it.
        answer: ChunkAnswer,
    },
}

/// Names one transfer of a snapshot; a later one replaces an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Transfer {
    /// Term of the sending leader.
    pub term: Term,
    /// Sender.
    pub sender: NodeId,
    /// The sender's counter.
    pub number: u64,
}

/// What became of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkAnswer {
    /// Everything below this chunk number is staged durably.
    Staged {
        /// The next chunk wanted.
        next: u64,
    },
    /// The receiver does not take this transfer (older, or it has lost its beginning): start a new one.
    Refused,
}

/// What a group knows of itself, for health and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The leader, if known.
    pub leader: Option<NodeId>,
    /// Term.
    pub term: Term,
    /// Whether this replica leads.
    pub is_leader: bool,
    /// Last applied index.
    pub applied: RaftIndex,
    /// Last committed index.
    pub committed: RaftIndex,
    /// Last index of the log.
    pub last: RaftIndex,
    /// Index up to which the log was compacted.
    pub truncated: RaftIndex,
    /// Voters.
    pub voters: Vec<NodeId>,
    /// Learners.
    pub learners: Vec<NodeId>,
    /// Proposals waiting in the lanes.
    pub queued: usize,
}
