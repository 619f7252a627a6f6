//! What happens by time.

use super::Shard;
use super::peer::Peer;
use super::turn::Turn;
use crate::effect::Effect;
use crate::types::GroupId;
use std::time::Duration;

impl Shard {
    /// When `Event::Expired` is wanted at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        self.next_deadline
    }

    pub(super) fn earliest_deadline(&self) -> Option<Duration> {
        let groups = self.groups.values().flat_map(|host| {
            [
                host.group.next_deadline(),
                host.presence.next_deadline(),
                host.online_status.next_deadline(),
            ]
        });
        let liveness = (self.config.shard == 0).then(|| self.liveness.next_deadline());
        [
            liveness,
            self.calls.next_deadline(),
            self.deadlines.first().map(|(at, _)| *at),
            self.links.next_deadline(),
            self.ids.next_deadline(),
            self.pipeline.next_deadline(),
            self.gates.next_deadline(),
            self.sessions.next_deadline(),
            self.owner.next_deadline(),
            self.lookups.next_deadline(),
            self.pushing.next_deadline(),
            self.asks.next_deadline(),
            self.plugins.next_deadline(),
            self.resuming.next_deadline(),
        ]
        .into_iter()
        .chain(groups)
        .flatten()
        .min()
    }

    /// Everything whose time has come.
    pub(super) fn expire(&mut self, turn: &mut Turn<'_>) {
        self.expire_liveness(turn);
        self.expire_groups(turn);
        self.run(turn);
        self.expire_channels(turn);
        self.ids_due(turn);
        let mut outputs = Vec::new();
        self.pipeline.expire(turn.now, &mut outputs);
        self.pipeline_outputs(turn, outputs);
        self.expire_gates(turn);
        let mut outputs = Vec::new();
        self.sessions.expire(turn.now, &mut outputs);
        self.session_outputs(turn, outputs);
        let mut outputs = Vec::new();
        self.owner.expire(turn.now, &mut outputs);
        self.owner_outputs(turn, outputs);
        self.expire_lookups(turn);
        self.expire_pushes(turn);
        self.expire_calls(turn);
        self.expire_asks(turn);
        self.expire_plugin_calls(turn);
        self.expire_resuming(turn);
    }

    fn expire_groups(&mut self, turn: &mut Turn<'_>) {
        let due: Vec<GroupId> = self.groups.keys().copied().collect();
        for group in due {
            let Some(host) = self.groups.get_mut(&group) else {
                continue;
            };
            let now = turn.now.monotonic;
            let is_due = |at: Option<Duration>| at.is_some_and(|at| at <= now);
            if is_due(host.group.next_deadline()) {
                let mut outputs = Vec::new();
                host.group.expire(turn.now, &mut outputs);
                self.group_outputs(turn, group, outputs);
            }
            let Some(host) = self.groups.get_mut(&group) else {
                continue;
            };
            if is_due(host.presence.next_deadline()) {
                let mut outputs = Vec::new();
                host.presence.expire(turn.now, &mut outputs);
                self.presence_outputs(turn, group, outputs);
            }
            self.expire_online_status(turn, group);
        }
    }

    /// Shard 0 exchanges heartbeats with the other nodes and tells its siblings what it hears (M-5).
    fn expire_liveness(&mut self, turn: &mut Turn<'_>) {
        if self.config.shard != 0 || !self.liveness.beat_due(turn.now, self.config.limits.heartbeat) {
            return;
        }
        self.register_node(turn);
        self.read_registry(turn);
        self.report_given_up(turn);
        let registry = self.plugins.revision();
        let boots = self.config.boots;
        let leads: Vec<_> = self.directory.led_here().collect();
        for &node in &self.config.nodes {
            if node != self.config.node {
                turn.out.push(Effect::Send {
                    to: node,
                    message: Peer::Heartbeat {
                        boots,
                        leads: leads.clone(),
                        registry,
                    },
                });
            }
        }
        for (node, state) in self
            .liveness
            .fallen_silent(turn.now, self.config.limits.node_dead_after)
        {
            self.spread_node_state(turn, node, state);
        }
    }
}
