//! The connections of this shard: their questions go to the authorities, the answers come back.

use super::Shard;
use super::continuation::Then;
use super::peer::{Peer, Request};
use super::step::Step;
use super::turn::Turn;
use crate::client::Secret;
use crate::delivery;
use crate::effect::Effect;
use crate::hooks::gates;
use crate::presence::{self, OwnerInput, OwnerOutput};
use crate::session::{self, Input, Offered, Output};
use crate::types::{DeviceFlag, DeviceLevel, NodeId, Reason, SlotId, Token, Uid};

/// Where the answer to a push goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct PushFrom {
    pub(super) node: NodeId,
    pub(super) shard: u16,
    pub(super) token: Token,
}

impl Shard {
    /// Steps the sessions of this shard.
    pub(super) fn session_input(&mut self, turn: &mut Turn<'_>, input: Input) {
        let mut outputs = Vec::new();
        self.sessions.handle(turn.now, input, &mut outputs);
        self.session_outputs(turn, outputs);
    }

    pub(super) fn session_outputs(&mut self, turn: &mut Turn<'_>, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Frame { connection, frame } => turn.out.push(Effect::Client { connection, frame }),
                Output::Close { connection, reason } => {
                    turn.out.push(Effect::CloseClient { connection, reason })
                }
                Output::Authenticate {
                    token,
                    uid,
                    flag,
                    secret,
                } => self.authenticate(turn, token, uid, flag, secret),
                Output::Enter {
                    connection,
                    request,
                    level,
                } => self.gates_input(
                    turn,
                    gates::Input::Ask {
                        connection,
                        request,
                        level,
                    },
                ),
                Output::Left { connection } => self.gates_input(turn, gates::Input::Left { connection }),
                Output::Register { token, route } => {
                    self.owner_input(turn, OwnerInput::Register { token, route })
                }
                Output::Unregister { route } => self.owner_input(turn, OwnerInput::Unregister { route }),
                Output::Touch { routes } => self.owner_input(turn, OwnerInput::Touch { routes }),
                Output::Submit {
                    token,
                    route,
                    send,
                    attributes,
                } => self.submit_from_session(turn, token, (route, attributes), send),
                Output::Subscribe {
                    token,
                    route,
                    channel_id,
                    kind,
                    renewal,
                } => {
                    self.subscribe_session(
                        turn,
                        super::ingress::Subscription {
                            token,
                            route,
                            channel_id,
                            kind,
                            renewal,
                        },
                    );
                }
                Output::Unsubscribe {
                    route,
                    channel_id,
                    kind,
                } => {
                    self.unsubscribe_session(turn, route, &channel_id, kind);
                }
                Output::Offered { token, outcomes } => self.on_offered(turn, token, outcomes),
            }
        }
    }

    fn authenticate(
        &mut self,
        turn: &mut Turn<'_>,
        token: Token,
        uid: Uid,
        flag: DeviceFlag,
        secret: Secret,
    ) {
        if self.config.any_token {
            let result = Ok(DeviceLevel::Slave);
            self.queue
                .push_back(Step::Sessions(Input::Authenticated { token, result }));
            return;
        }
        let key = super::facts::device_row(&uid, flag);
        let group = self.directory.group_of(key.slot);
        // Authoritative: a token that was just cleared must not open a session (S4).
        self.call(
            turn,
            Request::Rows {
                group,
                keys: vec![key],
            },
            Then::Authenticated { token, secret },
        );
    }

    /// Steps the owner side of presence.
    pub(super) fn owner_input(&mut self, turn: &mut Turn<'_>, input: OwnerInput) {
        let mut outputs = Vec::new();
        self.owner.handle(turn.now, input, &mut outputs);
        self.owner_outputs(turn, outputs);
    }

    pub(super) fn owner_outputs(&mut self, turn: &mut Turn<'_>, outputs: Vec<OwnerOutput>) {
        for output in outputs {
            match output {
                OwnerOutput::Send { to, request } => {
                    if let Some(slot) = slot_of(&request) {
                        let message = Peer::Presence {
                            group: self.directory.group_of(slot),
                            caller: self.caller(),
                            requests: vec![request],
                        };
                        turn.out.push(Effect::Send { to, message });
                    }
                }
                OwnerOutput::Registered { token, result } => {
                    self.queue
                        .push_back(Step::Sessions(Input::Registered { token, result }));
                }
                OwnerOutput::Lapsed { route } => {
                    self.queue.push_back(Step::Sessions(Input::Lapsed { route }));
                }
                OwnerOutput::Kick { route } => self.queue.push_back(Step::Sessions(Input::Kick { route })),
            }
        }
    }

    /// A process that stood still for longer than others take to count it as dead may have missed leaders of presence.
    pub(super) fn notice_sleep(&mut self, turn: &mut Turn<'_>) {
        let since = std::mem::replace(&mut self.awake_at, turn.now.monotonic);
        if self.started && since + self.config.limits.node_dead_after < turn.now.monotonic {
            self.owner_input(turn, OwnerInput::Slept { since });
        }
    }

    /// This shard as presence knows it.
    pub(super) fn caller(&self) -> presence::Caller {
        presence::Caller {
            node: self.config.node,
            boot: self.config.boots.process,
            shard: self.config.shard,
            shards: self.config.shards,
        }
    }

    /// A push came for sessions of this shard.
    pub(super) fn on_push(&mut self, from: PushFrom, push: &delivery::Push) {
        let offers = push
            .targets
            .iter()
            .map(|target| session::Offer {
                route: target.route.clone(),
                channel_id: target.channel_id.clone(),
                kind: push.kind,
                messages: push.messages_of(target),
                missed: target.missed,
            })
            .collect();
        let token = self.next_token();
        self.pushes.insert(token, from);
        self.queue
            .push_back(Step::Sessions(Input::Offer { token, offers }));
    }

    fn on_offered(&mut self, turn: &mut Turn<'_>, token: Token, outcomes: Vec<Offered>) {
        let Some(from) = self.pushes.remove(&token) else {
            return;
        };
        let outcomes = (0_u16..)
            .zip(outcomes)
            .map(|(position, outcome)| {
                let pushed = match outcome {
                    Offered::Bound => delivery::Pushed::Bound,
                    Offered::Gone => delivery::Pushed::Gone,
                    Offered::NotYet => delivery::Pushed::NotYet,
                    Offered::Full => delivery::Pushed::Full,
                };
                (position, pushed)
            })
            .collect();
        let message = Peer::Pushed {
            shard: from.shard,
            token: from.token,
            outcomes,
        };
        turn.out.push(Effect::Send {
            to: from.node,
            message,
        });
    }

    /// A session's subscription was decided.
    pub(super) fn subscribed(&mut self, token: Token, reason: Reason, leader: Option<NodeId>) {
        self.queue.push_back(Step::Sessions(Input::SubscribeDone {
            token,
            reason,
            leader,
        }));
    }
}

/// The slot that a request of an owner is about; lookups are never an owner's.
fn slot_of(request: &presence::Request) -> Option<SlotId> {
    match request {
        presence::Request::Register { slot, .. }
        | presence::Request::Unregister { slot, .. }
        | presence::Request::Touch { slot, .. }
        | presence::Request::Announce { slot, .. } => Some(*slot),
        presence::Request::Lookup { slots, .. } => slots.first().map(|(slot, _)| *slot),
    }
}
