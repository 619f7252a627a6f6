//! What a message carries: a stamp that says which message it is, and filler that can be checked.

use bytes::{BufMut, Bytes, BytesMut};

/// Bytes of the stamp, and so the shortest payload.
pub(crate) const STAMP_BYTES: usize = 32;

const MAGIC: u32 = 0x70_62_31_0a;

/// Which message this is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Stamp {
    /// The run, so that what an earlier run left is not mistaken for this one's.
    pub(crate) run: u64,
    /// The channel, by its number in the plan.
    pub(crate) channel: u32,
    /// The sender, by its number in the plan.
    pub(crate) sender: u32,
    /// The sender's count in this channel, from 0.
    pub(crate) seq: u32,
    /// When the message was due, in nanoseconds of the run's clock.
    pub(crate) due_ns: u64,
}

/// What a received payload is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Content {
    /// A message of this run, whole.
    Ours(Stamp),
    /// A message of this run that was changed on its way.
    Corrupt,
    /// Not of this run.
    Foreign,
}

fn filler(seq: u32, index: usize) -> u8 {
    // The low byte is all that is wanted.
    seq.to_le_bytes()[0] ^ index.to_le_bytes()[0]
}

impl Stamp {
    /// A payload of this many bytes.
    #[must_use]
    pub(crate) fn payload(&self, bytes: usize) -> Bytes {
        let mut out = BytesMut::with_capacity(bytes.max(STAMP_BYTES));
        out.put_u32(MAGIC);
        out.put_u64(self.run);
        out.put_u32(self.channel);
        out.put_u32(self.sender);
        out.put_u32(self.seq);
        out.put_u64(self.due_ns);
        out.extend((STAMP_BYTES..bytes).map(|index| filler(self.seq, index)));
        out.freeze()
    }

    /// Reads a payload that was sent with this many bytes in this run.
    #[must_use]
    pub(crate) fn read(payload: &[u8], run: u64, bytes: usize) -> Content {
        let Some((stamp, rest)) = payload.split_first_chunk::<STAMP_BYTES>() else {
            return Content::Foreign;
        };
        let word = |at: usize| {
            stamp[at..at + 4]
                .iter()
                .fold(0_u32, |word, byte| word << 8 | u32::from(*byte))
        };
        let long = |at: usize| u64::from(word(at)) << 32 | u64::from(word(at + 4));
        if word(0) != MAGIC || long(4) != run {
            return Content::Foreign;
        }
        let seq = word(20);
        let whole = payload.len() == bytes
            && rest
                .iter()
                .enumerate()
                .all(|(index, byte)| *byte == filler(seq, STAMP_BYTES + index));
        if !whole {
            return Content::Corrupt;
        }
        Content::Ours(Self {
            run,
            channel: word(12),
            sender: word(16),
            seq,
            due_ns: long(24),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp {
        run: 0x0102_0304_0506_0708,
        channel: 9,
        sender: 10,
        seq: 300,
        due_ns: 1 << 40,
    };

    #[test]
    fn a_stamp_comes_back() {
        for bytes in [STAMP_BYTES, 33, 100, 1_000] {
            let payload = STAMP.payload(bytes);
            assert_eq!(payload.len(), bytes);
            assert_eq!(Stamp::read(&payload, STAMP.run, bytes), Content::Ours(STAMP));
        }
    }

    #[test]
    fn what_was_changed_or_is_of_another_run_is_told_apart() {
        let payload = STAMP.payload(100);
        assert_eq!(Stamp::read(&payload, 1, 100), Content::Foreign);
        assert_eq!(Stamp::read(b"hello", STAMP.run, 100), Content::Foreign);
        assert_eq!(Stamp::read(&payload[..99], STAMP.run, 100), Content::Corrupt);
        let mut changed = payload.to_vec();
        changed[70] ^= 1;
        assert_eq!(Stamp::read(&changed, STAMP.run, 100), Content::Corrupt);
    }
}
