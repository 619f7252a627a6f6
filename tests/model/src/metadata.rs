//! The slot group's part: one place that grants epochs, changes voters and moves retention.

use crate::mutant::Mutant;
use crate::rng::Rng;
use crate::types::{Metadata, NODES, Nodes, Quorum};

/// The committed metadata of the channel, and what the nodes have registered.
pub(crate) struct Slot {
    pub(crate) metadata: Metadata,
    /// The disk and the process that each node has announced.
    pub(crate) disk_boots: [u16; NODES],
    pub(crate) process_boots: [u16; NODES],
    mutant: Mutant,
    pub(crate) changes: u64,
}

impl Slot {
    /// A channel with three voters and a write quorum of two, or in some walks other numbers.
    pub(crate) fn new(mutant: Mutant, rng: &mut Rng) -> Self {
        let (voters, write) = [
            (3, 2),
            (3, 2),
            (3, 2),
            (3, 1),
            (3, 3),
            (4, 2),
            (4, 3),
            (2, 1),
            (2, 2),
            (1, 1),
        ][rng.below(10)];
        let metadata = Metadata {
            epoch: 1,
            version: 1,
            leader: 0,
            leader_boot: 0,
            disk_boots: [0; NODES],
            current: Quorum {
                voters: Nodes::first(voters),
                write,
            },
            previous: None,
            retention: 0,
        };
        Self {
            metadata,
            disk_boots: [0; NODES],
            process_boots: [0; NODES],
            mutant,
            changes: 0,
        }
    }

    /// Grants the next epoch to a voter, by the disks and processes that are registered now.
    pub(crate) fn grant(&mut self, keep_leader: usize, watermarks: &[usize; NODES], rng: &mut Rng) {
        let voters = self.metadata.current.voters;
        let keeps = voters.contains(self.metadata.leader) && !rng.one_in(keep_leader);
        if self.mutant == Mutant::HighestWatermarkLeads {
            self.metadata.leader = voters
                .iter()
                .max_by_key(|&node| watermarks[node])
                .unwrap_or(self.metadata.leader);
        } else if !keeps {
            self.metadata.leader = voters.member(rng.below(voters.len()));
        }
        self.metadata.epoch += 1;
        self.metadata.version += 1;
        self.metadata.leader_boot = self.process_boots[self.metadata.leader];
        self.metadata.disk_boots = self.disk_boots;
    }

    /// Begins a change of voters, of their number or of the write quorum (CH-7): one voter at a time, with both sets and
    /// a new epoch. Says whether the caller must grant that epoch, or `None` when nothing changes.
    pub(crate) fn change(&mut self, rng: &mut Rng) -> Option<Granting> {
        if self.metadata.previous.is_some() {
            return None;
        }
        let current = self.metadata.current;
        let (kind, changed) = propose(current, rng)?;
        self.metadata.current = changed;
        self.metadata.version += 1;
        let planted = matches!(
            (self.mutant, kind),
            (Mutant::ReplaceNotJoint, Kind::Replace)
                | (Mutant::SizeNotJoint, Kind::Size)
                | (Mutant::QuorumBumpAlone | Mutant::QuorumInPlace, Kind::Quorum)
        );
        if !planted {
            self.metadata.previous = Some(current);
        }
        if self.mutant == Mutant::QuorumInPlace && kind == Kind::Quorum {
            return Some(Granting::InPlace);
        }
        Some(Granting::NewEpoch)
    }

    /// The leader of this epoch has proved its start under both sets. Says whether something changed.
    pub(crate) fn clear(&mut self, epoch: u16) -> bool {
        if self.metadata.epoch != epoch || self.metadata.previous.is_none() {
            return false;
        }
        self.metadata.previous = None;
        self.metadata.version += 1;
        self.changes += 1;
        true
    }

    /// Retention never falls, and only the leader of the present epoch may move it. Says whether something changed.
    pub(crate) fn retain(&mut self, epoch: u16, through: usize) -> bool {
        if self.metadata.epoch != epoch || through <= self.metadata.retention {
            return false;
        }
        self.metadata.retention = through;
        self.metadata.version += 1;
        true
    }
}

/// What follows from a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Granting {
    /// A new epoch is granted with it.
    NewEpoch,
    /// It is simply told.
    InPlace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Replace,
    Size,
    Quorum,
}

fn propose(current: Quorum, rng: &mut Rng) -> Option<(Kind, Quorum)> {
    let (out, entering) = (rng.below(NODES), rng.below(NODES));
    let voters = current.voters;
    let (kind, changed) = match rng.below(4) {
        0 if voters.contains(out) && !voters.contains(entering) => (
            Kind::Replace,
            Quorum {
                voters: voters.without(out).with(entering),
                ..current
            },
        ),
        1 if !voters.contains(entering) => (Kind::Size, resized(voters.with(entering), rng)),
        2 if voters.contains(out) && voters.len() > 1 => (Kind::Size, resized(voters.without(out), rng)),
        3 => (
            Kind::Quorum,
            Quorum {
                write: 1 + rng.below(voters.len()),
                ..current
            },
        ),
        _ => return None,
    };
    (changed != current).then_some((kind, changed))
}

/// Mostly a majority, sometimes any other number.
fn resized(voters: Nodes, rng: &mut Rng) -> Quorum {
    let write = if rng.one_in(3) {
        1 + rng.below(voters.len())
    } else {
        voters.len() / 2 + 1
    };
    Quorum { voters, write }
}
