//! What shards want is done here, as the production driver does it.

use super::{Happening, World};
use crate::coverage::Met;
use crate::disk::DiskError;
use crate::network::Class;
use penstock_core::effect::{Effect, Event};
use penstock_core::rows::{Instance, Write};
use penstock_core::shard::Peer;
use penstock_core::types::{NodeId, Ticket};
use std::time::Duration;

impl World {
    /// Does what a shard wants.
    pub(super) fn execute(&mut self, node: usize, shard: u16, effect: Effect) {
        if self.trace {
            eprintln!("                                -> {effect:?}");
        }
        match effect {
            Effect::Send { to, message } => self.send(node, to, message),
            Effect::Store {
                instance,
                ticket,
                writes,
            } => self.store(node, shard, (instance, ticket), writes),
            Effect::Read { token, request } => {
                // A scan sees at least what was written before it was asked for.
                let page = self.nodes[node].disk.read(&request);
                let event = Event::ReadDone { token, page };
                self.after_read(node, shard, event);
            }
            Effect::Load { token, keys } => {
                self.coverage.meet(Met::Misses);
                let rows = self.nodes[node].disk.load(&keys);
                self.after_read(node, shard, Event::Loaded { token, rows });
            }
            Effect::Client { connection, frame } => self.client_frame(node, connection, frame),
            Effect::CloseClient { connection, .. } => self.close_client(node, connection),
            Effect::Answer { token, answer } => self.answer(token, answer),
            Effect::CallPlugin { token, call } => self.call_plugin(node, shard, token, *call),
            // The checkers have seen these already.
            Effect::Registry(_) | Effect::Breaker(_) => {}
        }
    }

    fn after_read(&mut self, node: usize, shard: u16, event: Event) {
        let at = self.now + self.disk_rng.tailed(self.settings.read_latency);
        self.arrive_at(at, node, shard, event);
    }

    /// An event reaches a shard of the present process of a node at this time.
    pub(super) fn arrive_at(&mut self, at: Duration, node: usize, shard: u16, event: Event) {
        let life = Some(self.nodes[node].life);
        self.agenda.put(
            at,
            Happening::Arrive {
                node,
                life,
                shard,
                event,
            },
        );
    }

    fn send(&mut self, from: usize, to: NodeId, message: Peer) {
        if self.operator_answered(&message) {
            return;
        }
        let target = usize::from(to.0) - 1;
        if target >= self.nodes.len() {
            return self
                .oracle
                .violate("send", format!("a message to node {to}, which does not exist"));
        }
        let shard = message.shard(self.settings.shards);
        let sender = self.nodes[from].id;
        let arrive = |life, message| Happening::Arrive {
            node: target,
            life,
            shard,
            event: Event::Peer {
                from: sender,
                message,
            },
        };
        if from == target {
            let life = Some(self.nodes[from].life);
            let at = self.now + self.shard_rng.tailed(Duration::from_micros(2));
            // Between the shards of a node messages keep their order.
            let at = self.in_order(from, shard, at);
            return self.agenda.put(at, arrive(life, message));
        }
        self.invariants.sent(from, &message, &mut self.oracle);
        self.ambushed_message(from, target, &message);
        let class = match &message {
            Peer::Exchange { .. } => Class::Log,
            Peer::Group { .. } => Class::Group,
            Peer::Request { .. } | Peer::Reply { .. } => Class::Call,
            _ => Class::Other,
        };
        let [first, second] = self.network.arrivals(self.now, from, target, class);
        if let Some(second) = second {
            self.agenda.put(second, arrive(None, message.clone()));
        }
        if let Some(first) = first {
            if self.kept.is_some() {
                self.comes_again(&message, first);
            }
            self.agenda.put(first, arrive(None, message));
        }
    }

    fn in_order(&mut self, node: usize, shard: u16, at: Duration) -> Duration {
        let host = &mut self.nodes[node].hosts[usize::from(shard)];
        host.last_inside = host.last_inside.max(at);
        host.last_inside
    }

    fn store(&mut self, node: usize, shard: u16, place: (Instance, Ticket), writes: Vec<Write>) {
        let (instance, ticket) = place;
        self.count_writes(&writes);
        self.invariants.writes(node, &writes, &mut self.oracle);
        if let Err(error) = self.nodes[node].disk.write(instance, shard, ticket, &writes) {
            return self.poisoned(node, &error);
        }
        self.invariants
            .wrote(node, &self.nodes[node], (instance, &writes), &mut self.oracle);
        self.oracle.followed.wrote(&writes);
        self.oracle.counted.wrote(&writes);
        if self.driver.stored_before_durable {
            let event = Event::Stored {
                instance,
                through: ticket,
            };
            self.arrive_at(self.now, node, shard, event);
        }
        self.begin_sync(node, instance);
        self.ambushed_write(node, instance);
    }

    fn count_writes(&mut self, writes: &[Write]) {
        for write in writes {
            match write {
                Write::TruncateRecords { .. } => self.coverage.meet(Met::Truncations),
                Write::FlipGeneration { .. } => self.coverage.meet(Met::Snapshots),
                Write::CompactRaft { .. } => self.coverage.meet(Met::Compactions),
                _ => {}
            }
        }
    }

    fn begin_sync(&mut self, node: usize, instance: Instance) {
        let slow = self.nodes[node].slow_until > self.now;
        let life = self.nodes[node].life;
        let usual = self.settings.sync_latency;
        let sync = self.nodes[node].disk.begin_sync(instance);
        let running = &mut self.nodes[node].syncer(instance).running;
        if running.is_some() || sync.is_none() {
            return;
        }
        *running = sync;
        let latency = self
            .disk_rng
            .tailed(if slow { Duration::from_millis(200) } else { usual });
        let at = self.now + latency;
        self.agenda.put(at, Happening::Synced { node, life, instance });
    }

    /// A sync is done: what it covered is durable, and every shard is told up to which ticket.
    pub(super) fn synced(&mut self, node: usize, instance: Instance) {
        let Some(sync) = self.nodes[node].syncer(instance).running.take() else {
            return;
        };
        let through = match self.nodes[node].disk.finish_sync(sync) {
            Ok(through) => through,
            Err(error) => return self.poisoned(node, &error),
        };
        self.invariants
            .synced(&self.nodes[node], node, instance, &mut self.oracle);
        let life = self.nodes[node].life;
        self.begin_sync(node, instance);
        if self.driver.stored_before_durable {
            return;
        }
        for (shard, through) in through {
            if self.nodes[node].life == life {
                self.arrive(node, shard, Event::Stored { instance, through });
            }
        }
    }

    /// A write or sync failed: the process ends before it can say something false (R14).
    fn poisoned(&mut self, node: usize, error: &DiskError) {
        let kind = match error {
            DiskError::Full => "disk full",
            DiskError::Io => "sync error",
            DiskError::Poisoned => "poisoned disk",
        };
        self.coverage.fault(kind, 1);
        self.crash(node, None);
    }
}
