//! What ends a call: the deadline of its binding, and on the thread of a shard a far shorter patience.

use std::time::Duration;
use wasmtime::UpdateDeadline;

/// Ticks that find a guest on a shard's thread, however often the system took the processor away meanwhile.
const TICKS_MAX: u32 = 20;

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
    /// It is on the thread of a shard, which may have been without a processor since the call began: that is not the guest's
    /// fault, so it must have run through from one tick to the next.
    Shard {
        /// Ticks that found it so far.
        ticks: u32,
        /// How often the thread had been given a processor at the last of them.
        turns: Option<u64>,
    },
}

impl Hold {
    pub(crate) fn of(patience: Patience) -> Hold {
        match patience {
            Patience::Until(_) => Hold::Deadline,
            Patience::Shard => Hold::Shard {
                ticks: 0,
                turns: None,
            },
        }
    }

    /// Whether it is on the thread of a shard.
    pub(crate) fn is_shard(self) -> bool {
        matches!(self, Hold::Shard { .. })
    }

    /// A tick found the guest running.
    pub(crate) fn tick(&mut self) -> UpdateDeadline {
        self.found(turns())
    }

    fn found(&mut self, now: Option<u64>) -> UpdateDeadline {
        let Hold::Shard { ticks, turns } = self else {
            return UpdateDeadline::Interrupt;
        };
        let ran_through = *ticks > 0 && *turns == now;
        if ran_through || *ticks >= TICKS_MAX {
            return UpdateDeadline::Interrupt;
        }
        *ticks += 1;
        *turns = now;
        UpdateDeadline::Continue(1)
    }
}

/// How often this thread was given a processor; none where the system does not say, and then time alone counts.
fn turns() -> Option<u64> {
    let counts = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    counts.split_ascii_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(hold: &mut Hold, turns: Option<u64>) -> bool {
        matches!(hold.found(turns), UpdateDeadline::Interrupt)
    }

    #[test]
    fn a_guest_on_a_shard_ends_when_it_ran_from_one_tick_to_the_next() {
        let mut hold = Hold::of(Patience::Shard);
        assert!(!ends(&mut hold, Some(7)));
        assert!(!ends(&mut hold, Some(8)), "the thread was off the processor");
        assert!(ends(&mut hold, Some(8)));

        let mut silent = Hold::of(Patience::Shard);
        assert!(!ends(&mut silent, None));
        assert!(ends(&mut silent, None));
    }

    #[test]
    fn no_guest_stays_on_a_shard_for_ever() {
        let mut hold = Hold::of(Patience::Shard);
        let ended = (0..1_000).position(|turn| ends(&mut hold, Some(turn)));
        assert_eq!(ended, Some(TICKS_MAX as usize));
    }

    #[test]
    fn a_tick_is_the_end_elsewhere() {
        assert!(ends(&mut Hold::of(Patience::Until(Duration::ZERO)), Some(1)));
    }

    #[test]
    fn the_system_says_how_often_this_thread_ran() {
        // Where it does not, there is nothing to compare.
        if let Some(before) = turns() {
            std::thread::sleep(Duration::from_millis(2));
            assert!(turns().is_some_and(|now| now > before));
        }
    }
}
