//! The channels of this shard: activation on demand, and the wiring of a channel's machines (CH-10).

use super::continuation::{Reading, Stored, Then};
use super::groups::ReplyTo;
use super::peer::{Reply, Request, channel_lane, epoch_of};
use super::step::Step;
use super::turn::Turn;
use super::{Config, Shard};
use crate::append::{self, Role};
use crate::channel::{self, Input, Output};
use crate::delivery;
use crate::effect::Effect;
use crate::hooks::{cursors, offline};
use crate::limits::TAIL_BYTES_MIN;
use crate::rows::{Instance, Miss};
use crate::types::{ChannelKey, ChannelMeta, LeaderEpoch, NodeId, Seq, Token};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Messages of other replicas kept until the metadata are here; the sender repeats what is dropped.
const EARLY_MESSAGES_MAX: usize = 16;
/// Requests kept until this node leads.
const EARLY_REQUESTS_MAX: usize = 1_024;
/// How often metadata are asked for while a channel waits for them.
const META_RETRY: Duration = Duration::from_millis(200);

/// A channel that is, or becomes, active on this shard.
pub(super) struct Host {
    pub(super) activation: u64,
    pub(super) active: Option<Box<Active>>,
    early_messages: VecDeque<(NodeId, channel::Message)>,
    /// Requests that wait for leadership here, each until its caller has given it up.
    pub(super) requests: VecDeque<(Duration, ReplyTo, Request)>,
    asking_meta: bool,
    /// When the metadata may be asked for again, or a host without any is given up.
    pub(super) wake: Option<Duration>,
}

impl Host {
    /// Not active, and nothing here waits for that. What asks for the metadata gives such a host up itself.
    pub(super) fn is_unused(&self) -> bool {
        self.active.is_none() && self.requests.is_empty() && !self.asking_meta
    }

    /// The metadata at hand grant this process what the request asks for: all that is missing is the replica's own work.
    fn becomes_leader(&self, config: &Config, request: &Request) -> bool {
        self.active.as_ref().is_some_and(|active| {
            config.leads(&active.meta)
                && epoch_of(request).is_none_or(|epoch| epoch <= active.meta.leader_epoch)
        })
    }
}

/// The machines of an active channel.
pub(super) struct Active {
    pub(super) meta: ChannelMeta,
    pub(super) replica: channel::Replica,
    pub(super) authority: append::Authority,
    pub(super) delivery: delivery::Channel,
    pub(super) cursors: cursors::Cursors,
    pub(super) offline: offline::Offline,
    pub(super) leading: Option<LeaderEpoch>,
    pub(super) committed: Seq,
    /// First kept position, as the machines that follow the log know it.
    pub(super) log_start: Seq,
    /// Who waits for a submission.
    pub(super) submits: BTreeMap<Token, ReplyTo>,
    pub(super) reads: BTreeMap<Token, super::reads::Purpose>,
    pub(super) delivery_busy: bool,
    /// Membership rows being written: how many are open, up to which position, and whether all went well.
    pub(super) memberships: BTreeMap<Token, (usize, Seq, bool)>,
    /// Changes of keys that runs of plugins have caused, by run.
    pub(super) key_jobs: BTreeMap<Token, super::keys::KeyJob>,
    /// Who waits for a replay for offline recipients, and which consumer is handed it.
    pub(super) offline_replays: BTreeMap<Token, (ReplyTo, Arc<str>)>,
}

impl Shard {
    /// A request for this channel's leader.
    pub(super) fn on_channel_request(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        reply_to: ReplyTo,
        request: Request,
    ) {
        // Half of the time that a send has: what cannot be led by then is told so, and its sender may still try again.
        let until = turn.now.after(self.config.limits.append_timeout / 2);
        self.take_request(turn, channel, (until, reply_to, request));
    }

    pub(super) fn take_request(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        (until, reply_to, request): (Duration, ReplyTo, Request),
    ) {
        if let Some(active) = self.active(channel) {
            match (active.leading, epoch_of(&request)) {
                (Some(leading), Some(epoch)) if epoch != leading => {
                    if epoch < leading {
                        return self.reply(turn, reply_to, Reply::NotLeader { hint: None });
                    }
                }
                (Some(_), _) => return self.lead(turn, channel, reply_to, request),
                (None, _) => {}
            }
        }
        if !self.may_wait(channel) {
            return self.reply(turn, reply_to, Reply::Busy);
        }
        let known = self
            .channels
            .get(channel)
            .is_some_and(|host| host.becomes_leader(&self.config, &request));
        let host = self.host(channel);
        if host.requests.len() >= EARLY_REQUESTS_MAX {
            return self.reply(turn, reply_to, Reply::Busy);
        }
        host.requests.push_back((until, reply_to, request));
        if known {
            // They are asked for again only if the replica takes long.
            host.wake.get_or_insert_with(|| turn.now.after(META_RETRY));
        } else {
            self.want_meta(turn, channel);
        }
        self.note_deadline(channel);
    }

    /// The host of a channel; a new one is not active yet.
    fn host(&mut self, channel: &ChannelKey) -> &mut Host {
        if !self.channels.contains_key(channel) {
            self.last_activation += 1;
            let host = Host {
                activation: self.last_activation,
                active: None,
                early_messages: VecDeque::new(),
                requests: VecDeque::new(),
                asking_meta: false,
                wake: None,
            };
            self.channels.insert(channel.clone(), host);
            self.counters.activations += 1;
        }
        self.channels.get_mut(channel).expect("inserted above")
    }

    /// Asks the slot group for the newest metadata, once at a time.
    pub(super) fn want_meta(&mut self, turn: &mut Turn<'_>, channel: &ChannelKey) {
        let Some(host) = self.channels.get_mut(channel) else {
            return;
        };
        if std::mem::replace(&mut host.asking_meta, true) {
            return;
        }
        let group = self.directory.group_of(channel.slot());
        self.call(
            turn,
            Request::Resolve {
                group,
                channel: channel.clone(),
            },
            Then::Meta {
                channel: channel.clone(),
            },
        );
    }

    /// The slot group answered, or not in time.
    pub(super) fn on_meta_answer(&mut self, turn: &mut Turn<'_>, channel: &ChannelKey, reply: Option<Reply>) {
        let Some(host) = self.channels.get_mut(channel) else {
            return;
        };
        host.asking_meta = false;
        if let Some(Reply::Resolved(meta)) = reply {
            self.directory.learn_channel(channel, &meta);
            self.apply_meta(turn, channel, meta);
        }
        let Some(host) = self.channels.get_mut(channel) else {
            return;
        };
        let leads = host
            .active
            .as_ref()
            .is_some_and(|active| active.leading.is_some());
        if !host.requests.is_empty() && !leads {
            host.wake = Some(turn.now.after(META_RETRY));
            self.note_deadline(channel);
        } else if host.active.is_none() {
            self.drop_host(channel);
        }
    }

    /// The slot group answered a sender. A channel led here is activated with that: it would only ask the same again.
    pub(super) fn on_meta_known(&mut self, turn: &mut Turn<'_>, channel: &ChannelKey, meta: &ChannelMeta) {
        let here = channel_lane(channel) % self.config.shards.max(1) == self.config.shard;
        if here && self.config.leads(meta) {
            self.apply_meta(turn, channel, meta.clone());
        } else {
            self.learn_meta(channel, meta.clone());
        }
    }

    /// Newer metadata came by another way than an answer.
    pub(super) fn learn_meta(&mut self, channel: &ChannelKey, meta: ChannelMeta) {
        if let Some(host) = self.channels.get(channel)
            && host.active.is_some()
        {
            let activation = host.activation;
            self.queue.push_back(Step::Channel {
                channel: channel.clone(),
                activation,
                input: Input::Meta(meta),
            });
        }
    }

    /// Activates the channel, tells its replica, or gives the host up when this node keeps no replica.
    pub(super) fn apply_meta(&mut self, turn: &mut Turn<'_>, channel: &ChannelKey, meta: ChannelMeta) {
        let node = self.config.node;
        if !meta.replicas().iter().any(|replica| replica.node == node) {
            let hint = meta.leader.map(|leader| leader.node);
            self.refuse_requests(turn, channel, &Reply::NotLeader { hint });
            return;
        }
        if !self.config.leads(&meta) {
            let hint = meta.leader.map(|leader| leader.node);
            self.refuse_requests(turn, channel, &Reply::NotLeader { hint });
        }
        let host = self.host(channel);
        let activation = host.activation;
        if let Some(active) = &mut host.active {
            if active.meta.version < meta.version {
                active.meta = meta.clone();
            }
            self.queue.push_back(Step::Channel {
                channel: channel.clone(),
                activation,
                input: Input::Meta(meta),
            });
            return;
        }
        let messages = std::mem::take(&mut host.early_messages);
        let active = Box::new(self.machines(channel, activation, meta));
        self.host(channel).active = Some(active);
        self.queue.push_back(Step::Channel {
            channel: channel.clone(),
            activation,
            input: Input::Start,
        });
        for (from, message) in messages {
            let input = Input::Peer { from, message };
            self.queue.push_back(Step::Channel {
                channel: channel.clone(),
                activation,
                input,
            });
        }
    }

    fn machines(&mut self, channel: &ChannelKey, activation: u64, meta: ChannelMeta) -> Active {
        let faults = &self.config.faults;
        let setup = channel::Setup {
            node: self.config.node,
            boots: self.config.boots,
            activation: u32::try_from(activation).unwrap_or(u32::MAX),
            limits: Arc::clone(&self.limits),
            faults: faults.channel,
            meta: meta.clone(),
        };
        let first = Token(activation << 32 | 1);
        Active {
            meta,
            replica: channel::Replica::new(setup),
            authority: append::Authority::new(&self.limits, faults.append, first),
            delivery: delivery::Channel::new(channel, self.delivery_settings()),
            cursors: cursors::Cursors::new(channel, &self.limits, faults.hooks, first),
            offline: offline::Offline::new(channel, &self.limits, faults.hooks, first),
            leading: None,
            committed: Seq(0),
            log_start: Seq(0),
            submits: BTreeMap::new(),
            reads: BTreeMap::new(),
            delivery_busy: false,
            memberships: BTreeMap::new(),
            key_jobs: BTreeMap::new(),
            offline_replays: BTreeMap::new(),
        }
    }

    /// Messages of other replicas: they wake a channel, but carry no authority (CH-10).
    pub(super) fn on_exchange(
        &mut self,
        turn: &mut Turn<'_>,
        from: NodeId,
        lane: u16,
        exchange: channel::Exchange,
    ) {
        for (channel, message) in self.links.receive(turn.now, lane, from, exchange) {
            let host = self.host(&channel);
            let activation = host.activation;
            if host.active.is_some() {
                self.queue.push_back(Step::Channel {
                    channel,
                    activation,
                    input: Input::Peer { from, message },
                });
                continue;
            }
            if host.early_messages.len() >= EARLY_MESSAGES_MAX {
                host.early_messages.pop_front();
            }
            host.early_messages.push_back((from, message));
            self.want_meta(turn, &channel);
        }
    }

    /// Steps a replica.
    pub(super) fn replica_input(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        activation: u64,
        input: Input,
    ) -> Result<(), Miss> {
        let share = (self.limits.channel_tails_bytes / self.channels.len().max(1)).max(TAIL_BYTES_MIN);
        let Some(host) = self
            .channels
            .get_mut(channel)
            .filter(|host| host.activation == activation)
        else {
            return Ok(());
        };
        let Some(active) = &mut host.active else {
            return Ok(());
        };
        if let Input::Meta(meta) = &input
            && meta.version > active.meta.version
        {
            active.meta = meta.clone();
        }
        let mut outputs = Vec::new();
        active.replica.keep_in_memory(share);
        active.replica.handle(turn.now, input, &turn.rows, &mut outputs)?;
        self.replica_outputs(turn, channel, outputs);
        self.note_log_start(channel);
        self.note_deadline(channel);
        Ok(())
    }

    /// Retention moved the log start: keys and cursors below it are judged without their records (AP-2, CH-14).
    fn note_log_start(&mut self, channel: &ChannelKey) {
        let Some(active) = self.active(channel) else {
            return;
        };
        let log_start = active.replica.log_start();
        if active.leading.is_none() || active.log_start == log_start {
            return;
        }
        active.log_start = log_start;
        self.tell_authority(channel, append::Input::LogStart(log_start));
        self.tell_cursors(channel, cursors::Input::LogStart(log_start));
    }

    /// Executes a replica's outputs.
    pub(super) fn replica_outputs(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        outputs: Vec<Output>,
    ) {
        let Some(activation) = self.channels.get(channel).map(|host| host.activation) else {
            return;
        };
        if self.touched.last() != Some(channel) {
            self.touched.push(channel.clone());
        }
        for output in outputs {
            match output {
                Output::Send { to, message } => {
                    let lane = channel_lane(channel);
                    self.links.push(turn.now, lane, to, (channel.clone(), message));
                }
                Output::Store { token, writes } => {
                    let stored = Stored::Channel {
                        channel: channel.clone(),
                        activation,
                        token,
                    };
                    let ticket = self.ticket(Instance::Data, stored);
                    turn.store(Instance::Data, ticket, writes);
                }
                Output::Read { token, request } => {
                    let read = self.reading(Reading::Channel {
                        channel: channel.clone(),
                        activation,
                        token,
                    });
                    turn.out.push(Effect::Read { token: read, request });
                }
                Output::Ready => {}
                Output::Appended { token, first } => {
                    self.tell_authority(channel, append::Input::Appended { token, first })
                }
                Output::Refused { token, why } => {
                    let reason = super::reads::refusal(why);
                    self.tell_authority(channel, append::Input::AppendRefused { token, reason });
                }
                Output::Committed { high_watermark } => self.on_committed(channel, high_watermark),
                Output::Leading { leader_epoch } => self.on_leading(turn, channel, leader_epoch),
                Output::LostLeadership { .. } => self.on_lost(turn, channel),
                Output::NeedMeta { .. } => self.want_meta(turn, channel),
                Output::ReadReply { token, reply } => self.on_read_reply(turn, channel, token, reply),
                Output::Proven {
                    token,
                    high_watermark,
                } => self.on_proven(channel, token, high_watermark),
                Output::CursorFixed { token } => {
                    self.tell_cursors(channel, cursors::Input::Fixed { token });
                }
                Output::NotProven { token } => self.on_not_proven(turn, channel, token),
                Output::CaughtUp { .. } | Output::VoterChangeDone { .. } | Output::NeedEpoch { .. } => {
                    self.tell_voters(turn, channel, &output);
                }
                Output::Drained { .. } => {}
                Output::Evictable => self.evict(channel),
                Output::Damaged { .. } => self.counters.damaged += 1,
                Output::Alarm { .. } => self.counters.alarms += 1,
            }
        }
    }

    /// The machines of an active channel.
    pub(super) fn active(&mut self, channel: &ChannelKey) -> Option<&mut Active> {
        self.channels.get_mut(channel)?.active.as_deref_mut()
    }

    fn tell_authority(&mut self, channel: &ChannelKey, input: append::Input) {
        self.queue.push_back(Step::Append {
            channel: channel.clone(),
            input,
        });
    }

    fn on_committed(&mut self, channel: &ChannelKey, high_watermark: Seq) {
        let Some(active) = self.active(channel) else {
            return;
        };
        let Some(leader_epoch) = active.leading else {
            return;
        };
        active.committed = active.committed.max(high_watermark);
        let through = high_watermark;
        self.tell_authority(
            channel,
            append::Input::Committed {
                leader_epoch,
                through,
            },
        );
        let input = delivery::Input::Committed { through };
        self.queue.push_back(Step::Delivery {
            channel: channel.clone(),
            input,
        });
        let input = cursors::Input::Committed {
            leader_epoch,
            through,
        };
        self.queue.push_back(Step::Cursors {
            channel: channel.clone(),
            input,
        });
    }

    fn on_lost(&mut self, turn: &mut Turn<'_>, channel: &ChannelKey) {
        let Some(active) = self.active(channel) else {
            return;
        };
        active.leading = None;
        active.key_jobs.clear();
        let replays = std::mem::take(&mut active.offline_replays);
        self.tell_authority(channel, append::Input::Role(Role::Not));
        self.queue.push_back(Step::Delivery {
            channel: channel.clone(),
            input: delivery::Input::Lost,
        });
        self.queue.push_back(Step::Cursors {
            channel: channel.clone(),
            input: cursors::Input::Role(cursors::Role::Not),
        });
        self.tell_offline(channel, offline::Input::Lost);
        for (reply_to, _) in replays.into_values() {
            self.reply(turn, reply_to, Reply::Redelivered(None));
        }
        self.counters.leaderships_lost += 1;
        self.refuse_requests(turn, channel, &Reply::NotLeader { hint: None });
    }
}
