//! What travels between replicas, and between them and the metadata.

use crate::log::{Log, Record};
use crate::types::Metadata;

/// Most records in one append.
pub(crate) const APPEND_MAX: usize = 3;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Message {
    /// The metadata as committed at some time, on its way to a replica.
    Metadata { to: usize, metadata: Metadata },
    /// Between two replicas.
    Peer {
        from: usize,
        to: usize,
        epoch: u16,
        body: Body,
    },
    /// The leader of this epoch has its start committed under both sets: the old set may go (CH-7).
    Clear { epoch: u16 },
    /// The leader of this epoch proposes a retention that its high watermark allows (CH-14).
    Retain { epoch: u16, through: usize },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Body {
    /// A leader-elect asks a voter, by the disk that the grant names.
    Promise { disk_boot: u16 },
    /// The voter's evidence.
    Promised { disk_boot: u16, report: Report },
    /// Records from an offset on, with the epoch of the one before.
    Append(Append),
    /// The log begins here: what is before is committed and gone.
    Snapshot {
        disk_boot: u16,
        epoch_start: usize,
        start: usize,
        base_epoch: u16,
        high_watermark: usize,
    },
    /// Where a follower durably stands (M-1).
    Progress(Progress),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    pub(crate) from: usize,
    pub(crate) accepted: u16,
    pub(crate) high_watermark: usize,
    pub(crate) log: Log,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Append {
    pub(crate) disk_boot: u16,
    pub(crate) epoch_start: usize,
    pub(crate) at: usize,
    pub(crate) previous_epoch: u16,
    pub(crate) records: [Record; APPEND_MAX],
    pub(crate) count: usize,
    pub(crate) high_watermark: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    pub(crate) disk_boot: u16,
    pub(crate) accepted: u16,
    pub(crate) end: usize,
    pub(crate) last_epoch: u16,
    /// After a conflict: where the leader should try next.
    pub(crate) retry_at: Option<usize>,
}
