//! Faults that can be planted so that the simulator proves it would find them. With the feature `mutants` off they do not
//! exist: every accessor is a constant `false`.

/// Declares each fault once: its name and the sentence that documents it.
macro_rules! faults {
    ($($name:ident $sentence:literal)*) => {
        /// Which faults a group has. All false by default.
        #[cfg(feature = "mutants")]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Faults {
            $(#[doc = $sentence] pub $name: bool,)*
        }

        /// Which faults a group has: none, because this build cannot contain them.
        #[cfg(not(feature = "mutants"))]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Faults;

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
    applied_not_atomic "The applied index is written before the effects, in a write of its own (SL-1, F2)."
    persisted_messages_early "Messages that promise durability leave before the write is durable (F1)."
    hard_state_skipped "Term and vote are not stored (F1)."
    applies_before_persisted "A one-node group applies entries that are not durable yet (F1)."
    one_lane "All proposals share one queue, so that a flood of cursors delays grants (SL-9)."
    meta_compare_skipped "A meta is written over any version (CH-9)."
    stage_not_cleared "A new snapshot is staged on top of what an earlier one left (M-10)."
    snapshot_without_changes "Rows written while a snapshot is read are not sent with it (SL-7)."
    conf_from_log "After an install the old membership stays in force (F5)."
    foreign_slot_applied "Commands for slots of other groups are applied (SL-2)."
    key_marks_ignored "Changes of keys are made again when their messages are handed out again (M-18)."
    online_done_early "A batch of online status counts as done when its delivery begins."
    ends_not_swept "Sessions that ended while nobody led their slot are not told as ended."
}
