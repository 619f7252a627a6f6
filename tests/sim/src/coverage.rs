//! What a run has met: a run that never failed over has not tested failovers (M-21).

use std::collections::BTreeMap;
use std::time::Duration;

/// Things that a run of many seeds must have met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Met {
    /// A channel got another leader.
    Failovers,
    /// A replica removed records that conflicted.
    Truncations,
    /// A group was reset by a snapshot.
    Snapshots,
    /// An idle channel was put out of memory.
    Evictions,
    /// The voters of a channel changed.
    VoterChanges,
    /// A retry found its first attempt's record.
    DeduplicatedRetries,
    /// A row had to be loaded.
    Misses,
    /// A full mailbox refused an admission.
    Refusals,
    /// A message was offered to a session again.
    Reoffers,
    /// A send got no answer and was sent again.
    Resends,
    /// The log of a group was compacted.
    Compactions,
    /// A version of a plugin was not called for a while.
    Suspensions,
    /// And was called again.
    Recoveries,
    /// A version of a plugin was quarantined.
    Quarantines,
    /// A sleeping channel was woken because a consumer was behind.
    Resumed,
    /// Somebody was let in whom a gate had accepted.
    Admissions,
}

/// What 1,000 seeds at three nodes may not go without.
pub const REQUIRED: &[Met] = &[
    Met::Failovers,
    Met::Truncations,
    Met::Snapshots,
    Met::Evictions,
    Met::VoterChanges,
    Met::DeduplicatedRetries,
    Met::Misses,
    Met::Suspensions,
    Met::Recoveries,
    Met::Quarantines,
    Met::Resumed,
    Met::Admissions,
];

/// Counters of one seed or of many.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    met: BTreeMap<Met, u64>,
    faults: BTreeMap<&'static str, u64>,
    /// Messages that were acknowledged, each once.
    pub acknowledged: u64,
    /// Virtual time that passed.
    pub virtual_time: Duration,
    /// Events that were handled.
    pub events: u64,
}

impl Coverage {
    /// Counts one.
    pub fn meet(&mut self, what: Met) {
        self.meet_many(what, 1);
    }

    /// Counts several.
    pub fn meet_many(&mut self, what: Met, count: u64) {
        *self.met.entry(what).or_default() += count;
    }

    /// Counts a fault by its kind.
    pub fn fault(&mut self, kind: &'static str, count: u64) {
        if count > 0 {
            *self.faults.entry(kind).or_default() += count;
        }
    }

    /// How often this was met.
    #[must_use]
    pub fn count(&self, what: Met) -> u64 {
        self.met.get(&what).copied().unwrap_or(0)
    }

    /// All faults so far.
    #[must_use]
    pub fn faults(&self) -> &BTreeMap<&'static str, u64> {
        &self.faults
    }

    /// Adds another seed's counters.
    pub fn add(&mut self, other: &Coverage) {
        for (&what, &count) in &other.met {
            self.meet_many(what, count);
        }
        for (&kind, &count) in &other.faults {
            self.fault(kind, count);
        }
        self.acknowledged += other.acknowledged;
        self.virtual_time += other.virtual_time;
        self.events += other.events;
    }

    /// What was not met though it is required.
    #[must_use]
    pub fn missing(&self) -> Vec<Met> {
        REQUIRED
            .iter()
            .copied()
            .filter(|&what| self.count(what) == 0)
            .collect()
    }

    /// One line per table.
    #[must_use]
    pub fn render(&self) -> String {
        let list = |rows: Vec<String>| {
            if rows.is_empty() {
                "none".to_owned()
            } else {
                rows.join(", ")
            }
        };
        let met = self
            .met
            .iter()
            .map(|(what, count)| format!("{what:?} {count}"))
            .collect();
        let faults = self
            .faults
            .iter()
            .map(|(kind, count)| format!("{kind} {count}"))
            .collect();
        format!("faults: {}\nmet: {}", list(faults), list(met))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_was_not_met() {
        let mut one = Coverage::default();
        for &what in REQUIRED {
            one.meet(what);
        }
        let mut sum = Coverage::default();
        assert_eq!(sum.missing(), REQUIRED);
        sum.add(&one);
        assert!(sum.missing().is_empty());
        sum.fault("crash", 2);
        assert!(sum.render().contains("crash 2"));
    }
}
