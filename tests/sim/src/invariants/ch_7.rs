//! CH-7: voters change one at a time, and both sets stand while they do.

use crate::oracle::Oracle;
use penstock_core::types::{ChannelMeta, Replica};
use std::collections::BTreeSet;

/// Newer metadata are acted on; says whether the voters differ from before.
pub(super) fn check(before: Option<&ChannelMeta>, now: &ChannelMeta, oracle: &mut Oracle) -> bool {
    let Some(before) = before else { return false };
    let old: BTreeSet<Replica> = before.voters.isr.iter().copied().collect();
    let new: BTreeSet<Replica> = now.voters.isr.iter().copied().collect();
    if now.version == before.version + 1 && old != new {
        let nodes = |set: &BTreeSet<Replica>| set.iter().map(|voter| voter.node).collect::<BTreeSet<_>>();
        let (old_nodes, new_nodes) = (nodes(&old), nodes(&new));
        let left = old_nodes.difference(&new_nodes).count();
        let joined = new_nodes.difference(&old_nodes).count();
        let moved = left + joined > 0;
        if left > 1 || joined > 1 || (moved && now.previous.as_ref() != Some(&before.voters)) {
            let detail = format!(
                "voters {old_nodes:?} became {new_nodes:?} with {:?} as the set before",
                now.previous
            );
            oracle.violate("CH-7", detail);
        }
    }
    let bounds = 1..=now.voters.isr.len();
    if !bounds.contains(&usize::from(now.voters.min_isr)) {
        oracle.violate(
            "CH-7",
            format!("a write quorum of {} in {bounds:?}", now.voters.min_isr),
        );
    }
    old != new
}
