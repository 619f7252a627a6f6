//! Chance from a seed: xorshift, so that a walk can be walked again.

pub(crate) struct Rng(u64);

impl Rng {
    /// Different salts give unrelated streams for one seed.
    pub(crate) fn new(seed: u64, salt: u64) -> Self {
        let mut rng = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(salt) | 1);
        for _ in 0..8 {
            rng.next();
        }
        rng
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((self.next() >> 11) % bound as u64) as usize
    }

    /// True once in so many times.
    pub(crate) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
