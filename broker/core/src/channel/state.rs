//! The state row of a replica: what must survive besides the records (M-11).
//!
//! Layout, big-endian: version u8 = 1 | promised u64 | accepted u64 | accepted start u64 | withheld u64 | high watermark u64 |
//! log start u64 | number of runs u32 | runs (epoch u64, first position u64) | CRC-32 over all before.

use super::epochs::EpochTable;
use crate::types::{LeaderEpoch, Seq};
use bytes::{BufMut, Bytes, BytesMut};

const VERSION: u8 = 1;
const FIXED_BYTES: usize = 1 + 6 * 8 + 4;
const CRC_BYTES: usize = 4;

/// The durable state of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateRow {
    /// No message of an older epoch is obeyed.
    pub promised: LeaderEpoch,
    /// The epoch whose start the log reached last: what a recovery compares (CH-5).
    pub accepted: LeaderEpoch,
    /// Where the accepted epoch began.
    pub accepted_start: Seq,
    /// No evidence is given before an epoch at least this new is accepted (R30).
    pub withheld: LeaderEpoch,
    /// Last position known to be committed. Stored lazily.
    pub high_watermark: Seq,
    /// First position held.
    pub log_start: Seq,
    /// Which epoch wrote what (R1).
    pub epochs: EpochTable,
}

impl Default for StateRow {
    /// The state of a replica that never heard anything.
    fn default() -> StateRow {
        StateRow {
            promised: LeaderEpoch(0),
            accepted: LeaderEpoch(0),
            accepted_start: Seq(1),
            withheld: LeaderEpoch(0),
            high_watermark: Seq(0),
            log_start: Seq(1),
            epochs: EpochTable::default(),
        }
    }
}

impl StateRow {
    /// The row's bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(FIXED_BYTES + self.epochs.len() * 16 + CRC_BYTES);
        out.put_u8(VERSION);
        for number in [
            self.promised.0,
            self.accepted.0,
            self.accepted_start.0,
            self.withheld.0,
            self.high_watermark.0,
            self.log_start.0,
        ] {
            out.put_u64(number);
        }
        let runs = self.epochs.runs();
        // A table of four thousand million runs does not fit into memory.
        out.put_u32(u32::try_from(runs.len()).unwrap_or(u32::MAX));
        for (epoch, start) in runs {
            out.put_u64(epoch.0);
            out.put_u64(start.0);
        }
        let crc = crc32fast::hash(&out);
        out.put_u32(crc);
        out.freeze()
    }

    /// The state from a row; the error says what is wrong with it.
    pub fn decode(row: &[u8]) -> Result<StateRow, &'static str> {
        if row.len() < FIXED_BYTES + CRC_BYTES {
            return Err("channel state: too short");
        }
        let (content, crc) = row.split_at(row.len() - CRC_BYTES);
        if crc != crc32fast::hash(content).to_be_bytes() {
            return Err("channel state: checksum");
        }
        if content[0] != VERSION {
            return Err("channel state: unknown version");
        }
        let (head, runs) = content[1..].split_at(FIXED_BYTES - 1);
        let (numbers, count) = head.split_at(6 * 8);
        let count = count.try_into().map(u32::from_be_bytes);
        if runs.len() % 16 != 0 || count.ok() != u32::try_from(runs.len() / 16).ok() {
            return Err("channel state: number of runs");
        }
        let numbers: Vec<u64> = numbers.chunks_exact(8).map(number).collect();
        let runs = runs
            .chunks_exact(16)
            .map(|run| (LeaderEpoch(number(&run[..8])), Seq(number(&run[8..]))))
            .collect();
        Ok(StateRow {
            promised: LeaderEpoch(numbers[0]),
            accepted: LeaderEpoch(numbers[1]),
            accepted_start: Seq(numbers[2]),
            withheld: LeaderEpoch(numbers[3]),
            high_watermark: Seq(numbers[4]),
            log_start: Seq(numbers[5]),
            epochs: EpochTable::of(runs).ok_or("channel state: epoch table")?,
        })
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> StateRow {
        StateRow {
            promised: LeaderEpoch(7),
            accepted: LeaderEpoch(6),
            accepted_start: Seq(40),
            withheld: LeaderEpoch(0),
            high_watermark: Seq(55),
            log_start: Seq(12),
            epochs: EpochTable::of(vec![(LeaderEpoch(2), Seq(9)), (LeaderEpoch(6), Seq(40))])
                .expect("increasing runs"),
        }
    }

    #[test]
    fn a_row_is_read_back() {
        assert_eq!(StateRow::decode(&row().encode()), Ok(row()));
        assert_eq!(
            StateRow::decode(&StateRow::default().encode()),
            Ok(StateRow::default())
        );
    }

    #[test]
    fn version_one_keeps_its_bytes() {
        let bytes = row().encode();
        assert_eq!(bytes.len(), 53 + 32 + 4);
        assert_eq!(bytes[..9], [1, 0, 0, 0, 0, 0, 0, 0, 7]);
        assert_eq!(bytes[49..53], [0, 0, 0, 2]);
    }

    #[test]
    fn a_flipped_bit_or_a_missing_byte_is_an_error() {
        let bytes = row().encode();
        for place in 0..bytes.len() {
            let mut broken = bytes.to_vec();
            broken[place] ^= 1;
            assert!(StateRow::decode(&broken).is_err(), "byte {place}");
        }
        assert!(StateRow::decode(&bytes[..bytes.len() - 1]).is_err());
        assert!(StateRow::decode(&[]).is_err());
    }
}
