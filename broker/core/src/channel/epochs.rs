//! Which epoch wrote what: the epoch table of a channel log (R1). Two logs agree up to the first position at which their tables
//! name different epochs, because one epoch has one writer.

use crate::types::{LeaderEpoch, Seq};

/// Runs `(epoch, first position)`, both strictly increasing. The first run may begin below the log start: it names the epoch of
/// what was removed there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpochTable {
    runs: Vec<(LeaderEpoch, Seq)>,
}

impl EpochTable {
    /// A table from its runs; none if they are not strictly increasing.
    #[must_use]
    pub fn of(runs: Vec<(LeaderEpoch, Seq)>) -> Option<EpochTable> {
        let ordered = runs
            .windows(2)
            .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1);
        let real = runs.iter().all(|(epoch, start)| epoch.0 > 0 && start.0 > 0);
        (ordered && real).then_some(EpochTable { runs })
    }

    /// The runs.
    #[must_use]
    pub fn runs(&self) -> &[(LeaderEpoch, Seq)] {
        &self.runs
    }

    /// Number of runs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether nothing was ever written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The epoch that wrote `seq`; 0 for a position before the first run. A position at or beyond the log end has no meaning here.
    #[must_use]
    pub fn epoch_at(&self, seq: Seq) -> LeaderEpoch {
        let place = self.runs.partition_point(|(_, start)| *start <= seq);
        match place {
            0 => LeaderEpoch(0),
            _ => self.runs[place - 1].0,
        }
    }

    /// The epoch of the record before `seq`; 0 before the first of all.
    #[must_use]
    pub fn epoch_before(&self, seq: Seq) -> LeaderEpoch {
        if seq.0 <= 1 {
            LeaderEpoch(0)
        } else {
            self.epoch_at(seq.previous())
        }
    }

    /// Notes that `epoch` writes from `seq` on. A run that wrote nothing is replaced; an older epoch is not noted.
    pub fn open(&mut self, epoch: LeaderEpoch, seq: Seq) {
        while self.runs.last().is_some_and(|(_, start)| *start >= seq) {
            self.runs.pop();
        }
        if self.runs.last().is_none_or(|(last, _)| *last < epoch) {
            self.runs.push((epoch, seq));
        }
    }

    /// Forgets what begins at or after `from`, because the log ends there now.
    pub fn truncate(&mut self, from: Seq) {
        while self.runs.last().is_some_and(|(_, start)| *start >= from) {
            self.runs.pop();
        }
    }

    /// Forgets runs that end before the record before `log_start`; that record's epoch stays known.
    pub fn trim(&mut self, log_start: Seq) {
        let last_removed = log_start.previous();
        let place = self.runs.partition_point(|(_, start)| *start <= last_removed);
        self.runs.drain(..place.saturating_sub(1));
    }

    /// The table of a log that ends before `end`.
    #[must_use]
    pub fn up_to(&self, end: Seq) -> EpochTable {
        let mut table = self.clone();
        table.truncate(end);
        table
    }

    /// The next position after `seq` at which the epoch may change.
    fn boundary_after(&self, seq: Seq) -> Option<Seq> {
        let place = self.runs.partition_point(|(_, start)| *start <= seq);
        self.runs.get(place).map(|(_, start)| *start)
    }

    /// The first position in `from..end` at which the two tables name different epochs; `end` if they agree.
    #[must_use]
    pub fn first_difference(&self, other: &EpochTable, from: Seq, end: Seq) -> Seq {
        let mut seq = from;
        while seq < end {
            if self.epoch_at(seq) != other.epoch_at(seq) {
                return seq;
            }
            let next = [self.boundary_after(seq), other.boundary_after(seq)]
                .into_iter()
                .flatten()
                .min();
            match next {
                Some(boundary) => seq = boundary,
                None => return end,
            }
        }
        end
    }

    /// The first position in `from..end` that another epoch than `epoch` wrote.
    #[must_use]
    pub fn first_foreign(&self, epoch: LeaderEpoch, from: Seq, end: Seq) -> Option<Seq> {
        let mut seq = from;
        while seq < end {
            if self.epoch_at(seq) != epoch {
                return Some(seq);
            }
            seq = self.boundary_after(seq)?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(runs: &[(u64, u64)]) -> EpochTable {
        EpochTable::of(
            runs.iter()
                .map(|(epoch, start)| (LeaderEpoch(*epoch), Seq(*start)))
                .collect(),
        )
        .expect("increasing runs")
    }

    #[test]
    fn epochs_are_found_by_position() {
        let table = table(&[(1, 1), (3, 4), (4, 9)]);
        let found: Vec<u64> = [1, 3, 4, 8, 9, 100]
            .iter()
            .map(|seq| table.epoch_at(Seq(*seq)).0)
            .collect();
        assert_eq!(found, [1, 1, 3, 3, 4, 4]);
        assert_eq!(table.epoch_before(Seq(1)), LeaderEpoch(0));
        assert_eq!(table.epoch_before(Seq(4)), LeaderEpoch(1));
    }

    #[test]
    fn an_epoch_that_wrote_nothing_leaves_no_run() {
        let mut table = table(&[(1, 1)]);
        table.open(LeaderEpoch(2), Seq(4));
        table.open(LeaderEpoch(3), Seq(4));
        table.open(LeaderEpoch(3), Seq(7));
        assert_eq!(table.runs(), [(LeaderEpoch(1), Seq(1)), (LeaderEpoch(3), Seq(4))]);
        table.truncate(Seq(4));
        assert_eq!(table.runs(), [(LeaderEpoch(1), Seq(1))]);
    }

    #[test]
    fn logs_of_one_length_and_two_writers_differ_where_the_second_writer_began() {
        let one = table(&[(1, 1), (2, 5)]);
        let other = table(&[(1, 1), (3, 5)]);
        assert_eq!(one.first_difference(&other, Seq(1), Seq(9)), Seq(5));
        assert_eq!(one.first_difference(&one, Seq(1), Seq(9)), Seq(9));
        let longer = table(&[(1, 1), (2, 5), (4, 8)]);
        assert_eq!(one.first_difference(&longer, Seq(1), Seq(12)), Seq(8));
        assert_eq!(one.first_difference(&longer, Seq(1), Seq(8)), Seq(8));
    }

    #[test]
    fn the_epoch_before_the_log_start_stays_known() {
        let mut table = table(&[(1, 1), (2, 5), (4, 8)]);
        table.trim(Seq(8));
        assert_eq!(table.runs(), [(LeaderEpoch(2), Seq(5)), (LeaderEpoch(4), Seq(8))]);
        assert_eq!(table.epoch_before(Seq(8)), LeaderEpoch(2));
        table.trim(Seq(9));
        assert_eq!(table.runs(), [(LeaderEpoch(4), Seq(8))]);
    }

    #[test]
    fn foreign_records_are_found() {
        let table = table(&[(1, 1), (2, 5), (4, 8)]);
        assert_eq!(table.first_foreign(LeaderEpoch(2), Seq(5), Seq(8)), None);
        assert_eq!(table.first_foreign(LeaderEpoch(2), Seq(5), Seq(9)), Some(Seq(8)));
        assert_eq!(table.first_foreign(LeaderEpoch(4), Seq(6), Seq(9)), Some(Seq(6)));
    }

    #[test]
    fn runs_that_do_not_increase_are_no_table() {
        for runs in [vec![(2, 1), (2, 5)], vec![(1, 5), (2, 5)], vec![(0, 1)]] {
            let runs = runs
                .into_iter()
                .map(|(epoch, start)| (LeaderEpoch(epoch), Seq(start)))
                .collect();
            assert_eq!(EpochTable::of(runs), None);
        }
    }
}
