//! The Raft log of a group in memory, complete since the last compaction; the stored rows are its recovery image (M-12).

use super::rows::encode;
use crate::codec::Corrupt;
use crate::rows::Row;
use penstock_wire::storage::v1;
use prost::Message as _;
use raft::eraftpb::{ConfState, Entry, EntryType, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Result, Storage, StorageError};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What Raft reads. Written only by the group, in step with the Store outputs.
#[derive(Debug)]
pub(super) struct Log {
    entries: VecDeque<Entry>,
    bytes: u64,
    truncated: (u64, u64),
    hard_state: HardState,
    /// Only read by Raft at its start: afterwards Raft keeps the configuration itself.
    initial: ConfState,
    offers: BTreeMap<u64, Snapshot>,
    wanted: RefCell<BTreeSet<u64>>,
}

fn size(entry: &Entry) -> u64 {
    // Sizes of slices fit in u64 on every platform that this runs on.
    (entry.data.len() + entry.context.len() + 32) as u64
}

impl Log {
    /// An empty log that starts after this (index, term).
    pub(super) fn starting_after(truncated: (u64, u64), hard_state: HardState, initial: ConfState) -> Log {
        Log {
            entries: VecDeque::new(),
            bytes: 0,
            truncated,
            hard_state,
            initial,
            offers: BTreeMap::new(),
            wanted: RefCell::default(),
        }
    }

    /// The log from its stored rows: entries ascending, perhaps beginning below the truncation.
    pub(super) fn recovered(
        state: &v1::RaftState,
        initial: ConfState,
        rows: &[Row],
    ) -> std::result::Result<Log, Corrupt> {
        let hard_state = HardState {
            term: state.term,
            vote: state.vote,
            commit: state.commit,
        };
        let truncated = (state.truncated_index, state.truncated_term);
        let mut log = Log::starting_after(truncated, hard_state, initial);
        for row in rows {
            let stored = v1::RaftEntry::decode(row.clone()).map_err(|_| Corrupt)?;
            if stored.index <= truncated.0 {
                continue;
            }
            if stored.index != log.last().0 + 1 {
                return Err(Corrupt);
            }
            log.push(read_entry(stored)?);
        }
        if log.hard_state.commit > log.last().0 || log.hard_state.commit < truncated.0 {
            return Err(Corrupt);
        }
        Ok(log)
    }

    fn push(&mut self, entry: Entry) {
        self.bytes += size(&entry);
        self.entries.push_back(entry);
    }

    /// Index and term of the last entry.
    pub(super) fn last(&self) -> (u64, u64) {
        self.entries
            .back()
            .map_or(self.truncated, |entry| (entry.index, entry.term))
    }

    pub(super) fn truncated(&self) -> (u64, u64) {
        self.truncated
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    pub(super) fn hard_state(&self) -> HardState {
        self.hard_state.clone()
    }

    pub(super) fn set_hard_state(&mut self, hard_state: HardState) {
        self.hard_state = hard_state;
    }

    /// The row of hard state and truncation, with a commit index that covers `applied`: Raft refuses to start otherwise (M-12).
    pub(super) fn state_row(&self, applied: u64) -> Row {
        encode(&v1::RaftState {
            term: self.hard_state.term,
            vote: self.hard_state.vote,
            commit: self.hard_state.commit.max(applied),
            truncated_index: self.truncated.0,
            truncated_term: self.truncated.1,
        })
    }

    /// Appends after dropping everything from the first of these on (F3).
    pub(super) fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        assert!(
            first.index > self.truncated.0,
            "entry {} is below the compaction at {}",
            first.index,
            self.truncated.0
        );
        while self.entries.back().is_some_and(|last| last.index >= first.index) {
            if let Some(dropped) = self.entries.pop_back() {
                self.bytes -= size(&dropped);
            }
        }
        assert_eq!(self.last().0 + 1, first.index, "a gap in the log");
        for entry in entries {
            self.push(entry.clone());
        }
    }

    /// Forgets everything up to and with this index.
    pub(super) fn compact(&mut self, through: u64) {
        while self.entries.front().is_some_and(|first| first.index <= through) {
            if let Some(dropped) = self.entries.pop_front() {
                self.bytes -= size(&dropped);
                self.truncated = (dropped.index, dropped.term);
            }
        }
    }

    /// Starts anew after a snapshot.
    pub(super) fn restart(&mut self, index: u64, term: u64) {
        self.entries.clear();
        self.bytes = 0;
        self.truncated = (index, term);
    }

    /// Makes a finished snapshot available to a follower whose rows are staged.
    pub(super) fn offer(&mut self, to: u64, snapshot: Snapshot) {
        self.offers.insert(to, snapshot);
    }

    pub(super) fn withdraw(&mut self, to: u64) {
        self.offers.remove(&to);
    }

    pub(super) fn withdraw_all(&mut self) {
        self.offers.clear();
        self.wanted.borrow_mut().clear();
    }

    /// Followers that need a snapshot, since the last call.
    pub(super) fn take_wanted(&mut self) -> BTreeSet<u64> {
        std::mem::take(self.wanted.get_mut())
    }

    fn position(&self, index: u64) -> Option<usize> {
        usize::try_from(index.checked_sub(self.truncated.0 + 1)?).ok()
    }
}

impl Storage for Log {
    fn initial_state(&self) -> Result<RaftState> {
        Ok(RaftState::new(self.hard_state.clone(), self.initial.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> Result<Vec<Entry>> {
        let max_size = max_size.into().unwrap_or(u64::MAX);
        let (Some(from), Some(to)) = (self.position(low), self.position(high)) else {
            return Err(Error::Store(StorageError::Compacted));
        };
        let mut found: Vec<Entry> = Vec::new();
        let mut bytes = 0;
        for entry in self.entries.range(from..to) {
            bytes += size(entry);
            if bytes > max_size && !found.is_empty() {
                break;
            }
            found.push(entry.clone());
        }
        Ok(found)
    }

    fn term(&self, index: u64) -> Result<u64> {
        if index == self.truncated.0 {
            return Ok(self.truncated.1);
        }
        let at = self
            .position(index)
            .ok_or(Error::Store(StorageError::Compacted))?;
        self.entries
            .get(at)
            .map(|entry| entry.term)
            .ok_or(Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> Result<u64> {
        Ok(self.truncated.0 + 1)
    }

    fn last_index(&self) -> Result<u64> {
        Ok(self.last().0)
    }

    /// A snapshot exists only once its rows are staged at the receiver: until then it is being built (M-12).
    fn snapshot(&self, request_index: u64, to: u64) -> Result<Snapshot> {
        if let Some(offer) = self.offers.get(&to)
            && offer.get_metadata().index >= request_index
        {
            return Ok(offer.clone());
        }
        self.wanted.borrow_mut().insert(to);
        Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
    }
}

/// An entry as it is stored.
pub(super) fn entry_row(entry: &Entry) -> Row {
    encode(&v1::RaftEntry {
        index: entry.index,
        term: entry.term,
        kind: u32::from(entry.get_entry_type() != EntryType::EntryNormal),
        data: entry.data.clone().into(),
        context: entry.context.clone().into(),
    })
}

fn read_entry(stored: v1::RaftEntry) -> std::result::Result<Entry, Corrupt> {
    let mut entry = Entry {
        index: stored.index,
        term: stored.term,
        data: stored.data.to_vec(),
        context: stored.context.to_vec(),
        ..Entry::default()
    };
    entry.set_entry_type(match stored.kind {
        0 => EntryType::EntryNormal,
        1 => EntryType::EntryConfChange,
        _ => return Err(Corrupt),
    });
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(index: u64, term: u64) -> Entry {
        Entry {
            index,
            term,
            data: vec![7; (index % 5) as usize],
            ..Entry::default()
        }
    }

    proptest! {
        /// F3: against a plain vector, with a recovery from rows after every step.
        #[test]
        fn the_log_is_a_vector_that_forgets_its_beginning(
            steps in proptest::collection::vec((any::<bool>(), 0_u64..20, 1_usize..5), 1..30),
        ) {
            let mut log = Log::starting_after((1, 1), HardState { term: 1, vote: 0, commit: 1 }, ConfState::default());
            let mut model: Vec<Entry> = Vec::new();
            let mut start = 1_u64;
            for (term, (append, at, count)) in (2_u64..).zip(steps) {
                let last = start + model.len() as u64;
                if append {
                    let first = (start + 1 + at).min(last + 1);
                    let new: Vec<Entry> = (0..count as u64).map(|step| entry(first + step, term)).collect();
                    log.append(&new);
                    model.truncate((first - start - 1) as usize);
                    model.extend(new);
                } else {
                    let through = (start + at).min(last);
                    log.compact(through);
                    model.drain(..(through - start) as usize);
                    start = through;
                }
                let last = start + model.len() as u64;
                prop_assert_eq!(log.last().0, last);
                prop_assert_eq!(log.bytes(), model.iter().map(size).sum::<u64>());
                let all = log.entries(start + 1, last + 1, None, GetEntriesContext::empty(false)).unwrap();
                prop_assert_eq!(&all, &model);
                let rows: Vec<Row> = model.iter().map(entry_row).collect();
                let state = v1::RaftState::decode(log.state_row(start)).unwrap();
                let again = Log::recovered(&state, ConfState::default(), &rows).unwrap();
                prop_assert_eq!(again.last(), log.last());
                prop_assert_eq!(again.truncated(), log.truncated());
                prop_assert!(log.term(start.wrapping_sub(1)).is_err() || start == 0);
            }
        }
    }

    #[test]
    fn a_log_with_a_gap_is_corrupt() {
        let state = v1::RaftState {
            term: 1,
            commit: 1,
            truncated_index: 1,
            truncated_term: 1,
            ..v1::RaftState::default()
        };
        let rows = [entry_row(&entry(2, 1)), entry_row(&entry(4, 1))];
        assert!(Log::recovered(&state, ConfState::default(), &rows).is_err());
        assert!(Log::recovered(&state, ConfState::default(), &rows[..1]).is_ok());
    }
}
