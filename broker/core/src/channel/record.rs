//! The checksum of a record (R19, R30): set once by the leader, checked at every receipt and read.

use crate::message::{DedupeKey, Record};
use crate::types::Seq;

/// Milliseconds of a day.
const DAY_MS: u64 = 86_400_000;

/// The checksum over everything in the record but the checksum itself.
#[must_use]
pub fn checksum(record: &Record) -> u32 {
    let mut head = [0u8; 49];
    head[..8].copy_from_slice(&record.seq.0.to_be_bytes());
    head[8..16].copy_from_slice(&record.leader_epoch.0.to_be_bytes());
    head[16..24].copy_from_slice(&record.stamp_ms.to_be_bytes());
    if let Some(key) = &record.key {
        head[24] = 1;
        head[25..33].copy_from_slice(&key.hash.to_be_bytes());
        head[33..49].copy_from_slice(&key.digest.to_be_bytes());
    }
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&head);
    hasher.update(&record.body);
    hasher.finalize()
}

/// Sets the checksum.
#[must_use]
pub fn seal(mut record: Record) -> Record {
    record.crc = checksum(&record);
    record
}

/// Whether the record is what its leader wrote.
#[must_use]
pub fn verify(record: &Record) -> bool {
    record.crc == checksum(record)
}

/// The day of a stamp, in days since 1970: part of the idempotency row's key (M-11).
#[must_use]
pub fn day_of(stamp_ms: u64) -> u16 {
    u16::try_from(stamp_ms / DAY_MS).unwrap_or(u16::MAX)
}

/// The value of an idempotency row: position and digest, big-endian.
#[must_use]
pub fn encode_dedupe(seq: Seq, digest: u128) -> [u8; 24] {
    let mut value = [0u8; 24];
    value[..8].copy_from_slice(&seq.0.to_be_bytes());
    value[8..].copy_from_slice(&digest.to_be_bytes());
    value
}

/// Position and digest of an idempotency row; none if the value has another length.
#[must_use]
pub fn decode_dedupe(value: &[u8]) -> Option<(Seq, u128)> {
    let value: &[u8; 24] = value.try_into().ok()?;
    let (seq, digest) = value.split_at(8);
    Some((
        Seq(u64::from_be_bytes(seq.try_into().ok()?)),
        u128::from_be_bytes(digest.try_into().ok()?),
    ))
}

/// The key of the record's idempotency row, if it has one: `(day, hash)`.
#[must_use]
pub fn dedupe_place(record: &Record) -> Option<(u16, &DedupeKey)> {
    record.key.as_ref().map(|key| (day_of(record.stamp_ms), key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::LeaderEpoch;
    use bytes::Bytes;

    #[test]
    fn any_changed_field_is_noticed() {
        let record = seal(Record {
            seq: Seq(7),
            leader_epoch: LeaderEpoch(2),
            stamp_ms: 1_700_000_000_000,
            key: Some(DedupeKey { hash: 1, digest: 2 }),
            body: Bytes::from_static(b"hello"),
            crc: 0,
        });
        assert!(verify(&record));
        let changed = [
            Record {
                seq: Seq(8),
                ..record.clone()
            },
            Record {
                leader_epoch: LeaderEpoch(3),
                ..record.clone()
            },
            Record {
                stamp_ms: 1,
                ..record.clone()
            },
            Record {
                key: None,
                ..record.clone()
            },
            Record {
                key: Some(DedupeKey { hash: 1, digest: 3 }),
                ..record.clone()
            },
            Record {
                body: Bytes::from_static(b"hellp"),
                ..record.clone()
            },
        ];
        assert!(changed.iter().all(|record| !verify(record)));
    }

    #[test]
    fn dedupe_rows_are_read_back() {
        let value = encode_dedupe(Seq(9), u128::MAX - 5);
        assert_eq!(decode_dedupe(&value), Some((Seq(9), u128::MAX - 5)));
        assert_eq!(decode_dedupe(&value[1..]), None);
    }
}
