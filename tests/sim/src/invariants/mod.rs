//! Checkers that look from outside, one file per rule id (M-20): at durable rows of the disks and at what shards show.
//! None of them asks the machine that it checks whether all is well.

mod ch_1;
mod ch_2;
mod ch_3;
mod ch_4;
mod ch_5;
mod ch_6;
mod ch_7;
mod sl_1;

use crate::coverage::{Coverage, Met};
use crate::disk::SimDisk;
use crate::oracle::Oracle;
use crate::world::Node;
use bytes::Bytes;
use penstock_core::channel::{Replica, RoleView, StateRow};
use penstock_core::message::{self, Record};
use penstock_core::rows::{Key, Page, ReadRequest, Write};
use penstock_core::types::{ChannelKey, ChannelMeta, Incarnation, LeaderEpoch, ProcessBoot, Seq};
use std::collections::BTreeMap;

/// What a voter could report when its promise became durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Evidence {
    accepted: LeaderEpoch,
    log_end: Seq,
    last_crc: u32,
}

/// A committed position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Committed {
    /// Checksum of the record; 0 where retention was faster.
    crc: u32,
    /// The epoch of the leader that called it committed first.
    epoch: LeaderEpoch,
}

/// What the checkers know of one channel log.
#[derive(Debug, Default)]
struct Log {
    channel: Option<ChannelKey>,
    /// Highest position that any leader ever called committed.
    high_watermark: u64,
    /// What is committed, by position from 1.
    committed: Vec<Committed>,
    /// Epoch → who led it.
    leaders: BTreeMap<LeaderEpoch, (usize, ProcessBoot)>,
    /// (epoch, node) → what the node held when its promise became durable.
    evidence: BTreeMap<(LeaderEpoch, usize), Evidence>,
    /// Node → its durable state row when last looked at.
    rows: BTreeMap<usize, Bytes>,
    /// Node → its highest durable promise.
    promised: BTreeMap<usize, LeaderEpoch>,
    /// The newest metadata that anyone acts on.
    meta: Option<ChannelMeta>,
}

/// What the checkers remember.
#[derive(Debug, Default)]
pub struct Invariants {
    logs: BTreeMap<Incarnation, Log>,
    /// Nodes that lost durable records by a fault of the disk: their copies count for nothing any more.
    damaged: Vec<usize>,
    hashes: sl_1::Hashes,
}

/// A leader as its shard shows it, and where it stands.
struct Leading<'a> {
    node: usize,
    process: ProcessBoot,
    epoch: LeaderEpoch,
    replica: &'a Replica,
    disk: &'a SimDisk,
}

impl Invariants {
    /// After a step of a shard.
    pub fn watch(
        &mut self,
        nodes: &[Node],
        (node, shard): (usize, u16),
        oracle: &mut Oracle,
        coverage: &mut Coverage,
    ) {
        let owner = &nodes[node];
        let host = &owner.hosts[usize::from(shard)];
        for (channel, replica) in host.shard.touched_replicas() {
            let meta = replica.meta();
            let epoch = match replica.role_view() {
                RoleView::Opening(epoch) | RoleView::Leading(epoch) => epoch,
                RoleView::Loading | RoleView::Follower | RoleView::Recovering(_) => continue,
            };
            let log = self.logs.entry(meta.incarnation).or_default();
            let leading = Leading {
                node,
                process: owner.process,
                epoch,
                replica,
                disk: &owner.disk,
            };
            if log.channel.is_none() {
                log.channel = Some(channel.clone());
            }
            if log.meta.as_ref().is_none_or(|known| known.version < meta.version) {
                if ch_7::check(log.meta.as_ref(), meta, oracle) {
                    coverage.meet(Met::VoterChanges);
                }
                log.meta = Some(meta.clone());
            }
            ch_4::leads(log, &leading, oracle);
            if !log.leaders.contains_key(&epoch) {
                if log
                    .leaders
                    .values()
                    .next_back()
                    .is_some_and(|(before, _)| *before != node)
                {
                    coverage.meet(Met::Failovers);
                }
                log.leaders.insert(epoch, (node, owner.process));
                ch_1::complete(log, &leading, oracle);
                ch_5::check(log, &leading, &self.damaged, oracle);
            }
            let high_watermark = replica.high_watermark().0;
            if high_watermark > log.high_watermark {
                ch_2::check(nodes, &leading, &self.damaged, oracle);
                ch_1::extend(log, &leading, high_watermark);
                log.high_watermark = high_watermark;
            }
        }
    }

    /// A sync of a node made something durable.
    pub fn synced(&mut self, owner: &Node, node: usize, oracle: &mut Oracle) {
        for (&incarnation, log) in &mut self.logs {
            let Some(row) = owner.disk.durable_row(&Key::ChannelState { incarnation }) else {
                continue;
            };
            if log.rows.get(&node) == Some(&row) {
                continue;
            }
            log.rows.insert(node, row.clone());
            let Ok(state) = StateRow::decode(&row) else {
                oracle.violate(
                    "R30",
                    format!("node {node} holds a state row that cannot be read"),
                );
                continue;
            };
            ch_4::promise(log, node, &state, oracle);
            ch_5::note(log, node, &owner.disk, incarnation, &state);
        }
    }

    /// A shard writes; nothing of it is visible yet.
    pub fn writes(&mut self, node: usize, owner: &Node, writes: &[Write], oracle: &mut Oracle) {
        // A replica whose records are damaged withdraws and fetches them again (R30).
        if self.damaged.contains(&node) {
            return;
        }
        for write in writes {
            if let Write::TruncateRecords { incarnation, from } = write {
                ch_6::check(&owner.disk, *incarnation, *from, oracle);
            }
        }
    }

    /// A message reaches a client.
    pub fn shown(&mut self, message: &message::Committed, oracle: &mut Oracle) {
        ch_3::check(&self.logs, message, oracle);
    }

    /// Rows of the nodes are compared, now and then.
    pub fn compare_rows(&mut self, nodes: &[Node], oracle: &mut Oracle) {
        self.hashes.compare(nodes, oracle);
    }

    /// A disk was lost, or records on it were damaged.
    pub fn damaged(&mut self, node: usize, all_of_it: bool) {
        self.damaged.push(node);
        if all_of_it {
            for log in self.logs.values_mut() {
                log.rows.remove(&node);
                log.promised.remove(&node);
            }
        }
    }

    /// Which incarnation of a channel is the newest that was led.
    #[must_use]
    pub fn incarnation(&self, channel: &ChannelKey) -> Option<(Incarnation, &ChannelMeta)> {
        self.logs
            .iter()
            .rev()
            .find(|(_, log)| log.channel.as_ref() == Some(channel))
            .and_then(|(&incarnation, log)| log.meta.as_ref().map(|meta| (incarnation, meta)))
    }
}

/// The durable state row of a replica, as far as it can be read.
fn durable_state(disk: &SimDisk, incarnation: Incarnation) -> StateRow {
    disk.durable_row(&Key::ChannelState { incarnation })
        .and_then(|row| StateRow::decode(&row).ok())
        .unwrap_or_default()
}

/// One record of a page, if it is there and whole.
fn single(page: Page, seq: u64) -> Option<Record> {
    match page {
        Page::Records(records) => records.into_iter().next().filter(|record| record.seq.0 == seq),
        _ => None,
    }
}

fn one_record(incarnation: Incarnation, seq: u64) -> ReadRequest {
    ReadRequest::Records {
        incarnation,
        from: Seq(seq),
        through: Seq(seq),
        records_max: 1,
        bytes_max: u32::MAX,
    }
}

/// The last durable record of a log.
fn durable_tail(disk: &SimDisk, incarnation: Incarnation) -> Option<Record> {
    match disk.durable_read(&ReadRequest::LogTail { incarnation }) {
        Page::Records(records) => records.into_iter().next_back(),
        _ => None,
    }
}
