//! When things are due: the run's clock, the schedule of the open loop, and the thread that keeps it.

use std::time::{Duration, Instant};

/// The clock of one run: nanoseconds since its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that starts now.
    #[must_use]
    pub(crate) fn start() -> Self {
        Self {
            start: Instant::now(),
        }
    }

    /// Nanoseconds since the start.
    #[must_use]
    pub(crate) fn now_ns(&self) -> u64 {
        nanoseconds(self.start.elapsed())
    }

    /// The instant of a time of this clock.
    #[must_use]
    pub(crate) fn instant(&self, at_ns: u64) -> Instant {
        self.start + Duration::from_nanos(at_ns)
    }
}

/// A duration in nanoseconds; beyond 584 years it stays there.
#[must_use]
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The thread that keeps a schedule wakes at most this often: at high rates what falls due meanwhile is given together, which costs
/// a part of this in latency instead of a large part of a processor.
const WAKE_INTERVAL_NS: u64 = 500_000;

/// A constant rate. Times are computed from the start, not from one another, so that no error adds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// When the first is due, in nanoseconds of the run's clock.
    pub(crate) start_ns: u64,
    /// How many are due per second; at least 1.
    pub(crate) per_second: u64,
}

impl Schedule {
    /// When the one with this number, from 0, is due, in nanoseconds of the run's clock.
    #[must_use]
    pub(crate) fn due_ns(&self, number: u64) -> u64 {
        let after = u128::from(number) * 1_000_000_000 / u128::from(self.per_second.max(1));
        self.start_ns
            .saturating_add(u64::try_from(after).unwrap_or(u64::MAX))
    }

    /// Calls `give` with the number and due time of each that is due before `end_ns`, at its time or as soon after it as the
    /// system allows. Blocks its thread: timers of the runtime round to a millisecond, which would count as latency.
    /// Ends early when `give` says false.
    pub(crate) fn keep(&self, clock: Clock, end_ns: u64, mut give: impl FnMut(u64, u64) -> bool) {
        let mut woken_ns = 0;
        for number in 0.. {
            let due_ns = self.due_ns(number);
            if due_ns >= end_ns {
                return;
            }
            let now_ns = clock.now_ns();
            if due_ns > now_ns {
                let wake_ns = due_ns.max(woken_ns + WAKE_INTERVAL_NS);
                std::thread::sleep(Duration::from_nanos(wake_ns.saturating_sub(now_ns)));
                woken_ns = clock.now_ns();
            }
            if !give(number, due_ns) {
                return;
            }
        }
    }
}

/// The ends of the intervals that a run is reported in: a second each, the last of the warm-up and of the measurement as
/// long as what is left. Each with whether it is measured.
#[must_use]
pub(crate) fn ticks(warm_up: Duration, measured: Duration) -> Vec<(Duration, bool)> {
    const SECOND: Duration = Duration::from_secs(1);
    let mut ticks = Vec::new();
    let end = warm_up + measured;
    let mut at = Duration::ZERO;
    while at < end {
        let counts = at >= warm_up;
        at = (at + SECOND).min(if counts { end } else { warm_up });
        ticks.push((at, counts));
    }
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_does_not_drift() {
        let schedule = Schedule {
            start_ns: 500,
            per_second: 3,
        };
        assert_eq!(schedule.due_ns(0), 500);
        assert_eq!(schedule.due_ns(1), 333_333_833);
        assert_eq!(schedule.due_ns(3), 1_000_000_500);
        assert_eq!(schedule.due_ns(3_000_000), 1_000_000_000_000_500);
    }

    #[test]
    fn everything_due_is_given_once_and_never_early() {
        let clock = Clock::start();
        let schedule = Schedule {
            start_ns: 0,
            per_second: 100_000,
        };
        let mut given = Vec::new();
        let mut early = 0;
        schedule.keep(clock, 5_000_000, |number, due_ns| {
            early += usize::from(clock.now_ns() < due_ns);
            given.push(number);
            true
        });
        assert_eq!(given, (0..500).collect::<Vec<u64>>());
        assert_eq!(early, 0);
    }

    #[test]
    fn a_schedule_ends_when_nobody_listens() {
        let mut given = 0;
        let schedule = Schedule {
            start_ns: 0,
            per_second: 1_000_000,
        };
        schedule.keep(Clock::start(), u64::MAX, |_, _| {
            given += 1;
            given < 7
        });
        assert_eq!(given, 7);
    }

    #[test]
    fn ticks_end_exactly_with_the_warm_up_and_the_measurement() {
        let milliseconds = |ticks: Vec<(Duration, bool)>| -> Vec<(u128, bool)> {
            ticks
                .into_iter()
                .map(|(at, counts)| (at.as_millis(), counts))
                .collect()
        };
        assert_eq!(
            milliseconds(ticks(Duration::from_millis(1_500), Duration::from_millis(2_200))),
            [
                (1_000, false),
                (1_500, false),
                (2_500, true),
                (3_500, true),
                (3_700, true)
            ]
        );
        assert_eq!(
            milliseconds(ticks(Duration::ZERO, Duration::from_secs(1))),
            [(1_000, true)]
        );
    }
}
