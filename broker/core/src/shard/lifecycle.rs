//! When a channel is given up, when it needs attention, and what that is.

use super::Shard;
use super::turn::Turn;
use crate::types::ChannelKey;

impl Shard {
    /// An idle channel leaves memory (CH-10), unless a machine of it still has work.
    pub(super) fn evict(&mut self, channel: &ChannelKey) {
        let Some(host) = self.channels.get(channel) else {
            return;
        };
        let knows_plugins = self.knows_plugins();
        let idle = host.requests.is_empty()
            && host.active.as_ref().is_some_and(|active| {
                // Before the registry is known, nobody can say whether a binding has something left to do.
                let followed = active.leading.is_none() || knows_plugins;
                followed
                    && active.authority.is_idle()
                    && active.delivery.is_idle()
                    && active.cursors.is_idle()
                    && active.offline.is_idle()
            })
            && !self.held.contains(&super::step::Hold::Channel(channel.clone()));
        if idle {
            self.drop_host(channel);
            self.counters.evictions += 1;
        }
    }

    pub(super) fn drop_host(&mut self, channel: &ChannelKey) {
        self.channels.remove(channel);
        self.opening.opened(channel);
        if let Some(at) = self.channel_deadlines.remove(channel) {
            self.deadlines.remove(&(at, channel.clone()));
        }
    }

    /// Keeps the shard's ordered deadlines in step with the channel's machines.
    pub(super) fn note_deadline(&mut self, channel: &ChannelKey) {
        let Some(host) = self.channels.get(channel) else {
            return;
        };
        let next = [
            host.wake,
            host.requests.front().map(|(until, _, _)| *until),
            host.active
                .as_ref()
                .and_then(|active| active.replica.next_deadline()),
            host.active
                .as_ref()
                .and_then(|active| active.authority.next_deadline()),
            host.active
                .as_ref()
                .and_then(|active| active.delivery.next_deadline()),
            host.active
                .as_ref()
                .and_then(|active| active.cursors.next_deadline()),
            host.active
                .as_ref()
                .and_then(|active| active.offline.next_deadline()),
        ]
        .into_iter()
        .flatten()
        .min();
        let before = match next {
            Some(at) => self.channel_deadlines.insert(channel.clone(), at),
            None => self.channel_deadlines.remove(channel),
        };
        if before == next {
            return;
        }
        if let Some(before) = before {
            self.deadlines.remove(&(before, channel.clone()));
        }
        if let Some(at) = next {
            self.deadlines.insert((at, channel.clone()));
        }
    }

    /// Channels whose deadline has passed.
    pub(super) fn expire_channels(&mut self, turn: &mut Turn<'_>) {
        while let Some((at, channel)) = self.deadlines.first().cloned() {
            if at > turn.now.monotonic {
                return;
            }
            self.deadlines.remove(&(at, channel.clone()));
            self.channel_deadlines.remove(&channel);
            self.expire_channel(turn, &channel);
            self.run(turn);
            self.note_deadline(&channel);
        }
    }

    fn expire_channel(&mut self, turn: &mut Turn<'_>, channel: &ChannelKey) {
        let now = turn.now;
        self.refuse_late(turn, channel);
        let Some(host) = self.channels.get_mut(channel) else {
            return;
        };
        if host.is_unused() {
            return self.drop_host(channel);
        }
        if host.wake.is_some_and(|at| at <= now.monotonic) {
            host.wake = None;
            if !host.requests.is_empty() {
                self.want_meta(turn, channel);
            }
        }
        let Some(active) = self
            .channels
            .get_mut(channel)
            .and_then(|host| host.active.as_deref_mut())
        else {
            return;
        };
        let mut outputs = Vec::new();
        active.replica.expire(now, &mut outputs);
        let mut appends = Vec::new();
        active.authority.expire(now, &mut self.ids, &mut appends);
        let mut deliveries = Vec::new();
        active.delivery.expire(now, &mut deliveries);
        let mut cursor_outputs = Vec::new();
        active.cursors.expire(now, &mut cursor_outputs);
        let mut sweeps = Vec::new();
        active.offline.expire(now, &mut sweeps);
        self.authority_outputs(turn, channel, appends);
        self.delivery_outputs(turn, channel, deliveries);
        self.cursor_outputs(turn, channel, cursor_outputs);
        self.offline_outputs(turn, channel, sweeps);
        self.replica_outputs(turn, channel, outputs);
    }
}
