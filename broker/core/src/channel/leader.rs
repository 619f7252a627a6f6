//! What a leader does: take appends, count, tell.

use super::cursors::Fix;
use super::peers::Peer;
use super::{Body, NewRecord, Output, Replica, Role, Turn, Why, quorum};
use crate::ensure;
use crate::message::Record;
use crate::types::{ChannelMeta, DiskBoot, LeaderEpoch, NodeId, Seq, Token, VoterSet};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What a leader knows.
pub(super) struct Leading {
    pub(super) epoch: LeaderEpoch,
    pub(super) epoch_start: Seq,
    /// The epoch start is committed.
    pub(super) ready: bool,
    pub(super) peers: BTreeMap<NodeId, Peer>,
    pub(super) barrier: Barrier,
    /// Cursors that wait to be held by a quorum.
    pub(super) fixes: Vec<Fix>,
    /// All cursors up to this mark have to be held by the quorums of other voters too before these count alone.
    pub(super) fixed_mark: u64,
    /// What the shard was told of, by metadata version.
    told_change: u64,
    told_drained: u64,
    /// When to tell again what is still open.
    tell_at: Option<Duration>,
}

/// Rounds that prove leadership, one at a time (M-5).
#[derive(Default)]
pub(super) struct Barrier {
    round: u64,
    asking: Vec<Token>,
    replies: BTreeSet<NodeId>,
    /// Ask again; give up.
    retry_at: Option<Duration>,
    gives_up_at: Duration,
    /// Requests that came after the round began.
    queued: Vec<Token>,
}

impl Barrier {
    pub(super) fn into_tokens(self) -> impl Iterator<Item = Token> {
        self.asking.into_iter().chain(self.queued)
    }

    fn is_idle(&self) -> bool {
        self.asking.is_empty()
    }
}

impl Leading {
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        let peers = self.peers.values().filter_map(Peer::deadline).min();
        [peers, self.barrier.retry_at, self.tell_at]
            .into_iter()
            .flatten()
            .min()
    }

    /// Whether nobody lags and nothing is asked.
    pub(super) fn is_idle(&self, log_end: Seq, cursor_mark: u64) -> bool {
        self.ready
            && self.barrier.is_idle()
            && self
                .peers
                .values()
                .all(|peer| peer.is_caught_up(log_end, cursor_mark))
            && self.fixes.is_empty()
    }
}

impl Replica {
    /// The epoch is open and durable.
    pub(super) fn begin_leading(&mut self, epoch: LeaderEpoch, turn: &mut Turn<'_>) {
        let opened = matches!(&self.role, Role::Recovering(recovery) if recovery.epoch == epoch);
        if opened && (self.promised == epoch || self.faults.leads_after_promise()) {
            self.lead(epoch, turn);
        }
    }

    /// This very process opened the epoch and was put away meanwhile (CH-10).
    pub(super) fn resume_leading(&mut self, epoch: LeaderEpoch, turn: &mut Turn<'_>) {
        self.lead(epoch, turn);
    }

    fn lead(&mut self, epoch: LeaderEpoch, turn: &mut Turn<'_>) {
        self.role = Role::Leading(Leading {
            epoch,
            epoch_start: self.accepted_start,
            ready: false,
            peers: BTreeMap::new(),
            barrier: Barrier::default(),
            fixes: Vec::new(),
            fixed_mark: self.cursors.mark(),
            told_change: 0,
            told_drained: 0,
            tell_at: None,
        });
        self.refresh_peers(turn);
        self.advance(turn);
    }

    /// Appends in order, contiguously, in the own epoch (CH-1). Followers get the records while the own sync runs (M-3).
    pub(super) fn on_append(&mut self, token: Token, records: Vec<NewRecord>, turn: &mut Turn<'_>) {
        if let Err(why) = self.admits(records.len()) {
            turn.push(Output::Refused { token, why });
            return;
        }
        let first = self.log.end();
        let epoch = self.accepted;
        let mut sealed = Vec::with_capacity(records.len());
        for record in records {
            let record = Record {
                seq: self.log.end(),
                leader_epoch: epoch,
                stamp_ms: record.stamp_ms,
                id: record.id,
                key: record.key,
                body: record.body,
                crc: 0,
            }
            .sealed();
            self.log.push(record.clone());
            sealed.push(record);
        }
        self.write_records(sealed);
        turn.push(Output::Appended { token, first });
        self.pump_all(turn);
        if self.faults.ack_before_fsync() || self.faults.uncommitted_shown() {
            self.advance(turn);
        }
    }

    fn admits(&self, count: usize) -> Result<(), Why> {
        let leading = match &self.role {
            Role::Leading(leading) => leading,
            Role::Recovering(_) => return Err(Why::Recovering),
            Role::Loading(_) | Role::Follower => return Err(Why::NotLeading),
        };
        let waiting = self.log.end().0 - self.high_watermark.next().0;
        if !leading.ready {
            Err(Why::Recovering)
        } else if self.meta.fence.is_some() {
            Err(Why::Fenced)
        } else if count == 0 {
            Err(Why::Empty)
        } else if waiting > 0 && waiting + count as u64 > self.limits.channel_backlog as u64 {
            Err(Why::Busy)
        } else if leading.epoch != self.accepted {
            // Only with a planted fault: something newer was accepted.
            Err(Why::NotLeading)
        } else {
            Ok(())
        }
    }

    /// Moves the high watermark to what every quorum holds (CH-2), and tells what follows.
    pub(super) fn advance(&mut self, turn: &mut Turn<'_>) {
        let Role::Leading(leading) = &self.role else {
            return;
        };
        if !self.faults.leads_after_promise() && !self.faults.no_promise() {
            ensure!(
                CH_4,
                self.promised <= leading.epoch,
                "leads {} but promised {}",
                leading.epoch,
                self.promised
            );
        }
        let held = self.held(leading);
        let reaches_start = held >= leading.epoch_start;
        if held.0 == 0 || (!reaches_start && !self.faults.watermark_before_epoch_start()) {
            return;
        }
        let moved = held.previous() > self.high_watermark;
        let first = reaches_start && !leading.ready;
        let epoch = leading.epoch;
        if moved {
            self.high_watermark = held.previous();
            self.flush_later(turn);
            self.settle_log(self.high_watermark);
        }
        if first && let Role::Leading(leading) = &mut self.role {
            leading.ready = true;
            turn.push(Output::Leading { leader_epoch: epoch });
        }
        if moved || first {
            turn.push(Output::Committed {
                high_watermark: self.high_watermark,
            });
            self.trim(turn);
        }
        self.tell(false, turn);
        self.pump_all(turn);
    }

    /// The position before which every quorum holds the log, by durable proof in this epoch.
    fn held(&self, leading: &Leading) -> Seq {
        if self.faults.uncommitted_shown() {
            return self.log.end();
        }
        let own = if self.faults.ack_before_fsync() {
            self.log.end()
        } else {
            self.store.durable.log_end.min(self.log.end())
        };
        let end_of = |node: NodeId| {
            if node == self.node {
                own
            } else {
                leading.peers.get(&node).map_or(Seq(0), |peer| peer.matched)
            }
        };
        let of_set = |set: &VoterSet| {
            if self.faults.learner_counted() {
                let mut with_learners = set.clone();
                with_learners.isr.extend(&self.meta.learners);
                quorum::held(&with_learners, end_of)
            } else {
                quorum::held(set, end_of)
            }
        };
        self.sets()
            .map(of_set)
            .min()
            .unwrap_or_default()
            .min(self.log.end())
    }

    /// Tells the shard what the slot group should hear: once, and again after an interval while it is still open.
    fn tell(&mut self, again: bool, turn: &mut Turn<'_>) {
        let holds_cursors = match &self.role {
            Role::Leading(leading) => self.holds_cursors(leading, &self.meta.voters, leading.fixed_mark),
            _ => return,
        };
        let Role::Leading(leading) = &mut self.role else {
            return;
        };
        let version = self.meta.version;
        let mut open = false;
        if self.meta.previous.is_some() && leading.ready && !holds_cursors {
            open = true;
        } else if self.meta.previous.is_some() && leading.ready {
            open = true;
            if again || leading.told_change != version {
                leading.told_change = version;
                let leader_epoch = leading.epoch;
                turn.push(Output::VoterChangeDone {
                    version,
                    leader_epoch,
                });
            }
        }
        if leading.ready {
            for learner in &self.meta.learners {
                let Some(peer) = leading.peers.get_mut(&learner.node) else {
                    continue;
                };
                let caught_up = peer.matched > self.high_watermark && peer.matched >= leading.epoch_start;
                open |= caught_up;
                if caught_up && (again || !peer.told_caught_up) {
                    peer.told_caught_up = true;
                    turn.push(Output::CaughtUp {
                        learner: *learner,
                        leader_epoch: leading.epoch,
                    });
                }
            }
        }
        if let Some(fence) = self.meta.fence
            && leading.ready
            && self.high_watermark.next() == self.log.end()
        {
            open = true;
            if again || leading.told_drained != version {
                leading.told_drained = version;
                turn.push(Output::Drained {
                    fence,
                    log_end: self.log.end(),
                });
            }
        }
        if !open {
            leading.tell_at = None;
        } else if again || leading.tell_at.is_none() {
            leading.tell_at = Some(turn.now.after(self.limits.request_timeout));
        }
    }

    pub(super) fn expire_leader(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.monotonic;
        self.expire_peers(turn);
        self.expire_barrier(turn);
        let Role::Leading(leading) = &self.role else {
            return;
        };
        if leading.tell_at.is_some_and(|at| at <= now) {
            self.tell(true, turn);
        }
    }

    /// Proves leadership with the answers of W voters that came after the request (M-5, R16).
    pub(super) fn prove(&mut self, token: Token, turn: &mut Turn<'_>) {
        match &mut self.role {
            Role::Leading(leading) if leading.ready => {
                leading.barrier.queued.push(token);
                if leading.barrier.is_idle() {
                    self.next_round(turn);
                }
            }
            _ => turn.push(Output::NotProven { token }),
        }
    }

    fn next_round(&mut self, turn: &mut Turn<'_>) {
        let gives_up_at = turn.now.after(self.limits.request_timeout);
        let Role::Leading(leading) = &mut self.role else {
            return;
        };
        let barrier = &mut leading.barrier;
        barrier.asking = std::mem::take(&mut barrier.queued);
        barrier.replies.clear();
        barrier.retry_at = None;
        if barrier.asking.is_empty() {
            return;
        }
        barrier.round += 1;
        barrier.gives_up_at = gives_up_at;
        self.ask_barrier(turn);
        self.settle_barrier(turn);
    }

    fn ask_barrier(&mut self, turn: &mut Turn<'_>) {
        let retry_at = turn.now.after(self.limits.channel_retry);
        let Role::Leading(leading) = &mut self.role else {
            return;
        };
        leading.barrier.retry_at = Some(retry_at);
        let (epoch, round) = (leading.epoch, leading.barrier.round);
        let silent: Vec<_> = self
            .meta
            .all_voters()
            .into_iter()
            .filter(|voter| voter.node != self.node && !leading.barrier.replies.contains(&voter.node))
            .collect();
        for voter in silent {
            let disk = voter.disk;
            self.send(voter.node, epoch, Body::Barrier { disk, round }, turn);
        }
    }

    /// A follower vouches only for the epoch that it has accepted, and only while nothing newer is promised.
    pub(super) fn on_barrier(
        &mut self,
        from: NodeId,
        epoch: LeaderEpoch,
        (disk, round): (DiskBoot, u64),
        turn: &mut Turn<'_>,
    ) {
        if epoch < self.promised {
            self.refuse(from, epoch, turn);
        } else if epoch == self.accepted && disk == self.boots.disk && !self.withholds() {
            self.send(from, epoch, Body::BarrierReply { round }, turn);
        }
    }

    pub(super) fn on_barrier_reply(
        &mut self,
        from: NodeId,
        disk: DiskBoot,
        epoch: LeaderEpoch,
        round: u64,
        turn: &mut Turn<'_>,
    ) {
        let named = names(&self.meta, from, disk);
        if let Role::Leading(leading) = &mut self.role
            && leading.epoch == epoch
            && leading.barrier.round == round
            && named
        {
            leading.barrier.replies.insert(from);
            self.settle_barrier(turn);
        }
    }

    fn settle_barrier(&mut self, turn: &mut Turn<'_>) {
        let Role::Leading(leading) = &self.role else {
            return;
        };
        let barrier = &leading.barrier;
        let answered = |node: NodeId| node == self.node || barrier.replies.contains(&node);
        if barrier.is_idle() || !self.sets().all(|set| quorum::writes(set, answered)) {
            return;
        }
        let high_watermark = self.high_watermark;
        if let Role::Leading(leading) = &mut self.role {
            for token in std::mem::take(&mut leading.barrier.asking) {
                turn.push(Output::Proven {
                    token,
                    high_watermark,
                });
            }
        }
        self.next_round(turn);
    }

    fn expire_barrier(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.monotonic;
        let Role::Leading(leading) = &mut self.role else {
            return;
        };
        let barrier = &mut leading.barrier;
        if barrier.is_idle() || barrier.retry_at.is_none_or(|at| at > now) {
            return;
        }
        if barrier.gives_up_at <= now {
            for token in std::mem::take(&mut barrier.asking) {
                turn.push(Output::NotProven { token });
            }
            self.need_meta(turn);
            self.next_round(turn);
        } else {
            self.ask_barrier(turn);
        }
    }
}

/// Whether the metadata name this node with this disk as a replica.
pub(super) fn names(meta: &ChannelMeta, node: NodeId, disk: DiskBoot) -> bool {
    meta.replicas()
        .iter()
        .any(|replica| replica.node == node && replica.disk == disk)
}
