//! Mutations that repeat: the ordinary test tries the same ones every time.

/// A small source of numbers that repeats (splitmix64).
#[derive(Clone, Copy, Debug)]
pub struct Draw(pub u64);

impl Draw {
    /// The next number below a bound.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        usize::try_from(mixed % (bound.max(1) as u64)).unwrap_or_default()
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap_or_default()
    }
}

/// Longest input that mutations make, in bytes.
const INPUT_BYTES_MAX: usize = 4_096;

/// Changes an input at a few places: bits, bytes, edges, removed, doubled and foreign parts.
pub fn mutate(bytes: &mut Vec<u8>, others: &[Vec<u8>], draw: &mut Draw) {
    for _ in 0..=draw.below(5) {
        let at = draw.below(bytes.len() + 1);
        match draw.below(8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << draw.below(8),
            1 if at < bytes.len() => bytes[at] = draw.byte(),
            2 if at < bytes.len() => bytes[at] = [0, 0x7f, 0x80, 0xff][draw.below(4)],
            3 => bytes.insert(at, draw.byte()),
            4 if at < bytes.len() => {
                let end = (at + 1 + draw.below(16)).min(bytes.len());
                bytes.drain(at..end);
            }
            5 => {
                let end = (at + draw.below(64)).min(bytes.len());
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            6 if !others.is_empty() => {
                let other = &others[draw.below(others.len())];
                let start = draw.below(other.len() + 1);
                let end = (start + draw.below(128)).min(other.len());
                bytes.splice(at..at, other[start..end].iter().copied());
            }
            _ => bytes.truncate(at.max(bytes.len() / 2)),
        }
    }
    bytes.truncate(INPUT_BYTES_MAX);
}
