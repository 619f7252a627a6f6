//! The walks that every test run makes; the gate makes ten times as many and plants every fault.

use crate::log::{Log, Record};
use crate::{MUTANTS, Mutant, search, trace, walk};

/// Faults with a budget up to this are found in no time.
const FAST_BUDGET: u64 = 1_000;

#[test]
fn base_walks_violate_nothing_and_do_everything() {
    let found = search(Mutant::None, 20_000);
    assert_eq!(found.violation, None, "walk {}", found.walks);
    let done = found.coverage;
    let counters = [
        done.committed,
        done.recoveries,
        done.truncations,
        done.snapshots,
        done.resumptions,
        done.changes,
        done.trimmed,
    ];
    assert!(counters.iter().all(|&counter| counter > 0), "{done:?}");
}

#[test]
fn planted_faults_are_found_within_their_budgets() {
    let fast: Vec<_> = MUTANTS
        .iter()
        .filter(|planted| planted.budget <= FAST_BUDGET)
        .collect();
    assert!(fast.len() > 20);
    for planted in fast {
        let found = search(planted.mutant, planted.budget);
        assert!(
            found.violation.is_some(),
            "{} was not found in {} walks",
            planted.name,
            planted.budget
        );
    }
}

#[test]
fn a_seed_repeats_its_walk() {
    for seed in [1, 77, 4_096] {
        assert_eq!(walk(Mutant::None, seed), walk(Mutant::None, seed));
        assert_eq!(trace(Mutant::None, seed), trace(Mutant::None, seed));
    }
    let violating = search(Mutant::RecoverFromOneVoter, 1_000);
    let told = trace(Mutant::RecoverFromOneVoter, violating.walks);
    assert!(told.last().is_some_and(|line| line.contains("CH-5")), "{told:?}");
}

fn log(epochs: &[u16]) -> Log {
    let mut log = Log::default();
    for (offset, &epoch) in epochs.iter().enumerate() {
        log.push(Record {
            epoch,
            value: u16::try_from(offset).expect("a short log"),
        });
    }
    log
}

#[test]
fn logs_are_compared_where_both_have_records() {
    let (mut a, b) = (log(&[1, 1, 2, 2]), log(&[1, 1, 3]));
    assert_eq!(a.common_end(&b), 2);
    assert_eq!(b.common_end(&a), 2);
    assert_eq!(a.foreign(0, 1), Some(2));
    a.trim(3);
    assert_eq!((a.start(), a.end(), a.epoch_before(3)), (3, 4, 2));
    assert_eq!(a.record(2), None);
    a.truncate(1);
    assert_eq!((a.start(), a.end()), (3, 3));
    a.reset(5, 4);
    assert_eq!((a.start(), a.end(), a.epoch_before(5)), (5, 5, 4));
}
