//! Chance, drawn from one seed by separate salted streams, so that a draw for one purpose never moves another's.

use std::time::Duration;

/// What a stream of chance is for. The number is the salt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Sizes, bounds and weights of a run.
    Settings = 1,
    /// Latency, loss, repetition.
    Network = 2,
    /// Times of a disk.
    Disk = 3,
    /// Which fault comes when.
    Faults = 4,
    /// What users do.
    Clients = 5,
    /// Boot ids and clocks.
    Nodes = 6,
    /// Times that a shard takes for an event.
    Shards = 7,
    /// What is lost at a crash, which rows are missing from memory.
    Losses = 8,
    /// Aimed faults and what belongs to them.
    Aimed = 9,
    /// Blows that wait from the beginning.
    First = 11,
    /// What plugins do, and who deploys them.
    Plugins = 12,
}

/// A small generator (splitmix64): fast, and good enough to choose faults.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The stream of a seed.
    #[must_use]
    pub fn new(seed: u64, stream: Stream) -> Rng {
        Rng::salted(seed, stream as u64)
    }

    /// A stream of a seed for one of several like things.
    #[must_use]
    pub fn salted(seed: u64, salt: u64) -> Rng {
        let mut rng = Rng(seed ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        rng.draw();
        Rng(rng.draw())
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `bound`; 0 when the bound is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.draw() % bound }
    }

    /// An index below `bound`.
    pub fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).expect("below a usize")
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True in `parts` of 1,000 draws.
    pub fn permille(&mut self, parts: u32) -> bool {
        self.below(1_000) < u64::from(parts)
    }

    /// One of the choices.
    pub fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())].clone()
    }

    /// A time in `low..=high`.
    pub fn time(&mut self, low: Duration, high: Duration) -> Duration {
        let nanoseconds = self.between(nanoseconds(low), nanoseconds(high));
        Duration::from_nanos(nanoseconds)
    }

    /// A time around `mean` with the long tail of a real one: half of all draws are below it, some are ten times it.
    pub fn tailed(&mut self, mean: Duration) -> Duration {
        let mean = nanoseconds(mean).max(2);
        let spread = match self.below(64) {
            0 => mean * 10,
            1..=8 => mean * 3,
            _ => mean,
        };
        Duration::from_nanos(mean / 2 + self.below(spread))
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_one_seed_differ_and_repeat() {
        let mut network = Rng::new(7, Stream::Network);
        let mut disk = Rng::new(7, Stream::Disk);
        let mut again = Rng::new(7, Stream::Network);
        let first: Vec<u64> = (0..8).map(|_| network.draw()).collect();
        assert_ne!(first, (0..8).map(|_| disk.draw()).collect::<Vec<_>>());
        assert_eq!(first, (0..8).map(|_| again.draw()).collect::<Vec<_>>());
    }

    #[test]
    fn bounds_hold() {
        let mut rng = Rng::new(1, Stream::Faults);
        for _ in 0..1_000 {
            assert!((3..=5).contains(&rng.between(3, 5)));
            assert!(rng.index(4) < 4);
        }
        assert_eq!(rng.below(0), 0);
        let low = Duration::from_millis(2);
        let high = Duration::from_millis(4);
        assert!((0..1_000).all(|_| (low..=high).contains(&rng.time(low, high))));
    }
}
