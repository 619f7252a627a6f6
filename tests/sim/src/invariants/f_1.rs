//! F1: what a Raft message says of its sender is durable before the message leaves. A term or a vote that was told and is lost in
//! a crash lets two leaders win one term; entries that were told and are lost are counted as committed and are not.

use super::ledger::{Change, Voted, read_voted};
use crate::disk::SimDisk;
use crate::oracle::Oracle;
use penstock_core::slot::Message;
use penstock_core::slot::claims::claim;
use penstock_core::types::GroupId;
use std::collections::BTreeMap;

/// (node, group) → what its disk durably holds.
#[derive(Debug, Default)]
pub(super) struct Votes {
    durable: BTreeMap<(usize, GroupId), Voted>,
}

impl Votes {
    /// Takes note of what became durable.
    pub(super) fn synced(&mut self, node: usize, change: &Change) {
        match change {
            Change::Kept(group, kept) => self.durable.entry((node, *group)).or_default().kept = *kept,
            Change::Last(group, last) => self.durable.entry((node, *group)).or_default().last = *last,
            Change::LogCut(group, from) => {
                let voted = self.durable.entry((node, *group)).or_default();
                voted.last = voted.last.min(from.saturating_sub(1));
            }
            Change::State(..) | Change::End(..) | Change::Cut(..) | Change::Dropped(_) => {}
        }
    }

    /// A message of a group leaves its node.
    pub(super) fn sent(&self, node: usize, group: GroupId, message: &Message, oracle: &mut Oracle) {
        let Some(claim) = claim(message) else { return };
        let voted = self.durable.get(&(node, group)).copied().unwrap_or_default();
        let what = if voted.kept.term < claim.term {
            format!("speaks in term {}, durable is {}", claim.term, voted.kept.term)
        } else if voted.kept.term == claim.term
            && let Some(vote) = claim.vote
            && voted.kept.vote != vote
        {
            format!(
                "votes for node {vote} in term {}, durable is its vote for {}",
                claim.term, voted.kept.vote
            )
        } else if voted.kept.term == claim.term && claim.last > voted.last.max(voted.kept.truncated) {
            format!(
                "says that it holds {}, durable is {}",
                claim.last,
                voted.last.max(voted.kept.truncated)
            )
        } else {
            return;
        };
        oracle.violate("F1", format!("group {group}: node {} {what}", node + 1));
    }

    /// A process starts on its disk: what was durable still is (M-8).
    pub(super) fn opened(&mut self, node: usize, disk: &SimDisk, oracle: &mut Oracle) {
        for ((_, group), before) in self.durable.iter_mut().filter(|((of, _), _)| *of == node) {
            let now = read_voted(disk, *group);
            let (old, new) = (before.kept, now.kept);
            let other_vote = new.term == old.term && old.vote != 0 && new.vote != old.vote;
            if new.term < old.term || other_vote || new.commit < old.commit {
                let detail = format!(
                    "group {group}: node {} starts in term {} (vote {}, commit {}) under the disk that durably held term {} \
                     (vote {}, commit {})",
                    node + 1,
                    new.term,
                    new.vote,
                    new.commit,
                    old.term,
                    old.vote,
                    old.commit
                );
                return oracle.violate("M-8", detail);
            }
            *before = now;
        }
    }

    /// The disk of a node is lost, and the node comes back as another one.
    pub(super) fn lost(&mut self, node: usize) {
        self.durable.retain(|(of, _), _| *of != node);
    }
}
