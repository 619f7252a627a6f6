//! The log of a replica as its memory knows it: where it begins and ends, which epoch wrote what, and the last records.

use super::epochs::EpochTable;
use super::message::record_bytes;
use crate::message::Record;
use crate::types::{LeaderEpoch, Seq};
use std::collections::VecDeque;

/// The shape of a log: enough to find where two logs agree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape<'a> {
    pub(super) start: Seq,
    pub(super) end: Seq,
    pub(super) epochs: &'a EpochTable,
}

/// How a log continues another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// They agree before this position.
    At(Seq),
    /// The source begins after what the sink has, or after something else: the sink begins anew there (CH-14).
    Reset,
    /// The sink has removed committed records that the source never had.
    Contradiction,
}

/// Where `sink` must continue to become a copy of `source` (CH-6). What either has removed is committed and taken as equal; where
/// the source begins above an own record of the sink, the epoch just before is compared as well.
pub(super) fn fit(source: Shape<'_>, sink: Shape<'_>) -> Fit {
    if sink.start > source.end {
        return Fit::Contradiction;
    }
    let other_base = sink.start < source.start
        && sink.epochs.epoch_before(source.start) != source.epochs.epoch_before(source.start);
    if sink.end < source.start || other_base {
        return Fit::Reset;
    }
    let from = source.start.max(sink.start);
    let end = source.end.min(sink.end);
    Fit::At(source.epochs.first_difference(sink.epochs, from, end))
}

/// What a record takes in memory, about: itself, and what it owns.
fn memory_bytes(record: &Record) -> usize {
    size_of::<Record>() + record_bytes(record)
}

/// The log in memory.
#[derive(Clone, Debug)]
pub(super) struct Log {
    start: Seq,
    end: Seq,
    pub(super) epochs: EpochTable,
    /// The last records, contiguous up to the end.
    tail: VecDeque<Record>,
    /// What the tail takes.
    tail_bytes: usize,
    /// Positions up to here are committed as far as this replica can tell: the tail need not keep them.
    settled: Seq,
    /// A pushed record began a run of the epoch table since this was asked last.
    began_run: bool,
}

impl Log {
    pub(super) fn new(start: Seq, end: Seq, epochs: EpochTable) -> Log {
        Log {
            start,
            end,
            epochs,
            tail: VecDeque::new(),
            tail_bytes: 0,
            settled: start.previous(),
            began_run: false,
        }
    }

    pub(super) fn start(&self) -> Seq {
        self.start
    }

    /// Next position to be written.
    pub(super) fn end(&self) -> Seq {
        self.end
    }

    pub(super) fn shape(&self) -> Shape<'_> {
        Shape {
            start: self.start,
            end: self.end,
            epochs: &self.epochs,
        }
    }

    /// Epoch of the last record.
    pub(super) fn last_epoch(&self) -> LeaderEpoch {
        self.epochs.epoch_before(self.end)
    }

    /// First position whose record is in memory.
    pub(super) fn tail_start(&self) -> Seq {
        Seq(self.end.0 - self.tail.len() as u64)
    }

    /// Whether a record in memory has this idempotency hash.
    pub(super) fn has_key(&self, hash: u64) -> bool {
        self.tail
            .iter()
            .any(|record| record.key.is_some_and(|key| key.hash == hash))
    }

    /// Stamp of the last record in memory.
    pub(super) fn last_stamp_ms(&self) -> Option<u64> {
        self.tail.back().map(|record| record.stamp_ms)
    }

    pub(super) fn push(&mut self, record: Record) {
        assert_eq!(record.seq, self.end, "contiguous");
        if self.epochs.epoch_at(record.seq) != record.leader_epoch {
            self.epochs.open(record.leader_epoch, record.seq);
            self.began_run = true;
        }
        self.end = self.end.next();
        self.tail_bytes += memory_bytes(&record);
        self.tail.push_back(record);
    }

    /// Whether the epoch table changed by pushed records since the last call: then it is stored with them (R1).
    pub(super) fn take_began_run(&mut self) -> bool {
        std::mem::take(&mut self.began_run)
    }

    /// Puts loaded records before the tail.
    pub(super) fn load(&mut self, records: Vec<Record>) {
        for record in records.into_iter().rev() {
            if record.seq.next() == self.tail_start() {
                self.tail_bytes += memory_bytes(&record);
                self.tail.push_front(record);
            }
        }
    }

    /// Ends the log before `from`; returns the removed records that were in memory.
    pub(super) fn truncate(&mut self, from: Seq) -> Vec<Record> {
        let mut removed = Vec::new();
        if from >= self.end {
            return removed;
        }
        while self.tail.back().is_some_and(|record| record.seq >= from) {
            removed.extend(self.tail.pop_back());
        }
        self.tail_bytes -= removed.iter().map(memory_bytes).sum::<usize>();
        self.end = from.max(self.start);
        self.settled = self.settled.min(self.end.previous());
        self.epochs.truncate(from);
        removed
    }

    /// Removes what is before `start`.
    pub(super) fn trim(&mut self, start: Seq) {
        if start <= self.start {
            return;
        }
        self.start = start;
        while self.tail.front().is_some_and(|record| record.seq < start) {
            self.drop_first();
        }
        self.epochs.trim(start);
    }

    /// Empties the log: it begins at `start`, after what `epochs` describes.
    pub(super) fn reset(&mut self, start: Seq, epochs: EpochTable) {
        *self = Log::new(start, start, epochs);
        self.epochs.trim(start);
    }

    /// Positions up to `through` are committed; keeps at most `records_max` of them in memory, and `bytes_max` unless it is
    /// the last record alone.
    pub(super) fn settle(&mut self, through: Seq, records_max: usize, bytes_max: usize) {
        self.settled = self.settled.max(through.min(self.end.previous()));
        let too_much =
            |log: &Log| log.tail.len() > records_max || (log.tail_bytes > bytes_max && log.tail.len() > 1);
        while too_much(self) && self.tail.front().is_some_and(|record| record.seq <= self.settled) {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        if let Some(record) = self.tail.pop_front() {
            self.tail_bytes -= memory_bytes(&record);
        }
    }

    /// Records from `from` on, at least one if there is any, within the bounds; none if they are not in memory.
    pub(super) fn slice(
        &self,
        from: Seq,
        through: Seq,
        records_max: usize,
        bytes_max: usize,
    ) -> Option<Vec<Record>> {
        let skipped = from.0.checked_sub(self.tail_start().0)?;
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        let mut bytes = 0;
        let mut records = Vec::new();
        for record in self.tail.iter().skip(skipped).take(records_max.max(1)) {
            bytes += record_bytes(record);
            if record.seq > through || (!records.is_empty() && bytes > bytes_max) {
                break;
            }
            records.push(record.clone());
        }
        Some(records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn record(seq: u64, epoch: u64) -> Record {
        Record {
            seq: Seq(seq),
            leader_epoch: LeaderEpoch(epoch),
            stamp_ms: seq,
            id: crate::types::MessageId(1),
            key: None,
            body: Bytes::from_static(b"0123456789"),
            crc: 0,
        }
    }

    fn log(runs: &[(u64, u64)], end: u64) -> Log {
        let mut log = Log::new(Seq(1), Seq(1), EpochTable::default());
        for seq in 1..end {
            let epoch = runs
                .iter()
                .rev()
                .find(|(_, start)| *start <= seq)
                .map_or(1, |run| run.0);
            log.push(record(seq, epoch));
        }
        log
    }

    #[test]
    fn logs_continue_where_they_differ() {
        let source = log(&[(1, 1), (3, 6)], 9);
        assert_eq!(
            fit(source.shape(), log(&[(1, 1), (2, 5)], 8).shape()),
            Fit::At(Seq(5))
        );
        assert_eq!(fit(source.shape(), log(&[(1, 1)], 4).shape()), Fit::At(Seq(4)));
        assert_eq!(
            fit(source.shape(), log(&[(1, 1), (3, 6)], 12).shape()),
            Fit::At(Seq(9))
        );
    }

    #[test]
    fn a_source_that_begins_later_resets_what_does_not_meet_it() {
        let mut source = log(&[(1, 1), (3, 6)], 9);
        source.trim(Seq(7));
        assert_eq!(fit(source.shape(), log(&[(1, 1)], 5).shape()), Fit::Reset);
        // The record before the start is of epoch 3 there and of epoch 2 here.
        assert_eq!(fit(source.shape(), log(&[(1, 1), (2, 5)], 8).shape()), Fit::Reset);
        assert_eq!(
            fit(source.shape(), log(&[(1, 1), (3, 6)], 8).shape()),
            Fit::At(Seq(8))
        );
        let mut ahead = log(&[(1, 1), (3, 6)], 12);
        ahead.trim(Seq(11));
        assert_eq!(fit(source.shape(), ahead.shape()), Fit::Contradiction);
    }

    #[test]
    fn the_tail_keeps_what_is_not_committed() {
        let mut log = log(&[(1, 1)], 11);
        log.settle(Seq(4), 2, usize::MAX);
        assert_eq!(log.tail_start(), Seq(5));
        log.settle(Seq(10), 2, usize::MAX);
        assert_eq!(log.tail_start(), Seq(9));
        assert_eq!(log.slice(Seq(8), Seq(10), 9, 999), None);
        let read = log.slice(Seq(9), Seq(10), 9, 999).expect("in memory");
        assert_eq!(read.len(), 2);
        assert_eq!(
            log.slice(Seq(9), Seq(10), 9, 1).map(|records| records.len()),
            Some(1)
        );
        assert_eq!(log.slice(Seq(11), Seq(10), 9, 1), Some(Vec::new()));
    }

    /// Many channels share one bound: each keeps only as much as its share, but what it committed last.
    #[test]
    fn the_tail_keeps_to_its_share_of_memory() {
        let mut log = log(&[(1, 1)], 11);
        let whole = log.tail_bytes;
        log.settle(Seq(10), 256, whole / 2);
        assert_eq!((log.tail_start(), log.tail_bytes), (Seq(6), whole / 2));
        log.settle(Seq(10), 256, 1);
        assert_eq!(log.tail_start(), Seq(10));
        assert_eq!(log.truncate(Seq(10)).len(), 1);
        assert_eq!(log.tail_bytes, 0);
    }

    #[test]
    fn loaded_records_join_the_tail_only_where_they_fit() {
        let mut log = Log::new(Seq(3), Seq(9), EpochTable::default());
        log.load(vec![record(7, 1), record(8, 1)]);
        log.load(vec![record(4, 1)]);
        assert_eq!(log.tail_start(), Seq(7));
        log.load(vec![record(5, 1), record(6, 1)]);
        assert_eq!(log.tail_start(), Seq(5));
        assert_eq!(log.truncate(Seq(6)).len(), 3);
        assert_eq!((log.end(), log.tail_start()), (Seq(6), Seq(5)));
    }
}
