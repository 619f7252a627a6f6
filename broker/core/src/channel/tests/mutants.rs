//! Planted faults: each must be found by the same walks that find nothing in the sound replica, within its budget of seeds.

use super::cases::leads_though_the_first_exchange_is_lost;
use super::walk::walks;
use crate::channel::{FAULTS, Faults};

/// The fault, the number of nodes, and the seeds within which it is found.
const BUDGETS: &[(&str, u16, u64)] = &[
    ("recover_from_one_voter", 4, 300),
    ("no_promise", 3, 50),
    ("promise_not_durable", 3, 50),
    ("highest_watermark_wins", 4, 500),
    ("majority_prefix", 4, 200),
    ("last_record_epoch", 3, 1_500),
    ("keep_divergent_tail", 4, 300),
    ("old_epoch_appends", 4, 1_500),
    ("wiped_voter_votes", 3, 300),
    ("replace_not_joint", 4, 200),
    ("stale_reply_counts", 4, 200),
    ("watermark_before_epoch_start", 3, 50),
    ("leads_after_promise", 4, 100),
    ("copy_cuts_too_deep", 3, 300),
    ("agreement_counts", 3, 100),
    ("ack_before_fsync", 3, 50),
    ("learner_counted", 4, 300),
    ("uncommitted_shown", 3, 50),
    ("reads_beyond_watermark", 3, 50),
    ("min_isr_in_place", 4, 300),
    ("window_fixed_alone", 3, 3_000),
];

#[test]
fn every_planted_fault_is_found() {
    let mut missed = Vec::new();
    for (name, nodes, budget) in BUDGETS {
        let faults = Faults::named(name).expect("a fault of this name");
        let (found, _) = walks(0..*budget, *nodes, faults);
        match found {
            Some((seed, what)) => {
                eprintln!("{name}: seed {seed}: {}", what.lines().next().unwrap_or_default())
            }
            None => missed.push(*name),
        }
    }
    assert_eq!(missed, Vec::<&str>::new());
}

#[test]
fn a_follower_that_gives_up_is_found() {
    let faults = Faults::named("give_up_before_first_append").expect("a fault of this name");
    assert!(!leads_though_the_first_exchange_is_lost(faults));
}

#[test]
fn no_fault_is_forgotten() {
    let walked: Vec<&str> = BUDGETS.iter().map(|(name, _, _)| *name).collect();
    let told = ["give_up_before_first_append"];
    for (name, _) in FAULTS {
        assert!(walked.contains(name) || told.contains(name), "{name}");
    }
}
