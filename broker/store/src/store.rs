//! The open store: writes, syncs, and what happens when one of them fails.

use crate::batch::Translation;
use crate::cache::RowCache;
use crate::directory::Directory;
use crate::engine::Engine;
use crate::error::Error;
use crate::keys::{self, Family};
use crate::mark::Mark;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::read::FromMemory;
use crate::scan::Scan;
use crate::tend;
use penstock_core::rows::{CONTROLLER_SLOT, Instance, Write};
use penstock_core::types::{GroupId, RaftIndex, SlotId};
use rocksdb::WriteOptions;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// One instance with its mark.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) engine: Engine,
    mark: Mutex<Mark>,
}

impl Part {
    pub(crate) fn new(engine: Engine, mark: Mark) -> Part {
        Part {
            engine,
            mark: Mutex::new(mark),
        }
    }
}

/// First and last index that a Raft log may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RaftBounds {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// A slot's generation that is no longer current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OldGeneration {
    pub(crate) slot: SlotId,
    pub(crate) generation: u32,
}

/// An open data directory. Shared by all threads of the process.
#[derive(Debug)]
pub struct Store {
    parts: [Part; 2],
    options: Options,
    metrics: Metrics,
    from_memory: FromMemory,
    cache: RowCache,
    generations: Vec<AtomicU32>,
    raft: Mutex<BTreeMap<GroupId, RaftBounds>>,
    old_generations: Mutex<Vec<OldGeneration>>,
    poison: OnceLock<Error>,
    /// Last, so that the lock is let go after RocksDB has closed.
    directory: Directory,
}

impl Store {
    pub(crate) fn assemble(directory: Directory, options: Options, parts: [Part; 2]) -> Result<Store, Error> {
        let store = Store {
            parts,
            options,
            metrics: Metrics::default(),
            from_memory: FromMemory::new(),
            cache: RowCache::new(),
            generations: (0..=CONTROLLER_SLOT.0).map(|_| AtomicU32::new(0)).collect(),
            raft: Mutex::default(),
            old_generations: Mutex::default(),
            poison: OnceLock::new(),
            directory,
        };
        store.load_generations()?;
        store.load_raft_bounds()?;
        store.find_old_generations()?;
        store.tend();
        tend::reserve(&store.directory.path, store.options.reserve_bytes);
        store.usable()?;
        Ok(store)
    }

    fn load_generations(&self) -> Result<(), Error> {
        let mut scan = Scan::new(self.engine(Instance::Meta), Family::Generation, &[]);
        scan.seek(&[]);
        while let Some((key, value)) = scan.entry() {
            let row = [key, value].concat();
            let Some((slot, generation)) = keys::parse_generation(&row) else {
                return Err(self.poison("a row of `generation` is of no known form".to_owned()));
            };
            if let Some(current) = self.generations.get(usize::from(slot.0)) {
                current.store(generation, Ordering::Release);
            }
            scan.next();
        }
        scan.finish().map_err(|error| self.poison(error.to_string()))
    }

    fn load_raft_bounds(&self) -> Result<(), Error> {
        for group in self.raft_groups()? {
            let mut scan = Scan::new(self.engine(Instance::Meta), Family::Raft, &group.0.to_be_bytes());
            scan.seek(&keys::raft_entry(group, RaftIndex(0)));
            let first = scan.entry().and_then(|(key, _)| keys::parse_raft_entry(key));
            scan.seek_for_prev(&keys::raft_entry(group, RaftIndex(u64::MAX)));
            let last = scan.entry().and_then(|(key, _)| keys::parse_raft_entry(key));
            scan.finish().map_err(|error| self.poison(error.to_string()))?;
            if let (Some((_, first)), Some((_, last))) = (first, last) {
                let bounds = RaftBounds {
                    first: first.0,
                    last: last.0,
                };
                self.raft_bounds().insert(group, bounds);
            }
        }
        Ok(())
    }

    /// Every generation but the current one and the one that an install may be filling is left over from a flip.
    fn find_old_generations(&self) -> Result<(), Error> {
        for slot in (0..=CONTROLLER_SLOT.0).map(SlotId) {
            let mut scan = Scan::new(self.engine(Instance::Meta), Family::Slot, &keys::slot(slot));
            scan.seek(&keys::slot(slot));
            while let Some((_, generation)) = scan.entry().and_then(|(key, _)| keys::parse_generation(key)) {
                if generation >= self.generation(slot) {
                    break;
                }
                self.old_generations().push(OldGeneration { slot, generation });
                scan.seek(&keys::slot_generation(slot, generation.saturating_add(1)));
            }
            scan.finish().map_err(|error| self.poison(error.to_string()))?;
        }
        Ok(())
    }

    pub(crate) fn part(&self, instance: Instance) -> &Part {
        match instance {
            Instance::Meta => &self.parts[0],
            Instance::Data => &self.parts[1],
        }
    }

    pub(crate) fn engine(&self, instance: Instance) -> &Engine {
        &self.part(instance).engine
    }

    pub(crate) fn cache(&self) -> &RowCache {
        &self.cache
    }

    pub(crate) fn memory_reads(&self) -> &FromMemory {
        &self.from_memory
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
    }

    pub(crate) fn raft_bounds(&self) -> MutexGuard<'_, BTreeMap<GroupId, RaftBounds>> {
        self.raft.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn old_generations(&self) -> MutexGuard<'_, Vec<OldGeneration>> {
        self.old_generations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The slot's current generation (M-10). Slots beyond the last one have none.
    pub(crate) fn generation(&self, slot: SlotId) -> u32 {
        self.generations
            .get(usize::from(slot.0))
            .map_or(0, |generation| generation.load(Ordering::Acquire))
    }

    /// Numbers for `/metrics`.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Whether less than the configured space is free: refuse sends before the disk is full (R14).
    #[must_use]
    pub fn space_low(&self) -> bool {
        self.metrics.space_low.load(Ordering::Relaxed)
    }

    /// Why the store stopped, if it did.
    #[must_use]
    pub fn poisoned(&self) -> Option<&Error> {
        self.poison.get()
    }

    pub(crate) fn usable(&self) -> Result<(), Error> {
        self.poison.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Stops the store: the first failure is the one that is reported from now on (R14). A full disk gets the reserve back,
    /// so that what runs can end.
    pub(crate) fn poison(&self, what: String) -> Error {
        if what.contains("No space left") {
            tend::free_reserve(&self.directory.path);
        }
        let error = self.poison.get_or_init(|| {
            tracing::error!(%what, "the store stopped: nothing is acknowledged until the restart");
            Error::Poisoned(what)
        });
        error.clone()
    }

    /// Writes one effect: atomic, in order, visible at once, durable after the next [`Store::sync`] that begins after the
    /// return. From any thread; effects on the same channel, group or slot from one thread at a time. Returns the bytes
    /// of the batch. A failure stops the store.
    pub fn write(&self, instance: Instance, writes: &[Write]) -> Result<u64, Error> {
        self.usable()?;
        assert!(
            writes.iter().all(|write| write.instance() == instance),
            "no batch spans both instances (M-7)"
        );
        let mut translation = Translation::new(self, instance);
        for write in writes {
            translation
                .add(write)
                .map_err(|corrupt| self.poison(corrupt.to_string()))?;
        }
        let (batch, changes) = translation.finish();
        let bytes = u64::try_from(batch.size_in_bytes()).unwrap_or(u64::MAX);
        self.engine(instance)
            .db
            .write_opt(batch, &WriteOptions::default())
            .map_err(|error| self.poison(format!("a write failed: {error}")))?;
        self.raft_bounds().extend(changes.raft);
        for (slot, generation) in changes.generations {
            if let Some(current) = self.generations.get(usize::from(slot.0)) {
                current.store(generation, Ordering::Release);
            }
        }
        self.old_generations().extend(changes.old_generations);
        if instance == Instance::Meta {
            self.cache.changed(writes);
        }
        self.metrics.of(instance).wrote(bytes);
        Ok(bytes)
    }

    /// Makes everything written before the call durable, then moves the mark (M-8). A failure stops the store; a sync is
    /// never tried again (R14).
    pub fn sync(&self, instance: Instance) -> Result<(), Error> {
        self.usable()?;
        let part = self.part(instance);
        let mark = part.mark.lock().unwrap_or_else(PoisonError::into_inner);
        let sequence = part.engine.db.latest_sequence_number();
        let start = Instant::now();
        part.engine
            .db
            .flush_wal(true)
            .map_err(|error| self.poison(format!("a sync failed: {error}")))?;
        self.metrics.of(instance).synced(start.elapsed());
        mark.write(sequence)
            .map_err(|error| self.poison(error.to_string()))?;
        self.usable()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        for instance in [Instance::Meta, Instance::Data] {
            if self.poisoned().is_none() && self.sync(instance).is_err() {
                tracing::error!("the last sync failed; nobody was told that it succeeded");
            }
            self.engine(instance).db.cancel_all_background_work(true);
        }
    }
}
