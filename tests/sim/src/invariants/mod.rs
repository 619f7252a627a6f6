//! Checkers that look from outside, one file per rule id (M-20): at durable rows of the disks and at what shards show.
//! None of them asks the machine that it checks whether all is well.

pub mod ap_2;
pub mod ap_3;
mod ch_1;
mod ch_2;
mod ch_3;
mod ch_4;
mod ch_5;
mod ch_6;
mod ch_7;
mod f_1;
mod ledger;
mod m_1;
pub mod m_18;
pub mod m_19;
pub mod m_19_connect;
mod m_8;
pub mod online_status;
pub mod pc_1;
pub mod pc_5;
pub mod pr_4;
pub mod s_16;
pub mod s_17;
mod sl_1;
pub mod sl_9;

use crate::coverage::{Coverage, Met};
use crate::disk::SimDisk;
use crate::oracle::Oracle;
use crate::world::Node;
use ledger::{Change, Held, Ledger};
use penstock_core::channel::{Body, Replica, RoleView};
use penstock_core::effect::Event;
use penstock_core::message::{self, Record};
use penstock_core::rows::{Instance, Page, ReadRequest, Write};
use penstock_core::shard::Peer;
use penstock_core::types::{ChannelKey, ChannelMeta, GroupId, Incarnation, LeaderEpoch, Seq, Token};
use std::collections::{BTreeMap, BTreeSet};

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
    /// Epoch → the node that led it, and in which life of its process.
    leaders: BTreeMap<LeaderEpoch, (usize, u32)>,
    /// The newest epoch whose start was called committed.
    ready: LeaderEpoch,
    /// (epoch, node) → what the node held when its promise became durable.
    evidence: BTreeMap<(LeaderEpoch, usize), Evidence>,
    /// (epoch, node) whose promise has reached a leader-elect.
    heard: BTreeSet<(LeaderEpoch, usize)>,
    /// Node → what it durably holds.
    held: BTreeMap<usize, Held>,
    /// The newest metadata that anyone acts on.
    meta: Option<ChannelMeta>,
}

/// What the checkers remember.
#[derive(Debug, Default)]
pub struct Invariants {
    logs: BTreeMap<Incarnation, Log>,
    /// Nodes that lost durable records by a fault of the disk: their copies count for nothing any more.
    damaged: Vec<usize>,
    ledger: Ledger,
    votes: f_1::Votes,
    digests: sl_1::Digests,
    flood: Option<sl_9::Flood>,
}

/// What was seen of the leaders of a shard.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// An epoch is led for the first time.
    pub opened: bool,
    /// So is the first one of a channel.
    pub born: bool,
    /// Metadata with other voters or learners are acted on.
    pub voters: bool,
}

/// A leader as its shard shows it, and where it stands.
struct Leading<'a> {
    node: usize,
    life: u32,
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
    ) -> Seen {
        let mut seen = Seen::default();
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
                life: owner.life,
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
                seen.voters |= log
                    .meta
                    .as_ref()
                    .is_some_and(|known| (&known.voters, &known.learners) != (&meta.voters, &meta.learners));
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
                seen.opened = true;
                seen.born |= log.leaders.is_empty();
                log.leaders.insert(epoch, (node, owner.life));
                ch_1::complete(log, &leading, oracle);
                ch_5::promised(log, &leading, &self.damaged, oracle);
                ch_5::check(log, &leading, &self.damaged, oracle);
            }
            if replica.role_view() == RoleView::Leading(epoch) && log.ready < epoch {
                log.ready = epoch;
                let start = replica.view().epoch_start.previous();
                let start = (&*log, start, ch_2::Committed::Now);
                ch_2::check(nodes, start, &leading, &self.damaged, oracle);
            }
            watermark(nodes, log, &leading, &self.damaged, oracle);
        }
        seen
    }

    /// A sync of a node made something durable.
    pub fn synced(&mut self, owner: &Node, node: usize, instance: Instance, oracle: &mut Oracle) {
        let unsynced = owner.disk.unsynced(instance);
        let mut promises = BTreeSet::new();
        for change in self.ledger.synced(node, instance, unsynced) {
            self.votes.synced(node, &change);
            let (Change::State(incarnation, _)
            | Change::End(incarnation, _)
            | Change::Cut(incarnation, _)
            | Change::Dropped(incarnation)) = &change
            else {
                continue;
            };
            let incarnation = *incarnation;
            let log = self.logs.entry(incarnation).or_default();
            let held = log.held.entry(node).or_default();
            match change {
                Change::State(_, state) => {
                    ch_4::promise(log.channel.as_ref(), node, &held.state, &state, oracle);
                    held.end = held.end.max(state.log_start);
                    held.state = state;
                    promises.insert(incarnation);
                }
                Change::End(_, end) => held.end = end,
                Change::Cut(_, from) => held.end = held.end.min(from).max(held.state.log_start),
                Change::Dropped(_) => {
                    log.held.remove(&node);
                }
                Change::Kept(..) | Change::Last(..) | Change::LogCut(..) => {}
            }
        }
        for incarnation in promises {
            if let Some(log) = self.logs.get_mut(&incarnation) {
                ch_5::note(log, node, &owner.disk, incarnation);
            }
        }
    }

    /// A group's leader is about to be flooded; the proposal with this token is a grant.
    pub fn flooded(&mut self, node: usize, life: u32, group: GroupId, token: Token) {
        self.flood = Some(sl_9::Flood {
            node,
            life,
            group,
            token,
            logged: 0,
            before: None,
        });
    }

    /// A shard of a node is given an event.
    pub fn given(&mut self, node: usize, event: &Event) {
        if let Some(flood) = &mut self.flood
            && flood.node == node
            && let Event::Peer {
                message: Peer::Request { token, .. },
                ..
            } = event
        {
            flood.asked(*token);
        }
        if let Event::Peer {
            from,
            message: Peer::Exchange { exchange, .. },
        } = event
        {
            for (_, message) in &exchange.messages {
                if let Body::Promised(_) = message.body {
                    let log = self.logs.entry(message.incarnation).or_default();
                    log.heard.insert((message.leader_epoch, usize::from(from.0) - 1));
                }
            }
        }
    }

    /// A process ended, and with it what it had not synced, in part.
    pub fn crashed(&mut self, node: usize) {
        self.ledger.crashed(node);
    }

    /// A process is about to start on its disk.
    pub fn opened(&mut self, owner: &Node, node: usize, oracle: &mut Oracle) {
        self.votes.opened(node, &owner.disk, oracle);
        for (&incarnation, log) in &mut self.logs {
            let held = m_8::opened((incarnation, log), node, &owner.disk, oracle);
            log.held.insert(node, held);
            ch_5::note(log, node, &owner.disk, incarnation);
        }
    }

    /// A message leaves a node for another one.
    pub fn sent(&mut self, node: usize, message: &Peer, oracle: &mut Oracle) {
        match message {
            Peer::Group { group, message } => self.votes.sent(node, *group, message, oracle),
            // A replica whose records are damaged takes back what it had proved (R30).
            Peer::Exchange { exchange, .. } if !self.damaged.contains(&node) => {
                for (_, message) in &exchange.messages {
                    let log = self.logs.entry(message.incarnation).or_default();
                    m_1::sent(log, node, message, oracle);
                }
            }
            _ => {}
        }
    }

    /// A shard wrote a batch; nothing of it is durable yet.
    pub fn wrote(
        &mut self,
        node: usize,
        owner: &Node,
        (instance, writes): (Instance, &[Write]),
        oracle: &mut Oracle,
    ) {
        self.ledger.wrote(node, instance, writes);
        if instance == Instance::Meta {
            self.digests.wrote(node, owner, writes, oracle);
            if let Some(flood) = &mut self.flood
                && (flood.node, flood.life) == (node, owner.life)
                && flood.wrote(writes, oracle)
            {
                self.flood = None;
            }
        }
    }

    /// A shard writes; nothing of it is visible yet.
    pub fn writes(&mut self, node: usize, writes: &[Write], oracle: &mut Oracle) {
        // A replica whose records are damaged withdraws and fetches them again (R30).
        if self.damaged.contains(&node) {
            return;
        }
        for write in writes {
            if let Write::TruncateRecords { incarnation, from } = write
                && let Some(held) = self.logs.get(incarnation).and_then(|log| log.held.get(&node))
            {
                ch_6::check(held, *incarnation, *from, oracle);
            }
        }
    }

    /// A message reaches a client.
    pub fn shown(&mut self, message: &message::Committed, oracle: &mut Oracle) {
        ch_3::check(&self.logs, message, oracle);
    }

    /// A disk was lost, or records on it were damaged.
    pub fn damaged(&mut self, node: usize, all_of_it: bool) {
        self.damaged.push(node);
        if all_of_it {
            self.votes.lost(node);
            for log in self.logs.values_mut() {
                log.held.remove(&node);
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

/// The high watermark that a leader tells now, if it is a new one.
fn watermark(nodes: &[Node], log: &mut Log, leading: &Leading<'_>, damaged: &[usize], oracle: &mut Oracle) {
    let high_watermark = leading.replica.high_watermark().0;
    if high_watermark <= log.high_watermark {
        return;
    }
    let committed = if high_watermark < leading.replica.view().epoch_start.0 {
        ch_2::Committed::Before
    } else {
        ch_2::Committed::Now
    };
    let known = (&*log, Seq(high_watermark), committed);
    ch_2::check(nodes, known, leading, damaged, oracle);
    ch_1::extend(log, leading, high_watermark);
    log.high_watermark = high_watermark;
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
