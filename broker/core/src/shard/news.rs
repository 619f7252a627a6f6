//! News inside a node: which nodes live, who leads the groups hosted here, what applied commands changed.

use super::Shard;
use super::liveness::NodeState;
use super::peer::Peer;
use super::turn::Turn;
use crate::effect::Effect;
use crate::presence::{self, Fence, OwnerInput};
use crate::replicated::Notice;
use crate::session;
use crate::types::{Boots, ChannelKey, ChannelMeta, GroupId, NodeId, Term};

impl Shard {
    /// A node is heard of, with the groups that it leads and the registry of plugins that it acts on.
    pub(super) fn on_heartbeat(
        &mut self,
        turn: &mut Turn<'_>,
        from: NodeId,
        (boots, registry): (Boots, u64),
        leads: &[(GroupId, Term)],
    ) {
        self.hear_of_registry(turn, registry);
        let before = self.liveness.state(from);
        if let Some(state) = self.liveness.heard(turn.now, from, boots) {
            self.after_node_change(turn, from, before, state);
            self.tell_siblings(turn, from, state);
        }
        for (group, leader, term) in self.directory.claimed(from, leads) {
            self.on_group_state(turn, group, leader, term, false);
            for shard in 1..self.config.shards {
                let message = Peer::GroupState {
                    shard,
                    group,
                    leader,
                    term,
                    leads: false,
                };
                turn.out.push(Effect::Send {
                    to: self.config.node,
                    message,
                });
            }
        }
    }

    /// Shard 0 found a node silent.
    pub(super) fn spread_node_state(&mut self, turn: &mut Turn<'_>, node: NodeId, state: NodeState) {
        let before = NodeState { alive: true, ..state };
        self.after_node_change(turn, node, before, state);
        self.tell_siblings(turn, node, state);
    }

    fn tell_siblings(&mut self, turn: &mut Turn<'_>, node: NodeId, state: NodeState) {
        for shard in 1..self.config.shards {
            turn.out.push(Effect::Send {
                to: self.config.node,
                message: Peer::NodeState { shard, node, state },
            });
        }
    }

    /// Shard 0 says what it heard.
    pub(super) fn on_node_state(&mut self, turn: &mut Turn<'_>, node: NodeId, state: NodeState) {
        let before = self.liveness.state(node);
        self.liveness.set(turn.now, node, state);
        self.after_node_change(turn, node, before, state);
    }

    fn after_node_change(&mut self, turn: &mut Turn<'_>, node: NodeId, before: NodeState, after: NodeState) {
        let old = before.boots.map(|boots| boots.process);
        let rebooted = old.is_some() && old != after.boots.map(|boots| boots.process);
        if let Some(boot) = old
            && (rebooted || !after.alive)
        {
            let input = if rebooted {
                presence::Input::NodeDown { node, boot }
            } else {
                presence::Input::NodeSilent { node, boot }
            };
            self.fence_node(turn, &input);
            self.calls_lost(turn, node);
            self.session_input(turn, session::Input::NodeLost { node });
        }
        let groups: Vec<GroupId> = self.groups.keys().copied().collect();
        for group in groups {
            self.presence_leadership(turn, group);
        }
        self.spread_world();
    }

    /// A replica on this node says who leads a group.
    pub(super) fn on_group_state(
        &mut self,
        turn: &mut Turn<'_>,
        group: GroupId,
        leader: Option<NodeId>,
        term: Term,
        leads: bool,
    ) {
        self.directory.observe(group, leader, term, leads);
        if group == GroupId::CONTROLLER {
            return;
        }
        let fenced = leader.map(|leader| {
            (
                leader,
                Fence {
                    group,
                    term,
                    config_epoch: 0,
                },
            )
        });
        for slot in self.directory.slots_of(group) {
            self.owner_input(turn, OwnerInput::Leader { slot, leader: fenced });
        }
    }

    /// Applied commands changed rows that other machines follow.
    pub(super) fn on_notices(&mut self, turn: &mut Turn<'_>, group: GroupId, notices: Vec<Notice>) {
        for notice in notices {
            match notice {
                Notice::Meta { channel, meta } => self.spread_meta(turn, group, channel, &meta),
                Notice::Registry => self.registry_changed(turn),
                Notice::Outbox { .. }
                | Notice::Channel { .. }
                | Notice::List { .. }
                | Notice::Membership { .. }
                | Notice::Token { .. }
                | Notice::SystemUids
                | Notice::Controller
                | Notice::Replaced { .. } => {}
            }
        }
    }

    /// Active replicas hear of newer metadata at once; the leader's node hears of it even when the channel sleeps there,
    /// so that what is committed and not delivered goes on (R27).
    fn spread_meta(&mut self, turn: &mut Turn<'_>, group: GroupId, channel: ChannelKey, meta: &ChannelMeta) {
        let here = self.config.node;
        if meta.replicas().iter().any(|replica| replica.node == here) {
            let message = Peer::Meta {
                channel: channel.clone(),
                meta: meta.clone(),
            };
            turn.out.push(Effect::Send { to: here, message });
        }
        let leads = self.groups.get(&group).is_some_and(|host| host.leads);
        if let Some(leader) = meta.leader
            && leads
            && leader.node != here
        {
            turn.out.push(Effect::Send {
                to: leader.node,
                message: Peer::Meta {
                    channel,
                    meta: meta.clone(),
                },
            });
        }
    }

    /// Newer metadata of a channel.
    pub(super) fn on_meta(&mut self, turn: &mut Turn<'_>, channel: &ChannelKey, meta: ChannelMeta) {
        let leads = meta.leader.is_some_and(|leader| {
            leader.node == self.config.node && leader.process == self.config.boots.process
        });
        let active = self
            .channels
            .get(channel)
            .is_some_and(|host| host.active.is_some());
        if leads || active {
            self.apply_meta(turn, channel, meta);
        } else if meta.leader.is_some_and(|leader| leader.node == self.config.node) {
            self.resume_one(turn, channel, &meta);
        }
    }
}
