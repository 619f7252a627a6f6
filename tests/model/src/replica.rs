//! One replica: what it keeps, and how it answers as a voter and follower.

use crate::Coverage;
use crate::log::Log;
use crate::message::{Append, Body, Message, Progress, Report};
use crate::mutant::Mutant;
use crate::types::{Metadata, NODES};

/// What a replica does in its epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It follows, or waits.
    Follower,
    /// It gathers promises for the epoch that was granted to it.
    Recovering { epoch: u16 },
    /// It leads.
    Leading(Leading),
    /// It led, was idle and was put away; the process still remembers it.
    Evicted { epoch: u16 },
}

/// What a leader knows about the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leading {
    pub(crate) epoch: u16,
    /// The log end with which the epoch began.
    pub(crate) start: usize,
    /// What each follower has proved to hold.
    pub(crate) matched: [usize; NODES],
    /// Where the next append to each follower begins.
    pub(crate) next: [usize; NODES],
}

#[derive(Clone, Debug)]
pub(crate) struct Replica {
    pub(crate) id: usize,
    pub(crate) mutant: Mutant,

    // On disk.
    pub(crate) log: Log,
    /// Records before this offset survive a crash.
    pub(crate) synced_end: usize,
    pub(crate) accepted: u16,
    pub(crate) promised_durable: u16,
    /// From the epoch table: where the accepted epoch began.
    pub(crate) accepted_start: usize,
    pub(crate) disk_boot: u16,
    /// The disk is new: nothing is known, not even what was promised.
    pub(crate) amnesiac: bool,

    // In memory.
    pub(crate) process_boot: u16,
    pub(crate) promised: u16,
    pub(crate) high_watermark: usize,
    pub(crate) metadata: Metadata,
    pub(crate) role: Role,
    pub(crate) reports: Vec<Report>,
    pub(crate) coverage: Coverage,
}

impl Replica {
    pub(crate) fn new(id: usize, mutant: Mutant, metadata: Metadata) -> Self {
        Self {
            id,
            mutant,
            log: Log::default(),
            synced_end: 0,
            accepted: 0,
            promised_durable: 0,
            accepted_start: 0,
            disk_boot: 0,
            amnesiac: false,
            process_boot: 0,
            promised: 0,
            high_watermark: 0,
            metadata: Metadata {
                epoch: 0,
                version: 0,
                ..metadata
            },
            role: Role::Follower,
            reports: Vec::new(),
            coverage: Coverage::default(),
        }
    }

    pub(crate) fn leading(&self) -> Option<&Leading> {
        if let Role::Leading(leading) = &self.role {
            Some(leading)
        } else {
            None
        }
    }

    /// The process ends and starts again.
    pub(crate) fn restart(&mut self) {
        self.log.truncate(self.synced_end);
        let resumes = self.mutant == Mutant::ResumeAfterRestart && self.leading().is_some();
        self.process_boot += 1;
        if self.mutant == Mutant::PromiseNotDurable {
            self.promised_durable = self.accepted;
        }
        self.promised = self.promised_durable;
        self.high_watermark = self.log.start();
        self.reports.clear();
        self.role = if resumes {
            Role::Evicted { epoch: self.accepted }
        } else {
            Role::Follower
        };
    }

    /// The disk is lost, and with it the process.
    pub(crate) fn wipe(&mut self) {
        self.log = Log::default();
        self.synced_end = 0;
        self.accepted = 0;
        self.promised_durable = 0;
        self.accepted_start = 0;
        self.disk_boot += 1;
        self.restart();
        self.role = Role::Follower;
        self.amnesiac = self.mutant != Mutant::WipedVoterVotes;
        self.metadata = Metadata {
            epoch: 0,
            version: 0,
            ..self.metadata
        };
    }

    /// Whatever makes a replica promise or accept a newer epoch ends its leadership and its recovery (CH-4).
    pub(crate) fn promise(&mut self, epoch: u16) {
        if self.mutant == Mutant::NoPromise {
            return;
        }
        self.promised = self.promised.max(epoch);
        self.promised_durable = self.promised_durable.max(epoch);
        let older = match &self.role {
            Role::Follower => false,
            Role::Recovering { epoch: own } | Role::Evicted { epoch: own } => *own < epoch,
            Role::Leading(leading) => leading.epoch < epoch,
        };
        let keeps = match self.mutant {
            Mutant::LeadsAfterPromise => true,
            Mutant::ResumeAfterPromise => matches!(self.role, Role::Evicted { .. }),
            _ => false,
        };
        if older && !keeps {
            self.role = Role::Follower;
            self.reports.clear();
        }
    }

    fn knows_disk(&self, disk_boot: u16) -> bool {
        disk_boot == self.disk_boot || self.mutant == Mutant::OldGrantClearsAmnesia
    }

    /// A leader-elect asks for a promise (CH-5).
    pub(crate) fn on_promise(&mut self, from: usize, epoch: u16, disk_boot: u16, out: &mut Vec<Message>) {
        let refuses = epoch < self.promised && self.mutant != Mutant::NoPromise;
        if refuses || self.amnesiac || !self.knows_disk(disk_boot) {
            return;
        }
        // What is reported must stay: unsynced records are synced together with the promise.
        self.synced_end = self.log.end();
        self.promise(epoch);
        let report = Report {
            from: self.id,
            accepted: self.accepted,
            high_watermark: self.high_watermark,
            log: self.log,
        };
        let body = Body::Promised {
            disk_boot: self.disk_boot,
            report,
        };
        out.push(Message::Peer {
            from: self.id,
            to: from,
            epoch,
            body,
        });
    }

    /// Whether a leader's message of this epoch is obeyed; if so, the epoch is promised.
    fn obeys(&mut self, epoch: u16, disk_boot: u16) -> bool {
        let old_is_fine = match self.mutant {
            Mutant::OldEpochAppends => true,
            Mutant::NoPromise => epoch >= self.accepted,
            _ => false,
        };
        let too_old = epoch < self.promised || epoch < self.accepted;
        let own = self.leading().is_some_and(|leading| leading.epoch == epoch);
        if too_old && !old_is_fine || own || !self.knows_disk(disk_boot) {
            return false;
        }
        self.promise(epoch);
        true
    }

    /// Records of a leader (CH-6). What is answered is durable before it is answered.
    pub(crate) fn on_append(&mut self, from: usize, epoch: u16, append: &Append, out: &mut Vec<Message>) {
        if !self.obeys(epoch, append.disk_boot) {
            return;
        }
        // Offsets below the log start are committed and removed here.
        let skipped = self.log.start().saturating_sub(append.at).min(append.count);
        let at = append.at + skipped;
        let fits =
            at <= self.log.end() && (skipped > 0 || self.log.epoch_before(at) == append.previous_epoch);
        if at < self.log.start() || !fits {
            let retry_at = append.at.saturating_sub(1).min(self.log.end());
            self.report_progress(from, epoch, Some(retry_at), out);
            return;
        }
        for (place, record) in append.records[skipped..append.count].iter().enumerate() {
            let offset = at + place;
            if self
                .log
                .record(offset)
                .is_some_and(|held| held.epoch != record.epoch)
            {
                self.log.truncate(offset);
                self.coverage.truncations += 1;
            }
            if offset == self.log.end() {
                self.log.push(*record);
            }
        }
        let matched_end = append.at + append.count;
        self.accept(
            epoch,
            append.epoch_start,
            matched_end.max(at),
            append.high_watermark,
        );
        self.report_progress(from, epoch, None, out);
    }

    /// The log begins beyond what this follower has, or beyond where it agrees (CH-14).
    pub(crate) fn on_snapshot(&mut self, from: usize, epoch: u16, body: &Body, out: &mut Vec<Message>) {
        let Body::Snapshot {
            disk_boot,
            epoch_start,
            start,
            base_epoch,
            high_watermark,
        } = *body
        else {
            return;
        };
        if !self.obeys(epoch, disk_boot) || start < self.log.start() {
            return;
        }
        let agrees = start <= self.log.end() && self.log.epoch_before(start) == base_epoch;
        if !agrees {
            self.log.reset(start, base_epoch);
            self.coverage.snapshots += 1;
        }
        let matched_end = if self.mutant == Mutant::SnapshotAcceptsEarly {
            start.max(epoch_start)
        } else {
            start
        };
        self.accept(epoch, epoch_start, matched_end, high_watermark);
        self.high_watermark = self.high_watermark.max(start);
        self.report_progress(from, epoch, None, out);
    }

    /// The log agrees with the leader's up to `matched_end`: at the epoch start the epoch is accepted, and what other
    /// epochs wrote beyond goes (CH-6). Then everything is synced.
    fn accept(&mut self, epoch: u16, epoch_start: usize, matched_end: usize, high_watermark: usize) {
        if matched_end >= epoch_start && self.accepted < epoch {
            self.accepted = epoch;
            self.accepted_start = epoch_start;
            self.amnesiac = false;
            if self.mutant != Mutant::KeepDivergentTail
                && let Some(offset) = self.log.foreign(epoch_start, epoch)
            {
                self.log.truncate(offset);
            }
        }
        if self.accepted == epoch {
            self.high_watermark = self.high_watermark.max(high_watermark.min(matched_end));
        }
        self.synced_end = self.log.end();
    }

    /// Says where this follower stands in the epoch, which it has promised (M-1).
    pub(crate) fn report_progress(
        &self,
        to: usize,
        epoch: u16,
        retry_at: Option<usize>,
        out: &mut Vec<Message>,
    ) {
        let progress = Progress {
            disk_boot: self.disk_boot,
            accepted: self.accepted,
            end: self.log.end(),
            last_epoch: self.log.epoch_before(self.log.end()),
            retry_at,
        };
        out.push(Message::Peer {
            from: self.id,
            to,
            epoch,
            body: Body::Progress(progress),
        });
    }

    /// The follower asks on its own, after promising the epoch of its metadata.
    pub(crate) fn pull(&mut self, out: &mut Vec<Message>) {
        let (epoch, leader) = (self.metadata.epoch, self.metadata.leader);
        if epoch == 0 || leader == self.id || !self.metadata.members().contains(self.id) {
            return;
        }
        if self.obeys(epoch, self.metadata.disk_boots[self.id]) {
            self.synced_end = self.log.end();
            self.report_progress(leader, epoch, None, out);
        }
    }

    /// Removes what retention allows, as far as this replica knows it committed (CH-14).
    pub(crate) fn trim(&mut self) {
        let safe = self.metadata.retention.min(self.synced_end);
        let known = if self.mutant == Mutant::RetentionPassesWatermark {
            safe
        } else {
            safe.min(self.high_watermark)
        };
        self.coverage.trimmed += known.saturating_sub(self.log.start()) as u64;
        self.log.trim(known);
    }
}
