//! From a cold replica to one that takes part: state row, log end, cursors, and the records that are perhaps not committed.

use super::log::Log;
use super::read::Purpose;
use super::{Message, Output, Replica, Role, StateRow, Turn};
use crate::message::Record;
use crate::rows::{Key, Miss, Page, ReadRequest, Rows};
use crate::types::{NodeId, Seq};

/// Records asked for at once.
const PAGE_RECORDS: u32 = 1_024;
/// Bytes asked for at once.
const PAGE_BYTES: u32 = 1 << 20;

/// How far activation is.
#[derive(Debug, Default)]
pub(super) struct Loading {
    cursors_read: bool,
    tail_read: bool,
    records: Vec<Record>,
    /// What came meanwhile: the message that woke this replica is among it.
    held: Vec<(NodeId, Message)>,
}

/// Most messages that are held while loading; what is dropped is asked again.
const HELD_MAX: usize = 64;

impl Loading {
    pub(super) fn hold(&mut self, from: NodeId, message: Message) {
        if self.held.len() < HELD_MAX {
            self.held.push((from, message));
        }
    }
}

impl Replica {
    /// From the next commit on, committed records are kept in memory only up to so many bytes.
    pub fn keep_in_memory(&mut self, bytes_max: usize) {
        self.tail_bytes_max = bytes_max;
    }

    /// Positions up to `through` are committed: what is over this channel's share of memory is read from the disk again.
    pub(super) fn settle_log(&mut self, through: Seq) {
        let (records_max, bytes_max) = (self.limits.channel_tail_records, self.tail_bytes_max);
        self.log.settle(through, records_max, bytes_max);
    }

    /// Reads the state row and starts the scans. On a miss nothing has changed.
    pub(super) fn start(&mut self, rows: &dyn Rows, turn: &mut Turn<'_>) -> Result<(), Miss> {
        let key = Key::ChannelState {
            incarnation: self.meta.incarnation,
        };
        let row = rows.row(&key)?;
        let decoded = row.map_or_else(|| Ok(StateRow::default()), |row| StateRow::decode(&row));
        let state = match decoded {
            Ok(state) => state,
            Err(what) => {
                self.lost_state(what, turn);
                return Ok(());
            }
        };
        self.promised = state.promised;
        self.accepted = state.accepted;
        self.accepted_start = state.accepted_start;
        self.withheld = state.withheld;
        self.high_watermark = state.high_watermark;
        self.store.written_high_watermark = state.high_watermark;
        self.log = Log::new(state.log_start, state.log_start, state.epochs);
        let incarnation = self.meta.incarnation;
        self.read(Purpose::LogTail, ReadRequest::LogTail { incarnation }, turn);
        self.read(Purpose::Cursors, ReadRequest::Cursors { incarnation }, turn);
        Ok(())
    }

    /// The state row cannot be read: what was promised is unknown, so nothing older than a new grant is obeyed (R30).
    fn lost_state(&mut self, what: &str, turn: &mut Turn<'_>) {
        self.promised = self.meta.leader_epoch;
        self.role = Role::Follower;
        self.damaged(Seq(1), what, turn);
        turn.push(Output::Ready);
    }

    pub(super) fn loaded_cursors(&mut self, page: Page, turn: &mut Turn<'_>) {
        match page {
            Page::Cursors(rows) => {
                for (consumer, value) in rows {
                    self.cursors.load(consumer, value);
                }
            }
            // A cursor that is lost only delivers again (M-6).
            _ => turn.push(Output::Alarm {
                what: "cursor rows cannot be read",
            }),
        }
        if let Role::Loading(loading) = &mut self.role {
            loading.cursors_read = true;
        }
        self.maybe_ready(turn);
    }

    pub(super) fn loaded_tail(&mut self, page: Page, turn: &mut Turn<'_>) {
        let last = match page {
            Page::Records(records) => records.into_iter().next_back(),
            Page::Corrupt { what, first } => {
                let from = first.unwrap_or_else(|| self.high_watermark.next());
                self.withdraw_while_loading(from, &what, turn);
                return;
            }
            _ => None,
        };
        let start = self.log.start();
        let end = last.as_ref().map_or(start, |record| record.seq.next().max(start));
        let epochs = std::mem::take(&mut self.log.epochs);
        self.log = Log::new(start, end, epochs);
        if self.high_watermark >= end {
            self.withdraw_while_loading(end, "committed records are missing", turn);
            return;
        }
        let behind = Seq(end.0.saturating_sub(self.limits.channel_tail_records as u64));
        let from = behind.min(self.high_watermark.next()).max(start);
        self.load_records(from, turn);
    }

    fn load_records(&mut self, from: Seq, turn: &mut Turn<'_>) {
        let through = self.log.end().previous();
        if from > through {
            if let Role::Loading(loading) = &mut self.role {
                let records = std::mem::take(&mut loading.records);
                loading.tail_read = true;
                self.log.load(records);
            }
            self.maybe_ready(turn);
            return;
        }
        let request = ReadRequest::Records {
            incarnation: self.meta.incarnation,
            from,
            through,
            records_max: PAGE_RECORDS,
            bytes_max: PAGE_BYTES,
        };
        self.read(Purpose::Load { from }, request, turn);
    }

    pub(super) fn loaded_records(&mut self, from: Seq, page: Page, turn: &mut Turn<'_>) {
        let records = match page {
            Page::Records(records) => records,
            Page::Corrupt { what, first } => {
                self.withdraw_while_loading(first.unwrap_or(from), &what, turn);
                return;
            }
            _ => Vec::new(),
        };
        let mut next = from;
        for record in &records {
            let fits = record.seq == next && record.leader_epoch == self.log.epochs.epoch_at(next);
            if !fits || !record.is_intact() {
                break;
            }
            next = next.next();
        }
        if next == from || next.0 - from.0 != records.len() as u64 {
            self.withdraw_while_loading(next, "a record is damaged or missing", turn);
            return;
        }
        if let Role::Loading(loading) = &mut self.role {
            loading.records.extend(records);
        }
        self.load_records(next, turn);
    }

    fn withdraw_while_loading(&mut self, from: Seq, what: &str, turn: &mut Turn<'_>) {
        if let Role::Loading(loading) = &mut self.role {
            let records = std::mem::take(&mut loading.records);
            loading.tail_read = true;
            let before_damage = records.last().is_some_and(|last| last.seq.next() == from);
            if from > self.log.end() {
                self.log = Log::new(self.log.start(), from, self.log.epochs.clone());
            }
            self.damaged(from, what, turn);
            if before_damage {
                self.log.load(records);
            }
        }
        self.maybe_ready(turn);
    }

    /// Everything is read: the metadata say what to do (CH-10).
    fn maybe_ready(&mut self, turn: &mut Turn<'_>) {
        let held = match &mut self.role {
            Role::Loading(loading) if loading.cursors_read && loading.tail_read => {
                std::mem::take(&mut loading.held)
            }
            _ => return,
        };
        self.role = Role::Follower;
        self.store.durable = super::store::Mark {
            promised: self.promised,
            accepted: self.accepted,
            log_end: self.log.end(),
            cursors: self.cursors.mark(),
        };
        self.settle_log(self.high_watermark);
        turn.push(Output::Ready);
        self.trim(turn);
        self.take_role(turn);
        for (from, message) in held {
            self.on_peer(from, message, turn);
        }
    }
}
