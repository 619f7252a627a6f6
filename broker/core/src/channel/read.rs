//! Reads of the log: for clients up to the high watermark, and for replicas that lag behind the memory.

use super::{Body, Output, ReadReply, Replica, Role, Turn};
use crate::message::Record;
use crate::rows::{Page, ReadRequest};
use crate::types::{LeaderEpoch, NodeId, Seq, Token};

/// What a scan is for.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    /// Activation: the last record.
    LogTail,
    /// Activation: the consumers' positions.
    Cursors,
    /// Activation: records that are kept in memory.
    Load { from: Seq },
    /// A client's read.
    Client { token: Token, from: Seq, through: Seq },
    /// Records for a follower.
    Replicate {
        to: NodeId,
        from: Seq,
        epoch: LeaderEpoch,
    },
    /// Records for a leader-elect.
    Fetch {
        to: NodeId,
        from: Seq,
        epoch: LeaderEpoch,
    },
    /// Idempotency rows for a replica that begins anew.
    Dedupe(super::dedupe::Scan),
}

/// A client's read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) token: Token,
    pub(super) from: Seq,
    pub(super) records_max: u32,
    pub(super) bytes_max: u32,
}

impl Replica {
    pub(super) fn read(&mut self, purpose: Purpose, request: ReadRequest, turn: &mut Turn<'_>) {
        let token = self.store.token();
        self.reads.insert(token, purpose);
        turn.push(Output::Read { token, request });
    }

    /// A scan is done. One of another activation is not known here and dropped (CH-13).
    pub(super) fn on_read_done(&mut self, token: Token, page: Page, turn: &mut Turn<'_>) {
        let Some(purpose) = self.reads.remove(&token) else {
            return;
        };
        match purpose {
            Purpose::LogTail => self.loaded_tail(page, turn),
            Purpose::Cursors => self.loaded_cursors(page, turn),
            Purpose::Load { from } => self.loaded_records(from, page, turn),
            Purpose::Client { token, from, through } => {
                self.client_records(token, from, through, page, turn);
            }
            Purpose::Replicate { to, from, epoch } => {
                let records = self.checked(from, page, turn);
                self.replicate_from_disk(to, from, epoch, records, turn);
            }
            Purpose::Fetch { to, from, epoch } => {
                if let Some(records) = self.checked(from, page, turn)
                    && self.promised == epoch
                {
                    self.send(to, epoch, Body::Fetched { from, records }, turn);
                }
            }
            Purpose::Dedupe(scan) => self.dedupe_scanned(scan, page, turn),
        }
    }

    /// The page's records if they are whole and contiguous from `from`; otherwise this replica withdraws (R30). Records that
    /// were cut or trimmed since the scan began are no damage.
    fn checked(&mut self, from: Seq, page: Page, turn: &mut Turn<'_>) -> Option<Vec<Record>> {
        let (from, what) = match page {
            Page::Records(records) => {
                let mut next = from;
                for record in &records {
                    if record.seq != next || !record.is_intact() {
                        break;
                    }
                    next = next.next();
                }
                let whole = next.0 - from.0 == records.len() as u64 && !records.is_empty();
                if whole || from < self.log.start() || next >= self.log.end() {
                    return whole.then_some(records);
                }
                (from, "a record is damaged or missing".to_owned())
            }
            Page::Corrupt { what, first } => (first.unwrap_or(from), what),
            _ => return None,
        };
        if from < self.log.end() {
            self.damaged(from, &what, turn);
        }
        None
    }

    /// Never beyond the high watermark (CH-3).
    pub(super) fn on_read(&mut self, asked: Asked, turn: &mut Turn<'_>) {
        let from = asked.from.max(self.log.start());
        let through = if self.faults.reads_beyond_watermark() {
            self.log.end().previous()
        } else {
            self.high_watermark
        };
        if matches!(self.role, Role::Loading(_)) {
            self.reply(asked.token, Vec::new(), true, turn);
            return;
        }
        if from > through || asked.records_max == 0 {
            self.reply(asked.token, Vec::new(), false, turn);
            return;
        }
        let bytes_max = asked.bytes_max as usize;
        match self
            .log
            .slice(from, through, asked.records_max as usize, bytes_max)
        {
            Some(records) => self.reply(asked.token, records, false, turn),
            None => {
                let request = ReadRequest::Records {
                    incarnation: self.meta.incarnation,
                    from,
                    through,
                    records_max: asked.records_max,
                    bytes_max: asked.bytes_max,
                };
                let token = asked.token;
                self.read(Purpose::Client { token, from, through }, request, turn);
            }
        }
    }

    fn client_records(&mut self, token: Token, from: Seq, through: Seq, page: Page, turn: &mut Turn<'_>) {
        match self.checked(from, page, turn) {
            Some(mut records) => {
                records.retain(|record| record.seq <= through);
                self.reply(token, records, false, turn);
            }
            None => {
                // Trimmed while it was read: not a failure, the log start tells.
                let failed = from >= self.log.start();
                self.reply(token, Vec::new(), failed, turn);
            }
        }
    }

    fn reply(&self, token: Token, records: Vec<Record>, failed: bool, turn: &mut Turn<'_>) {
        turn.push(Output::ReadReply {
            token,
            reply: ReadReply {
                records,
                log_start: self.log.start(),
                high_watermark: self.high_watermark,
                failed,
            },
        });
    }

    /// A leader-elect copies this log, which cannot change as long as nothing newer is promised.
    pub(super) fn on_fetch(&mut self, to: NodeId, epoch: LeaderEpoch, from: Seq, turn: &mut Turn<'_>) {
        if self.promised != epoch || self.withholds() {
            self.refuse(to, epoch, turn);
            return;
        }
        if from < self.log.start() || from >= self.log.end() {
            let records = Vec::new();
            self.send(to, epoch, Body::Fetched { from, records }, turn);
            return;
        }
        let through = self.log.end().previous();
        let bytes_max = self.limits.replicate_bytes;
        if let Some(records) = self.log.slice(from, through, usize::MAX, bytes_max) {
            self.send(to, epoch, Body::Fetched { from, records }, turn);
        } else {
            let request = self.records_request(from, through, bytes_max);
            self.read(Purpose::Fetch { to, from, epoch }, request, turn);
        }
    }

    pub(super) fn records_request(&self, from: Seq, through: Seq, bytes_max: usize) -> ReadRequest {
        ReadRequest::Records {
            incarnation: self.meta.incarnation,
            from,
            through,
            records_max: 1_024,
            bytes_max: u32::try_from(bytes_max).unwrap_or(u32::MAX),
        }
    }
}
