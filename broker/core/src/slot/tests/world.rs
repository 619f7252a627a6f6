//! A group's replicas in virtual time, over a network that loses, repeats and reorders, and disks that crash.

use super::super::faults::Faults;
use super::super::{Group, GroupConfig, Input, Lane, Message, Output, ProposeError, fsm};
use super::disk::{Cold, Disk};
use super::random::Random;
use crate::limits::Limits;
use crate::replicated::Reply;
use crate::rows::{Miss, ReadRequest};
use crate::types::{Boots, DiskBoot, GroupId, NodeId, Now, ProcessBoot, Replica, SlotId, Term, Token};
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub(super) const GROUP: GroupId = GroupId(1);
const STEP: Duration = Duration::from_millis(10);
const EVERY_SLOT: u16 = 256;

pub(super) struct Node {
    pub(super) group: Option<Group>,
    pub(super) disk: Disk,
    pub(super) boots: Boots,
    reads: Vec<(Token, ReadRequest)>,
    down_until: u64,
}

pub(super) struct World {
    pub(super) nodes: BTreeMap<NodeId, Node>,
    pub(super) random: Random,
    pub(super) step: u64,
    pub(super) lossy: bool,
    pub(super) cut: BTreeSet<(NodeId, NodeId)>,
    /// Whether disks sync by themselves; if not, the test syncs.
    pub(super) syncing: bool,
    pub(super) answers: BTreeMap<Token, Result<Reply, ProposeError>>,
    pub(super) reads_answered: BTreeMap<Token, Result<(), ProposeError>>,
    pub(super) transferred: BTreeMap<Token, Result<(), ProposeError>>,
    pub(super) asked: BTreeMap<Token, (NodeId, u64)>,
    pub(super) leaders: BTreeMap<Term, NodeId>,
    pub(super) replaced: u64,
    pub(super) stopped: BTreeSet<NodeId>,
    pub(super) misses: u64,
    network: BTreeMap<(u64, u64), (NodeId, NodeId, Message)>,
    sent: u64,
    limits: Limits,
    faults: Faults,
    voters: Vec<NodeId>,
    next_token: u64,
}

pub(super) fn limits() -> Limits {
    Limits {
        raft_compact_entries: 64,
        snapshot_chunk_bytes: 256,
        ..Limits::default()
    }
}

impl World {
    pub(super) fn new(seed: u64, nodes: u16, limits: Limits, faults: Faults) -> World {
        let voters: Vec<NodeId> = (1..=nodes).map(NodeId).collect();
        let mut world = World {
            nodes: BTreeMap::new(),
            random: Random(seed),
            step: 0,
            lossy: false,
            cut: BTreeSet::new(),
            syncing: true,
            answers: BTreeMap::new(),
            reads_answered: BTreeMap::new(),
            transferred: BTreeMap::new(),
            asked: BTreeMap::new(),
            leaders: BTreeMap::new(),
            replaced: 0,
            stopped: BTreeSet::new(),
            misses: 0,
            network: BTreeMap::new(),
            sent: 0,
            limits,
            faults,
            voters: voters.clone(),
            next_token: 1,
        };
        for node in voters {
            world.add_node(node, u64::from(node.0));
            world.start(node);
        }
        world
    }

    /// A node with an empty disk. Its first start is left to the caller.
    pub(super) fn add_node(&mut self, node: NodeId, disk: u64) {
        let fresh = Node {
            group: None,
            disk: Disk::default(),
            boots: Boots {
                process: ProcessBoot(0),
                disk: DiskBoot(disk),
            },
            reads: Vec::new(),
            down_until: 0,
        };
        self.nodes.insert(node, fresh);
    }

    pub(super) fn now(&self) -> Now {
        let steps = u32::try_from(self.step).unwrap();
        Now {
            monotonic: STEP * steps,
            wall_ms: 1_000 + self.step * 10,
        }
    }

    pub(super) fn slots() -> Vec<SlotId> {
        (0..EVERY_SLOT).map(SlotId).collect()
    }

    /// Starts the process of a node from what its disk holds.
    pub(super) fn start(&mut self, node: NodeId) {
        let process = self.random.next() | 1;
        let now = self.now();
        let state = self.nodes.get_mut(&node).unwrap();
        state.boots.process = ProcessBoot(process);
        let first_voters = if self.voters.contains(&node) {
            let unknown = |node: &NodeId| Replica {
                node: *node,
                disk: DiskBoot(0),
            };
            self.voters.iter().map(unknown).collect()
        } else {
            Vec::new()
        };
        let config = GroupConfig {
            group: GROUP,
            node,
            boots: state.boots,
            seed: 7,
            slots: World::slots(),
            first_voters,
            limits: self.limits.clone(),
            faults: self.faults,
        };
        let machine = fsm::Machine::new(World::slots()).with_faults(self.faults);
        let mut out = Vec::new();
        let image = state.disk.image(GROUP);
        let group = Group::recover(config, Box::new(machine), &image, now, &mut out).unwrap();
        state.group = Some(group);
        self.take(node, out);
    }

    pub(super) fn crash(&mut self, node: NodeId, steps: u64) {
        let state = self.nodes.get_mut(&node).unwrap();
        state.group = None;
        state.reads.clear();
        state.disk.crash(&mut self.random);
        state.down_until = self.step + steps;
    }

    pub(super) fn token(&mut self) -> Token {
        self.next_token += 1;
        Token(self.next_token)
    }

    pub(super) fn input(&mut self, node: NodeId, input: Input) {
        let now = self.now();
        let state = self.nodes.get_mut(&node).unwrap();
        let Some(group) = state.group.as_mut() else { return };
        let mut out = Vec::new();
        let rows = Cold {
            map: &state.disk.visible,
            warm: RefCell::default(),
            seed: self.random.next(),
        };
        while let Err(Miss(keys)) = group.handle(now, input.clone(), &rows, &mut out) {
            assert!(!keys.is_empty() && out.is_empty(), "a miss changes nothing");
            rows.warm.borrow_mut().extend(keys);
            self.misses += 1;
        }
        self.take(node, out);
    }

    fn take(&mut self, node: NodeId, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Send { node: to, message } => self.send(node, to, message),
                Output::Store { token, writes } => {
                    self.nodes.get_mut(&node).unwrap().disk.store(token, writes);
                }
                Output::Read { token, request } => {
                    self.nodes.get_mut(&node).unwrap().reads.push((token, request));
                }
                Output::Apply => self.input(node, Input::Apply),
                Output::Proposed { token, result } => {
                    assert!(
                        self.answers.insert(token, result).is_none(),
                        "{token} is answered twice"
                    );
                }
                Output::ReadReady { token, result } => {
                    assert!(self.reads_answered.insert(token, result).is_none());
                }
                Output::Transferred { token, result } => {
                    assert!(self.transferred.insert(token, result).is_none());
                }
                Output::LeaderChanged { term, is_self, .. } => {
                    if is_self {
                        let leader = *self.leaders.entry(term).or_insert(node);
                        assert_eq!(leader, node, "two leaders in term {term}");
                    }
                }
                Output::Changed(notices) => {
                    let replaced = |notice: &_| matches!(notice, crate::replicated::Notice::Replaced { .. });
                    self.replaced += u64::from(notices.iter().any(replaced));
                }
                Output::Stopped { .. } => {
                    self.stopped.insert(node);
                }
            }
        }
    }

    fn send(&mut self, from: NodeId, to: NodeId, message: Message) {
        if self.lossy && self.random.one_in(40) {
            return;
        }
        let copies = if self.lossy && self.random.one_in(60) {
            2
        } else {
            1
        };
        for _ in 0..copies {
            let delay = if self.lossy { self.random.below(6) } else { 0 };
            self.sent += 1;
            self.network
                .insert((self.step + 1 + delay, self.sent), (from, to, message.clone()));
        }
    }

    /// One step of time: ticks, messages, syncs, reads.
    pub(super) fn advance(&mut self) {
        self.step += 1;
        let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
        for node in &nodes {
            let state = &self.nodes[node];
            if state.group.is_none() && state.down_until <= self.step {
                self.start(*node);
            }
            let now = self.now();
            let state = self.nodes.get_mut(node).unwrap();
            if let Some(group) = state.group.as_mut() {
                let mut out = Vec::new();
                group.expire(now, &mut out);
                self.take(*node, out);
            }
        }
        while let Some(entry) = self.network.first_entry()
            && entry.key().0 <= self.step
        {
            let (from, to, message) = entry.remove();
            if !self.cut.contains(&(from, to)) && self.nodes.contains_key(&to) {
                self.input(to, Input::Peer { from, message });
            }
        }
        for node in nodes {
            self.work(node);
        }
    }

    fn work(&mut self, node: NodeId) {
        while self.syncing && !(self.lossy && self.random.one_in(3)) {
            let state = self.nodes.get_mut(&node).unwrap();
            let Some(token) = state.disk.sync().filter(|_| state.group.is_some()) else {
                break;
            };
            self.input(node, Input::Stored { token });
        }
        let state = self.nodes.get_mut(&node).unwrap();
        for (token, request) in std::mem::take(&mut state.reads) {
            let page = self.nodes[&node].disk.read(&request);
            self.input(node, Input::ReadDone { token, page });
        }
    }

    pub(super) fn leader(&self) -> Option<NodeId> {
        let leads = |node: &Node| {
            node.group
                .as_ref()
                .filter(|group| group.leads())
                .map(|group| group.status().term)
        };
        self.nodes
            .iter()
            .filter_map(|(id, node)| leads(node).map(|term| (term, *id)))
            .max()
            .map(|(_, id)| id)
    }

    pub(super) fn run(&mut self, steps: u64) {
        for _ in 0..steps {
            self.advance();
        }
    }

    /// Runs until somebody leads.
    pub(super) fn elect(&mut self) -> NodeId {
        for _ in 0..2_000 {
            if let Some(leader) = self.leader() {
                return leader;
            }
            self.advance();
        }
        panic!("nobody leads after 20 s: {:?}", self.statuses());
    }

    pub(super) fn statuses(&self) -> Vec<String> {
        self.nodes
            .values()
            .map(|node| format!("{:?}", node.group))
            .collect()
    }

    pub(super) fn propose(&mut self, node: NodeId, lane: Lane, command: Bytes) -> Token {
        let token = self.token();
        self.asked.insert(token, (node, self.step));
        self.input(node, Input::Propose { token, lane, command });
        token
    }

    /// Proposes to the leader and runs until the answer.
    pub(super) fn commit(&mut self, command: Bytes) -> Reply {
        let leader = self.elect();
        let token = self.propose(leader, Lane::Ordinary, command);
        for _ in 0..400 {
            if let Some(answer) = self.answers.remove(&token) {
                return answer.unwrap();
            }
            self.advance();
        }
        panic!("no answer");
    }

    /// Runs until all living replicas have applied the same, and checks that they hold the same rows.
    pub(super) fn converge(&mut self) {
        for _ in 0..3_000 {
            self.advance();
            let statuses = self
                .nodes
                .values()
                .filter_map(|node| node.group.as_ref().map(Group::status));
            let positions: BTreeSet<_> = statuses
                .map(|status| (status.applied, status.committed, status.last))
                .collect();
            let all_up = self.nodes.values().all(|node| node.group.is_some());
            if all_up && self.leader().is_some() && positions.len() == 1 {
                let hashes: BTreeSet<u64> = self
                    .nodes
                    .values()
                    .map(|node| node.disk.hash(&World::slots()))
                    .collect();
                assert_eq!(hashes.len(), 1, "replicas differ: {:?}", self.statuses());
                return;
            }
        }
        panic!("no convergence within 30 s: {:#?}", self.statuses());
    }
}
