//! The Raft groups of this shard: their outputs become effects, answers and news for the machines that follow them.

use super::Shard;
use super::continuation::{Reading, Stored, Then};
use super::peer::{Peer, Reply, Request, RowKey};
use super::step::Step;
use super::turn::Turn;
use crate::controller;
use crate::effect::Effect;
use crate::presence;
use crate::replicated::StateMachine;
use crate::rows::{CONTROLLER_SLOT, Instance, Key, Miss, ReadRequest, Rows};
use crate::slot::{self, Input, Output};
use crate::types::{DiskBoot, GroupId, NodeId, Replica, Term, Token};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Who waits for an answer of a machine of this shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplyTo {
    pub(super) node: NodeId,
    pub(super) shard: u16,
    pub(super) token: Token,
}

/// What waits for a read index.
#[derive(Clone, Debug)]
pub(super) enum AfterIndex {
    /// Answer these rows.
    Rows { reply_to: ReplyTo, keys: Vec<RowKey> },
    /// Scan this page: a leader of the past would not know the newest rows either.
    Page { reply_to: ReplyTo, request: ReadRequest },
}

impl AfterIndex {
    fn reply_to(&self) -> ReplyTo {
        match self {
            AfterIndex::Rows { reply_to, .. } | AfterIndex::Page { reply_to, .. } => *reply_to,
        }
    }
}

/// A group and what hangs on it.
pub(super) struct GroupHost {
    pub(super) group: slot::Group,
    pub(super) presence: presence::Authority,
    pub(super) online_status: slot::online::OnlineStatus,
    pub(super) grants: slot::grants::Grants,
    /// Who waits for a channel's leader.
    pub(super) questions: BTreeMap<Token, ReplyTo>,
    pub(super) leads: bool,
    pub(super) term: Term,
    /// Proposals of others, and of this shard's own grants.
    pub(super) proposals: BTreeMap<Token, Proposer>,
    pub(super) reads: BTreeMap<Token, AfterIndex>,
}

/// Whether the controller knows the boots of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Registration {
    /// Not yet.
    Due,
    /// The question is on its way.
    Asked,
    /// It does.
    Done,
}

/// Who proposed.
#[derive(Clone, Debug)]
pub(super) enum Proposer {
    /// Nobody waits: it is proposed again at the next leadership.
    Nobody,
    /// A caller.
    Caller(ReplyTo),
    /// The grants of this group.
    Grants(Token),
    /// Its online status.
    OnlineStatus(Token),
}

impl Shard {
    /// Starts the groups that this shard hosts, as the disk has them or as they begin.
    pub(super) fn start_groups(&mut self, turn: &mut Turn<'_>) {
        let stored: BTreeMap<GroupId, Vec<(Key, Bytes)>> =
            std::mem::take(&mut self.stored_groups).into_iter().collect();
        let hosted: Vec<(GroupId, Vec<NodeId>)> = self
            .directory
            .groups()
            .filter(|(group, route)| {
                route.hosted && super::peer::group_shard(*group, self.config.shards) == self.config.shard
            })
            .map(|(group, route)| (group, route.voters.clone()))
            .collect();
        for (group, voters) in hosted {
            let rows = stored.get(&group).map_or(&[][..], Vec::as_slice);
            self.start_group(turn, group, &voters, rows);
        }
        self.spread_world();
    }

    fn start_group(&mut self, turn: &mut Turn<'_>, group: GroupId, voters: &[NodeId], rows: &[(Key, Bytes)]) {
        let slots = if group == GroupId::CONTROLLER {
            vec![CONTROLLER_SLOT]
        } else {
            self.directory.slots_of(group)
        };
        let config = slot::GroupConfig {
            group,
            node: self.config.node,
            boots: self.config.boots,
            seed: self.config.seed,
            slots: slots.clone(),
            first_voters: voters
                .iter()
                .map(|&node| Replica {
                    node,
                    disk: DiskBoot(0),
                })
                .collect(),
            limits: self.config.limits.clone(),
            faults: self.config.faults.slot,
        };
        let machine: Box<dyn StateMachine> = if group == GroupId::CONTROLLER {
            Box::new(controller::Machine)
        } else {
            Box::new(slot::fsm::Machine::new(slots.clone()).with_faults(self.config.faults.slot))
        };
        let mut outputs = Vec::new();
        let image = slot::Image::of(group, rows);
        match slot::Group::recover(config, machine, &image, turn.now, &mut outputs) {
            Ok(started) => {
                let limits = self.config.limits.clone();
                let host = GroupHost {
                    group: started,
                    presence: presence::Authority::new(limits, self.config.faults.presence),
                    online_status: slot::online::OnlineStatus::new(slots.clone(), self.config.faults.slot),
                    grants: slot::grants::Grants::new(slots, self.config.limits.proposal_bytes_max),
                    questions: BTreeMap::new(),
                    leads: false,
                    term: Term(0),
                    proposals: BTreeMap::new(),
                    reads: BTreeMap::new(),
                };
                self.groups.insert(group, host);
                self.group_outputs(turn, group, outputs);
            }
            Err(_) => {
                let reason = "its stored rows contradict each other".to_owned();
                self.stopped_groups.insert(group, reason);
            }
        }
    }

    /// Steps a group.
    pub(super) fn group_input(
        &mut self,
        turn: &mut Turn<'_>,
        group: GroupId,
        input: Input,
    ) -> Result<(), Miss> {
        let Some(host) = self.groups.get_mut(&group) else {
            return Ok(());
        };
        let mut outputs = Vec::new();
        host.group.handle(turn.now, input, &turn.rows, &mut outputs)?;
        self.group_outputs(turn, group, outputs);
        Ok(())
    }

    /// Executes a group's outputs in order.
    pub(super) fn group_outputs(&mut self, turn: &mut Turn<'_>, group: GroupId, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Send { node, message } => {
                    turn.out.push(Effect::Send {
                        to: node,
                        message: Peer::Group { group, message },
                    });
                }
                Output::Store { token, writes } => {
                    let ticket = self.ticket(Instance::Meta, Stored::Group { group, token });
                    turn.store(Instance::Meta, ticket, writes);
                }
                Output::Read { token, request } => {
                    let read = self.reading(Reading::Group { group, token });
                    turn.out.push(Effect::Read { token: read, request });
                }
                Output::Apply => self.queue.push_back(Step::Group {
                    group,
                    input: Input::Apply,
                }),
                Output::Proposed { token, result } => self.on_proposed(turn, group, token, result),
                Output::ReadReady { token, result } => self.on_read_ready(turn, group, token, result),
                Output::Transferred { .. } => {}
                Output::LeaderChanged {
                    leader,
                    term,
                    is_self,
                } => {
                    self.on_group_leader(turn, group, leader, term, is_self);
                }
                Output::Changed(notices) => self.on_notices(turn, group, notices),
                Output::Stopped { reason } => {
                    self.stopped_groups.insert(group, reason);
                }
            }
        }
    }

    fn on_proposed(
        &mut self,
        turn: &mut Turn<'_>,
        group: GroupId,
        token: Token,
        result: Result<crate::replicated::Reply, slot::ProposeError>,
    ) {
        let Some(host) = self.groups.get_mut(&group) else {
            return;
        };
        match host.proposals.remove(&token) {
            Some(Proposer::Caller(reply_to)) => self.reply(turn, reply_to, Reply::Proposed(result)),
            Some(Proposer::Grants(token)) => {
                let input = slot::grants::Input::Proposed { token, result };
                self.queue.push_back(Step::Grants { group, input });
            }
            Some(Proposer::OnlineStatus(token)) => {
                let input = slot::online::Input::Proposed { token, result };
                self.queue.push_back(Step::OnlineStatus { group, input });
            }
            Some(Proposer::Nobody) | None => {}
        }
    }

    /// The first state of the cluster; proposing it again changes nothing.
    fn bootstrap(&mut self, turn: &Turn<'_>) {
        let token = self.next_token();
        let command = controller::bootstrap(
            turn.now.wall_ms,
            &self.config.nodes,
            self.config.groups,
            self.config.copies,
        );
        if let Some(host) = self.groups.get_mut(&GroupId::CONTROLLER) {
            host.proposals.insert(token, Proposer::Nobody);
            let input = Input::Propose {
                token,
                lane: slot::Lane::Reserved,
                command,
            };
            self.queue.push_back(Step::Group {
                group: GroupId::CONTROLLER,
                input,
            });
        }
    }

    /// This node tells the controller its boots, until it is heard (M-4).
    pub(super) fn register_node(&mut self, turn: &mut Turn<'_>) {
        if self.registration != Registration::Due {
            return;
        }
        self.registration = Registration::Asked;
        let command =
            controller::register_node(turn.now.wall_ms, self.config.node, self.config.boots, "", &[]);
        let request = Request::Propose {
            group: GroupId::CONTROLLER,
            lane: slot::Lane::Reserved,
            command,
        };
        self.call(turn, request, Then::Registered);
    }

    fn on_read_ready(
        &mut self,
        turn: &mut Turn<'_>,
        group: GroupId,
        token: Token,
        result: Result<(), slot::ProposeError>,
    ) {
        let Some(host) = self.groups.get_mut(&group) else {
            return;
        };
        let Some(waiting) = host.reads.remove(&token) else {
            return;
        };
        let reply_to = waiting.reply_to();
        match (result, waiting) {
            (Ok(()), AfterIndex::Rows { keys, .. }) => self.queue.push_back(Step::ReadRows {
                group,
                reply_to,
                keys,
            }),
            (Ok(()), AfterIndex::Page { request, .. }) => {
                let token = self.reading(Reading::Page { reply_to });
                turn.out.push(Effect::Read { token, request });
            }
            (Err(slot::ProposeError::NotLeader { hint }), _) => {
                self.reply(turn, reply_to, Reply::NotLeader { hint })
            }
            (Err(_), _) => self.reply(turn, reply_to, Reply::Unavailable),
        }
    }

    /// Answers point reads of applied rows.
    pub(super) fn read_rows(
        &mut self,
        turn: &mut Turn<'_>,
        reply_to: ReplyTo,
        keys: &[RowKey],
    ) -> Result<(), Miss> {
        let mut rows = Vec::with_capacity(keys.len());
        let mut missing = Vec::new();
        for key in keys {
            let key = Key::Slot {
                slot: key.slot,
                table: key.table,
                key: key.key.clone(),
            };
            match turn.rows.row(&key) {
                Ok(row) => rows.push(row),
                Err(Miss(keys)) => missing.extend(keys),
            }
        }
        if !missing.is_empty() {
            return Err(Miss(missing));
        }
        self.reply(turn, reply_to, Reply::Rows(rows));
        Ok(())
    }

    fn on_group_leader(
        &mut self,
        turn: &mut Turn<'_>,
        group: GroupId,
        leader: Option<NodeId>,
        term: Term,
        is_self: bool,
    ) {
        if let Some(host) = self.groups.get_mut(&group) {
            host.leads = is_self;
            host.term = term;
        }
        for shard in 0..self.config.shards {
            let message = Peer::GroupState {
                shard,
                group,
                leader,
                term,
                leads: is_self,
            };
            turn.out.push(Effect::Send {
                to: self.config.node,
                message,
            });
        }
        if group == GroupId::CONTROLLER && is_self {
            self.bootstrap(turn);
        }
        self.presence_leadership(turn, group);
        self.queue.push_back(Step::Grants {
            group,
            input: slot::grants::Input::Leads(is_self),
        });
        if group != GroupId::CONTROLLER {
            self.queue.push_back(Step::OnlineStatus {
                group,
                input: slot::online::Input::Leads(is_self.then_some(term)),
            });
        }
    }

    /// Sends an answer to whoever waits.
    pub(super) fn reply(&mut self, turn: &mut Turn<'_>, to: ReplyTo, reply: Reply) {
        let message = Peer::Reply {
            shard: to.shard,
            token: to.token,
            reply,
        };
        turn.out.push(Effect::Send { to: to.node, message });
    }
}
