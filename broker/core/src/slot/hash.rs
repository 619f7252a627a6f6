//! A hash over a group's rows, so that replicas can be compared (F13).

use crate::rows::Table;
use crate::types::SlotId;
use sha2::{Digest as _, Sha256};

/// Hash of rows that are handed in by (slot, table, key) ascending. Equal states hash alike on every replica; a different one
/// differs but for chance.
#[derive(Clone, Debug, Default)]
pub struct StateHash {
    hasher: Sha256,
}

impl StateHash {
    /// Takes one row.
    pub fn row(&mut self, slot: SlotId, table: Table, key: &[u8], value: &[u8]) {
        self.hasher.update(slot.0.to_be_bytes());
        self.hasher.update([table as u8]);
        for part in [key, value] {
            // Lengths in front keep neighbours apart.
            self.hasher.update((part.len() as u64).to_be_bytes());
            self.hasher.update(part);
        }
    }

    /// The first 64 bits of the hash.
    #[must_use]
    pub fn finish(self) -> u64 {
        let digest = self.hasher.finalize();
        digest
            .iter()
            .take(8)
            .fold(0, |hash, byte| hash << 8 | u64::from(*byte))
    }
}
