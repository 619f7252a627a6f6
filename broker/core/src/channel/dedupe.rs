//! A log that begins anew: below its start the records are gone, but their idempotency rows live on (AP-2, CH-14). They are fetched
//! page by page first; each is a fact about a committed record, so that it may be stored at once.

use super::read::Purpose;
use super::{Body, EpochTable, Output, Replica, Reset, Role, Turn};
use crate::message::DedupeRow;
use crate::rows::{Key, Page, ReadRequest, Write};
use crate::types::{LeaderEpoch, NodeId, Seq};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::time::Duration;

/// Rows of one page.
const PAGE_ROWS: u32 = 512;
const DAY_S: u64 = 86_400;

/// The rows of a page `(day, hash, value)`, and where the next begins.
pub(super) type Rows = (Vec<(u16, u64, Bytes)>, Option<(u16, u64)>);

/// A log that is about to begin anew.
#[derive(Clone, Debug)]
pub(super) struct Anew {
    pub(super) epoch: LeaderEpoch,
    pub(super) source: NodeId,
    pub(super) log_start: Seq,
    pub(super) epochs: EpochTable,
    /// A follower's: where the epoch begins, and what is committed. A leader-elect goes on copying instead.
    pub(super) follows: Option<(Seq, Seq)>,
    pub(super) after: Option<(u16, u64)>,
    /// Rows that came and that own records have as well: they stay when those records go.
    pub(super) kept: BTreeSet<(u16, u64)>,
    pub(super) retry_at: Duration,
    pub(super) failures: u32,
}

/// A page that is being read for another replica.
#[derive(Clone, Debug)]
pub(super) struct Scan {
    to: NodeId,
    epoch: LeaderEpoch,
    asked: Option<(u16, u64)>,
    below: Seq,
    day: u16,
    last_day: u16,
}

impl Replica {
    /// The leader's log begins later than what this follower has (CH-14).
    pub(super) fn on_reset(&mut self, from: NodeId, epoch: LeaderEpoch, reset: Reset, turn: &mut Turn<'_>) {
        if reset.log_start.0 == 0 || !self.obeys(from, epoch, reset.disk, turn) {
            return;
        }
        self.merge_cursors(&reset.cursors, turn);
        self.following.retry_at = None;
        let meets = self.log.end() >= reset.log_start
            && (self.log.start() >= reset.log_start
                || self.log.epochs.epoch_before(reset.log_start)
                    == reset.epochs.epoch_before(reset.log_start));
        if meets {
            self.following.anew = None;
            self.report(from, epoch, 0, true);
            return;
        }
        let running = self
            .following
            .anew
            .as_ref()
            .is_some_and(|anew| anew.epoch == epoch && anew.log_start == reset.log_start);
        if !running {
            let anew = Anew {
                epoch,
                source: from,
                log_start: reset.log_start,
                epochs: reset.epochs,
                follows: Some((reset.epoch_start, reset.high_watermark)),
                after: None,
                kept: BTreeSet::new(),
                retry_at: turn.now.after(self.limits.channel_retry),
                failures: 0,
            };
            self.begin_anew(anew, turn);
        }
    }

    /// The answer has not come: ask again.
    pub(super) fn retry_anew(&mut self, turn: &mut Turn<'_>) {
        self.ask_dedupe(turn);
    }

    pub(super) fn begin_anew(&mut self, anew: Anew, turn: &mut Turn<'_>) {
        self.following.anew = Some(anew);
        self.ask_dedupe(turn);
    }

    fn ask_dedupe(&mut self, turn: &mut Turn<'_>) {
        let Some(anew) = &self.following.anew else { return };
        let body = Body::FetchDedupe {
            after: anew.after,
            below: anew.log_start,
        };
        self.send(anew.source, anew.epoch, body, turn);
    }

    /// Asks again; after several failures the leader will have to offer anew.
    pub(super) fn expire_anew(&mut self, turn: &mut Turn<'_>) {
        let retry = self.limits.channel_retry;
        let Some(anew) = self.following.anew.as_mut() else {
            return;
        };
        if anew.retry_at > turn.now.monotonic {
            return;
        }
        anew.failures += 1;
        anew.retry_at = turn.now.after(retry);
        if anew.failures > 4 {
            self.following.anew = None;
            self.following.retry_at = Some(turn.now.after(retry));
        } else {
            self.ask_dedupe(turn);
        }
    }

    /// A replica wants the rows of what is removed here.
    pub(super) fn on_fetch_dedupe(
        &mut self,
        to: NodeId,
        epoch: LeaderEpoch,
        (asked, below): (Option<(u16, u64)>, Seq),
        turn: &mut Turn<'_>,
    ) {
        if self.promised != epoch || self.withholds() {
            self.refuse(to, epoch, turn);
            return;
        }
        let today = DedupeRow::day(turn.now.wall_ms);
        let newest = self.log.last_stamp_ms().map_or(today, DedupeRow::day);
        let kept_days = u16::try_from(self.limits.dedupe_window.as_secs() / DAY_S + 1).unwrap_or(u16::MAX);
        let first_day = today.min(newest).saturating_sub(kept_days);
        let day = match asked {
            Some((day, u64::MAX)) => day.saturating_add(1),
            Some((day, _)) => day,
            None => first_day,
        };
        let scan = Scan {
            to,
            epoch,
            asked,
            below,
            day,
            last_day: today.max(newest),
        };
        let after = asked
            .filter(|(asked_day, _)| *asked_day == day)
            .map(|(_, hash)| hash);
        self.scan_dedupe(scan, after, turn);
    }

    fn scan_dedupe(&mut self, scan: Scan, after: Option<u64>, turn: &mut Turn<'_>) {
        if scan.day > scan.last_day {
            self.answer_dedupe(&scan, Vec::new(), None, turn);
            return;
        }
        let request = ReadRequest::Dedupe {
            incarnation: self.meta.incarnation,
            day: scan.day,
            after,
            rows_max: PAGE_ROWS,
        };
        self.read(Purpose::Dedupe(scan), request, turn);
    }

    pub(super) fn dedupe_scanned(&mut self, mut scan: Scan, page: Page, turn: &mut Turn<'_>) {
        let Page::Dedupe { rows, more } = page else { return };
        if self.promised != scan.epoch {
            return;
        }
        let last = rows.last().map(|(hash, _)| *hash);
        let resume = last.filter(|_| more);
        // Rows of records that are still held travel with the records; only those below the start are certain.
        let facts: Vec<(u16, u64, Bytes)> = rows
            .into_iter()
            .filter(|(_, value)| DedupeRow::decode(value).is_some_and(|row| row.seq < scan.below))
            .map(|(hash, value)| (scan.day, hash, value))
            .collect();
        if !facts.is_empty() {
            let next = (scan.day, resume.unwrap_or(u64::MAX));
            self.answer_dedupe(&scan, facts, Some(next), turn);
        } else if resume.is_some() {
            self.scan_dedupe(scan, resume, turn);
        } else if scan.day < scan.last_day {
            scan.day += 1;
            self.scan_dedupe(scan, None, turn);
        } else {
            self.answer_dedupe(&scan, facts, None, turn);
        }
    }

    fn answer_dedupe(
        &self,
        scan: &Scan,
        rows: Vec<(u16, u64, Bytes)>,
        next: Option<(u16, u64)>,
        turn: &mut Turn<'_>,
    ) {
        let after = scan.asked;
        self.send(
            scan.to,
            scan.epoch,
            Body::FetchedDedupe {
                after,
                below: scan.below,
                rows,
                next,
            },
            turn,
        );
    }

    pub(super) fn on_fetched_dedupe(
        &mut self,
        from: NodeId,
        epoch: LeaderEpoch,
        (after, below): (Option<(u16, u64)>, Seq),
        (rows, next): Rows,
        turn: &mut Turn<'_>,
    ) {
        let retry_at = turn.now.after(self.limits.channel_retry);
        let promised = self.promised;
        // The answer repeats what was asked, and is ignored when that has moved on (R4).
        let asked = |anew: &&mut Anew| {
            let same = anew.source == from && anew.epoch == epoch && anew.log_start == below;
            same && anew.after == after && promised == epoch
        };
        let Some(anew) = self.following.anew.as_mut().filter(asked) else {
            return;
        };
        anew.failures = 0;
        anew.retry_at = retry_at;
        if next.is_some() {
            anew.after = next;
        }
        for (day, hash, value) in rows {
            if DedupeRow::decode(&value).is_some() {
                if self.log.has_key(hash) {
                    anew.kept.insert((day, hash));
                }
                let incarnation = self.meta.incarnation;
                let key = Key::Dedupe {
                    day,
                    incarnation,
                    hash,
                };
                self.store.write(Write::Put { key, value });
            }
        }
        if next.is_some() {
            self.ask_dedupe(turn);
        } else if let Some(anew) = self.following.anew.take() {
            self.apply_anew(anew, turn);
        }
    }

    /// The log begins anew: what is before its start is committed and gone.
    fn apply_anew(&mut self, anew: Anew, turn: &mut Turn<'_>) {
        // The rows of own records that were never committed go; those that the source named are facts.
        let uncommitted = self.high_watermark.next().max(self.log.start());
        self.truncate_but(uncommitted, &anew.kept);
        self.store.write(Write::TruncateRecords {
            incarnation: self.meta.incarnation,
            from: Seq(1),
        });
        self.log.reset(anew.log_start, anew.epochs);
        self.high_watermark = self.high_watermark.max(anew.log_start.previous());
        if self.high_watermark >= self.log.end() {
            self.high_watermark = self.log.end().previous();
        }
        self.store.touch();
        let Some((epoch_start, watermark)) = anew.follows else {
            if matches!(self.role, Role::Recovering(_)) {
                self.continue_copy(turn);
            }
            return;
        };
        if watermark < anew.log_start.previous() {
            turn.push(Output::Alarm {
                what: "a log begins above its high watermark",
            });
        }
        self.accept(anew.epoch, epoch_start, anew.log_start, turn);
        self.heard(anew.epoch, turn);
        self.report(anew.source, anew.epoch, 0, true);
    }
}
