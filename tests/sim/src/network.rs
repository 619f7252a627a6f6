//! The network between nodes: latency, loss, repetition, reordering, partitions of every shape, clogged links. Between
//! the shards of a node nothing is ever lost.

use crate::rng::{Rng, Stream};
use std::time::Duration;

/// How the links of a run behave while nothing worse is done to them.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// Half of all messages are faster than this.
    pub latency: Duration,
    /// Lost messages of 1,000.
    pub loss_permille: u32,
    /// Repeated messages of 1,000.
    pub duplicate_permille: u32,
    /// Messages of 1,000 that are held back, so that later ones overtake them.
    pub reorder_permille: u32,
    /// Messages between replicas, of 1,000, of which a copy arrives once more when much has happened since (R3).
    pub late_permille: u32,
}

/// What kind of message it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Between replicas of a channel log.
    Log,
    /// Between replicas of a group.
    Group,
    /// A request to another node, or its reply.
    Call,
    /// Anything else.
    Other,
}

/// Shapes of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partition {
    /// One node hears nobody and is heard by nobody.
    Isolate,
    /// One direction of one pair is cut.
    OneWay,
    /// Nobody hears one node, which hears all.
    Mute,
    /// Two sides.
    Halves,
    /// Every node hears its neighbours in a circle only (with three nodes: one pair is cut).
    Ring,
}

/// Every shape.
pub const PARTITIONS: &[Partition] = &[
    Partition::Isolate,
    Partition::OneWay,
    Partition::Mute,
    Partition::Halves,
    Partition::Ring,
];

/// The links between `nodes` nodes, numbered from 0.
#[derive(Debug)]
pub struct Network {
    nodes: usize,
    conditions: Conditions,
    calm: Conditions,
    cut: Vec<bool>,
    clogged_until: Vec<Duration>,
    /// By link: until when no request and no reply passes.
    calls_muted_until: Vec<Duration>,
    /// By node: until when nothing comes to it or from it.
    muted_until: Vec<Duration>,
    /// By node: until when that is so for the messages of channel logs.
    logs_muted_until: Vec<Duration>,
    rng: Rng,
    /// Messages that were lost to chance or to a cut.
    pub lost: u64,
    /// Messages that were delivered twice.
    pub duplicated: u64,
    /// Messages that were held back.
    pub reordered: u64,
}

impl Network {
    /// Whole links under these conditions.
    #[must_use]
    pub fn new(seed: u64, nodes: usize, conditions: Conditions) -> Network {
        let calm = Conditions {
            loss_permille: 0,
            duplicate_permille: 0,
            reorder_permille: 0,
            late_permille: 0,
            ..conditions
        };
        Network {
            nodes,
            conditions,
            calm,
            cut: vec![false; nodes * nodes],
            clogged_until: vec![Duration::ZERO; nodes * nodes],
            calls_muted_until: vec![Duration::ZERO; nodes * nodes],
            muted_until: vec![Duration::ZERO; nodes],
            logs_muted_until: vec![Duration::ZERO; nodes],
            rng: Rng::new(seed, Stream::Network),
            lost: 0,
            duplicated: 0,
            reordered: 0,
        }
    }

    fn link(&self, from: usize, to: usize) -> usize {
        from * self.nodes + to
    }

    /// When a message sent at `now` arrives: never, once or twice.
    pub fn arrivals(&mut self, now: Duration, from: usize, to: usize, class: Class) -> [Option<Duration>; 2] {
        let link = self.link(from, to);
        let muted = |until: &[Duration]| until[from].max(until[to]) > now;
        let cut = self.cut[link]
            || muted(&self.muted_until)
            || (class == Class::Log && muted(&self.logs_muted_until))
            || (class == Class::Call && self.calls_muted_until[link] > now);
        if cut || self.rng.permille(self.conditions.loss_permille) {
            self.lost += 1;
            return [None, None];
        }
        let start = now.max(self.clogged_until[link]);
        let first = start + self.transit();
        let second = self.rng.permille(self.conditions.duplicate_permille).then(|| {
            self.duplicated += 1;
            start + self.transit() + self.transit()
        });
        let late = matches!(class, Class::Log | Class::Group) && self.conditions.late_permille > 0;
        if late && second.is_none() && self.rng.permille(self.conditions.late_permille) {
            self.duplicated += 1;
            let later = self.rng.time(Duration::from_millis(20), Duration::from_secs(2));
            return [Some(first), Some(start + later)];
        }
        [Some(first), second]
    }

    /// Nothing comes to this node or from it until then.
    pub fn mute(&mut self, node: usize, until: Duration) {
        self.muted_until[node] = until;
    }

    /// No request and no reply passes between these two until then.
    pub fn mute_calls(&mut self, one: usize, other: usize, until: Duration) {
        for link in [self.link(one, other), self.link(other, one)] {
            self.calls_muted_until[link] = until;
        }
    }

    /// No message of a channel log comes to this node or from it until then.
    pub fn mute_logs(&mut self, node: usize, until: Duration) {
        self.logs_muted_until[node] = until;
    }

    fn transit(&mut self) -> Duration {
        let usual = self.rng.tailed(self.conditions.latency);
        if self.rng.permille(self.conditions.reorder_permille) {
            self.reordered += 1;
            usual + self.rng.tailed(self.conditions.latency * 20)
        } else {
            usual
        }
    }

    /// Cuts links in this shape, on top of what is cut already.
    pub fn partition(&mut self, shape: Partition) {
        let one = self.rng.index(self.nodes);
        let other = (one + 1 + self.rng.index(self.nodes.saturating_sub(1).max(1))) % self.nodes;
        let sides: Vec<bool> = (0..self.nodes).map(|_| self.rng.permille(500)).collect();
        for from in 0..self.nodes {
            for to in 0..self.nodes {
                let distance = (from + self.nodes - to) % self.nodes;
                let cut = match shape {
                    Partition::Isolate => from == one || to == one,
                    Partition::OneWay => from == one && to == other,
                    Partition::Mute => from == one,
                    Partition::Halves => sides[from] != sides[to],
                    Partition::Ring if self.nodes <= 3 => {
                        (from.min(to), from.max(to)) == (one.min(other), one.max(other))
                    }
                    Partition::Ring => distance != 1 && distance != self.nodes - 1,
                };
                if cut && from != to {
                    let link = self.link(from, to);
                    self.cut[link] = true;
                }
            }
        }
    }

    /// Holds everything on one link back until then.
    pub fn clog(&mut self, until: Duration) {
        let link = self.rng.index(self.nodes * self.nodes);
        self.clogged_until[link] = until;
    }

    /// Makes every cut link whole; chance stays as it is.
    pub fn mend(&mut self) {
        self.cut.fill(false);
    }

    /// Ends all trouble: whole links that lose, repeat and hold back nothing.
    pub fn heal(&mut self) {
        self.mend();
        self.clogged_until.fill(Duration::ZERO);
        self.calls_muted_until.fill(Duration::ZERO);
        self.muted_until.fill(Duration::ZERO);
        self.logs_muted_until.fill(Duration::ZERO);
        self.conditions = self.calm;
    }

    /// Whether a message from one node reaches the other, chance aside.
    #[must_use]
    pub fn connected(&self, from: usize, to: usize) -> bool {
        from == to || !self.cut[self.link(from, to)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rough() -> Conditions {
        Conditions {
            latency: Duration::from_micros(300),
            loss_permille: 100,
            duplicate_permille: 100,
            reorder_permille: 100,
            late_permille: 0,
        }
    }

    #[test]
    fn loses_repeats_and_reorders() {
        let mut network = Network::new(3, 3, rough());
        let mut overtaken = 0;
        let mut latest = Duration::ZERO;
        for step in 0..2_000 {
            let [first, second] = network.arrivals(Duration::from_millis(step), 0, 1, Class::Other);
            overtaken += u32::from(first.is_some_and(|time| time < latest));
            latest = latest.max(first.unwrap_or_default());
            assert!(first.is_some() || second.is_none());
        }
        assert!((100..400).contains(&network.lost), "{}", network.lost);
        assert!(network.duplicated > 100 && network.reordered > 100 && overtaken > 0);
        network.heal();
        let lost = network.lost;
        assert!((0..1_000).all(|_| network.arrivals(Duration::ZERO, 0, 2, Class::Other)[0].is_some()));
        assert_eq!(network.lost, lost);
    }

    #[test]
    fn partitions_cut_what_they_say_and_heal() {
        for &shape in PARTITIONS {
            let mut network = Network::new(9, 5, rough());
            // Halves may draw an empty side; a few draws never do.
            for _ in 0..8 {
                network.partition(shape);
            }
            let cut = (0..5)
                .flat_map(|from| (0..5).map(move |to| (from, to)))
                .filter(|&(from, to)| !network.connected(from, to));
            assert!(cut.count() > 0, "{shape:?}");
            network.mend();
            assert!((0..5).all(|node| network.connected(0, node)));
        }
    }

    #[test]
    fn a_muted_node_is_cut_off_for_a_while_and_a_late_copy_comes_much_later() {
        let mut network = Network::new(5, 3, rough());
        network.heal();
        let second = Duration::from_secs(1);
        network.mute_logs(1, second);
        assert_eq!(network.arrivals(Duration::ZERO, 0, 1, Class::Log), [None, None]);
        assert!(network.arrivals(Duration::ZERO, 0, 1, Class::Group)[0].is_some());
        network.mute(1, second);
        assert_eq!(network.arrivals(Duration::ZERO, 1, 2, Class::Other), [None, None]);
        assert!(network.arrivals(second, 1, 2, Class::Other)[0].is_some());
        network.mute_calls(0, 2, second * 2);
        assert_eq!(network.arrivals(second, 2, 0, Class::Call), [None, None]);
        assert!(network.arrivals(second, 2, 0, Class::Other)[0].is_some());
        assert!(network.arrivals(second, 1, 0, Class::Call)[0].is_some());
        network.conditions.late_permille = 1_000;
        let [first, late] = network.arrivals(second, 0, 1, Class::Log);
        assert!(late > first);
    }

    #[test]
    fn a_clogged_link_delivers_late() {
        let mut network = Network::new(5, 1, rough());
        network.heal();
        network.clog(Duration::from_secs(1));
        assert!(
            network.arrivals(Duration::ZERO, 0, 0, Class::Other)[0]
                .is_some_and(|time| time > Duration::from_secs(1))
        );
    }
}
