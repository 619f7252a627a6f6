//! Which faults come when: per-seed weights (M-20), and the atlas that keeps them survivable.

use crate::rng::{Rng, Stream};
use std::time::Duration;

/// A fault, still without its victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Power cut: the process is gone, what was not synced may be gone too.
    Crash,
    /// All nodes lose power at the same instant.
    CrashAll,
    /// The process stands still for a while, without knowing.
    Pause,
    /// Links are cut.
    Partition,
    /// Cut links are whole again.
    Mend,
    /// One link holds everything back.
    Clog,
    /// A wall clock jumps.
    ClockJump,
    /// The next sync fails: the process ends itself (R14).
    SyncError,
    /// The disk is nearly full for a while: the node takes no new messages (R14).
    LowSpace,
    /// The disk is full: the process ends itself, and cannot start again before there is room.
    DiskFull,
    /// The node comes back with an empty disk.
    Wipe,
    /// One bit of the synced log has flipped when the node comes back (R30).
    BitFlip,
    /// Syncs take long.
    SlowDisk,
    /// One shard takes long.
    SlowShard,
    /// A connection breaks.
    Disconnect,
    /// A client stops acknowledging for a while.
    DeafClient,
    /// A blow is prepared that falls at a chosen moment of the protocols.
    Ambush,
    /// An operator moves a channel's leadership, twice at once.
    MoveLeader,
    /// An operator changes the voters of a channel, or how many of them must hold a record.
    ChangeVoters,
    /// A flood of proposals that may wait.
    Flood,
}

/// Every fault with the usual number of times per ten that a fault is this one.
const USUAL: &[(Fault, u64)] = &[
    (Fault::Crash, 12),
    (Fault::CrashAll, 2),
    (Fault::Pause, 8),
    (Fault::Partition, 12),
    (Fault::Mend, 14),
    (Fault::Clog, 6),
    (Fault::ClockJump, 4),
    (Fault::SyncError, 3),
    (Fault::LowSpace, 2),
    (Fault::DiskFull, 2),
    (Fault::Wipe, 2),
    (Fault::BitFlip, 1),
    (Fault::SlowDisk, 4),
    (Fault::SlowShard, 4),
    (Fault::Disconnect, 6),
    (Fault::DeafClient, 4),
    (Fault::Ambush, 24),
    (Fault::MoveLeader, 6),
    (Fault::ChangeVoters, 6),
    (Fault::Flood, 2),
];

/// Drawn from a stream of their own.
const AIMED: &[Fault] = &[
    Fault::Ambush,
    Fault::MoveLeader,
    Fault::ChangeVoters,
    Fault::Flood,
];

/// How often each fault comes in one seed.
#[derive(Clone, Debug)]
pub struct Weights {
    weights: Vec<(Fault, u64)>,
    total: u64,
    interval: Duration,
    /// Clocks drift by at most this many parts of a million.
    pub drift_ppm: u32,
    /// Nodes that may lose their disk in this run.
    pub disks_to_lose: usize,
}

impl Weights {
    /// Draws the weights of a seed: some faults do not come at all, some come all the time.
    pub fn draw(seed: u64, rng: &mut Rng, nodes: usize) -> Weights {
        let aimed = &mut Rng::new(seed, Stream::Aimed);
        let mut weights = Vec::new();
        for &(fault, usual) in USUAL {
            let needs_others = matches!(
                fault,
                Fault::Partition
                    | Fault::Mend
                    | Fault::Clog
                    | Fault::Wipe
                    | Fault::BitFlip
                    | Fault::MoveLeader
                    | Fault::ChangeVoters
            );
            if nodes == 1 && needs_others {
                continue;
            }
            let factor = match fault {
                // A partition that never ends leaves nothing to test.
                Fault::Mend => 1,
                _ if AIMED.contains(&fault) => aimed.pick(&[0, 1, 1, 3]),
                _ => rng.pick(&[0, 0, 1, 1, 1, 4]),
            };
            weights.push((fault, usual * factor));
        }
        Weights {
            total: weights.iter().map(|(_, weight)| weight).sum(),
            weights,
            interval: Duration::from_millis(rng.pick(&[700, 2_000, 5_000, 20_000])),
            drift_ppm: rng.pick(&[0, 200, 20_000]),
            // More than one lost disk could take every copy that acknowledged a message.
            disks_to_lose: usize::from(nodes > 1),
        }
    }

    /// No faults at all: a run at full concurrency, where bugs hide as well.
    #[must_use]
    pub fn none() -> Weights {
        Weights {
            weights: Vec::new(),
            total: 0,
            interval: Duration::from_secs(1),
            drift_ppm: 0,
            disks_to_lose: 0,
        }
    }
}

/// The faults of one run, in time.
#[derive(Debug)]
pub struct Faults {
    weights: Weights,
    /// Chance for victims and times.
    pub rng: Rng,
    lost_disks: usize,
}

impl Faults {
    /// The faults of a seed.
    #[must_use]
    pub fn new(seed: u64, weights: Weights) -> Faults {
        Faults {
            weights,
            rng: Rng::new(seed, Stream::Faults),
            lost_disks: 0,
        }
    }

    /// How long until the next fault.
    pub fn interval(&mut self) -> Duration {
        self.rng.tailed(self.weights.interval)
    }

    /// The next fault, if any comes in this run.
    pub fn draw(&mut self) -> Option<Fault> {
        let mut point = self.rng.below(self.weights.total);
        for &(fault, weight) in &self.weights.weights {
            if point < weight {
                return Some(fault);
            }
            point -= weight;
        }
        None
    }

    /// Whether one more disk may lose what it held, and counts it. A cluster survives a minority of every channel's
    /// and every group's copies; nobody can tell from outside which copies overlap, so the whole run has one budget.
    pub fn may_lose_disk(&mut self) -> bool {
        let may = self.lost_disks < self.weights.disks_to_lose;
        self.lost_disks += usize::from(may);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_node_meets_no_fault_that_needs_others() {
        for seed in 0..50 {
            let weights = Weights::draw(seed, &mut Rng::new(seed, Stream::Settings), 1);
            let mut faults = Faults::new(seed, weights);
            assert!(!faults.may_lose_disk());
            for _ in 0..100 {
                assert!(!matches!(
                    faults.draw(),
                    Some(Fault::Wipe | Fault::Partition | Fault::BitFlip)
                ));
            }
        }
    }

    #[test]
    fn disks_are_lost_within_the_budget() {
        let mut faults = Faults::new(1, Weights::draw(1, &mut Rng::new(1, Stream::Settings), 5));
        assert!(faults.may_lose_disk());
        assert!(!faults.may_lose_disk());
        assert_eq!(Faults::new(1, Weights::none()).draw(), None);
    }
}
