//! Faults happen here.

use super::{Happening, State, World};
use crate::faults::Fault;
use crate::network::PARTITIONS;
use penstock_core::effect::Event;
use penstock_core::rows::Instance;
use penstock_core::types::DiskBoot;
use std::time::Duration;

const MOMENT: Duration = Duration::from_millis(100);

/// How much of what was not synced a power cut takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// Any part of it.
    Even,
    /// The last batch.
    Last,
    /// All of it.
    All,
}

impl World {
    /// The next fault of the run, and the time of the one after it.
    pub(super) fn inject(&mut self) {
        if self.phase != super::phases::Phase::Chaos {
            return;
        }
        if let Some(fault) = self.faults.draw() {
            self.mix(fault as u64 + 1_000);
            self.happens(fault);
        }
        let next = self.now + self.faults.interval();
        self.agenda.put(next, Happening::Fault);
    }

    fn happens(&mut self, fault: Fault) {
        if self.trace {
            eprintln!("{:>12.6} fault: {fault:?}", self.now.as_secs_f64());
        }
        match fault {
            Fault::Crash => self.crash_some(1),
            Fault::CrashAll => self.crash_some(self.nodes.len()),
            Fault::Pause => self.pause(),
            Fault::Partition => {
                let shape = self.faults.rng.pick(PARTITIONS);
                self.network.partition(shape);
                self.coverage.fault("partition", 1);
            }
            Fault::Mend => self.network.mend(),
            Fault::Clog => {
                let until = self.now + self.faults.rng.time(MOMENT, MOMENT * 30);
                self.network.clog(until);
                self.coverage.fault("clogged link", 1);
            }
            Fault::ClockJump => self.jump_clock(),
            Fault::SyncError => {
                let node = self.faults.rng.index(self.nodes.len());
                let instance = self.faults.rng.pick(&[Instance::Meta, Instance::Data]);
                let nth = self.faults.rng.between(1, 4);
                self.nodes[node].disk.fail_sync(instance, nth);
            }
            Fault::DiskFull => {
                let node = self.faults.rng.index(self.nodes.len());
                let full = self.nodes[node].state != State::Down;
                self.nodes[node].disk.set_full(full);
            }
            Fault::LowSpace => self.lower_space(),
            Fault::Wipe | Fault::BitFlip => self.lose_disk(fault),
            Fault::SlowDisk => {
                let node = self.faults.rng.index(self.nodes.len());
                self.nodes[node].slow_until = self.now + self.faults.rng.time(MOMENT, MOMENT * 50);
                self.coverage.fault("slow disk", 1);
            }
            Fault::SlowShard => self.slow_shard(),
            Fault::Disconnect => self.break_one(),
            Fault::Ambush => self.lay_ambush(),
            Fault::MoveLeader => self.move_leader(),
            Fault::ChangeVoters => self.change_voters(),
            Fault::Flood => self.flood(),
            Fault::DeafClient => {
                let until = self.now + self.faults.rng.time(MOMENT * 10, MOMENT * 100);
                self.clients.deafen(until);
                self.coverage.fault("deaf client", 1);
            }
        }
    }

    fn up(&self) -> Vec<usize> {
        (0..self.nodes.len())
            .filter(|&node| self.nodes[node].state != State::Down)
            .collect()
    }

    fn crash_some(&mut self, count: usize) {
        let up = self.up();
        if up.is_empty() {
            return;
        }
        let victims = if count == 1 {
            vec![self.faults.rng.pick(&up)]
        } else {
            up
        };
        for node in victims {
            self.coverage.fault("crash", 1);
            self.crash(node, None);
        }
    }

    /// The process of a node ends; what was not synced is lost in part. It starts again after a while.
    pub(super) fn crash(&mut self, node: usize, back_after: Option<Duration>) {
        self.crash_losing(node, back_after, Loss::Even);
    }

    pub(super) fn crash_losing(&mut self, node: usize, back_after: Option<Duration>, loss: Loss) {
        if self.nodes[node].state == State::Down {
            return;
        }
        let salt = self.loss_rng.draw();
        self.mix(salt);
        self.count_process(node);
        let victim = &mut self.nodes[node];
        victim.state = State::Down;
        victim.life += 1;
        victim.hosts.clear();
        victim.held.clear();
        victim.syncers = Default::default();
        let losses = &mut self.loss_rng;
        victim.disk.crash(|_, unsynced| {
            let even = losses.index(unsynced + 1);
            match loss {
                Loss::Even => even,
                Loss::Last => unsynced.saturating_sub(1),
                Loss::All => 0,
            }
        });
        // Somebody made room.
        victim.disk.set_full(false);
        self.invariants.crashed(node);
        self.oracle.judged.ended(node);
        self.oracle.entries.ended(node);
        self.oracle.suspended.ended(node);
        self.break_connections(node);
        let usual = self.faults.rng.time(MOMENT, MOMENT * 40);
        let at = self.now + back_after.unwrap_or(usual);
        self.agenda.put(at, Happening::Start(node));
    }

    /// The driver tells every shard of a node that its disk is nearly full, and later that there is room.
    fn lower_space(&mut self) {
        let node = self.faults.rng.index(self.nodes.len());
        let until = self.now + self.faults.rng.time(MOMENT, MOMENT * 40);
        for (at, low) in [(self.now, true), (until, false)] {
            for shard in 0..self.settings.shards {
                self.arrive_at(at, node, shard, Event::Space { low });
            }
        }
        self.coverage.fault("low space", 1);
    }

    fn lose_disk(&mut self, fault: Fault) {
        let up = self.up();
        if up.len() < self.nodes.len() || !self.faults.may_lose_disk() {
            return;
        }
        let node = self.faults.rng.pick(&up);
        let salt = self.loss_rng.draw();
        if fault == Fault::BitFlip {
            // Found by its checksum when it is read; the replica withdraws and fetches its log again (R30).
            let flipped = self.nodes[node].disk.flip_record_bit(salt);
            self.coverage.fault("flipped bit", u64::from(flipped));
            self.invariants.damaged(node, false);
            return;
        }
        self.crash(node, None);
        self.coverage.fault("lost disk", 1);
        let victim = &mut self.nodes[node];
        match victim.earlier.take() {
            // The planted bug: an old state of the log is opened as if nothing were missing (M-8).
            Some(earlier) if self.driver.trusts_damaged_log => victim.disk = earlier,
            _ if self.driver.keeps_disk_boot => {
                let boot = victim.disk.boot();
                victim.disk.wipe(boot);
            }
            _ => victim.disk.wipe(DiskBoot(salt)),
        }
        let is_planted = self.driver.trusts_damaged_log || self.driver.keeps_disk_boot;
        if !is_planted {
            self.invariants.damaged(node, true);
        }
    }

    fn pause(&mut self) {
        let up: Vec<usize> = self.up();
        if up.is_empty() {
            return;
        }
        let node = self.faults.rng.pick(&up);
        if self.nodes[node].state != State::Running {
            return;
        }
        self.coverage.fault("pause", 1);
        self.nodes[node].state = State::Paused;
        let life = self.nodes[node].life;
        let at = self.now + self.faults.rng.time(MOMENT, MOMENT * 100);
        self.agenda.put(at, Happening::Resume { node, life });
    }

    /// A paused process goes on: everything that waited happens now, in order.
    pub(super) fn resume(&mut self, node: usize, life: u32) {
        let paused = &mut self.nodes[node];
        if paused.life != life || paused.state != State::Paused {
            return;
        }
        paused.state = State::Running;
        for happening in std::mem::take(&mut paused.held) {
            self.agenda.put(self.now, happening);
        }
    }

    fn jump_clock(&mut self) {
        let node = self.faults.rng.index(self.nodes.len());
        let most = u64::try_from(self.settings.clock_jump.as_millis()).unwrap_or(0);
        let jump = i64::try_from(self.faults.rng.below(most * 2 + 1)).unwrap_or(0);
        let most = i64::try_from(most).unwrap_or(0);
        let clock = &mut self.nodes[node].clock;
        clock.wall_offset_ms = (clock.wall_offset_ms + jump - most).clamp(-most, most);
        self.coverage.fault("clock jump", 1);
    }

    fn slow_shard(&mut self) {
        let up = self.up();
        if up.is_empty() {
            return;
        }
        let node = self.faults.rng.pick(&up);
        let shard = self.faults.rng.index(usize::from(self.settings.shards));
        let until = self.now + self.faults.rng.time(MOMENT, MOMENT * 20);
        self.nodes[node].hosts[shard].slow_until = until;
        self.coverage.fault("slow shard", 1);
    }

    /// Ends every fault: whole links, running processes, disks with room. Clocks stay as they are.
    pub(super) fn heal(&mut self) {
        self.network.heal();
        self.ambushes.clear();
        self.kept = None;
        self.plugins.calm = true;
        for node in 0..self.nodes.len() {
            let patient = &mut self.nodes[node];
            patient.disk.set_full(false);
            patient.slow_until = Duration::ZERO;
            for host in &mut patient.hosts {
                host.slow_until = Duration::ZERO;
            }
            match patient.state {
                State::Down => self.agenda.put(self.now + MOMENT, Happening::Start(node)),
                State::Paused => {
                    let life = patient.life;
                    self.resume(node, life);
                }
                State::Running => {}
            }
        }
    }
}
