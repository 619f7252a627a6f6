//! Settings of a store.

use penstock_core::types::{DiskBoot, NodeId};

/// Settings of a store. [`Options::new`] gives defaults for a small machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The cluster that the directory must belong to.
    pub cluster: String,
    /// The node that the directory must belong to.
    pub node: NodeId,
    /// A freshly drawn random id: becomes the disk boot when the directory is new, or when what it held may have been lost.
    pub new_disk: DiskBoot,
    /// This node holds the only copy: rather refuse to start than start as an amnesiac (M-8).
    pub single_copy: bool,
    /// With `single_copy`: start with what can still be read of a damaged directory. An operator sets it for one start.
    pub accept_loss: bool,
    /// Block cache of `meta/`, bytes.
    pub meta_cache_bytes: usize,
    /// Block cache of `data/`, bytes.
    pub data_cache_bytes: usize,
    /// Memtable of the records, bytes each; up to four exist while flushes run (M-11).
    pub memtable_bytes: usize,
    /// Free space below which [`crate::Store::space_low`] is set, so that sends are refused in time (R14), bytes.
    pub low_space_bytes: u64,
    /// Space kept back in a file and freed when the disk is full, so that a shutdown can finish (R14), bytes.
    pub reserve_bytes: u64,
    /// Bytes written and not synced of one instance, above which a shard waits for the disk.
    pub unsynced_bytes_max: u64,
}

impl Options {
    /// Defaults for this node.
    #[must_use]
    pub fn new(cluster: &str, node: NodeId, new_disk: DiskBoot) -> Options {
        Options {
            cluster: cluster.to_owned(),
            node,
            new_disk,
            single_copy: false,
            accept_loss: false,
            meta_cache_bytes: 64 << 20,
            data_cache_bytes: 256 << 20,
            memtable_bytes: 64 << 20,
            low_space_bytes: 1 << 30,
            reserve_bytes: 64 << 20,
            unsynced_bytes_max: 64 << 20,
        }
    }
}
