//! An iterator that stays inside one prefix of one family.

use crate::engine::Engine;
use crate::keys::{self, Family};
use rocksdb::{DB, DBRawIteratorWithThreadMode, ReadOptions};

/// Positions in a family, inside a prefix.
pub(crate) struct Scan<'a> {
    inner: DBRawIteratorWithThreadMode<'a, DB>,
}

impl<'a> Scan<'a> {
    /// Over the keys that start with `prefix`; of `records` it is an incarnation.
    pub(crate) fn new(engine: &'a Engine, family: Family, prefix: &[u8]) -> Scan<'a> {
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(prefix);
        if !prefix.is_empty() {
            options.set_iterate_upper_bound(keys::after_prefix(prefix));
        }
        if family == Family::Records {
            options.set_prefix_same_as_start(true);
        }
        Scan {
            inner: engine.db.raw_iterator_cf_opt(engine.family(family), options),
        }
    }

    /// To the first key at or after `key`.
    pub(crate) fn seek(&mut self, key: &[u8]) {
        self.inner.seek(key);
    }

    /// To the last key at or before `key`.
    pub(crate) fn seek_for_prev(&mut self, key: &[u8]) {
        self.inner.seek_for_prev(key);
    }

    pub(crate) fn next(&mut self) {
        self.inner.next();
    }

    pub(crate) fn previous(&mut self) {
        self.inner.prev();
    }

    /// The entry at the position; none at the end, and none after an error: ask [`Scan::finish`].
    pub(crate) fn entry(&self) -> Option<(&[u8], &[u8])> {
        self.inner.item()
    }

    /// Whether the scan ended because there is nothing more, rather than because a block could not be read.
    pub(crate) fn finish(self) -> Result<(), rocksdb::Error> {
        self.inner.status()
    }
}
