//! What a leader does: write, send, count, be put away and come back.

use crate::log::{CAPACITY, Record};
use crate::message::{APPEND_MAX, Append, Body, Message, Progress};
use crate::mutant::Mutant;
use crate::replica::{Leading, Replica, Role};
use crate::types::NODES;

/// Most records that wait for their commit.
const UNCOMMITTED_MAX: usize = 6;

/// What a leader claims to be committed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Commit {
    pub(crate) epoch: u16,
    pub(crate) high_watermark: usize,
    /// The epoch start is committed under both sets.
    pub(crate) clears: bool,
}

impl Replica {
    /// Writes one record, not synced yet (M-3). Says whether it did.
    pub(crate) fn append(&mut self, value: u16) -> bool {
        let Role::Leading(leading) = &self.role else {
            return false;
        };
        let end = self.log.end();
        if end == CAPACITY
            || end >= self.high_watermark + UNCOMMITTED_MAX && end >= leading.start + UNCOMMITTED_MAX
        {
            return false;
        }
        self.log.push(Record {
            epoch: leading.epoch,
            value,
        });
        true
    }

    /// Sends a few records to this follower, from a little before where it seems to stand.
    pub(crate) fn send(&self, to: usize, back: usize, out: &mut Vec<Message>) {
        let Role::Leading(leading) = &self.role else {
            return;
        };
        if to == self.id || !self.metadata.members().contains(to) {
            return;
        }
        let disk_boot = self.metadata.disk_boots[to];
        let at = leading.next[to].min(self.log.end()).saturating_sub(back);
        let body = if at < self.log.start() {
            Body::Snapshot {
                disk_boot,
                epoch_start: leading.start,
                start: self.log.start(),
                base_epoch: self.log.epoch_before(self.log.start()),
                high_watermark: self.high_watermark,
            }
        } else {
            let mut records = [Record::default(); APPEND_MAX];
            let mut count = 0;
            while count < APPEND_MAX
                && let Some(record) = self.log.record(at + count)
            {
                records[count] = record;
                count += 1;
            }
            Body::Append(Append {
                disk_boot,
                epoch_start: leading.start,
                at,
                previous_epoch: self.log.epoch_before(at),
                records,
                count,
                high_watermark: self.high_watermark,
            })
        };
        out.push(Message::Peer {
            from: self.id,
            to,
            epoch: leading.epoch,
            body,
        });
    }

    /// A follower's message counts only when its durable accepted epoch is this one; then its match is its log end (M-1).
    pub(crate) fn on_progress(&mut self, from: usize, epoch: u16, progress: &Progress) {
        let mutant = self.mutant;
        let log = self.log;
        let disk_named = self.metadata.disk_boots[from] == progress.disk_boot;
        let Role::Leading(leading) = &mut self.role else {
            return;
        };
        if epoch != leading.epoch && mutant != Mutant::StaleReplyCounts || !disk_named {
            return;
        }
        let end = progress.end.min(log.end());
        let agrees = progress.end <= log.end()
            && progress.end >= log.start()
            && log.epoch_before(progress.end) == progress.last_epoch;
        let proved = match mutant {
            Mutant::AgreementCounts => agrees,
            Mutant::LogEndCounts => true,
            Mutant::WatermarkBeforeEpochStart => progress.accepted == epoch || agrees && end < leading.start,
            _ => progress.accepted == epoch,
        };
        if proved {
            leading.matched[from] = leading.matched[from].max(end);
            leading.next[from] = end;
        } else {
            leading.next[from] = progress.retry_at.unwrap_or(end).min(end);
        }
    }

    /// Moves the high watermark to what the quorums hold (CH-2), when that is something new.
    pub(crate) fn advance(&mut self) -> Option<Commit> {
        let leading = *self.leading()?;
        let assumed = if self.mutant == Mutant::AssumesEpochStart {
            leading.start
        } else {
            0
        };
        let held = self.held(&leading).max(assumed);
        let before_start = held < leading.start && self.mutant != Mutant::WatermarkBeforeEpochStart;
        let clears = self.metadata.previous.is_some()
            && (held >= leading.start || self.mutant == Mutant::ClearTooEarly);
        if !clears && (before_start || held <= self.high_watermark) {
            return None;
        }
        if !before_start {
            self.high_watermark = self.high_watermark.max(held);
        }
        Some(Commit {
            epoch: leading.epoch,
            high_watermark: if before_start { 0 } else { held },
            clears,
        })
    }

    /// What every quorum holds, by what this leader has counted.
    fn held(&self, leading: &Leading) -> usize {
        let mut ends = leading.matched;
        ends[self.id] = if self.mutant == Mutant::OwnMatchBeforeSync {
            self.log.end()
        } else {
            self.synced_end.min(self.log.end())
        };
        self.metadata
            .quorums()
            .map(|quorum| quorum.held(&ends))
            .min()
            .unwrap_or(0)
            .min(self.log.end())
    }

    /// An idle leader is put away when nothing is in flight and nobody lags; an evicted one comes back within the same
    /// process, in the same epoch, and learns anew where the others are (CH-10). Says whether it came back.
    pub(crate) fn evict_or_resume(&mut self) -> bool {
        match self.role.clone() {
            Role::Leading(leading) => {
                let end = self.log.end();
                let idle = self.synced_end == end
                    && self.high_watermark == end
                    && self.metadata.previous.is_none()
                    && self
                        .metadata
                        .members()
                        .iter()
                        .all(|node| node == self.id || leading.matched[node] == end);
                if idle {
                    self.role = Role::Evicted { epoch: leading.epoch };
                }
                false
            }
            Role::Evicted { epoch } => {
                let fenced = self.promised > epoch || self.accepted != epoch || self.metadata.epoch > epoch;
                if fenced && self.mutant != Mutant::ResumeAfterPromise {
                    self.role = Role::Follower;
                    return false;
                }
                let next = [self.log.end(); NODES];
                self.role = Role::Leading(Leading {
                    epoch,
                    start: self.accepted_start,
                    matched: [0; NODES],
                    next,
                });
                self.coverage.resumptions += 1;
                true
            }
            Role::Follower | Role::Recovering { .. } => false,
        }
    }
}
