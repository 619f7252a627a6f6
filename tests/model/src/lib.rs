//! The replication protocol of a channel as a model that is walked at random.
//!
//! A **walk** is 600 random steps of four replicas, a network that loses, repeats and reorders, and the metadata of one
//! channel (CH-2 to CH-7, M-1 to M-6): sends, fsyncs that lag behind, restarts, lost disks, failovers, recoveries that
//! break off, changes of voters, of their number and of the write quorum, evictions of idle leaders, retention. A checker
//! that sees everything looks after every step whether a committed record could be lost.
//!
//! The model is worth what it catches: [`Mutant`] lists faults that can be planted in the rules, each with the number of
//! walks within which the checker must find it.
//!
//! # Files
//! `rng` and `weights` draw chance; `log`, `types` and `message` are the data; `replica` answers as a follower, `recovery`
//! turns it into a leader and `leader` counts; `metadata` grants; `world` steps; `checker` judges.
//!
//! # Absent
//! Liveness, the content of a snapshot, the catching up of learners before they become voters (it serves availability; the
//! quorums of both sets keep records safe without it), and forced recovery.

mod checker;
mod leader;
mod log;
mod message;
mod metadata;
mod mutant;
mod recovery;
mod replica;
mod rng;
#[cfg(test)]
mod tests;
mod types;
mod weights;
mod world;

pub use checker::Violation;
pub use mutant::{ALL as MUTANTS, Mutant, Planted};

use world::World;

/// Steps in one walk.
pub const STEPS: usize = 600;

/// What some walks did, to show that they did something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Records whose commit the checker noted.
    pub committed: u64,
    /// Recoveries that ended in a leader.
    pub recoveries: u64,
    /// Times that a follower cut its log at a conflict.
    pub truncations: u64,
    /// Times that a follower was reset by a snapshot.
    pub snapshots: u64,
    /// Evicted leaders that took up their epoch again.
    pub resumptions: u64,
    /// Changes of voters, of their number or of the write quorum that went through to the end.
    pub changes: u64,
    /// Records that retention removed from some replica.
    pub trimmed: u64,
}

impl Coverage {
    fn add(&mut self, other: Self) {
        self.committed += other.committed;
        self.recoveries += other.recoveries;
        self.truncations += other.truncations;
        self.snapshots += other.snapshots;
        self.resumptions += other.resumptions;
        self.changes += other.changes;
        self.trimmed += other.trimmed;
    }
}

/// The end of a search through many walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Search {
    /// Walks made, the violating one included.
    pub walks: u64,
    /// What they did.
    pub coverage: Coverage,
    /// The first violation; its walk is the last one.
    pub violation: Option<Violation>,
}

/// Walks with the seeds from 1 to `walks`, until a violation is found.
pub fn search(mutant: Mutant, walks: u64) -> Search {
    let mut search = Search {
        walks: 0,
        coverage: Coverage::default(),
        violation: None,
    };
    while search.walks < walks && search.violation.is_none() {
        search.walks += 1;
        let (coverage, violation) = walk(mutant, search.walks);
        search.coverage.add(coverage);
        search.violation = violation;
    }
    search
}

/// One walk; the same mutant and seed give the same steps.
pub fn walk(mutant: Mutant, seed: u64) -> (Coverage, Option<Violation>) {
    let mut world = World::new(mutant, seed);
    for _ in 0..STEPS {
        world.step();
        if world.violation().is_some() {
            break;
        }
    }
    (world.coverage(), world.violation())
}

/// The steps of one walk in words, one line for each step that changed something, up to the violation.
pub fn trace(mutant: Mutant, seed: u64) -> Vec<String> {
    let mut world = World::new(mutant, seed);
    let mut lines = world.describe();
    let mut told = lines.clone();
    for step in 0..STEPS {
        world.step();
        let now = world.describe();
        for (line, before) in now.iter().zip(&told) {
            if line != before {
                lines.push(format!("{step}: {line}"));
            }
        }
        told = now;
        if let Some(violation) = world.violation() {
            lines.push(format!("{step}: {violation}"));
            break;
        }
    }
    lines
}
