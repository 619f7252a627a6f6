//! Bugs that are planted so that the harness proves it would find them: in the machines, in the driver, in the disk.

use penstock_core::shard::{Config, Faults};
use penstock_core::{append, channel, delivery, hooks, presence, session, slot};

/// How the simulated driver misbehaves, and which faults the machines have.
#[derive(Clone, Debug, Default)]
pub struct Driver {
    /// Stores are reported durable when they are only written.
    pub stored_before_durable: bool,
    /// A damaged log is opened as if it were whole (M-8).
    pub trusts_damaged_log: bool,
    /// A process starts under the boot of the one before it (M-4).
    pub keeps_process_boot: bool,
    /// An empty disk comes back under the boot of the lost one (M-4).
    pub keeps_disk_boot: bool,
    faults: Faults,
}

impl Driver {
    /// Plants the machines' faults.
    #[must_use]
    pub fn configure(&self, config: Config) -> Config {
        Config {
            faults: self.faults.clone(),
            ..config
        }
    }
}

/// Where a bug is planted.
#[derive(Clone, Copy, Debug)]
pub enum Plant {
    /// In channel replicas, by the name of the fault.
    Channel(&'static str),
    /// In slot groups, by the name of the fault.
    Slot(&'static str),
    /// In append authorities.
    Append(fn(&mut append::faults::Faults)),
    /// In post-commit cursors.
    Hooks(fn(&mut hooks::faults::Faults)),
    /// In delivery.
    Delivery(delivery::Fault),
    /// In presence authorities.
    Presence(presence::Fault),
    /// In sessions.
    Session(session::Fault),
    /// In several machines at once: what one of them does wrong the next one keeps from being seen.
    Machines(fn(&mut Faults)),
    /// In the driver or the disk.
    Driver(fn(&mut Driver)),
}

/// A planted bug.
#[derive(Debug)]
pub struct Mutant {
    /// Its name on the command line.
    pub name: &'static str,
    /// Nodes of the cluster that shows it.
    pub nodes: usize,
    /// Seeds within which it must be found.
    pub seed_budget: u64,
    /// What is wrong.
    pub sentence: &'static str,
    /// Where it is.
    pub plant: Plant,
}

impl Mutant {
    /// The driver with this bug.
    ///
    /// # Panics
    /// When a machine does not know the fault by its name.
    #[must_use]
    pub fn driver(&self) -> Driver {
        let mut driver = Driver::default();
        let faults = &mut driver.faults;
        match self.plant {
            Channel(name) => faults.channel = channel::Faults::named(name).expect("a fault of channels"),
            Slot(name) => faults.slot = slot::faults::Faults::named(name).expect("a fault of groups"),
            Append(plant) => plant(&mut faults.append),
            Plant::Hooks(plant) => plant(&mut faults.hooks),
            Delivery(fault) => faults.delivery = delivery::Faults::planted(fault),
            Presence(fault) => faults.presence = presence::Faults::planted(fault),
            Session(fault) => faults.session = session::Faults::planted(fault),
            Plant::Machines(plant) => plant(faults),
            Plant::Driver(plant) => plant(&mut driver),
        }
        driver
    }
}

const fn mutant(
    name: &'static str,
    nodes: usize,
    seed_budget: u64,
    plant: Plant,
    sentence: &'static str,
) -> Mutant {
    Mutant {
        name,
        nodes,
        seed_budget,
        sentence,
        plant,
    }
}

use Plant::{Append, Channel, Delivery, Presence, Session, Slot};

/// The planted bugs that the gate holds the oracle to.
pub static ALL: &[Mutant] = &[
    mutant(
        "q1-recover-from-one-voter",
        3,
        200,
        Channel("recover_from_one_voter"),
        "Q1: one voter is enough to recover from.",
    ),
    mutant(
        "q2-no-promise",
        3,
        200,
        Channel("no_promise"),
        "Q2: nobody promises, so the old leader is not fenced.",
    ),
    mutant(
        "q3-promise-not-durable",
        3,
        200,
        Channel("promise_not_durable"),
        "Q3: a promise is answered before it is durable.",
    ),
    mutant(
        "q4-highest-watermark-wins",
        3,
        200,
        Channel("highest_watermark_wins"),
        "Q4: recovery adopts the log with the highest high watermark.",
    ),
    mutant(
        "q5-majority-prefix",
        3,
        200,
        Channel("majority_prefix"),
        "Q5: recovery keeps only the prefix that two reports share.",
    ),
    mutant(
        "q6-last-record-epoch",
        3,
        400,
        Channel("last_record_epoch"),
        "Q6: logs are compared by the epoch of their last record.",
    ),
    mutant(
        "q7-keep-divergent-tail",
        3,
        200,
        Channel("keep_divergent_tail"),
        "Q7: what other epochs wrote beyond the epoch start is kept on accepting.",
    ),
    mutant(
        "q8-old-epoch-appends",
        3,
        200,
        Channel("old_epoch_appends"),
        "Q8: a follower takes appends of an older epoch.",
    ),
    mutant(
        "q9-wiped-voter-votes",
        3,
        200,
        Channel("wiped_voter_votes"),
        "Q9: a voter that lost its disk votes at once.",
    ),
    mutant(
        "q10-replace-not-joint",
        5,
        200,
        Channel("replace_not_joint"),
        "Q10: the old set's quorum is not asked while voters change.",
    ),
    mutant(
        "q11-stale-reply-counts",
        3,
        400,
        Channel("stale_reply_counts"),
        "Q11: replies of another epoch count.",
    ),
    mutant(
        "q12-watermark-before-epoch-start",
        3,
        200,
        Channel("watermark_before_epoch_start"),
        "Q12: the high watermark moves before the epoch start is committed.",
    ),
    mutant(
        "q13-leads-after-promise",
        3,
        200,
        Channel("leads_after_promise"),
        "Q13: a leader goes on leading after it promised a newer epoch.",
    ),
    mutant(
        "q14-copy-cuts-too-deep",
        3,
        200,
        Channel("copy_cuts_too_deep"),
        "Q14: a recovery first cuts below the common prefix.",
    ),
    mutant(
        "q15-agreement-counts",
        3,
        200,
        Channel("agreement_counts"),
        "Q15: agreement on the last record stands for the accepted epoch.",
    ),
    mutant(
        "own-match-before-sync",
        3,
        200,
        Channel("ack_before_fsync"),
        "The leader counts its own records before they are synced (M-3).",
    ),
    mutant(
        "uncommitted-shown",
        3,
        50,
        Channel("uncommitted_shown"),
        "The high watermark is the log end (CH-3).",
    ),
    mutant(
        "stored-before-durable",
        3,
        100,
        Plant::Driver(|driver| driver.stored_before_durable = true),
        "The driver reports writes durable before they are synced (M-9).",
    ),
    mutant(
        "default-log-recovery",
        3,
        200,
        Plant::Driver(|driver| driver.trusts_damaged_log = true),
        "An old state of a damaged disk is opened as if nothing were missing (M-8).",
    ),
    mutant(
        "disk-boot-kept",
        3,
        200,
        Plant::Driver(|driver| driver.keeps_disk_boot = true),
        "An empty disk comes back under the boot of the lost one (M-4).",
    ),
    mutant(
        "ack-on-append",
        3,
        100,
        Append(|faults| faults.ack_on_append = true),
        "A message is acknowledged when the leader has it (AP-1).",
    ),
    mutant(
        "no-dedupe-after-failover",
        3,
        100,
        Append(|faults| faults.idempotency_skipped_after_failover = true),
        "A new leader knows no idempotency keys (AP-2).",
    ),
    mutant(
        "first-offer-repeats",
        3,
        200,
        Session(session::Fault::FirstOfferRepeats),
        "First offers are not checked against what the session already got (PC-5).",
    ),
    mutant(
        "full-counts-as-bound",
        3,
        200,
        Session(session::Fault::FullCountsAsBound),
        "What a full window leaves out counts as delivered (PC-1).",
    ),
    mutant(
        "applied-not-atomic",
        3,
        200,
        Slot("applied_not_atomic"),
        "The applied index is written apart from the effects (SL-1, F2).",
    ),
    mutant(
        "persisted-messages-early",
        3,
        200,
        Slot("persisted_messages_early"),
        "Messages that promise durability leave before the write is durable (F1).",
    ),
    mutant(
        "hard-state-skipped",
        3,
        200,
        Slot("hard_state_skipped"),
        "Term and vote are not stored (F1).",
    ),
    mutant(
        "snapshot-without-changes",
        3,
        200,
        Slot("snapshot_without_changes"),
        "Rows written while a snapshot is read are not sent with it (SL-7).",
    ),
    mutant(
        "process-boot-kept",
        3,
        200,
        Plant::Driver(|driver| driver.keeps_process_boot = true),
        "A process starts under the boot of the one before it (M-3, M-4).",
    ),
    mutant(
        "learner-counted",
        5,
        200,
        Channel("learner_counted"),
        "A learner counts for the high watermark (CH-7).",
    ),
    mutant(
        "min-isr-in-place",
        3,
        200,
        Channel("min_isr_in_place"),
        "A changed write quorum holds at once, without the old one (CH-7).",
    ),
    mutant(
        "stage-not-cleared",
        3,
        200,
        Slot("stage_not_cleared"),
        "A new snapshot is staged on top of what an earlier one left (M-10).",
    ),
    mutant(
        "meta-compare-skipped",
        3,
        200,
        Slot("meta_compare_skipped"),
        "A meta is written over any version (CH-9).",
    ),
    mutant(
        "one-lane",
        3,
        200,
        Slot("one_lane"),
        "All proposals share one queue, so that a flood of cursors delays grants (SL-9).",
    ),
    mutant(
        "opening-never-released",
        1,
        40,
        Plant::Machines(|faults| faults.opening.never_released = true),
        "A channel that is led still counts as one that is being opened, until no other one may be opened (SL-6).",
    ),
    mutant(
        "cursor-before-bound",
        3,
        50,
        Delivery(delivery::Fault::CursorBeforeBound),
        "The delivery cursor moves before owners have bound the run (PC-1).",
    ),
    mutant(
        "unknown-is-offline",
        3,
        100,
        Presence(presence::Fault::UnknownIsOffline),
        "Users count as offline before every node has announced itself (PR-4).",
    ),
    mutant(
        "deliver-uncommitted",
        3,
        50,
        Plant::Machines(|faults| {
            faults.channel = channel::Faults::named("reads_beyond_watermark").expect("a fault of channels");
            faults.delivery = delivery::Faults::planted(delivery::Fault::DeliverUncommitted);
        }),
        "Neither delivery nor the replica that it reads from stops at the high watermark (CH-3).",
    ),
    mutant(
        "revived-after-unregister",
        3,
        200,
        Presence(presence::Fault::PresenceRevivedAfterUnregister),
        "A session that is over comes back when its announcement comes late (PR-2).",
    ),
    mutant(
        "cursor-ahead-of-effect",
        3,
        200,
        Plant::Hooks(|faults| faults.cursor_ahead_of_effect = true),
        "A cursor is stored when its run is handed out instead of when the effect is done (M-6).",
    ),
    mutant(
        "effect-before-commit",
        3,
        200,
        Plant::Machines(|faults| {
            faults.channel = channel::Faults::named("reads_beyond_watermark").expect("a fault of channels");
            faults.hooks.before_commit_effects = true;
        }),
        "Neither a binding's cursor nor the replica that it reads from stops at the high watermark (CH-3).",
    ),
    mutant(
        "behind-sleeps",
        3,
        200,
        Plant::Hooks(|faults| faults.behind_sleeps = true),
        "Sleeping channels in which a binding is behind are not looked for after a restart (PC-1).",
    ),
    mutant(
        "window-grows-on-redelivery",
        3,
        400,
        Plant::Hooks(|faults| faults.window_grows_on_redelivery = true),
        "The window of an exact consumer grows when it is handed out again (M-18).",
    ),
    mutant(
        "window-not-held",
        3,
        400,
        Plant::Hooks(|faults| faults.window_not_held = true),
        "The window of an exact consumer is handed out before any replica holds it (M-18).",
    ),
    mutant(
        "key-marks-ignored",
        3,
        200,
        Slot("key_marks_ignored"),
        "Changes of keys are made again when their messages are handed out again (M-18).",
    ),
    mutant(
        "swap-within-batch",
        3,
        200,
        Plant::Hooks(|faults| faults.swap_within_batch = true),
        "A batch that is under way goes on with the newest stages (M-19).",
    ),
    mutant(
        "fail-open-drops-rewrites",
        3,
        200,
        Plant::Hooks(|faults| faults.fail_open_drops_rewrites = true),
        "A failed stage that lets a draft through gives it back as it came, without earlier rewrites (M-19).",
    ),
    mutant(
        "open-breaker-allows",
        3,
        200,
        Plant::Hooks(|faults| faults.open_breaker_allows = true),
        "A filter that refuses what it cannot judge lets messages pass while its breaker is open (S16).",
    ),
    mutant(
        "half-open-lets-all-through",
        3,
        200,
        Plant::Hooks(|faults| faults.half_open_lets_all_through = true),
        "A half-open breaker lets every call through, not one (S16).",
    ),
    mutant(
        "early-connects-pass",
        3,
        200,
        Plant::Hooks(|faults| faults.early_connects_pass = true),
        "Who connects before its node knows the registry is asked no gate (M-19).",
    ),
    mutant(
        "failed-gate-lets-pass",
        3,
        200,
        Plant::Hooks(|faults| faults.failed_gate_lets_pass = true),
        "A gate that fails lets pass whom its policy is to refuse (M-19).",
    ),
    mutant(
        "one-node-quarantines",
        3,
        200,
        Plant::Hooks(|faults| faults.one_node_quarantines = true),
        "A version is quarantined when one node of three has given it up (S16).",
    ),
    mutant(
        "undelivered-counts-as-done",
        3,
        200,
        Plant::Hooks(|faults| faults.undelivered_counts_as_done = true),
        "The cursor of a webhook passes messages that its endpoint did not take (PC-1).",
    ),
    mutant(
        "window-grows",
        1,
        400,
        Plant::Hooks(|faults| faults.window_grows_on_redelivery = true),
        "A window of a webhook grows when it is delivered again, under the id that it had (S22).",
    ),
    mutant(
        "gives-up-before-first-append",
        3,
        200,
        Channel("give_up_before_first_append"),
        "A follower that meets silence before the first append stops trying (CH-12).",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_planted_bug_has_a_name_of_its_own_and_a_place() {
        let names: BTreeSet<&str> = ALL.iter().map(|mutant| mutant.name).collect();
        assert_eq!(names.len(), ALL.len());
        assert!(ALL.len() >= 20);
        for mutant in ALL {
            assert!(!mutant.name.contains(' ') && mutant.seed_budget > 0);
            assert!(
                format!("{:?}", mutant.driver()).contains("true")
                    || matches!(mutant.plant, Delivery(_) | Presence(_) | Session(_))
            );
        }
    }
}
