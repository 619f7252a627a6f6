//! The rules about a channel's leader, voters and epochs (CH-4, CH-5, CH-7), as one function from the present row and the
//! wanted one to the next. Apply uses it on every replica; nothing else makes a meta row.

use crate::replicated::Rejection;
use crate::types::{ChannelMeta, Incarnation, Leader, LeaderEpoch, NodeId, Replica, Seq, SlotId, VoterSet};

/// Most voters of a channel.
pub const VOTERS_MAX: usize = 7;

/// Most learners of a channel.
const LEARNERS_MAX: usize = 7;

/// Bits of an incarnation that count within its slot; the slot stands above them, so that no two slots ever hand out the
/// same one.
const COUNTER_BITS: u32 = 48;

/// The incarnation with this number in this slot, none when the slot has no number left.
#[must_use]
pub fn incarnation(slot: SlotId, number: u64) -> Option<Incarnation> {
    (number > 0 && number < 1 << COUNTER_BITS)
        .then_some(Incarnation(u64::from(slot.0) << COUNTER_BITS | number))
}

/// The first row of a channel.
///
/// # Errors
/// [`Rejection::Rule`] when the wanted voters or leader are not allowed.
pub fn created(wanted: &ChannelMeta, incarnation: Incarnation) -> Result<ChannelMeta, Rejection> {
    checked_sets(wanted)?;
    if wanted.previous.is_some() {
        return Err(Rejection::Rule);
    }
    Ok(ChannelMeta {
        incarnation,
        leader: wanted.leader,
        leader_epoch: LeaderEpoch(1),
        voters: wanted.voters.clone(),
        previous: None,
        learners: wanted.learners.clone(),
        reborn: Vec::new(),
        epoch: 1,
        version: 1,
        fence: None,
        retention_through: Seq(0),
    })
}

/// The row after a change of leader, voters, W or learners, or with a newer epoch when the wanted row names one; the row itself
/// when nothing would change.
///
/// # Errors
/// [`Rejection::Fenced`] while a fence stands, [`Rejection::Rule`] when the change is not allowed.
pub fn changed(present: &ChannelMeta, wanted: &ChannelMeta) -> Result<ChannelMeta, Rejection> {
    if present.fence.is_some() {
        return Err(Rejection::Fenced);
    }
    checked_sets(wanted)?;
    let previous = next_previous(present, wanted)?;
    let members_changed = present.voters != wanted.voters || present.previous != previous;
    let learners_changed = present.learners != wanted.learners;
    let leader_changed = present.leader != wanted.leader;
    let renewed = wanted.leader_epoch > present.leader_epoch;
    if !members_changed && !learners_changed && !leader_changed && !renewed {
        return Ok(present.clone());
    }
    let mut next = ChannelMeta {
        leader: wanted.leader,
        voters: wanted.voters.clone(),
        previous,
        learners: wanted.learners.clone(),
        version: successor(present.version)?,
        ..present.clone()
    };
    if members_changed || learners_changed {
        next.epoch = successor(present.epoch)?;
    }
    let disks = reborn_nodes(present, &next);
    if members_changed || leader_changed || renewed || !disks.is_empty() {
        next.leader_epoch = LeaderEpoch(successor(present.leader_epoch.0)?);
    }
    remember_reborn(&mut next, &disks);
    Ok(next)
}

/// The row once both quorums of a voter change stand (CH-7).
///
/// # Errors
/// [`Rejection::Rule`] when no change runs or the evidence is of another epoch.
pub fn cleared(present: &ChannelMeta, leader_epoch: LeaderEpoch) -> Result<ChannelMeta, Rejection> {
    if present.previous.is_none() || present.leader_epoch != leader_epoch {
        return Err(Rejection::Rule);
    }
    let mut next = ChannelMeta {
        previous: None,
        epoch: successor(present.epoch)?,
        version: successor(present.version)?,
        ..present.clone()
    };
    let kept = next.replicas();
    next.reborn
        .retain(|(node, _)| kept.iter().any(|replica| replica.node == *node));
    Ok(next)
}

/// The row under the fence of a task (CH-9): nobody leads, so that nothing is appended.
///
/// # Errors
/// [`Rejection::Fenced`] when another task's fence stands.
pub fn fenced(present: &ChannelMeta, task: u64) -> Result<ChannelMeta, Rejection> {
    match present.fence {
        Some(standing) if standing == task => Ok(present.clone()),
        Some(_) => Err(Rejection::Fenced),
        None => Ok(ChannelMeta {
            leader: None,
            fence: Some(task),
            leader_epoch: LeaderEpoch(successor(present.leader_epoch.0)?),
            version: successor(present.version)?,
            ..present.clone()
        }),
    }
}

/// The row after the fence of a task, with the next leader.
///
/// # Errors
/// [`Rejection::Fenced`] when the fence is not this task's, [`Rejection::Rule`] when the leader is no voter.
pub fn unfenced(present: &ChannelMeta, task: u64, leader: Option<Leader>) -> Result<ChannelMeta, Rejection> {
    if present.fence != Some(task) {
        return Err(Rejection::Fenced);
    }
    if leader.is_some_and(|leader| !present.voters.contains(leader.node)) {
        return Err(Rejection::Rule);
    }
    Ok(ChannelMeta {
        leader,
        fence: None,
        leader_epoch: LeaderEpoch(successor(present.leader_epoch.0)?),
        version: successor(present.version)?,
        ..present.clone()
    })
}

/// The row with a higher retention position; the row itself when it is not higher (CH-14).
///
/// # Errors
/// [`Rejection::Exhausted`] when the version has no successor.
pub fn retained(present: &ChannelMeta, through: Seq) -> Result<ChannelMeta, Rejection> {
    if through <= present.retention_through {
        return Ok(present.clone());
    }
    Ok(ChannelMeta {
        retention_through: through,
        version: successor(present.version)?,
        ..present.clone()
    })
}

fn successor(number: u64) -> Result<u64, Rejection> {
    number.checked_add(1).ok_or(Rejection::Exhausted)
}

/// 1 <= W <= voters, every node once, and a leader that votes: a learner never leads (CH-7).
fn checked_sets(wanted: &ChannelMeta) -> Result<(), Rejection> {
    let voters = &wanted.voters.isr;
    let quorum = usize::from(wanted.voters.min_isr);
    let sized = !voters.is_empty()
        && voters.len() <= VOTERS_MAX
        && quorum >= 1
        && quorum <= voters.len()
        && wanted.learners.len() <= LEARNERS_MAX;
    let led = wanted
        .leader
        .is_none_or(|leader| wanted.voters.contains(leader.node));
    let mut nodes: Vec<NodeId> = voters
        .iter()
        .chain(&wanted.learners)
        .map(|replica| replica.node)
        .collect();
    nodes.sort_unstable();
    let distinct = nodes.windows(2).all(|pair| pair[0] != pair[1]);
    if sized && led && distinct {
        Ok(())
    } else {
        Err(Rejection::Rule)
    }
}

fn nodes(set: &VoterSet) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = set.isr.iter().map(|replica| replica.node).collect();
    nodes.sort_unstable();
    nodes
}

/// The set that stays responsible beside the wanted one: the present one when voters or W change, else what stands, under
/// the disks that the wanted row names.
fn next_previous(present: &ChannelMeta, wanted: &ChannelMeta) -> Result<Option<VoterSet>, Rejection> {
    let (old, new) = (nodes(&present.voters), nodes(&wanted.voters));
    if old == new && present.voters.min_isr == wanted.voters.min_isr {
        return Ok(present.previous.as_ref().map(|set| VoterSet {
            isr: set
                .isr
                .iter()
                .map(|replica| current_disk(*replica, wanted))
                .collect(),
            min_isr: set.min_isr,
        }));
    }
    if present.previous.is_some() {
        return Err(Rejection::Rule);
    }
    let added: Vec<&Replica> = wanted
        .voters
        .isr
        .iter()
        .filter(|replica| !old.contains(&replica.node))
        .collect();
    let removed = old.iter().filter(|node| !new.contains(node)).count();
    let learned = added.iter().all(|replica| present.learners.contains(replica));
    if added.len() > 1 || removed > 1 || !learned {
        return Err(Rejection::Rule);
    }
    Ok(Some(VoterSet {
        isr: present
            .voters
            .isr
            .iter()
            .map(|replica| current_disk(*replica, wanted))
            .collect(),
        min_isr: present.voters.min_isr,
    }))
}

fn current_disk(replica: Replica, wanted: &ChannelMeta) -> Replica {
    wanted
        .voters
        .isr
        .iter()
        .chain(&wanted.learners)
        .find(|voter| voter.node == replica.node)
        .copied()
        .unwrap_or(replica)
}

/// Nodes that keep the log in both rows, on another disk.
fn reborn_nodes(present: &ChannelMeta, next: &ChannelMeta) -> Vec<NodeId> {
    let before = present.replicas();
    next.replicas()
        .iter()
        .filter(|replica| {
            before
                .iter()
                .any(|known| known.node == replica.node && known.disk != replica.disk)
        })
        .map(|replica| replica.node)
        .collect()
}

fn remember_reborn(next: &mut ChannelMeta, disks: &[NodeId]) {
    let kept = next.replicas();
    next.reborn
        .retain(|(node, _)| !disks.contains(node) && kept.iter().any(|replica| replica.node == *node));
    for node in disks {
        next.reborn.push((*node, next.leader_epoch));
    }
    next.reborn.sort_unstable();
}
