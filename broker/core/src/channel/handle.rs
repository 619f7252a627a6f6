//! The machine's surface: one input, one turn; metadata, promises and roles.

use super::cursors::CursorTable;
use super::follower::Following;
use super::log::Log;
use super::read::Asked;
use super::store::StoreQueue;
use super::{Body, EpochTable, Input, Message, Output, Refusal, Replica, Role, Setup, StateRow, Turn};
use crate::rows::{Miss, Rows, Write};
use crate::types::{ChannelMeta, LeaderEpoch, NodeId, Now, Seq, VoterSet};
use std::collections::BTreeMap;
use std::time::Duration;

impl Replica {
    /// A replica that knows nothing yet: give it [`Input::Start`] first.
    #[must_use]
    pub fn new(setup: Setup) -> Replica {
        let state = StateRow::default();
        Replica {
            node: setup.node,
            boots: setup.boots,
            limits: setup.limits,
            faults: setup.faults,
            meta: setup.meta,
            hold: None,
            promised: state.promised,
            accepted: state.accepted,
            accepted_start: state.accepted_start,
            withheld: state.withheld,
            high_watermark: state.high_watermark,
            log: Log::new(Seq(1), Seq(1), EpochTable::default()),
            tail_bytes_max: usize::MAX,
            cursors: CursorTable::default(),
            store: StoreQueue::new(setup.activation),
            reads: BTreeMap::new(),
            role: Role::Loading(super::activation::Loading::default()),
            following: Following::default(),
            asked_meta_at: None,
            flush_at: None,
            active_at: Duration::ZERO,
            idle_told: false,
        }
    }

    /// Handles one input. On a miss (only `Start` reads rows) nothing has changed: load the keys and give the same input again.
    pub fn handle(
        &mut self,
        now: Now,
        input: Input,
        rows: &dyn Rows,
        out: &mut Vec<Output>,
    ) -> Result<(), Miss> {
        let mut turn = Turn { now, out };
        self.active_at = now.monotonic;
        self.idle_told = false;
        match input {
            Input::Start => self.start(rows, &mut turn)?,
            Input::Meta(meta) => self.on_meta(meta, &mut turn),
            Input::Append { token, records } => self.on_append(token, records, &mut turn),
            Input::Peer { from, message } => self.on_peer(from, message, &mut turn),
            Input::Stored { token } => self.on_stored(token, &mut turn),
            Input::ReadDone { token, page } => self.on_read_done(token, page, &mut turn),
            Input::Read {
                token,
                from,
                records_max,
                bytes_max,
            } => {
                let asked = Asked {
                    token,
                    from,
                    records_max,
                    bytes_max,
                };
                self.on_read(asked, &mut turn);
            }
            Input::ProveLeadership { token } => self.prove(token, &mut turn),
            Input::Cursor { consumer, value } => self.on_cursor(&consumer, &value, &turn),
            Input::FixCursor {
                token,
                consumer,
                value,
            } => self.on_fix_cursor(token, (&consumer, &value), &mut turn),
            Input::Retention { hold } => {
                self.hold = hold;
                self.trim(&mut turn);
            }
        }
        self.finish(&mut turn);
        Ok(())
    }

    /// When `expire` is wanted at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        let role = match &self.role {
            Role::Loading(_) => None,
            Role::Follower => self.following.next_deadline(),
            Role::Recovering(recovery) => Some(recovery.retry_at),
            Role::Leading(leading) => leading.next_deadline(),
        };
        let idle = (!self.idle_told && self.is_idle()).then(|| self.active_at + self.limits.channel_idle);
        [role, self.flush_at, idle].into_iter().flatten().min()
    }

    /// Does what is due.
    pub fn expire(&mut self, now: Now, out: &mut Vec<Output>) {
        let mut turn = Turn { now, out };
        match &self.role {
            Role::Loading(_) => {}
            Role::Follower => self.expire_follower(&mut turn),
            Role::Recovering(_) => self.expire_recovery(&mut turn),
            Role::Leading(_) => self.expire_leader(&mut turn),
        }
        if self.flush_at.is_some_and(|at| at <= now.monotonic) {
            self.flush_at = None;
            if !self.cursors.is_written() || self.high_watermark != self.store.written_high_watermark {
                self.store.touch();
            }
            self.share_cursors(&mut turn);
            self.fix_again(&turn);
        }
        self.finish(&mut turn);
        if !self.idle_told && self.is_idle() && now.monotonic >= self.active_at + self.limits.channel_idle {
            self.idle_told = true;
            turn.push(Output::Evictable);
        }
    }

    /// Whether it may be dropped before it was idle for long: nothing waits to be written.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.flush_at.is_none() && self.is_idle()
    }

    /// Nothing in flight, nobody lagging, no fence, everything written (CH-10).
    fn is_idle(&self) -> bool {
        let role = match &self.role {
            Role::Loading(_) | Role::Recovering(_) => false,
            Role::Follower => self.following.is_idle(),
            Role::Leading(leading) => {
                self.meta.fence.is_none()
                    && self.meta.previous.is_none()
                    && self.high_watermark.next() == self.log.end()
                    && leading.is_idle(self.log.end(), self.cursors.mark())
            }
        };
        role && self.store.is_idle()
            && self.reads.is_empty()
            && self.cursors.is_written()
            && self.flush_at.is_none()
    }

    fn on_meta(&mut self, meta: ChannelMeta, turn: &mut Turn<'_>) {
        if meta.incarnation != self.meta.incarnation || meta.version <= self.meta.version {
            return;
        }
        let granted = meta.leader_epoch > self.meta.leader_epoch;
        let moved_in_place = meta.leader_epoch == self.meta.leader_epoch
            && meta.leader.is_some()
            && self.meta.leader.is_some()
            && meta.leader != self.meta.leader;
        if meta.leader_epoch < self.meta.leader_epoch || moved_in_place {
            turn.push(Output::Alarm {
                what: "metadata contradict themselves",
            });
            return;
        }
        self.meta = meta;
        if matches!(self.role, Role::Loading(_)) {
            return;
        }
        if granted {
            // A newer grant ends whatever this replica did, also before anything of it is promised (CH-4).
            self.step_down(turn);
            self.take_role(turn);
        } else if matches!(self.role, Role::Leading(_)) {
            self.refresh_peers(turn);
            self.advance(turn);
        }
        self.trim(turn);
    }

    /// What the metadata want of this replica: lead, or follow.
    pub(super) fn take_role(&mut self, turn: &mut Turn<'_>) {
        let epoch = self.meta.leader_epoch;
        let mine = self
            .meta
            .leader
            .is_some_and(|leader| leader.node == self.node && leader.process == self.boots.process);
        if epoch.0 == 0 || self.meta.leader.is_none() {
            self.need_meta(turn);
        } else if !mine || !self.is_named() || self.withheld > epoch {
            self.pull(turn);
        } else if self.promised > epoch {
            self.need_meta(turn);
        } else if self.accepted == epoch {
            // Only this very process can have opened the epoch: it comes back after an eviction (CH-10, M-3).
            self.resume_leading(epoch, turn);
        } else {
            self.start_recovery(epoch, turn);
        }
    }

    /// Whether the metadata name this node with this disk (M-4).
    pub(super) fn is_named(&self) -> bool {
        self.meta
            .replicas()
            .iter()
            .any(|replica| replica.node == self.node && replica.disk == self.boots.disk)
    }

    /// Whether this replica may give no evidence: it lost its disk or part of its log and has not accepted an epoch granted since
    /// (CH-7, R30).
    pub(super) fn withholds(&self) -> bool {
        if self.faults.wiped_voter_votes() {
            return false;
        }
        self.accepted < self.withheld || self.reborn(self.node).is_some_and(|epoch| self.accepted < epoch)
    }

    /// The first epoch that was granted to the node's present disk, if it had another before.
    pub(super) fn reborn(&self, node: NodeId) -> Option<LeaderEpoch> {
        self.meta
            .reborn
            .iter()
            .find(|(reborn, _)| *reborn == node)
            .map(|(_, epoch)| *epoch)
    }

    /// The sets that each must have a quorum (CH-7).
    pub(super) fn sets(&self) -> impl Iterator<Item = &VoterSet> {
        let in_place = |previous: &&VoterSet| {
            self.faults.min_isr_in_place()
                && previous.isr.len() == self.meta.voters.isr.len()
                && previous
                    .isr
                    .iter()
                    .all(|voter| self.meta.voters.contains(voter.node))
        };
        let previous = self
            .meta
            .previous
            .as_ref()
            .filter(|_| !self.faults.replace_not_joint())
            .filter(|previous| !in_place(previous));
        std::iter::once(&self.meta.voters).chain(previous)
    }

    /// Promises the epoch and ends what belongs to an older one, in the same step (CH-4).
    pub(super) fn promise(&mut self, epoch: LeaderEpoch, turn: &mut Turn<'_>) {
        if self.faults.no_promise() {
            return;
        }
        if epoch > self.promised {
            self.promised = epoch;
            self.store.touch();
        }
        let older = match &self.role {
            Role::Loading(_) | Role::Follower => false,
            Role::Recovering(recovery) => recovery.epoch < epoch,
            Role::Leading(leading) => leading.epoch < epoch,
        };
        if older && !self.faults.leads_after_promise() {
            self.step_down(turn);
        }
        self.following.promised(epoch);
    }

    /// Ends leadership or recovery.
    pub(super) fn step_down(&mut self, turn: &mut Turn<'_>) {
        if matches!(self.role, Role::Loading(_)) {
            return;
        }
        if let Role::Leading(leading) = std::mem::replace(&mut self.role, Role::Follower) {
            turn.push(Output::LostLeadership {
                leader_epoch: leading.epoch,
            });
            for token in leading.barrier.into_tokens() {
                turn.push(Output::NotProven { token });
            }
        }
        self.following = Following::default();
    }

    /// Asks for newer metadata, not too often.
    pub(super) fn need_meta(&mut self, turn: &mut Turn<'_>) {
        let due = self
            .asked_meta_at
            .is_none_or(|at| at + self.limits.channel_retry <= turn.now.monotonic);
        if due {
            self.asked_meta_at = Some(turn.now.monotonic);
            turn.push(Output::NeedMeta {
                version: self.meta.version,
            });
        }
    }

    pub(super) fn send(&self, to: NodeId, epoch: LeaderEpoch, body: Body, turn: &mut Turn<'_>) {
        let message = self.message(epoch, body);
        turn.push(Output::Send { to, message });
    }

    pub(super) fn message(&self, epoch: LeaderEpoch, body: Body) -> Message {
        Message {
            incarnation: self.meta.incarnation,
            leader_epoch: epoch,
            boots: self.boots,
            body,
        }
    }

    pub(super) fn on_peer(&mut self, from: NodeId, message: Message, turn: &mut Turn<'_>) {
        // What comes from another creation is dropped (CH-13, R18).
        if message.incarnation != self.meta.incarnation || from == self.node {
            return;
        }
        if let Role::Loading(loading) = &mut self.role {
            loading.hold(from, message);
            return;
        }
        let epoch = message.leader_epoch;
        if epoch > self.meta.leader_epoch {
            self.need_meta(turn);
        }
        let disk = message.boots.disk;
        match message.body {
            Body::Promise { disk } => self.on_promise(from, epoch, disk, turn),
            Body::Promised(evidence) => self.on_promised(from, disk, epoch, evidence, turn),
            Body::Refused {
                promised,
                version,
                why,
            } => {
                self.on_refused(from, epoch, (promised, version, why), turn);
            }
            Body::Fetch { from: first } => self.on_fetch(from, epoch, first, turn),
            Body::Fetched { from: first, records } => self.on_fetched(from, epoch, first, records, turn),
            Body::Replicate(replicate) => self.on_replicate(from, epoch, replicate, turn),
            Body::Progress(progress) => self.on_progress(from, disk, epoch, &progress, turn),
            Body::Reset(reset) => self.on_reset(from, epoch, reset, turn),
            Body::FetchDedupe { after, below } => self.on_fetch_dedupe(from, epoch, (after, below), turn),
            Body::FetchedDedupe {
                after,
                below,
                rows,
                next,
            } => {
                self.on_fetched_dedupe(from, epoch, (after, below), (rows, next), turn);
            }
            Body::Barrier { disk, round } => self.on_barrier(from, epoch, (disk, round), turn),
            Body::BarrierReply { round } => self.on_barrier_reply(from, disk, epoch, round, turn),
        }
    }

    pub(super) fn refuse(&self, to: NodeId, epoch: LeaderEpoch, turn: &mut Turn<'_>) {
        let why = if epoch < self.promised.max(self.accepted) {
            Refusal::Stale
        } else {
            Refusal::NoEvidence
        };
        self.refuse_for(to, epoch, why, turn);
    }

    pub(super) fn refuse_for(&self, to: NodeId, epoch: LeaderEpoch, why: Refusal, turn: &mut Turn<'_>) {
        let body = Body::Refused {
            promised: self.promised.max(self.accepted),
            version: self.meta.version,
            why,
        };
        self.send(to, epoch, body, turn);
    }

    /// Somebody does not obey this replica. A newer promise there ends what this replica does (R3).
    fn on_refused(
        &mut self,
        from: NodeId,
        epoch: LeaderEpoch,
        (promised, version, why): (LeaderEpoch, u64, Refusal),
        turn: &mut Turn<'_>,
    ) {
        let current = match &self.role {
            Role::Recovering(recovery) => recovery.epoch == epoch,
            Role::Leading(leading) => leading.epoch == epoch,
            Role::Loading(_) | Role::Follower => false,
        };
        if version > self.meta.version || promised > self.meta.leader_epoch {
            self.need_meta(turn);
        }
        if !current {
            return;
        }
        if why == Refusal::Stale && promised > epoch {
            if !self.faults.leads_after_promise() && !self.faults.no_promise() {
                self.step_down(turn);
            }
            self.need_meta(turn);
        } else {
            if why == Refusal::OtherDisk {
                // A voter whose disk is new counts for nothing until the slot group has registered it (M-4), and it does so when
                // it is asked: nobody else asks while the routes to this leader hold.
                self.need_meta(turn);
            }
            self.drop_source(from, turn);
        }
    }

    /// Removes what retention allows: committed, durable, and not held (CH-14).
    pub(super) fn trim(&mut self, turn: &mut Turn<'_>) {
        if matches!(self.role, Role::Loading(_) | Role::Recovering(_)) {
            return;
        }
        let held = self.hold.map_or(Seq(u64::MAX), Seq::previous);
        let through = self
            .meta
            .retention_through
            .min(self.high_watermark)
            .min(self.store.durable.log_end.previous())
            .min(held);
        if through < self.log.start() {
            return;
        }
        self.log.trim(through.next());
        self.store.write(Write::TrimRecords {
            incarnation: self.meta.incarnation,
            through,
        });
        self.store.touch();
        if matches!(self.role, Role::Leading(_)) {
            self.pump_all(turn);
        }
    }

    /// Records from `from` on cannot be trusted: they are given up, nothing is vouched for before a new grant, and a new epoch is
    /// asked for (R30).
    pub(super) fn damaged(&mut self, from: Seq, what: &str, turn: &mut Turn<'_>) {
        self.step_down(turn);
        let newest = self.promised.max(self.accepted).max(self.meta.leader_epoch);
        self.withheld = self.withheld.max(newest.next());
        let from = from.max(self.log.start());
        self.truncate(from);
        self.store.write(Write::TruncateRecords {
            incarnation: self.meta.incarnation,
            from,
        });
        self.store.touch();
        self.high_watermark = self.high_watermark.min(self.log.end().previous());
        turn.push(Output::Damaged {
            from,
            what: what.to_owned(),
        });
        if !matches!(self.role, Role::Loading(_)) {
            self.pull(turn);
        }
    }
}
