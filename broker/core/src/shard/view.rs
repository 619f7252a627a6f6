//! What a shard shows to metrics and to checkers that look from outside (M-20). Nothing here decides anything.

use super::Shard;
use crate::channel;
use crate::slot;
use crate::types::{ChannelKey, ChannelMeta, GroupId, LeaderEpoch, Route, SlotId, Term, Uid};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What happened since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Channels activated.
    pub activations: u64,
    /// Channels evicted from memory (CH-10).
    pub evictions: u64,
    /// Requests refused because too many channels were on their way from cold to led.
    pub openings_refused: u64,
    /// Channel leaderships that began here.
    pub leaderships: u64,
    /// Channel leaderships that ended here.
    pub leaderships_lost: u64,
    /// Records given up because of damage on disk (R30).
    pub damaged: u64,
    /// Things refused that must not happen (CH-11).
    pub alarms: u64,
    /// Messages given up for a post-commit consumer.
    pub dead_letters: u64,
    /// Changes of keys that messages have caused, made or refused together by slot: made.
    pub key_changes: u64,
    /// Refused because the plugin has no room left in the slot.
    pub key_quota: u64,
    /// Refused because a value is no number.
    pub key_not_a_number: u64,
    /// Refused because something is too large.
    pub key_too_large: u64,
    /// Not made because the slot could not be asked.
    pub key_unavailable: u64,
    /// Calls of plugins that were not made because a breaker was open.
    pub calls_suspended: u64,
    /// Offline recipients that plugins were told of.
    pub offline_uids: u64,
    /// Times that presence was asked for again for them, because it was not known.
    pub presence_retries: u64,
    /// Runs that retention took from a post-commit consumer (CH-14).
    pub skipped: u64,
    /// Sleeping channels that were woken because a consumer was behind (PC-1).
    pub resumed: u64,
    /// Events of online status that will never be told.
    pub online_status_dropped: u64,
    /// Sends that were answered, by their kind of outcome: committed.
    pub sends_committed: u64,
    /// Refused.
    pub sends_refused: u64,
    /// Unknown.
    pub sends_unknown: u64,
}

impl Counters {
    /// The sum of two.
    #[must_use]
    pub fn plus(&self, other: &Counters) -> Counters {
        Counters {
            activations: self.activations + other.activations,
            evictions: self.evictions + other.evictions,
            openings_refused: self.openings_refused + other.openings_refused,
            leaderships: self.leaderships + other.leaderships,
            leaderships_lost: self.leaderships_lost + other.leaderships_lost,
            damaged: self.damaged + other.damaged,
            alarms: self.alarms + other.alarms,
            dead_letters: self.dead_letters + other.dead_letters,
            key_changes: self.key_changes + other.key_changes,
            key_quota: self.key_quota + other.key_quota,
            key_not_a_number: self.key_not_a_number + other.key_not_a_number,
            key_too_large: self.key_too_large + other.key_too_large,
            key_unavailable: self.key_unavailable + other.key_unavailable,
            calls_suspended: self.calls_suspended + other.calls_suspended,
            offline_uids: self.offline_uids + other.offline_uids,
            presence_retries: self.presence_retries + other.presence_retries,
            skipped: self.skipped + other.skipped,
            resumed: self.resumed + other.resumed,
            online_status_dropped: self.online_status_dropped + other.online_status_dropped,
            sends_committed: self.sends_committed + other.sends_committed,
            sends_refused: self.sends_refused + other.sends_refused,
            sends_unknown: self.sends_unknown + other.sends_unknown,
        }
    }
}

/// A group as seen from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupView {
    /// Which.
    pub group: GroupId,
    /// What it says of itself.
    pub status: slot::Status,
    /// Routes kept by its presence authority.
    pub routes: usize,
}

/// An active channel as seen from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelView {
    /// Which.
    pub channel: ChannelKey,
    /// The metadata it acts on.
    pub meta: ChannelMeta,
    /// The epoch in which it accepts appends.
    pub leading: Option<LeaderEpoch>,
    /// Its replica.
    pub replica: channel::View,
}

/// A shard as seen from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Its groups.
    pub groups: Vec<GroupView>,
    /// Its active channels.
    pub channels: Vec<ChannelView>,
    /// What happened.
    pub counters: Counters,
    /// Open sessions.
    pub sessions: usize,
    /// Messages offered and not acknowledged.
    pub unacknowledged: usize,
    /// Steps that wait for rows.
    pub held: usize,
    /// Loads asked for since the start (M-13).
    pub misses: u64,
    /// Requests that wait for an answer.
    pub calls: usize,
    /// Channels on their way from cold to led.
    pub opening: usize,
    /// Channels in memory.
    pub hosted: usize,
    /// Revision of the registry of plugins that is acted on; none before it was read since the start.
    pub registry: Option<u64>,
    /// Calls of plugins that are not answered.
    pub plugin_calls: usize,
    /// Batches that wait for a before-send stage.
    pub judging: usize,
    /// Connections that wait for a gate, or for the registry.
    pub entering: usize,
}

/// How far a binding that follows channels is behind in those that are led here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// Channels in which it is behind.
    pub channels: u64,
    /// Messages that it has not done.
    pub messages: u64,
    /// Stamp of the oldest of them that was read, ms since 1970.
    pub oldest_ms: Option<u64>,
}

impl Lag {
    /// The sum of two.
    #[must_use]
    pub fn plus(self, other: Lag) -> Lag {
        Lag {
            channels: self.channels + other.channels,
            messages: self.messages + other.messages,
            oldest_ms: [self.oldest_ms, other.oldest_ms].into_iter().flatten().min(),
        }
    }
}

impl Shard {
    /// How far each binding that follows channels is behind, by its id. It looks at every channel that is led here: not for every
    /// step.
    #[must_use]
    pub fn lags(&self) -> BTreeMap<Arc<str>, Lag> {
        let Some(registry) = self.plugins.registry() else {
            return BTreeMap::new();
        };
        let following = registry.following();
        let mut lags: BTreeMap<Arc<str>, Lag> = following
            .map(|bound| (Arc::clone(&bound.binding.id), Lag::default()))
            .collect();
        if lags.is_empty() {
            return lags;
        }
        let active = self.channels.values().filter_map(|host| host.active.as_ref());
        for (consumer, lag) in active.flat_map(|active| active.cursors.behind()) {
            let Some((bound, _)) = registry.consumed_by(consumer) else {
                continue;
            };
            if let Some(sum) = lags.get_mut(&bound.binding.id) {
                *sum = sum.plus(Lag {
                    channels: 1,
                    messages: lag.records,
                    oldest_ms: lag.oldest_ms,
                });
            }
        }
        lags
    }

    /// The replicas that took an input in the last event, for checkers that look after every step.
    pub fn touched_replicas(&self) -> impl Iterator<Item = (&ChannelKey, &channel::Replica)> {
        self.touched.iter().filter_map(|channel| {
            let active = self.channels.get(channel)?.active.as_ref()?;
            Some((channel, &active.replica))
        })
    }

    /// The numbers of the live sessions of a user and the term in which this is known, while this shard leads the user's slot and knows
    /// all of them. For checkers.
    #[must_use]
    pub fn sessions_of(&self, uid: &Uid) -> Option<(Term, Vec<u64>)> {
        let group = self.directory.group_of(uid.slot());
        let host = self.groups.get(&group).filter(|host| host.leads)?;
        let routes = host.presence.sessions(uid.slot(), std::slice::from_ref(uid))?;
        let number = |route: &Route| slot::online::number_of(&slot::online::session_of(route));
        Some((host.term, routes.iter().map(number).collect()))
    }

    /// The slots of a group, as far as this shard knows.
    #[must_use]
    pub fn slots_of(&self, group: GroupId) -> Vec<SlotId> {
        self.directory.slots_of(group)
    }

    /// Everything that an outside checker may look at.
    #[must_use]
    pub fn view(&self) -> View {
        View {
            groups: self
                .groups
                .iter()
                .map(|(&group, host)| GroupView {
                    group,
                    status: host.group.status(),
                    routes: host.presence.routes(),
                })
                .collect(),
            channels: self
                .channels
                .iter()
                .filter_map(|(channel, host)| {
                    let active = host.active.as_ref()?;
                    Some(ChannelView {
                        channel: channel.clone(),
                        meta: active.meta.clone(),
                        leading: active.leading,
                        replica: active.replica.view(),
                    })
                })
                .collect(),
            ..self.summary()
        }
    }

    /// The numbers of [`Shard::view`] without its lists: cheap enough for every scrape.
    #[must_use]
    pub fn summary(&self) -> View {
        View {
            groups: Vec::new(),
            channels: Vec::new(),
            counters: self.counters,
            sessions: self.sessions.count(),
            unacknowledged: self.sessions.unacknowledged(),
            held: self.held.len(),
            misses: self.held.misses,
            calls: self.calls.len(),
            opening: self.opening.len(),
            hosted: self.channels.len(),
            registry: self.registry_revision(),
            plugin_calls: self.plugins.under_way(),
            judging: self.pipeline.running(),
            entering: self.gates.waiting(),
        }
    }
}
