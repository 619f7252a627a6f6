//! What is handed to a binding once more, out of order.

use crate::plugins::{LetterName, Told};
use crate::types::Seq;

/// What a binding is handed once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redelivery {
    /// The message of a dead letter.
    Letter(LetterName),
    /// Committed messages from the first of these positions on, up to the other one or as many as fit one window.
    Range(Seq, Seq),
}

impl Redelivery {
    /// The first position.
    pub(super) fn first(self) -> Seq {
        match self {
            Redelivery::Letter(name) => name.seq,
            Redelivery::Range(first, _) => first,
        }
    }

    /// Whether it is of a webhook that was told of offline recipients.
    pub(super) fn is_offline(self) -> bool {
        matches!(self, Redelivery::Letter(name) if name.of().1 == Told::Offline)
    }

    /// The last one.
    pub(super) fn last(self) -> Seq {
        match self {
            Redelivery::Letter(name) => name.seq,
            Redelivery::Range(_, last) => last,
        }
    }
}
