//! The presence authorities of the groups led here, and look-ups by other machines of this shard.

use super::Shard;
use super::continuation::Lookup;
use super::peer::Peer;
use super::step::Step;
use super::turn::Turn;
use crate::audience;
use crate::delivery;
use crate::effect::Effect;
use crate::hooks::offline;
use crate::presence::{Caller, Fence, Input, Notice, Output, OwnerInput, Presence, Request};
use crate::types::{GroupId, NodeId, SlotId, Uid};
use std::collections::{BTreeMap, BTreeSet};

impl Shard {
    /// Steps the authority of a group.
    pub(super) fn presence_input(&mut self, turn: &mut Turn<'_>, group: GroupId, input: Input) {
        let Some(host) = self.groups.get_mut(&group) else {
            return;
        };
        let mut outputs = Vec::new();
        host.presence.handle(turn.now, input, &mut outputs);
        self.presence_outputs(turn, group, outputs);
    }

    /// Executes an authority's outputs in order.
    pub(super) fn presence_outputs(&mut self, turn: &mut Turn<'_>, group: GroupId, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Send { to, notice } => send_notice(turn, to, notice),
                Output::Changed { slot, route, online } => self.session_changed(group, slot, &route, online),
            }
        }
    }

    /// A group's leadership (or the nodes alive) changed: its slots are rebuilt or cleared (PR-1).
    pub(super) fn presence_leadership(&mut self, turn: &mut Turn<'_>, group: GroupId) {
        if group == GroupId::CONTROLLER {
            return;
        }
        let Some(host) = self.groups.get(&group) else {
            return;
        };
        let fence = host.leads.then_some(Fence {
            group,
            term: host.term,
            config_epoch: 0,
        });
        // A node that was never heard of may have sessions from before this process began.
        let expected: BTreeSet<NodeId> = self
            .liveness
            .nodes()
            .filter(|(_, state, _)| state.alive || state.boots.is_none())
            .map(|(node, _, _)| node)
            .collect();
        for slot in self.directory.slots_of(group) {
            self.presence_input(
                turn,
                group,
                Input::Leadership {
                    slot,
                    fence,
                    expected: expected.clone(),
                },
            );
        }
    }

    /// A request to an authority came.
    pub(super) fn on_presence_request(
        &mut self,
        turn: &mut Turn<'_>,
        group: GroupId,
        from: Caller,
        request: Request,
    ) {
        if self.groups.contains_key(&group) {
            return self.presence_input(turn, group, Input::Request { from, request });
        }
        // Not hosted here: the asker's hint was old.
        let notices = match request {
            Request::Lookup { token, slots } => {
                let slots = slots
                    .into_iter()
                    .map(|(slot, _)| (slot, Presence::Unknown))
                    .collect();
                vec![Notice::Found { token, slots }]
            }
            Request::Register { slot, .. } | Request::Announce { slot, .. } | Request::Touch { slot, .. } => {
                vec![Notice::NotLeader { slot }]
            }
            Request::Unregister { .. } => Vec::new(),
        };
        for notice in notices {
            send_notice(turn, from, notice);
        }
    }

    /// An authority answers, or tells an owner.
    pub(super) fn on_presence_notice(&mut self, turn: &mut Turn<'_>, notice: Notice) {
        match notice {
            Notice::Found { token, slots } => self.on_found(turn, token, slots),
            notice => self.owner_input(turn, OwnerInput::Notice { notice }),
        }
    }

    /// Where are these users? Every slot gets an answer or is unknown within the bound; answers come in parts.
    pub(super) fn lookup(&mut self, turn: &mut Turn<'_>, slots: Vec<(SlotId, Vec<Uid>)>, then: Lookup) {
        let token = self.next_token();
        let mut groups: BTreeMap<GroupId, Vec<(SlotId, Vec<Uid>)>> = BTreeMap::new();
        let asked: BTreeSet<SlotId> = slots.iter().map(|(slot, _)| *slot).collect();
        for (slot, uids) in slots {
            groups
                .entry(self.directory.group_of(slot))
                .or_default()
                .push((slot, uids));
        }
        let deadline = turn.now.after(self.config.limits.request_timeout);
        self.lookups.insert(token, deadline, (then, asked));
        for (group, slots) in groups {
            let leader = self.directory.presence_node(group, (token.0 % 64) as u32);
            let request = Request::Lookup { token, slots };
            match leader {
                Some(to) => {
                    let message = Peer::Presence {
                        group,
                        caller: self.caller(),
                        requests: vec![request],
                    };
                    turn.out.push(Effect::Send { to, message });
                }
                None => {
                    let Request::Lookup { slots, .. } = request else {
                        continue;
                    };
                    let slots = slots
                        .into_iter()
                        .map(|(slot, _)| (slot, Presence::Unknown))
                        .collect();
                    self.on_found(turn, token, slots);
                }
            }
        }
    }

    /// A part of a look-up's answer came.
    pub(super) fn on_found(
        &mut self,
        turn: &mut Turn<'_>,
        token: crate::types::Token,
        slots: Vec<(SlotId, Presence)>,
    ) {
        let Some((then, asked)) = self.lookups.get_mut(token) else {
            return;
        };
        let slots: Vec<_> = slots.into_iter().filter(|(slot, _)| asked.remove(slot)).collect();
        let (then, done) = (then.clone(), asked.is_empty());
        if done {
            self.lookups.remove(token);
        }
        self.answer_lookup(turn, then, slots);
    }

    /// Slots without an answer within the bound are unknown (PR-4).
    pub(super) fn expire_lookups(&mut self, turn: &mut Turn<'_>) {
        while let Some((_, (then, asked))) = self.lookups.pop_due(turn.now) {
            let slots = asked.into_iter().map(|slot| (slot, Presence::Unknown)).collect();
            self.answer_lookup(turn, then, slots);
        }
    }

    fn answer_lookup(&mut self, turn: &mut Turn<'_>, then: Lookup, slots: Vec<(SlotId, Presence)>) {
        match then {
            Lookup::Delivery { channel, token } => {
                let slots = known(slots);
                self.queue.push_back(Step::Delivery {
                    channel,
                    input: delivery::Input::Found { token, slots },
                });
            }
            Lookup::Offline { channel, token } => {
                let slots = known(slots);
                self.tell_offline(&channel, offline::Input::Found { token, slots });
            }
            Lookup::Online { ask } => self.on_online_part(turn, ask, slots),
        }
    }
}

/// The words of an authority in those that delivery and the hooks share.
fn known(slots: Vec<(SlotId, Presence)>) -> Vec<(SlotId, audience::Presence)> {
    let known = |presence| match presence {
        Presence::Known {
            users,
            complete,
            doubtful,
        } => audience::Presence::Known {
            users,
            complete,
            doubtful,
        },
        Presence::Unknown => audience::Presence::Unknown,
    };
    let slots = slots.into_iter();
    slots.map(|(slot, presence)| (slot, known(presence))).collect()
}

/// An authority tells a shard.
fn send_notice(turn: &mut Turn<'_>, to: Caller, notice: Notice) {
    turn.out.push(Effect::Send {
        to: to.node,
        message: Peer::PresenceNotice {
            shard: to.shard,
            notices: vec![notice],
        },
    });
}
