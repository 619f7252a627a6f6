//! Slot rows that were read lately, in memory: who may send is asked for every message, and a look into RocksDB costs more than
//! the decision.

use penstock_core::rows::{Key, Row, Write};
use penstock_core::types::SlotId;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

const STRIPES: usize = 16;
/// Rows of one stripe; when it is full it begins anew.
const STRIPE_ROWS_MAX: usize = 4_096;

/// Slot, table and key.
type Name = (SlotId, u8, Bytes);

#[derive(Debug, Default)]
struct Stripe {
    /// Rises with every change: what was read before a change is not kept after it.
    changes: u64,
    rows: HashMap<Name, Option<Row>>,
}

/// The cache. Presence and absence of a row are both remembered.
#[derive(Debug)]
pub(crate) struct RowCache {
    hasher: RandomState,
    stripes: Vec<Mutex<Stripe>>,
}

/// What a look at the cache found.
pub(crate) enum Look {
    /// The row, or that there is none.
    Known(Option<Row>),
    /// Not kept; to be read, and to be offered with this mark.
    Unknown(Mark),
    /// No row of this kind is kept.
    Other,
}

/// Where and when a row was missed.
pub(crate) struct Mark {
    stripe: usize,
    changes: u64,
    name: Name,
}

impl RowCache {
    pub(crate) fn new() -> RowCache {
        RowCache {
            hasher: RandomState::new(),
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
        }
    }

    /// Looks for a row.
    pub(crate) fn look(&self, key: &Key) -> Look {
        let Some((index, name)) = self.place(key) else {
            return Look::Other;
        };
        let stripe = self.stripe(index);
        match stripe.rows.get(&name) {
            Some(row) => Look::Known(row.clone()),
            None => Look::Unknown(Mark {
                stripe: index,
                changes: stripe.changes,
                name,
            }),
        }
    }

    /// Keeps what was read after [`RowCache::look`] gave the mark, unless something changed since: then what was read may be
    /// old already.
    pub(crate) fn offer(&self, mark: Mark, row: Option<Row>) {
        let mut stripe = self.stripe(mark.stripe);
        if stripe.changes != mark.changes {
            return;
        }
        if stripe.rows.len() >= STRIPE_ROWS_MAX {
            stripe.rows.clear();
        }
        stripe.rows.insert(mark.name, row);
    }

    /// Forgets what `writes` changed. To be called when they are visible and before anybody is told.
    pub(crate) fn changed(&self, writes: &[Write]) {
        for write in writes {
            match write {
                Write::Put { key, .. } | Write::Delete { key } => {
                    if let Some((index, name)) = self.place(key) {
                        let mut stripe = self.stripe(index);
                        stripe.changes += 1;
                        stripe.rows.remove(&name);
                    }
                }
                Write::FlipGeneration { .. } => self.clear(),
                Write::TruncateRaft { .. }
                | Write::CompactRaft { .. }
                | Write::ClearStaged { .. }
                | Write::AppendRecords { .. }
                | Write::TruncateRecords { .. }
                | Write::TrimRecords { .. }
                | Write::DropIncarnation { .. } => {}
            }
        }
    }

    fn clear(&self) {
        for index in 0..STRIPES {
            let mut stripe = self.stripe(index);
            stripe.changes += 1;
            stripe.rows = HashMap::new();
        }
    }

    fn place(&self, key: &Key) -> Option<(usize, Name)> {
        let Key::Slot { slot, table, key } = key else {
            return None;
        };
        let name = (*slot, *table as u8, key.clone());
        // The remainder fits.
        let index = (self.hasher.hash_one(&name) % STRIPES as u64) as usize;
        Some((index, name))
    }

    fn stripe(&self, index: usize) -> MutexGuard<'_, Stripe> {
        // Each change of a stripe is whole before anything can panic.
        self.stripes[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_core::rows::Table;

    fn key(number: u32) -> Key {
        Key::Slot {
            slot: SlotId(7),
            table: Table::Channel,
            key: Bytes::copy_from_slice(&number.to_be_bytes()),
        }
    }

    fn known(cache: &RowCache, number: u32) -> Option<Option<Row>> {
        match cache.look(&key(number)) {
            Look::Known(row) => Some(row),
            Look::Unknown(_) | Look::Other => None,
        }
    }

    fn mark(cache: &RowCache, number: u32) -> Mark {
        match cache.look(&key(number)) {
            Look::Unknown(mark) => mark,
            Look::Known(_) | Look::Other => panic!("not known yet"),
        }
    }

    #[test]
    fn what_is_read_is_known_until_it_changes() {
        let cache = RowCache::new();
        cache.offer(mark(&cache, 1), Some(Bytes::from_static(b"one")));
        cache.offer(mark(&cache, 2), None);
        assert_eq!(known(&cache, 1), Some(Some(Bytes::from_static(b"one"))));
        assert_eq!(known(&cache, 2), Some(None));
        cache.changed(&[Write::Put {
            key: key(1),
            value: Bytes::new(),
        }]);
        cache.changed(&[Write::Delete { key: key(2) }]);
        assert_eq!(known(&cache, 1), None);
        assert_eq!(known(&cache, 2), None);
    }

    /// The reader was slower than the writer: its row is not the newest.
    #[test]
    fn what_was_read_before_a_change_is_not_kept_after_it() {
        let cache = RowCache::new();
        let early = mark(&cache, 1);
        cache.changed(&[Write::Put {
            key: key(1),
            value: Bytes::new(),
        }]);
        cache.offer(early, None);
        assert_eq!(known(&cache, 1), None);
        let early = mark(&cache, 1);
        cache.changed(&[Write::FlipGeneration {
            slots: vec![SlotId(7)],
        }]);
        cache.offer(early, None);
        assert_eq!(known(&cache, 1), None);
    }

    #[test]
    fn a_full_stripe_begins_anew() {
        let cache = RowCache::new();
        let rows = u32::try_from(STRIPES * STRIPE_ROWS_MAX * 2).unwrap();
        for number in 0..rows {
            cache.offer(mark(&cache, number), None);
        }
        let kept: usize = (0..STRIPES).map(|index| cache.stripe(index).rows.len()).sum();
        assert!(kept <= STRIPES * STRIPE_ROWS_MAX, "{kept}");
        assert_eq!(known(&cache, rows - 1), Some(None));
    }

    #[test]
    fn other_rows_are_not_kept() {
        let cache = RowCache::new();
        let node = Key::Node {
            name: Bytes::from_static(b"x"),
        };
        assert!(matches!(cache.look(&node), Look::Other));
    }
}
