//! Whether the calls of a version may run on the thread of their caller. That is earned by being quick, and lost by one call that
//! holds it up.

use std::time::{Duration, Instant};

/// Calls of more messages always cross to a thread of the host: they share its price, and would hold the caller for longer.
pub(super) const MESSAGES_MAX: u64 = 16;
/// So many calls are looked at together.
const WINDOW: u32 = 1_000;
/// A version keeps the thread of its callers while at most one in twenty of its calls there takes so long or longer. That is several
/// times what a quick one needs: on a busy machine threads lose their processor and their caches in the middle of calls.
const QUICK: Duration = Duration::from_micros(50);
const SLOW_MAX: u32 = WINDOW / 20;
/// To be tried there it needs no more than this on the threads of the host, which were asleep a moment ago and find nothing of it in
/// their caches: what is quick on a thread that is at work takes several times as long there.
const QUICK_ELSEWHERE: Duration = Duration::from_micros(200);
const SLOW_ELSEWHERE_MAX: u32 = WINDOW / 20;
/// What loses it waits for so long at first, and for twice as long each time.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(64);
/// What kept it for so long is forgiven what was before.
const FORGIVEN: Duration = Duration::from_secs(120);

/// What is known of the pace of a version.
#[derive(Debug)]
pub(super) struct Pace {
    allowed: bool,
    /// Since when its calls run on the threads of callers.
    inline: Option<Instant>,
    not_before: Option<Instant>,
    pause: Duration,
    calls: u32,
    slow: u32,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            allowed: false,
            inline: None,
            not_before: None,
            pause: PAUSE_FIRST,
            calls: 0,
            slow: 0,
        }
    }
}

/// A call that ran.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ran {
    /// Time inside the guest.
    pub(super) took: Duration,
    /// Whether it ran on the thread of its caller.
    pub(super) inline: bool,
    pub(super) messages: u64,
    /// How it failed.
    pub(super) failed: Option<&'static str>,
}

/// What a call changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Promoted,
    /// With the reason.
    Demoted(&'static str),
}

impl Pace {
    /// Whether calls may run on the thread of their caller now.
    pub(super) fn is_inline(&self) -> bool {
        self.inline.is_some()
    }

    /// What is called under its name is another instance of it now.
    pub(super) fn begin_anew(&mut self) {
        *self = Pace {
            allowed: self.allowed,
            ..Pace::default()
        };
    }

    /// What the operator says. The change, if that ends it.
    pub(super) fn allow(&mut self, allowed: bool) -> Option<Change> {
        self.allowed = allowed;
        if allowed {
            return None;
        }
        self.begin_window();
        self.inline.take().map(|_| Change::Demoted("forbidden"))
    }

    /// A call ran, wherever that was.
    pub(super) fn ran(&mut self, ran: Ran, now: Instant) -> Option<Change> {
        if !self.allowed {
            return None;
        }
        if let Some(failed) = ran.failed {
            self.begin_window();
            return self.demote(failed, now);
        }
        // What went to a thread although it need not says nothing of how it is here.
        if ran.messages > MESSAGES_MAX || ran.inline != self.is_inline() {
            return None;
        }
        let (quick, slow_max) = if ran.inline {
            (QUICK, SLOW_MAX)
        } else {
            (QUICK_ELSEWHERE, SLOW_ELSEWHERE_MAX)
        };
        self.calls += 1;
        self.slow += u32::from(ran.took >= quick);
        if self.slow > slow_max {
            self.begin_window();
            return self.demote("slow", now);
        }
        if self.calls < WINDOW {
            return None;
        }
        self.begin_window();
        let waits = self.not_before.is_some_and(|at| now < at);
        if self.inline.is_some() || waits {
            return None;
        }
        self.inline = Some(now);
        Some(Change::Promoted)
    }

    fn begin_window(&mut self) {
        (self.calls, self.slow) = (0, 0);
    }

    fn demote(&mut self, why: &'static str, now: Instant) -> Option<Change> {
        let since = self.inline.take()?;
        if now.duration_since(since) >= FORGIVEN {
            self.pause = PAUSE_FIRST;
        }
        self.not_before = Some(now + self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        Some(Change::Demoted(why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As it is on the threads of the host.
    const FAST: Ran = Ran {
        took: Duration::from_micros(150),
        inline: false,
        messages: 1,
        failed: None,
    };
    const SLOW: Ran = Ran {
        took: Duration::from_micros(250),
        ..FAST
    };
    /// As it is on the thread of its caller.
    const FAST_HERE: Ran = Ran {
        took: Duration::from_micros(5),
        inline: true,
        ..FAST
    };
    const SLOW_HERE: Ran = Ran {
        took: Duration::from_micros(55),
        ..FAST_HERE
    };

    fn allowed() -> Pace {
        let mut pace = Pace::default();
        assert_eq!(pace.allow(true), None);
        pace
    }

    /// Calls until something changes.
    fn until_change(pace: &mut Pace, ran: Ran, now: Instant) -> Option<(u32, Change)> {
        (1..=10 * WINDOW).find_map(|call| pace.ran(ran, now).map(|change| (call, change)))
    }

    #[test]
    fn quick_calls_earn_it_and_a_failure_begins_anew() {
        let now = Instant::now();
        let mut pace = allowed();
        for _ in 0..WINDOW - 1 {
            assert_eq!(pace.ran(FAST, now), None);
        }
        let failed = Ran {
            failed: Some("trap"),
            ..FAST
        };
        assert_eq!(pace.ran(failed, now), None);
        assert_eq!(
            until_change(&mut pace, FAST, now),
            Some((WINDOW, Change::Promoted))
        );
        assert!(pace.is_inline());
        assert_eq!(pace.ran(failed, now), Some(Change::Demoted("trap")));
        assert!(!pace.is_inline());
    }

    #[test]
    fn some_slow_calls_are_allowed_and_what_is_slow_depends_on_the_thread() {
        let now = Instant::now();
        let mut pace = allowed();
        assert_eq!(until_change(&mut pace, SLOW, now), None);
        pace = allowed();
        for _ in 0..SLOW_ELSEWHERE_MAX {
            assert_eq!(pace.ran(SLOW, now), None);
        }
        let left = WINDOW - SLOW_ELSEWHERE_MAX;
        assert_eq!(until_change(&mut pace, FAST, now), Some((left, Change::Promoted)));
        assert_eq!(
            until_change(&mut pace, SLOW, now),
            None,
            "of a thread of the host"
        );
        assert_eq!(until_change(&mut pace, FAST_HERE, now), None);
        let demoted = Some((SLOW_MAX + 1, Change::Demoted("slow")));
        assert_eq!(until_change(&mut pace, SLOW_HERE, now), demoted);
        assert_eq!(until_change(&mut pace, SLOW, now), None);
    }

    #[test]
    fn large_batches_say_nothing() {
        let now = Instant::now();
        let mut pace = allowed();
        let large = Ran {
            messages: MESSAGES_MAX + 1,
            ..SLOW
        };
        assert_eq!(until_change(&mut pace, large, now), None);
    }

    #[test]
    fn each_loss_waits_longer_and_a_long_good_time_is_forgiven() {
        let mut now = Instant::now();
        let mut pace = allowed();
        let overran = Ran {
            failed: Some("overrun"),
            ..SLOW
        };
        for doubled in 0..8 {
            assert!(until_change(&mut pace, FAST, now).is_some());
            assert!(pace.ran(overran, now).is_some());
            let pause = (PAUSE_FIRST * 2_u32.pow(doubled)).min(PAUSE_MAX);
            now += pause - Duration::from_millis(1);
            assert_eq!(until_change(&mut pace, FAST, now), None);
            now += Duration::from_millis(1);
        }
        assert!(until_change(&mut pace, FAST, now).is_some());
        now += FORGIVEN;
        assert!(pace.ran(overran, now).is_some());
        now += PAUSE_FIRST;
        assert!(until_change(&mut pace, FAST, now).is_some());
    }

    #[test]
    fn what_is_not_allowed_is_never_inline() {
        let now = Instant::now();
        let mut pace = Pace::default();
        assert_eq!(until_change(&mut pace, FAST, now), None);
        let mut pace = allowed();
        assert!(until_change(&mut pace, FAST, now).is_some());
        assert_eq!(pace.allow(false), Some(Change::Demoted("forbidden")));
        assert!(!pace.is_inline());
        assert_eq!(pace.allow(false), None);
    }
}
