//! The replica as a whole: several of them over disks that forget, a network that loses, and a slot group that grants, in virtual
//! time, with a checker that looks from outside (M-20).

mod cases;
mod checker;
mod disk;
#[cfg(feature = "mutants")]
mod mutants;
mod slot;
mod walk;
mod world;

/// A small generator: the same seed gives the same walk.
#[derive(Clone, Debug)]
struct Rng(u64);

impl Rng {
    fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("below a usize")
    }

    fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }
}
