//! Faults that can be planted in the hooks, to show that the checkers find them.

/// Declares each fault once: its name, which is its field, and the sentence that documents and lists it.
macro_rules! faults {
    ($($name:ident $sentence:literal)*) => {
        /// Every fault: its name and what is wrong.
        pub const FAULTS: &[(&str, &str)] = &[$((stringify!($name), $sentence)),*];

        /// Which faults are planted. There are none unless the crate is built with the feature `mutants`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Faults {
            $(
                #[cfg(feature = "mutants")]
                #[doc = $sentence]
                pub $name: bool,
            )*
        }

        impl Faults {
            /// The fault of this name alone.
            #[cfg(feature = "mutants")]
            #[must_use]
            pub fn named(name: &str) -> Option<Faults> {
                let mut faults = Faults::default();
                match name {
                    $(stringify!($name) => faults.$name = true,)*
                    _ => return None,
                }
                Some(faults)
            }

            $(
                #[doc = $sentence]
                pub(crate) fn $name(self) -> bool {
                    #[cfg(feature = "mutants")]
                    return self.$name;
                    #[cfg(not(feature = "mutants"))]
                    return false;
                }
            )*
        }
    };
}

faults! {
    cursor_ahead_of_effect "M-6: a cursor is stored when its run is handed out instead of when the effect is done."
    before_commit_effects "CH-3: records above the high watermark are handed out."
    swap_within_batch "M-19: a batch that is under way goes on with the newest stages."
    fail_open_drops_rewrites "A failure that is let through gives the draft back as it came, without earlier rewrites."
    open_breaker_allows "An open breaker lets messages pass by a filter whose policy is to refuse them."
    half_open_lets_all_through "A half-open breaker lets every call through, not one."
    one_node_quarantines "One node of many is enough for a quarantine."
    behind_sleeps "PC-1: sleeping channels in which a consumer is behind are not looked for."
    window_not_held "M-18: a window is handed out before the replicas hold it."
    undelivered_counts_as_done "PC-1: the cursor of a webhook passes messages that its endpoint did not take."
    early_connects_pass "Who connects before the registry is known is asked no gate."
    failed_gate_lets_pass "A gate that fails lets pass whom its policy is to refuse."
    unknown_presence_is_offline "PR-4: who may have a session that is not known of is taken for offline."
    pages_skipped "PC-1: a message counts as done for the hook offline after the first page of its members."
    number_by_place "AP-2: the number of what a plugin publishes is made of the place of its cause in the batch."
    hops_not_counted "S17: what a plugin publishes because of another plugin's message counts as an answer to a person."
    window_grows_on_redelivery "M-18: a window grows when it is delivered again."
}
