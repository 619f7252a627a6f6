//! One replica of one channel log: protocol B, a write quorum with granted epochs.
//!
//! # Owns
//! The log of one incarnation on this node: its records, state row, idempotency rows and consumers' cursors; and, while it leads,
//! what it knows about the followers. A shard holds one [`Replica`] per active channel and forwards to it.
//!
//! # Invariants
//! - A promise is durable before it is answered, and whatever makes this replica promise or accept a newer epoch ends its leadership
//!   and its recovery in the same step (CH-4).
//! - `accepted` moves to an epoch only when the log reached that epoch's start; then what other epochs wrote beyond is dropped. The
//!   log is cut only at a real conflict, never below the known high watermark (CH-6).
//! - A follower counts for the high watermark only with a durable `accepted` of the leader's epoch (M-1); the leader's own log counts
//!   when it is stored (M-3). The high watermark stands still until W voters, of both sets while they change, reached the
//!   epoch start (CH-2, CH-7).
//! - A replica that lost its disk, or part of its log, gives no evidence until it accepted an epoch granted afterwards (CH-7, R30).
//! - Records and their idempotency rows are written in the same batch, on leader and followers alike (R20).
//!
//! # States
//! Loading (what the disk holds is read) → follower ⇄ recovering (granted, gathers promises, copies the best log, opens the epoch) →
//! leading (first until the epoch start is committed: nothing is accepted; then with appends). A newer epoch, or damage, leads
//! back to follower from everywhere. One voter alone takes the same way (CL-1).
//!
//! # Absent
//! Metadata are decided by the slot group and only obeyed here. Idempotency lookups, ids and acknowledgements belong to the append
//! authority, which hears of commits from [`Output::Committed`] alone (R25). A replica is dropped only after
//! [`Output::Evictable`] or while it [is at rest](Replica::is_at_rest), when its node stops, or when its incarnation ends: an epoch is resumed within the same process only,
//! and what was written before must have been stored by then (M-3).

mod activation;
mod cursors;
mod dedupe;
mod epochs;
mod faults;
mod follower;
mod handle;
mod leader;
mod link;
mod log;
mod message;
mod peers;
mod quorum;
mod read;
mod recovery;
mod state;
mod store;
mod view;

#[cfg(test)]
mod tests;

pub use epochs::EpochTable;
pub use faults::{FAULTS, Faults};
pub use link::{Exchange, Link};
pub use message::{
    Body, Cursors, Evidence, Message, Progress, Refusal, Replicate, Reset, record_bytes, records_bytes,
};
pub use state::StateRow;
pub use view::{RoleView, View};

use crate::limits::Limits;
use crate::message::{DedupeKey, Record};
use crate::rows::{Page, ReadRequest, Write};
use crate::types::{Boots, ChannelMeta, LeaderEpoch, MessageId, NodeId, Now, Replica as Voter, Seq, Token};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What a replica is made of.
#[derive(Clone, Debug)]
pub struct Setup {
    /// This node.
    pub node: NodeId,
    /// Its boots.
    pub boots: Boots,
    /// Strictly increasing per shard: tokens of an earlier activation are recognised and dropped (CH-13).
    pub activation: u32,
    /// Bounds.
    pub limits: Arc<Limits>,
    /// Planted faults.
    pub faults: Faults,
    /// The complete metadata (CH-10): they name the incarnation that this replica belongs to.
    pub meta: ChannelMeta,
}

/// A record to be written by the leader, which adds position, epoch and checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRecord {
    /// Stamp of the append authority, ms since 1970 (AP-4).
    pub stamp_ms: u64,
    /// Message id of the append authority (AP-4).
    pub id: MessageId,
    /// Idempotency key, if the client gave a number (AP-2).
    pub key: Option<DedupeKey>,
    /// Encoded message.
    pub body: Bytes,
}

/// What a replica is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Begin: read what the disk holds. The first input; the only one that reads rows.
    Start,
    /// Newer metadata from the slot group. Older ones, and those of another incarnation, are ignored.
    Meta(ChannelMeta),
    /// Write these records, in order and contiguously. Answered by `Appended` or `Refused`.
    Append {
        /// Names the answer.
        token: Token,
        /// The records.
        records: Vec<NewRecord>,
    },
    /// A message of another replica of the channel.
    Peer {
        /// The node.
        from: NodeId,
        /// What it says.
        message: Message,
    },
    /// The Store of this token, and all before it, are durable.
    Stored {
        /// The token of the Store.
        token: Token,
    },
    /// The answer to a Read output.
    ReadDone {
        /// The token of the Read.
        token: Token,
        /// What was read.
        page: Page,
    },
    /// Read committed records from a position on (CH-3). Answered by `ReadReply`, also while this replica follows (RD-4).
    Read {
        /// Names the answer.
        token: Token,
        /// First position wanted.
        from: Seq,
        /// Most records.
        records_max: u32,
        /// Most bytes; one record always fits.
        bytes_max: u32,
    },
    /// Prove that this replica still leads (M-5, R16). Answered by `Proven` or `NotProven`.
    ProveLeadership {
        /// Names the answer.
        token: Token,
    },
    /// A post-commit consumer got this far (M-6). Only the leader takes it; values never go back.
    Cursor {
        /// The consumer.
        consumer: Bytes,
        /// Its position; fixed width, compared as bytes.
        value: Bytes,
    },
    /// The same, for a position that must not be lost: answered by `CursorFixed` once as many replicas hold it durably as a commit
    /// needs, or never in this leadership.
    FixCursor {
        /// Names the answer.
        token: Token,
        /// The consumer.
        consumer: Bytes,
        /// Its position.
        value: Bytes,
    },
    /// Removed records must stay below this position, whatever the metadata allow (CH-14); none lifts the hold.
    Retention {
        /// The lowest position that must stay.
        hold: Option<Seq>,
    },
}

/// What a replica wants done, or tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send to the replica on that node.
    Send {
        /// The node.
        to: NodeId,
        /// The message.
        message: Message,
    },
    /// Write atomically, after all earlier ones; tell `Stored` when durable.
    Store {
        /// Names it.
        token: Token,
        /// The writes.
        writes: Vec<Write>,
    },
    /// Scan; tell `ReadDone`.
    Read {
        /// Names it.
        token: Token,
        /// What to read.
        request: ReadRequest,
    },
    /// Activation is done: messages of other replicas are taken from now on.
    Ready,
    /// The records are written, not committed: their outcome is open until `Committed` passes them or `LostLeadership`.
    Appended {
        /// The token of the append.
        token: Token,
        /// Position of the first record.
        first: Seq,
    },
    /// Nothing was written.
    Refused {
        /// The token of the append.
        token: Token,
        /// Why.
        why: Why,
    },
    /// Everything up to here is committed in this leadership. Acknowledgement and delivery follow from this alone.
    Committed {
        /// Last committed position.
        high_watermark: Seq,
    },
    /// The epoch start is committed: appends are accepted from now on (CH-3).
    Leading {
        /// The epoch.
        leader_epoch: LeaderEpoch,
    },
    /// Leadership ended: what was appended and not committed has an unknown outcome (R21).
    LostLeadership {
        /// The epoch that ended.
        leader_epoch: LeaderEpoch,
    },
    /// The metadata known here do not suffice: there is no leader, or a newer epoch was seen. Ask the slot group.
    NeedMeta {
        /// The version known here.
        version: u64,
    },
    /// This replica may give no evidence before an epoch at least this new is granted: with the present one it neither leads nor
    /// follows (R30). Told again while none is.
    NeedEpoch {
        /// The oldest epoch that helps.
        epoch: LeaderEpoch,
    },
    /// The answer to a Read.
    ReadReply {
        /// The token of the read.
        token: Token,
        /// What was found.
        reply: ReadReply,
    },
    /// This replica led when the request came; every earlier acknowledgement is at or below the high watermark.
    Proven {
        /// The token of the request.
        token: Token,
        /// The high watermark to read at.
        high_watermark: Seq,
    },
    /// A position is held by as many replicas as a commit needs: whoever leads next knows it.
    CursorFixed {
        /// The token of the request.
        token: Token,
    },
    /// Leadership could not be proved.
    NotProven {
        /// The token of the request.
        token: Token,
    },
    /// A learner has reached the high watermark in this epoch: it may become a voter (CH-7).
    CaughtUp {
        /// The learner and its disk.
        learner: Voter,
        /// The epoch in which it caught up.
        leader_epoch: LeaderEpoch,
    },
    /// The epoch start is committed under both sets: `previous` may be cleared, by compare-and-set on this version (CH-7).
    VoterChangeDone {
        /// Version of the metadata under which it was proved.
        version: u64,
        /// The epoch in which it was proved.
        leader_epoch: LeaderEpoch,
    },
    /// Fenced, and nothing is in flight (CH-9).
    Drained {
        /// The task of the fence.
        fence: u64,
        /// Next position to be written.
        log_end: Seq,
    },
    /// Idle, with nothing in flight and nobody lagging: the replica may be dropped (CH-10).
    Evictable,
    /// Records from here on are damaged on this disk. The replica withdrew; [`Output::NeedEpoch`] follows, so that it may fetch
    /// them again (R30).
    Damaged {
        /// First position that was given up.
        from: Seq,
        /// What was found.
        what: String,
    },
    /// Something that must not happen came from outside and was refused (CH-11).
    Alarm {
        /// What.
        what: &'static str,
    },
}

/// Why an append was refused. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Another replica leads, or nobody.
    NotLeading,
    /// This replica will lead when its epoch start is committed.
    Recovering,
    /// The channel is fenced (CH-9).
    Fenced,
    /// Too many records wait for their commit (AP-7).
    Busy,
    /// No records.
    Empty,
}

/// What a read found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadReply {
    /// Committed records, ascending and contiguous, from the later of the asked position and the log start.
    pub records: Vec<Record>,
    /// First position held: what was asked for below it is gone (RD-3).
    pub log_start: Seq,
    /// Last committed position known here.
    pub high_watermark: Seq,
    /// Whether reading failed (damaged records, R30); another replica may have them.
    pub failed: bool,
}

/// One replica of one channel log.
pub struct Replica {
    node: NodeId,
    boots: Boots,
    limits: Arc<Limits>,
    faults: Faults,
    meta: ChannelMeta,
    hold: Option<Seq>,
    /// Everything but the log, as it stands with the writes that are not durable yet.
    promised: LeaderEpoch,
    accepted: LeaderEpoch,
    accepted_start: Seq,
    withheld: LeaderEpoch,
    high_watermark: Seq,
    log: log::Log,
    /// Share of the memory for committed records that this channel has at present.
    tail_bytes_max: usize,
    cursors: cursors::CursorTable,
    store: store::StoreQueue,
    reads: BTreeMap<Token, read::Purpose>,
    role: Role,
    following: follower::Following,
    /// When metadata were asked for last.
    asked_meta_at: Option<Duration>,
    /// When lazily kept values (high watermark, cursors) are stored at the latest.
    flush_at: Option<Duration>,
    active_at: Duration,
    idle_told: bool,
}

/// What a replica does.
enum Role {
    /// It reads what the disk holds.
    Loading(activation::Loading),
    /// It follows, or waits.
    Follower,
    /// It was granted the epoch and gathers evidence.
    Recovering(recovery::Recovery),
    /// It leads.
    Leading(leader::Leading),
}

/// The time of an input, and where outputs go.
struct Turn<'a> {
    now: Now,
    out: &'a mut Vec<Output>,
}

impl Turn<'_> {
    fn push(&mut self, output: Output) {
        self.out.push(output);
    }
}
