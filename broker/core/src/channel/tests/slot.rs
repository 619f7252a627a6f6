//! The slot group's part: one place that grants epochs, changes voters and moves retention.

use super::Rng;
use super::disk::INCARNATION;
use crate::types::{
    Boots, ChannelMeta, DiskBoot, Leader, LeaderEpoch, NodeId, ProcessBoot, Replica, Seq, VoterSet,
};
use std::collections::BTreeMap;

pub(super) struct Slot {
    pub(super) meta: ChannelMeta,
    /// What the nodes have registered.
    pub(super) boots: BTreeMap<NodeId, Boots>,
    pub(super) changes: u64,
}

impl Slot {
    pub(super) fn new(nodes: u16, voters: u16, min_isr: u8) -> Slot {
        let boots: BTreeMap<NodeId, Boots> = (1..=nodes).map(|node| (NodeId(node), first_boots())).collect();
        let isr = (1..=voters)
            .map(|node| Replica {
                node: NodeId(node),
                disk: DiskBoot(1),
            })
            .collect();
        let meta = ChannelMeta {
            incarnation: INCARNATION,
            leader: Some(Leader {
                node: NodeId(1),
                process: ProcessBoot(1),
            }),
            leader_epoch: LeaderEpoch(1),
            voters: VoterSet { isr, min_isr },
            previous: None,
            learners: Vec::new(),
            reborn: Vec::new(),
            epoch: 1,
            version: 1,
            fence: None,
            retention_through: Seq(0),
        };
        Slot {
            meta,
            boots,
            changes: 0,
        }
    }

    /// Grants the next epoch to the node, by what is registered now (M-4).
    pub(super) fn grant(&mut self, leader: NodeId) {
        self.meta.leader_epoch = self.meta.leader_epoch.next();
        self.meta.version += 1;
        self.meta.leader = Some(Leader {
            node: leader,
            process: self.boots[&leader].process,
        });
        let epoch = self.meta.leader_epoch;
        let mut reborn = Vec::new();
        let sets = [Some(&mut self.meta.voters), self.meta.previous.as_mut()];
        let replicas = sets
            .into_iter()
            .flatten()
            .flat_map(|set| &mut set.isr)
            .chain(&mut self.meta.learners);
        for replica in replicas {
            let disk = self.boots[&replica.node].disk;
            if replica.disk != disk {
                replica.disk = disk;
                reborn.push(replica.node);
            }
        }
        for node in reborn {
            self.meta.reborn.retain(|(known, _)| *known != node);
            self.meta.reborn.push((node, epoch));
        }
    }

    /// Grants the next epoch, mostly to the same leader.
    pub(super) fn grant_any(&mut self, keep_leader: usize, rng: &mut Rng) {
        let voters = &self.meta.voters.isr;
        let current = self.meta.leader.map(|leader| leader.node);
        let kept = current.filter(|node| self.meta.voters.contains(*node) && !rng.one_in(keep_leader));
        let leader = kept.unwrap_or_else(|| voters[rng.below(voters.len())].node);
        self.grant(leader);
    }

    fn joint(&mut self, voters: VoterSet, rng: &mut Rng) {
        let old = std::mem::replace(&mut self.meta.voters, voters);
        self.meta.previous = Some(old);
        self.meta.epoch += 1;
        let voters = self.meta.voters.clone();
        self.meta
            .learners
            .retain(|learner| !voters.contains(learner.node));
        self.grant_any(8, rng);
    }

    /// Begins one change (CH-7). A new voter is a learner first.
    pub(super) fn change(&mut self, rng: &mut Rng) -> bool {
        if self.meta.previous.is_some() {
            return false;
        }
        let mut voters = self.meta.voters.clone();
        let count = voters.isr.len();
        match rng.below(3) {
            0 => {
                let nodes: Vec<NodeId> = self.boots.keys().copied().collect();
                let node = nodes[rng.below(nodes.len())];
                let known = self.meta.replicas().iter().any(|replica| replica.node == node);
                if known || !self.meta.learners.is_empty() {
                    return false;
                }
                let disk = self.boots[&node].disk;
                self.meta.learners.push(Replica { node, disk });
                // What the node kept from an earlier membership counts for nothing.
                self.meta.reborn.retain(|(known, _)| *known != node);
                self.meta.version += 1;
                self.meta.epoch += 1;
                true
            }
            1 if count > 1 => {
                let out = voters.isr.remove(rng.below(count)).node;
                self.meta
                    .reborn
                    .retain(|(known, _)| *known != out || self.meta.voters.contains(*known));
                voters.min_isr = majority(voters.isr.len());
                self.joint(voters, rng);
                true
            }
            _ => {
                let min_isr = u8::try_from(1 + rng.below(count)).expect("few voters");
                if min_isr == voters.min_isr {
                    return false;
                }
                voters.min_isr = min_isr;
                self.joint(voters, rng);
                true
            }
        }
    }

    /// A learner is said to have caught up in this epoch: it becomes a voter, perhaps in place of another.
    pub(super) fn caught_up(&mut self, learner: Replica, epoch: LeaderEpoch, rng: &mut Rng) -> bool {
        let current = self.meta.learners.contains(&learner)
            && self.boots[&learner.node].disk == learner.disk
            && self.meta.leader_epoch == epoch
            && self.meta.previous.is_none();
        if !current {
            return false;
        }
        let mut voters = self.meta.voters.clone();
        if voters.isr.len() > 1 && rng.one_in(2) {
            let out = rng.below(voters.isr.len());
            voters.isr.remove(out);
        }
        voters.isr.push(learner);
        voters.min_isr = majority(voters.isr.len());
        self.joint(voters, rng);
        true
    }

    /// Compare-and-set on the version: the old set goes.
    pub(super) fn clear(&mut self, version: u64) -> bool {
        if self.meta.version != version || self.meta.previous.is_none() {
            return false;
        }
        self.meta.previous = None;
        self.meta.version += 1;
        let replicas = self.meta.replicas();
        self.meta
            .reborn
            .retain(|(node, _)| replicas.iter().any(|replica| replica.node == *node));
        self.changes += 1;
        true
    }

    pub(super) fn retain(&mut self, through: Seq) -> bool {
        if through <= self.meta.retention_through {
            return false;
        }
        self.meta.retention_through = through;
        self.meta.version += 1;
        true
    }
}

pub(super) fn first_boots() -> Boots {
    Boots {
        process: ProcessBoot(1),
        disk: DiskBoot(1),
    }
}

fn majority(voters: usize) -> u8 {
    u8::try_from(voters / 2 + 1).expect("few voters")
}
