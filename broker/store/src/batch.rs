//! From the words of the core to one RocksDB batch.

use crate::engine::Engine;
use crate::keys::{self, Family};
use crate::scan::Scan;
use crate::store::{OldGeneration, RaftBounds, Store};
use bytes::Bytes;
use penstock_core::codec::record_block::{self, Corrupt};
use penstock_core::message::Record;
use penstock_core::rows::{Instance, Key, Write};
use penstock_core::types::{GroupId, Incarnation, RaftIndex, Seq, SlotId};
use rocksdb::WriteBatch;
use std::collections::BTreeMap;

/// Up to so many rows are deleted one by one: a tombstone of a range costs every later read.
const SINGLE_DELETES_MAX: u64 = 64;

/// What has to be remembered once the batch is written.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) raft: BTreeMap<GroupId, RaftBounds>,
    pub(crate) generations: BTreeMap<SlotId, u32>,
    pub(crate) old_generations: Vec<OldGeneration>,
}

/// What the batch did to records so far: later writes of the same batch have to see it.
#[derive(Debug)]
enum RecordChange {
    Put(Incarnation, Seq, Bytes),
    /// Removed from (inclusive) to (exclusive), as keys.
    Removed(Vec<u8>, Vec<u8>),
}

/// A batch in the making.
pub(crate) struct Translation<'a> {
    store: &'a Store,
    engine: &'a Engine,
    batch: WriteBatch,
    changes: Changes,
    records: Vec<RecordChange>,
}

impl<'a> Translation<'a> {
    pub(crate) fn new(store: &'a Store, instance: Instance) -> Translation<'a> {
        Translation {
            store,
            engine: store.engine(instance),
            batch: WriteBatch::default(),
            changes: Changes::default(),
            records: Vec::new(),
        }
    }

    pub(crate) fn finish(self) -> (WriteBatch, Changes) {
        (self.batch, self.changes)
    }

    /// Adds a write. Fails when it has to cut a stored value that is damaged.
    pub(crate) fn add(&mut self, write: &Write) -> Result<(), Corrupt> {
        match write {
            Write::Put { key, value } => self.put(key, value),
            Write::Delete { key } => {
                let (family, bytes) = keys::point(key, self.generation_of(key));
                self.batch.delete_cf(self.engine.family(family), bytes);
            }
            Write::TruncateRaft { group, from } => self.drop_entries(*group, from.0, u64::MAX),
            Write::CompactRaft { group, through } => self.drop_entries(*group, 0, through.0),
            Write::ClearStaged { slots } => slots.iter().for_each(|slot| self.clear_staged(*slot)),
            Write::FlipGeneration { slots } => slots.iter().for_each(|slot| self.flip(*slot)),
            Write::AppendRecords { incarnation, records } => self.append(*incarnation, records),
            Write::TruncateRecords { incarnation, from } => self.truncate(*incarnation, *from),
            Write::TrimRecords { incarnation, through } => self.trim(*incarnation, *through)?,
            Write::DropIncarnation { incarnation } => self.drop_incarnation(*incarnation),
        }
        Ok(())
    }

    fn generation(&self, slot: SlotId) -> u32 {
        self.changes
            .generations
            .get(&slot)
            .copied()
            .unwrap_or_else(|| self.store.generation(slot))
    }

    fn generation_of(&self, key: &Key) -> u32 {
        match key {
            Key::Slot { slot, .. } | Key::Staged { slot, .. } => self.generation(*slot),
            _ => 0,
        }
    }

    fn put(&mut self, key: &Key, value: &Bytes) {
        if let Key::RaftEntry { group, index } = key {
            let bounds = self.bounds(*group).unwrap_or(RaftBounds {
                first: index.0,
                last: index.0,
            });
            self.changes.raft.insert(
                *group,
                RaftBounds {
                    first: bounds.first.min(index.0),
                    last: bounds.last.max(index.0),
                },
            );
        }
        let (family, bytes) = keys::point(key, self.generation_of(key));
        self.batch.put_cf(self.engine.family(family), bytes, value);
    }

    /// First and last entry that the group's log may hold; none when it is empty.
    fn bounds(&self, group: GroupId) -> Option<RaftBounds> {
        self.changes
            .raft
            .get(&group)
            .copied()
            .or_else(|| self.store.raft_bounds().get(&group).copied())
            .filter(|bounds| bounds.first <= bounds.last)
    }

    /// Removes entries at an end of the log: `from` is 0 or `through` is the largest number.
    fn drop_entries(&mut self, group: GroupId, from: u64, through: u64) {
        let Some(bounds) = self.bounds(group) else {
            return;
        };
        let (from, through) = (from.max(bounds.first), through.min(bounds.last));
        if from > through {
            return;
        }
        let family = self.engine.family(Family::Raft);
        if through - from < SINGLE_DELETES_MAX {
            for index in from..=through {
                self.batch
                    .delete_cf(family, keys::raft_entry(group, RaftIndex(index)));
            }
        } else {
            let mut end = keys::raft_entry(group, RaftIndex(through));
            end.push(0);
            self.batch
                .delete_range_cf(family, keys::raft_entry(group, RaftIndex(from)), end);
        }
        let left = if through == bounds.last {
            RaftBounds {
                first: bounds.first,
                last: from.saturating_sub(1),
            }
        } else {
            RaftBounds {
                first: through + 1,
                last: bounds.last,
            }
        };
        // An empty log is one whose first entry stands behind its last.
        let left = if from == bounds.first && through == bounds.last {
            RaftBounds { first: 1, last: 0 }
        } else {
            left
        };
        self.changes.raft.insert(group, left);
    }

    fn clear_staged(&mut self, slot: SlotId) {
        let start = keys::slot_generation(slot, self.generation(slot).saturating_add(1));
        let end = keys::after_prefix(&start);
        self.batch
            .delete_range_cf(self.engine.family(Family::Slot), start, end);
    }

    fn flip(&mut self, slot: SlotId) {
        let generation = self.generation(slot);
        let next = generation.saturating_add(1);
        self.batch.put_cf(
            self.engine.family(Family::Generation),
            keys::slot(slot),
            next.to_be_bytes(),
        );
        self.changes.generations.insert(slot, next);
        self.changes
            .old_generations
            .push(OldGeneration { slot, generation });
    }

    fn append(&mut self, incarnation: Incarnation, records: &[Record]) {
        let first = records.first().map_or(Seq(0), |record| record.seq);
        self.put_records(incarnation, first, record_block::encode(records));
    }

    fn put_records(&mut self, incarnation: Incarnation, first: Seq, value: Bytes) {
        self.batch.put_cf(
            self.engine.family(Family::Records),
            keys::records(incarnation, first),
            &value,
        );
        self.records.push(RecordChange::Put(incarnation, first, value));
    }

    fn remove_records(&mut self, from: Vec<u8>, to: Vec<u8>) {
        if from < to {
            self.batch
                .delete_range_cf(self.engine.family(Family::Records), &from, &to);
            self.records.push(RecordChange::Removed(from, to));
        }
    }

    /// A value that cannot be read cannot be cut: it stays as it is, so that whoever reads it finds the damage (R30).
    fn truncate(&mut self, incarnation: Incarnation, from: Seq) {
        let cut = match self.value_at_or_before(incarnation, from.previous()) {
            Ok(Some((first, value))) if first < from => record_block::cut(first, &value, from)
                .ok()
                .flatten()
                .map(|kept| (first, kept, value)),
            _ => None,
        };
        if let Some((first, kept, value)) = cut
            && kept != value
        {
            self.put_records(incarnation, first, kept);
        }
        let end = keys::after_prefix(&keys::channel_state(incarnation));
        if self.any_from(incarnation, from).unwrap_or(true) {
            self.remove_records(keys::records(incarnation, from), end);
        }
    }

    /// Whole values go; the value that reaches beyond `through` stays, and so does one of which it is not known where it
    /// ends.
    fn trim(&mut self, incarnation: Incarnation, through: Seq) -> Result<(), Corrupt> {
        let Some((first, value)) = self.value_at_or_before(incarnation, through)? else {
            return Ok(());
        };
        let goes = record_block::last_seq(first, &value).is_ok_and(|last| last <= through);
        let mut end = keys::records(incarnation, first);
        if goes {
            end.push(0);
        }
        self.remove_records(keys::channel_state(incarnation), end);
        Ok(())
    }

    fn drop_incarnation(&mut self, incarnation: Incarnation) {
        let start = keys::channel_state(incarnation);
        let end = keys::after_prefix(&start);
        self.remove_records(start.clone(), end.clone());
        self.batch
            .delete_range_cf(self.engine.family(Family::Cursor), &start, &end);
        self.batch.delete_cf(self.engine.family(Family::State), start);
    }

    /// The value with the highest first position that is not above `seq`, as this batch has left it so far.
    fn value_at_or_before(
        &self,
        incarnation: Incarnation,
        seq: Seq,
    ) -> Result<Option<(Seq, Bytes)>, Corrupt> {
        let mut scan = Scan::new(self.engine, Family::Records, &keys::channel_state(incarnation));
        scan.seek_for_prev(&keys::records(incarnation, seq));
        let mut stored = None;
        while let Some((key, value)) = scan.entry() {
            if !self.removed(key) {
                stored = keys::parse_records(key).map(|(_, first)| (first, Bytes::copy_from_slice(value)));
                break;
            }
            scan.previous();
        }
        scan.finish().map_err(|error| Corrupt(error.to_string()))?;
        let pending = self.pending(incarnation);
        let written = pending
            .range(..=seq)
            .next_back()
            .map(|(first, value)| (*first, value.clone()));
        // On the same position this batch's value is the newer one.
        Ok(match (stored, written) {
            (Some(stored), Some(written)) if stored.0 > written.0 => Some(stored),
            (stored, written) => written.or(stored),
        })
    }

    /// Whether any value starts at or after `from`.
    fn any_from(&self, incarnation: Incarnation, from: Seq) -> Result<bool, Corrupt> {
        let mut scan = Scan::new(self.engine, Family::Records, &keys::channel_state(incarnation));
        scan.seek(&keys::records(incarnation, from));
        let stored = scan.entry().is_some();
        scan.finish().map_err(|error| Corrupt(error.to_string()))?;
        Ok(stored || self.pending(incarnation).range(from..).next().is_some())
    }

    fn removed(&self, key: &[u8]) -> bool {
        self.records.iter().any(|change| match change {
            RecordChange::Removed(from, to) => from.as_slice() <= key && key < to.as_slice(),
            RecordChange::Put(..) => false,
        })
    }

    /// The values that this batch wrote for the channel and did not remove again.
    fn pending(&self, incarnation: Incarnation) -> BTreeMap<Seq, Bytes> {
        let mut pending = BTreeMap::new();
        for change in &self.records {
            match change {
                RecordChange::Put(of, first, value) if *of == incarnation => {
                    pending.insert(*first, value.clone());
                }
                RecordChange::Put(..) => {}
                RecordChange::Removed(from, to) => pending.retain(|first, _| {
                    let key = keys::records(incarnation, *first);
                    key < *from || key >= *to
                }),
            }
        }
        pending
    }
}
