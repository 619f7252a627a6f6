//! A disk that keeps a prefix of what was not synced when it crashes, and rows that may have to be loaded first.

use super::super::Image;
use super::super::hash::StateHash;
use super::random::Random;
use crate::rows::{Key, Miss, Page, ReadRequest, Row, Rows, Table, Write};
use crate::types::{GroupId, SlotId, Token};
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub(super) type Map = BTreeMap<Key, Row>;

#[derive(Default)]
pub(super) struct Disk {
    pub(super) durable: Map,
    pub(super) visible: Map,
    unsynced: VecDeque<(Token, Vec<Write>)>,
}

impl Disk {
    pub(super) fn store(&mut self, token: Token, writes: Vec<Write>) {
        for write in &writes {
            apply(&mut self.visible, write);
        }
        self.unsynced.push_back((token, writes));
    }

    /// Syncs the oldest batch.
    pub(super) fn sync(&mut self) -> Option<Token> {
        let (token, writes) = self.unsynced.pop_front()?;
        for write in &writes {
            apply(&mut self.durable, write);
        }
        Some(token)
    }

    /// The machine dies: some of the unsynced batches, from the oldest, may have reached the disk.
    pub(super) fn crash(&mut self, random: &mut Random) {
        for _ in 0..random.below(self.unsynced.len() as u64 + 1) {
            self.sync();
        }
        self.unsynced.clear();
        self.visible = self.durable.clone();
    }

    pub(super) fn image(&self, group: GroupId) -> Image {
        let rows: Vec<(Key, Row)> = self
            .durable
            .iter()
            .map(|(key, row)| (key.clone(), row.clone()))
            .collect();
        Image::of(group, &rows)
    }

    pub(super) fn read(&self, request: &ReadRequest) -> Page {
        let ReadRequest::SnapshotRows {
            slot,
            after,
            bytes_max,
        } = request
        else {
            panic!("a group reads only snapshots: {request:?}")
        };
        let mut rows = Vec::new();
        let mut bytes = 0;
        for (table, key, value) in slot_rows(&self.visible, *slot) {
            if after
                .as_ref()
                .is_some_and(|after| (table, &key) <= (after.0, &after.1))
            {
                continue;
            }
            if bytes >= *bytes_max as usize {
                return Page::Rows { rows, more: true };
            }
            bytes += key.len() + value.len();
            rows.push((table, key, value));
        }
        Page::Rows { rows, more: false }
    }

    pub(super) fn hash(&self, slots: &[SlotId]) -> u64 {
        let mut hash = StateHash::default();
        for slot in slots {
            for (table, key, value) in slot_rows(&self.visible, *slot) {
                hash.row(*slot, table, &key, &value);
            }
        }
        hash.finish()
    }
}

fn slot_rows(map: &Map, of: SlotId) -> impl Iterator<Item = (Table, Bytes, Bytes)> {
    map.iter().filter_map(move |(key, value)| match key {
        Key::Slot { slot, table, key } if *slot == of => Some((*table, key.clone(), value.clone())),
        _ => None,
    })
}

pub(super) fn apply(map: &mut Map, write: &Write) {
    match write {
        Write::Put { key, value } => {
            map.insert(key.clone(), value.clone());
        }
        Write::Delete { key } => {
            map.remove(key);
        }
        Write::TruncateRaft { group, from } => {
            map.retain(
                |key, _| !matches!(key, Key::RaftEntry { group: of, index } if of == group && index >= from),
            );
        }
        Write::CompactRaft { group, through } => {
            map.retain(|key, _| !matches!(key, Key::RaftEntry { group: of, index } if of == group && index <= through));
        }
        Write::ClearStaged { slots } => {
            map.retain(|key, _| !matches!(key, Key::Staged { slot, .. } if slots.contains(slot)));
        }
        Write::FlipGeneration { slots } => {
            map.retain(|key, _| !matches!(key, Key::Slot { slot, .. } if slots.contains(slot)));
            let staged: Vec<Key> = map
                .keys()
                .filter(|key| matches!(key, Key::Staged { slot, .. } if slots.contains(slot)))
                .cloned()
                .collect();
            for key in staged {
                let Some(value) = map.remove(&key) else { continue };
                if let Key::Staged { slot, table, key } = key {
                    map.insert(Key::Slot { slot, table, key }, value);
                }
            }
        }
        other => panic!("a group never writes {other:?}"),
    }
}

/// Rows of which some must be loaded first.
pub(super) struct Cold<'a> {
    pub(super) map: &'a Map,
    pub(super) warm: RefCell<BTreeSet<Key>>,
    pub(super) seed: u64,
}

impl Rows for Cold<'_> {
    fn row(&self, key: &Key) -> Result<Option<Row>, Miss> {
        let hash = crc32fast::hash(format!("{key:?}{}", self.seed).as_bytes());
        if hash.is_multiple_of(4) && !self.warm.borrow().contains(key) {
            return Err(Miss(vec![key.clone()]));
        }
        Ok(self.map.get(key).cloned())
    }
}
