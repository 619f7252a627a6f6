//! The one place of the broker that reads clocks for the core.

use penstock_core::types::Now;
use std::time::{Duration, Instant, SystemTime};

/// Turns the machine's clocks into the core's [`Now`].
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock {
            start: Instant::now(),
        }
    }
}

impl Clock {
    /// The time now.
    #[must_use]
    pub fn now(&self) -> Now {
        Now {
            monotonic: self.start.elapsed(),
            wall_ms: Clock::wall_ms(),
        }
    }

    /// The wall clock, ms since 1970.
    #[must_use]
    pub fn wall_ms() -> u64 {
        let wall = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        u64::try_from(wall.as_millis()).unwrap_or(u64::MAX)
    }

    /// The instant of a deadline of the core.
    #[must_use]
    pub fn instant(&self, deadline: Duration) -> Instant {
        self.start + deadline
    }
}
