//! SL-1: applied index and effects are one. A batch that changes rows of a slot moves the applied index too; and two replicas
//! of a group at the same applied index hold the same rows, whatever crashes and snapshots brought them there.

use crate::oracle::Oracle;
use crate::world::Node;
use bytes::Bytes;
use penstock_core::rows::{Key, Write};
use penstock_core::types::{GroupId, SlotId};
use std::collections::BTreeMap;

/// (group, applied row) → the first node seen there and the digest of its rows.
#[derive(Debug, Default)]
pub(super) struct Digests {
    seen: BTreeMap<(GroupId, Bytes), (usize, u64)>,
    slots: BTreeMap<GroupId, Vec<SlotId>>,
}

impl Digests {
    /// A shard wrote a batch: what a crash may leave of a node is what it holds after each of its batches (M-9).
    pub(super) fn wrote(&mut self, index: usize, node: &Node, writes: &[Write], oracle: &mut Oracle) {
        let mut moved: Option<(GroupId, &Bytes)> = None;
        let mut effect: Option<SlotId> = None;
        for write in writes {
            match write {
                Write::Put {
                    key: Key::Applied { group },
                    value,
                } => moved = Some((*group, value)),
                Write::Put {
                    key: Key::Slot { slot, .. },
                    ..
                }
                | Write::Delete {
                    key: Key::Slot { slot, .. },
                } => effect = Some(*slot),
                Write::FlipGeneration { slots } => effect = slots.first().copied(),
                _ => {}
            }
        }
        match (moved, effect) {
            (Some((group, applied)), _) => self.compare(index, node, (group, applied), oracle),
            (None, Some(slot)) => {
                let detail = format!(
                    "node {} changes rows of slot {slot} without the applied index",
                    index + 1
                );
                oracle.violate("SL-1", detail);
            }
            (None, None) => {}
        }
    }

    fn compare(
        &mut self,
        index: usize,
        node: &Node,
        (group, applied): (GroupId, &Bytes),
        oracle: &mut Oracle,
    ) {
        let slots = self.slots.entry(group).or_default();
        if slots.is_empty() {
            *slots = node.slots_of(group);
        }
        let digest = node.disk.digest(slots);
        let (other, wanted) = *self
            .seen
            .entry((group, applied.clone()))
            .or_insert((index, digest));
        if wanted != digest {
            let detail = format!(
                "group {group}: nodes {} and {} differ at the same applied index",
                other + 1,
                index + 1
            );
            oracle.violate("SL-1", detail);
        }
    }
}
