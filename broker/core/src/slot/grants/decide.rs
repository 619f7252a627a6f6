//! Who should keep and lead a channel, given its row and the nodes as this slot leader sees them. Pure: being wrong about a node
//! costs an epoch, never a record (M-5).

use crate::slot::rules::VOTERS_MAX;
use crate::types::{
    Boots, ChannelKey, ChannelMeta, Incarnation, Leader, LeaderEpoch, NodeId, Replica, Seq, VoterSet,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A node as its links show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeLife {
    /// The boots that it last spoke under.
    pub boots: Boots,
    /// Since when it is silent; none while it is alive.
    pub dead_since: Option<Duration>,
}

/// The nodes and the wanted number of copies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct World {
    /// Every node that was ever heard.
    pub nodes: BTreeMap<NodeId, NodeLife>,
    /// Nodes that may be given new channels: active ones, as the controller has them.
    pub placeable: BTreeSet<NodeId>,
    /// Copies of a channel.
    pub copies: u8,
    /// Silence of a voter after which another node takes its place.
    pub replace_after: Duration,
}

impl World {
    /// Whether the node is alive.
    #[must_use]
    pub fn is_alive(&self, node: NodeId) -> bool {
        self.nodes
            .get(&node)
            .is_some_and(|life| life.dead_since.is_none())
    }

    /// The leader that the node would be in its present process.
    #[must_use]
    pub fn as_leader(&self, node: NodeId) -> Option<Leader> {
        let life = self.nodes.get(&node).filter(|life| life.dead_since.is_none())?;
        Some(Leader {
            node,
            process: life.boots.process,
        })
    }

    fn as_replica(&self, node: NodeId) -> Option<Replica> {
        let life = self.nodes.get(&node)?;
        Some(Replica {
            node,
            disk: life.boots.disk,
        })
    }

    /// The leader of the row lives in the process that the grant names.
    #[must_use]
    pub fn leads(&self, meta: &ChannelMeta) -> bool {
        meta.leader
            .is_some_and(|leader| self.as_leader(leader.node) == Some(leader))
    }

    fn copies(&self) -> usize {
        usize::from(self.copies).clamp(1, VOTERS_MAX)
    }

    fn is_lost(&self, node: NodeId, now: Duration) -> bool {
        let silent = self
            .nodes
            .get(&node)
            .and_then(|life| life.dead_since)
            .is_some_and(|since| now >= since + self.replace_after);
        // While too little is known to place anything, nobody is given up.
        silent || (!self.placeable.is_empty() && !self.placeable.contains(&node))
    }
}

/// Places by rendezvous hash: a node that joins or leaves moves only its own share.
#[must_use]
pub fn weight(channel: &ChannelKey, node: NodeId) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&node.0.to_be_bytes());
    hasher.update(&[channel.kind.0]);
    hasher.update(channel.id.as_bytes());
    hasher.update(&node.0.to_be_bytes());
    // CRC is linear: a multiplication mixes what the short node id changed.
    hasher
        .finalize()
        .wrapping_mul(0x9e37_79b1)
        .rotate_left(15)
        .wrapping_mul(0x85eb_ca6b)
}

fn majority(voters: usize) -> u8 {
    u8::try_from(voters / 2 + 1).unwrap_or(u8::MAX)
}

/// The nodes by preference for the channel: living ones first, then by weight.
fn ranked(channel: &ChannelKey, world: &World) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = world
        .placeable
        .iter()
        .copied()
        .filter(|node| world.nodes.contains_key(node))
        .collect();
    nodes.sort_by_key(|node| {
        (
            !world.is_alive(*node),
            std::cmp::Reverse(weight(channel, *node)),
            *node,
        )
    });
    nodes
}

/// The first row of a channel: as many voters as copies are wanted and nodes known, the first living one leads. None when
/// nobody lives.
#[must_use]
pub fn first(channel: &ChannelKey, world: &World) -> Option<ChannelMeta> {
    let nodes = ranked(channel, world);
    let leader = world.as_leader(*nodes.first()?)?;
    let isr: Vec<Replica> = nodes
        .iter()
        .take(world.copies())
        .filter_map(|node| world.as_replica(*node))
        .collect();
    Some(ChannelMeta {
        incarnation: Incarnation(0),
        leader: Some(leader),
        leader_epoch: LeaderEpoch(0),
        voters: VoterSet {
            min_isr: majority(isr.len()),
            isr,
        },
        previous: None,
        learners: Vec::new(),
        reborn: Vec::new(),
        epoch: 0,
        version: 0,
        fence: None,
        retention_through: Seq(0),
    })
}

/// The row as it should be: disks that came back empty are registered (M-4), a leader that lives, and a learner where copies are
/// missing or a voter is lost for long. None when the row is good, or nothing can be done.
#[must_use]
pub fn next(channel: &ChannelKey, meta: &ChannelMeta, world: &World, now: Duration) -> Option<ChannelMeta> {
    if meta.fence.is_some() {
        return None;
    }
    let mut wanted = meta.clone();
    for replica in wanted.voters.isr.iter_mut().chain(&mut wanted.learners) {
        if world.is_alive(replica.node)
            && let Some(current) = world.as_replica(replica.node)
        {
            *replica = current;
        }
    }
    if (!world.leads(meta) || !wanted.voters.contains(leader_node(meta)))
        && let Some(leader) = living_leader(channel, &wanted, world, None)
    {
        wanted.leader = Some(leader);
    }
    if meta.previous.is_none() && meta.learners.is_empty() {
        wanted.learners.extend(missing_copy(channel, meta, world, now));
    }
    (wanted != *meta).then_some(wanted)
}

fn leader_node(meta: &ChannelMeta) -> NodeId {
    meta.leader.map_or(NodeId(0), |leader| leader.node)
}

/// A living voter but this one: one that kept its disk first, the present node before others (its log is warm), then by weight.
fn living_leader(
    channel: &ChannelKey,
    wanted: &ChannelMeta,
    world: &World,
    but: Option<NodeId>,
) -> Option<Leader> {
    let reborn = |node: NodeId| wanted.reborn.iter().any(|(known, _)| *known == node);
    let best = wanted
        .voters
        .isr
        .iter()
        .map(|replica| replica.node)
        .filter(|node| world.is_alive(*node) && Some(*node) != but)
        .min_by_key(|node| {
            (
                reborn(*node),
                *node != leader_node(wanted),
                std::cmp::Reverse(weight(channel, *node)),
                *node,
            )
        })?;
    world.as_leader(best)
}

/// The row with a newer epoch, for a replica that gives no evidence in the present one (R30). Another voter leads it if one lives:
/// that replica has a log to fetch first. None while a task has the channel fenced.
#[must_use]
pub fn renewed(
    channel: &ChannelKey,
    meta: &ChannelMeta,
    withheld: NodeId,
    world: &World,
    now: Duration,
) -> Option<ChannelMeta> {
    if meta.fence.is_some() {
        return None;
    }
    let mut wanted = next(channel, meta, world, now).unwrap_or_else(|| meta.clone());
    if leader_node(&wanted) == withheld
        && let Some(leader) = living_leader(channel, &wanted, world, Some(withheld))
    {
        wanted.leader = Some(leader);
    }
    wanted.leader_epoch = meta.leader_epoch.next();
    Some(wanted)
}

/// A node to learn the channel, when a copy is missing or a voter will not come back.
fn missing_copy(channel: &ChannelKey, meta: &ChannelMeta, world: &World, now: Duration) -> Option<Replica> {
    let kept = meta
        .voters
        .isr
        .iter()
        .filter(|replica| !world.is_lost(replica.node, now))
        .count();
    if kept >= world.copies() {
        return None;
    }
    ranked(channel, world)
        .into_iter()
        .filter(|node| world.is_alive(*node) && !meta.voters.contains(*node))
        .find_map(|node| world.as_replica(node))
}

/// The row with a caught-up learner as voter, in place of a lost one if there are enough (CH-7: one voter at a time; apply keeps
/// the present set beside it). None when the learner is not one, or another change runs.
#[must_use]
pub fn promoted(meta: &ChannelMeta, learner: NodeId, world: &World, now: Duration) -> Option<ChannelMeta> {
    if meta.previous.is_some() || meta.fence.is_some() {
        return None;
    }
    let at = meta.learners.iter().position(|replica| replica.node == learner)?;
    let mut wanted = meta.clone();
    let replica = wanted.learners.remove(at);
    wanted.voters.isr.push(replica);
    if wanted.voters.isr.len() > world.copies() {
        let leader = leader_node(meta);
        let lost = wanted
            .voters
            .isr
            .iter()
            .position(|voter| voter.node != leader && world.is_lost(voter.node, now));
        if let Some(lost) = lost {
            wanted.voters.isr.remove(lost);
        }
    }
    if wanted.voters.isr.len() > VOTERS_MAX {
        return None;
    }
    wanted.voters.min_isr = majority(wanted.voters.isr.len());
    Some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::rules;
    use crate::types::{ChannelKind, DiskBoot, ProcessBoot};

    fn life(boot: u64, alive: bool) -> NodeLife {
        NodeLife {
            boots: Boots {
                process: ProcessBoot(boot),
                disk: DiskBoot(boot / 10),
            },
            dead_since: (!alive).then_some(Duration::ZERO),
        }
    }

    fn world(alive: &[bool], copies: u8) -> World {
        let nodes = (1..).zip(alive);
        World {
            nodes: nodes
                .clone()
                .map(|(node, alive)| (NodeId(node), life(u64::from(node) * 10, *alive)))
                .collect(),
            placeable: nodes.map(|(node, _)| NodeId(node)).collect(),
            copies,
            replace_after: LONG,
        }
    }

    fn channel(id: &str) -> ChannelKey {
        ChannelKey::new(id, ChannelKind::GROUP)
    }

    fn created(id: &str, world: &World) -> ChannelMeta {
        rules::created(&first(&channel(id), world).unwrap(), Incarnation(1)).unwrap()
    }

    const SOON: Duration = Duration::from_secs(1);
    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn a_first_row_has_living_voters_first_and_a_majority() {
        let meta = created("c", &world(&[true, true, false, true], 3));
        assert!(!meta.voters.contains(NodeId(3)));
        assert_eq!((meta.voters.isr.len(), meta.voters.min_isr), (3, 2));
        let meta = created("c", &world(&[true, false, false], 3));
        assert_eq!((meta.voters.isr.len(), meta.leader.unwrap().node), (3, NodeId(1)));
        assert_eq!(first(&channel("c"), &world(&[false, false], 3)), None);
    }

    #[test]
    fn channels_spread_over_the_nodes() {
        let world = world(&[true; 5], 3);
        let mut led = BTreeMap::<NodeId, u32>::new();
        for number in 0..1_000 {
            let meta = created(&format!("c{number}"), &world);
            *led.entry(meta.leader.unwrap().node).or_default() += 1;
        }
        assert!(
            led.len() == 5 && led.values().all(|count| (120..280).contains(count)),
            "{led:?}"
        );
    }

    #[test]
    fn a_dead_leader_is_replaced_by_a_living_voter_and_a_good_row_is_kept() {
        let meta = created("c", &world(&[true; 3], 3));
        assert_eq!(next(&channel("c"), &meta, &world(&[true; 3], 3), SOON), None);
        let dead = meta.leader.unwrap().node;
        let alive: Vec<bool> = (1..=3).map(|node| NodeId(node) != dead).collect();
        let wanted = next(&channel("c"), &meta, &world(&alive, 3), SOON).unwrap();
        let granted = rules::changed(&meta, &wanted).unwrap();
        assert_ne!(granted.leader.unwrap().node, dead);
        assert_eq!(granted.leader_epoch, meta.leader_epoch.next());
        assert_eq!(next(&channel("c"), &meta, &world(&[false; 3], 3), SOON), None);
    }

    #[test]
    fn a_restarted_leader_is_granted_its_new_process_and_a_wiped_one_is_passed_over() {
        let mut nodes = world(&[true; 3], 3);
        let meta = created("c", &nodes);
        let leader = meta.leader.unwrap().node;
        nodes.nodes.get_mut(&leader).unwrap().boots.process = ProcessBoot(77);
        let wanted = next(&channel("c"), &meta, &nodes, SOON).unwrap();
        assert_eq!(wanted.leader, nodes.as_leader(leader));
        nodes.nodes.get_mut(&leader).unwrap().boots.disk = DiskBoot(78);
        let wanted = next(&channel("c"), &meta, &nodes, SOON).unwrap();
        let granted = rules::changed(&meta, &wanted).unwrap();
        assert_eq!(granted.reborn, vec![(leader, granted.leader_epoch)]);
        // Once it is known as reborn, another voter is preferred at the next grant.
        nodes.nodes.get_mut(&leader).unwrap().boots.process = ProcessBoot(79);
        let wanted = next(&channel("c"), &granted, &nodes, SOON).unwrap();
        assert_ne!(wanted.leader.unwrap().node, leader);
    }

    /// While both sets stand a node has one disk: the old set must not name the one that is gone.
    #[test]
    fn a_voter_that_leaves_and_learns_on_another_disk_is_reborn() {
        let meta = created("c", &world(&[true; 3], 3));
        let leader = meta.leader.unwrap().node;
        let leaving = meta.voters.isr.iter().find(|voter| voter.node != leader).unwrap();
        let mut wanted = meta.clone();
        wanted.voters.isr.retain(|voter| voter.node != leaving.node);
        wanted.learners.push(Replica {
            disk: DiskBoot(99),
            ..*leaving
        });
        let joint = rules::changed(&meta, &wanted).unwrap();
        let reborn = (leaving.node, joint.leader_epoch);
        assert!(joint.reborn.contains(&reborn));
        let cleared = rules::cleared(&joint, joint.leader_epoch).unwrap();
        assert!(cleared.reborn.contains(&reborn));
    }

    #[test]
    fn a_replica_that_withholds_gets_a_new_epoch_which_another_one_leads() {
        let nodes = world(&[true; 3], 3);
        let meta = created("c", &nodes);
        let leader = meta.leader.unwrap().node;
        let other = meta.voters.isr.iter().find(|voter| voter.node != leader).unwrap();
        let granted = |withheld, nodes: &World| {
            let wanted = renewed(&channel("c"), &meta, withheld, nodes, SOON).unwrap();
            rules::changed(&meta, &wanted).unwrap()
        };
        let moved = granted(leader, &nodes);
        assert_ne!(moved.leader.unwrap().node, leader);
        assert_eq!(moved.leader_epoch, meta.leader_epoch.next());
        let stays = granted(other.node, &nodes);
        assert_eq!((stays.leader, stays.version), (meta.leader, meta.version + 1));
        assert_eq!(stays.leader_epoch, meta.leader_epoch.next());
        // Alone it is granted the epoch itself: it still gives no evidence, and says so.
        let alone: Vec<bool> = (1..=3).map(|node| NodeId(node) == leader).collect();
        assert_eq!(granted(leader, &world(&alone, 3)).leader.unwrap().node, leader);
    }

    #[test]
    fn a_lost_voter_is_replaced_through_a_learner_and_both_sets() {
        let mut nodes = world(&[true, true, true, false], 3);
        let meta = created("c", &nodes);
        nodes.nodes.get_mut(&NodeId(4)).unwrap().dead_since = None;
        let mut lost = meta.voters.isr.iter().map(|voter| voter.node);
        let lost = lost.rfind(|node| *node != meta.leader.unwrap().node).unwrap();
        nodes.nodes.get_mut(&lost).unwrap().dead_since = Some(Duration::ZERO);
        assert_eq!(next(&channel("c"), &meta, &nodes, SOON), None);
        let late = LONG;
        let learning = rules::changed(&meta, &next(&channel("c"), &meta, &nodes, late).unwrap()).unwrap();
        assert_eq!(learning.learners[0].node, NodeId(4));
        assert_eq!(learning.leader_epoch, meta.leader_epoch);
        assert_eq!(
            promoted(&learning, NodeId(1), &nodes, late).map(|meta| meta.learners),
            None
        );
        let joint = promoted(&learning, NodeId(4), &nodes, late).unwrap();
        let joint = rules::changed(&learning, &joint).unwrap();
        assert_eq!(joint.previous, Some(meta.voters.clone()));
        assert!(!joint.voters.contains(lost) && joint.voters.contains(NodeId(4)));
        let cleared = rules::cleared(&joint, joint.leader_epoch).unwrap();
        assert_eq!((cleared.previous, cleared.voters.isr.len()), (None, 3));
    }

    #[test]
    fn copies_are_raised_one_learner_at_a_time() {
        let one = created("c", &world(&[true], 3));
        assert_eq!((one.voters.isr.len(), one.voters.min_isr), (1, 1));
        let nodes = world(&[true; 3], 3);
        let mut meta = one;
        for voters in 2..=3 {
            meta = rules::changed(&meta, &next(&channel("c"), &meta, &nodes, SOON).unwrap()).unwrap();
            let learner = meta.learners[0].node;
            meta = rules::changed(&meta, &promoted(&meta, learner, &nodes, SOON).unwrap()).unwrap();
            assert!(
                rules::changed(
                    &meta,
                    &ChannelMeta {
                        voters: VoterSet::default(),
                        ..meta.clone()
                    }
                )
                .is_err()
            );
            meta = rules::cleared(&meta, meta.leader_epoch).unwrap();
            assert_eq!((meta.voters.isr.len(), meta.voters.min_isr), (voters, 2));
        }
        assert_eq!(next(&channel("c"), &meta, &nodes, SOON), None);
    }
}
