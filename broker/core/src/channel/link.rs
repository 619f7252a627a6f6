//! Messages of many channels share one exchange per pair of nodes, under a byte credit (CH-12, M-2).
//!
//! Small messages always go at once. Records wait while the peer has not confirmed what was sent; updates of the high watermark alone
//! wait for an interval and replace each other. What is lost is asked again by the replicas, so that a link forgets it.

use super::{Body, Message};
use crate::limits::Limits;
use crate::types::{ChannelKey, NodeId, Now, ProcessBoot};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// What one node sends to another in one turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The sender's process: its counters begin anew with it.
    pub session: ProcessBoot,
    /// Bytes sent to this peer so far, this exchange included.
    pub sent_bytes: u64,
    /// The receiver's process as known, and how many of its bytes have come.
    pub confirmed: (ProcessBoot, u64),
    /// The messages, in order.
    pub messages: Vec<(ChannelKey, Message)>,
}

/// All links of one shard.
pub struct Link {
    session: ProcessBoot,
    limits: Arc<Limits>,
    peers: BTreeMap<NodeId, LinkPeer>,
}

#[derive(Default)]
struct LinkPeer {
    urgent: Vec<(ChannelKey, Message)>,
    bulk: VecDeque<(ChannelKey, Message)>,
    watermarks: BTreeMap<ChannelKey, Message>,
    watermarks_at: Option<Duration>,
    sent: u64,
    confirmed: u64,
    /// When the credit last moved: silence after that counts as loss.
    moved_at: Duration,
    their_session: ProcessBoot,
    received: u64,
    reported: u64,
}

impl Link {
    /// Links of this process.
    #[must_use]
    pub fn new(session: ProcessBoot, limits: Arc<Limits>) -> Link {
        Link {
            session,
            limits,
            peers: BTreeMap::new(),
        }
    }

    /// Takes a message; [`Link::release`] hands it out.
    pub fn push(&mut self, now: Now, to: NodeId, channel: ChannelKey, message: Message) {
        let interval = self.limits.high_watermark_interval;
        let peer = self.peers.entry(to).or_default();
        if message.is_watermark_only() {
            peer.watermarks.insert(channel, message);
            peer.watermarks_at.get_or_insert_with(|| now.after(interval));
            return;
        }
        if matches!(message.body, Body::Replicate(_)) {
            // It carries a high watermark that is at least as new.
            peer.watermarks.remove(&channel);
        }
        if message.is_bulk() {
            peer.bulk.push_back((channel, message));
        } else {
            peer.urgent.push((channel, message));
        }
    }

    /// Hands out what may go now: at most one exchange per peer.
    pub fn release(&mut self, now: Now, out: &mut Vec<(NodeId, Exchange)>) {
        let credit = self.limits.link_credit_bytes as u64;
        let patience = self.limits.channel_retry * 4;
        for (node, peer) in &mut self.peers {
            let messages = peer.take(now, credit, patience);
            let owes = peer.received - peer.reported > credit / 4;
            if messages.is_empty() && !owes {
                continue;
            }
            peer.reported = peer.received;
            let exchange = Exchange {
                session: self.session,
                sent_bytes: peer.sent,
                confirmed: (peer.their_session, peer.received),
                messages,
            };
            out.push((*node, exchange));
        }
    }

    /// Takes the peer's counters and hands out its messages.
    pub fn receive(&mut self, now: Now, from: NodeId, exchange: Exchange) -> Vec<(ChannelKey, Message)> {
        let session = self.session;
        let peer = self.peers.entry(from).or_default();
        if exchange.session != peer.their_session {
            peer.their_session = exchange.session;
            peer.received = 0;
            peer.reported = 0;
            // What an earlier process of the peer has not confirmed is lost.
            peer.confirmed = peer.sent;
        }
        peer.received = peer.received.max(exchange.sent_bytes);
        let (confirmed_session, confirmed) = exchange.confirmed;
        if confirmed_session == session && confirmed > peer.confirmed {
            peer.confirmed = confirmed.min(peer.sent);
            peer.moved_at = now.monotonic;
        }
        exchange.messages
    }

    /// The node is gone: what waits for it is forgotten.
    pub fn forget(&mut self, node: NodeId) {
        self.peers.remove(&node);
    }

    /// When `release` is wanted at the latest, although nothing was pushed.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        let patience = self.limits.channel_retry * 4;
        self.peers
            .values()
            .flat_map(|peer| {
                let stuck = (!peer.bulk.is_empty()).then(|| peer.moved_at + patience);
                [stuck, peer.watermarks_at]
            })
            .flatten()
            .min()
    }

    /// Whether nothing waits in it.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.peers
            .values()
            .all(|peer| peer.urgent.is_empty() && peer.bulk.is_empty() && peer.watermarks_at.is_none())
    }

    /// Bytes on their way to the node, as far as known.
    #[must_use]
    pub fn in_flight_bytes(&self, node: NodeId) -> u64 {
        self.peers.get(&node).map_or(0, |peer| peer.sent - peer.confirmed)
    }
}

impl LinkPeer {
    fn take(&mut self, now: Now, credit: u64, patience: Duration) -> Vec<(ChannelKey, Message)> {
        let mut messages = std::mem::take(&mut self.urgent);
        for (_, message) in &messages {
            self.sent += message.cost_bytes() as u64;
        }
        let in_flight = self.sent - self.confirmed;
        if in_flight >= credit && !self.bulk.is_empty() && now.monotonic >= self.moved_at + patience {
            // Nothing was confirmed for long: the exchanges or their answers are lost.
            self.confirmed = self.sent;
        }
        while !self.bulk.is_empty() && self.sent - self.confirmed < credit {
            if let Some((channel, message)) = self.bulk.pop_front() {
                if self.sent == self.confirmed {
                    self.moved_at = now.monotonic;
                }
                self.sent += message.cost_bytes() as u64;
                messages.push((channel, message));
            }
        }
        if self.watermarks_at.is_some_and(|at| at <= now.monotonic) {
            self.watermarks_at = None;
            for (channel, message) in std::mem::take(&mut self.watermarks) {
                self.sent += message.cost_bytes() as u64;
                messages.push((channel, message));
            }
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Progress, Replicate};
    use super::*;
    use crate::message::Record;
    use crate::types::{Boots, ChannelKind, DiskBoot, Incarnation, LeaderEpoch, MessageId, Seq};
    use bytes::Bytes;

    fn limits() -> Arc<Limits> {
        Arc::new(Limits {
            link_credit_bytes: 1_000,
            ..Limits::default()
        })
    }

    fn now(ms: u64) -> Now {
        Now {
            monotonic: Duration::from_millis(ms),
            wall_ms: ms,
        }
    }

    fn message(body: Body) -> Message {
        Message {
            incarnation: Incarnation(1),
            leader_epoch: LeaderEpoch(1),
            boots: Boots::default(),
            body,
        }
    }

    fn replicate(records: usize, high_watermark: u64, answer: bool) -> Message {
        let records = (0..records)
            .map(|place| {
                Record {
                    seq: Seq(1 + place as u64),
                    leader_epoch: LeaderEpoch(1),
                    stamp_ms: 0,
                    id: MessageId(1),
                    key: None,
                    body: Bytes::from(vec![0; 500]),
                    crc: 0,
                }
                .sealed()
            })
            .collect();
        message(Body::Replicate(Replicate {
            disk: DiskBoot(1),
            epoch_start: Seq(1),
            first: Seq(1),
            previous_epoch: LeaderEpoch(0),
            records,
            high_watermark: Seq(high_watermark),
            cursors: Vec::new(),
            cursor_mark: 0,
            answer,
        }))
    }

    fn progress() -> Message {
        message(Body::Progress(Progress {
            accepted: LeaderEpoch(1),
            log_end: Seq(1),
            log_start: Seq(1),
            last_epoch: LeaderEpoch(0),
            conflict: None,
            cursor_mark: 0,
        }))
    }

    fn channel(name: &str) -> ChannelKey {
        ChannelKey::new(name, ChannelKind::GROUP)
    }

    fn release(link: &mut Link, ms: u64) -> Vec<(NodeId, Exchange)> {
        let mut out = Vec::new();
        link.release(now(ms), &mut out);
        out
    }

    const PEER: NodeId = NodeId(2);
    const SELF: NodeId = NodeId(1);

    #[test]
    fn records_wait_for_credit_and_small_messages_do_not() {
        let mut here = Link::new(ProcessBoot(10), limits());
        let mut there = Link::new(ProcessBoot(20), limits());
        for name in ["a", "b", "c", "d"] {
            here.push(now(0), PEER, channel(name), replicate(1, 0, true));
        }
        let first = release(&mut here, 0).remove(0).1;
        assert_eq!(
            first.messages.len(),
            2,
            "two records of 612 bytes pass a credit of 1,000"
        );
        here.push(now(1), PEER, channel("e"), progress());
        let second = release(&mut here, 1).remove(0).1;
        assert_eq!(second.messages.len(), 1);
        assert!(matches!(second.messages[0].1.body, Body::Progress(_)));
        // The other side owes a confirmation of more than a quarter of the credit, and gives it unasked.
        assert_eq!(there.receive(now(2), SELF, first).len(), 2);
        assert_eq!(there.receive(now(2), SELF, second).len(), 1);
        let answer = release(&mut there, 2).remove(0).1;
        assert!(answer.messages.is_empty());
        here.receive(now(3), PEER, answer);
        assert_eq!(here.in_flight_bytes(PEER), 0);
        assert_eq!(release(&mut here, 3).remove(0).1.messages.len(), 2);
    }

    #[test]
    fn lost_exchanges_do_not_take_the_credit_for_ever() {
        let mut here = Link::new(ProcessBoot(10), limits());
        for name in ["a", "b", "c"] {
            here.push(now(0), PEER, channel(name), replicate(1, 0, true));
        }
        assert_eq!(release(&mut here, 0).remove(0).1.messages.len(), 2);
        assert!(release(&mut here, 500).is_empty());
        let deadline = here.next_deadline().expect("records wait");
        assert_eq!(deadline, Duration::from_secs(1));
        assert_eq!(release(&mut here, 1_000).remove(0).1.messages.len(), 1);
    }

    #[test]
    fn high_watermarks_coalesce_and_ride_with_records() {
        let mut here = Link::new(ProcessBoot(10), limits());
        for high_watermark in 1..=5 {
            here.push(now(0), PEER, channel("a"), replicate(0, high_watermark, false));
        }
        here.push(now(1), PEER, channel("b"), replicate(0, 9, false));
        assert!(release(&mut here, 1).is_empty());
        assert_eq!(here.next_deadline(), Some(Duration::from_millis(50)));
        here.push(now(2), PEER, channel("b"), replicate(1, 10, true));
        assert_eq!(release(&mut here, 2).remove(0).1.messages.len(), 1);
        let late = release(&mut here, 50).remove(0).1;
        assert_eq!(late.messages.len(), 1);
        assert!(matches!(&late.messages[0].1.body,
            Body::Replicate(replicate) if replicate.high_watermark == Seq(5)));
        assert_eq!(here.next_deadline(), None);
    }

    #[test]
    fn a_restarted_peer_confirms_nothing_of_the_past() {
        let mut here = Link::new(ProcessBoot(10), limits());
        here.push(now(0), PEER, channel("a"), replicate(3, 0, true));
        release(&mut here, 0);
        let stale = Exchange {
            session: ProcessBoot(20),
            sent_bytes: 5,
            confirmed: (ProcessBoot(9), 1_000_000),
            messages: Vec::new(),
        };
        here.receive(now(1), PEER, stale);
        assert_eq!(
            here.in_flight_bytes(PEER),
            0,
            "a new process has nothing of ours in flight"
        );
        here.push(now(2), PEER, channel("a"), replicate(1, 0, true));
        release(&mut here, 2);
        let stale = Exchange {
            session: ProcessBoot(20),
            sent_bytes: 5,
            confirmed: (ProcessBoot(9), 1_000_000),
            messages: Vec::new(),
        };
        here.receive(now(3), PEER, stale);
        assert!(
            here.in_flight_bytes(PEER) > 0,
            "what another process of ours sent does not count"
        );
    }
}
