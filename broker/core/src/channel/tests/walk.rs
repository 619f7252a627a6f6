//! Random walks: chaos, then healing, with the checker looking after every step.

use super::Rng;
use super::slot::Slot;
use super::world::{Coverage, World};
use crate::channel::{Faults, Output};
use crate::types::{NodeId, Replica, Seq};
use std::time::Duration;

/// How often each thing happens in a walk: drawn by seed, so that walks differ (M-20).
#[derive(Clone, Debug)]
struct Weights {
    weights: Vec<usize>,
    total: usize,
    loss_one_in: usize,
    duplicate_one_in: usize,
    newest_first: bool,
    register_late: usize,
    keep_leader: usize,
    /// Disks are lost only while everyone is whole: then the channel must heal.
    gentle: bool,
}

const STEPS: [(&str, usize); 17] = [
    ("append", 12),
    ("deliver", 120),
    ("sync", 50),
    ("read", 30),
    ("time", 14),
    ("grant", 1),
    ("change", 2),
    ("crash", 1),
    ("start", 4),
    ("wipe", 1),
    ("evict", 3),
    ("retain", 2),
    ("cursor", 2),
    ("client", 4),
    ("prove", 3),
    ("tell", 4),
    ("shard", 8),
];

impl Weights {
    fn draw(rng: &mut Rng) -> Weights {
        let weights: Vec<usize> = STEPS
            .iter()
            .map(|(_, weight)| match rng.below(4) {
                0 => weight.div_ceil(3),
                1 => weight * 3,
                _ => *weight,
            })
            .collect();
        Weights {
            total: weights.iter().sum(),
            weights,
            loss_one_in: [5, 20, 100][rng.below(3)],
            duplicate_one_in: [5, 20, 100][rng.below(3)],
            newest_first: rng.one_in(3),
            register_late: 1 + rng.below(3),
            keep_leader: 2 + rng.below(3),
            gentle: !rng.one_in(4),
        }
    }

    fn step(&self, rng: &mut Rng) -> &'static str {
        let mut left = rng.below(self.total);
        for ((name, _), weight) in STEPS.iter().zip(&self.weights) {
            if left < *weight {
                return name;
            }
            left -= weight;
        }
        unreachable!("below the total")
    }
}

struct Walk {
    world: World,
    weights: Weights,
}

/// What a walk found.
pub(super) struct Found {
    pub(super) violation: Option<String>,
    pub(super) coverage: Coverage,
}

/// One walk of so many steps among so many nodes.
pub(super) fn walk(seed: u64, nodes: u16, steps: usize, faults: Faults) -> Found {
    let mut rng = Rng::new(seed);
    let shapes = [
        (3, 2),
        (3, 2),
        (3, 2),
        (1, 1),
        (2, 2),
        (3, 1),
        (3, 3),
        (5, 3),
        (4, 3),
    ];
    let (voters, min_isr) = shapes[rng.below(shapes.len())];
    let slot = Slot::new(
        nodes,
        voters.min(nodes),
        min_isr.min(u8::try_from(nodes).expect("few")),
    );
    let weights = Weights::draw(&mut rng);
    let world = World::new(seed, slot, faults);
    let mut walk = Walk { world, weights };
    walk.world.tell_all();
    for _ in 0..steps {
        walk.step();
        walk.world.check();
        if walk.world.checker.violation.is_some() {
            break;
        }
    }
    if walk.world.checker.violation.is_none() {
        walk.heal();
    }
    let mut coverage = walk.world.coverage;
    coverage.changes = walk.world.slot.changes;
    let violation = walk.world.checker.violation.take();
    Found {
        violation: violation.map(|what| format!("{what}\n{}", walk.world.describe())),
        coverage,
    }
}

impl Walk {
    fn step(&mut self) {
        let count = self.world.nodes.len();
        let node = NodeId(u16::try_from(1 + self.world.rng.below(count)).expect("few nodes"));
        match self.weights.step(&mut self.world.rng) {
            "append" => {
                let size = 1 + self.world.rng.below(3);
                let granted = self.world.slot.meta.leader.map_or(node, |leader| leader.node);
                let to = self.world.leader().unwrap_or(granted);
                self.world.activate(to);
                self.world.append(to, size);
            }
            "deliver" => self.deliver(),
            "sync" => {
                let batches = 1 + self.world.rng.below(3);
                self.world.sync(node, batches);
            }
            "read" => {
                let reads = self.world.reads(node);
                if reads > 0 {
                    let place = self.world.rng.below(reads);
                    self.world.read(node, place);
                }
            }
            "time" => self.world.pass(Duration::from_millis(400)),
            "grant" => self.grant(),
            "change" => {
                // While a lost disk is not filled again, a smaller write quorum could not be recovered from.
                if (!self.weights.gentle || self.is_whole()) && self.world.slot.change(&mut self.world.rng) {
                    self.world.tell_all();
                }
            }
            "crash" => {
                self.world.crash(node);
                self.after_crash(node);
            }
            "start" => self.world.start(node),
            "wipe" => self.wipe(node),
            "evict" => self.world.evict(node),
            "retain" => self.retain(),
            "cursor" => {
                let value = self.world.now.wall_ms;
                self.world.cursor(node, value);
                if let Some(leader) = self.world.leader() {
                    self.world.fix(leader);
                }
            }
            "client" => {
                let from = Seq(self.world.rng.next() % 20);
                self.world.read_as_client(node, from);
            }
            "prove" => self.world.prove(node),
            "tell" => self.world.tell(node),
            "shard" => self.hear(),
            other => unreachable!("{other}"),
        }
    }

    fn deliver(&mut self) {
        if self.world.network.is_empty() {
            return;
        }
        let newest = self.weights.newest_first && !self.world.rng.one_in(8);
        let last = self.world.network.len() - 1;
        let place = if newest {
            last
        } else {
            self.world.rng.below(last + 1)
        };
        if self.world.rng.one_in(self.weights.duplicate_one_in) {
            let packet = self.world.network[place].clone();
            self.world.deliver(packet);
        } else {
            let packet = self.world.network.swap_remove(place);
            if !self.world.rng.one_in(self.weights.loss_one_in) {
                self.world.deliver(packet);
            }
        }
    }

    fn grant(&mut self) {
        self.world
            .slot
            .grant_any(self.weights.keep_leader, &mut self.world.rng);
        self.world.tell_all();
    }

    fn after_crash(&mut self, node: NodeId) {
        if self.world.rng.one_in(2) {
            self.world.start(node);
        }
        if self.world.rng.one_in(self.weights.register_late) {
            self.world.register(node);
            if self.world.slot.meta.voters.contains(node) {
                self.grant();
            }
        }
    }

    /// A disk is lost. In a gentle walk only while every replica has accepted the epoch and has every committed record.
    fn wipe(&mut self, node: NodeId) {
        let meta = &self.world.slot.meta;
        let sets = || std::iter::once(&meta.voters).chain(&meta.previous);
        let spare = sets().all(|set| {
            let voters = set.isr.len();
            let write = usize::from(set.min_isr);
            write > 1 && voters > write
        });
        if self.weights.gentle && !(spare && self.is_whole() && meta.previous.is_none()) {
            return;
        }
        self.world.wipe(node);
        if self.weights.gentle {
            self.world.start(node);
            self.world.register(node);
            self.grant();
        } else {
            self.after_crash(node);
        }
    }

    /// Every replica has accepted the epoch, on the disk that is named, and has every committed record.
    fn is_whole(&self) -> bool {
        let meta = &self.world.slot.meta;
        meta.replicas().iter().all(|replica| {
            let entry = self.world.node(replica.node);
            let state = entry.disk.durable.state().unwrap_or_default();
            entry.boots.disk == replica.disk
                && state.accepted == meta.leader_epoch
                && entry.disk.durable.log_end() > self.world.checker.committed_end()
        })
    }

    fn retain(&mut self) {
        let end = self.world.checker.committed_end().0;
        if end > 0 {
            let through = Seq(1 + self.world.rng.next() % end);
            if self.world.slot.retain(through) {
                self.world.tell_all();
            }
        }
    }

    /// The shard hands on one thing that a replica told.
    fn hear(&mut self) {
        if self.world.told.is_empty() {
            return;
        }
        let place = self.world.rng.below(self.world.told.len());
        let (node, output) = self.world.told.swap_remove(place);
        self.act_on(node, output);
    }

    fn act_on(&mut self, node: NodeId, output: Output) {
        let world = &mut self.world;
        let changed = match output {
            Output::NeedMeta { version } => {
                if version < world.slot.meta.version {
                    world.tell(node);
                }
                false
            }
            Output::VoterChangeDone { version, .. } => world.slot.clear(version),
            Output::CaughtUp {
                learner,
                leader_epoch,
            } => world.slot.caught_up(learner, leader_epoch, &mut world.rng),
            Output::NeedEpoch { epoch } if world.slot.meta.leader_epoch < epoch => {
                world.slot.grant_any(1, &mut world.rng);
                true
            }
            _ => false,
        };
        if changed {
            world.tell_all();
        }
    }

    /// Nothing fails any more: the channel must come back, take appends, and bring everyone to the same log.
    fn heal(&mut self) {
        for node in self.world.nodes.keys().copied().collect::<Vec<_>>() {
            self.world.start(node);
            self.world.register(node);
        }
        // A disk that no grant names yet is granted anew at the channel's first use (M-4).
        let world = &self.world;
        let other_disk = |replica: &Replica| world.node(replica.node).boots.disk != replica.disk;
        if world.slot.meta.replicas().iter().any(other_disk) {
            self.grant();
        }
        // Metadata that were lost on their way are told again.
        self.world.tell_all();
        let mut appended = false;
        for round in 0..400 {
            self.world.settle();
            for (node, output) in std::mem::take(&mut self.world.told) {
                self.act_on(node, output);
            }
            if round % 40 == 0 && self.world.leader().is_none() {
                self.grant();
            }
            if let Some(leader) = self.world.slot.meta.leader {
                self.world.activate(leader.node);
            }
            self.world.settle();
            if self.world.checker.violation.is_some() {
                return;
            }
            if let Some(leader) = self.world.leader()
                && round >= 200
                && !appended
            {
                self.world.append(leader, 2);
                appended = true;
            }
            if !(appended && round < 210) {
                self.world.pass(Duration::from_secs(1));
            }
        }
        if !appended || self.world.leader().is_none() && !self.evicted_leader() {
            if self.weights.gentle {
                self.world
                    .checker
                    .violated("nobody leads after healing".to_owned());
            }
            return;
        }
        self.world.check_end();
    }

    fn evicted_leader(&self) -> bool {
        let meta = &self.world.slot.meta;
        meta.leader.is_some_and(|leader| {
            let entry = self.world.node(leader.node);
            let state = entry.disk.durable.state().unwrap_or_default();
            entry.replica.is_none() && state.accepted == meta.leader_epoch
        })
    }
}

/// Walks until one is violated.
pub(super) fn walks(
    seeds: std::ops::Range<u64>,
    nodes: u16,
    faults: Faults,
) -> (Option<(u64, String)>, Coverage) {
    let mut sum = Coverage::default();
    for seed in seeds {
        let found = walk(seed, nodes, 1_500, faults);
        sum.add(found.coverage);
        if let Some(violation) = found.violation {
            return (Some((seed, violation)), sum);
        }
    }
    (None, sum)
}

impl Coverage {
    fn add(&mut self, other: Coverage) {
        self.committed += other.committed;
        self.failovers += other.failovers;
        self.truncations += other.truncations;
        self.resets += other.resets;
        self.evictions += other.evictions;
        self.resumptions += other.resumptions;
        self.changes += other.changes;
        self.misses += other.misses;
        self.wipes += other.wipes;
        self.barriers += other.barriers;
        self.reads += other.reads;
        self.alarms += other.alarms;
        self.damages += other.damages;
        self.fixes += other.fixes;
    }
}

#[test]
fn three_replicas_keep_every_acknowledged_record() {
    let (found, coverage) = walks(0..150, 3, Faults::default());
    assert_eq!(found, None, "{coverage:?}");
    assert!(coverage.committed > 1_000, "{coverage:?}");
    assert!(
        coverage.failovers > 150 && coverage.truncations > 10,
        "{coverage:?}"
    );
    assert_eq!(coverage.alarms, 0, "{coverage:?}");
}

#[test]
fn five_nodes_change_voters_and_keep_every_acknowledged_record() {
    let (found, coverage) = walks(10_000..10_100, 5, Faults::default());
    assert_eq!(found, None, "{coverage:?}");
    let met = [
        coverage.changes,
        coverage.resets,
        coverage.evictions,
        coverage.resumptions,
        coverage.wipes,
        coverage.barriers,
        coverage.misses,
        coverage.reads,
    ];
    assert!(met.iter().all(|count| *count > 0), "{coverage:?}");
    assert_eq!(coverage.alarms, 0, "{coverage:?}");
}
