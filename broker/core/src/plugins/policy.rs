//! How a plugin fails, and what that means for the messages it was asked about.

/// How a stage failed. Bounded set: a metrics label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    /// No answer within the deadline.
    Timeout,
    /// It stopped in the middle.
    Trap,
    /// It went over its memory.
    Memory,
    /// Its answer is not one: undecodable, or not one verdict per draft.
    BadOutput,
    /// No capacity to run it now.
    Busy,
    /// It is not loaded here.
    NotReady,
    /// What it needed of the host failed.
    Host,
    /// It was not called, because it failed too often just before.
    Suspended,
}

impl Failure {
    /// Its name, as people write it and as metrics label it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Failure::Timeout => "timeout",
            Failure::Trap => "trap",
            Failure::Memory => "memory",
            Failure::BadOutput => "bad-output",
            Failure::Busy => "busy",
            Failure::NotReady => "not-ready",
            Failure::Host => "host-error",
            Failure::Suspended => "suspended",
        }
    }
}

/// What happens to the drafts of a call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// They are refused, worth a retry. The safe choice.
    Reject,
    /// They are accepted as they are now, with earlier rewrites, and no later stage is asked.
    Allow,
    /// The stage is left out; later stages judge them, with earlier rewrites.
    Skip,
}

/// All failures.
pub(crate) const FAILURES: [Failure; 8] = [
    Failure::Timeout,
    Failure::Trap,
    Failure::Memory,
    Failure::BadOutput,
    Failure::Busy,
    Failure::NotReady,
    Failure::Host,
    Failure::Suspended,
];

/// What each way of failing means for the drafts of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnError([Policy; 8]);

impl OnError {
    /// The same for every failure.
    #[must_use]
    pub const fn all(policy: Policy) -> OnError {
        OnError([policy; 8])
    }

    /// Another one for this failure.
    #[must_use]
    pub fn with(mut self, failure: Failure, policy: Policy) -> OnError {
        self.0[failure as usize] = policy;
        self
    }

    /// What this failure means.
    #[must_use]
    pub fn of(self, failure: Failure) -> Policy {
        self.0[failure as usize]
    }

    /// Every failure with what it means.
    pub fn each(self) -> impl Iterator<Item = (Failure, Policy)> {
        FAILURES
            .into_iter()
            .map(move |failure| (failure, self.of(failure)))
    }
}
