//! The initial state as a function of the configuration: every node computes the same one before anything is committed.

use super::{COPIES_MAX, GROUPS_MAX};
use crate::types::{GroupId, NodeId, SLOT_COUNT};
use std::collections::BTreeMap;

/// The group of each slot: slots go round the groups 1..=`groups`.
#[must_use]
pub fn first_table(groups: u32) -> Vec<GroupId> {
    let groups = groups.clamp(1, GROUPS_MAX);
    (0..u32::from(SLOT_COUNT))
        .map(|slot| GroupId(1 + slot % groups))
        .collect()
}

/// The voters of each group, the preferred leader first: groups go round the sorted nodes. Group 0, the controller's, has its
/// voters here too.
#[must_use]
pub fn first_placement(nodes: &[NodeId], groups: u32, copies: u8) -> BTreeMap<GroupId, Vec<NodeId>> {
    let mut sorted = nodes.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let copies = usize::from(copies.clamp(1, COPIES_MAX)).min(sorted.len());
    let groups = groups.clamp(1, GROUPS_MAX);
    let place = |group: u32| {
        let start = usize::try_from(group).unwrap_or_default();
        let voters = sorted
            .iter()
            .cycle()
            .skip(start % sorted.len().max(1))
            .take(copies);
        (GroupId(group), voters.copied().collect())
    };
    (0..=groups).map(place).collect()
}
