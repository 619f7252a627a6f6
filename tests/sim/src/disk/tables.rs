//! The content of one instance as ordered maps: what each `Write` does to it, and what each scan finds in it.

use bytes::Bytes;
use penstock_core::codec::record_block::{self, Corrupt};
use penstock_core::codec::record_page::RecordPage;
use penstock_core::rows::{GroupImage, Key, Page, ReadRequest, Row, Table, Write};
use penstock_core::types::{GroupId, Incarnation, RaftIndex, Seq, SlotId};
use std::collections::{BTreeMap, BTreeSet};

/// Rows by key, and stored values of records by incarnation and first position.
#[derive(Clone, Debug, Default)]
pub(super) struct Tables {
    pub(super) rows: BTreeMap<Key, Bytes>,
    pub(super) blocks: BTreeMap<(Incarnation, Seq), Bytes>,
    /// Slot → sum of the hashes of its rows, so that replicas can be compared after every batch.
    digests: BTreeMap<SlotId, u64>,
}

impl Tables {
    /// Applies the writes of one batch in order. On an error the batch is half applied: the caller poisons the disk.
    pub(super) fn apply(&mut self, writes: &[Write]) {
        writes.iter().for_each(|write| self.apply_one(write));
    }

    fn apply_one(&mut self, write: &Write) {
        match write {
            Write::Put { key, value } => self.put(key.clone(), value.clone()),
            Write::Delete { key } => {
                let removed = self.rows.remove(key);
                self.digest(key, removed.as_ref(), None);
            }
            Write::TruncateRaft { group, from } => self.drop_entries(*group, *from, RaftIndex(u64::MAX)),
            Write::CompactRaft { group, through } => self.drop_entries(*group, RaftIndex(0), *through),
            Write::ClearStaged { slots } => {
                for slot in slots {
                    self.take_slot(&staged_key(*slot, Table::User, Bytes::new()));
                }
            }
            Write::FlipGeneration { slots } => slots.iter().for_each(|slot| self.flip(*slot)),
            Write::AppendRecords { incarnation, records } => {
                let first = records.first().map_or(Seq(0), |record| record.seq);
                self.blocks
                    .insert((*incarnation, first), record_block::encode(records));
            }
            Write::TruncateRecords { incarnation, from } => self.truncate_records(*incarnation, *from),
            Write::TrimRecords { incarnation, through } => self.trim_records(*incarnation, *through),
            Write::DropIncarnation { incarnation } => self.drop_incarnation(*incarnation),
        }
    }

    fn put(&mut self, key: Key, value: Bytes) {
        if let Key::Slot { .. } = &key {
            let before = self.rows.get(&key).cloned();
            self.digest(&key, before.as_ref(), Some(&value));
        }
        self.rows.insert(key, value);
    }

    fn digest(&mut self, key: &Key, before: Option<&Bytes>, after: Option<&Bytes>) {
        let Key::Slot { slot, table, key } = key else {
            return;
        };
        let hash = |value: &Bytes| row_hash(*table, key, value);
        let sum = self.digests.entry(*slot).or_default();
        *sum = sum
            .wrapping_sub(before.map_or(0, hash))
            .wrapping_add(after.map_or(0, hash));
    }

    /// The sum of the hashes of all rows of these slots.
    pub(super) fn digest_of(&self, slots: &[SlotId]) -> u64 {
        let of = |slot| self.digests.get(slot).copied().unwrap_or(0);
        slots.iter().map(of).fold(0, u64::wrapping_add)
    }

    fn drop_entries(&mut self, group: GroupId, from: RaftIndex, through: RaftIndex) {
        let range = Key::RaftEntry { group, index: from }..=Key::RaftEntry {
            group,
            index: through,
        };
        let keys: Vec<Key> = self.rows.range(range).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.rows.remove(&key);
        }
    }

    /// Takes out every row of the slot and the generation that `start`, its lowest key, belongs to.
    fn take_slot(&mut self, start: &Key) -> Vec<(Key, Bytes)> {
        let keys: Vec<Key> = self
            .rows
            .range(start..)
            .take_while(|(key, _)| same_slot(key, start))
            .map(|(key, _)| key.clone())
            .collect();
        keys.into_iter()
            .filter_map(|key| self.rows.remove_entry(&key))
            .collect()
    }

    fn flip(&mut self, slot: SlotId) {
        self.take_slot(&slot_key(slot, Table::User, Bytes::new()));
        self.digests.remove(&slot);
        for (key, value) in self.take_slot(&staged_key(slot, Table::User, Bytes::new())) {
            if let Key::Staged { slot, table, key } = key {
                self.put(slot_key(slot, table, key), value);
            }
        }
    }

    /// A value that cannot be read cannot be cut: it stays as it is, so that whoever reads it finds the damage (R30).
    fn truncate_records(&mut self, incarnation: Incarnation, from: Seq) {
        let covering = self
            .blocks
            .range((incarnation, Seq(0))..(incarnation, from))
            .next_back()
            .map(|((_, first), value)| (*first, value.clone()));
        if let Some((first, value)) = covering
            && let Ok(Some(kept)) = record_block::cut(first, &value, from)
        {
            self.blocks.insert((incarnation, first), kept);
        }
        let dropped: Vec<_> = self
            .blocks
            .range((incarnation, from)..=(incarnation, Seq(u64::MAX)))
            .map(|(position, _)| *position)
            .collect();
        for position in dropped {
            self.blocks.remove(&position);
        }
    }

    fn trim_records(&mut self, incarnation: Incarnation, through: Seq) {
        let candidates: Vec<(Seq, Bytes)> = self
            .blocks
            .range((incarnation, Seq(0))..=(incarnation, through))
            .map(|((_, first), value)| (*first, value.clone()))
            .collect();
        let Some((newest, value)) = candidates.last() else {
            return;
        };
        // Of a value that cannot be read it is not known where it ends: it stays.
        let newest_goes = record_block::last_seq(*newest, value).is_ok_and(|last| last <= through);
        for (first, _) in &candidates {
            if first < newest || newest_goes {
                self.blocks.remove(&(incarnation, *first));
            }
        }
    }

    fn drop_incarnation(&mut self, incarnation: Incarnation) {
        self.rows.remove(&Key::ChannelState { incarnation });
        let cursors: Vec<Key> = self
            .cursor_rows(incarnation)
            .map(|(key, _)| key.clone())
            .collect();
        for key in cursors {
            self.rows.remove(&key);
        }
        self.blocks
            .retain(|(stored_under, _), _| *stored_under != incarnation);
    }

    fn cursor_rows(&self, incarnation: Incarnation) -> impl Iterator<Item = (&Key, &Bytes)> {
        let start = Key::Cursor {
            incarnation,
            consumer: Bytes::new(),
        };
        self.rows.range(start..).take_while(
            move |(key, _)| matches!(key, Key::Cursor { incarnation: of, .. } if *of == incarnation),
        )
    }

    /// Answers a scan.
    pub(super) fn read(&self, request: &ReadRequest) -> Page {
        match request {
            ReadRequest::Records {
                incarnation,
                from,
                through,
                records_max,
                bytes_max,
            } => {
                let page = RecordPage::new(*from, *through, *records_max, *bytes_max);
                self.records(*incarnation, *from, page)
            }
            ReadRequest::LogTail { incarnation } => self.log_tail(*incarnation),
            ReadRequest::SlotRows {
                slot,
                table,
                prefix,
                after,
                rows_max,
            } => self.slot_rows(*slot, *table, prefix, after.as_ref(), *rows_max),
            ReadRequest::SnapshotRows {
                slot,
                after,
                bytes_max,
            } => self.snapshot_rows(*slot, after.as_ref(), *bytes_max),
            ReadRequest::Cursors { incarnation } => Page::Cursors(
                self.cursor_rows(*incarnation)
                    .filter_map(|(key, value)| match key {
                        Key::Cursor { consumer, .. } => Some((consumer.clone(), value.clone())),
                        _ => None,
                    })
                    .collect(),
            ),
            ReadRequest::Dedupe {
                incarnation,
                day,
                after,
                rows_max,
            } => self.dedupe_rows(*incarnation, *day, *after, *rows_max),
        }
    }

    fn dedupe_rows(&self, incarnation: Incarnation, day: u16, after: Option<u64>, rows_max: u32) -> Page {
        let rows_max = usize::try_from(rows_max.max(1)).unwrap_or(usize::MAX);
        let mut rows = Vec::new();
        let start = Key::Dedupe {
            day,
            incarnation,
            hash: after.unwrap_or(0),
        };
        for (key, value) in self.rows.range(start..) {
            let Key::Dedupe {
                day: of_day,
                incarnation: of,
                hash,
            } = key
            else {
                break;
            };
            if (*of_day, *of) != (day, incarnation) {
                break;
            }
            if Some(*hash) == after {
                continue;
            }
            if rows.len() == rows_max {
                return Page::Dedupe { rows, more: true };
            }
            rows.push((*hash, value.clone()));
        }
        Page::Dedupe { rows, more: false }
    }

    fn records(&self, incarnation: Incarnation, from: Seq, mut page: RecordPage) -> Page {
        let covering = self
            .blocks
            .range((incarnation, Seq(0))..=(incarnation, from))
            .next_back()
            .map_or(from, |((_, first), _)| *first);
        let _ = self
            .blocks
            .range((incarnation, covering)..=(incarnation, Seq(u64::MAX)))
            .try_for_each(|((_, first), value)| page.push(*first, value));
        page.finish()
    }

    fn log_tail(&self, incarnation: Incarnation) -> Page {
        let newest = self
            .blocks
            .range((incarnation, Seq(0))..=(incarnation, Seq(u64::MAX)))
            .next_back();
        let Some(((_, first), value)) = newest else {
            return Page::Records(Vec::new());
        };
        match record_block::decode(*first, value) {
            Ok(records) => Page::Records(records.into_iter().next_back().into_iter().collect()),
            Err(Corrupt(what)) => Page::Corrupt {
                what,
                first: Some(*first),
            },
        }
    }

    fn slot_rows(
        &self,
        slot: SlotId,
        table: Table,
        prefix: &Bytes,
        after: Option<&Bytes>,
        rows_max: u32,
    ) -> Page {
        let rows_max = usize::try_from(rows_max.max(1)).unwrap_or(usize::MAX);
        let mut rows = Vec::new();
        for (key, value) in self.rows.range(slot_key(slot, table, prefix.clone())..) {
            let Key::Slot {
                slot: of,
                table: kind,
                key,
            } = key
            else {
                break;
            };
            if (*of, *kind) != (slot, table) || !key.starts_with(prefix) {
                break;
            }
            if after.is_some_and(|after| key <= after) {
                continue;
            }
            if rows.len() == rows_max {
                return Page::Rows { rows, more: true };
            }
            rows.push((*kind, key.clone(), value.clone()));
        }
        Page::Rows { rows, more: false }
    }

    fn snapshot_rows(&self, slot: SlotId, after: Option<&(Table, Bytes)>, bytes_max: u32) -> Page {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let start = match after {
            Some((table, key)) => slot_key(slot, *table, key.clone()),
            None => slot_key(slot, Table::User, Bytes::new()),
        };
        let mut bytes = 0;
        let mut rows = Vec::new();
        for (key, value) in self.rows.range(start..) {
            let Key::Slot { slot: of, table, key } = key else {
                break;
            };
            if *of != slot {
                break;
            }
            if after.is_some_and(|(after_table, after_key)| (table, key) == (after_table, after_key)) {
                continue;
            }
            bytes += key.len() + value.len();
            if !rows.is_empty() && bytes > bytes_max {
                return Page::Rows { rows, more: true };
            }
            rows.push((*table, key.clone(), value.clone()));
        }
        Page::Rows { rows, more: false }
    }

    /// The last index of a group's log; 0 when there is none.
    pub(super) fn last_entry(&self, group: GroupId) -> u64 {
        let entry = |index| Key::RaftEntry {
            group,
            index: RaftIndex(index),
        };
        match self.rows.range(entry(0)..=entry(u64::MAX)).next_back() {
            Some((Key::RaftEntry { index, .. }, _)) => index.0,
            _ => 0,
        }
    }

    /// The Raft groups that left anything here.
    pub(super) fn groups(&self) -> Vec<GroupId> {
        let groups: BTreeSet<GroupId> = self
            .rows
            .keys()
            .filter_map(|key| match key {
                Key::RaftEntry { group, .. }
                | Key::RaftState { group }
                | Key::Applied { group }
                | Key::Install { group } => Some(*group),
                _ => None,
            })
            .collect();
        groups.into_iter().collect()
    }

    /// The recovery image of a group.
    pub(super) fn group_image(&self, group: GroupId) -> GroupImage {
        let row = |key: Key| -> Option<Row> { self.rows.get(&key).cloned() };
        let first = Key::RaftEntry {
            group,
            index: RaftIndex(0),
        };
        let last = Key::RaftEntry {
            group,
            index: RaftIndex(u64::MAX),
        };
        GroupImage {
            state: row(Key::RaftState { group }),
            applied: row(Key::Applied { group }),
            install: row(Key::Install { group }),
            entries: self
                .rows
                .range(first..=last)
                .filter_map(|(key, value)| match key {
                    Key::RaftEntry { index, .. } => Some((*index, value.clone())),
                    _ => None,
                })
                .collect(),
        }
    }
}

/// FNV-1a over the row, spread so that sums of several rows do not cancel out.
fn row_hash(table: Table, key: &Bytes, value: &Bytes) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ table as u64;
    for part in [key, value] {
        for &byte in part {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        hash = (hash ^ part.len() as u64)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29);
    }
    hash
}

fn slot_key(slot: SlotId, table: Table, key: Bytes) -> Key {
    Key::Slot { slot, table, key }
}

fn staged_key(slot: SlotId, table: Table, key: Bytes) -> Key {
    Key::Staged { slot, table, key }
}

fn same_slot(left: &Key, right: &Key) -> bool {
    match (left, right) {
        (Key::Slot { slot: left, .. }, Key::Slot { slot: right, .. })
        | (Key::Staged { slot: left, .. }, Key::Staged { slot: right, .. }) => left == right,
        _ => false,
    }
}
