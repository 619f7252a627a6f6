//! The faults that can be planted, and how soon each must be found.

/// A mutant as the command line knows it.
#[derive(Clone, Copy, Debug)]
pub struct Planted {
    /// The fault.
    pub mutant: Mutant,
    /// The name on the command line.
    pub name: &'static str,
    /// Walks within which it must be found.
    pub budget: u64,
    /// What is wrong, in one sentence.
    pub sentence: &'static str,
}

/// Declares each mutant once: its variant, its name, its budget, and the sentence that documents and lists it.
macro_rules! mutants {
    ($($variant:ident $name:literal $budget:literal $sentence:literal)*) => {
        /// A rule that the model breaks on purpose.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutant {
            /// Nothing is broken.
            None,
            $(#[doc = $sentence] $variant,)*
        }

        /// Every mutant.
        pub const ALL: &[Planted] = &[
            $(Planted { mutant: Mutant::$variant, name: $name, budget: $budget, sentence: $sentence },)*
        ];
    };
}

mutants! {
    RecoverFromOneVoter "recover-from-one-voter" 50
        "Q1: one voter is enough to recover from."
    NoPromise "no-promise" 100
        "Q2: nobody promises, so the old leader is not fenced."
    PromiseNotDurable "promise-not-durable" 20
        "Q3: a restart forgets the promise."
    HighestWatermarkLeads "highest-watermark-leads" 50
        "Q4: the voter with the highest local high watermark leads with its own log."
    MajorityPrefix "majority-prefix" 50
        "Q5: a recovery keeps only the prefix that most reports share."
    LastRecordEpoch "last-record-epoch" 25_000
        "Q6: logs are compared by the epoch of their last record instead of the accepted epoch."
    KeepDivergentTail "keep-divergent-tail" 200
        "Q7: what other epochs wrote beyond the epoch start is kept on accepting."
    OldEpochAppends "old-epoch-appends" 200
        "Q8: a follower takes appends of an older epoch."
    WipedVoterVotes "wiped-voter-votes" 200
        "Q9: a voter that lost its disk votes at once."
    ReplaceNotJoint "replace-not-joint" 500
        "Q10: a voter is replaced without the old set's quorum."
    StaleReplyCounts "stale-reply-counts" 200
        "Q11: replies of another epoch count."
    WatermarkBeforeEpochStart "watermark-before-epoch-start" 20
        "Q12: agreement below the epoch start counts, so the high watermark moves before that start is committed."
    AssumesEpochStart "assumes-epoch-start" 20
        "A new leader takes its epoch start for committed."
    LeadsAfterPromise "leads-after-promise" 20
        "Q13: a leader goes on leading after it promised a newer epoch."
    CopyCutsTooDeep "copy-cuts-too-deep" 100
        "Q14: a recovery that breaks off has cut below the common prefix."
    CopyIgnoresBase "copy-ignores-base" 200_000
        "A recovery copies a log whose beginning is removed without comparing the epoch just before it."
    AgreementCounts "agreement-counts" 20
        "Q15: agreement on the last record stands for the accepted epoch."
    LogEndCounts "log-end-counts" 20
        "A follower's log end counts without any proof."
    OwnMatchBeforeSync "own-match-before-sync" 20
        "The leader counts its own records before they are synced."
    ResumeAfterRestart "resume-after-restart" 6_000
        "A leader resumes its epoch after a restart of its process."
    ResumeAfterPromise "resume-after-promise" 1_000
        "An evicted leader resumes its epoch though it has promised a newer one."
    OldGrantClearsAmnesia "old-grant-clears-amnesia" 200_000
        "A replica with a new disk obeys a grant that names the old one."
    QuorumInPlace "quorum-in-place" 500
        "The write quorum is changed in place."
    QuorumBumpAlone "quorum-bump-alone" 100
        "The write quorum is changed with a new epoch and nothing else."
    SizeNotJoint "size-not-joint" 50
        "A voter is added or removed without the old set's quorum."
    ClearTooEarly "clear-too-early" 500
        "The old set is cleared before the epoch start is committed under both."
    RetentionPassesWatermark "retention-passes-watermark" 50
        "Retention goes by the leader's log end."
    SnapshotAcceptsEarly "snapshot-accepts-early" 60_000
        "A snapshot that ends before the epoch start lets the follower accept the epoch."
}
