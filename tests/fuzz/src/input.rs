//! Bytes read as choices. Every input means something: what is missing at its end reads as zero.

/// What is left of an input.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    /// The whole input.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { rest: bytes }
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// One byte.
    pub fn u8(&mut self) -> u8 {
        let Some((&first, rest)) = self.rest.split_first() else {
            return 0;
        };
        self.rest = rest;
        first
    }

    /// Two bytes as a number.
    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.u8(), self.u8()])
    }

    /// A number that is mostly small and sometimes at an edge: counters and sizes are interesting there.
    pub fn number(&mut self) -> u64 {
        match self.u8() {
            small @ 0..=199 => u64::from(small),
            200..=219 => u64::from(self.u16()),
            220..=229 => u64::from(u32::MAX) - u64::from(self.u8()),
            230..=239 => u64::MAX - u64::from(self.u8()),
            240..=247 => 1 << (self.u8() % 64),
            _ => {
                let mut bytes = [0; 8];
                bytes.fill_with(|| self.u8());
                u64::from_be_bytes(bytes)
            }
        }
    }

    /// A choice among so many, at least one.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::from(self.u8()) % bound.max(1)
    }

    /// One of these.
    pub fn one_of<'b, T: ?Sized>(&mut self, choices: &[&'b T]) -> &'b T {
        choices[self.below(choices.len())]
    }

    /// Whether one in so many inputs says so here.
    pub fn rarely(&mut self, one_in: u8) -> bool {
        self.u8() % one_in.max(1) == one_in - 1
    }

    /// At most so many bytes.
    pub fn bytes(&mut self, at_most: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(at_most.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// A length and so many bytes.
    pub fn chunk(&mut self) -> &'a [u8] {
        let length = match self.u8() {
            short @ 0..=239 => usize::from(short),
            long => usize::from(long - 239) * 512,
        };
        self.bytes(length)
    }

    /// A length and a text of so many bytes; what is not UTF-8 is replaced.
    pub fn text(&mut self) -> String {
        String::from_utf8_lossy(self.chunk()).into_owned()
    }

    /// Everything that is left.
    pub fn remaining(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }
}

/// Cuts bytes into pieces at places that the input chooses; no piece is empty.
pub fn cut<'b>(bytes: &'b [u8], input: &mut Input<'_>) -> Vec<&'b [u8]> {
    let mut pieces = Vec::new();
    let mut rest = bytes;
    // Some cuts are enough to meet every boundary in time, and each costs a system call.
    for _ in 0..input.below(8) {
        let at = 1 + usize::from(input.u16()) % rest.len().max(1);
        if at >= rest.len() {
            break;
        }
        let (piece, after) = rest.split_at(at);
        pieces.push(piece);
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(rest);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_the_whole_again_and_a_short_input_reads_as_zeros() {
        let bytes: Vec<u8> = (0..100).collect();
        for choices in [&[][..], &[7, 0, 0, 0, 0, 0, 200, 1, 4], &[255; 40]] {
            let pieces = cut(&bytes, &mut Input::new(choices));
            assert!(pieces.iter().all(|piece| !piece.is_empty()));
            assert_eq!(pieces.concat(), bytes);
        }
        let mut input = Input::new(&[9]);
        assert_eq!(
            (input.u16(), input.number(), input.text()),
            (0x0900, 0, String::new())
        );
    }
}
