//! How long something is tried that may be away for hours, and how the pauses between the attempts grow. A pause is the same whoever computes it
//! from the same facts, and another one for everything that is tried: nothing is drawn.

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
    pub(crate) fn pause(self, attempts: u32, wished: Option<Duration>, salt: u64) -> Duration {
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
pub(crate) fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
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
