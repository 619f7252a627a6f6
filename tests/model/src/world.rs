//! Everything together: replicas, network, metadata, chance, and the checker that watches.

use crate::Coverage;
use crate::checker::{Checker, Violation};
use crate::message::{Body, Message};
use crate::metadata::{Granting, Slot};
use crate::mutant::Mutant;
use crate::recovery::Ending;
use crate::replica::{Replica, Role};
use crate::rng::Rng;
use crate::types::NODES;
use crate::weights::{Step, Weights};

pub(crate) struct World {
    rng: Rng,
    weights: Weights,
    slot: Slot,
    replicas: Vec<Replica>,
    network: Vec<Message>,
    checker: Checker,
    mutant: Mutant,
    next_value: u16,
}

impl World {
    pub(crate) fn new(mutant: Mutant, seed: u64) -> Self {
        let mut rng = Rng::new(seed, 0);
        let slot = Slot::new(mutant, &mut rng);
        let replicas = (0..NODES)
            .map(|node| Replica::new(node, mutant, slot.metadata))
            .collect();
        let weights = Weights::draw(seed);
        let network = Vec::new();
        let mut world = Self {
            rng,
            weights,
            slot,
            replicas,
            network,
            checker: Checker::new(),
            mutant,
            next_value: 1,
        };
        world.tell_all();
        world
    }

    pub(crate) fn violation(&self) -> Option<Violation> {
        self.checker.violation
    }

    pub(crate) fn coverage(&self) -> Coverage {
        let mut coverage = Coverage {
            committed: self.checker.committed() as u64,
            changes: self.slot.changes,
            ..Coverage::default()
        };
        for replica in &self.replicas {
            coverage.add(replica.coverage);
        }
        coverage
    }

    /// One random step, after which the checker looks.
    pub(crate) fn step(&mut self) {
        let node = self.rng.below(NODES);
        match self.weights.step(&mut self.rng) {
            Step::Append => {
                if self.replicas[node].append(self.next_value) {
                    self.next_value += 1;
                }
            }
            Step::Send => self.send(node),
            Step::Deliver => self.deliver(),
            Step::Lose => self.lose(),
            Step::Sync => self.sync(node),
            Step::Pull => self.replicas[node].pull(&mut self.network),
            Step::Grant => self.grant(),
            Step::Change => self.change(),
            Step::Restart => self.restart(node),
            Step::Wipe => self.wipe(node),
            Step::Register => self.register(node),
            Step::Evict => {
                if self.replicas[node].evict_or_resume() {
                    self.advance(node);
                }
            }
            Step::Trim => self.replicas[node].trim(),
            Step::Retain => self.propose_retention(node),
            Step::Tell => self.network.push(Message::Metadata {
                to: node,
                metadata: self.slot.metadata,
            }),
        }
        self.checker.after_step(&self.replicas, &self.slot.metadata);
    }

    fn send(&mut self, node: usize) {
        let to = self.rng.below(NODES);
        let back = self.rng.below(3);
        let replica = &self.replicas[node];
        if matches!(replica.role, Role::Recovering { .. }) {
            if replica.metadata.members().contains(to) {
                replica.ask_promise(to, &mut self.network);
            }
        } else {
            replica.send(to, back, &mut self.network);
        }
    }

    fn sync(&mut self, node: usize) {
        let replica = &mut self.replicas[node];
        replica.synced_end = replica.log.end();
        self.checker.note_held(&self.replicas);
        self.advance(node);
    }

    fn propose_retention(&mut self, node: usize) {
        let replica = &self.replicas[node];
        let Role::Leading(leading) = &replica.role else {
            return;
        };
        let through = if self.mutant == Mutant::RetentionPassesWatermark {
            replica.log.end()
        } else {
            replica.high_watermark
        };
        self.network.push(Message::Retain {
            epoch: leading.epoch,
            through,
        });
    }

    fn lose(&mut self) {
        if self.network.is_empty() {
            return;
        }
        let place = self.rng.below(self.network.len());
        if !matches!(self.network[place], Message::Metadata { .. }) {
            self.network.swap_remove(place);
        }
    }

    fn tell_all(&mut self) {
        for to in 0..NODES {
            self.network.push(Message::Metadata {
                to,
                metadata: self.slot.metadata,
            });
        }
    }

    fn grant(&mut self) {
        let mut watermarks = [0; NODES];
        for (watermark, replica) in watermarks.iter_mut().zip(&self.replicas) {
            *watermark = replica.high_watermark;
        }
        self.slot
            .grant(self.weights.keep_leader, &watermarks, &mut self.rng);
        self.tell_all();
    }

    fn change(&mut self) {
        match self.slot.change(&mut self.rng) {
            Some(Granting::NewEpoch) => self.grant(),
            Some(Granting::InPlace) => self.tell_all(),
            None => {}
        }
    }

    fn restart(&mut self, node: usize) {
        self.replicas[node].restart();
        self.after_crash(node);
    }

    fn wipe(&mut self, node: usize) {
        self.replicas[node].wipe();
        self.after_crash(node);
    }

    /// The node comes back: it registers its boots at once or later, and the slot group may grant anew.
    fn after_crash(&mut self, node: usize) {
        if self.rng.one_in(self.weights.grant_late) {
            self.register(node);
            if self.slot.metadata.current.voters.contains(node) {
                self.grant();
            }
        }
    }

    fn register(&mut self, node: usize) {
        self.slot.disk_boots[node] = self.replicas[node].disk_boot;
        self.slot.process_boots[node] = self.replicas[node].process_boot;
    }

    fn deliver(&mut self) {
        if self.network.is_empty() {
            return;
        }
        let newest = self.weights.newest_first && !self.rng.one_in(8);
        let place = if newest {
            self.network.len() - 1
        } else {
            self.rng.below(self.network.len())
        };
        let message = if self.rng.one_in(self.weights.duplicate_one_in) {
            self.network[place]
        } else {
            self.network.swap_remove(place)
        };
        match message {
            Message::Metadata { to, metadata } => {
                self.replicas[to].on_metadata(metadata, &mut self.network);
                self.advance(to);
            }
            Message::Peer {
                from,
                to,
                epoch,
                body,
            } => self.deliver_to_peer(from, to, epoch, &body),
            Message::Clear { epoch } => {
                if self.slot.clear(epoch) {
                    self.tell_all();
                }
            }
            Message::Retain { epoch, through } => {
                if self.slot.retain(epoch, through) {
                    self.tell_all();
                }
            }
        }
    }

    fn deliver_to_peer(&mut self, from: usize, to: usize, epoch: u16, body: &Body) {
        let replica = &mut self.replicas[to];
        match body {
            Body::Promise { disk_boot } => replica.on_promise(from, epoch, *disk_boot, &mut self.network),
            Body::Promised { disk_boot, report } => {
                let break_off = self.weights.break_off_one_in;
                match replica.on_promised(epoch, *disk_boot, *report, break_off, &mut self.rng) {
                    Some(Ending::Leads { epoch, log }) => {
                        self.checker.on_leader(epoch, &log);
                        self.advance(to);
                    }
                    Some(Ending::BrokeOff) => self.after_crash(to),
                    None => {}
                }
            }
            Body::Append(append) => {
                replica.on_append(from, epoch, append, &mut self.network);
                self.checker.note_held(&self.replicas);
            }
            Body::Snapshot { .. } => {
                replica.on_snapshot(from, epoch, body, &mut self.network);
                self.checker.note_held(&self.replicas);
            }
            Body::Progress(progress) => {
                replica.on_progress(from, epoch, progress);
                self.advance(to);
            }
        }
    }

    /// Lets a leader count, and shows the checker what it claims.
    fn advance(&mut self, node: usize) {
        let Some(commit) = self.replicas[node].advance() else {
            return;
        };
        self.checker
            .on_commit(&self.replicas[node], commit, &self.replicas);
        if commit.clears {
            self.network.push(Message::Clear { epoch: commit.epoch });
        }
    }

    /// The state in words: the metadata, then one line for each replica.
    pub(crate) fn describe(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "slot {:?}, {} committed",
            self.slot.metadata,
            self.checker.committed()
        )];
        for replica in &self.replicas {
            let records: Vec<String> = (replica.log.start()..replica.log.end())
                .filter_map(|offset| replica.log.record(offset))
                .map(|record| format!("{}/{}", record.epoch, record.value))
                .collect();
            lines.push(format!(
                "node {} log from {} [{}] synced {} accepted {} promised {} ({}) amnesiac {} watermark {} knows {} {:?}",
                replica.id,
                replica.log.start(),
                records.join(" "),
                replica.synced_end,
                replica.accepted,
                replica.promised,
                replica.promised_durable,
                replica.amnesiac,
                replica.high_watermark,
                replica.metadata.epoch,
                replica.role
            ));
        }
        lines
    }
}
