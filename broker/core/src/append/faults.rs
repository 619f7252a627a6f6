//! Faults that can be planted in the append authority, to show that the checkers find them.

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
                pub(super) fn $name(self) -> bool {
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
    idempotency_skipped_after_failover
        "AP-2: idempotency keys live in memory only, so that a new leader knows none."
    digest_ignored "AP-2: the same number with other bytes counts as the same message."
    ack_on_append "AP-1: a message is acknowledged when the leader has it, not when a quorum has."
}
