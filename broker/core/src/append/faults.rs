//! Faults that can be planted in the append authority, to show that the checkers find them.

/// Which faults are planted. All off unless the crate is built with the feature `mutants`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Idempotency keys live in memory only, so that a new leader knows none (against AP-2).
    #[cfg(feature = "mutants")]
    pub idempotency_skipped_after_failover: bool,
    /// The same number with other bytes counts as the same message (against AP-2).
    #[cfg(feature = "mutants")]
    pub digest_ignored: bool,
    /// A message is acknowledged when the leader has it, not when a quorum has (against AP-1).
    #[cfg(feature = "mutants")]
    pub ack_on_append: bool,
}

#[cfg(feature = "mutants")]
impl Faults {
    pub(super) fn idempotency_skipped_after_failover(self) -> bool {
        self.idempotency_skipped_after_failover
    }

    pub(super) fn digest_ignored(self) -> bool {
        self.digest_ignored
    }

    pub(super) fn ack_on_append(self) -> bool {
        self.ack_on_append
    }
}

#[cfg(not(feature = "mutants"))]
impl Faults {
    pub(super) fn idempotency_skipped_after_failover(self) -> bool {
        false
    }

    pub(super) fn digest_ignored(self) -> bool {
        false
    }
}
