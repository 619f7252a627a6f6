//! The invariants that the core asserts, by rule id (`broker/docs/rules.md`). They stay on in production: a broken
//! one stops the node before it can say something false.

/// Asserts a rule. `ensure!(CH_2, condition, "what was seen {}", value)`.
#[macro_export]
macro_rules! ensure {
    ($rule:ident, $condition:expr, $($detail:tt)+) => {
        assert!(
            $condition,
            "invariant {} broken ({}): {}",
            stringify!($rule),
            $crate::invariant::$rule,
            format_args!($($detail)+)
        )
    };
}

/// Sequences are contiguous from 1 and never reused for other content once committed.
pub const CH_1: &str = "sequences are contiguous and never reused once committed";
/// HW counts only durable matches of the leader's own epoch and never goes back.
pub const CH_2: &str = "the high watermark is backed by W durable matches of the own epoch";
/// Nothing uncommitted is shown to anyone.
pub const CH_3: &str = "nothing above the high watermark is read, delivered or acknowledged";
/// One leader per epoch; a promise of a higher one ends leadership in the same step.
pub const CH_4: &str = "leads implies promised <= own leader epoch";
/// A follower truncates only at a real conflict and never below its durable high watermark.
pub const CH_6: &str = "truncation happens only at a conflict, never below the high watermark";
/// One voter at a time, with both quorums.
pub const CH_7: &str = "a voter change keeps both quorums and moves one voter";
/// Same-channel commands complete in order.
pub const AP_3: &str = "sends of a channel complete in submission order";
/// Message ids never go back.
pub const AP_4: &str = "message ids never go back";
/// A command's slots belong to its group.
pub const SL_2: &str = "every slot of a command belongs to the group";
/// Commands apply once, in order.
pub const SL_1: &str = "commands apply once, in order, with the applied index in the same write";
/// First offers to a session strictly increase per channel.
pub const PC_5: &str = "first offers of a channel to a session strictly increase";
