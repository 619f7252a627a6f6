//! What a store does by the way: remove old generations, watch the free space and RocksDB's own health.

use crate::keys::{self, Family};
use crate::store::{OldGeneration, Store};
use penstock_core::rows::Instance;
use penstock_core::types::Incarnation;
use rocksdb::properties;
use rocksdb::{WriteBatch, WriteOptions};
use std::fs::{self, OpenOptions};
use std::path::Path;
use std::sync::atomic::Ordering;

const RESERVE: &str = "reserve";

/// Puts the reserve file in place, if there is room: its blocks are allocated, not only its length.
pub(crate) fn reserve(directory: &Path, bytes: u64) {
    let path = directory.join(RESERVE);
    let kept = fs::metadata(&path).is_ok_and(|metadata| metadata.len() == bytes);
    if kept || bytes == 0 {
        return;
    }
    let allocated = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)
        .and_then(|file| {
            let flags = rustix::fs::FallocateFlags::empty();
            rustix::fs::fallocate(&file, flags, 0, bytes).map_err(std::io::Error::from)
        });
    if let Err(error) = allocated {
        tracing::warn!(%error, path = %path.display(), "no space can be reserved for a shutdown on a full disk");
        free_reserve(directory);
    }
}

/// Frees the reserve. There may be none.
pub(crate) fn free_reserve(directory: &Path) {
    let path = directory.join(RESERVE);
    if let Err(error) = fs::remove_file(&path)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(%error, path = %path.display(), "the reserve could not be freed");
    }
}

/// Tells the operator when the free space crosses its mark.
fn tell(is_low: bool, free_bytes: u64) {
    if is_low {
        tracing::warn!(
            free_bytes,
            "free space is below store.low_space_bytes: sends are refused until there is more"
        );
    } else {
        tracing::info!(
            free_bytes,
            "free space is above store.low_space_bytes again: sends are taken"
        );
    }
}

impl Store {
    /// One round of housekeeping. [`crate::Writer`] calls it every second.
    pub fn tend(&self) {
        self.watch_space();
        for instance in [Instance::Meta, Instance::Data] {
            self.watch_engine(instance);
        }
        self.sweep();
    }

    fn watch_space(&self) {
        match rustix::fs::statvfs(&self.directory().path) {
            Ok(system) => {
                let free = system.f_bavail.saturating_mul(system.f_frsize);
                let low = free < self.options().low_space_bytes;
                self.metrics().free_bytes.store(free, Ordering::Relaxed);
                if low != self.metrics().space_low.swap(low, Ordering::Relaxed) {
                    tell(low, free);
                }
            }
            Err(error) => tracing::warn!(%error, "the free space is unknown"),
        }
    }

    fn watch_engine(&self, instance: Instance) {
        let engine = self.engine(instance);
        let number =
            |name: &properties::PropName| engine.db.property_int_value(name).ok().flatten().unwrap_or(0);
        let of_family = |family: Family, name: &properties::PropName| {
            let value = engine.db.property_int_value_cf(engine.family(family), name);
            value.ok().flatten().unwrap_or(0)
        };
        let families = Family::of(instance);
        let level0 = properties::num_files_at_level(0);
        let files = families.iter().map(|family| of_family(*family, &level0)).max();
        let pending = families
            .iter()
            .map(|family| of_family(*family, properties::ESTIMATE_PENDING_COMPACTION_BYTES))
            .sum();
        let stall = if number(properties::IS_WRITE_STOPPED) > 0 {
            2
        } else {
            u64::from(number(properties::ACTUAL_DELAYED_WRITE_RATE) > 0)
        };
        let metrics = self.metrics().of(instance);
        metrics.level0_files.store(files.unwrap_or(0), Ordering::Relaxed);
        metrics.pending_compaction_bytes.store(pending, Ordering::Relaxed);
        metrics.stall.store(stall, Ordering::Relaxed);
        if number(properties::BACKGROUND_ERRORS) > 0 {
            self.poison("a flush or compaction failed; the log of the instance says why".to_owned());
        }
    }

    /// Removes generations that flips have left behind (M-10). Each removal follows its flip in the write-ahead log, so
    /// that no crash keeps the removal without the flip.
    fn sweep(&self) {
        if self.poisoned().is_some() {
            return;
        }
        let old: Vec<OldGeneration> = std::mem::take(&mut *self.old_generations());
        if old.is_empty() {
            return;
        }
        let engine = self.engine(Instance::Meta);
        let mut batch = WriteBatch::default();
        for OldGeneration { slot, generation } in old {
            let start = keys::slot_generation(slot, generation);
            let end = keys::after_prefix(&start);
            batch.delete_range_cf(engine.family(Family::Slot), start, end);
        }
        if let Err(error) = engine.db.write_opt(batch, &WriteOptions::default()) {
            self.poison(format!("removing old generations failed: {error}"));
        }
    }

    /// Drops the idempotency rows of all days before `day` (M-11): whole files first, then what is left in others. Rows
    /// expire by their stamp anyway; this gives the space back.
    pub fn drop_dedupe_before(&self, day: u16) -> Result<(), crate::Error> {
        self.usable()?;
        let engine = self.engine(Instance::Data);
        let family = engine.family(Family::Dedupe);
        let start = keys::dedupe(0, Incarnation(0), 0);
        let end = keys::dedupe(day, Incarnation(0), 0);
        let mut batch = WriteBatch::default();
        batch.delete_range_cf(family, &start, &end);
        engine
            .db
            .delete_file_in_range_cf(family, &start, &end)
            .and_then(|()| engine.db.write_opt(batch, &WriteOptions::default()))
            .map_err(|error| self.poison(format!("dropping old idempotency rows failed: {error}")))
    }
}
