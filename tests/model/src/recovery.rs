//! From a grant to a leader: promises, the choice of a log, and the epoch's beginning (CH-5).

use crate::log::Log;
use crate::message::{Body, Message, Report};
use crate::mutant::Mutant;
use crate::replica::{Leading, Replica, Role};
use crate::rng::Rng;
use crate::types::{Metadata, NODES};

/// How a recovery that has its quorum ends.
pub(crate) enum Ending {
    /// It leads with this log.
    Leads { epoch: u16, log: Log },
    /// The process died while it copied the log.
    BrokeOff,
}

impl Replica {
    /// Newer metadata arrive. A newer epoch ends whatever this replica did; if it was granted to this very process, its
    /// recovery begins.
    pub(crate) fn on_metadata(&mut self, metadata: Metadata, out: &mut Vec<Message>) {
        if (metadata.epoch, metadata.version) <= (self.metadata.epoch, self.metadata.version) {
            return;
        }
        let granted = metadata.epoch > self.metadata.epoch;
        self.metadata = metadata;
        if granted {
            let keeps_evicted =
                self.mutant == Mutant::ResumeAfterPromise && matches!(self.role, Role::Evicted { .. });
            if !keeps_evicted {
                self.role = Role::Follower;
            }
            self.reports.clear();
            let mine = metadata.leader == self.id
                && metadata.leader_boot == self.process_boot
                && metadata.disk_boots[self.id] == self.disk_boot;
            if mine && self.accepted < metadata.epoch {
                self.role = Role::Recovering {
                    epoch: metadata.epoch,
                };
                for node in metadata.members().iter() {
                    self.ask_promise(node, out);
                }
            }
        }
    }

    /// Asks a voter, itself included, for its promise and evidence.
    pub(crate) fn ask_promise(&self, node: usize, out: &mut Vec<Message>) {
        let body = Body::Promise {
            disk_boot: self.metadata.disk_boots[node],
        };
        out.push(Message::Peer {
            from: self.id,
            to: node,
            epoch: self.metadata.epoch,
            body,
        });
    }

    /// Evidence arrives. With enough of it from every set the epoch begins, unless the process dies while it copies.
    pub(crate) fn on_promised(
        &mut self,
        epoch: u16,
        disk_boot: u16,
        report: Report,
        break_off_one_in: usize,
        rng: &mut Rng,
    ) -> Option<Ending> {
        let disk_named = self.metadata.disk_boots[report.from] == disk_boot
            || self.mutant == Mutant::OldGrantClearsAmnesia;
        if self.role != (Role::Recovering { epoch }) || epoch != self.metadata.epoch || !disk_named {
            return None;
        }
        self.reports.retain(|known| known.from != report.from);
        self.reports.push(report);
        let fenced = self.promised > epoch && self.mutant != Mutant::LeadsAfterPromise;
        if fenced || !self.has_quorum() {
            return None;
        }
        let chosen = self.choose();
        if rng.one_in(break_off_one_in) {
            self.copy_partly(&chosen, rng.below(3));
            self.restart();
            return Some(Ending::BrokeOff);
        }
        self.begin(epoch, &chosen);
        Some(Ending::Leads { epoch, log: self.log })
    }

    fn has_quorum(&self) -> bool {
        self.metadata.quorums().all(|quorum| {
            let heard = self
                .reports
                .iter()
                .filter(|report| quorum.voters.contains(report.from))
                .count();
            let needed = if self.mutant == Mutant::RecoverFromOneVoter {
                1
            } else {
                quorum.recovery()
            };
            heard >= needed
        })
    }

    /// The log with the highest (accepted epoch, log end).
    fn choose(&self) -> Log {
        let best = match self.mutant {
            Mutant::HighestWatermarkLeads => self
                .reports
                .iter()
                .max_by_key(|report| (report.from == self.id, report.high_watermark)),
            Mutant::LastRecordEpoch => self
                .reports
                .iter()
                .max_by_key(|report| (report.log.epoch_before(report.log.end()), report.log.end())),
            _ => self
                .reports
                .iter()
                .max_by_key(|report| (report.accepted, report.log.end())),
        };
        let mut chosen = best.map_or_else(Log::default, |report| report.log);
        if self.mutant == Mutant::MajorityPrefix {
            let shared = (chosen.start()..chosen.end()).find(|&offset| {
                let record = chosen.record(offset);
                self.reports
                    .iter()
                    .filter(|report| report.log.record(offset) == record)
                    .count()
                    < 2
            });
            if let Some(offset) = shared {
                chosen.truncate(offset);
            }
        }
        chosen
    }

    /// The own log up to the exact common prefix, with what this replica has already removed still removed.
    fn common_part(&self, chosen: &Log) -> Log {
        let mut log = self.log;
        let base = chosen.epoch_before(chosen.start());
        // A record that stands just before the chosen log's start may be another one than the one removed there.
        let other_base = log.start() < chosen.start()
            && log.end() >= chosen.start()
            && log.epoch_before(chosen.start()) != base
            && self.mutant != Mutant::CopyIgnoresBase;
        if log.end() < chosen.start() || other_base {
            log.reset(chosen.start(), base);
        } else {
            log.truncate(log.common_end(chosen));
        }
        log
    }

    /// A crash in the middle of copying: the accepted epoch is what it was (CH-5).
    fn copy_partly(&mut self, chosen: &Log, copied: usize) {
        let mut log = self.common_part(chosen);
        if self.mutant == Mutant::CopyCutsTooDeep {
            log.truncate(self.high_watermark.saturating_sub(1));
        }
        let end = (log.end() + copied).min(chosen.end());
        copy(&mut log, chosen, end);
        self.log = log;
        self.synced_end = self.log.end();
    }

    /// One synced batch: the log, the accepted epoch, and the epoch's start.
    fn begin(&mut self, epoch: u16, chosen: &Log) {
        let mut log = self.common_part(chosen);
        copy(&mut log, chosen, chosen.end());
        self.log = log;
        self.synced_end = log.end();
        self.accepted = epoch;
        self.accepted_start = log.end();
        self.promised = self.promised.max(epoch);
        self.promised_durable = self.promised_durable.max(epoch);
        self.amnesiac = false;
        self.high_watermark = self.high_watermark.min(log.end());
        self.reports.clear();
        self.coverage.recoveries += 1;
        self.role = Role::Leading(Leading {
            epoch,
            start: log.end(),
            matched: [0; NODES],
            next: [log.end(); NODES],
        });
    }
}

fn copy(log: &mut Log, from: &Log, end: usize) {
    while log.end() < end {
        let Some(record) = from.record(log.end()) else {
            return;
        };
        log.push(record);
    }
}
