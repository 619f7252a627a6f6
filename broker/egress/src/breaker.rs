//! An endpoint that fails again and again, or asks for it, is left alone for a while.

use std::time::{Duration, Instant};

/// Failures in a row that open it.
const FAILURES_MAX: u32 = 5;
/// First pause; doubles each time that it opens again without a success in between.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// Longest pause of its own.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Longest pause that an endpoint may ask for.
const HOLD_MAX: Duration = Duration::from_secs(3_600);

/// Whether an endpoint gets requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It does.
    Closed,
    /// One at a time.
    HalfOpen,
    /// It does not, for a while.
    Open,
}

impl State {
    /// Its name, as people read it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            State::Closed => "closed",
            State::HalfOpen => "half-open",
            State::Open => "open",
        }
    }
}

/// The breaker of one endpoint.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    /// Failures since the last success.
    failures: u32,
    openings: u32,
    until: Option<Instant>,
    /// A request tries whether the endpoint is back.
    probing: bool,
}

impl Breaker {
    /// Whether a request may go now; else how long to wait.
    pub(crate) fn admit(&mut self, now: Instant) -> Result<(), Duration> {
        match self.until {
            None => Ok(()),
            Some(until) if now < until => Err(until - now),
            Some(_) if self.probing => Err(PAUSE_FIRST),
            Some(_) => {
                self.probing = true;
                Ok(())
            }
        }
    }

    /// A request that was admitted was taken.
    pub(crate) fn taken(&mut self) {
        *self = Breaker::default();
    }

    /// One was not, and the endpoint may want a pause.
    pub(crate) fn failed(&mut self, now: Instant, wished: Option<Duration>) {
        self.failures = self.failures.saturating_add(1);
        self.probing = false;
        let own = if self.failures >= FAILURES_MAX {
            let doublings = self.openings.min(16);
            self.openings = self.openings.saturating_add(1);
            Some(PAUSE_FIRST.saturating_mul(1 << doublings).min(PAUSE_MAX))
        } else {
            None
        };
        let wished = wished.map(|wished| wished.min(HOLD_MAX));
        if let Some(pause) = own.max(wished) {
            let until = now + pause;
            self.until = Some(self.until.map_or(until, |former| former.max(until)));
        }
    }

    /// A request that was admitted did not run after all.
    pub(crate) fn untried(&mut self) {
        self.probing = false;
    }

    pub(crate) fn state(&self, now: Instant) -> State {
        match self.until {
            None => State::Closed,
            Some(until) if now < until => State::Open,
            Some(_) => State::HalfOpen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_probes_and_closes() {
        let mut breaker = Breaker::default();
        let start = Instant::now();
        for _ in 0..FAILURES_MAX {
            assert_eq!(breaker.admit(start), Ok(()));
            breaker.failed(start, None);
        }
        assert_eq!(
            (breaker.state(start), breaker.admit(start)),
            (State::Open, Err(PAUSE_FIRST))
        );
        let later = start + PAUSE_FIRST;
        assert_eq!(
            (breaker.state(later), breaker.admit(later)),
            (State::HalfOpen, Ok(()))
        );
        assert!(breaker.admit(later).is_err(), "one probe");
        breaker.failed(later, None);
        assert_eq!(breaker.admit(later), Err(PAUSE_FIRST * 2));
        let later = later + PAUSE_FIRST * 2;
        assert_eq!(breaker.admit(later), Ok(()));
        breaker.untried();
        assert_eq!(breaker.admit(later), Ok(()), "the next one probes");
        breaker.taken();
        assert_eq!(
            (breaker.state(later), breaker.admit(later)),
            (State::Closed, Ok(()))
        );
    }

    #[test]
    fn one_wish_holds_all_within_a_bound() {
        let mut breaker = Breaker::default();
        let start = Instant::now();
        breaker.failed(start, Some(Duration::from_secs(30)));
        assert_eq!(breaker.admit(start), Err(Duration::from_secs(30)));
        breaker.failed(start, Some(Duration::from_secs(1_000_000)));
        assert_eq!(breaker.admit(start), Err(HOLD_MAX));
    }
}
