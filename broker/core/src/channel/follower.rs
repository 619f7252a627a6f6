//! How a replica answers as a voter and follows a leader.

use super::dedupe::Anew;
use super::store::After;
use super::{Body, Evidence, Output, Progress, Refusal, Replica, Replicate, Role, Turn};
use crate::message::Record;
use crate::types::{DiskBoot, LeaderEpoch, NodeId, Seq};
use std::time::Duration;

/// Longest pause between two tries, in retry intervals.
pub(super) const BACKOFF_MAX: u32 = 16;

/// What a follower still waits for.
#[derive(Default)]
pub(super) struct Following {
    /// When to ask the leader again (CH-12).
    pub(super) retry_at: Option<Duration>,
    pub(super) failures: u32,
    /// The log begins anew: idempotency rows are on their way.
    pub(super) anew: Option<Anew>,
}

impl Following {
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        [self.retry_at, self.anew.as_ref().map(|anew| anew.retry_at)]
            .into_iter()
            .flatten()
            .min()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.next_deadline().is_none()
    }

    /// What belongs to an older epoch ends.
    pub(super) fn promised(&mut self, epoch: LeaderEpoch) {
        self.anew.take_if(|anew| anew.epoch < epoch);
    }
}

/// The pause after so many failures.
pub(super) fn pause(retry: Duration, failures: u32) -> Duration {
    retry * (1 << failures.min(5)).min(BACKOFF_MAX)
}

impl Replica {
    /// A leader-elect asks for a promise (CH-5).
    pub(super) fn on_promise(
        &mut self,
        from: NodeId,
        epoch: LeaderEpoch,
        disk: DiskBoot,
        turn: &mut Turn<'_>,
    ) {
        if epoch < self.promised && !self.faults.no_promise() {
            self.refuse(from, epoch, turn);
            return;
        }
        if disk != self.boots.disk && !self.faults.wiped_voter_votes() {
            self.refuse_for(from, epoch, Refusal::OtherDisk, turn);
            return;
        }
        if self.withholds() || self.leads(epoch) {
            self.refuse_for(from, epoch, Refusal::NoEvidence, turn);
            return;
        }
        self.promise(epoch, turn);
        let evidence = Evidence {
            accepted: self.accepted,
            log_end: self.log.end(),
            log_start: self.log.start(),
            epochs: self.log.epochs.clone(),
            high_watermark: self.high_watermark,
            cursors: self.cursors.since(0),
        };
        let message = self.message(epoch, Body::Promised(evidence));
        if self.faults.promise_not_durable() {
            turn.push(Output::Send { to: from, message });
        } else {
            // What is reported must stay: the answer waits for everything written so far.
            self.store.after(After::Send { to: from, message });
        }
    }

    /// Whether this replica leads or recovers this very epoch.
    fn leads(&self, epoch: LeaderEpoch) -> bool {
        match &self.role {
            Role::Recovering(recovery) => recovery.epoch == epoch,
            Role::Leading(leading) => leading.epoch == epoch,
            Role::Loading(_) | Role::Follower => false,
        }
    }

    /// Whether a leader's message is obeyed: none of an older epoch is (CH-4, R3, Q8). If so, its epoch is promised (M-1).
    pub(super) fn obeys(
        &mut self,
        from: NodeId,
        epoch: LeaderEpoch,
        disk: DiskBoot,
        turn: &mut Turn<'_>,
    ) -> bool {
        let old_is_fine =
            self.faults.old_epoch_appends() || self.faults.no_promise() && epoch >= self.accepted;
        if epoch < self.promised.max(self.accepted) && !old_is_fine {
            self.refuse(from, epoch, turn);
            return false;
        }
        if disk != self.boots.disk {
            self.refuse_for(from, epoch, Refusal::OtherDisk, turn);
            return false;
        }
        if epoch < self.withheld {
            self.refuse_for(from, epoch, Refusal::NoEvidence, turn);
            return false;
        }
        if self.leads(epoch) {
            turn.push(Output::Alarm {
                what: "another replica leads this epoch",
            });
            return false;
        }
        self.promise(epoch, turn);
        true
    }

    /// Asks the leader of the metadata for what is missing, after promising its epoch durably. A follower that was assigned before
    /// the first append keeps asking (CH-12).
    pub(super) fn pull(&mut self, turn: &mut Turn<'_>) {
        let epoch = self.meta.leader_epoch;
        let Some(leader) = self.meta.leader else { return };
        if epoch < self.withheld && self.is_named() {
            self.need_epoch(turn);
            return;
        }
        if leader.node == self.node || epoch < self.promised {
            self.need_meta(turn);
            return;
        }
        if !self.is_named() {
            return;
        }
        if self.accepted == epoch {
            self.following.retry_at = None;
            return;
        }
        self.promise(epoch, turn);
        self.report(leader.node, epoch, 0, true);
        let wait = pause(self.limits.channel_retry, self.following.failures);
        self.following.retry_at = Some(turn.now.after(wait));
        if self.faults.give_up_before_first_append()
            && self.log.end() == Seq(1)
            && self.following.failures > 0
        {
            self.following.retry_at = None;
        }
    }

    /// Nothing can be done with the epoch of the metadata, and nobody else misses a newer one: it has to be asked for until it is
    /// granted (R30).
    fn need_epoch(&mut self, turn: &mut Turn<'_>) {
        let wait = pause(self.limits.channel_retry, self.following.failures);
        self.following.retry_at = Some(turn.now.after(wait));
        turn.push(Output::NeedEpoch { epoch: self.withheld });
    }

    pub(super) fn expire_follower(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.monotonic;
        if self.following.retry_at.is_some_and(|at| at <= now) {
            self.following.retry_at = None;
            self.following.failures += 1;
            if self.following.failures.is_multiple_of(8) {
                self.need_meta(turn);
            }
            self.pull(turn);
        }
        self.expire_anew(turn);
    }

    /// Says where this follower stands, as soon as all of it is durable (M-1).
    pub(super) fn report(&mut self, to: NodeId, epoch: LeaderEpoch, cursor_mark: u64, conflict: bool) {
        let table = conflict || self.accepted != epoch;
        let progress = Progress {
            accepted: self.accepted,
            log_end: self.log.end(),
            log_start: self.log.start(),
            last_epoch: self.log.last_epoch(),
            conflict: table.then(|| self.log.epochs.clone()),
            cursor_mark,
        };
        let message = self.message(epoch, Body::Progress(progress));
        self.store.after(After::Send { to, message });
    }

    /// Records of a leader (CH-6). What is answered is durable before it is answered.
    pub(super) fn on_replicate(
        &mut self,
        from: NodeId,
        epoch: LeaderEpoch,
        replicate: Replicate,
        turn: &mut Turn<'_>,
    ) {
        if !is_sound(epoch, &replicate) {
            turn.push(Output::Alarm {
                what: "records of a leader are damaged",
            });
            return;
        }
        if !self.obeys(from, epoch, replicate.disk, turn) {
            return;
        }
        self.merge_cursors(&replicate.cursors, turn);
        let mark = replicate.cursor_mark;
        let matched_end = Seq(replicate.first.0 + replicate.records.len() as u64);
        let answer = replicate.answer;
        let (epoch_start, watermark) = (replicate.epoch_start, replicate.high_watermark);
        if !self.take_records(replicate, turn) {
            self.report(from, epoch, mark, true);
            return;
        }
        self.accept(epoch, epoch_start, matched_end, turn);
        self.learn_watermark(epoch, watermark.min(matched_end.previous()), turn);
        self.heard(epoch, turn);
        if answer {
            self.report(from, epoch, mark, false);
        }
    }

    /// Whether the records fit; if so, they are in the log now.
    fn take_records(&mut self, replicate: Replicate, turn: &mut Turn<'_>) -> bool {
        let start = self.log.start();
        let below = start.0.saturating_sub(replicate.first.0);
        let skipped = usize::try_from(below)
            .unwrap_or(usize::MAX)
            .min(replicate.records.len());
        let at = Seq(replicate.first.0 + skipped as u64);
        let follows = skipped > 0 || self.log.epochs.epoch_before(at) == replicate.previous_epoch;
        if at < start || at > self.log.end() || !follows {
            return false;
        }
        let new: Vec<Record> = replicate
            .records
            .into_iter()
            .skip(skipped)
            .skip_while(|record| {
                record.seq < self.log.end() && self.log.epochs.epoch_at(record.seq) == record.leader_epoch
            })
            .collect();
        if let Some(first) = new.first() {
            // Only a real conflict cuts, and what is committed has none.
            if first.seq <= self.high_watermark && first.seq < self.log.end() && !self.may_cut_committed() {
                turn.push(Output::Alarm {
                    what: "a leader contradicts a committed record",
                });
                return false;
            }
            self.truncate(first.seq);
        }
        for record in &new {
            self.log.push(record.clone());
        }
        self.write_records(new);
        true
    }

    /// With a planted fault the log may be cut where a sound replica refuses: what follows is for the checkers outside to see.
    pub(super) fn may_cut_committed(&self) -> bool {
        cfg!(feature = "mutants") && self.faults != super::Faults::default()
    }

    /// The log agrees with the leader's before `matched_end`: at the epoch start the epoch is accepted, and what other epochs wrote
    /// beyond goes (CH-6).
    pub(super) fn accept(
        &mut self,
        epoch: LeaderEpoch,
        epoch_start: Seq,
        matched_end: Seq,
        turn: &mut Turn<'_>,
    ) {
        if matched_end < epoch_start || self.accepted >= epoch {
            return;
        }
        let from = epoch_start.max(self.log.start());
        let foreign = self.log.epochs.first_foreign(epoch, from, self.log.end());
        if let Some(foreign) = foreign
            && !self.faults.keep_divergent_tail()
        {
            if foreign <= self.high_watermark && !self.may_cut_committed() {
                turn.push(Output::Alarm {
                    what: "an epoch begins below the high watermark",
                });
                return;
            }
            self.truncate(foreign);
        }
        self.accepted = epoch;
        self.accepted_start = epoch_start;
        if self.log.end() == epoch_start {
            self.log.epochs.open(epoch, epoch_start);
        }
        self.store.touch();
    }

    /// The leader's high watermark, as far as the log agrees. Followers of the accepted epoch may serve up to it.
    pub(super) fn learn_watermark(&mut self, epoch: LeaderEpoch, through: Seq, turn: &mut Turn<'_>) {
        let through = through.min(self.log.end().previous());
        if self.accepted == epoch && through > self.high_watermark {
            self.high_watermark = through;
            self.flush_later(turn);
            self.trim(turn);
        }
        self.settle_log(through);
    }

    /// The leader of this epoch is there.
    pub(super) fn heard(&mut self, epoch: LeaderEpoch, turn: &Turn<'_>) {
        self.following.failures = 0;
        let wait = pause(self.limits.channel_retry, 1);
        self.following.retry_at = (self.accepted != epoch).then(|| turn.now.after(wait));
    }
}

/// Whether the records are whole, contiguous, and of epochs that can be.
fn is_sound(epoch: LeaderEpoch, replicate: &Replicate) -> bool {
    let mut seq = replicate.first;
    let mut newest = replicate.previous_epoch;
    if seq.0 == 0 || replicate.first.0 > u64::MAX / 2 {
        return false;
    }
    replicate.records.iter().all(|record| {
        let sound = record.seq == seq
            && record.leader_epoch >= newest
            && record.leader_epoch.0 > 0
            && record.leader_epoch <= epoch
            && record.is_intact();
        seq = seq.next();
        newest = record.leader_epoch;
        sound
    })
}
