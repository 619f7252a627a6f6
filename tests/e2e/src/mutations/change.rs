//! Changing bytes, by numbers that look drawn and are the same in every run.

/// Bytes at which lengths and texts turn into something else.
const EXTREMES: [u8; 8] = [0, 1, 0x0a, 0x22, 0x7f, 0x80, 0xfe, 0xff];
/// At most so many edits make a changed packet.
const EDITS_MAX: usize = 4;

/// Numbers that look drawn.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Those of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next, of 32 bits.
    pub fn draw(&mut self) -> u32 {
        // The step and the mixing of SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed >> 32) as u32
    }

    /// A number below this one, 0 below 0.
    pub fn below(&mut self, bound: usize) -> usize {
        self.draw() as usize % bound.max(1)
    }

    /// The packet with one to four edits. It is another one, and not empty.
    pub fn changed(&mut self, packet: &[u8]) -> Vec<u8> {
        loop {
            let mut bytes = packet.to_vec();
            for _ in 0..=self.below(EDITS_MAX) {
                self.edit(&mut bytes);
            }
            if !bytes.is_empty() && bytes != packet {
                return bytes;
            }
        }
    }

    fn edit(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len());
        let drawn = self.draw() as u8;
        match self.below(8) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, drawn),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            // Some of it once more, at the end.
            3 => bytes.extend_from_within(at..bytes.len().min(at + 8)),
            4 => replace(bytes, at, |_| EXTREMES[usize::from(drawn) % EXTREMES.len()]),
            5 => replace(bytes, at, |byte| byte ^ 1 << (drawn % 8)),
            _ => replace(bytes, at, |_| drawn),
        }
    }
}

fn replace(bytes: &mut [u8], at: usize, value: impl Fn(u8) -> u8) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte = value(*byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_packet_is_another_one_and_the_same_in_every_run() {
        let mut orders = Vec::new();
        for packet in [&b"p"[..], b"\x10", b"a packet of some length"] {
            let (mut first, mut second) = (Dice::new(7), Dice::new(7));
            for _ in 0..1_000 {
                let changed = first.changed(packet);
                assert!(!changed.is_empty() && changed != packet);
                assert_eq!(changed, second.changed(packet));
                orders.push(changed.len().cmp(&packet.len()));
            }
        }
        orders.sort_unstable();
        orders.dedup();
        assert_eq!(orders.len(), 3, "shorter, as long, longer");
    }
}
