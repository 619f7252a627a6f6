//! Scans: the pages that answer `Effect::Read`, and the images from which Raft groups start (M-12).

use crate::error::Error;
use crate::keys::{self, Family};
use crate::scan::Scan;
use crate::store::Store;
use bytes::Bytes;
use penstock_core::codec::record_block::{self, Corrupt};
use penstock_core::codec::record_page::RecordPage;
use penstock_core::rows::{GroupImage, Instance, Key, Page, ReadRequest, Table};
use penstock_core::types::{GroupId, Incarnation, RaftIndex, Seq, SlotId};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

/// Where rows of slots stop.
#[derive(Clone, Copy)]
struct Bound {
    rows: usize,
    bytes: usize,
}

impl Store {
    /// Answers an `Effect::Read`. Blocks: for the loader's threads. What cannot be read is [`Page::Corrupt`] (R30).
    #[must_use]
    pub fn read(&self, request: &ReadRequest) -> Page {
        let page = match request {
            ReadRequest::Records {
                incarnation,
                from,
                through,
                records_max,
                bytes_max,
            } => {
                let page = RecordPage::new(*from, *through, *records_max, *bytes_max);
                Ok(self.records(*incarnation, *from, page))
            }
            ReadRequest::LogTail { incarnation } => self.log_tail(*incarnation),
            ReadRequest::SlotRows {
                slot,
                table,
                prefix,
                after,
                rows_max,
            } => self.slot_rows((*slot, *table), prefix, after.as_ref(), *rows_max),
            ReadRequest::SnapshotRows {
                slot,
                after,
                bytes_max,
            } => self.snapshot_rows(*slot, after.as_ref(), *bytes_max),
            ReadRequest::Cursors { incarnation } => self.cursors(*incarnation),
            ReadRequest::Dedupe {
                incarnation,
                day,
                after,
                rows_max,
            } => self.dedupe_rows((*day, *incarnation), *after, *rows_max),
        };
        let page = page.unwrap_or_else(|Corrupt(what)| Page::Corrupt { what, first: None });
        if let Page::Corrupt { what, .. } = &page {
            self.metrics().corrupt.fetch_add(1, Ordering::Relaxed);
            tracing::error!(%what, ?request, "stored bytes are not what was written");
        }
        page
    }

    fn records(&self, incarnation: Incarnation, from: Seq, mut page: RecordPage) -> Page {
        let mut scan = self.scan(Family::Records, &keys::channel_state(incarnation));
        let start = keys::records(incarnation, from);
        // The value that covers `from` may start before it.
        scan.seek_for_prev(&start);
        if scan.entry().is_none() {
            scan.seek(&start);
        }
        while let Some((key, value)) = scan.entry() {
            let next = match keys::parse_records(key) {
                Some((_, first)) => page.push(first, &Bytes::copy_from_slice(value)),
                None => page.fail(Corrupt("a key of `records` is of no known form".to_owned())),
            };
            if next == ControlFlow::Break(()) {
                break;
            }
            scan.next();
        }
        if let Err(error) = scan.finish() {
            let _ = page.fail(Corrupt(error.to_string()));
        }
        page.finish()
    }

    fn log_tail(&self, incarnation: Incarnation) -> Result<Page, Corrupt> {
        let mut scan = self.scan(Family::Records, &keys::channel_state(incarnation));
        scan.seek_for_prev(&keys::records(incarnation, Seq(u64::MAX)));
        let newest = match scan.entry() {
            Some((key, value)) => {
                let (_, first) = keys::parse_records(key).ok_or_else(unknown_key)?;
                match record_block::decode(first, &Bytes::copy_from_slice(value)) {
                    Ok(mut records) => records.pop(),
                    Err(Corrupt(what)) => {
                        let first = Some(first);
                        return Ok(Page::Corrupt { what, first });
                    }
                }
            }
            None => None,
        };
        ended(scan)?;
        Ok(Page::Records(newest.into_iter().collect()))
    }

    fn slot_rows(
        &self,
        (slot, table): (SlotId, Table),
        prefix: &Bytes,
        after: Option<&Bytes>,
        rows_max: u32,
    ) -> Result<Page, Corrupt> {
        let bound = Bound {
            rows: usize::try_from(rows_max.max(1)).unwrap_or(usize::MAX),
            bytes: usize::MAX,
        };
        self.in_one_generation(Some(slot), |generation| {
            let prefix = keys::slot_row(slot, generation, table, prefix);
            let after = after.map(|after| keys::slot_row(slot, generation, table, after));
            self.rows_page(&prefix, after, bound)
        })
    }

    fn snapshot_rows(
        &self,
        slot: SlotId,
        after: Option<&(Table, Bytes)>,
        bytes_max: u32,
    ) -> Result<Page, Corrupt> {
        let bound = Bound {
            rows: usize::MAX,
            bytes: usize::try_from(bytes_max).unwrap_or(usize::MAX),
        };
        self.in_one_generation(Some(slot), |generation| {
            let prefix = keys::slot_generation(slot, generation);
            let after = after.map(|(table, key)| keys::slot_row(slot, generation, *table, key));
            self.rows_page(&prefix, after, bound)
        })
    }

    fn rows_page(&self, prefix: &[u8], after: Option<Vec<u8>>, bound: Bound) -> Result<Page, Corrupt> {
        let mut scan = self.scan(Family::Slot, prefix);
        let after = after.filter(|after| after.as_slice() >= prefix);
        scan.seek(after.as_deref().unwrap_or(prefix));
        let mut rows = Vec::new();
        let mut bytes = 0;
        while let Some((key, value)) = scan.entry() {
            if Some(key) != after.as_deref() {
                let (_, _, table, row) = keys::parse_slot_row(key).ok_or_else(unknown_key)?;
                bytes += row.len() + value.len();
                if rows.len() >= bound.rows || (!rows.is_empty() && bytes > bound.bytes) {
                    return Ok(Page::Rows { rows, more: true });
                }
                rows.push((table, row, Bytes::copy_from_slice(value)));
            }
            scan.next();
        }
        ended(scan)?;
        Ok(Page::Rows { rows, more: false })
    }

    fn cursors(&self, incarnation: Incarnation) -> Result<Page, Corrupt> {
        let prefix = keys::channel_state(incarnation);
        let mut scan = self.scan(Family::Cursor, &prefix);
        scan.seek(&prefix);
        let mut cursors = Vec::new();
        while let Some((key, value)) = scan.entry() {
            let consumer = keys::parse_cursor(key).ok_or_else(unknown_key)?;
            cursors.push((consumer, Bytes::copy_from_slice(value)));
            scan.next();
        }
        ended(scan)?;
        Ok(Page::Cursors(cursors))
    }

    fn dedupe_rows(
        &self,
        (day, incarnation): (u16, Incarnation),
        after: Option<u64>,
        rows_max: u32,
    ) -> Result<Page, Corrupt> {
        let rows_max = usize::try_from(rows_max.max(1)).unwrap_or(usize::MAX);
        let start = keys::dedupe(day, incarnation, after.unwrap_or(0));
        let mut scan = self.scan(Family::Dedupe, &start[..10]);
        scan.seek(&start);
        let mut rows = Vec::new();
        while let Some((key, value)) = scan.entry() {
            let hash = keys::parse_dedupe_hash(key).ok_or_else(unknown_key)?;
            if Some(hash) != after {
                if rows.len() == rows_max {
                    return Ok(Page::Dedupe { rows, more: true });
                }
                rows.push((hash, Bytes::copy_from_slice(value)));
            }
            scan.next();
        }
        ended(scan)?;
        Ok(Page::Dedupe { rows, more: false })
    }

    fn scan(&self, family: Family, prefix: &[u8]) -> Scan<'_> {
        let instance = if Family::of(Instance::Meta).contains(&family) {
            Instance::Meta
        } else {
            Instance::Data
        };
        Scan::new(self.engine(instance), family, prefix)
    }

    /// The Raft groups that have anything stored, ascending.
    pub fn groups(&self) -> Result<Vec<GroupId>, Error> {
        let mut groups: BTreeSet<GroupId> = self.raft_groups()?.into_iter().collect();
        groups.extend(self.groups_in(Family::Group)?);
        Ok(groups.into_iter().collect())
    }

    /// The groups with entries.
    pub(crate) fn raft_groups(&self) -> Result<Vec<GroupId>, Error> {
        self.groups_in(Family::Raft)
    }

    fn groups_in(&self, family: Family) -> Result<Vec<GroupId>, Error> {
        let mut scan = self.scan(family, &[]);
        scan.seek(&[]);
        let mut groups = Vec::new();
        while let Some(group) = scan.entry().and_then(|(key, _)| keys::parse_group(key)) {
            groups.push(group);
            scan.seek(&keys::after_prefix(&group.0.to_be_bytes()));
        }
        scan.finish().map_err(|error| self.poison(error.to_string()))?;
        Ok(groups)
    }

    /// The recovery image of a group (M-12). A failure stops the store.
    pub fn group_image(&self, group: GroupId) -> Result<GroupImage, Error> {
        let mut entries = Vec::new();
        let mut scan = self.scan(Family::Raft, &group.0.to_be_bytes());
        scan.seek(&keys::raft_entry(group, RaftIndex(0)));
        while let Some((key, value)) = scan.entry() {
            let Some((_, index)) = keys::parse_raft_entry(key) else {
                return Err(self.poison("a key of `raft` is of no known form".to_owned()));
            };
            entries.push((index, Bytes::copy_from_slice(value)));
            scan.next();
        }
        scan.finish().map_err(|error| self.poison(error.to_string()))?;
        Ok(GroupImage {
            state: self.row(&Key::RaftState { group })?,
            applied: self.row(&Key::Applied { group })?,
            install: self.row(&Key::Install { group })?,
            entries,
        })
    }
}

fn unknown_key() -> Corrupt {
    Corrupt("a stored key is of no known form".to_owned())
}

fn ended(scan: Scan<'_>) -> Result<(), Corrupt> {
    scan.finish().map_err(|error| Corrupt(error.to_string()))
}
