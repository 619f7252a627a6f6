//! What ends a call: the deadline of its binding, and on the thread of a shard a far shorter patience.

use crate::engine::TICK;
use std::time::{Duration, Instant};
use wasmtime::UpdateDeadline;

/// Ticks that find a guest on a shard's thread, however long it waited for a processor meanwhile.
const TICKS_MAX: u32 = 20;
/// So long a guest may run there after the first of them: a tick, and room for one that comes early.
const RUN_MAX: Duration = TICK.saturating_sub(Duration::from_micros(100));

/// How long a call may take.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// Until this much time has passed.
    Until(Duration),
    /// One to two ticks of running on the thread of a shard.
    Shard,
}

/// What a tick that finds the guest running means.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Hold {
    /// Its time is up.
    #[default]
    Deadline,
    /// It is on the thread of a shard, which may have waited for a processor since the call began: that is not the guest's fault, so
    /// what counts is how long it ran.
    Shard {
        /// Ticks that found it so far.
        ticks: u32,
        /// When the first of them did, and how long the thread had waited for processors until then.
        first: Option<(Instant, Duration)>,
    },
}

impl Hold {
    pub(crate) fn of(patience: Patience) -> Hold {
        match patience {
            Patience::Until(_) => Hold::Deadline,
            Patience::Shard => Hold::Shard {
                ticks: 0,
                first: None,
            },
        }
    }

    /// Whether it is on the thread of a shard.
    pub(crate) fn is_shard(self) -> bool {
        matches!(self, Hold::Shard { .. })
    }

    /// A tick found the guest running.
    pub(crate) fn tick(&mut self) -> UpdateDeadline {
        self.found(Instant::now(), waited())
    }

    fn found(&mut self, now: Instant, waited: Duration) -> UpdateDeadline {
        let Hold::Shard { ticks, first } = self else {
            return UpdateDeadline::Interrupt;
        };
        *ticks += 1;
        let &mut (since, before) = first.get_or_insert((now, waited));
        let ran = now
            .saturating_duration_since(since)
            .saturating_sub(waited.saturating_sub(before));
        if ran >= RUN_MAX || *ticks > TICKS_MAX {
            return UpdateDeadline::Interrupt;
        }
        UpdateDeadline::Continue(1)
    }
}

/// How long this thread has waited for processors since it began; always the same where the system does not say, and then time
/// alone counts.
fn waited() -> Duration {
    let counts = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = counts.split_ascii_whitespace().nth(1);
    Duration::from_nanos(
        nanoseconds
            .and_then(|number| number.parse().ok())
            .unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(hold: &mut Hold, now: Instant, waited: Duration) -> bool {
        matches!(hold.found(now, waited), UpdateDeadline::Interrupt)
    }

    #[test]
    fn a_guest_on_a_shard_ends_when_it_ran_for_a_tick_after_the_first() {
        let mut hold = Hold::of(Patience::Shard);
        let mut now = Instant::now();
        let mut waited = Duration::from_secs(7);
        assert!(!ends(&mut hold, now, waited));
        now += TICK;
        waited += TICK / 2;
        assert!(!ends(&mut hold, now, waited), "it waited for half of the time");
        now += TICK;
        waited += TICK;
        assert!(!ends(&mut hold, now, waited), "and for all of this");
        now += TICK;
        assert!(ends(&mut hold, now, waited));
    }

    #[test]
    fn time_alone_counts_where_the_system_does_not_say() {
        let mut hold = Hold::of(Patience::Shard);
        let now = Instant::now();
        assert!(!ends(&mut hold, now, Duration::ZERO));
        assert!(ends(&mut hold, now + TICK, Duration::ZERO));
    }

    #[test]
    fn no_guest_stays_on_a_shard_for_ever() {
        let mut hold = Hold::of(Patience::Shard);
        let begin = Instant::now();
        let ended = (0..1_000).position(|turn| ends(&mut hold, begin + TICK * turn, TICK * turn));
        assert_eq!(ended, Some(TICKS_MAX as usize));
    }

    #[test]
    fn a_tick_is_the_end_elsewhere() {
        let mut hold = Hold::of(Patience::Until(Duration::ZERO));
        assert!(ends(&mut hold, Instant::now(), Duration::ZERO));
    }
}
