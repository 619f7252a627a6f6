//! Random batches against the simplest thing that could be right.

use crate::make::*;
use crate::subject::Subject;
use bytes::Bytes;
use penstock_core::message::Record;
use penstock_core::rows::{Instance, Key, Page, ReadRequest, Table, Write};
use penstock_core::types::{GroupId, Incarnation, RaftIndex, Seq, SlotId};
use std::collections::BTreeMap;

type Rows = BTreeMap<(SlotId, Table, Bytes), Bytes>;

/// What a store must hold, without any thought of bytes or pages.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Model {
    slots: Rows,
    staged: Rows,
    entries: BTreeMap<(GroupId, RaftIndex), Bytes>,
    others: BTreeMap<Key, Bytes>,
    /// Per channel its stored values, each a run of records.
    logs: BTreeMap<Incarnation, Vec<Vec<Record>>>,
}

impl Model {
    pub(crate) fn apply(&mut self, writes: &[Write]) {
        for write in writes {
            match write {
                Write::Put { key, value } => self.set(key, Some(value)),
                Write::Delete { key } => self.set(key, None),
                Write::TruncateRaft { group, from } => {
                    self.entries.retain(|(of, index), _| of != group || index < from);
                }
                Write::CompactRaft { group, through } => {
                    self.entries
                        .retain(|(of, index), _| of != group || index > through);
                }
                Write::ClearStaged { slots } => self.staged.retain(|(slot, ..), _| !slots.contains(slot)),
                Write::FlipGeneration { slots } => {
                    self.slots.retain(|(slot, ..), _| !slots.contains(slot));
                    let (flipped, rest) = std::mem::take(&mut self.staged)
                        .into_iter()
                        .partition(|((slot, ..), _)| slots.contains(slot));
                    let flipped: Rows = flipped;
                    self.slots.extend(flipped);
                    self.staged = rest;
                }
                Write::AppendRecords { incarnation, records } => {
                    self.logs.entry(*incarnation).or_default().push(records.clone());
                }
                Write::TruncateRecords { incarnation, from } => {
                    let log = self.logs.entry(*incarnation).or_default();
                    log.iter_mut()
                        .for_each(|run| run.retain(|record| record.seq < *from));
                    log.retain(|run| !run.is_empty());
                }
                Write::TrimRecords { incarnation, through } => {
                    let log = self.logs.entry(*incarnation).or_default();
                    log.retain(|run| run[run.len() - 1].seq > *through);
                }
                Write::DropIncarnation { incarnation: dropped } => {
                    self.logs.remove(dropped);
                    self.others.retain(|key, _| match key {
                        Key::ChannelState { incarnation } | Key::Cursor { incarnation, .. } => {
                            incarnation != dropped
                        }
                        _ => true,
                    });
                }
            }
        }
    }

    fn set(&mut self, key: &Key, value: Option<&Bytes>) {
        fn set<K: Ord>(map: &mut BTreeMap<K, Bytes>, key: K, value: Option<&Bytes>) {
            match value {
                Some(value) => map.insert(key, value.clone()),
                None => map.remove(&key),
            };
        }
        match key {
            Key::Slot { slot, table, key } => set(&mut self.slots, (*slot, *table, key.clone()), value),
            Key::Staged { slot, table, key } => set(&mut self.staged, (*slot, *table, key.clone()), value),
            Key::RaftEntry { group, index } => set(&mut self.entries, (*group, *index), value),
            other => set(&mut self.others, other.clone(), value),
        }
    }

    fn last_seq(&self, incarnation: Incarnation) -> Option<u64> {
        let run = self.logs.get(&incarnation)?.last()?;
        run.last().map(|record| record.seq.0)
    }

    fn last_index(&self, group: GroupId) -> Option<u64> {
        let all = (group, RaftIndex(0))..=(group, RaftIndex(u64::MAX));
        self.entries.range(all).next_back().map(|((_, index), _)| index.0)
    }

    /// Compares everything that can be read.
    pub(crate) fn check(&self, subject: &impl Subject) {
        for slot in SLOTS.map(SlotId) {
            let expected: Vec<_> = self
                .slots
                .iter()
                .filter(|((of, ..), _)| *of == slot)
                .map(|((_, table, key), value)| (*table, key.clone(), value.clone()))
                .collect();
            let whole = ReadRequest::SnapshotRows {
                slot,
                after: None,
                bytes_max: u32::MAX,
            };
            assert_eq!(
                subject.read(&whole),
                Page::Rows {
                    rows: expected,
                    more: false
                },
                "slot {slot}"
            );
        }
        for group in GROUPS.map(GroupId) {
            let expected: Vec<_> = self
                .entries
                .iter()
                .filter(|((of, _), _)| *of == group)
                .map(|((_, index), value)| (*index, value.clone()))
                .collect();
            assert_eq!(subject.group_image(group).entries, expected, "group {group}");
        }
        for (key, value) in &self.others {
            assert_eq!(subject.row(key).as_ref(), Some(value), "{key:?}");
        }
        for incarnation in CHANNELS.map(Incarnation) {
            self.check_channel(subject, incarnation);
        }
    }

    fn check_channel(&self, subject: &impl Subject, incarnation: Incarnation) {
        let records: Vec<Record> = self.logs.get(&incarnation).cloned().unwrap_or_default().concat();
        let tail = Page::Records(records.last().cloned().into_iter().collect());
        assert_eq!(subject.read(&ReadRequest::LogTail { incarnation }), tail);
        assert_eq!(
            subject.read(&all_records(incarnation.0)),
            Page::Records(records),
            "log {incarnation}"
        );
        let cursors = self.others.iter().filter_map(|(key, value)| match key {
            Key::Cursor {
                incarnation: of,
                consumer,
            } if *of == incarnation => Some((consumer.clone(), value.clone())),
            _ => None,
        });
        let expected = Page::Cursors(cursors.collect());
        assert_eq!(subject.read(&ReadRequest::Cursors { incarnation }), expected);
        let state = Key::ChannelState { incarnation };
        assert_eq!(subject.row(&state), self.others.get(&state).cloned());
    }

    /// Compares a page drawn at random.
    fn check_page(&self, subject: &impl Subject, draw: &mut Draw) {
        let incarnation = Incarnation(CHANNELS[pick(draw, CHANNELS.len())]);
        let records: Vec<Record> = self.logs.get(&incarnation).cloned().unwrap_or_default().concat();
        let from = draw.below(self.last_seq(incarnation).unwrap_or(3) + 2);
        let through = from + draw.below(12);
        let (records_max, bytes_max) = (1 + draw.below(6), draw.below(300));
        let mut bytes_left = bytes_max;
        let mut expected: Vec<Record> = Vec::new();
        for record in records
            .iter()
            .filter(|record| (from..=through).contains(&record.seq.0))
        {
            let bytes = record.body.len() as u64;
            let full = expected.len() as u64 == records_max || bytes > bytes_left;
            if full && !expected.is_empty() {
                break;
            }
            bytes_left = bytes_left.saturating_sub(bytes);
            expected.push(record.clone());
        }
        let request = ReadRequest::Records {
            incarnation,
            from: Seq(from),
            through: Seq(through),
            records_max: u32::try_from(records_max).expect("small"),
            bytes_max: u32::try_from(bytes_max).expect("small"),
        };
        assert_eq!(subject.read(&request), Page::Records(expected), "{request:?}");
    }
}

const SLOTS: [u16; 3] = [0, 7, 256];
const GROUPS: [u32; 2] = [0, 5];
const CHANNELS: [u64; 3] = [1, 2, u64::MAX - 1];
const TABLES: [Table; 3] = [Table::User, Table::Subscriber, Table::ChannelStats];

fn pick(draw: &mut Draw, length: usize) -> usize {
    usize::try_from(draw.below(length as u64)).expect("below a length")
}

/// A batch that a broker could write in the state that the model is in.
pub(crate) fn draw_batch(draw: &mut Draw, model: &Model) -> (Instance, Vec<Write>) {
    let instance = if draw.below(2) == 0 {
        Instance::Meta
    } else {
        Instance::Data
    };
    let mut writes = Vec::new();
    let mut after = model.clone();
    for _ in 0..=draw.below(4) {
        let drawn = match instance {
            Instance::Meta => draw_meta(draw, &after),
            Instance::Data => draw_data(draw, &after),
        };
        after.apply(&drawn);
        writes.extend(drawn);
    }
    (instance, writes)
}

fn draw_meta(draw: &mut Draw, model: &Model) -> Vec<Write> {
    let slot = SlotId(SLOTS[pick(draw, SLOTS.len())]);
    let group = GroupId(GROUPS[pick(draw, GROUPS.len())]);
    let table = TABLES[pick(draw, TABLES.len())];
    let key = bytes(&"k".repeat(pick(draw, 9)));
    let value = format!("value {}", draw.below(1_000));
    let last = model.last_index(group).unwrap_or(0);
    let index = RaftIndex(draw.below(last + 2));
    match draw.below(16) {
        0..4 => vec![put(Key::Slot { slot, table, key }, &value)],
        4 => vec![Write::Delete {
            key: Key::Slot { slot, table, key },
        }],
        5..8 => vec![put(Key::Staged { slot, table, key }, &value)],
        8 => vec![Write::ClearStaged { slots: vec![slot] }],
        9 => vec![Write::FlipGeneration { slots: vec![slot] }],
        10 => vec![Write::TruncateRaft { group, from: index }],
        11 => vec![Write::CompactRaft {
            group,
            through: index,
        }],
        12 => vec![put(Key::Applied { group }, &value)],
        13 => (1..=100)
            .map(|next| put(entry(group.0, last + next), &value))
            .collect(),
        _ => vec![put(entry(group.0, last + 1), &value)],
    }
}

fn draw_data(draw: &mut Draw, model: &Model) -> Vec<Write> {
    let incarnation = CHANNELS[pick(draw, CHANNELS.len())];
    let last = model.last_seq(Incarnation(incarnation)).unwrap_or(0);
    let value = format!("value {}", draw.below(1_000));
    match draw.below(16) {
        0..8 => {
            let through = last + 1 + draw.below(5);
            vec![append(incarnation, last + 1..=through, draw.below(100))]
        }
        8 | 9 => vec![truncate(incarnation, draw.below(last + 2))],
        10 | 11 => vec![trim(incarnation, draw.below(last + 2))],
        12 => vec![put(
            Key::ChannelState {
                incarnation: Incarnation(incarnation),
            },
            &value,
        )],
        13 => vec![put(
            Key::Cursor {
                incarnation: Incarnation(incarnation),
                consumer: bytes(["a", "b"][pick(draw, 2)]),
            },
            &value,
        )],
        14 => vec![put(node("floor"), &value)],
        _ if draw.below(4) == 0 => vec![Write::DropIncarnation {
            incarnation: Incarnation(incarnation),
        }],
        _ => vec![],
    }
}

/// Runs `batches` random batches of this seed, with a page compared after each and everything now and then.
pub(crate) fn compare(mut subject: impl Subject, seed: u64, batches: u32) {
    let mut draw = Draw(seed);
    let mut model = Model::default();
    for number in 0..batches {
        let (instance, writes) = draw_batch(&mut draw, &model);
        model.apply(&writes);
        subject.write(instance, &writes).expect("written");
        model.check_page(&subject, &mut draw);
        if number % 40 == 0 {
            subject.sync(instance).expect("synced");
        }
        if number % 25 == 0 {
            model.check(&subject);
        }
        if number % 150 == 149 {
            subject.restart();
            model.check(&subject);
        }
    }
    model.check(&subject);
}
