//! Where things are, as far as this shard knows: slot → group, group → leader, channel → leader. Hints only: every
//! receiver checks its own authority (CL-2), and a wrong hint costs a try.

use crate::controller;
use crate::types::{ChannelKey, ChannelMeta, GroupId, Incarnation, LeaderEpoch, NodeId, SlotId, Term};
use std::collections::BTreeMap;

/// Cached channel routes; beyond, the oldest use goes.
const CHANNELS_MAX: usize = 100_000;

/// Where a channel is led.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChannelRoute {
    /// The leader.
    pub(super) node: NodeId,
    /// Which creation.
    pub(super) incarnation: Incarnation,
    /// Which leadership.
    pub(super) leader_epoch: LeaderEpoch,
}

/// What is known of a group.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupRoute {
    /// Its voters.
    pub(super) voters: Vec<NodeId>,
    /// Who leads, if known.
    pub(super) leader: Option<NodeId>,
    /// Who leads as the replica on this node says, or without one here as the leader's heartbeats say: it stays when a
    /// caller had no answer, because nobody says it again until it changes.
    pub(super) observed: Option<NodeId>,
    /// Under which term.
    pub(super) term: Term,
    /// Whether this node leads it and has applied its term.
    pub(super) leads_here: bool,
    /// Whether a replica is hosted on this node.
    pub(super) hosted: bool,
}

/// The directory of a shard.
#[derive(Debug)]
pub(super) struct Directory {
    groups: BTreeMap<GroupId, GroupRoute>,
    table: Vec<GroupId>,
    channels: BTreeMap<ChannelKey, (ChannelRoute, u64)>,
    uses: BTreeMap<u64, ChannelKey>,
    clock: u64,
}

impl Directory {
    /// The table and placement as chosen at bootstrap; the controller's group has the same ones committed.
    pub(super) fn new(this: NodeId, nodes: &[NodeId], slot_groups: u32, copies: u8) -> Directory {
        let mut groups = BTreeMap::new();
        for (group, voters) in controller::first_placement(nodes, slot_groups, copies) {
            let hosted = voters.contains(&this);
            groups.insert(
                group,
                GroupRoute {
                    voters,
                    hosted,
                    ..GroupRoute::default()
                },
            );
        }
        let table = controller::first_table(slot_groups);
        Directory {
            groups,
            table,
            channels: BTreeMap::new(),
            uses: BTreeMap::new(),
            clock: 0,
        }
    }

    /// The group that owns a slot.
    pub(super) fn group_of(&self, slot: SlotId) -> GroupId {
        self.table
            .get(usize::from(slot.0))
            .copied()
            .unwrap_or(GroupId::CONTROLLER)
    }

    /// The slots of a group.
    pub(super) fn slots_of(&self, group: GroupId) -> Vec<SlotId> {
        (0..crate::types::SLOT_COUNT)
            .map(SlotId)
            .filter(|&slot| self.group_of(slot) == group)
            .collect()
    }

    /// What is known of a group.
    pub(super) fn group(&self, group: GroupId) -> Option<&GroupRoute> {
        self.groups.get(&group)
    }

    /// All groups.
    pub(super) fn groups(&self) -> impl Iterator<Item = (GroupId, &GroupRoute)> {
        self.groups.iter().map(|(&group, route)| (group, route))
    }

    /// The node to ask for a group's decision: the known leader, else its voters in turn.
    pub(super) fn group_node(&self, group: GroupId, tries: u32) -> Option<NodeId> {
        let route = self.groups.get(&group)?;
        if let Some(leader) = route.leader {
            return Some(leader);
        }
        let count = u32::try_from(route.voters.len())
            .ok()
            .filter(|&count| count > 0)?;
        route.voters.get((tries % count) as usize).copied()
    }

    /// The groups that this node leads, with their terms.
    pub(super) fn led_here(&self) -> impl Iterator<Item = (GroupId, Term)> {
        let led = self.groups.iter().filter(|(_, route)| route.leads_here);
        led.map(|(&group, route)| (group, route.term))
    }

    /// What the heartbeat of `from` changes for groups without a replica here: (group, leader, term).
    pub(super) fn claimed(
        &self,
        from: NodeId,
        leads: &[(GroupId, Term)],
    ) -> Vec<(GroupId, Option<NodeId>, Term)> {
        let far = self.groups.iter().filter(|(_, route)| !route.hosted);
        far.filter_map(|(&group, route)| {
            let claim = leads.iter().find(|(led, _)| *led == group);
            match claim {
                Some(&(_, term)) if term > route.term || (term == route.term && route.observed.is_none()) => {
                    Some((group, Some(from), term))
                }
                None if route.observed == Some(from) => Some((group, None, route.term)),
                _ => None,
            }
        })
        .collect()
    }

    /// The node to ask about presence: as for a decision, but what the replica here says comes before trying in turn.
    pub(super) fn presence_node(&self, group: GroupId, tries: u32) -> Option<NodeId> {
        let route = self.groups.get(&group)?;
        route
            .leader
            .or(route.observed)
            .or_else(|| self.group_node(group, tries))
    }

    /// A replica on this node says who leads.
    pub(super) fn observe(&mut self, group: GroupId, leader: Option<NodeId>, term: Term, leads_here: bool) {
        if let Some(route) = self.groups.get_mut(&group) {
            route.leader = leader;
            route.observed = leader;
            route.term = term;
            route.leads_here = leads_here;
        }
    }

    /// `from` decided something of the group, so it leads. Where a replica is hosted here, that one knows better, if it knows.
    pub(super) fn answered(&mut self, group: GroupId, from: NodeId) {
        if let Some(route) = self.groups.get_mut(&group)
            && (!route.hosted || route.leader.is_none())
        {
            route.leader = Some(from);
        }
    }

    /// `from` does not lead (or did not answer); perhaps `hint` does.
    pub(super) fn hint(&mut self, group: GroupId, from: NodeId, hint: Option<NodeId>) {
        // A leader here that is slow to answer leads all the same: its own replica says when that is over.
        if let Some(route) = self.groups.get_mut(&group)
            && !route.leads_here
            && (route.leader == Some(from) || route.leader.is_none())
        {
            route.leader = hint.filter(|&node| node != from);
        }
    }

    /// Whether a leader of the channel is cached.
    pub(super) fn knows(&self, channel: &ChannelKey) -> bool {
        self.channels.contains_key(channel)
    }

    /// The cached leader of a channel.
    pub(super) fn channel(&mut self, channel: &ChannelKey) -> Option<ChannelRoute> {
        let (route, used) = self.channels.get_mut(channel)?;
        self.uses.remove(used);
        self.clock += 1;
        *used = self.clock;
        self.uses.insert(self.clock, channel.clone());
        Some(*route)
    }

    /// The slot group says who leads a channel.
    pub(super) fn learn_channel(&mut self, channel: &ChannelKey, meta: &ChannelMeta) {
        let Some(leader) = meta.leader else {
            return self.forget_channel(channel);
        };
        let route = ChannelRoute {
            node: leader.node,
            incarnation: meta.incarnation,
            leader_epoch: meta.leader_epoch,
        };
        self.forget_channel(channel);
        self.clock += 1;
        self.uses.insert(self.clock, channel.clone());
        self.channels.insert(channel.clone(), (route, self.clock));
        if self.channels.len() > CHANNELS_MAX
            && let Some((_, oldest)) = self.uses.pop_first()
        {
            self.channels.remove(&oldest);
        }
    }

    /// A node is dead: nothing is led there.
    pub(super) fn forget_node(&mut self, node: NodeId) {
        let led: Vec<ChannelKey> = self
            .channels
            .iter()
            .filter(|(_, (route, _))| route.node == node)
            .map(|(channel, _)| channel.clone())
            .collect();
        for channel in led {
            self.forget_channel(&channel);
        }
        for route in self
            .groups
            .values_mut()
            .filter(|route| route.leader == Some(node))
        {
            route.leader = None;
        }
    }

    /// The cached leader was wrong.
    pub(super) fn forget_channel(&mut self, channel: &ChannelKey) {
        if let Some((_, used)) = self.channels.remove(channel) {
            self.uses.remove(&used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_a_group_and_every_group_its_copies() {
        let nodes: Vec<NodeId> = (1..=5).map(NodeId).collect();
        let directory = Directory::new(NodeId(1), &nodes, 8, 3);
        let mut counts = BTreeMap::new();
        for slot in (0..crate::types::SLOT_COUNT).map(SlotId) {
            *counts.entry(directory.group_of(slot)).or_insert(0) += 1;
        }
        assert_eq!(
            counts.into_iter().collect::<Vec<_>>(),
            (1..=8).map(|group| (GroupId(group), 32)).collect::<Vec<_>>()
        );
        for (_, route) in directory.groups() {
            assert_eq!(route.voters.len(), 3);
        }
    }

    #[test]
    fn a_slow_leader_here_is_not_doubted_and_an_answer_ends_a_doubt() {
        let nodes: Vec<NodeId> = (1..=3).map(NodeId).collect();
        let mut directory = Directory::new(NodeId(1), &nodes, 1, 3);
        let leader = |directory: &Directory| directory.group(GroupId(1)).and_then(|route| route.leader);
        directory.observe(GroupId(1), Some(NodeId(1)), Term(4), true);
        directory.hint(GroupId(1), NodeId(1), None);
        assert_eq!(leader(&directory), Some(NodeId(1)));
        directory.observe(GroupId(1), Some(NodeId(2)), Term(5), false);
        directory.hint(GroupId(1), NodeId(2), None);
        assert_eq!(leader(&directory), None);
        directory.answered(GroupId(1), NodeId(2));
        assert_eq!(leader(&directory), Some(NodeId(2)));
    }

    #[test]
    fn wrong_leader_is_forgotten_and_voters_are_tried_in_turn() {
        let nodes: Vec<NodeId> = (1..=3).map(NodeId).collect();
        let mut directory = Directory::new(NodeId(1), &nodes, 1, 3);
        directory.observe(GroupId(1), Some(NodeId(2)), Term(4), false);
        assert_eq!(directory.group_node(GroupId(1), 1), Some(NodeId(2)));
        directory.hint(GroupId(1), NodeId(2), None);
        let tried: Vec<_> = (0..3)
            .filter_map(|tries| directory.group_node(GroupId(1), tries))
            .collect();
        let voters = &directory.group(GroupId(1)).expect("the group is known").voters;
        assert_eq!(&tried, voters);
        assert_eq!(
            tried.into_iter().collect::<std::collections::BTreeSet<_>>(),
            nodes.into_iter().collect()
        );
    }
}
