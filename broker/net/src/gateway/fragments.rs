//! Counting the fragments of a WebSocket message, which the library puts together without a bound on their number (rule S10).
//!
//! Browsers cut a long message into pieces of tens of thousands of bytes, as their own buffers happen to be filled. Those are bounded by
//! the bytes that a message may have. What is counted is short fragments, each of which costs more than its bytes.

/// Short fragments that a message may have.
const SHORT_FRAGMENTS_MAX: u8 = 16;
/// Fragments from this length on are not counted, in bytes. No message before the login is longer.
const SHORT_BYTES: u64 = 4 * 1024;
/// A frame's head without its mask: two bytes, and up to eight more of length (RFC 6455, section 5.2).
const HEAD_BYTES_MAX: usize = 10;
const MASK_BYTES: u64 = 4;
/// The first opcode of control frames, which may stand between fragments.
const FIRST_CONTROL: u8 = 0x8;

/// Follows the frames of one peer by their heads alone.
#[derive(Debug, Default)]
pub(super) struct Fragments {
    head: [u8; HEAD_BYTES_MAX],
    /// How much of the head has come.
    head_bytes: usize,
    /// How much of the frame is still to come after its head.
    rest: u64,
    /// Short fragments of the message that is coming.
    short: u8,
}

impl Fragments {
    /// How many of these bytes of the peer may be read on: all, or those before a frame that is one fragment too many. From then on none.
    pub(super) fn admit(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            if self.rest > 0 {
                let left = bytes.len() - at;
                let skipped = usize::try_from(self.rest).map_or(left, |rest| rest.min(left));
                at += skipped;
                self.rest -= skipped as u64;
                continue;
            }
            // What came of this head in earlier bytes has been read on; without its end it says nothing.
            let begin = at;
            while self.head_bytes < self.head_length() && at < bytes.len() {
                self.head[self.head_bytes] = bytes[at];
                self.head_bytes += 1;
                at += 1;
            }
            if self.head_bytes == self.head_length() && !self.take_head() {
                return begin;
            }
        }
        at
    }

    /// Length of the head, as far as what has come of it tells.
    fn head_length(&self) -> usize {
        match (self.head_bytes, self.head[1] & 0x7f) {
            (0 | 1, _) => 2,
            (_, 126) => 4,
            (_, 127) => 10,
            _ => 2,
        }
    }

    /// Judges a whole head. One that is refused stays, and is refused again.
    fn take_head(&mut self) -> bool {
        let [first, second, length @ ..] = self.head;
        let length = match second & 0x7f {
            126 => u64::from(u16::from_be_bytes([length[0], length[1]])),
            127 => u64::from_be_bytes(length),
            short => u64::from(short),
        };
        let opcode = first & 0x0f;
        if opcode < FIRST_CONTROL && length < SHORT_BYTES {
            // An opcode other than that of a continuation begins a message.
            let before = if opcode == 0 { self.short } else { 0 };
            if before == SHORT_FRAGMENTS_MAX {
                return false;
            }
            self.short = before + 1;
        } else if opcode < FIRST_CONTROL && opcode != 0 {
            self.short = 0;
        }
        self.head_bytes = 0;
        self.rest = if second & 0x80 == 0 { 0 } else { MASK_BYTES };
        // A length near the largest number is refused by the library long before it has come.
        self.rest = self.rest.saturating_add(length);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: u8 = 1;
    const FINAL: u8 = 0x80;

    /// A masked frame with this first byte and so many bytes of payload, that look like heads of frames.
    fn frame(first: u8, length: usize) -> Vec<u8> {
        let mut bytes = vec![first];
        match (u8::try_from(length), u16::try_from(length)) {
            (Ok(short), _) if short < 126 => bytes.push(0x80 | short),
            (_, Ok(middle)) => {
                bytes.push(0x80 | 126);
                bytes.extend(middle.to_be_bytes());
            }
            _ => {
                bytes.push(0x80 | 127);
                bytes.extend((length as u64).to_be_bytes());
            }
        }
        bytes.extend([1, 2, 3, 4]);
        bytes.resize(bytes.len() + length, 0);
        bytes
    }

    /// How many bytes are read on when they come in pieces of this length; demands that nothing is after a refusal.
    fn admitted(stream: &[u8], piece: usize) -> usize {
        let mut fragments = Fragments::default();
        let mut read = 0;
        let mut is_over = false;
        for bytes in stream.chunks(piece) {
            let admitted = fragments.admit(bytes);
            assert!(!is_over || admitted == 0, "nothing is read on after a refusal");
            is_over |= admitted < bytes.len();
            read += admitted;
        }
        read
    }

    #[test]
    fn the_seventeenth_short_fragment_is_refused_wherever_the_stream_is_cut() {
        let mut stream = frame(FINAL | TEXT, 300);
        for number in 0..16 {
            stream.extend(frame(if number == 0 { TEXT } else { 0 }, number % 2));
            stream.extend(frame(FINAL | 9, 125));
        }
        let before = stream.len();
        stream.extend(frame(0, 1));
        stream.extend(frame(FINAL, 1));
        assert_eq!(admitted(&stream, stream.len()), before);
        for piece in 1..200 {
            let read = admitted(&stream, piece);
            // Of a head that was cut, the first byte may be read on, which alone is no frame.
            assert!(
                (before..before + 2).contains(&read),
                "{read} in pieces of {piece}"
            );
        }
    }

    #[test]
    fn long_fragments_and_every_new_message_are_free() {
        let mut stream = Vec::new();
        for _ in 0..3 {
            stream.extend(frame(TEXT, 4_096));
            for _ in 0..14 {
                stream.extend(frame(0, 70_000));
                stream.extend(frame(0, 4_095));
            }
            stream.extend(frame(0, 5_000));
            stream.extend(frame(0, 0));
            stream.extend(frame(FINAL, 12));
        }
        for piece in [1, 7, 4_096, stream.len()] {
            assert_eq!(admitted(&stream, piece), stream.len());
        }
    }

    #[test]
    fn any_length_is_followed() {
        let mut fragments = Fragments::default();
        let endless = [0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(fragments.admit(&endless), 10);
        assert_eq!(fragments.admit(&[0; 100]), 100);
        assert_eq!(fragments.rest, u64::MAX - 100);
    }
}
