//! Consumers that are tried for a time instead of a number of times: what they deliver to may be away for hours.
//!
//! # Invariants
//! - A record is given up only when it, and everything before it, has failed for the whole time; so an outage gives up each record
//!   when that one is old enough, not all that came meanwhile.
//! - A pause is the same whoever computes it from the same facts, and another one for every channel: nothing is drawn.

use super::progress::Progress;
use super::{Cause, Failure};
use crate::message::Record;
use crate::types::{Incarnation, Now};
use std::time::Duration;

/// How long a record is tried, and how the pauses grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// After the first failed attempt; doubles with each.
    pub first: Duration,
    /// Longest pause, also when the consumer wants a longer one.
    pub longest: Duration,
    /// Time after which a record is given up.
    pub total: Duration,
}

impl Patience {
    /// The pause after so many failed attempts, or the one that is wished. `salt` spreads the pauses of different channels: over the
    /// upper half of a pause, over a tenth beyond one that is wished.
    fn pause(self, attempts: u32, wished: Option<Duration>, salt: u64) -> Duration {
        let share = mixed(salt ^ u64::from(attempts)) % 1_000;
        let part = |whole: Duration, parts: u64| {
            let millis = u64::try_from(whole.as_millis()).unwrap_or(u64::MAX);
            Duration::from_millis(millis.saturating_mul(share) / (1_000 * parts))
        };
        match wished {
            Some(wished) => wished.saturating_add(part(wished, 10)).min(self.longest),
            None => {
                let doublings = attempts.saturating_sub(1).min(31);
                let whole = self.first.saturating_mul(1 << doublings).min(self.longest);
                whole / 2 + part(whole, 2)
            }
        }
    }
}

/// The finaliser of `SplitMix64`: neighbouring numbers come out far from each other.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience {
        first: Duration::from_secs(1),
        longest: Duration::from_secs(60),
        total: Duration::from_secs(600),
    };

    #[test]
    fn pauses_double_up_to_the_longest_and_differ_between_channels() {
        for attempts in 1..40 {
            let whole = Duration::from_secs(1 << (attempts - 1).min(6)).min(PATIENCE.longest);
            let pauses: Vec<Duration> = (0..50).map(|salt| PATIENCE.pause(attempts, None, salt)).collect();
            assert!(pauses.iter().all(|pause| (whole / 2..=whole).contains(pause)));
            assert!(pauses.iter().any(|pause| *pause != pauses[0]));
        }
    }

    #[test]
    fn a_wished_pause_is_kept_up_to_the_longest() {
        let wished = Duration::from_secs(20);
        for salt in 0..50 {
            let pause = PATIENCE.pause(1, Some(wished), salt);
            assert!((wished..=wished + wished / 10).contains(&pause), "{pause:?}");
        }
        let hours = Duration::from_secs(7_200);
        assert_eq!(PATIENCE.pause(1, Some(hours), 0), PATIENCE.longest);
    }
}
