//! The judge: it sees all replicas, keeps what was committed, and looks after every step (M-20).

use crate::leader::Commit;
use crate::log::Log;
use crate::replica::{Replica, Role};
use crate::types::{Metadata, NODES};
use std::fmt;

/// What a walk did that must never happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A committed offset has another record than before (CH-1).
    CommittedChanged,
    /// A leader began its epoch without a record that was committed before (CH-5).
    LeaderLacksCommitted,
    /// A record was committed that the leader of a newer epoch does not have (CH-4).
    CommittedBehindNewerLeader,
    /// A leader claimed a commit that no quorum holds durably (CH-2).
    CommittedWithoutQuorum,
    /// A durable promise fell on the same disk (CH-5).
    PromiseFell,
    /// A replica leads an epoch older than what it promised (CH-4).
    LeadsBelowPromise,
    /// Records were released that are not committed (CH-14).
    RetentionPassedCommit,
    /// A replica removed records that were not released (CH-14).
    TrimmedTooMuch,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::CommittedChanged => "a committed offset changed its record (CH-1)",
            Self::LeaderLacksCommitted => "a leader began without a committed record (CH-5)",
            Self::CommittedBehindNewerLeader => "a commit behind a newer leader that lacks the record (CH-4)",
            Self::CommittedWithoutQuorum => "a commit that no quorum holds durably (CH-2)",
            Self::PromiseFell => "a durable promise fell (CH-5)",
            Self::LeadsBelowPromise => "a replica leads below its own promise (CH-4)",
            Self::RetentionPassedCommit => "retention released an uncommitted record (CH-14)",
            Self::TrimmedTooMuch => "a replica removed a record that was not released (CH-14)",
        })
    }
}

/// One committed record: the epoch that committed it, and its value.
#[derive(Clone, Copy)]
struct Committed {
    epoch: u16,
    value: u16,
}

pub(crate) struct Checker {
    committed: Vec<Committed>,
    /// Every leader that began, with the log it began with.
    leaders: Vec<(u16, Log)>,
    /// The highest durable promise of each disk.
    promises: [(u16, u16); NODES],
    pub(crate) violation: Option<Violation>,
}

impl Checker {
    pub(crate) fn new() -> Self {
        Self {
            committed: Vec::new(),
            leaders: Vec::new(),
            promises: [(0, 0); NODES],
            violation: None,
        }
    }

    pub(crate) fn committed(&self) -> usize {
        self.committed.len()
    }

    fn violated(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }

    /// A leader claims a commit: do W voters of each set hold it durably in an epoch that is new enough, or have they
    /// left the leader's epoch, so that their word was true when they gave it?
    pub(crate) fn on_commit(&mut self, leader: &Replica, commit: Commit, replicas: &[Replica]) {
        let Commit {
            epoch,
            high_watermark,
            ..
        } = commit;
        let metadata = &leader.metadata;
        let vouches = |node: usize| {
            let replica = &replicas[node];
            let left = replica.promised_durable > epoch || replica.disk_boot != metadata.disk_boots[node];
            let holds = replica.accepted >= epoch
                && replica.synced_end >= high_watermark
                && replica.log.common_end(&leader.log) >= high_watermark;
            left || holds
        };
        let held = metadata
            .quorums()
            .all(|quorum| quorum.voters.iter().filter(|&node| vouches(node)).count() >= quorum.write);
        if !held && high_watermark > 0 {
            self.violated(Violation::CommittedWithoutQuorum);
        }
        self.note(epoch, &leader.log, high_watermark);
    }

    /// The log is committed up to here.
    fn note(&mut self, epoch: u16, log: &Log, end: usize) {
        for offset in log.start()..end {
            let Some(record) = log.record(offset) else {
                continue;
            };
            match self.committed.get(offset) {
                Some(known) if known.value == record.value => {}
                Some(_) => self.violated(Violation::CommittedChanged),
                None => {
                    if self
                        .leaders
                        .iter()
                        .any(|(other, log)| *other > epoch && lacks(log, offset, record.value))
                    {
                        self.violated(Violation::CommittedBehindNewerLeader);
                    }
                    self.committed.push(Committed {
                        epoch,
                        value: record.value,
                    });
                }
            }
        }
    }

    /// A leader begins its epoch with this log.
    pub(crate) fn on_leader(&mut self, epoch: u16, log: &Log) {
        let lost = self
            .committed
            .iter()
            .enumerate()
            .any(|(offset, known)| known.epoch < epoch && lacks(log, offset, known.value));
        if lost {
            self.violated(Violation::LeaderLacksCommitted);
        }
        self.leaders.push((epoch, *log));
    }

    /// What must hold after every step.
    pub(crate) fn after_step(&mut self, replicas: &[Replica], slot: &Metadata) {
        for (node, replica) in replicas.iter().enumerate() {
            let (disk_boot, promised) = self.promises[node];
            if disk_boot == replica.disk_boot && replica.promised_durable < promised {
                self.violated(Violation::PromiseFell);
            }
            self.promises[node] = (replica.disk_boot, replica.promised_durable);
            if let Role::Leading(leading) = &replica.role
                && leading.epoch < replica.promised
            {
                self.violated(Violation::LeadsBelowPromise);
            }
            if replica.log.start() > slot.retention {
                self.violated(Violation::TrimmedTooMuch);
            }
        }
        if slot.retention > self.committed.len() {
            self.violated(Violation::RetentionPassedCommit);
        }
    }

    /// Notes what a quorum holds durably even though its leader has not heard of it yet: from then on it must not be lost
    /// either.
    pub(crate) fn note_held(&mut self, replicas: &[Replica]) {
        for leader in replicas {
            let Role::Leading(leading) = &leader.role else {
                continue;
            };
            let mut ends = [0; NODES];
            for (node, replica) in replicas.iter().enumerate() {
                if node == leader.id {
                    ends[node] = leader.synced_end.min(leader.log.end());
                } else if replica.accepted == leading.epoch
                    && !replica.amnesiac
                    && replica.disk_boot == leader.metadata.disk_boots[node]
                {
                    ends[node] = replica.log.common_end(&leader.log).min(replica.synced_end);
                }
            }
            let held = leader
                .metadata
                .quorums()
                .map(|quorum| quorum.held(&ends))
                .min()
                .unwrap_or(0);
            if held >= leading.start && held > leader.log.start() {
                self.note(leading.epoch, &leader.log, held);
            }
        }
    }
}

/// Whether the log has another record at this offset, or none. What it has cut off it had.
fn lacks(log: &Log, offset: usize, value: u16) -> bool {
    offset >= log.start() && log.record(offset).is_none_or(|record| record.value != value)
}
