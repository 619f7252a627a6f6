//! The judge: it sees all disks, keeps what was committed, and looks at every claim (M-20).

use super::disk::Image;
use crate::channel::{Body, Evidence, Message, Replica, RoleView, View};
use crate::message::{DedupeRow, Record};
use crate::rows::Key;
use crate::types::{ChannelMeta, DiskBoot, LeaderEpoch, NodeId, Seq};
use bytes::Bytes;
use std::collections::BTreeMap;

/// A node as the judge sees it.
pub(super) struct Seen<'a> {
    pub(super) disk: DiskBoot,
    pub(super) durable: &'a Image,
    pub(super) visible: &'a Image,
    pub(super) replica: Option<&'a Replica>,
}

#[derive(Default)]
pub(super) struct Checker {
    /// Committed records, from position 1 on, with the epoch that committed them first.
    pub(super) committed: Vec<(LeaderEpoch, Record)>,
    promises: BTreeMap<(NodeId, DiskBoot), LeaderEpoch>,
    evidence: BTreeMap<(NodeId, LeaderEpoch), BTreeMap<NodeId, Evidence>>,
    /// Positions of a consumer that were said to be held by a quorum, with the epoch that said so.
    pub(super) fixed: Vec<(LeaderEpoch, Bytes)>,
    pub(super) violation: Option<String>,
}

impl Checker {
    pub(super) fn violated(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    pub(super) fn committed_end(&self) -> Seq {
        Seq(self.committed.len() as u64)
    }

    /// A leader says that everything up to here is committed. Do W voters of each set hold it durably in an epoch that is new enough,
    /// or have they left the epoch since they said so?
    pub(super) fn on_committed(
        &mut self,
        leader: NodeId,
        (epoch, meta): (LeaderEpoch, &ChannelMeta),
        through: Seq,
        nodes: &BTreeMap<NodeId, Seen<'_>>,
    ) {
        let own = nodes[&leader].visible;
        let vouches = |node: NodeId, disk: DiskBoot| {
            let seen = &nodes[&node];
            let state = seen.durable.state().unwrap_or_default();
            let left = state.promised > epoch || seen.disk != disk || state.withheld > state.accepted;
            let first = state
                .log_start
                .max(own.state().map_or(Seq(1), |state| state.log_start));
            let same = (first.0..=through.0).all(|seq| {
                own.records
                    .get(&Seq(seq))
                    .is_some_and(|record| seen.durable.records.get(&Seq(seq)) == Some(record))
            });
            left || (state.accepted >= epoch && seen.durable.log_end() > through && same)
        };
        for set in std::iter::once(&meta.voters).chain(&meta.previous) {
            let count = set
                .isr
                .iter()
                .filter(|voter| vouches(voter.node, voter.disk))
                .count();
            if count < usize::from(set.min_isr) {
                self.violated(format!(
                    "{through} committed by {leader} in {epoch} without a quorum"
                ));
            }
        }
        for (seq, record) in own.records.range(..=through) {
            let place = usize::try_from(seq.0 - 1).expect("few records");
            match self.committed.get(place) {
                Some((_, known)) if known == record => {}
                Some(_) => self.violated(format!("committed {seq} changed in epoch {epoch}")),
                None if place == self.committed.len() => self.committed.push((epoch, record.clone())),
                None => self.violated(format!("{seq} committed with a gap before it")),
            }
        }
        if through > self.committed_end() {
            self.violated(format!("{through} committed by {leader} without records"));
        }
    }

    /// What a replica says must be durable when it says so (M-1).
    pub(super) fn on_send(&mut self, node: NodeId, message: &Message, durable: &Image) {
        let state = durable.state().unwrap_or_default();
        let epoch = message.leader_epoch;
        let counts = match &message.body {
            Body::Promised(_) => None,
            Body::Progress(progress) => (progress.accepted == epoch).then_some(progress.log_end),
            _ => return,
        };
        // With a newer promise the log may have moved on since.
        let lacks = |log_end| state.accepted < epoch || durable.log_end() < log_end;
        if state.promised < epoch || (state.promised == epoch && counts.is_some_and(lacks)) {
            self.violated(format!("{node} claims something in {epoch} that is not durable"));
        }
    }

    /// Evidence reaches a node that recovers.
    pub(super) fn on_evidence(&mut self, to: NodeId, from: NodeId, epoch: LeaderEpoch, evidence: &Evidence) {
        let of_epoch = self.evidence.entry((to, epoch)).or_default();
        of_epoch.insert(from, evidence.clone());
    }

    /// An epoch is open: its log is the best that some recovery quorum reported, the leader itself included (CH-5).
    pub(super) fn on_open(&mut self, leader: NodeId, meta: &ChannelMeta, before: &View, view: &View) {
        let (epoch, start) = (view.accepted, view.epoch_start);
        let none = BTreeMap::new();
        let reports = self.evidence.get(&(leader, epoch)).unwrap_or(&none);
        let copied = |report: &&Evidence| {
            let from = report.log_start.max(view.log_start);
            report.log_end == start && report.epochs.first_difference(&view.epochs, from, start) == start
        };
        let own = (before.log_end == start && !before.withholds).then_some((before.accepted, start));
        let others = reports.values().filter(copied);
        let best = others
            .map(|report| (report.accepted, report.log_end))
            .chain(own)
            .max();
        let heard = |node: NodeId| {
            best.is_some_and(|best| {
                if node == leader {
                    // What a copy has replaced is known by its epoch only.
                    !before.withholds && before.accepted <= best.0
                } else {
                    let report = reports.get(&node);
                    report.is_some_and(|report| (report.accepted, report.log_end) <= best)
                }
            })
        };
        let recovers = std::iter::once(&meta.voters).chain(&meta.previous).all(|set| {
            let count = set.isr.iter().filter(|voter| heard(voter.node)).count();
            count + usize::from(set.min_isr) > set.isr.len()
        });
        if !recovers {
            self.violated(format!(
                "{leader} opened {epoch} with a log that is not the best of a quorum"
            ));
        }
    }

    /// A leader begins: it has everything that older epochs committed.
    pub(super) fn on_leading(&mut self, leader: NodeId, epoch: LeaderEpoch, image: &Image) {
        let start = image.state().map_or(Seq(1), |state| state.log_start);
        let lacking = self
            .committed
            .iter()
            .filter(|(committed_in, record)| *committed_in < epoch && record.seq >= start)
            .find(|(_, record)| image.records.get(&record.seq) != Some(record));
        if let Some((_, record)) = lacking {
            let seq = record.seq;
            self.violated(format!("{leader} leads {epoch} without the committed {seq}"));
        }
    }

    /// A leader begins: it knows every position that was fixed in older epochs (M-18).
    pub(super) fn knows_fixed(&mut self, leader: NodeId, epoch: LeaderEpoch, knows: Option<&Bytes>) {
        let older = self.fixed.iter().filter(|(fixed_in, _)| *fixed_in < epoch);
        if older.map(|(_, value)| value).max() > knows {
            self.violated(format!(
                "{leader} leads {epoch} without a position that was fixed"
            ));
        }
    }

    /// Records that a client was given.
    pub(super) fn on_read(&mut self, records: &[Record]) {
        for record in records {
            let place = usize::try_from(record.seq.0 - 1).expect("few records");
            if self.committed.get(place).is_none_or(|(_, known)| known != record) {
                self.violated(format!("{} was read and is not committed", record.seq));
            }
        }
    }

    /// What must hold after every step.
    pub(super) fn after_step(&mut self, nodes: &BTreeMap<NodeId, Seen<'_>>, meta: &ChannelMeta) {
        for (node, seen) in nodes {
            let state = seen.durable.state().unwrap_or_default();
            let promised = self.promises.entry((*node, seen.disk)).or_default();
            if state.promised < *promised {
                let what = format!("the durable promise of {node} fell");
                self.violation.get_or_insert(what);
            }
            let promised = self.promises.entry((*node, seen.disk)).or_default();
            *promised = state.promised.max(*promised);
            if state.log_start.previous() > meta.retention_through {
                self.violated(format!("{node} removed what is not released"));
            }
            let Some(replica) = seen.replica else { continue };
            let view = replica.view();
            let leads = match view.role {
                RoleView::Leading(epoch) | RoleView::Opening(epoch) => Some(epoch),
                _ => None,
            };
            if leads.is_some_and(|epoch| epoch < view.promised) {
                self.violated(format!("{node} leads below its promise"));
            }
            if view.high_watermark > self.committed_end() {
                self.violated(format!("{node} shows uncommitted {}", view.high_watermark));
            }
        }
    }

    /// Everyone has the same, and all that was committed.
    pub(super) fn at_the_end(&mut self, nodes: &BTreeMap<NodeId, Seen<'_>>, meta: &ChannelMeta) {
        let Some(leader) = meta.leader else { return };
        let own = nodes[&leader.node].visible;
        for voter in meta.replicas() {
            let image = nodes[&voter.node].visible;
            let start = image.state().map_or(Seq(1), |state| state.log_start);
            if image.log_end() != own.log_end() {
                self.violated(format!(
                    "{} ends at {} and its leader at {}",
                    voter.node,
                    image.log_end(),
                    own.log_end()
                ));
            }
            self.rows_at_the_end(voter.node, image);
            for (_, record) in self.committed.iter().filter(|(_, record)| record.seq >= start) {
                if image.records.get(&record.seq) != Some(record) {
                    let what = format!("{} lacks the committed {}", voter.node, record.seq);
                    self.violation.get_or_insert(what);
                }
            }
        }
    }

    /// Idempotency rows are a fold over the log, removed records included (R20).
    fn rows_at_the_end(&mut self, node: NodeId, image: &Image) {
        let rows: BTreeMap<u64, DedupeRow> = image
            .rows
            .iter()
            .filter_map(|(key, value)| match key {
                Key::Dedupe { hash, .. } => Some((*hash, DedupeRow::decode(value)?)),
                _ => None,
            })
            .collect();
        let expected: BTreeMap<u64, DedupeRow> = self
            .committed
            .iter()
            .filter_map(|(_, record)| Some((record.key?.hash, DedupeRow::of(record)?)))
            .collect();
        if rows != expected {
            let odd = rows
                .iter()
                .find(|(hash, row)| expected.get(hash) != Some(row))
                .map_or_else(
                    || "lacks one".to_owned(),
                    |(_, row)| format!("has one for {}", row.seq),
                );
            self.violated(format!("idempotency rows of {node}: {odd}"));
        }
    }
}
