//! A disk: what is written is visible at once, and survives a crash only after a sync.

use crate::channel::StateRow;
use crate::message::Record;
use crate::rows::{Key, Miss, Page, ReadRequest, Row, Rows, Write};
use crate::types::{Incarnation, Seq, Token};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

pub(super) const INCARNATION: Incarnation = Incarnation(7);

/// What stands on a disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    pub(super) rows: BTreeMap<Key, Bytes>,
    pub(super) records: BTreeMap<Seq, Record>,
}

impl Image {
    fn apply(&mut self, write: &Write) {
        match write {
            Write::Put { key, value } => {
                self.rows.insert(key.clone(), value.clone());
            }
            Write::Delete { key } => {
                self.rows.remove(key);
            }
            Write::AppendRecords { records, .. } => {
                for record in records {
                    let old = self.records.insert(record.seq, record.clone());
                    assert!(old.is_none(), "{} is written over", record.seq);
                }
            }
            Write::TruncateRecords { from, .. } => {
                self.records.split_off(from);
            }
            Write::TrimRecords { through, .. } => {
                self.records.retain(|seq, _| seq > through);
            }
            other => panic!("a replica does not write {other:?}"),
        }
    }

    /// The state row, if there is one.
    pub(super) fn state(&self) -> Option<StateRow> {
        let key = Key::ChannelState {
            incarnation: INCARNATION,
        };
        self.rows
            .get(&key)
            .map(|row| StateRow::decode(row).expect("a state row"))
    }

    /// The next position to be written.
    pub(super) fn log_end(&self) -> Seq {
        let start = self.state().map_or(Seq(1), |state| state.log_start);
        self.records
            .keys()
            .next_back()
            .map_or(start, |last| last.next().max(start))
    }

    pub(super) fn scan(&self, request: &ReadRequest) -> Page {
        match request {
            ReadRequest::LogTail { .. } => {
                Page::Records(self.records.values().next_back().cloned().into_iter().collect())
            }
            ReadRequest::Records {
                from,
                through,
                records_max,
                bytes_max,
                ..
            } => {
                let mut bytes = 0;
                let mut records = Vec::new();
                for record in self.records.range(*from..).map(|(_, record)| record) {
                    bytes += record.body.len();
                    let full = records.len() >= *records_max as usize || bytes > *bytes_max as usize;
                    if record.seq > *through || (full && !records.is_empty()) {
                        break;
                    }
                    records.push(record.clone());
                }
                Page::Records(records)
            }
            ReadRequest::Cursors { .. } => Page::Cursors(
                self.rows
                    .iter()
                    .filter_map(|(key, value)| match key {
                        Key::Cursor { consumer, .. } => Some((consumer.clone(), value.clone())),
                        _ => None,
                    })
                    .collect(),
            ),
            ReadRequest::Dedupe {
                incarnation,
                day,
                after,
                rows_max,
            } => {
                let key = |hash| Key::Dedupe {
                    day: *day,
                    incarnation: *incarnation,
                    hash,
                };
                let from = after.map_or(Bound::Included(key(0)), |hash| Bound::Excluded(key(hash)));
                let mut rows: Vec<(u64, Bytes)> = self
                    .rows
                    .range((from, Bound::Included(key(u64::MAX))))
                    .filter_map(|(key, value)| match key {
                        Key::Dedupe { hash, .. } => Some((*hash, value.clone())),
                        _ => None,
                    })
                    .collect();
                // Pages are small, so that several are met.
                let most = (*rows_max as usize).min(3);
                let more = rows.len() > most;
                rows.truncate(most);
                Page::Dedupe { rows, more }
            }
            other => panic!("a replica does not read {other:?}"),
        }
    }
}

/// A disk with batches that are not synced.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    pub(super) visible: Image,
    pub(super) durable: Image,
    unsynced: VecDeque<(Token, Vec<Write>)>,
}

impl Disk {
    pub(super) fn write(&mut self, token: Token, writes: Vec<Write>) {
        for write in &writes {
            self.visible.apply(write);
        }
        self.unsynced.push_back((token, writes));
    }

    /// Makes the first `count` batches durable; the last of their tokens.
    pub(super) fn sync(&mut self, count: usize) -> Option<Token> {
        let mut last = None;
        for _ in 0..count {
            let Some((token, writes)) = self.unsynced.pop_front() else {
                break;
            };
            for write in &writes {
                self.durable.apply(write);
            }
            last = Some(token);
        }
        last
    }

    pub(super) fn unsynced(&self) -> usize {
        self.unsynced.len()
    }

    /// Loses what is not synced.
    pub(super) fn crash(&mut self) {
        self.unsynced.clear();
        self.visible = self.durable.clone();
    }
}

/// Point reads, with a miss when asked for.
pub(super) struct View<'a> {
    pub(super) image: &'a Image,
    pub(super) misses: bool,
}

impl Rows for View<'_> {
    fn row(&self, key: &Key) -> Result<Option<Row>, Miss> {
        if self.misses {
            return Err(Miss(vec![key.clone()]));
        }
        Ok(self.image.rows.get(key).cloned())
    }
}
