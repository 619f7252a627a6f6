//! A channel's append authority, hooks and delivery: their outputs go to the replica, to presence and to the owners of
//! sessions.

use super::Shard;
use super::continuation::Lookup;
use super::peer::{Peer, Reply, connection_lane};
use super::reads::Purpose;
use super::step::Step;
use super::turn::Turn;
use crate::append::{self, Leadership, Role};
use crate::channel;
use crate::codec;
use crate::delivery::{self, OwedWord, Push, Pushed};
use crate::effect::Effect;
use crate::hooks::call::{Call, Work};
use crate::hooks::{self, cursors, pipeline};
use crate::message::Committed;
use crate::rows::Miss;
use crate::types::{ChannelKey, LeaderEpoch, NodeId, Route, Seq, Token};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A push that waits for its owners: which target of the delivery each position of a lane's message is.
#[derive(Debug)]
pub(super) struct Pushing {
    channel: ChannelKey,
    token: Token,
    positions: Vec<u16>,
}

impl Shard {
    /// Steps a channel's append authority.
    pub(super) fn append_input(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        input: append::Input,
    ) -> Result<(), Miss> {
        let Some(active) = self
            .channels
            .get_mut(channel)
            .and_then(|host| host.active.as_deref_mut())
        else {
            return Ok(());
        };
        let mut outputs = Vec::new();
        active
            .authority
            .handle(turn.now, input, &turn.rows, &mut self.ids, &mut outputs)?;
        self.authority_outputs(turn, channel, outputs);
        self.ids_due(turn);
        self.note_deadline(channel);
        Ok(())
    }

    pub(super) fn authority_outputs(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        outputs: Vec<append::Output>,
    ) {
        for output in outputs {
            match output {
                append::Output::BeforeSend { token, drafts } => {
                    let input = pipeline::Input::BeforeSend {
                        token,
                        channel: channel.clone(),
                        drafts,
                    };
                    self.judge_drafts(turn, input);
                }
                append::Output::Append(append) => self.place(channel, append),
                append::Output::CheckRecord { token, seq } => {
                    self.read_records(channel, seq, 1, Purpose::Check { token, seq });
                }
                append::Output::Ephemeral { token, message } => {
                    let Some(active) = self.active(channel) else {
                        continue;
                    };
                    let incarnation = active.meta.incarnation;
                    let message = Arc::new(Committed {
                        channel: channel.clone(),
                        incarnation,
                        message,
                    });
                    let input = delivery::Input::Ephemeral { token, message };
                    self.queue.push_back(Step::Delivery {
                        channel: channel.clone(),
                        input,
                    });
                }
                append::Output::Reply { token, outcomes } => {
                    let reply_to = self
                        .active(channel)
                        .and_then(|active| active.submits.remove(&token));
                    if let Some(reply_to) = reply_to {
                        self.reply(turn, reply_to, Reply::Appended(outcomes));
                    }
                }
            }
        }
    }

    /// Gives entries to the replica, unless it leads another epoch by now.
    fn place(&mut self, channel: &ChannelKey, append: append::Append) {
        let token = append.token;
        let Some(active) = self.active(channel) else {
            return;
        };
        if active.leading != Some(append.leader_epoch) || active.meta.incarnation != append.incarnation {
            let input = append::Input::AppendRefused {
                token,
                reason: crate::types::Reason::NODE_NOT_MATCH,
            };
            self.queue.push_back(Step::Append {
                channel: channel.clone(),
                input,
            });
            return;
        }
        let records = append
            .entries
            .into_iter()
            .map(|entry| channel::NewRecord {
                stamp_ms: entry.message.stamp_ms,
                id: entry.message.id,
                key: entry.key,
                body: codec::encode_message(&entry.message),
            })
            .collect();
        self.tell_replica(channel, channel::Input::Append { token, records });
    }

    /// Steps the before-send pipeline of this shard.
    pub(super) fn pipeline_input(&mut self, turn: &mut Turn<'_>, input: pipeline::Input) {
        let mut outputs = Vec::new();
        self.pipeline.handle(turn.now, input, &mut outputs);
        self.pipeline_outputs(turn, outputs);
    }

    pub(super) fn pipeline_outputs(&mut self, turn: &mut Turn<'_>, outputs: Vec<pipeline::Output>) {
        for output in outputs {
            match output {
                pipeline::Output::Call {
                    token,
                    version,
                    channel,
                    drafts,
                    within,
                } => {
                    let wall_ms = turn.now.wall_ms;
                    let call = Call {
                        version,
                        channel: Some(channel),
                        within,
                        work: Work::BeforeSend { drafts, wall_ms },
                    };
                    self.call_plugin(turn, call, super::plugins::Waits::BeforeSend(token));
                }
                pipeline::Output::Done {
                    token,
                    channel,
                    verdicts,
                } => {
                    let input = append::Input::HooksDone { token, verdicts };
                    self.queue.push_back(Step::Append { channel, input });
                }
            }
        }
    }

    /// The replica leads: everything that follows the log begins.
    pub(super) fn on_leading(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        leader_epoch: LeaderEpoch,
    ) {
        let Some(active) = self.active(channel) else {
            return;
        };
        active.leading = Some(leader_epoch);
        let view = active.replica.view();
        active.committed = view.high_watermark;
        let leadership = Leadership {
            incarnation: active.meta.incarnation,
            leader_epoch,
            meta_version: active.meta.version,
            log_start: view.log_start,
            committed: view.high_watermark,
            last_stamp_ms: view.last_stamp_ms,
        };
        let known = active.replica.all_cursors();
        let delivered = known
            .iter()
            .find(|(consumer, _)| consumer.as_ref() == hooks::DELIVERY.as_bytes());
        let cursor = delivered
            .and_then(|(_, value)| cursors::Cursor::decode(value))
            .unwrap_or_default();
        let steps = [
            Step::Append {
                channel: channel.clone(),
                input: append::Input::Role(Role::Leading(leadership)),
            },
            Step::Delivery {
                channel: channel.clone(),
                input: delivery::Input::Leading {
                    incarnation: leadership.incarnation,
                    leader_epoch,
                    cursor: cursor.done,
                    committed: leadership.committed,
                    owed: owed_word(&known),
                },
            },
            Step::Cursors {
                channel: channel.clone(),
                input: cursors::Input::Role(cursors::Role::Leading {
                    incarnation: leadership.incarnation,
                    leader_epoch,
                    log_start: leadership.log_start,
                    committed: leadership.committed,
                }),
            },
        ];
        self.follow(channel, false);
        self.queue.extend(steps);
        self.tell_known_cursors(channel, known);
        self.counters.leaderships += 1;
        self.resume_requests(turn, channel);
    }

    /// Steps a channel's delivery.
    pub(super) fn delivery_input(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        input: delivery::Input,
    ) {
        let lag_max = self.config.limits.delivery_lag_max;
        let Some(active) = self.active(channel) else {
            return;
        };
        let mut outputs = Vec::new();
        active.delivery.handle(turn.now, input, &mut outputs);
        let busy = active.delivery.lag() > lag_max;
        if std::mem::replace(&mut active.delivery_busy, busy) != busy {
            let input = append::Input::DeliveryBusy(busy);
            self.queue.push_back(Step::Append {
                channel: channel.clone(),
                input,
            });
        }
        self.delivery_outputs(turn, channel, outputs);
        self.note_deadline(channel);
    }

    /// A session follows the channel for a lease, or no longer (PC-6).
    pub(super) fn subscribe_route(&mut self, channel: &ChannelKey, route: Route, subscribe: bool) {
        let input = if subscribe {
            delivery::Input::Subscribe { route }
        } else {
            delivery::Input::Unsubscribe { route }
        };
        self.queue.push_back(Step::Delivery {
            channel: channel.clone(),
            input,
        });
    }

    pub(super) fn delivery_outputs(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        outputs: Vec<delivery::Output>,
    ) {
        for output in outputs {
            match output {
                delivery::Output::ReadRecords {
                    token,
                    from,
                    through,
                    records_max,
                    ..
                } => {
                    self.read_records(channel, from, records_max, Purpose::Delivery { token, through });
                }
                delivery::Output::Members {
                    token,
                    channel: of,
                    known_revision,
                    after,
                    members_max,
                } => {
                    let stage = super::members::Stage::Revision {
                        of,
                        known: known_revision,
                        after,
                        members_max,
                    };
                    self.want_members(turn, channel, super::members::Reader::Delivery(token), stage);
                }
                delivery::Output::Lookup { token, slots } => {
                    self.lookup(
                        turn,
                        slots,
                        Lookup::Delivery {
                            channel: channel.clone(),
                            token,
                        },
                    );
                }
                delivery::Output::Push { token, node, push } => self.push(turn, channel, token, node, push),
                delivery::Output::Cursor {
                    leader_epoch,
                    through,
                    ..
                } => self.delivery_cursor(channel, leader_epoch, through),
                delivery::Output::Owed { word } => {
                    if self
                        .active(channel)
                        .is_some_and(|active| active.leading == Some(word.leader_epoch))
                    {
                        let consumer = Bytes::from_static(hooks::OWED.as_bytes());
                        let value = word.encode();
                        self.tell_replica(channel, channel::Input::Cursor { consumer, value });
                    }
                }
                delivery::Output::Accepted { token, result } => {
                    let input = append::Input::Planned {
                        token,
                        accepted: result.is_ok(),
                    };
                    self.queue.push_back(Step::Append {
                        channel: channel.clone(),
                        input,
                    });
                }
            }
        }
    }

    /// Delivery came this far: its cursor travels with the log (M-6).
    fn delivery_cursor(&mut self, channel: &ChannelKey, leader_epoch: LeaderEpoch, through: Seq) {
        let leads = |active: &mut super::channels::Active| active.leading == Some(leader_epoch);
        if self.active(channel).is_some_and(leads) {
            let consumer = Bytes::from_static(hooks::DELIVERY.as_bytes());
            let value = cursors::Cursor::at(through).encode();
            self.tell_replica(channel, channel::Input::Cursor { consumer, value });
        }
    }

    /// Sends a push to the owner node, cut by the lanes of its connections.
    fn push(&mut self, turn: &mut Turn<'_>, channel: &ChannelKey, token: Token, node: NodeId, push: Push) {
        let mut lanes: BTreeMap<u16, (Vec<u16>, Vec<delivery::Target>)> = BTreeMap::new();
        for (position, target) in (0_u16..).zip(push.targets) {
            let (positions, targets) = lanes.entry(connection_lane(target.route.connection)).or_default();
            positions.push(position);
            targets.push(target);
        }
        let deadline = turn.now.after(self.config.limits.request_timeout);
        for (lane, (positions, targets)) in lanes {
            let name = self.next_token();
            let pushing = Pushing {
                channel: channel.clone(),
                token,
                positions,
            };
            self.pushing.insert(name, deadline, pushing);
            let push = Push {
                messages: push.messages.clone(),
                kind: push.kind,
                targets,
            };
            let message = Peer::Push {
                lane,
                reply_to: self.config.shard,
                token: name,
                push,
            };
            turn.out.push(Effect::Send { to: node, message });
        }
    }

    /// Owners answered.
    pub(super) fn on_pushed(&mut self, token: Token, outcomes: Vec<(u16, Pushed)>) {
        let Some(pushing) = self.pushing.remove(token) else {
            return;
        };
        let outcomes = outcomes
            .into_iter()
            .filter_map(|(position, pushed)| {
                pushing
                    .positions
                    .get(usize::from(position))
                    .map(|&original| (original, pushed))
            })
            .collect();
        let input = delivery::Input::Pushed {
            token: pushing.token,
            outcomes,
        };
        self.queue.push_back(Step::Delivery {
            channel: pushing.channel,
            input,
        });
    }

    /// Pushes without an answer are not known to be bound: delivery offers them again.
    pub(super) fn expire_pushes(&mut self, turn: &Turn<'_>) {
        while let Some((_, pushing)) = self.pushing.pop_due(turn.now) {
            let outcomes = pushing
                .positions
                .iter()
                .map(|&position| (position, Pushed::NotYet))
                .collect();
            let input = delivery::Input::Pushed {
                token: pushing.token,
                outcomes,
            };
            self.queue.push_back(Step::Delivery {
                channel: pushing.channel,
                input,
            });
        }
    }
}

/// What the leaders told last of whom the channel owes something.
fn owed_word(known: &channel::Cursors) -> OwedWord {
    let told = known
        .iter()
        .find(|(consumer, _)| consumer.as_ref() == hooks::OWED.as_bytes());
    told.and_then(|(_, value)| OwedWord::decode(value))
        .unwrap_or_default()
}
