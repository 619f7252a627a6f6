//! The arithmetic of quorums. Pure, and the only place that counts voters.

use crate::types::{NodeId, Seq, VoterSet};

/// The W-th largest of the voters' log ends: every position before it is held by a write quorum (CH-2).
pub(super) fn held(set: &VoterSet, log_end_of: impl Fn(NodeId) -> Seq) -> Seq {
    let mut ends: Vec<Seq> = set.isr.iter().map(|replica| log_end_of(replica.node)).collect();
    nth_largest(&mut ends, usize::from(set.min_isr))
}

/// The n-th largest position, 0 if there are not so many (a set without a quorum commits nothing).
pub(super) fn nth_largest(ends: &mut [Seq], n: usize) -> Seq {
    ends.sort_unstable_by(|one, other| other.cmp(one));
    match n.checked_sub(1) {
        Some(place) => ends.get(place).copied().unwrap_or_default(),
        None => Seq(0),
    }
}

/// Whether enough voters gave evidence for a recovery: N - W + 1, so that every write quorum has one of them (CH-5).
pub(super) fn recovers(set: &VoterSet, heard: impl Fn(NodeId) -> bool) -> bool {
    let count = set.isr.iter().filter(|replica| heard(replica.node)).count();
    count + usize::from(set.min_isr) > set.isr.len() && count > 0
}

/// Whether W voters answered: no newer epoch can have been recovered before they did (M-5).
pub(super) fn writes(set: &VoterSet, answered: impl Fn(NodeId) -> bool) -> bool {
    let count = set.isr.iter().filter(|replica| answered(replica.node)).count();
    set.min_isr > 0 && count >= usize::from(set.min_isr)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{DiskBoot, Replica};

    fn set(voters: u16, min_isr: u8) -> VoterSet {
        let isr = (1..=voters)
            .map(|node| Replica {
                node: NodeId(node),
                disk: DiskBoot(1),
            })
            .collect();
        VoterSet { isr, min_isr }
    }

    #[test]
    fn the_wth_largest_end_is_held() {
        let ends = [Seq(9), Seq(4), Seq(7), Seq(1), Seq(7)];
        let cases = [
            (1, 1, 9),
            (3, 1, 9),
            (3, 2, 7),
            (3, 3, 4),
            (5, 3, 7),
            (5, 4, 4),
            (5, 5, 1),
            (2, 2, 4),
        ];
        for (voters, min_isr, expected) in cases {
            let end_of = |node: NodeId| ends[usize::from(node.0) - 1];
            assert_eq!(
                held(&set(voters, min_isr), end_of),
                Seq(expected),
                "{voters} voters, W {min_isr}"
            );
        }
    }

    #[test]
    fn a_quorum_that_cannot_be_holds_nothing() {
        assert_eq!(held(&set(2, 3), |_| Seq(9)), Seq(0));
        assert_eq!(held(&set(2, 0), |_| Seq(9)), Seq(0));
        assert!(!writes(&set(2, 0), |_| true));
        assert!(!recovers(&set(0, 0), |_| true));
    }

    #[test]
    fn every_write_quorum_meets_every_recovery_quorum() {
        for voters in 1..=5u16 {
            for min_isr in 1..=voters {
                let set = set(voters, u8::try_from(min_isr).expect("small"));
                for members in 0..1u16 << voters {
                    let inside = |node: NodeId| members >> (node.0 - 1) & 1 == 1;
                    // Either these recover, or the others can still write: never both, never neither.
                    assert_ne!(
                        recovers(&set, inside),
                        writes(&set, |node| !inside(node)),
                        "{members:b}"
                    );
                }
            }
        }
    }
}
