//! What a shard writes to and reads from: rows in memory, or the store of the broker with its syncs.

use bytes::Bytes;
use penstock_core::effect::Event;
use penstock_core::message::Record;
use penstock_core::rows::{Instance, Key, Miss, Page, ReadRequest, Row, Rows, Table, Write};
use penstock_core::types::{DiskBoot, Incarnation, NodeId, SlotId, Ticket};
use penstock_store::{CachedRows, Listener, Options, Store, Writer};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use tempfile::TempDir;

/// Records that are kept in memory: delivery reads the newest.
const RECORDS_KEPT: usize = 4_096;

/// Where the rows of a node are.
pub(crate) trait Disk {
    /// Point reads of one event.
    type Rows<'a>: Rows
    where
        Self: 'a;

    /// Point reads of one event, which brings these keys.
    fn rows<'a>(&'a self, loaded: &'a [Key]) -> Self::Rows<'a>;

    /// Executes a Store effect.
    fn write(&mut self, instance: Instance, ticket: Ticket, writes: Vec<Write>);

    /// The next `Stored` that is to come; waits for it. None when everything written is durable.
    fn stored(&mut self) -> Option<Event>;

    /// Executes a Read effect.
    fn read(&self, request: &ReadRequest) -> Page;

    /// Executes a Load effect.
    fn load(&self, keys: &[Key]) -> Vec<(Key, Option<Row>)>;
}

/// Rows in memory, durable at once.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    rows: BTreeMap<Key, Row>,
    /// Idempotency rows by day, incarnation and hash: there is one for each message, and finding one must not become dearer by what
    /// was sent before.
    dedupe: HashMap<(u16, u64, u64), Row>,
    records: BTreeMap<Incarnation, VecDeque<Record>>,
    stored: VecDeque<Event>,
}

impl Rows for &Memory {
    fn row(&self, key: &Key) -> Result<Option<Row>, Miss> {
        Ok(self.get(key).cloned())
    }
}

impl Memory {
    fn get(&self, key: &Key) -> Option<&Row> {
        match key {
            Key::Dedupe {
                day,
                incarnation,
                hash,
            } => self.dedupe.get(&(*day, incarnation.0, *hash)),
            key => self.rows.get(key),
        }
    }

    /// The rows of one table of one slot from `prefix` on, or after `after`.
    fn slot_rows(
        &self,
        (slot, table): (SlotId, Table),
        prefix: &Bytes,
        after: Option<&Bytes>,
    ) -> impl Iterator<Item = (Table, Bytes, Row)> {
        let key = |key: &Bytes| Key::Slot {
            slot,
            table,
            key: key.clone(),
        };
        let first = after.map_or_else(
            || Bound::Included(key(prefix)),
            |after| Bound::Excluded(key(after)),
        );
        self.rows
            .range((first, Bound::Unbounded))
            .map_while(move |(found, value)| match found {
                Key::Slot {
                    slot: of,
                    table: kind,
                    key,
                } if *of == slot && *kind == table && key.starts_with(prefix) => {
                    Some((table, key.clone(), value.clone()))
                }
                _ => None,
            })
    }
}

impl Disk for Memory {
    type Rows<'a> = &'a Memory;

    fn rows<'a>(&'a self, _loaded: &'a [Key]) -> &'a Memory {
        self
    }

    fn write(&mut self, instance: Instance, ticket: Ticket, writes: Vec<Write>) {
        for write in writes {
            match write {
                Write::Put {
                    key:
                        Key::Dedupe {
                            day,
                            incarnation,
                            hash,
                        },
                    value,
                } => {
                    self.dedupe.insert((day, incarnation.0, hash), value);
                }
                Write::Put { key, value } => {
                    self.rows.insert(key, value);
                }
                Write::Delete { key } if !matches!(key, Key::Dedupe { .. }) => {
                    self.rows.remove(&key);
                }
                Write::AppendRecords { incarnation, records } => {
                    let kept = self.records.entry(incarnation).or_default();
                    kept.extend(records);
                    let too_many = kept.len().saturating_sub(RECORDS_KEPT);
                    kept.drain(..too_many);
                }
                // Raft entries that are compacted are never read again.
                Write::CompactRaft { .. } => {}
                other => panic!("a node alone does not write {other:?}"),
            }
        }
        self.stored.push_back(Event::Stored {
            instance,
            through: ticket,
        });
    }

    fn stored(&mut self) -> Option<Event> {
        self.stored.pop_front()
    }

    fn read(&self, request: &ReadRequest) -> Page {
        match request {
            ReadRequest::Records {
                incarnation,
                from,
                through,
                records_max,
                ..
            } => {
                let kept = self.records.get(incarnation);
                let first = kept.and_then(VecDeque::front).map_or(*from, |record| record.seq);
                assert!(
                    *from >= first,
                    "{from} is read, but {first} is the first that is kept"
                );
                let wanted = kept.into_iter().flatten().skip((from.0 - first.0) as usize);
                let wanted = wanted.take_while(|record| record.seq <= *through);
                Page::Records(wanted.take(*records_max as usize).cloned().collect())
            }
            ReadRequest::LogTail { incarnation } => {
                let last = self.records.get(incarnation).and_then(VecDeque::back);
                Page::Records(last.cloned().into_iter().collect())
            }
            ReadRequest::SlotRows {
                slot,
                table,
                prefix,
                after,
                rows_max,
            } => {
                let rows = self.slot_rows((*slot, *table), prefix, after.as_ref());
                let most = *rows_max as usize;
                let mut rows: Vec<_> = rows.take(most + 1).collect();
                let more = rows.len() > most;
                rows.truncate(most);
                Page::Rows { rows, more }
            }
            ReadRequest::Cursors { incarnation } => {
                let rows = self.rows.iter().filter_map(|(key, value)| match key {
                    Key::Cursor {
                        incarnation: of,
                        consumer,
                    } if of == incarnation => Some((consumer.clone(), value.clone())),
                    _ => None,
                });
                Page::Cursors(rows.collect())
            }
            ReadRequest::SnapshotRows { .. } | ReadRequest::Dedupe { .. } => {
                panic!("a node alone does not read {request:?}")
            }
        }
    }

    fn load(&self, keys: &[Key]) -> Vec<(Key, Option<Row>)> {
        let row = |key: &Key| (key.clone(), self.get(key).cloned());
        keys.iter().map(row).collect()
    }
}

/// The store of the broker in a folder of its own, with its group commit: what is written is durable when fdatasync has returned.
/// `TMPDIR` says where.
pub(crate) struct Files {
    writer: Writer,
    reports: Receiver<(Instance, Ticket)>,
    /// The newest ticket of each instance that is not durable yet.
    waiting: BTreeMap<Instance, Ticket>,
    _folder: TempDir,
}

/// Passes on what the store's threads report.
struct Reports(Sender<(Instance, Ticket)>);

impl Listener for Reports {
    fn stored(&self, _shard: u16, instance: Instance, through: Ticket) {
        // At the end of a run nobody waits any more.
        let _ = self.0.send((instance, through));
    }

    fn poisoned(&self, error: &penstock_store::Error) {
        panic!("the store failed: {error}");
    }
}

impl Files {
    pub(crate) fn new() -> Files {
        let folder = tempfile::tempdir().expect("a folder");
        let options = Options {
            single_copy: true,
            ..Options::new("bench", NodeId(1), DiskBoot(1))
        };
        let (store, _) = Store::open(&folder.path().join("data"), options).expect("an empty folder");
        let (sender, reports) = channel();
        let writer = Writer::start(Arc::new(store), Box::new(Reports(sender))).expect("threads");
        Files {
            writer,
            reports,
            waiting: BTreeMap::new(),
            _folder: folder,
        }
    }
}

impl Disk for Files {
    type Rows<'a> = CachedRows<'a>;

    fn rows<'a>(&'a self, loaded: &'a [Key]) -> CachedRows<'a> {
        self.writer.store().rows(loaded)
    }

    fn write(&mut self, instance: Instance, ticket: Ticket, writes: Vec<Write>) {
        self.waiting.insert(instance, ticket);
        self.writer
            .submit(0, instance, ticket, &writes)
            .expect("the store takes it");
        self.writer.flush(false);
    }

    fn stored(&mut self) -> Option<Event> {
        if self.waiting.is_empty() {
            return None;
        }
        let (instance, through) = self.reports.recv().expect("the store goes on");
        if self.waiting.get(&instance) == Some(&through) {
            self.waiting.remove(&instance);
        }
        Some(Event::Stored { instance, through })
    }

    fn read(&self, request: &ReadRequest) -> Page {
        self.writer.store().read(request)
    }

    fn load(&self, keys: &[Key]) -> Vec<(Key, Option<Row>)> {
        self.writer.store().load(keys).expect("the store reads")
    }
}
