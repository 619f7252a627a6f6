//! Short ways to make keys, records and writes.

use bytes::Bytes;
use penstock_core::message::{DedupeKey, Record};
use penstock_core::rows::{Key, Page, ReadRequest, Table, Write};
use penstock_core::types::{GroupId, Incarnation, LeaderEpoch, MessageId, RaftIndex, Seq, SlotId};

pub(crate) fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

pub(crate) fn node(name: &str) -> Key {
    Key::Node { name: bytes(name) }
}

pub(crate) fn slot(number: u16, table: Table, key: &str) -> Key {
    Key::Slot {
        slot: SlotId(number),
        table,
        key: bytes(key),
    }
}

pub(crate) fn staged(number: u16, table: Table, key: &str) -> Key {
    Key::Staged {
        slot: SlotId(number),
        table,
        key: bytes(key),
    }
}

pub(crate) fn entry(group: u32, index: u64) -> Key {
    Key::RaftEntry {
        group: GroupId(group),
        index: RaftIndex(index),
    }
}

pub(crate) fn put(key: Key, value: &str) -> Write {
    Write::Put {
        key,
        value: bytes(value),
    }
}

/// A record whose content follows from its position and epoch.
pub(crate) fn record(seq: u64, leader_epoch: u64) -> Record {
    let body = format!("message {seq} of epoch {leader_epoch} ");
    Record {
        seq: Seq(seq),
        leader_epoch: LeaderEpoch(leader_epoch),
        stamp_ms: 1_700_000_000_000 + seq,
        id: MessageId(i64::try_from(seq).expect("small") << 8),
        key: seq.is_multiple_of(2).then_some(DedupeKey {
            hash: seq,
            digest: u128::from(seq) << 64,
        }),
        body: bytes(&body.repeat(usize::try_from(seq % 3 + 1).expect("small"))),
        crc: 0,
    }
    .sealed()
}

pub(crate) fn append(incarnation: u64, seqs: std::ops::RangeInclusive<u64>, leader_epoch: u64) -> Write {
    Write::AppendRecords {
        incarnation: Incarnation(incarnation),
        records: seqs.map(|seq| record(seq, leader_epoch)).collect(),
    }
}

pub(crate) fn truncate(incarnation: u64, from: u64) -> Write {
    Write::TruncateRecords {
        incarnation: Incarnation(incarnation),
        from: Seq(from),
    }
}

pub(crate) fn trim(incarnation: u64, through: u64) -> Write {
    Write::TrimRecords {
        incarnation: Incarnation(incarnation),
        through: Seq(through),
    }
}

pub(crate) fn all_records(incarnation: u64) -> ReadRequest {
    ReadRequest::Records {
        incarnation: Incarnation(incarnation),
        from: Seq(0),
        through: Seq(u64::MAX),
        records_max: u32::MAX,
        bytes_max: u32::MAX,
    }
}

/// Positions and epochs of a page.
pub(crate) fn positions(page: &Page) -> Vec<(u64, u64)> {
    match page {
        Page::Records(records) => records
            .iter()
            .inspect(|record| assert!(record.is_intact()))
            .map(|record| (record.seq.0, record.leader_epoch.0))
            .collect(),
        other => panic!("not a page of records: {other:?}"),
    }
}

/// Rows of a page, and whether there may be more.
pub(crate) fn rows(page: Page) -> (Vec<(Table, Bytes, Bytes)>, bool) {
    match page {
        Page::Rows { rows, more } => (rows, more),
        other => panic!("not a page of rows: {other:?}"),
    }
}

/// A small deterministic random source (splitmix64).
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }
}
