//! Numbers of a running store. Written by its threads, read by anyone; each is exact, all of them together are not one
//! instant.

use penstock_core::rows::Instance;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets of sync latency, microseconds; one more bucket takes what is above.
pub const LATENCY_BOUNDS_US: [u64; 11] = [
    50, 100, 200, 500, 1_000, 2_000, 5_000, 20_000, 100_000, 500_000, 2_000_000,
];

/// Numbers of one instance.
#[derive(Debug, Default)]
pub struct SyncMetrics {
    /// Syncs of the write-ahead log.
    pub syncs: AtomicU64,
    /// Time in syncs, microseconds.
    pub sync_us: AtomicU64,
    /// Syncs by latency: not cumulative, bounds in [`LATENCY_BOUNDS_US`].
    pub latency: [AtomicU64; LATENCY_BOUNDS_US.len() + 1],
    /// Batches written.
    pub batches: AtomicU64,
    /// Bytes of batches written.
    pub bytes: AtomicU64,
    /// Files at level 0, the most of any family.
    pub level0_files: AtomicU64,
    /// Estimated bytes that compactions have to rewrite.
    pub pending_compaction_bytes: AtomicU64,
    /// Whether RocksDB slows writes down (1) or stops them (2).
    pub stall: AtomicU64,
    /// Times that a shard waited because too much was unsynced.
    pub waits: AtomicU64,
}

/// Numbers of a store.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Of `meta/`.
    pub meta: SyncMetrics,
    /// Of `data/`.
    pub data: SyncMetrics,
    /// Point reads answered from memory.
    pub hits: AtomicU64,
    /// Point reads that had to be loaded (M-13).
    pub misses: AtomicU64,
    /// Pages answered as corrupt (R30).
    pub corrupt: AtomicU64,
    /// Free bytes of the file system.
    pub free_bytes: AtomicU64,
    /// Whether less than the configured space is free.
    pub space_low: AtomicBool,
}

impl Metrics {
    /// The numbers of one instance.
    #[must_use]
    pub fn of(&self, instance: Instance) -> &SyncMetrics {
        match instance {
            Instance::Meta => &self.meta,
            Instance::Data => &self.data,
        }
    }
}

impl SyncMetrics {
    pub(crate) fn synced(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = LATENCY_BOUNDS_US.partition_point(|bound| *bound < us);
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.sync_us.fetch_add(us, Ordering::Relaxed);
        self.latency[bucket].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn wrote(&self, bytes: u64) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_falls_into_the_bucket_of_its_bound() {
        let metrics = SyncMetrics::default();
        for us in [50, 51, 100, 3_000_000] {
            metrics.synced(Duration::from_micros(us));
        }
        let buckets: Vec<u64> = metrics
            .latency
            .iter()
            .map(|bucket| bucket.load(Ordering::Relaxed))
            .collect();
        assert_eq!(buckets, [1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    }
}
