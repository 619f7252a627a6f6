//! Append requests that have come before. A network may repeat a request: the answer to its first copy is the answer, and
//! a later copy must not refuse what the first one appended (R21).

use super::groups::ReplyTo;
use crate::types::{LeaderEpoch, NodeId};
use std::collections::{BTreeSet, VecDeque};

/// Requests remembered; the oldest is forgotten first. Far more than are under way at once.
const REMEMBERED_MAX: usize = 16_384;

/// The requests that came last, by who waits for their answer and the epoch that was asked: who was told that the epoch is over
/// asks again in the next one, and that is no copy. A name is given once, over all processes of the asking node, so
/// that a node that was silent, or has restarted, is not forgotten: a copy of what it asked before may still come.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    known: BTreeSet<Name>,
    order: VecDeque<Name>,
}

type Name = (NodeId, u16, u64, LeaderEpoch);

impl Repeats {
    /// Whether this request has come before in this epoch; remembers it.
    pub(super) fn has_come(&mut self, from: ReplyTo, epoch: LeaderEpoch) -> bool {
        let name = (from.node, from.shard, from.token.0, epoch);
        if !self.known.insert(name) {
            return true;
        }
        self.order.push_back(name);
        if self.order.len() > REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Token;

    const ONE: LeaderEpoch = LeaderEpoch(1);

    fn from(node: u16, token: u64) -> ReplyTo {
        ReplyTo {
            node: NodeId(node),
            shard: 0,
            token: Token(token),
        }
    }

    #[test]
    fn a_second_copy_is_known() {
        let mut repeats = Repeats::default();
        assert!(!repeats.has_come(from(1, 7), ONE));
        assert!(repeats.has_come(from(1, 7), ONE));
        assert!(!repeats.has_come(from(2, 7), ONE));
        assert!(repeats.has_come(from(2, 7), ONE) && !repeats.has_come(from(2, 8), ONE));
    }

    #[test]
    fn the_same_request_in_the_next_epoch_is_no_copy() {
        let mut repeats = Repeats::default();
        assert!(!repeats.has_come(from(1, 7), ONE));
        assert!(!repeats.has_come(from(1, 7), ONE.next()));
        assert!(repeats.has_come(from(1, 7), ONE) && repeats.has_come(from(1, 7), ONE.next()));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut repeats = Repeats::default();
        for token in 0..REMEMBERED_MAX as u64 + 10 {
            assert!(!repeats.has_come(from(1, token), ONE));
        }
        assert_eq!(
            (repeats.known.len(), repeats.order.len()),
            (REMEMBERED_MAX, REMEMBERED_MAX)
        );
    }
}
