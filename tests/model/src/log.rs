//! A replica's log: records by absolute offset, with the beginning cut off by retention.

/// Most records of one walk. Offsets index an array, which makes a log cheap to copy.
pub(crate) const CAPACITY: usize = 16;

/// One record: the epoch of the leader that wrote it, and a value that no other record has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) epoch: u16,
    pub(crate) value: u16,
}

/// Records at the offsets from `start` to before `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Log {
    start: usize,
    end: usize,
    /// Epoch of the last record that is cut off; the epoch table keeps it.
    base_epoch: u16,
    records: [Record; CAPACITY],
}

impl Log {
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// The first offset that is not written yet.
    pub(crate) fn end(&self) -> usize {
        self.end
    }

    pub(crate) fn record(&self, offset: usize) -> Option<Record> {
        (self.start <= offset && offset < self.end).then(|| self.records[offset])
    }

    /// Epoch of the record before this offset; 0 before the first of all. The offset lies in the log or at an end of it.
    pub(crate) fn epoch_before(&self, offset: usize) -> u16 {
        if offset > self.start {
            self.records[offset - 1].epoch
        } else {
            self.base_epoch
        }
    }

    pub(crate) fn push(&mut self, record: Record) {
        self.records[self.end] = record;
        self.end += 1;
    }

    /// Drops everything from this offset on.
    pub(crate) fn truncate(&mut self, end: usize) {
        if end < self.end {
            self.records[end..self.end].fill(Record::default());
            self.end = end.max(self.start);
        }
    }

    /// Drops everything before this offset, which is at most the end.
    pub(crate) fn trim(&mut self, start: usize) {
        if start > self.start {
            self.base_epoch = self.epoch_before(start);
            self.records[self.start..start].fill(Record::default());
            self.start = start;
        }
    }

    /// An empty log that begins at this offset.
    pub(crate) fn reset(&mut self, start: usize, base_epoch: u16) {
        *self = Self {
            start,
            end: start,
            base_epoch,
            ..Self::default()
        };
    }

    /// The first offset at which the two logs may differ. What one of them has cut off is taken as equal, since only
    /// committed records are cut off.
    pub(crate) fn common_end(&self, other: &Self) -> usize {
        let end = self.end.min(other.end);
        let start = self.start.max(other.start).min(end);
        (start..end)
            .find(|&offset| self.records[offset] != other.records[offset])
            .unwrap_or(end)
    }

    /// The first offset from `from` on whose record another epoch wrote.
    pub(crate) fn foreign(&self, from: usize, epoch: u16) -> Option<usize> {
        (from.max(self.start)..self.end).find(|&offset| self.records[offset].epoch != epoch)
    }
}
