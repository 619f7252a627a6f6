//! What is written and not durable yet: batches, and what may be done when each is durable.

use super::{Message, Output, Replica, StateRow, Turn};
use crate::message::{DedupeRow, Record};
use crate::rows::{Key, Write};
use crate::types::{LeaderEpoch, NodeId, Seq, Token};
use std::collections::{BTreeSet, VecDeque};

/// What stands on disk for sure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) promised: LeaderEpoch,
    pub(super) accepted: LeaderEpoch,
    pub(super) log_end: Seq,
    /// Cursors up to this mark.
    pub(super) cursors: u64,
}

/// What is done when everything written so far is durable.
#[derive(Clone, Debug)]
pub(super) enum After {
    /// Send an answer that claims something durable.
    Send { to: NodeId, message: Message },
    /// The own promise of the epoch that this replica recovers.
    SelfPromised(LeaderEpoch),
    /// The epoch is open: leadership begins.
    Opened(LeaderEpoch),
}

struct Pending {
    token: Token,
    mark: Mark,
    after: Vec<After>,
}

/// The batch of the present input, and the batches under way.
pub(super) struct StoreQueue {
    writes: Vec<Write>,
    /// The state row has to be written with the batch.
    state: bool,
    /// Cursor rows have to be written with the batch.
    cursors: bool,
    after: Vec<After>,
    pending: VecDeque<Pending>,
    pub(super) durable: Mark,
    /// High watermark in the last state row that was written.
    pub(super) written_high_watermark: Seq,
    activation: u32,
    issued: u32,
}

impl StoreQueue {
    pub(super) fn new(activation: u32) -> StoreQueue {
        StoreQueue {
            writes: Vec::new(),
            state: false,
            cursors: false,
            after: Vec::new(),
            pending: VecDeque::new(),
            durable: Mark::default(),
            written_high_watermark: Seq(0),
            activation,
            issued: 0,
        }
    }

    /// A token that no earlier activation used (CH-13).
    pub(super) fn token(&mut self) -> Token {
        self.issued += 1;
        Token(u64::from(self.activation) << 32 | u64::from(self.issued))
    }

    pub(super) fn write(&mut self, write: Write) {
        self.writes.push(write);
    }

    /// The state row changed and is written with this batch.
    pub(super) fn touch(&mut self) {
        self.state = true;
    }

    /// Cursors that are not written are written with this batch.
    pub(super) fn write_cursors_now(&mut self) {
        self.cursors = true;
    }

    pub(super) fn after(&mut self, after: After) {
        self.after.push(after);
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.writes.is_empty() && !self.state && self.after.is_empty()
    }
}

impl Replica {
    fn mark(&self) -> Mark {
        Mark {
            promised: self.promised,
            accepted: self.accepted,
            log_end: self.log.end(),
            cursors: self.cursors.mark(),
        }
    }

    pub(super) fn state_row(&self) -> StateRow {
        let forgets = self.faults.promise_not_durable();
        StateRow {
            promised: if forgets { self.accepted } else { self.promised },
            accepted: self.accepted,
            accepted_start: self.accepted_start,
            withheld: self.withheld,
            high_watermark: self.high_watermark,
            log_start: self.log.start(),
            epochs: self.log.epochs.clone(),
        }
    }

    /// Ends the batch of this input: emits its Store, and does at once what waits for nothing.
    pub(super) fn finish(&mut self, turn: &mut Turn<'_>) {
        self.store.cursors &= !self.cursors.is_written();
        let has_batch = |store: &StoreQueue| !store.writes.is_empty() || store.state || store.cursors;
        while has_batch(&self.store) || !self.store.after.is_empty() {
            let after = std::mem::take(&mut self.store.after);
            if has_batch(&self.store) {
                self.emit_store(after, turn);
            } else if let Some(last) = self.store.pending.back_mut() {
                last.after.extend(after);
            } else {
                for action in after {
                    self.act(action, turn);
                }
            }
        }
    }

    fn emit_store(&mut self, after: Vec<After>, turn: &mut Turn<'_>) {
        let mut writes = std::mem::take(&mut self.store.writes);
        if self.store.state || self.high_watermark != self.store.written_high_watermark {
            writes.push(Write::Put {
                key: Key::ChannelState {
                    incarnation: self.meta.incarnation,
                },
                value: self.state_row().encode(),
            });
            self.store.written_high_watermark = self.high_watermark;
        }
        self.write_cursors(&mut writes);
        self.store.state = false;
        self.store.cursors = false;
        let token = self.store.token();
        let mark = self.mark();
        self.store.pending.push_back(Pending { token, mark, after });
        turn.push(Output::Store { token, writes });
    }

    /// Everything up to this token is durable. Tokens of another activation name nothing here.
    pub(super) fn on_stored(&mut self, token: Token, turn: &mut Turn<'_>) {
        while self
            .store
            .pending
            .front()
            .is_some_and(|first| first.token <= token)
        {
            let Some(done) = self.store.pending.pop_front() else {
                return;
            };
            self.store.durable = done.mark;
            for action in done.after {
                self.act(action, turn);
            }
        }
        self.settle_fixes(turn);
        self.advance(turn);
    }

    fn act(&mut self, action: After, turn: &mut Turn<'_>) {
        match action {
            After::Send { to, message } => turn.push(Output::Send { to, message }),
            After::SelfPromised(epoch) => self.self_promised(epoch, turn),
            After::Opened(epoch) => self.begin_leading(epoch, turn),
        }
    }

    /// Where the record's idempotency row is kept, if it has one (M-11).
    fn dedupe_key(&self, record: &Record) -> Option<Key> {
        record.key.map(|key| Key::Dedupe {
            day: DedupeRow::day(record.stamp_ms),
            incarnation: self.meta.incarnation,
            hash: key.hash,
        })
    }

    /// Writes records that were pushed to the log, with their idempotency rows (R20).
    pub(super) fn write_records(&mut self, records: Vec<Record>) {
        for record in &records {
            if let (Some(key), Some(row)) = (self.dedupe_key(record), DedupeRow::of(record)) {
                let value = row.encode();
                self.store.write(Write::Put { key, value });
            }
        }
        if self.log.take_began_run() {
            self.store.touch();
        }
        if !records.is_empty() {
            self.store.write(Write::AppendRecords {
                incarnation: self.meta.incarnation,
                records,
            });
        }
    }

    /// Cuts the log and removes the idempotency rows of what is cut (R20).
    pub(super) fn truncate(&mut self, from: Seq) {
        self.truncate_but(from, &BTreeSet::new());
    }

    /// The same, but the rows `(day, hash)` in `kept` stay.
    pub(super) fn truncate_but(&mut self, from: Seq, kept: &BTreeSet<(u16, u64)>) {
        if from >= self.log.end() {
            return;
        }
        let removed = self.log.truncate(from);
        self.store.write(Write::TruncateRecords {
            incarnation: self.meta.incarnation,
            from,
        });
        for record in &removed {
            let place = record.key.map(|key| (DedupeRow::day(record.stamp_ms), key.hash));
            if let Some(key) = self.dedupe_key(record)
                && place.is_none_or(|place| !kept.contains(&place))
            {
                self.store.write(Write::Delete { key });
            }
        }
        self.store.touch();
    }
}
