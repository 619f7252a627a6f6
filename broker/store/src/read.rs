//! Point reads: from memory for the machines, from anywhere for the loader (M-13).

use crate::cache::Look;
use crate::error::Error;
use crate::keys;
use crate::store::Store;
use bytes::Bytes;
use penstock_core::rows::{Key, Miss, Row, Rows};
use penstock_core::types::SlotId;
use rocksdb::{ErrorKind, ReadOptions, ReadTier};
use std::sync::atomic::Ordering;

/// Point reads of one input. They never wait for the disk: what is neither in a memtable nor in the block cache is a miss.
/// Only the keys of the `Loaded` that is being handled are read from anywhere; they have just been loaded.
#[derive(Debug)]
pub struct CachedRows<'a> {
    store: &'a Store,
    pinned: &'a [Key],
}

/// Options of reads that never wait for the disk, made once.
pub(crate) struct FromMemory(ReadOptions);

impl FromMemory {
    pub(crate) fn new() -> FromMemory {
        let mut options = ReadOptions::default();
        options.set_read_tier(ReadTier::BlockCache);
        FromMemory(options)
    }
}

impl std::fmt::Debug for FromMemory {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("FromMemory")
    }
}

impl Rows for CachedRows<'_> {
    fn row(&self, key: &Key) -> Result<Option<Row>, Miss> {
        let metrics = self.store.metrics();
        let mark = match self.store.cache().look(key) {
            Look::Known(row) => {
                metrics.hits.fetch_add(1, Ordering::Relaxed);
                return Ok(row);
            }
            Look::Unknown(mark) => Some(mark),
            Look::Other => None,
        };
        match self.store.point_read(key, &self.store.memory_reads().0) {
            Ok(row) => {
                metrics.hits.fetch_add(1, Ordering::Relaxed);
                if let Some(mark) = mark {
                    self.store.cache().offer(mark, row.clone());
                }
                Ok(row)
            }
            Err(error) if error.kind() == ErrorKind::Incomplete => {
                metrics.misses.fetch_add(1, Ordering::Relaxed);
                if self.pinned.contains(key) {
                    self.store.row(key).map_err(|_| Miss(vec![key.clone()]))
                } else {
                    Err(Miss(vec![key.clone()]))
                }
            }
            Err(error) => {
                // The load that the miss asks for fails as well, and says so.
                self.store.poison(format!("reading {key:?} failed: {error}"));
                Err(Miss(vec![key.clone()]))
            }
        }
    }
}

impl Store {
    /// Point reads for one input; `pinned` are the keys of the `Loaded` that is being handled, else empty.
    #[must_use]
    pub fn rows<'a>(&'a self, pinned: &'a [Key]) -> CachedRows<'a> {
        CachedRows { store: self, pinned }
    }

    /// Answers an `Effect::Load`. Blocks: for the loader's threads. Every key is in memory afterwards.
    pub fn load(&self, keys: &[Key]) -> Result<Vec<(Key, Option<Row>)>, Error> {
        keys.iter().map(|key| Ok((key.clone(), self.row(key)?))).collect()
    }

    /// One row, from memory or disk. A failure stops the store.
    pub fn row(&self, key: &Key) -> Result<Option<Row>, Error> {
        self.point_read(key, &ReadOptions::default())
            .map_err(|error| self.poison(format!("reading {key:?} failed: {error}")))
    }

    fn point_read(&self, key: &Key, options: &ReadOptions) -> Result<Option<Row>, rocksdb::Error> {
        let slot = match key {
            Key::Slot { slot, .. } | Key::Staged { slot, .. } => Some(*slot),
            _ => None,
        };
        self.in_one_generation(slot, |generation| {
            let (family, bytes) = keys::point(key, generation);
            let engine = self.engine(key.instance());
            let row = engine
                .db
                .get_pinned_cf_opt(engine.family(family), bytes, options)?;
            Ok(row.map(|row| Bytes::copy_from_slice(&row)))
        })
    }

    /// Reads under the slot's current generation, again if it was flipped meanwhile: the old one may already be going.
    pub(crate) fn in_one_generation<T>(&self, slot: Option<SlotId>, read: impl Fn(u32) -> T) -> T {
        loop {
            let generation = slot.map_or(0, |slot| self.generation(slot));
            let value = read(generation);
            if slot.is_none_or(|slot| self.generation(slot) == generation) {
                return value;
            }
        }
    }
}
