//! What each node has written and what of it is durable, followed write by write: the checkers ask here and read no disk.

use crate::disk::SimDisk;
use penstock_core::channel::StateRow;
use penstock_core::rows::{Instance, Key, Page, ReadRequest, Write};
use penstock_core::slot::claims::{self, Kept};
use penstock_core::types::{GroupId, Incarnation, Seq};
use std::collections::{BTreeMap, VecDeque};

/// What a node durably holds of one channel log.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) state: StateRow,
    /// Next position to be written.
    pub(super) end: Seq,
}

impl Default for Held {
    fn default() -> Held {
        Held {
            state: StateRow::default(),
            end: Seq(1),
        }
    }
}

/// What a node durably holds of one group's Raft state.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Voted {
    pub(super) kept: Kept,
    /// Last index of the log.
    pub(super) last: u64,
}

/// One change that a checker wants to know of.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// The state row of a channel log.
    State(Incarnation, StateRow),
    /// A channel log ends before this position, after an append.
    End(Incarnation, Seq),
    /// A channel log is cut from this position on.
    Cut(Incarnation, Seq),
    /// Nothing of it is left.
    Dropped(Incarnation),
    /// The hard state of a group.
    Kept(GroupId, Kept),
    /// A group's log ends with this index, after an append.
    Last(GroupId, u64),
    /// A group's log is cut from this index on.
    LogCut(GroupId, u64),
}

/// The batches that are written and not durable, by node and instance, oldest first.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pending: BTreeMap<(usize, Instance), VecDeque<Vec<Change>>>,
}

impl Ledger {
    /// A batch was written.
    pub(super) fn wrote(&mut self, node: usize, instance: Instance, writes: &[Write]) {
        let changes = writes.iter().filter_map(change).collect();
        self.pending
            .entry((node, instance))
            .or_default()
            .push_back(changes);
    }

    /// All but so many of the batches are durable now: their changes, in order.
    pub(super) fn synced(&mut self, node: usize, instance: Instance, unsynced: usize) -> Vec<Change> {
        let Some(pending) = self.pending.get_mut(&(node, instance)) else {
            return Vec::new();
        };
        let durable = pending.len().saturating_sub(unsynced);
        pending.drain(..durable).flatten().collect()
    }

    /// The process ended: which of its batches survive is seen when it starts again.
    pub(super) fn crashed(&mut self, node: usize) {
        self.pending.retain(|(of, _), _| *of != node);
    }
}

fn change(write: &Write) -> Option<Change> {
    Some(match write {
        Write::Put { key, value } => match key {
            Key::ChannelState { incarnation } => {
                Change::State(*incarnation, StateRow::decode(value).unwrap_or_default())
            }
            Key::RaftState { group } => Change::Kept(*group, claims::kept(value).unwrap_or_default()),
            Key::RaftEntry { group, index } => Change::Last(*group, index.0),
            _ => return None,
        },
        Write::AppendRecords { incarnation, records } => {
            Change::End(*incarnation, records.last()?.seq.next())
        }
        Write::TruncateRecords { incarnation, from } => Change::Cut(*incarnation, *from),
        Write::DropIncarnation { incarnation } => Change::Dropped(*incarnation),
        Write::TruncateRaft { group, from } => Change::LogCut(*group, from.0),
        _ => return None,
    })
}

/// What a disk durably holds of a channel log, read from it.
pub(super) fn read_held(disk: &SimDisk, incarnation: Incarnation) -> Held {
    let state = disk
        .durable_row(&Key::ChannelState { incarnation })
        .and_then(|row| StateRow::decode(&row).ok())
        .unwrap_or_default();
    let tail = match disk.durable_read(&ReadRequest::LogTail { incarnation }) {
        Page::Records(records) => records.into_iter().next_back(),
        _ => None,
    };
    let end = tail.map_or(state.log_start, |record| record.seq.next().max(state.log_start));
    Held { state, end }
}

/// What a disk durably holds of a group's Raft state, read from it.
pub(super) fn read_voted(disk: &SimDisk, group: GroupId) -> Voted {
    let kept = disk
        .durable_row(&Key::RaftState { group })
        .and_then(|row| claims::kept(&row))
        .unwrap_or_default();
    Voted {
        kept,
        last: disk.durable_last_entry(group),
    }
}
