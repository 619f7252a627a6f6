//! Consumers that are tried for a time instead of a number of times: what they deliver to may be away for hours.
//!
//! # Invariants
//! - A record is given up only when it, and everything before it, has failed for the whole time; so an outage gives up each record
//!   when that one is old enough, not all that came meanwhile.

use super::progress::Progress;
use super::{Cause, Failure};
use crate::message::Record;
use crate::patience::{Patience, mixed};
use crate::types::{Incarnation, Now};
use std::time::Duration;

/// What a consumer knows of its failures.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trouble {
    /// Since when nothing succeeds.
    since: Option<Duration>,
    /// Stamp of the first record that is handed out, ms since 1970.
    head_ms: u64,
    /// What is under way is a dead letter: that it is kept is no success.
    burying: bool,
}

impl Trouble {
    /// These records are handed out.
    pub(super) fn head(&mut self, records: &[Record]) {
        self.head_ms = records.first().map_or(0, |record| record.stamp_ms);
        self.burying = false;
    }

    /// A record is being given up.
    pub(super) fn bury(&mut self) {
        self.burying = true;
    }

    /// What was under way is done.
    pub(super) fn end(&mut self) {
        if !self.burying {
            self.since = None;
        }
    }

    fn is_over(&mut self, now: Now, total: Duration) -> bool {
        let since = *self.since.get_or_insert(now.monotonic);
        let age = Duration::from_millis(now.wall_ms.saturating_sub(self.head_ms));
        now.monotonic.saturating_sub(since) >= total && age >= total
    }
}

/// What follows a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Another attempt after this pause.
    Pause(Duration),
    /// The first record is given up.
    GiveUp(Cause),
}

impl Progress {
    /// A run of a patient consumer failed.
    pub(super) fn fail_patiently(
        &mut self,
        now: Now,
        patience: Patience,
        incarnation: Incarnation,
        failure: Failure,
    ) -> Next {
        let salt = incarnation.0 ^ mixed(self.cursor.done.0);
        let (after, cause) = match failure {
            Failure::Retry { after, cause } => (after, cause),
            Failure::Poison => return Next::GiveUp(Cause::Poison),
            // It is no attempt, but the time passes.
            Failure::Busy { .. } if self.trouble.is_over(now, patience.total) => {
                return Next::GiveUp(Cause::Asked);
            }
            Failure::Busy { after } => {
                self.refusals = self.refusals.saturating_add(1);
                return Next::Pause(patience.pause(self.refusals, after, salt));
            }
            Failure::Later { .. } if self.trouble.is_over(now, patience.total) => {
                return Next::GiveUp(Cause::Undelivered);
            }
            // Many channels hear the same time: they are not to come together.
            Failure::Later { after } => return Next::Pause(patience.pause(self.attempts, Some(after), salt)),
            // The dead letter was not kept: there are as many as there may be.
            Failure::Untried if self.trouble.burying => {
                return Next::Pause(patience.pause(self.attempts, None, salt));
            }
            // Nothing was wrong with the endpoint.
            Failure::Untried => return Next::Pause(patience.first.min(patience.longest)),
        };
        let over = self.trouble.is_over(now, patience.total);
        self.attempts = self.attempts.saturating_add(1);
        let many = self
            .consumer
            .attempts_max
            .is_some_and(|most| self.attempts >= most);
        if over || many {
            return Next::GiveUp(cause);
        }
        Next::Pause(patience.pause(self.attempts, after, salt))
    }
}
