//! The inner steps of a shard: one input for one machine each, so that a missing row holds back exactly one of them.

use super::Shard;
use super::groups::ReplyTo;
use super::peer::{Peer, Reply, Request, RowKey, Target};
use super::sessions::PushFrom;
use super::turn::Turn;
use crate::admin::{Answer, Ask, Failure};
use crate::effect::Effect;
use crate::presence;
use crate::rows::{Key, Miss, Row};
use crate::types::{ChannelKey, GroupId, NodeId, Token};
use crate::{append, channel, delivery, hooks, session, slot};
use std::collections::{BTreeMap, VecDeque};

/// One input for one machine.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A group.
    Group { group: GroupId, input: slot::Input },
    /// Rows of a group, after a read index.
    ReadRows {
        group: GroupId,
        reply_to: ReplyTo,
        keys: Vec<RowKey>,
    },
    /// The grants of a group.
    Grants {
        group: GroupId,
        input: slot::grants::Input,
    },
    /// The online status of the users of a group.
    OnlineStatus {
        group: GroupId,
        input: slot::online::Input,
    },
    /// A channel replica; of another activation it is dropped (CH-13).
    Channel {
        channel: ChannelKey,
        activation: u64,
        input: channel::Input,
    },
    /// A channel's append authority.
    Append {
        channel: ChannelKey,
        input: append::Input,
    },
    /// A channel's delivery.
    Delivery {
        channel: ChannelKey,
        input: delivery::Input,
    },
    /// A channel's post-commit cursors.
    Cursors {
        channel: ChannelKey,
        input: hooks::cursors::Input,
    },
    /// A channel's sweeps over offline recipients.
    Offline {
        channel: ChannelKey,
        input: hooks::offline::Input,
    },
    /// The sessions of this shard.
    Sessions(session::Input),
    /// A lease of message ids is durable.
    IdsStored { token: Token },
    /// Message ids begin above what was reserved before.
    IdsStart,
    /// The outcome of a send is looked up.
    FindSend {
        channel: ChannelKey,
        find: super::reads::FindSend,
    },
    /// Facts of a job on its way in.
    Facts { job: Token },
    /// A sleeping channel without a record on this disk.
    Resuming(super::resuming::Sleeper),
}

/// Steps with the same key stay in order behind one that waits for rows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hold {
    /// A group.
    Group(GroupId),
    /// A channel.
    Channel(ChannelKey),
    /// The grants of a group.
    Grants(GroupId),
    /// The online status of a group.
    OnlineStatus(GroupId),
    /// One job on its way in.
    Job(Token),
    /// The message ids of the shard.
    Ids,
    /// The sweep over sleeping channels.
    Resuming,
}

impl Step {
    fn hold(&self) -> Option<Hold> {
        match self {
            Step::Group { group, .. } | Step::ReadRows { group, .. } => Some(Hold::Group(*group)),
            Step::Grants { group, .. } => Some(Hold::Grants(*group)),
            Step::OnlineStatus { group, .. } => Some(Hold::OnlineStatus(*group)),
            Step::Channel { channel, .. }
            | Step::Append { channel, .. }
            | Step::Delivery { channel, .. }
            | Step::Cursors { channel, .. }
            | Step::Offline { channel, .. }
            | Step::FindSend { channel, .. } => Some(Hold::Channel(channel.clone())),
            Step::Facts { job } => Some(Hold::Job(*job)),
            Step::IdsStored { .. } | Step::IdsStart => Some(Hold::Ids),
            Step::Resuming(_) => Some(Hold::Resuming),
            Step::Sessions(_) => None,
        }
    }
}

impl Step {
    /// Whether the machine may read rows for this input.
    fn may_miss(&self) -> bool {
        match self {
            Step::Group { input, .. } => matches!(input, slot::Input::Apply),
            Step::Channel { input, .. } => matches!(input, channel::Input::Start),
            Step::OnlineStatus { input, .. } => matches!(input, slot::online::Input::Work),
            Step::Append { input, .. } => matches!(input, append::Input::Submit { .. }),
            Step::ReadRows { .. }
            | Step::Grants { .. }
            | Step::Cursors { .. }
            | Step::IdsStored { .. }
            | Step::IdsStart
            | Step::FindSend { .. }
            | Step::Resuming(_)
            | Step::Facts { .. } => true,
            Step::Delivery { .. } | Step::Offline { .. } | Step::Sessions(_) => false,
        }
    }
}

/// Steps that wait for rows.
#[derive(Debug, Default)]
pub(super) struct Held {
    waiting: BTreeMap<Hold, VecDeque<Step>>,
    loads: BTreeMap<Token, Hold>,
    count: usize,
    /// Loads asked for since the start.
    pub(super) misses: u64,
}

impl Held {
    /// How many steps wait.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Whether steps with this key wait.
    pub(super) fn contains(&self, hold: &Hold) -> bool {
        self.waiting.contains_key(hold)
    }
}

impl Shard {
    /// Runs the queue until it is empty.
    pub(super) fn run(&mut self, turn: &mut Turn<'_>) {
        while let Some(step) = self.queue.pop_front() {
            let hold = step.hold();
            if let Some(hold) = &hold
                && let Some(waiting) = self.held.waiting.get_mut(hold)
            {
                waiting.push_back(step);
                self.held.count += 1;
                continue;
            }
            self.attempt_step(turn, hold, step, Vec::new());
        }
    }

    /// Runs a step; on a miss it waits, and whatever comes after it with the same key waits behind it. What was `loaded` for this
    /// try is loaded again with what it missed: else a step that reads many rows would hardly ever find all of them at once.
    fn attempt_step(
        &mut self,
        turn: &mut Turn<'_>,
        hold: Option<Hold>,
        step: Step,
        loaded: Vec<Key>,
    ) -> bool {
        let Some(hold) = hold else {
            // Steps without a key read no rows.
            let _ = self.step(turn, step);
            return true;
        };
        // Most inputs never read: only those that may miss are kept for a second try.
        let again = step.may_miss().then(|| step.clone());
        match (self.step(turn, step), again) {
            (Ok(()), _) => true,
            (Err(Miss(keys)), None) => unreachable!("an input that reads no rows missed {keys:?}"),
            (Err(Miss(missing)), Some(step)) => {
                let mut keys = loaded;
                keys.extend(missing);
                let token = self.next_token();
                self.held.loads.insert(token, hold.clone());
                self.held.waiting.entry(hold).or_default().push_front(step);
                self.held.count += 1;
                self.held.misses += 1;
                turn.out.push(Effect::Load { token, keys });
                false
            }
        }
    }

    /// Rows are loaded: the step that waited runs again, and those behind it follow.
    pub(super) fn on_loaded(&mut self, turn: &mut Turn<'_>, token: Token, rows: Vec<(Key, Option<Row>)>) {
        let Some(hold) = self.held.loads.remove(&token) else {
            return;
        };
        let mut loaded = rows.iter().map(|(key, _)| key.clone()).collect();
        turn.loaded(rows);
        let mut waiting = self.held.waiting.remove(&hold).unwrap_or_default();
        while let Some(step) = waiting.pop_front() {
            self.held.count -= 1;
            if !self.attempt_step(turn, Some(hold.clone()), step, std::mem::take(&mut loaded)) {
                self.held.waiting.entry(hold).or_default().append(&mut waiting);
                return;
            }
        }
    }

    fn step(&mut self, turn: &mut Turn<'_>, step: Step) -> Result<(), Miss> {
        match step {
            Step::Group { group, input } => self.group_input(turn, group, input),
            Step::ReadRows { reply_to, keys, .. } => self.read_rows(turn, reply_to, &keys),
            Step::Grants { group, input } => self.grants_input(turn, group, input),
            Step::OnlineStatus { group, input } => self.online_status_input(turn, group, input),
            Step::Channel {
                channel,
                activation,
                input,
            } => self.replica_input(turn, &channel, activation, input),
            Step::Append { channel, input } => self.append_input(turn, &channel, input),
            Step::Delivery { channel, input } => {
                self.delivery_input(turn, &channel, input);
                Ok(())
            }
            Step::Cursors { channel, input } => self.cursors_input(turn, &channel, input),
            Step::Offline { channel, input } => {
                self.offline_input(turn, &channel, input);
                Ok(())
            }
            Step::Sessions(input) => {
                self.session_input(turn, input);
                Ok(())
            }
            Step::IdsStored { token } => self.ids_input(turn, append::ids::Input::Stored { token }),
            Step::IdsStart => self.ids_input(turn, append::ids::Input::Start),
            Step::FindSend { channel, find } => self.find_send(turn, &channel, find),
            Step::Facts { job } => self.gather_facts(turn, job),
            Step::Resuming(sleeper) => self.look_at_state(turn, sleeper),
        }
    }

    /// A message from a node or a shard.
    pub(super) fn on_peer(&mut self, turn: &mut Turn<'_>, from: NodeId, message: Peer) {
        match message {
            Peer::Heartbeat {
                boots,
                leads,
                registry,
            } => self.on_heartbeat(turn, from, (boots, registry), &leads),
            Peer::Registry { registry, .. } => self.take_registry(turn, registry),
            Peer::Breaker { of, change } => self.on_breaker(of, &change),
            Peer::NodeState { node, state, .. } => self.on_node_state(turn, node, state),
            Peer::GroupState {
                group,
                leader,
                term,
                leads,
                ..
            } => self.on_group_state(turn, group, leader, term, leads),
            Peer::Group { group, message } => {
                self.queue.push_back(Step::Group {
                    group,
                    input: slot::Input::Peer { from, message },
                });
            }
            Peer::Meta { channel, meta } => self.on_meta(turn, &channel, meta),
            Peer::Exchange { lane, exchange } => self.on_exchange(turn, from, lane, exchange),
            Peer::Presence {
                group,
                caller,
                requests,
            } => {
                for request in requests {
                    self.on_presence_request(turn, group, caller, request);
                }
            }
            Peer::PresenceNotice { notices, .. } => {
                for notice in notices {
                    self.on_presence_notice(turn, notice);
                }
            }
            Peer::Push {
                reply_to,
                token,
                push,
                ..
            } => {
                let (node, shard) = (from, reply_to);
                self.on_push(PushFrom { node, shard, token }, &push);
            }
            Peer::Pushed { token, outcomes, .. } => self.on_pushed(token, outcomes),
            Peer::KickUser { uid, flag, .. } => {
                self.queue
                    .push_back(Step::Sessions(session::Input::KickUser { uid, flag }));
            }
            Peer::Request {
                reply_to,
                token,
                request,
            } => {
                self.on_request(
                    turn,
                    ReplyTo {
                        node: from,
                        shard: reply_to,
                        token,
                    },
                    request,
                );
            }
            Peer::Reply { token, reply, .. } => self.on_reply(turn, from, token, reply),
        }
    }

    /// A request for a machine of this shard.
    fn on_request(&mut self, turn: &mut Turn<'_>, reply_to: ReplyTo, request: Request) {
        // Inside a node nothing is repeated.
        let far = reply_to.node != self.config.node;
        if let Request::Append { leader_epoch, .. } = request
            && far
            && self.repeats.has_come(reply_to, leader_epoch)
        {
            return;
        }
        if self.held.len() >= self.config.limits.held_max {
            return self.reply(turn, reply_to, Reply::Busy);
        }
        match request.target() {
            Target::Group(group) => self.on_group_request(turn, group, reply_to, request),
            Target::Channel(channel) => {
                let channel = channel.clone();
                self.on_channel_request(turn, &channel, reply_to, request);
            }
        }
    }

    fn on_group_request(&mut self, turn: &mut Turn<'_>, group: GroupId, reply_to: ReplyTo, request: Request) {
        let hint = self.directory.group(group).and_then(|route| route.leader);
        let token = self.next_token();
        let Some(host) = self.groups.get_mut(&group) else {
            return self.reply(turn, reply_to, Reply::NotLeader { hint });
        };
        if !host.leads {
            let hint = host.group.status().leader;
            return self.reply(turn, reply_to, Reply::NotLeader { hint });
        }
        if let Some((lane, command)) = request.proposal() {
            host.proposals
                .insert(token, super::groups::Proposer::Caller(reply_to));
            self.queue.push_back(Step::Group {
                group,
                input: slot::Input::Propose { token, lane, command },
            });
            return;
        }
        match request {
            Request::Rows { keys, .. } => {
                host.reads
                    .insert(token, super::groups::AfterIndex::Rows { reply_to, keys });
                self.queue.push_back(Step::Group {
                    group,
                    input: slot::Input::ReadIndex { token },
                });
            }
            Request::Page {
                slot,
                table,
                prefix,
                after,
                rows_max,
                ..
            } => {
                let request = crate::rows::ReadRequest::SlotRows {
                    slot,
                    table,
                    prefix,
                    after,
                    rows_max,
                };
                host.reads
                    .insert(token, super::groups::AfterIndex::Page { reply_to, request });
                self.queue.push_back(Step::Group {
                    group,
                    input: slot::Input::ReadIndex { token },
                });
            }
            Request::Resolve { channel, .. } => {
                self.resolve(group, channel, reply_to);
            }
            Request::VoterChange {
                channel, progress, ..
            } => {
                self.on_voter_progress(group, channel, progress);
                self.reply(turn, reply_to, Reply::Done);
            }
            Request::Propose { .. }
            | Request::ProposeOnce { .. }
            | Request::Append { .. }
            | Request::History { .. }
            | Request::SendOutcome { .. }
            | Request::Redeliver { .. }
            | Request::Subscribe { .. } => {}
        }
    }

    /// A request of the HTTP API; refused at the door when too much waits already.
    pub(super) fn on_ask(&mut self, turn: &mut Turn<'_>, token: Token, ask: Ask) {
        if self.held.len() >= self.config.limits.held_max || self.asks.len() >= self.config.limits.held_max {
            turn.out.push(Effect::Answer {
                token,
                answer: Answer::Failed(Failure::Busy),
            });
            return;
        }
        self.begin_ask(turn, token, ask);
    }

    /// Presence of the users of a node that restarted is fenced, of one that is silent in doubt.
    pub(super) fn fence_node(&mut self, turn: &mut Turn<'_>, input: &presence::Input) {
        let groups: Vec<GroupId> = self.groups.keys().copied().collect();
        for group in groups {
            self.presence_input(turn, group, input.clone());
        }
    }
}
