//! How far a consumer of a channel has come, as it is stored and told: what the machines of hooks and of channels share of it.

use crate::types::Seq;
use bytes::Bytes;

/// A durable cursor (M-18).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// Everything up to here is done.
    pub done: Seq,
    /// How often the window that begins after `done` was made smaller: of two cursors that have done the same, the one with more
    /// cuts is the newer one.
    pub cuts: u16,
    /// Everything up to here may have been handed out: a redelivery of an exact consumer covers `done + 1 ..= open_to`, no
    /// more and no less. Equal to `done` for a consumer that is not exact.
    pub open_to: Seq,
    /// The end of the window as it was cut first, equal to `open_to` unless the window was made smaller: no window begins before
    /// this position and ends after it. Changes of keys that an attempt at the whole window has made are in some slots already, under its
    /// last position, and a window across it would be counted there once more.
    pub cut_to: Seq,
}

/// Positions stay below this in a stored cursor, which has the cuts in the bits above.
const POSITION_BITS: u32 = 48;

impl Cursor {
    /// A cursor without an open window.
    #[must_use]
    pub fn at(done: Seq) -> Cursor {
        Cursor {
            done,
            cuts: 0,
            open_to: done,
            cut_to: done,
        }
    }

    /// Whether something may have been handed out that is not done.
    #[must_use]
    pub fn is_open(self) -> bool {
        self.open_to > self.done
    }

    /// The stored bytes, which compare as cursors do: done, cuts, open_to, cut_to, big-endian.
    #[must_use]
    pub fn encode(self) -> Bytes {
        let most = (1 << POSITION_BITS) - 1;
        let open_to = self.open_to.0.min(most);
        let mut out = Vec::with_capacity(24);
        out.extend_from_slice(&self.done.0.to_be_bytes());
        out.extend_from_slice(&(u64::from(self.cuts) << POSITION_BITS | open_to).to_be_bytes());
        out.extend_from_slice(&self.cut_to.0.min(most).to_be_bytes());
        Bytes::from(out)
    }

    /// The cursor of these bytes; none when they are not one. Those of earlier versions end before cut_to.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Cursor> {
        let (done, rest) = bytes.split_first_chunk::<8>()?;
        let (window, rest) = rest.split_first_chunk::<8>()?;
        let window = u64::from_be_bytes(*window);
        let open_to = Seq(window & ((1 << POSITION_BITS) - 1));
        let cut_to = match rest {
            [] => open_to,
            rest => Seq(u64::from_be_bytes(rest.try_into().ok()?)),
        };
        let cursor = Cursor {
            done: Seq(u64::from_be_bytes(*done)),
            cuts: u16::try_from(window >> POSITION_BITS).ok()?,
            open_to,
            cut_to,
        };
        (cursor.done <= cursor.open_to && cursor.open_to <= cursor.cut_to).then_some(cursor)
    }
}
