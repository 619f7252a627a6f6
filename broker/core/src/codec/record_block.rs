//! The value under which a store keeps the records of one append (M-11): a small header, then each record verbatim with
//! its own checksum. The first position is part of the row's key, the others follow without holes.
//!
//! All numbers are big-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | format, 1 |
//! | 4 | number of records, at least 1 |
//! | 4 | CRC-32 over format, number and first position |
//! | per record: 4 | length of the body |
//! | 8 | leader epoch |
//! | 8 | stamp, ms since 1970 |
//! | 8 | message id |
//! | 1 | 1 when an idempotency key follows, else 0 |
//! | 0 or 8 + 16 | hash and digest of the idempotency key |
//! | body | the encoded message |
//! | 4 | the record's CRC-32, as its leader set it |
//!
//! No single flipped bit of a value goes unnoticed: the header has its checksum, and a wrong length, flag or body makes a
//! record's checksum fail (R30).

use crate::message::{DedupeKey, Record};
use crate::types::{LeaderEpoch, MessageId, Seq};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::fmt;

const FORMAT: u8 = 1;
const HEADER_BYTES: usize = 9;
const FIXED_RECORD_BYTES: usize = 4 + 8 + 8 + 8 + 1 + 4;
const KEY_BYTES: usize = 8 + 16;

/// A value that does not hold what was once written (R30). Says which record and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corrupt(pub String);

impl fmt::Display for Corrupt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl std::error::Error for Corrupt {}

/// The value of these records. They must be contiguous and not empty; their checksums are taken as they are.
#[must_use]
pub fn encode(records: &[Record]) -> Bytes {
    let first = records.first().map_or(Seq(0), |record| record.seq);
    assert!(!records.is_empty(), "an append holds at least one record");
    let length = records.iter().map(encoded_len).sum::<usize>() + HEADER_BYTES;
    let mut out = BytesMut::with_capacity(length);
    let count = u32::try_from(records.len()).unwrap_or(u32::MAX);
    out.put_u8(FORMAT);
    out.put_u32(count);
    out.put_u32(header_crc(FORMAT, count, first));
    for (position, record) in (first.0..).zip(records) {
        assert_eq!(record.seq.0, position, "the records of one append are contiguous");
        out.put_u32(u32::try_from(record.body.len()).unwrap_or(u32::MAX));
        out.put_u64(record.leader_epoch.0);
        out.put_u64(record.stamp_ms);
        out.put_i64(record.id.0);
        out.put_u8(u8::from(record.key.is_some()));
        if let Some(key) = record.key {
            out.put_u64(key.hash);
            out.put_u128(key.digest);
        }
        out.put_slice(&record.body);
        out.put_u32(record.crc);
    }
    out.freeze()
}

fn encoded_len(record: &Record) -> usize {
    FIXED_RECORD_BYTES + record.key.map_or(0, |_| KEY_BYTES) + record.body.len()
}

fn header_crc(format: u8, count: u32, first: Seq) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[format]);
    hasher.update(&count.to_be_bytes());
    hasher.update(&first.0.to_be_bytes());
    hasher.finalize()
}

/// How many records the value whose first position is `first` holds, without looking at them.
pub fn count(first: Seq, value: &[u8]) -> Result<u64, Corrupt> {
    let broken = |what: &str| Corrupt(format!("value at {first}: {what}"));
    if value.len() < HEADER_BYTES {
        return Err(broken("shorter than its header"));
    }
    let mut header = value;
    let format = header.get_u8();
    let count = header.get_u32();
    if header.get_u32() != header_crc(format, count, first) {
        return Err(broken("the header's checksum does not match"));
    }
    if format != FORMAT || count == 0 {
        return Err(broken("of an unknown format"));
    }
    Ok(u64::from(count))
}

/// The last position in the value whose first position is `first`.
pub fn last_seq(first: Seq, value: &[u8]) -> Result<Seq, Corrupt> {
    let count = count(first, value)?;
    first
        .0
        .checked_add(count - 1)
        .map(Seq)
        .ok_or_else(|| Corrupt(format!("value at {first}: positions overflow")))
}

/// All records of the value whose first position is `first`. Bodies share the value's memory.
pub fn decode(first: Seq, value: &Bytes) -> Result<Vec<Record>, Corrupt> {
    let last = last_seq(first, value)?;
    let mut rest = value.slice(HEADER_BYTES..);
    let mut records = Vec::new();
    for seq in (first.0..=last.0).map(Seq) {
        let record = decode_record(seq, &mut rest)
            .ok_or_else(|| Corrupt(format!("record {seq}: cut off in the value at {first}")))?;
        if !record.is_intact() {
            return Err(Corrupt(format!("record {seq}: its checksum does not match")));
        }
        records.push(record);
    }
    if rest.is_empty() {
        Ok(records)
    } else {
        Err(Corrupt(format!("value at {first}: bytes after its last record")))
    }
}

fn decode_record(seq: Seq, rest: &mut Bytes) -> Option<Record> {
    if rest.len() < FIXED_RECORD_BYTES {
        return None;
    }
    let body_len = usize::try_from(rest.get_u32()).ok()?;
    let leader_epoch = LeaderEpoch(rest.get_u64());
    let stamp_ms = rest.get_u64();
    let id = MessageId(rest.get_i64());
    let key = match rest.get_u8() {
        0 => None,
        1 if rest.len() >= KEY_BYTES => Some(DedupeKey {
            hash: rest.get_u64(),
            digest: rest.get_u128(),
        }),
        _ => return None,
    };
    if rest.len() < body_len.checked_add(4)? {
        return None;
    }
    let body = rest.split_to(body_len);
    Some(Record {
        seq,
        leader_epoch,
        stamp_ms,
        id,
        key,
        body,
        crc: rest.get_u32(),
    })
}

/// The value without the records from `from` on; `None` when nothing is left. A value that starts at or after `from` is
/// dropped unread.
pub fn cut(first: Seq, value: &Bytes, from: Seq) -> Result<Option<Bytes>, Corrupt> {
    if first >= from {
        return Ok(None);
    }
    if last_seq(first, value)? < from {
        return Ok(Some(value.clone()));
    }
    let mut records = decode(first, value)?;
    records.retain(|record| record.seq < from);
    Ok(Some(encode(&records)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(seq: u64, body: &'static [u8], key: Option<DedupeKey>) -> Record {
        Record {
            seq: Seq(seq),
            leader_epoch: LeaderEpoch(3),
            stamp_ms: 1_700_000_000_000,
            id: MessageId(77),
            key,
            body: Bytes::from_static(body),
            crc: 0,
        }
        .sealed()
    }

    fn records() -> Vec<Record> {
        let key = DedupeKey {
            hash: 7,
            digest: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10,
        };
        vec![
            record(5, b"one", Some(key)),
            record(6, b"", None),
            record(7, b"three", None),
        ]
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let value = encode(&records()[1..2]);
        let mut expected = vec![1, 0, 0, 0, 1];
        expected.extend(header_crc(1, 1, Seq(6)).to_be_bytes());
        expected.extend([0, 0, 0, 0]);
        expected.extend(3_u64.to_be_bytes());
        expected.extend(1_700_000_000_000_u64.to_be_bytes());
        expected.extend(77_i64.to_be_bytes());
        expected.push(0);
        expected.extend(records()[1].crc.to_be_bytes());
        assert_eq!(value.as_ref(), expected);
    }

    #[test]
    fn decodes_what_was_encoded() {
        let value = encode(&records());
        assert_eq!(decode(Seq(5), &value), Ok(records()));
        assert_eq!(last_seq(Seq(5), &value), Ok(Seq(7)));
        assert!(
            decode(Seq(4), &value).is_err(),
            "the first position is part of the checksum"
        );
    }

    #[test]
    fn cuts_inside_a_value() {
        let value = encode(&records());
        assert_eq!(cut(Seq(5), &value, Seq(5)), Ok(None));
        assert_eq!(cut(Seq(5), &value, Seq(7)), Ok(Some(encode(&records()[..2]))));
        assert_eq!(cut(Seq(5), &value, Seq(8)), Ok(Some(value.clone())));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let value = encode(&records());
        for bit in 0..value.len() * 8 {
            let mut flipped = value.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(Seq(5), &Bytes::from(flipped)).is_err(), "bit {bit}");
        }
        for length in 0..value.len() {
            assert!(decode(Seq(5), &value.slice(..length)).is_err(), "length {length}");
        }
    }
}
