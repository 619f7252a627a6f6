//! Three nodes of one shard each, over rows in memory: what needs several machines of several shards to be seen.

mod routes;

use super::{Config, Faults, Image, Peer, Shard};
use crate::admin::{Answer, Ask, ChannelFlags, List, ListChange};
use crate::effect::{Effect, Event};
use crate::hooks::call::{Call, Returned};
use crate::limits::Limits;
use crate::rows::{Key, Miss, Page, ReadRequest, Row, Rows, Write};
use crate::types::{Boots, ChannelKey, ChannelKind, DiskBoot, NodeId, Now, ProcessBoot, Token, Uid};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

const STEP: Duration = Duration::from_millis(10);

#[derive(Default)]
struct Memory(BTreeMap<Key, Row>);

impl Rows for Memory {
    fn row(&self, key: &Key) -> Result<Option<Row>, Miss> {
        Ok(self.0.get(key).cloned())
    }
}

impl Memory {
    fn write(&mut self, writes: Vec<Write>) {
        for write in writes {
            match write {
                Write::Put { key, value } => {
                    self.0.insert(key, value);
                }
                Write::Delete { key } => {
                    self.0.remove(&key);
                }
                // Nothing here restarts or reads a log.
                _ => {}
            }
        }
    }

    fn read(&self, request: &ReadRequest) -> Page {
        let ReadRequest::SlotRows {
            slot, table, prefix, ..
        } = request
        else {
            return Page::Records(Vec::new());
        };
        let rows = self.0.iter().filter_map(|(key, value)| match key {
            Key::Slot {
                slot: of,
                table: kind,
                key,
            } if of == slot && kind == table && key.starts_with(prefix) => {
                Some((*kind, key.clone(), value.clone()))
            }
            _ => None,
        });
        Page::Rows {
            rows: rows.collect(),
            more: false,
        }
    }
}

struct Node {
    shard: Shard,
    memory: Memory,
    events: VecDeque<Event>,
    /// It stands still and hears nothing.
    frozen: bool,
}

struct Cluster {
    nodes: BTreeMap<NodeId, Node>,
    now: Now,
    answers: BTreeMap<Token, Answer>,
    asked: u64,
    /// Calls of plugins, and what the next ones return; without it nothing yet.
    calls: Vec<Call>,
    returns: Option<Returned>,
}

impl Cluster {
    fn new() -> Cluster {
        let names: Vec<NodeId> = (1..=3).map(NodeId).collect();
        let node = |&node: &NodeId| {
            let config = Config {
                node,
                boots: Boots {
                    process: ProcessBoot(u64::from(node.0)),
                    disk: DiskBoot(u64::from(node.0)),
                },
                shard: 0,
                shards: 1,
                nodes: names.clone(),
                groups: 1,
                copies: 3,
                seed: 3,
                limits: Limits::default(),
                any_token: true,
                person_allowlist_required: false,
                faults: Faults::default(),
            };
            let node_of = Node {
                shard: Shard::new(config, Image::default()),
                memory: Memory::default(),
                events: VecDeque::new(),
                frozen: false,
            };
            (node, node_of)
        };
        Cluster {
            nodes: names.iter().map(node).collect(),
            now: Now {
                monotonic: Duration::ZERO,
                wall_ms: 1_900_000_000_000,
            },
            answers: BTreeMap::new(),
            asked: 0,
            calls: Vec::new(),
            returns: None,
        }
    }

    /// One step of time; everything that follows from it happens within.
    fn advance(&mut self) {
        self.now.monotonic += STEP;
        self.now.wall_ms += 10;
        for node in self.nodes.values_mut().filter(|node| !node.frozen) {
            let due = node.shard.next_deadline();
            if due.is_some_and(|at| at <= self.now.monotonic) {
                node.events.push_back(Event::Expired);
            }
        }
        self.settle();
    }

    fn settle(&mut self) {
        while let Some(from) = self.next_with_work() {
            let now = self.now;
            let Some(node) = self.nodes.get_mut(&from) else {
                return;
            };
            let Some(event) = node.events.pop_front() else {
                return;
            };
            let mut effects = Vec::new();
            node.shard.handle(now, event, &node.memory, &mut effects);
            for effect in effects {
                self.execute(from, effect);
            }
        }
    }

    fn next_with_work(&self) -> Option<NodeId> {
        let busy = |node: &Node| !node.frozen && !node.events.is_empty();
        self.nodes
            .iter()
            .find_map(|(name, node)| busy(node).then_some(*name))
    }

    fn execute(&mut self, from: NodeId, effect: Effect) {
        if let Effect::Send { to, message } = effect {
            return self.send(from, to, message);
        }
        let Some(node) = self.nodes.get_mut(&from) else {
            return;
        };
        let event = match effect {
            Effect::Store {
                instance,
                ticket,
                writes,
            } => {
                node.memory.write(writes);
                Event::Stored {
                    instance,
                    through: ticket,
                }
            }
            Effect::Read { token, request } => Event::ReadDone {
                token,
                page: node.memory.read(&request),
            },
            Effect::CallPlugin { token, call } => {
                self.calls.push(*call);
                let Some(returned) = self.returns.clone() else {
                    return;
                };
                Event::PluginReturned { token, returned }
            }
            Effect::Answer { token, answer } => {
                self.answers.insert(token, answer);
                return;
            }
            _ => return,
        };
        node.events.push_back(event);
    }

    fn send(&mut self, from: NodeId, to: NodeId, message: Peer) {
        let frozen = |node: NodeId| self.nodes[&node].frozen;
        if from != to && (frozen(from) || frozen(to)) {
            return;
        }
        if let Some(node) = self.nodes.get_mut(&to) {
            node.events.push_back(Event::Peer { from, message });
        }
    }

    /// Asks a node, and waits for nothing.
    fn post(&mut self, node: NodeId, ask: Ask) -> Token {
        self.asked += 1;
        let token = Token(self.asked);
        let event = Event::Ask { token, ask };
        self.nodes.get_mut(&node).unwrap().events.push_back(event);
        self.settle();
        token
    }

    /// Asks a node and runs until it answers.
    fn ask(&mut self, node: NodeId, ask: Ask) -> Answer {
        let token = self.post(node, ask);
        for _ in 0..2_000 {
            if let Some(answer) = self.answers.remove(&token) {
                return answer;
            }
            self.advance();
        }
        panic!("no answer within 20 s");
    }

    /// Who leads the group of a channel, as the nodes that run see it.
    fn leader(&self, channel: &ChannelKey) -> Option<NodeId> {
        let leads = |node: &Node| {
            let group = node.shard.directory.group_of(channel.slot());
            node.shard.groups.get(&group).is_some_and(|host| host.leads)
        };
        let running = self.nodes.iter().filter(|(_, node)| !node.frozen);
        running
            .filter(|(_, node)| leads(node))
            .map(|(name, _)| *name)
            .next()
    }

    fn elect(&mut self, channel: &ChannelKey) -> NodeId {
        for _ in 0..2_000 {
            if let Some(leader) = self.leader(channel) {
                return leader;
            }
            self.advance();
        }
        panic!("nobody leads within 20 s");
    }
}

fn deny(channel: &ChannelKey, uid: &str) -> Ask {
    Ask::ChangeList {
        channel_id: Arc::clone(&channel.id),
        kind: channel.kind,
        list: List::Deny,
        change: ListChange::Set(vec![Uid::new(uid)]),
    }
}

/// A leader that was frozen while another one was elected still believes that it leads. What it answers before it hears of its
/// end must not be what it held then (SL-5).
#[test]
fn a_frozen_leader_answers_a_list_with_what_was_written_meanwhile() {
    let mut cluster = Cluster::new();
    let channel = ChannelKey::new("register", ChannelKind::GROUP);
    let frozen = cluster.elect(&channel);
    let other = *cluster.nodes.keys().find(|node| **node != frozen).unwrap();
    let put = Ask::PutChannel {
        channel_id: Arc::clone(&channel.id),
        kind: channel.kind,
        flags: ChannelFlags::default(),
        reset: false,
        subscribers: vec![Uid::new("nobody")],
    };
    assert_eq!(cluster.ask(other, put), Answer::Done);
    assert_eq!(cluster.ask(other, deny(&channel, "v1")), Answer::Done);
    cluster.nodes.get_mut(&frozen).unwrap().frozen = true;
    assert_ne!(cluster.elect(&channel), frozen);
    assert_eq!(cluster.ask(other, deny(&channel, "v2")), Answer::Done);
    cluster.nodes.get_mut(&frozen).unwrap().frozen = false;
    let read = Ask::ReadList {
        channel_id: Arc::clone(&channel.id),
        kind: channel.kind,
        list: List::Deny,
    };
    let newest = Answer::Uids(vec![Uid::new("v2")]);
    assert_eq!(cluster.ask(frozen, read), newest);
}
