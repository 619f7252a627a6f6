//! From a grant to an open epoch: promises, the choice of a log, its copy (CH-5).

use super::dedupe::Anew;
use super::follower::{BACKOFF_MAX, pause};
use super::log::{Fit, Shape, fit};
use super::store::After;
use super::{Body, EpochTable, Evidence, Output, Replica, Role, Turn, quorum};
use crate::message::Record;
use crate::types::{DiskBoot, LeaderEpoch, NodeId, Seq};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Tries with one source before another one is chosen.
const SOURCE_TRIES: u32 = 4;

/// A recovery under way.
pub(super) struct Recovery {
    pub(super) epoch: LeaderEpoch,
    evidence: BTreeMap<NodeId, Evidence>,
    /// The own promise is durable.
    self_promised: bool,
    copy: Option<Copying>,
    opening: bool,
    pub(super) retry_at: Duration,
    failures: u32,
}

/// The log that was chosen, on its way here.
struct Copying {
    source: NodeId,
    end: Seq,
    start: Seq,
    epochs: EpochTable,
}

/// A candidate for the log of the epoch.
struct Candidate<'a> {
    node: NodeId,
    accepted: LeaderEpoch,
    log: Shape<'a>,
    high_watermark: Seq,
}

impl Replica {
    /// This process was granted the epoch: it promises, and asks every voter for promise and evidence.
    pub(super) fn start_recovery(&mut self, epoch: LeaderEpoch, turn: &mut Turn<'_>) {
        self.promise(epoch, turn);
        self.role = Role::Recovering(Recovery {
            epoch,
            evidence: BTreeMap::new(),
            self_promised: false,
            copy: None,
            opening: false,
            retry_at: turn.now.after(self.limits.channel_retry),
            failures: 0,
        });
        let alone = !self.withholds()
            && self
                .sets()
                .all(|set| quorum::recovers(set, |node| node == self.node));
        if alone {
            // The own log is all the evidence that is needed: promised and accepted in one batch (M-5).
            self.open_epoch(turn);
            return;
        }
        self.store.after(After::SelfPromised(epoch));
        self.ask_promises(turn);
    }

    fn ask_promises(&mut self, turn: &mut Turn<'_>) {
        let Role::Recovering(recovery) = &self.role else {
            return;
        };
        let epoch = recovery.epoch;
        for voter in self.meta.all_voters() {
            if voter.node != self.node && !recovery.evidence.contains_key(&voter.node) {
                self.send(voter.node, epoch, Body::Promise { disk: voter.disk }, turn);
            }
        }
    }

    pub(super) fn self_promised(&mut self, epoch: LeaderEpoch, turn: &mut Turn<'_>) {
        let gives_evidence = !self.withholds();
        if let Role::Recovering(recovery) = &mut self.role
            && recovery.epoch == epoch
        {
            recovery.self_promised = gives_evidence;
            self.choose(turn);
        }
    }

    /// Evidence of a voter, by the disk that the grant names.
    pub(super) fn on_promised(
        &mut self,
        from: NodeId,
        disk: DiskBoot,
        epoch: LeaderEpoch,
        evidence: Evidence,
        turn: &mut Turn<'_>,
    ) {
        let named = self
            .meta
            .all_voters()
            .iter()
            .any(|voter| voter.node == from && (voter.disk == disk || self.faults.wiped_voter_votes()));
        let reborn = self.reborn(from).is_some_and(|first| evidence.accepted < first);
        let Role::Recovering(recovery) = &mut self.role else {
            return;
        };
        if recovery.epoch != epoch || !named || (reborn && !self.faults.wiped_voter_votes()) {
            return;
        }
        let cursors = evidence.cursors.clone();
        recovery.evidence.insert(from, evidence);
        self.merge_cursors(&cursors, turn);
        self.choose(turn);
    }

    /// With evidence from a recovery quorum of every set, adopts the best log.
    fn choose(&mut self, turn: &mut Turn<'_>) {
        let Role::Recovering(recovery) = &self.role else {
            return;
        };
        let fenced = self.promised > recovery.epoch && !self.faults.leads_after_promise();
        if recovery.copy.is_some() || recovery.opening || fenced {
            return;
        }
        let heard = |node: NodeId| {
            if node == self.node {
                recovery.self_promised
            } else {
                recovery.evidence.contains_key(&node)
            }
        };
        let one =
            self.faults.recover_from_one_voter() && !self.meta.all_voters().iter().all(|v| !heard(v.node));
        if !one && !self.sets().all(|set| quorum::recovers(set, heard)) {
            return;
        }
        let Some((source, shape)) = self.best(recovery) else {
            return;
        };
        let copy = Copying {
            source,
            end: self.shared_end(recovery, source, shape),
            start: shape.start,
            epochs: shape.epochs.clone(),
        };
        if source == self.node {
            let end = copy.end;
            self.truncate(end);
            self.open_epoch(turn);
        } else {
            self.begin_copy(copy, turn);
        }
    }

    fn candidates<'a>(&'a self, recovery: &'a Recovery) -> Vec<Candidate<'a>> {
        let own = Candidate {
            node: self.node,
            accepted: self.accepted,
            log: self.log.shape(),
            high_watermark: self.high_watermark,
        };
        let others = recovery.evidence.iter().map(|(node, evidence)| Candidate {
            node: *node,
            accepted: evidence.accepted,
            log: Shape {
                start: evidence.log_start,
                end: evidence.log_end,
                epochs: &evidence.epochs,
            },
            high_watermark: evidence.high_watermark,
        });
        let own = recovery.self_promised.then_some(own);
        others.chain(own).collect()
    }

    /// The log with the highest (accepted epoch, log end); the own one if it is as good.
    fn best<'a>(&'a self, recovery: &'a Recovery) -> Option<(NodeId, Shape<'a>)> {
        let faults = self.faults;
        self.candidates(recovery)
            .into_iter()
            .max_by_key(|candidate| {
                let own = candidate.node == self.node;
                let end = candidate.log.end;
                if faults.highest_watermark_wins() {
                    (LeaderEpoch(0), candidate.high_watermark, own)
                } else if faults.last_record_epoch() {
                    (candidate.log.epochs.epoch_before(end), end, own)
                } else {
                    (candidate.accepted, end, own)
                }
            })
            .map(|candidate| (candidate.node, candidate.log))
    }

    /// The end of the chosen log.
    fn shared_end(&self, recovery: &Recovery, source: NodeId, chosen: Shape<'_>) -> Seq {
        if !self.faults.majority_prefix() {
            return chosen.end;
        }
        let shared = self
            .candidates(recovery)
            .into_iter()
            .filter(|candidate| candidate.node != source)
            .map(|candidate| {
                let end = chosen.end.min(candidate.log.end);
                chosen
                    .epochs
                    .first_difference(candidate.log.epochs, chosen.start, end)
            })
            .max();
        shared.map_or(chosen.end, |end| end.clamp(chosen.start, chosen.end))
    }

    fn begin_copy(&mut self, copy: Copying, turn: &mut Turn<'_>) {
        let chosen = Shape {
            start: copy.start,
            end: copy.end,
            epochs: &copy.epochs,
        };
        let found = fit(chosen, self.log.shape());
        let source = copy.source;
        let cuts_committed = matches!(found, Fit::At(at) if at <= self.high_watermark && at < self.log.end());
        if found == Fit::Contradiction || (cuts_committed && !self.may_cut_committed()) {
            turn.push(Output::Alarm {
                what: "the best log lacks a committed record",
            });
            self.forget_evidence(source);
            return;
        }
        let retry_at = turn.now.after(self.limits.channel_retry);
        let Role::Recovering(recovery) = &self.role else {
            return;
        };
        let anew = Anew {
            epoch: recovery.epoch,
            source,
            log_start: copy.start,
            epochs: copy.epochs.up_to(copy.start),
            follows: None,
            after: None,
            kept: BTreeSet::new(),
            retry_at,
            failures: 0,
        };
        if let Role::Recovering(recovery) = &mut self.role {
            recovery.copy = Some(copy);
            recovery.failures = 0;
            recovery.retry_at = retry_at;
        }
        match found {
            Fit::At(at) => {
                let at = if self.faults.copy_cuts_too_deep() {
                    at.min(self.high_watermark).max(self.log.start())
                } else {
                    at
                };
                self.truncate(at);
                self.continue_copy(turn);
            }
            Fit::Reset | Fit::Contradiction => self.begin_anew(anew, turn),
        }
    }

    /// Fetches what is missing of the chosen log, or opens the epoch.
    pub(super) fn continue_copy(&mut self, turn: &mut Turn<'_>) {
        let Role::Recovering(recovery) = &self.role else {
            return;
        };
        let Some(copy) = &recovery.copy else { return };
        if self.log.end() >= copy.end {
            self.open_epoch(turn);
            return;
        }
        let (source, epoch, from) = (copy.source, recovery.epoch, self.log.end());
        self.send(source, epoch, Body::Fetch { from }, turn);
    }

    pub(super) fn on_fetched(
        &mut self,
        from: NodeId,
        epoch: LeaderEpoch,
        first: Seq,
        records: Vec<Record>,
        turn: &mut Turn<'_>,
    ) {
        let end = self.log.end();
        let retry_at = turn.now.after(self.limits.channel_retry);
        let Role::Recovering(recovery) = &mut self.role else {
            return;
        };
        let Some(copy) = &recovery.copy else { return };
        // The answer repeats what was asked, and is ignored when the log has moved on (R4).
        let current = recovery.epoch == epoch && copy.source == from && first == end;
        if !current || recovery.opening || self.following.anew.is_some() {
            return;
        }
        let mut next = end;
        let mut fitting = Vec::new();
        for record in records {
            let fits = record.seq == next && record.leader_epoch == copy.epochs.epoch_at(next);
            if next >= copy.end || !fits || !record.is_intact() {
                break;
            }
            next = next.next();
            fitting.push(record);
        }
        recovery.retry_at = retry_at;
        if fitting.is_empty() {
            self.drop_source(from, turn);
            return;
        }
        recovery.failures = 0;
        // What the others know to be committed need not stay in memory.
        let settled = recovery
            .evidence
            .values()
            .map(|evidence| evidence.high_watermark)
            .max();
        for record in &fitting {
            self.log.push(record.clone());
        }
        self.write_records(fitting);
        self.settle_log(settled.unwrap_or_default());
        self.continue_copy(turn);
    }

    fn forget_evidence(&mut self, source: NodeId) {
        if let Role::Recovering(recovery) = &mut self.role {
            recovery.evidence.remove(&source);
            recovery.copy = None;
            self.following.anew = None;
        }
    }

    /// The source of the copy is no good: another choice, or another promise.
    pub(super) fn drop_source(&mut self, source: NodeId, turn: &mut Turn<'_>) {
        let copies = matches!(&self.role, Role::Recovering(recovery)
            if !recovery.opening && recovery.copy.as_ref().is_some_and(|copy| copy.source == source));
        if copies {
            self.forget_evidence(source);
            self.choose(turn);
        }
    }

    pub(super) fn expire_recovery(&mut self, turn: &mut Turn<'_>) {
        let retry = self.limits.channel_retry;
        let Role::Recovering(recovery) = &mut self.role else {
            return;
        };
        if recovery.retry_at > turn.now.monotonic {
            return;
        }
        recovery.failures += 1;
        recovery.retry_at = turn.now.after(pause(retry, recovery.failures.min(BACKOFF_MAX)));
        if recovery.opening {
            return;
        }
        let failures = recovery.failures;
        let source = recovery.copy.as_ref().map(|copy| copy.source);
        match source {
            Some(source) if failures >= SOURCE_TRIES => self.drop_source(source, turn),
            Some(_) if self.following.anew.is_some() => self.retry_anew(turn),
            Some(_) => self.continue_copy(turn),
            None => {
                self.ask_promises(turn);
                if failures.is_multiple_of(SOURCE_TRIES) {
                    self.need_meta(turn);
                }
            }
        }
    }

    /// One batch: the epoch is accepted and its start is noted in the epoch table (R1). A crash before leaves `accepted` as it was.
    fn open_epoch(&mut self, turn: &mut Turn<'_>) {
        let Role::Recovering(recovery) = &mut self.role else {
            return;
        };
        recovery.opening = true;
        recovery.copy = None;
        recovery.retry_at = turn.now.after(self.limits.channel_retry);
        let epoch = recovery.epoch;
        self.promised = self.promised.max(epoch);
        self.accepted = epoch;
        self.accepted_start = self.log.end();
        self.log.epochs.open(epoch, self.log.end());
        self.store.touch();
        self.store.after(After::Opened(epoch));
    }
}
