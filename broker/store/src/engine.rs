//! How the two RocksDB instances are tuned (M-7, M-8, M-11), and thin access to them.

use crate::keys::Family;
use crate::options::Options;
use penstock_core::rows::Instance;
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType, DBRecoveryMode,
    SliceTransform, UniversalCompactOptions,
};
use std::path::Path;

/// How to treat a damaged write-ahead log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recovery {
    /// Only the last, never finished record may be missing; anything else is corruption (M-8).
    Strict,
    /// Keep what stands before the damage. Only when an operator accepted the loss.
    KeepReadable,
}

/// One open instance.
pub(crate) struct Engine {
    pub(crate) db: DB,
}

impl Engine {
    /// Opens or creates an instance.
    pub(crate) fn open(
        path: &Path,
        instance: Instance,
        options: &Options,
        recovery: Recovery,
    ) -> Result<Engine, rocksdb::Error> {
        let cache = Cache::new_lru_cache(match instance {
            Instance::Meta => options.meta_cache_bytes,
            Instance::Data => options.data_cache_bytes,
        });
        // RocksDB demands that the family `default` is opened; nothing is kept in it.
        let default = ColumnFamilyDescriptor::new("default", rocksdb::Options::default());
        let families = Family::of(instance)
            .iter()
            .map(|family| {
                let tuned = family_options(*family, &cache, options);
                ColumnFamilyDescriptor::new(family.name(), tuned)
            })
            .chain([default]);
        let db = DB::open_cf_descriptors(&instance_options(instance, options, recovery), path, families)?;
        Ok(Engine { db })
    }

    pub(crate) fn family(&self, family: Family) -> &ColumnFamily {
        self.db
            .cf_handle(family.name())
            .expect("every family of the instance was opened")
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Engine").field(&self.db.path()).finish()
    }
}

fn instance_options(instance: Instance, options: &Options, recovery: Recovery) -> rocksdb::Options {
    let mut tuned = rocksdb::Options::default();
    tuned.create_if_missing(true);
    tuned.create_missing_column_families(true);
    tuned.set_paranoid_checks(true);
    tuned.set_wal_recovery_mode(match recovery {
        Recovery::Strict => DBRecoveryMode::TolerateCorruptedTailRecords,
        Recovery::KeepReadable => DBRecoveryMode::PointInTime,
    });
    // Batches wait in memory for the syncer: one system call per group commit instead of one per batch (M-9).
    tuned.set_manual_wal_flush(true);
    tuned.set_max_background_jobs(2);
    tuned.set_max_open_files(512);
    tuned.set_keep_log_file_num(4);
    tuned.set_max_log_file_size(4 << 20);
    tuned.set_stats_dump_period_sec(0);
    tuned.set_max_manifest_file_size(16 << 20);
    let (wal_bytes, memtables_bytes) = match instance {
        Instance::Meta => (128 << 20, 64 << 20),
        Instance::Data => (512 << 20, options.memtable_bytes * 4),
    };
    tuned.set_max_total_wal_size(wal_bytes);
    tuned.set_db_write_buffer_size(memtables_bytes);
    tuned
}

fn family_options(family: Family, cache: &Cache, options: &Options) -> rocksdb::Options {
    let mut tuned = rocksdb::Options::default();
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(cache);
    blocks.set_block_size(16 << 10);
    blocks.set_bloom_filter(10.0, false);
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    tuned.set_block_based_table_factory(&blocks);
    tuned.set_compression_type(DBCompressionType::Lz4);
    tuned.set_write_buffer_size(16 << 20);
    tuned.set_max_write_buffer_number(4);
    match family {
        Family::Records | Family::Dedupe => {
            let mut universal = UniversalCompactOptions::default();
            universal.set_size_ratio(20);
            tuned.set_compaction_style(rocksdb::DBCompactionStyle::Universal);
            tuned.set_universal_compaction_options(&universal);
            tuned.set_write_buffer_size(options.memtable_bytes);
            tuned.set_level_zero_slowdown_writes_trigger(24);
            tuned.set_level_zero_stop_writes_trigger(40);
        }
        Family::Cursor
        | Family::Generation
        | Family::Group
        | Family::Node
        | Family::Raft
        | Family::Slot
        | Family::State => {}
    }
    if matches!(family, Family::Dedupe | Family::Slot) {
        // Most point reads of these find nothing: no such key was seen, nobody is on the list.
        tuned.set_memtable_whole_key_filtering(true);
        tuned.set_memtable_prefix_bloom_ratio(0.02);
    }
    if family == Family::Records {
        // Scans stay inside one incarnation: files without it are skipped by a bloom of the prefix.
        tuned.set_prefix_extractor(SliceTransform::create_fixed_prefix(8));
        tuned.set_memtable_prefix_bloom_ratio(0.02);
        tuned.set_enable_blob_files(true);
        tuned.set_min_blob_size(4 << 10);
        tuned.set_blob_compression_type(DBCompressionType::Lz4);
        tuned.set_enable_blob_gc(true);
    }
    tuned
}
