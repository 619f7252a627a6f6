//! What a leader knows of each follower, and what it sends next: unasked, under a bound of bytes in flight (M-2).

use super::follower::pause;
use super::leader::names;
use super::log::{Fit, Shape, fit};
use super::message::records_bytes;
use super::read::Purpose;
use super::{Body, Output, Progress, Replica, Replicate, Reset, Role, Turn};
use crate::message::Record;
use crate::types::{DiskBoot, LeaderEpoch, NodeId, Replica as Voter, Seq};
use std::collections::VecDeque;
use std::time::Duration;

/// Fruitless answers in a row before a follower is asked more slowly.
const STUCK_MAX: u32 = 4;

/// A follower that was silent this many times, or a multiple of it, makes the leader ask whether it is still to be one.
const MISSED_AFTER: u32 = 8;

/// How a follower is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Where it stands is not known: one question at a time.
    Probe,
    /// Records stream, many messages in flight.
    Stream,
    /// It begins anew at the log start.
    Anew,
}

/// A follower or learner.
pub(super) struct Peer {
    replica: Voter,
    mode: Mode,
    /// Log end that it durably has in this epoch (M-1); 0 if it has not accepted the epoch.
    pub(super) matched: Seq,
    /// First position to be sent next.
    next: Seq,
    /// End and size of each message of records without an answer.
    in_flight: VecDeque<(Seq, usize)>,
    in_flight_bytes: usize,
    /// When silence counts as loss.
    deadline: Option<Duration>,
    failures: u32,
    /// Records are being read from the disk for it.
    reading: bool,
    /// Answers in a row without the epoch accepted and without progress, and the log end of the last one.
    stuck: u32,
    seen_end: Seq,
    /// Nothing is sent before the deadline.
    waits: bool,
    told_watermark: Seq,
    cursors_sent: u64,
    cursors_confirmed: u64,
    pub(super) told_caught_up: bool,
}

impl Peer {
    fn new(replica: Voter, next: Seq) -> Peer {
        Peer {
            replica,
            mode: Mode::Probe,
            matched: Seq(0),
            next,
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            deadline: None,
            failures: 0,
            reading: false,
            stuck: 0,
            seen_end: Seq(0),
            waits: false,
            told_watermark: Seq(0),
            cursors_sent: 0,
            cursors_confirmed: 0,
            told_caught_up: false,
        }
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        self.deadline
    }

    pub(super) fn is_caught_up(&self, log_end: Seq, cursor_mark: u64) -> bool {
        self.matched == log_end && self.cursors_confirmed >= cursor_mark && self.deadline.is_none()
    }

    /// Whether it holds all cursors up to this mark, those with an open window durably.
    pub(super) fn holds_cursors(&self, mark: u64) -> bool {
        self.cursors_confirmed >= mark
    }

    fn clear_flight(&mut self) {
        self.in_flight.clear();
        self.in_flight_bytes = 0;
    }

    fn confirm(&mut self, log_end: Seq) {
        while let Some((end, bytes)) = self.in_flight.front().copied()
            && end <= log_end
        {
            self.in_flight.pop_front();
            self.in_flight_bytes -= bytes;
        }
    }
}

impl Replica {
    /// The replicas of the metadata, with what is known of those that stay.
    pub(super) fn refresh_peers(&mut self, turn: &mut Turn<'_>) {
        let end = self.log.end();
        let Role::Leading(leading) = &mut self.role else {
            return;
        };
        let replicas = self.meta.replicas();
        leading.peers.retain(|node, peer| {
            replicas
                .iter()
                .any(|replica| replica.node == *node && *replica == peer.replica)
        });
        for replica in replicas {
            if replica.node != self.node {
                let peer = leading
                    .peers
                    .entry(replica.node)
                    .or_insert_with(|| Peer::new(replica, end));
                peer.told_caught_up = false;
            }
        }
        self.pump_all(turn);
    }

    fn peer_mut(&mut self, node: NodeId) -> Option<&mut Peer> {
        match &mut self.role {
            Role::Leading(leading) => leading.peers.get_mut(&node),
            Role::Loading(_) | Role::Follower | Role::Recovering(_) => None,
        }
    }

    pub(super) fn pump_all(&mut self, turn: &mut Turn<'_>) {
        let Role::Leading(leading) = &self.role else {
            return;
        };
        for node in leading.peers.keys().copied().collect::<Vec<_>>() {
            self.pump(node, turn);
        }
    }

    /// Sends what this follower should get now.
    fn pump(&mut self, node: NodeId, turn: &mut Turn<'_>) {
        let (start, end) = (self.log.start(), self.log.end());
        let most = self.limits.replicate_bytes;
        let Some(peer) = self.peer_mut(node) else { return };
        match peer.mode {
            _ if peer.waits => return,
            Mode::Probe | Mode::Anew if peer.deadline.is_some() => return,
            Mode::Probe => {
                self.send_records(node, Vec::new(), true, turn);
                return;
            }
            Mode::Anew => {
                self.send_reset(node, turn);
                return;
            }
            Mode::Stream => {}
        }
        loop {
            let Some(peer) = self.peer_mut(node) else { return };
            let (next, in_flight) = (peer.next, peer.in_flight_bytes);
            if peer.reading || next >= end || in_flight >= most {
                break;
            }
            if next < start {
                self.send_reset(node, turn);
                return;
            }
            let Some(records) = self.log.slice(next, end.previous(), usize::MAX, most - in_flight) else {
                self.read_for(node, next, turn);
                return;
            };
            // The first record is taken whatever its size; beside others in flight it waits for its place.
            if records.is_empty() || (in_flight > 0 && records_bytes(&records) > most - in_flight) {
                break;
            }
            self.send_records(node, records, true, turn);
        }
        self.tell_watermark(node, turn);
    }

    /// The high watermark alone, when nothing else will carry it. No answer is wanted (M-2).
    fn tell_watermark(&mut self, node: NodeId, turn: &mut Turn<'_>) {
        let watermark = self.high_watermark;
        let Some(peer) = self.peer_mut(node) else { return };
        if peer.told_watermark < watermark && peer.in_flight.is_empty() && !peer.reading {
            self.send_records(node, Vec::new(), false, turn);
        }
    }

    fn read_for(&mut self, node: NodeId, from: Seq, turn: &mut Turn<'_>) {
        let epoch = self.accepted;
        let request = self.records_request(from, self.log.end().previous(), self.limits.replicate_bytes);
        if let Some(peer) = self.peer_mut(node) {
            peer.reading = true;
        }
        let purpose = Purpose::Replicate {
            to: node,
            from,
            epoch,
        };
        self.read(purpose, request, turn);
    }

    pub(super) fn replicate_from_disk(
        &mut self,
        to: NodeId,
        from: Seq,
        epoch: LeaderEpoch,
        records: Option<Vec<Record>>,
        turn: &mut Turn<'_>,
    ) {
        let current = matches!(&self.role, Role::Leading(leading) if leading.epoch == epoch);
        let Some(peer) = self.peer_mut(to) else { return };
        if !current {
            return;
        }
        peer.reading = false;
        if peer.mode == Mode::Stream
            && peer.next == from
            && let Some(records) = records
        {
            self.send_records(to, records, true, turn);
        }
        self.pump(to, turn);
    }

    fn send_records(&mut self, node: NodeId, records: Vec<Record>, answer: bool, turn: &mut Turn<'_>) {
        let (watermark, mark) = (self.high_watermark, self.cursors.mark());
        let Role::Leading(leading) = &mut self.role else {
            return;
        };
        let (epoch, epoch_start) = (leading.epoch, leading.epoch_start);
        let Some(peer) = leading.peers.get_mut(&node) else {
            return;
        };
        let first = peer.next;
        peer.next = Seq(first.0 + records.len() as u64);
        if !records.is_empty() {
            let bytes = records_bytes(&records);
            peer.in_flight.push_back((peer.next, bytes));
            peer.in_flight_bytes += bytes;
        }
        if answer {
            let wait = pause(self.limits.channel_retry, peer.failures);
            peer.deadline.get_or_insert_with(|| turn.now.after(wait));
        }
        peer.told_watermark = watermark;
        let since = peer.cursors_confirmed;
        peer.cursors_sent = mark;
        let replicate = Replicate {
            disk: peer.replica.disk,
            epoch_start,
            first,
            previous_epoch: self.log.epochs.epoch_before(first),
            records,
            high_watermark: watermark,
            cursors: self.cursors.since(since),
            cursor_mark: mark,
            answer,
        };
        self.send(node, epoch, Body::Replicate(replicate), turn);
    }

    fn send_reset(&mut self, node: NodeId, turn: &mut Turn<'_>) {
        let log_start = self.log.start();
        let (watermark, retry) = (self.high_watermark, self.limits.channel_retry);
        let Role::Leading(leading) = &mut self.role else {
            return;
        };
        let (epoch, epoch_start) = (leading.epoch, leading.epoch_start);
        let Some(peer) = leading.peers.get_mut(&node) else {
            return;
        };
        peer.mode = Mode::Anew;
        peer.clear_flight();
        peer.next = log_start;
        peer.deadline = Some(turn.now.after(pause(retry, peer.failures)));
        let reset = Reset {
            disk: peer.replica.disk,
            epoch_start,
            log_start,
            epochs: self.log.epochs.up_to(log_start),
            high_watermark: watermark,
            cursors: self.cursors.since(0),
        };
        self.send(node, epoch, Body::Reset(reset), turn);
    }

    /// What a follower's message proves (M-1).
    pub(super) fn on_progress(
        &mut self,
        from: NodeId,
        disk: DiskBoot,
        epoch: LeaderEpoch,
        progress: &Progress,
        turn: &mut Turn<'_>,
    ) {
        let faults = self.faults;
        let own = self.log.shape();
        let agrees = progress.log_end <= own.end
            && progress.log_end >= own.start
            && own.epochs.epoch_before(progress.log_end) == progress.last_epoch;
        let fit = progress.conflict.as_ref().map(|epochs| {
            let sink = Shape {
                start: progress.log_start,
                end: progress.log_end,
                epochs,
            };
            fit(own, sink)
        });
        let end = own.end;
        let named = names(&self.meta, from, disk);
        let Role::Leading(leading) = &mut self.role else {
            return;
        };
        if (epoch != leading.epoch && !faults.stale_reply_counts()) || !named {
            return;
        }
        let proved = progress.accepted == epoch
            || (faults.agreement_counts() && agrees)
            || (faults.watermark_before_epoch_start() && agrees && progress.log_end < leading.epoch_start);
        let Some(peer) = leading.peers.get_mut(&from) else {
            return;
        };
        peer.failures = 0;
        let waited = peer.deadline.filter(|_| peer.waits);
        peer.cursors_confirmed = peer
            .cursors_confirmed
            .max(progress.cursor_mark.min(peer.cursors_sent));
        if proved && progress.log_end > end && !faults.stale_reply_counts() {
            turn.push(Output::Alarm {
                what: "a follower has more of the epoch than its leader",
            });
            return;
        }
        if proved {
            peer.proved(progress, end);
        } else {
            peer.stands_at(fit, agrees, progress.log_end);
        }
        let retry = self.limits.channel_retry;
        peer.deadline = (!peer.in_flight.is_empty()).then(|| turn.now.after(retry));
        // An answer that moves on ends the wait: its deadline is gone, and nothing else would.
        peer.waits = peer.stuck > STUCK_MAX;
        if peer.waits {
            // It answers, but nothing comes of it: asking at once would never end. A wait that has begun ends when it was to end,
            // or whoever asks as often as it is waited for would never be served.
            let wait = pause(retry, peer.stuck - STUCK_MAX);
            peer.deadline = waited.or_else(|| Some(turn.now.after(wait)));
        }
        let nudge = !proved && !peer.waits && peer.mode == Mode::Stream && peer.next >= end;
        if nudge {
            // It stands at the end but has not accepted the epoch: an empty message makes it so (M-1).
            self.send_records(from, Vec::new(), true, turn);
        }
        self.settle_fixes(turn);
        self.advance(turn);
        self.pump(from, turn);
    }

    pub(super) fn expire_peers(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now.monotonic;
        let gives_up = self.faults.give_up_before_first_append() && self.log.end() == Seq(1);
        let Role::Leading(leading) = &mut self.role else {
            return;
        };
        let mut silent = Vec::new();
        let mut is_missed = false;
        for (node, peer) in &mut leading.peers {
            if peer.deadline.is_some_and(|at| at <= now) {
                peer.deadline = None;
                if std::mem::take(&mut peer.waits) {
                    silent.push(*node);
                    continue;
                }
                peer.failures += 1;
                is_missed |= peer.failures.is_multiple_of(MISSED_AFTER);
                peer.clear_flight();
                peer.mode = Mode::Probe;
                // One that has not accepted the epoch is asked at the end, where most followers stand.
                let accepted = peer.matched > Seq(0);
                peer.next = if accepted { peer.matched } else { self.log.end() };
                if !gives_up {
                    silent.push(*node);
                }
            }
        }
        for node in silent {
            self.pump(node, turn);
        }
        if is_missed {
            // Whether it is lost and another node has to learn the channel, the slot group decides when it is asked.
            self.need_meta(turn);
        }
    }

    /// Tells followers the cursors that they have not confirmed (M-6).
    pub(super) fn share_cursors(&mut self, turn: &mut Turn<'_>) {
        let mark = self.cursors.mark();
        let Role::Leading(leading) = &self.role else {
            return;
        };
        let behind: Vec<NodeId> = leading
            .peers
            .iter()
            .filter(|(_, peer)| {
                peer.cursors_confirmed < mark && peer.mode == Mode::Stream && !peer.reading && !peer.waits
            })
            .map(|(node, _)| *node)
            .collect();
        for node in behind {
            self.send_records(node, Vec::new(), true, turn);
        }
    }
}

impl Peer {
    /// The follower's log is the leader's, up to its end.
    fn proved(&mut self, progress: &Progress, end: Seq) {
        let log_end = progress.log_end.min(end);
        self.matched = self.matched.max(log_end);
        self.confirm(log_end);
        let lost = progress.conflict.is_some() || self.mode != Mode::Stream;
        if lost || self.next < self.matched {
            self.clear_flight();
            self.next = self.matched;
        }
        self.mode = Mode::Stream;
        self.stuck = 0;
        self.waits = false;
    }

    /// The follower has not accepted the epoch: it continues where the logs agree.
    fn stands_at(&mut self, fit: Option<Fit>, agrees: bool, log_end: Seq) {
        self.clear_flight();
        self.stuck = if log_end > self.seen_end {
            0
        } else {
            self.stuck + 1
        };
        self.seen_end = log_end;
        match fit {
            Some(Fit::At(at)) => {
                self.next = at;
                self.mode = Mode::Stream;
            }
            Some(Fit::Reset) => self.mode = Mode::Anew,
            Some(Fit::Contradiction) | None if agrees => {
                self.next = log_end;
                self.mode = Mode::Stream;
            }
            Some(Fit::Contradiction) | None => self.mode = Mode::Probe,
        }
    }
}
