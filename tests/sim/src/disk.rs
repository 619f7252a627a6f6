//! The simulated disk: what the store promises, in memory and without chance of its own.
//!
//! *Owns*: the content of a node's two instances, as it is visible and as it is durable, and the batches in between.
//!
//! *Invariants*: a batch is visible at once and whole; a crash keeps a prefix of the batches of an instance, in the order
//! in which they were written over all shards (M-9); what a sync covered is never lost by a crash; after a failed write
//! or sync nothing is written or made durable any more until the restart (R14).
//!
//! *States*: working, or poisoned, both instances together.
//!
//! *Absent*: time (the world decides when a sync ends), a random source (every choice is an argument).
//!
//! The world keeps this value outside of its node: a crash drops the node, never the disk.

mod tables;

use penstock_core::rows::{GroupImage, Instance, Key, Miss, Page, ReadRequest, Row, Rows, Write};
use penstock_core::types::{DiskBoot, GroupId, SlotId, Ticket};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use tables::Tables;

/// Why a write or a sync failed. Each one poisons the disk (R14).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskError {
    /// No space is left.
    Full,
    /// An input/output error of a sync.
    Io,
    /// An earlier failure.
    Poisoned,
}

impl fmt::Display for DiskError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiskError::Full => formatter.write_str("no space left on the device"),
            DiskError::Io => formatter.write_str("input/output error"),
            DiskError::Poisoned => formatter.write_str("poisoned by an earlier failure"),
        }
    }
}

impl std::error::Error for DiskError {}

/// A running sync: made by [`SimDisk::begin_sync`], consumed by [`SimDisk::finish_sync`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sync {
    instance: Instance,
    batches: usize,
    era: u64,
}

#[derive(Clone, Debug)]
struct Batch {
    shard: u16,
    ticket: Ticket,
    writes: Vec<Write>,
}

#[derive(Clone, Debug, Default)]
struct Part {
    durable: Tables,
    visible: Tables,
    unsynced: Vec<Batch>,
    syncs: u64,
    failing_sync: Option<u64>,
}

impl Part {
    fn write(&mut self, batch: Batch) {
        self.visible.apply(&batch.writes);
        self.unsynced.push(batch);
    }

    /// Makes the oldest unsynced batches durable; returns the newest ticket of each shard among them.
    fn persist(&mut self, batches: usize) -> Vec<(u16, Ticket)> {
        let mut newest: BTreeMap<u16, Ticket> = BTreeMap::new();
        for batch in self.unsynced.drain(..batches) {
            self.durable.apply(&batch.writes);
            newest.insert(batch.shard, batch.ticket);
        }
        newest.into_iter().collect()
    }

    fn end_sync(&mut self, batches: usize) -> Result<Vec<(u16, Ticket)>, DiskError> {
        self.syncs += 1;
        if self.failing_sync == Some(self.syncs) {
            self.failing_sync = None;
            return Err(DiskError::Io);
        }
        Ok(self.persist(batches))
    }
}

/// A node's disk.
#[derive(Clone, Debug)]
pub struct SimDisk {
    boot: DiskBoot,
    era: u64,
    meta: Part,
    data: Part,
    full: bool,
    poisoned: bool,
}

impl SimDisk {
    /// An empty disk with this boot.
    #[must_use]
    pub fn new(boot: DiskBoot) -> SimDisk {
        SimDisk {
            boot,
            era: 0,
            meta: Part::default(),
            data: Part::default(),
            full: false,
            poisoned: false,
        }
    }

    /// Id of the disk's content (M-4).
    #[must_use]
    pub fn boot(&self) -> DiskBoot {
        self.boot
    }

    fn part(&self, instance: Instance) -> &Part {
        match instance {
            Instance::Meta => &self.meta,
            Instance::Data => &self.data,
        }
    }

    fn part_mut(&mut self, instance: Instance) -> &mut Part {
        match instance {
            Instance::Meta => &mut self.meta,
            Instance::Data => &mut self.data,
        }
    }

    /// Executes a Store effect of a shard: visible at once, durable after a sync. After an error nothing of the batch may
    /// be counted on, and the disk is poisoned.
    pub fn write(
        &mut self,
        instance: Instance,
        shard: u16,
        ticket: Ticket,
        writes: &[Write],
    ) -> Result<(), DiskError> {
        assert!(
            writes.iter().all(|write| write.instance() == instance),
            "no batch spans both instances (M-7)"
        );
        if self.poisoned {
            return Err(DiskError::Poisoned);
        }
        let written = if self.full {
            Err(DiskError::Full)
        } else {
            self.part_mut(instance).write(Batch {
                shard,
                ticket,
                writes: writes.to_vec(),
            });
            Ok(())
        };
        self.poisoned = written.is_err();
        written
    }

    /// How many batches a crash could lose.
    #[must_use]
    pub fn unsynced(&self, instance: Instance) -> usize {
        self.part(instance).unsynced.len()
    }

    /// Starts a sync of everything written so far; `None` when there is nothing to sync. One per instance at a time, as the
    /// store has one syncer per instance.
    pub fn begin_sync(&self, instance: Instance) -> Option<Sync> {
        let era = self.era;
        let part = self.part(instance);
        (!self.poisoned && !part.unsynced.is_empty()).then_some(Sync {
            instance,
            batches: part.unsynced.len(),
            era,
        })
    }

    /// Ends a sync: what it covers is durable. Returns the newest durable ticket of each shard, for `Stored`. A sync begun
    /// before a crash covers nothing.
    pub fn finish_sync(&mut self, sync: Sync) -> Result<Vec<(u16, Ticket)>, DiskError> {
        if sync.era != self.era {
            return Ok(Vec::new());
        }
        if self.poisoned {
            return Err(DiskError::Poisoned);
        }
        let synced = self.part_mut(sync.instance).end_sync(sync.batches);
        self.poisoned = synced.is_err();
        synced
    }

    /// Begins and ends a sync.
    pub fn sync(&mut self, instance: Instance) -> Result<Vec<(u16, Ticket)>, DiskError> {
        if self.poisoned {
            return Err(DiskError::Poisoned);
        }
        self.begin_sync(instance)
            .map_or_else(|| Ok(Vec::new()), |sync| self.finish_sync(sync))
    }

    /// The machine stops. Of each instance's unsynced batches the first `keep(instance, how many there are)` survive, and
    /// what survived is durable, as the store flushes what it recovers. Heals poisoning.
    pub fn crash(&mut self, mut keep: impl FnMut(Instance, usize) -> usize) {
        self.era += 1;
        self.poisoned = false;
        for instance in [Instance::Meta, Instance::Data] {
            let part = self.part_mut(instance);
            let unsynced = part.unsynced.len();
            let kept = keep(instance, unsynced).min(unsynced);
            // A batch that cannot be applied any more was never finished: it and what follows are lost.
            part.persist(kept);
            part.unsynced.clear();
            part.visible = part.durable.clone();
        }
    }

    /// The content is lost: an empty disk under a new boot (M-8, CO-5).
    pub fn wipe(&mut self, boot: DiskBoot) {
        let era = self.era + 1;
        *self = SimDisk::new(boot);
        self.era = era;
    }

    /// Lets the n-th sync from now (1 is the next) of this instance fail, once.
    pub fn fail_sync(&mut self, instance: Instance, nth: u64) {
        let part = self.part_mut(instance);
        part.failing_sync = Some(part.syncs + nth.max(1));
    }

    /// Lets every write fail for lack of space, until called with false.
    pub fn set_full(&mut self, full: bool) {
        self.full = full;
    }

    /// Whether a write or sync failed: the node must stop acknowledging and restart.
    #[must_use]
    pub fn poisoned(&self) -> bool {
        self.poisoned
    }

    /// Flips one bit of one durable value of records, chosen by `random`. False when there is none.
    pub fn flip_record_bit(&mut self, random: u64) -> bool {
        let blocks = &self.data.durable.blocks;
        // A disk never holds 2^64 values, nor a value 2^61 bytes.
        let pick = |length: usize, random: u64| (random % (length.max(1) as u64)) as usize;
        let Some((&position, value)) = blocks.iter().nth(pick(blocks.len(), random)) else {
            return false;
        };
        let mut damaged = value.to_vec();
        let bit = pick(damaged.len() * 8, random.rotate_left(32) ^ random);
        damaged[bit / 8] ^= 1 << (bit % 8);
        let damaged = bytes::Bytes::from(damaged);
        let undamaged = blocks.get(&position).cloned();
        if self.data.visible.blocks.get(&position) == undamaged.as_ref() {
            self.data.visible.blocks.insert(position, damaged.clone());
        }
        self.data.durable.blocks.insert(position, damaged);
        true
    }

    /// Point reads for one input. See [`Misses`].
    #[must_use]
    pub fn rows<'a>(&'a self, misses: Misses<'a>) -> SimRows<'a> {
        SimRows {
            disk: self,
            misses,
            reads: Cell::new(0),
            missed: Cell::new(0),
        }
    }

    /// The rows of an `Effect::Load`.
    #[must_use]
    pub fn load(&self, keys: &[Key]) -> Vec<(Key, Option<Row>)> {
        keys.iter().map(|key| (key.clone(), self.row_of(key))).collect()
    }

    fn row_of(&self, key: &Key) -> Option<Row> {
        self.part(key.instance()).visible.rows.get(key).cloned()
    }

    /// Answers an `Effect::Read`.
    #[must_use]
    pub fn read(&self, request: &ReadRequest) -> Page {
        match request {
            ReadRequest::SlotRows { .. } | ReadRequest::SnapshotRows { .. } => {
                self.meta.visible.read(request)
            }
            ReadRequest::Records { .. }
            | ReadRequest::LogTail { .. }
            | ReadRequest::Cursors { .. }
            | ReadRequest::Dedupe { .. } => self.data.visible.read(request),
        }
    }

    /// The Raft groups that have anything stored, ascending.
    #[must_use]
    pub fn groups(&self) -> Vec<GroupId> {
        self.meta.visible.groups()
    }

    /// The recovery image of a group.
    #[must_use]
    pub fn group_image(&self, group: GroupId) -> GroupImage {
        self.meta.visible.group_image(group)
    }

    /// What a crash now would at least leave of a channel log, for checkers that look from outside (M-20).
    #[must_use]
    pub fn durable_read(&self, request: &ReadRequest) -> Page {
        match request {
            ReadRequest::SlotRows { .. } | ReadRequest::SnapshotRows { .. } => {
                self.meta.durable.read(request)
            }
            ReadRequest::Records { .. }
            | ReadRequest::LogTail { .. }
            | ReadRequest::Cursors { .. }
            | ReadRequest::Dedupe { .. } => self.data.durable.read(request),
        }
    }

    /// A sum over all rows of these slots, as they are visible: equal rows have equal sums.
    #[must_use]
    pub fn digest(&self, slots: &[SlotId]) -> u64 {
        self.meta.visible.digest_of(slots)
    }

    /// The last durable index of a group's Raft log; 0 when there is none.
    #[must_use]
    pub fn durable_last_entry(&self, group: GroupId) -> u64 {
        self.meta.durable.last_entry(group)
    }

    /// What a crash now would at least leave of a row.
    #[must_use]
    pub fn durable_row(&self, key: &Key) -> Option<Row> {
        self.part(key.instance()).durable.rows.get(key).cloned()
    }
}

/// Which point reads are answered with a miss (M-13): so many of a thousand, drawn from `seed`, but never a pinned key.
#[derive(Clone, Copy, Debug, Default)]
pub struct Misses<'a> {
    /// Changes with every input.
    pub seed: u64,
    /// 0 never, 1,000 always.
    pub per_mille: u16,
    /// The keys of the `Loaded` that is being handled.
    pub pinned: &'a [Key],
}

/// Point reads of one input.
#[derive(Debug)]
pub struct SimRows<'a> {
    disk: &'a SimDisk,
    misses: Misses<'a>,
    reads: Cell<u64>,
    missed: Cell<u64>,
}

impl SimRows<'_> {
    /// Reads so far.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads.get()
    }

    /// Misses so far.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed.get()
    }
}

impl Rows for SimRows<'_> {
    fn row(&self, key: &Key) -> Result<Option<Row>, Miss> {
        let number = self.reads.get();
        self.reads.set(number + 1);
        let drawn = mix(self.misses.seed ^ mix(number)) % 1_000;
        if drawn < u64::from(self.misses.per_mille) && !self.misses.pinned.contains(key) {
            self.missed.set(self.missed.get() + 1);
            return Err(Miss(vec![key.clone()]));
        }
        Ok(self.disk.row_of(key))
    }
}

/// Spreads a number over 64 bits (splitmix64).
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests;
