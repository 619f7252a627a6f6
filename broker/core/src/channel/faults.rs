//! Faults that can be planted so that the simulator proves it would find them. With the feature `mutants` off they do not
//! exist: every accessor is a constant `false`.

/// Declares each fault once: its name and the sentence that documents it.
macro_rules! faults {
    ($($name:ident $sentence:literal)*) => {
        /// Which faults a replica has. All false by default.
        #[cfg(feature = "mutants")]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Faults {
            $(#[doc = $sentence] pub $name: bool,)*
        }

        /// Which faults a replica has: none, because this build cannot contain them.
        #[cfg(not(feature = "mutants"))]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Faults {}

        impl Faults {
            $(
                #[cfg(feature = "mutants")]
                pub(crate) const fn $name(self) -> bool {
                    self.$name
                }
                #[cfg(not(feature = "mutants"))]
                pub(crate) const fn $name(self) -> bool {
                    false
                }
            )*

            /// The fault of this name alone, if there is one.
            #[cfg(feature = "mutants")]
            #[must_use]
            pub fn named(name: &str) -> Option<Faults> {
                match name {
                    $(stringify!($name) => Some(Faults { $name: true, ..Faults::default() }),)*
                    _ => None,
                }
            }
        }

        /// The name and the sentence of every fault that can be planted here.
        pub const FAULTS: &[(&str, &str)] = &[$((stringify!($name), $sentence),)*];
    };
}

faults! {
    recover_from_one_voter "Q1: one voter is enough to recover from."
    no_promise "Q2: nobody promises, so the old leader is not fenced."
    promise_not_durable "Q3: a promise is answered before it is durable, and not stored."
    highest_watermark_wins "Q4: recovery adopts the log with the highest high watermark."
    majority_prefix "Q5: recovery keeps only the prefix that two reports share."
    last_record_epoch "Q6: logs are compared by the epoch of their last record instead of the accepted epoch."
    keep_divergent_tail "Q7: what other epochs wrote beyond the epoch start is kept on accepting."
    old_epoch_appends "Q8: a follower takes appends of an older epoch."
    wiped_voter_votes "Q9: a voter that lost its disk votes at once."
    replace_not_joint "Q10: the old set's quorum is not asked while voters change."
    stale_reply_counts "Q11: replies of another epoch count."
    watermark_before_epoch_start "Q12: the high watermark moves before the epoch start is committed."
    leads_after_promise "Q13: a leader goes on leading after it promised a newer epoch."
    copy_cuts_too_deep "Q14: a recovery that copies a log first cuts below the common prefix."
    agreement_counts "Q15: agreement on the last record stands for the accepted epoch (M-1)."
    ack_before_fsync "The leader counts its own records before they are synced (M-3)."
    learner_counted "A learner counts for the high watermark (CH-7)."
    uncommitted_shown "The high watermark is the log end (CH-3)."
    reads_beyond_watermark "A read goes on to the log end (CH-3)."
    min_isr_in_place "A changed write quorum holds at once, without the old one (CH-7)."
    window_fixed_alone "The window of an exact consumer counts as held when its leader holds it (M-18)."
    give_up_before_first_append "A follower that meets silence before the first append stops trying (CH-12)."
}
