//! A bounded page of records, filled from stored values in ascending order.

use super::record_block::{self, Corrupt};
use crate::message::Record;
use crate::rows::Page;
use crate::types::Seq;
use bytes::Bytes;
use std::ops::ControlFlow;

/// Collects the records `from..=through` until a bound is met. At least one record is taken if there is any.
#[derive(Debug)]
pub struct RecordPage {
    from: Seq,
    through: Seq,
    records_max: usize,
    bytes_left: usize,
    records: Vec<Record>,
    corrupt: Option<(Corrupt, Option<Seq>)>,
}

impl RecordPage {
    /// An empty page. A bound of 0 records counts as 1.
    #[must_use]
    pub fn new(from: Seq, through: Seq, records_max: u32, bytes_max: u32) -> RecordPage {
        RecordPage {
            from,
            through,
            records_max: usize::try_from(records_max.max(1)).unwrap_or(usize::MAX),
            bytes_left: usize::try_from(bytes_max).unwrap_or(usize::MAX),
            records: Vec::new(),
            corrupt: None,
        }
    }

    /// Takes what is wanted of the next stored value, whose first position is `first`. `Break` when the page is full, its
    /// range is passed, or the value is corrupt.
    pub fn push(&mut self, first: Seq, value: &Bytes) -> ControlFlow<()> {
        if first > self.through {
            return ControlFlow::Break(());
        }
        match record_block::decode(first, value) {
            Ok(records) => records.into_iter().try_for_each(|record| self.take(record)),
            Err(corrupt) => self.fail_from(corrupt, Some(first)),
        }
    }

    fn take(&mut self, record: Record) -> ControlFlow<()> {
        if record.seq < self.from {
            return ControlFlow::Continue(());
        }
        if record.seq > self.through {
            return ControlFlow::Break(());
        }
        if let Some(last) = self.records.last() {
            if self.records.len() >= self.records_max || record.body.len() > self.bytes_left {
                return ControlFlow::Break(());
            }
            if record.seq != last.seq.next() {
                let last = last.seq;
                let hole = Corrupt(format!("record {} follows record {last}", record.seq));
                return self.fail_from(hole, Some(last.next()));
            }
        }
        self.bytes_left = self.bytes_left.saturating_sub(record.body.len());
        self.records.push(record);
        ControlFlow::Continue(())
    }

    /// Notes damage that the store itself found.
    pub fn fail(&mut self, corrupt: Corrupt) -> ControlFlow<()> {
        self.fail_from(corrupt, None)
    }

    fn fail_from(&mut self, corrupt: Corrupt, first: Option<Seq>) -> ControlFlow<()> {
        self.corrupt = Some((corrupt, first));
        ControlFlow::Break(())
    }

    /// The page. Damage outweighs what was read before it: the replica must withdraw (R30).
    #[must_use]
    pub fn finish(self) -> Page {
        match self.corrupt {
            Some((Corrupt(what), first)) => Page::Corrupt { what, first },
            None => Page::Records(self.records),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{LeaderEpoch, MessageId};

    fn block(seqs: std::ops::RangeInclusive<u64>) -> (Seq, Bytes) {
        let records: Vec<Record> = seqs
            .map(|seq| {
                Record {
                    seq: Seq(seq),
                    leader_epoch: LeaderEpoch(1),
                    stamp_ms: 1,
                    id: MessageId(1),
                    key: None,
                    body: Bytes::from_static(b"0123456789"),
                    crc: 0,
                }
                .sealed()
            })
            .collect();
        (records[0].seq, record_block::encode(&records))
    }

    fn read(mut page: RecordPage, blocks: &[(Seq, Bytes)]) -> Result<Vec<u64>, Option<u64>> {
        let _ = blocks
            .iter()
            .try_for_each(|(first, value)| page.push(*first, value));
        match page.finish() {
            Page::Records(records) => Ok(records.iter().map(|record| record.seq.0).collect()),
            Page::Corrupt { first, .. } => Err(first.map(|first| first.0)),
            other => panic!("no page of records: {other:?}"),
        }
    }

    #[test]
    fn keeps_its_bounds() {
        let blocks = [block(1..=3), block(4..=4), block(5..=9)];
        let page = |from, through, records, bytes| RecordPage::new(Seq(from), Seq(through), records, bytes);
        assert_eq!(read(page(2, 6, 100, 1_000), &blocks), Ok(vec![2, 3, 4, 5, 6]));
        assert_eq!(read(page(2, 6, 2, 1_000), &blocks), Ok(vec![2, 3]));
        assert_eq!(read(page(2, 6, 100, 25), &blocks), Ok(vec![2, 3]));
        assert_eq!(read(page(2, 6, 100, 0), &blocks), Ok(vec![2]), "at least one");
        assert_eq!(read(page(10, 20, 100, 100), &blocks), Ok(vec![]));
    }

    #[test]
    fn a_hole_and_a_damaged_value_are_corrupt() {
        let whole = RecordPage::new(Seq(1), Seq(9), 100, 1_000);
        assert_eq!(read(whole, &[block(1..=3), block(5..=9)]), Err(Some(4)));
        let whole = RecordPage::new(Seq(1), Seq(9), 100, 1_000);
        let (first, value) = block(4..=5);
        assert_eq!(
            read(whole, &[block(1..=3), (first, value.slice(..20))]),
            Err(Some(4))
        );
        let middle = RecordPage::new(Seq(5), Seq(9), 100, 1_000);
        let (first, value) = block(3..=6);
        let damaged = [block(1..=2), (first, value.slice(..20))];
        assert_eq!(read(middle, &damaged), Err(Some(3)), "where the value begins");
    }
}
