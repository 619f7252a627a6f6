//! SL-1: applied index and effects are one. Two replicas of a group at the same applied index hold the same rows, whatever
//! crashes and snapshots brought them there.

use crate::oracle::Oracle;
use crate::world::Node;
use penstock_core::rows::{Key, Page, ReadRequest};
use penstock_core::types::{GroupId, SlotId};
use std::collections::BTreeMap;

/// (group, applied row) → the first node seen there and the hash of its rows.
#[derive(Debug, Default)]
pub(super) struct Hashes {
    seen: BTreeMap<(GroupId, Vec<u8>), (usize, u64)>,
}

impl Hashes {
    /// Compares what all nodes hold now with each other and with what was seen before.
    pub(super) fn compare(&mut self, nodes: &[Node], oracle: &mut Oracle) {
        for (index, node) in nodes.iter().enumerate() {
            for group in node.disk.groups() {
                let Some(applied) = node.disk.durable_row(&Key::Applied { group }) else {
                    continue;
                };
                let slots = node.slots_of(group);
                if slots.is_empty() {
                    continue;
                }
                let hash = hash_rows(node, &slots);
                let key = (group, applied.to_vec());
                let (other, wanted) = *self.seen.entry(key).or_insert((index, hash));
                if wanted != hash {
                    let detail = format!(
                        "group {group}: nodes {} and {} differ at the same applied index",
                        other + 1,
                        index + 1
                    );
                    return oracle.violate("SL-1", detail);
                }
            }
        }
    }
}

/// A hash of all durable rows of these slots.
fn hash_rows(node: &Node, slots: &[SlotId]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut mix = |bytes: &[u8]| {
        for &byte in bytes {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        hash = hash.rotate_left(7) ^ bytes.len() as u64;
    };
    for &slot in slots {
        let request = ReadRequest::SnapshotRows {
            slot,
            after: None,
            bytes_max: u32::MAX,
        };
        if let Page::Rows { rows, .. } = node.disk.durable_read(&request) {
            for (table, key, value) in rows {
                mix(&(table as u32).to_be_bytes());
                mix(&key);
                mix(&value);
            }
        }
    }
    hash
}
