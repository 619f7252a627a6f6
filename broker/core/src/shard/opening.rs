//! How many channels may be on their way from cold to led at once: the first use of a channel costs a grant of its slot group, a
//! recovery and several syncs, and what waits behind too many of them would be given up by its sender before it is stored.
//! Whoever comes when the bound is reached is refused as busy at once: nothing was stored, and a retry finds room.
//!
//! # Owns
//! Two sets of channels: those that sends of this shard's own clients are on their way to without knowing their leader, and
//! those of this shard that requests wait for it to lead.
//!
//! # Invariants
//! Each set has at most `channel_openings_max` channels. A channel leaves the first set when its batch is answered or its
//! send refused, and the second when no request waits for it any more. A channel whose leader is known never waits for
//! room in the first set.

use super::Shard;
use super::groups::ReplyTo;
use super::peer::{Reply, Request};
use super::turn::Turn;
use crate::permission::Question;
use crate::types::ChannelKey;
use std::collections::BTreeSet;

/// Faults that can be planted here; without the feature `mutants` there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// A channel that is led now still counts as one on its way.
    #[cfg(feature = "mutants")]
    pub never_released: bool,
}

impl Faults {
    fn never_released(self) -> bool {
        #[cfg(feature = "mutants")]
        return self.never_released;
        #[cfg(not(feature = "mutants"))]
        return false;
    }
}

/// Channels on their way from cold to led.
#[derive(Debug)]
pub(super) struct Opening {
    max: usize,
    faults: Faults,
    /// Where sends of this shard's clients go without knowing the leader.
    sends: BTreeSet<ChannelKey>,
    /// Channels of this shard that requests wait for.
    hosts: BTreeSet<ChannelKey>,
}

impl Opening {
    pub(super) fn new(max: usize, faults: Faults) -> Opening {
        Opening {
            max: max.max(1),
            faults,
            sends: BTreeSet::new(),
            hosts: BTreeSet::new(),
        }
    }

    /// How many channels are on their way, about: the larger of the two sets, because most channels stand in both.
    pub(super) fn len(&self) -> usize {
        self.hosts.len().max(self.sends.len())
    }

    fn admit(set: &mut BTreeSet<ChannelKey>, max: usize, channel: &ChannelKey) -> bool {
        if set.contains(channel) {
            return true;
        }
        set.len() < max && set.insert(channel.clone())
    }

    /// A send to this channel, whose leader is not known, is answered, or will not be sent.
    pub(super) fn sent(&mut self, channel: &ChannelKey) {
        if !self.sends.is_empty() {
            self.sends.remove(channel);
        }
    }

    /// No request waits for this channel any more.
    pub(super) fn opened(&mut self, channel: &ChannelKey) {
        if !self.hosts.is_empty() && !self.faults.never_released() {
            self.hosts.remove(channel);
        }
    }
}

impl Shard {
    /// Whether a send may go on to its channel: one whose leader is not known has to find room among those on their way.
    pub(super) fn may_open(&mut self, question: &Question) -> bool {
        let channel = question.log_channel();
        let opening = &mut self.opening;
        let goes = self.directory.knows(channel) || Opening::admit(&mut opening.sends, opening.max, channel);
        self.counters.openings_refused += u64::from(!goes);
        goes
    }

    /// Whether a request may wait for this shard to lead its channel.
    pub(super) fn may_wait(&mut self, channel: &ChannelKey) -> bool {
        let opening = &mut self.opening;
        let waits = Opening::admit(&mut opening.hosts, opening.max, channel);
        self.counters.openings_refused += u64::from(!waits);
        waits
    }

    /// Answers requests that waited for leadership here, all of them alike.
    pub(super) fn refuse_requests(&mut self, turn: &mut Turn<'_>, channel: &ChannelKey, reply: &Reply) {
        let Some(host) = self.channels.get_mut(channel) else {
            return;
        };
        let refused = std::mem::take(&mut host.requests);
        self.opening.opened(channel);
        for (_, reply_to, _) in refused {
            self.reply(turn, reply_to, reply.clone());
        }
    }

    /// Requests that waited for leadership go on, except those that nobody waits for any more: a send would be stored although
    /// its sender was told that its outcome is open, perhaps after its key was forgotten (SL-6, AP-2).
    pub(super) fn resume_requests(&mut self, turn: &mut Turn<'_>, channel: &ChannelKey) {
        self.refuse_late(turn, channel);
        let Some(host) = self.channels.get_mut(channel) else {
            return;
        };
        let waiting = std::mem::take(&mut host.requests);
        self.opening.opened(channel);
        for request in waiting {
            self.take_request(turn, channel, request);
        }
    }

    /// Requests that have waited too long for leadership here are answered while it is certain that they did nothing.
    pub(super) fn refuse_late(&mut self, turn: &mut Turn<'_>, channel: &ChannelKey) {
        let Some(host) = self.channels.get_mut(channel) else {
            return;
        };
        let now = turn.now.monotonic;
        let is_late = |(until, _, _): &(_, ReplyTo, Request)| *until <= now;
        let mut late = Vec::new();
        while host.requests.front().is_some_and(is_late) {
            late.extend(host.requests.pop_front());
        }
        if host.requests.is_empty() {
            self.opening.opened(channel);
        }
        for (_, reply_to, _) in late {
            self.reply(turn, reply_to, Reply::Unavailable);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ChannelKind;

    #[test]
    fn a_channel_counts_once_and_its_place_is_given_back() {
        let channel = |id| ChannelKey::new(id, ChannelKind::GROUP);
        let mut opening = Opening::new(2, Faults::default());
        let mut admit = |id| Opening::admit(&mut opening.sends, 2, &channel(id));
        assert!(admit("a") && admit("b") && admit("a"));
        assert!(!admit("c"));
        opening.sent(&channel("a"));
        assert!(Opening::admit(&mut opening.sends, 2, &channel("c")));
        assert!(!Opening::admit(&mut opening.sends, 2, &channel("a")));
        assert_eq!(opening.len(), 2);
    }

    #[test]
    fn a_bound_of_none_still_opens_one_channel() {
        assert_eq!(Opening::new(0, Faults::default()).max, 1);
    }
}
