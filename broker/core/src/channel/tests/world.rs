//! Everything together, stepped by hand or by chance.

use super::Rng;
use super::checker::{Checker, Seen};
use super::disk::{Disk, View};
use super::slot::{Slot, first_boots};
use crate::channel::{Body, Faults, Input, Message, NewRecord, Output, Replica, RoleView, Setup};
use crate::cursor::Cursor;
use crate::limits::Limits;
use crate::message::DedupeKey;
use crate::rows::ReadRequest;
use crate::types::{Boots, ChannelMeta, LeaderEpoch, MessageId, NodeId, Now, ProcessBoot, Seq, Token};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What a world counts (M-21).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Coverage {
    pub(super) committed: u64,
    pub(super) failovers: u64,
    pub(super) truncations: u64,
    pub(super) resets: u64,
    pub(super) evictions: u64,
    pub(super) resumptions: u64,
    pub(super) changes: u64,
    pub(super) misses: u64,
    pub(super) wipes: u64,
    pub(super) barriers: u64,
    pub(super) reads: u64,
    pub(super) alarms: u64,
    pub(super) damages: u64,
    pub(super) fixes: u64,
}

pub(super) struct Node {
    pub(super) boots: Boots,
    pub(super) disk: Disk,
    pub(super) replica: Option<Replica>,
    /// The process runs.
    pub(super) up: bool,
    /// The replica may be dropped.
    evictable: bool,
    reads: Vec<(Token, ReadRequest)>,
    /// The epoch that it led last, for resumptions.
    led: LeaderEpoch,
}

/// What travels.
#[derive(Clone, Debug)]
pub(super) enum Packet {
    Peer {
        from: NodeId,
        to: NodeId,
        message: Message,
    },
    Meta {
        to: NodeId,
        meta: Box<ChannelMeta>,
    },
}

pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) now: Now,
    pub(super) slot: Slot,
    pub(super) nodes: BTreeMap<NodeId, Node>,
    pub(super) network: Vec<Packet>,
    pub(super) checker: Checker,
    pub(super) coverage: Coverage,
    /// Outputs for the shard, with the node that said them.
    pub(super) told: Vec<(NodeId, Output)>,
    /// Packets from and to this node are lost.
    pub(super) isolated: Option<NodeId>,
    faults: Faults,
    limits: Arc<Limits>,
    activation: u32,
    next_token: u64,
    /// High watermark at the time of each question for a proof.
    asked_proofs: BTreeMap<Token, Seq>,
    /// Positions that are to be fixed, with the epoch in which that was asked.
    asked_fixes: BTreeMap<Token, (LeaderEpoch, Bytes)>,
    last_fix: u64,
    miss_one_in: usize,
}

pub(super) fn tiny_limits() -> Limits {
    Limits {
        channel_tail_records: 2,
        replicate_bytes: 200,
        channel_idle: Duration::from_secs(1),
        channel_backlog: 12,
        ..Limits::default()
    }
}

impl World {
    pub(super) fn new(seed: u64, slot: Slot, faults: Faults) -> World {
        let nodes = slot.boots.keys().map(|node| (*node, Node::new())).collect();
        World {
            rng: Rng::new(seed),
            now: Now {
                monotonic: Duration::from_secs(1),
                wall_ms: 1_700_000_000_000,
            },
            slot,
            nodes,
            network: Vec::new(),
            checker: Checker::default(),
            coverage: Coverage::default(),
            told: Vec::new(),
            isolated: None,
            faults,
            limits: Arc::new(tiny_limits()),
            activation: 0,
            next_token: 1,
            asked_proofs: BTreeMap::new(),
            asked_fixes: BTreeMap::new(),
            last_fix: 0,
            miss_one_in: 4,
        }
    }

    pub(super) fn node(&self, node: NodeId) -> &Node {
        &self.nodes[&node]
    }

    fn node_mut(&mut self, node: NodeId) -> &mut Node {
        self.nodes.get_mut(&node).expect("a node of the world")
    }

    pub(super) fn replica(&self, node: NodeId) -> Option<&Replica> {
        self.nodes[&node].replica.as_ref()
    }

    pub(super) fn token(&mut self) -> Token {
        self.next_token += 1;
        Token(self.next_token)
    }

    /// Opens the channel on this node if it is not open (CH-10).
    pub(super) fn activate(&mut self, node: NodeId) {
        if !self.node(node).up || self.node(node).replica.is_some() {
            return;
        }
        self.activation += 1;
        let setup = Setup {
            node,
            boots: self.node(node).boots,
            activation: self.activation,
            limits: Arc::clone(&self.limits),
            faults: self.faults,
            meta: self.slot.meta.clone(),
        };
        let entry = self.node_mut(node);
        entry.evictable = false;
        entry.replica = Some(Replica::new(setup));
        self.feed(node, Input::Start);
    }

    /// Gives the replica an input, and does what it says.
    pub(super) fn feed(&mut self, node: NodeId, input: Input) {
        let misses = self.rng.one_in(self.miss_one_in);
        let now = self.now;
        let entry = self.nodes.get_mut(&node).expect("a node of the world");
        let Some(replica) = entry.replica.as_mut() else {
            return;
        };
        let mut out = Vec::new();
        let mut rows = View {
            image: &entry.disk.visible,
            misses,
        };
        let before = replica.view();
        if replica.handle(now, input.clone(), &rows, &mut out).is_err() {
            assert!(misses && out.is_empty(), "a miss changes nothing");
            assert_eq!(replica.view(), before, "a miss changes nothing");
            self.coverage.misses += 1;
            rows.misses = false;
            replica
                .handle(now, input, &rows, &mut out)
                .expect("everything is loaded");
        }
        let after = replica.view();
        if before.accepted != after.accepted
            && let RoleView::Recovering(epoch) = after.role
            && after.accepted == epoch
        {
            let meta = replica.meta().clone();
            self.checker.on_open(node, &meta, &before, &after);
        }
        self.execute(node, out);
    }

    pub(super) fn expire(&mut self, node: NodeId) {
        let now = self.now;
        let Some(replica) = self.node_mut(node).replica.as_mut() else {
            return;
        };
        let mut out = Vec::new();
        replica.expire(now, &mut out);
        self.execute(node, out);
    }

    fn execute(&mut self, node: NodeId, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Send { to, message } => {
                    let durable = &self.nodes[&node].disk.durable;
                    self.checker.on_send(node, &message, durable);
                    self.network.push(Packet::Peer {
                        from: node,
                        to,
                        message,
                    });
                }
                Output::Store { token, writes } => self.store(node, token, writes),
                Output::Read { token, request } => self.node_mut(node).reads.push((token, request)),
                Output::Committed { high_watermark } => self.committed(node, high_watermark),
                Output::Leading { leader_epoch } => self.leading(node, leader_epoch),
                Output::Evictable => self.node_mut(node).evictable = true,
                Output::ReadReply { reply, .. } => {
                    self.coverage.reads += 1;
                    self.checker.on_read(&reply.records);
                }
                Output::Proven {
                    token,
                    high_watermark,
                } => {
                    self.coverage.barriers += 1;
                    let asked = self.asked_proofs.remove(&token).expect("asked once");
                    if high_watermark < asked {
                        self.checker
                            .violated(format!("{node} proves an old leadership at {high_watermark}"));
                    }
                }
                Output::CursorFixed { token } => {
                    self.coverage.fixes += 1;
                    let asked = self.asked_fixes.remove(&token).expect("asked once");
                    self.checker.fixed.push(asked);
                }
                other => {
                    match &other {
                        Output::Alarm { .. } => self.coverage.alarms += 1,
                        Output::Damaged { .. } => self.coverage.damages += 1,
                        _ => {}
                    }
                    self.told.push((node, other));
                }
            }
        }
    }

    fn store(&mut self, node: NodeId, token: Token, writes: Vec<crate::rows::Write>) {
        use crate::rows::Write;
        let cuts = |write: &Write| matches!(write, Write::TruncateRecords { from, .. } if from.0 > 1);
        let anew = |write: &Write| matches!(write, Write::TruncateRecords { from, .. } if from.0 == 1);
        self.coverage.truncations += u64::from(writes.iter().any(cuts));
        self.coverage.resets += u64::from(writes.iter().any(anew));
        self.node_mut(node).disk.write(token, writes);
    }

    fn committed(&mut self, node: NodeId, through: Seq) {
        let mut checker = std::mem::take(&mut self.checker);
        let seen = self.seen();
        let replica = seen[&node].replica.expect("it just spoke");
        let epoch = match replica.role_view() {
            RoleView::Leading(epoch) | RoleView::Opening(epoch) => epoch,
            _ => LeaderEpoch(0),
        };
        checker.on_committed(node, (epoch, replica.meta()), through, &seen);
        drop(seen);
        self.checker = checker;
        self.coverage.committed = self.checker.committed_end().0;
    }

    fn leading(&mut self, node: NodeId, epoch: LeaderEpoch) {
        if self.node(node).led == epoch {
            self.coverage.resumptions += 1;
        } else {
            self.coverage.failovers += 1;
        }
        self.node_mut(node).led = epoch;
        let mut checker = std::mem::take(&mut self.checker);
        checker.on_leading(node, epoch, &self.node(node).disk.visible);
        let knows = self.replica(node).and_then(|replica| replica.cursor(b"keys"));
        checker.knows_fixed(node, epoch, knows);
        self.checker = checker;
        self.told.push((node, Output::Leading { leader_epoch: epoch }));
    }

    pub(super) fn seen(&self) -> BTreeMap<NodeId, Seen<'_>> {
        self.nodes
            .iter()
            .map(|(node, entry)| {
                let seen = Seen {
                    disk: entry.boots.disk,
                    durable: &entry.disk.durable,
                    visible: &entry.disk.visible,
                    replica: entry.replica.as_ref(),
                };
                (*node, seen)
            })
            .collect()
    }

    pub(super) fn check(&mut self) {
        let mut checker = std::mem::take(&mut self.checker);
        checker.after_step(&self.seen(), &self.slot.meta);
        self.checker = checker;
    }

    pub(super) fn check_end(&mut self) {
        let mut checker = std::mem::take(&mut self.checker);
        checker.at_the_end(&self.seen(), &self.slot.meta);
        self.checker = checker;
    }

    /// Delivers one packet; a node that does not run loses it.
    pub(super) fn deliver(&mut self, packet: Packet) {
        let cut = |node: NodeId| self.isolated == Some(node);
        match packet {
            Packet::Peer { from, to, .. } if cut(from) || cut(to) => {}
            Packet::Meta { to, .. } if cut(to) => {}
            Packet::Peer { from, to, message } => {
                self.activate(to);
                if let Body::Promised(evidence) = &message.body {
                    self.checker.on_evidence(to, from, message.leader_epoch, evidence);
                }
                self.feed(to, Input::Peer { from, message });
            }
            Packet::Meta { to, meta } => {
                // Somebody must open the channel where it was granted.
                if meta.leader.is_some_and(|leader| leader.node == to) {
                    self.activate(to);
                }
                self.feed(to, Input::Meta(*meta));
            }
        }
    }

    pub(super) fn sync(&mut self, node: NodeId, count: usize) {
        if let Some(token) = self.node_mut(node).disk.sync(count) {
            self.feed(node, Input::Stored { token });
        }
    }

    pub(super) fn read(&mut self, node: NodeId, place: usize) {
        let entry = self.node_mut(node);
        if place >= entry.reads.len() {
            return;
        }
        let (token, request) = entry.reads.remove(place);
        let page = entry.disk.visible.scan(&request);
        self.feed(node, Input::ReadDone { token, page });
    }

    pub(super) fn reads(&self, node: NodeId) -> usize {
        self.node(node).reads.len()
    }

    pub(super) fn append(&mut self, node: NodeId, count: usize) {
        let records = (0..count)
            .map(|_| {
                let number = self.token().0;
                NewRecord {
                    stamp_ms: self.now.wall_ms,
                    id: MessageId(i64::try_from(number).expect("small")),
                    key: (!number.is_multiple_of(3)).then_some(DedupeKey {
                        hash: number,
                        digest: u128::from(number),
                    }),
                    body: Bytes::from(format!("message {number}")),
                }
            })
            .collect();
        let token = self.token();
        self.feed(node, Input::Append { token, records });
    }

    /// Flips a bit of a stored record.
    pub(super) fn damage(&mut self, node: NodeId, seq: Seq) {
        let disk = &mut self.node_mut(node).disk;
        for image in [&mut disk.visible, &mut disk.durable] {
            let record = image.records.get_mut(&seq).expect("a stored record");
            record.crc ^= 1;
        }
    }

    pub(super) fn read_as_client(&mut self, node: NodeId, from: Seq) {
        let token = self.token();
        let input = Input::Read {
            token,
            from,
            records_max: 5,
            bytes_max: 100,
        };
        self.feed(node, input);
    }

    pub(super) fn cursor(&mut self, node: NodeId, value: u64) {
        let consumer = Bytes::from_static(b"delivery");
        let value = Bytes::copy_from_slice(&value.to_be_bytes());
        self.feed(node, Input::Cursor { consumer, value });
    }

    /// A window is to be fixed, if the node leads.
    pub(super) fn fix(&mut self, node: NodeId) {
        let role = self.replica(node).map(Replica::role_view);
        let Some(RoleView::Leading(epoch)) = role else {
            return;
        };
        self.last_fix += 2;
        let cursor = Cursor {
            open_to: Seq(self.last_fix + 1),
            cut_to: Seq(self.last_fix + 1),
            ..Cursor::at(Seq(self.last_fix))
        };
        let (token, value) = (self.token(), cursor.encode());
        self.asked_fixes.insert(token, (epoch, value.clone()));
        let consumer = Bytes::from_static(b"keys");
        let input = Input::FixCursor {
            token,
            consumer,
            value,
        };
        self.feed(node, input);
    }

    pub(super) fn prove(&mut self, node: NodeId) {
        if self.replica(node).is_some() {
            let token = self.token();
            self.asked_proofs.insert(token, self.checker.committed_end());
            self.feed(node, Input::ProveLeadership { token });
        }
    }

    pub(super) fn tell_all(&mut self) {
        for to in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.tell(to);
        }
    }

    pub(super) fn tell(&mut self, to: NodeId) {
        let meta = Box::new(self.slot.meta.clone());
        self.network.push(Packet::Meta { to, meta });
    }

    /// The process ends; a part of what was not synced may have reached the disk all the same.
    pub(super) fn crash(&mut self, node: NodeId) {
        let unsynced = self.node(node).disk.unsynced();
        let kept = self.rng.below(unsynced + 1);
        let entry = self.node_mut(node);
        entry.disk.sync(kept);
        entry.disk.crash();
        entry.replica = None;
        entry.reads.clear();
        entry.up = false;
        entry.boots.process = ProcessBoot(entry.boots.process.0 + 1);
    }

    pub(super) fn wipe(&mut self, node: NodeId) {
        self.crash(node);
        let entry = self.node_mut(node);
        entry.disk = Disk::default();
        entry.boots.disk.0 += 1;
        self.coverage.wipes += 1;
    }

    pub(super) fn start(&mut self, node: NodeId) {
        self.node_mut(node).up = true;
    }

    pub(super) fn register(&mut self, node: NodeId) {
        let boots = self.node(node).boots;
        self.slot.boots.insert(node, boots);
    }

    /// Drops the replica if it said that it may be.
    pub(super) fn evict(&mut self, node: NodeId) {
        let entry = self.node_mut(node);
        if entry.evictable && entry.replica.is_some() && entry.disk.unsynced() == 0 {
            entry.replica = None;
            entry.evictable = false;
            self.coverage.evictions += 1;
        }
    }

    /// Time passes to the next deadline, at most `most`; whoever has one is told.
    pub(super) fn pass(&mut self, most: Duration) {
        let next = self
            .nodes
            .values()
            .filter_map(|entry| entry.replica.as_ref()?.next_deadline())
            .min();
        let until = next.map_or(self.now.monotonic + most, |next| {
            next.min(self.now.monotonic + most)
        });
        let passed = until.saturating_sub(self.now.monotonic);
        self.now.monotonic += passed;
        self.now.wall_ms += u64::try_from(passed.as_millis()).expect("short");
        for node in self.nodes.keys().copied().collect::<Vec<_>>() {
            let due = self
                .replica(node)
                .and_then(Replica::next_deadline)
                .is_some_and(|at| at <= self.now.monotonic);
            if due {
                self.expire(node);
            }
        }
    }

    /// Delivers, syncs and reads until nothing is under way.
    pub(super) fn settle(&mut self) {
        for _ in 0..100_000 {
            let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
            let mut busy = false;
            for node in nodes {
                while self.reads(node) > 0 {
                    self.read(node, 0);
                    busy = true;
                }
                if self.node(node).disk.unsynced() > 0 {
                    self.sync(node, usize::MAX);
                    busy = true;
                }
            }
            if !self.network.is_empty() {
                let packet = self.network.remove(0);
                self.deliver(packet);
                busy = true;
            }
            self.check();
            if !busy {
                return;
            }
        }
        self.checker
            .violated("the replicas never come to rest".to_owned());
    }

    /// The state in words.
    pub(super) fn describe(&self) -> String {
        let mut lines = vec![format!("{:?}", self.slot.meta)];
        for (node, entry) in &self.nodes {
            let view = entry.replica.as_ref().map(Replica::view);
            let deadline = entry.replica.as_ref().and_then(Replica::next_deadline);
            lines.push(format!(
                "{node} {:?} up {} at {:?} next {deadline:?} durable {:?}\n   {view:?}",
                entry.boots,
                entry.up,
                self.now.monotonic,
                entry.disk.durable.state()
            ));
        }
        lines.join("\n")
    }

    /// The node that leads the present epoch and takes appends.
    pub(super) fn leader(&self) -> Option<NodeId> {
        let epoch = self.slot.meta.leader_epoch;
        self.nodes
            .iter()
            .find(|(_, entry)| {
                entry
                    .replica
                    .as_ref()
                    .is_some_and(|replica| replica.role_view() == RoleView::Leading(epoch))
            })
            .map(|(node, _)| *node)
    }
}

impl Node {
    fn new() -> Node {
        Node {
            boots: first_boots(),
            disk: Disk::default(),
            replica: None,
            up: true,
            evictable: false,
            reads: Vec::new(),
            led: LeaderEpoch(0),
        }
    }
}
