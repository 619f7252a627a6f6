//! The world: a heap of events in virtual time, the nodes, the network between them, and the order in which everything
//! happens. One thread, one seed, one outcome.

mod agenda;
mod ambush;
mod effects;
mod gates;
mod gateway;
mod inject;
mod node;
mod notices;
mod operator;
mod phases;
mod plugins;

pub use agenda::Happening;
pub use ambush::Blow;
pub use node::{Clock, Node, State};

use crate::clients::{Clients, Purpose};
use crate::coverage::{Coverage, Met};
use crate::disk::{Misses, SimDisk};
use crate::faults::Faults;
use crate::invariants::Invariants;
use crate::mutants::Driver;
use crate::network::Network;
use crate::oracle::{Oracle, Violation};
use crate::plugins::Plugins;
use crate::rng::{Rng, Stream};
use crate::settings::Settings;
use agenda::Agenda;
use gateway::Connection;
use node::{Host, Syncer};
use penstock_core::effect::{Effect, Event};
use penstock_core::message::Committed;
use penstock_core::rows::Key;
use penstock_core::shard::{Config, Shard};
use penstock_core::types::{Boots, DiskBoot, NodeId, ProcessBoot};
use std::collections::VecDeque;
use std::time::Duration;

/// A call of the HTTP API.
struct Call {
    purpose: Option<Purpose>,
}

/// A running simulation.
pub struct World {
    settings: Settings,
    now: Duration,
    agenda: Agenda,
    nodes: Vec<Node>,
    network: Network,
    faults: Faults,
    clients: Clients,
    connections: Vec<Connection>,
    calls: Vec<Call>,
    oracle: Oracle,
    invariants: Invariants,
    /// What was met so far.
    pub coverage: Coverage,
    driver: Driver,
    disk_rng: Rng,
    node_rng: Rng,
    shard_rng: Rng,
    loss_rng: Rng,
    effects: Vec<Effect>,
    hash: u64,
    trace: bool,
    trace_from: Option<Duration>,
    phase: phases::Phase,
    catching_up: phases::CatchingUp,
    /// What a plugin was handed in this step: the checkers see the commit that it follows from only after the step.
    handed: Vec<Committed>,
    /// How long nobody came back after the faults, see [`Settings::silent`].
    alone: Duration,
    /// Blows that wait for their moment.
    ambushes: Vec<ambush::Ambush>,
    kept: Option<ambush::Kept>,
    operator: operator::Operator,
    plugins: Plugins,
}

impl World {
    /// The cluster of a seed with a planted bug or none, before its first event.
    #[must_use]
    pub fn new(settings: Settings, driver: Driver, trace: Option<Duration>) -> World {
        let mut oracle = Oracle::default();
        let clients = Clients::new(&settings, &mut oracle);
        let seed = settings.seed;
        let mut node_rng = Rng::new(seed, Stream::Nodes);
        let nodes = (0..settings.nodes)
            .map(|index| Node {
                id: node_id(index),
                process: ProcessBoot(0),
                life: 0,
                state: State::Down,
                hosts: Vec::new(),
                disk: SimDisk::new(DiskBoot(node_rng.draw())),
                clock: Clock::default(),
                syncers: [Syncer::default(), Syncer::default()],
                held: Vec::new(),
                earlier: None,
                slow_until: Duration::ZERO,
            })
            .collect();
        let mut world = World {
            network: Network::new(seed, settings.nodes, settings.network),
            faults: Faults::new(seed, settings.faults.clone()),
            clients,
            connections: Vec::new(),
            calls: Vec::new(),
            oracle,
            invariants: Invariants::default(),
            coverage: Coverage::default(),
            driver,
            disk_rng: Rng::new(seed, Stream::Disk),
            shard_rng: Rng::new(seed, Stream::Shards),
            loss_rng: Rng::new(seed, Stream::Losses),
            node_rng,
            effects: Vec::new(),
            hash: seed,
            trace: false,
            trace_from: trace,
            phase: phases::Phase::Chaos,
            catching_up: phases::CatchingUp::default(),
            handed: Vec::new(),
            alone: Duration::ZERO,
            ambushes: ambush::first(seed),
            kept: None,
            operator: operator::Operator::default(),
            plugins: Plugins::new(seed),
            now: Duration::ZERO,
            agenda: Agenda::default(),
            nodes,
            settings,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        for node in 0..self.nodes.len() {
            let delay = self.node_rng.time(Duration::ZERO, Duration::from_millis(300));
            self.agenda.put(delay, Happening::Start(node));
        }
        for user in 0..self.clients.users.len() {
            self.agenda.put(Duration::from_millis(100), Happening::User(user));
        }
        let first = Duration::from_secs(2) + self.faults.interval();
        self.agenda.put(first, Happening::Fault);
        self.agenda.put(Duration::from_millis(500), Happening::Look);
        self.agenda.put(Duration::from_secs(2), Happening::Deploy);
    }

    /// Runs to the end, or to the first broken rule.
    pub fn run(&mut self) -> Vec<Violation> {
        while let Some((at, happening)) = self.agenda.take() {
            self.now = at;
            self.trace = self.trace_from.is_some_and(|from| at >= from);
            self.happen(happening);
            if !self.oracle.violations.is_empty() || self.phase == phases::Phase::Done {
                break;
            }
        }
        self.close_books();
        std::mem::take(&mut self.oracle.violations)
    }

    /// A number that two runs of one seed share.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.hash
    }

    /// Virtual time that has passed.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.now
    }

    fn mix(&mut self, word: u64) {
        self.hash = (self.hash ^ word)
            .wrapping_mul(0x0000_0100_0000_01b3)
            .rotate_left(23);
    }

    fn happen(&mut self, happening: Happening) {
        let happening = match self.hold(happening) {
            Some(happening) => happening,
            None => return,
        };
        match happening {
            Happening::Arrive {
                node,
                life,
                shard,
                event,
            } => {
                if life.is_none_or(|life| life == self.nodes[node].life) {
                    self.arrive(node, shard, event);
                }
            }
            Happening::Drain { node, life, shard } if life == self.nodes[node].life => {
                self.drain(node, shard)
            }
            Happening::Timer { node, life, shard } if life == self.nodes[node].life => self.ring(node, shard),
            Happening::Synced { node, life, instance } if life == self.nodes[node].life => {
                self.synced(node, instance);
            }
            Happening::Drain { .. } | Happening::Timer { .. } | Happening::Synced { .. } => {}
            Happening::ToServer { connection, frame } => self.reach_server(connection, frame),
            Happening::ToClient { connection, frame } => self.reach_client(connection, frame),
            Happening::Retry { connection } => self.retry(connection),
            Happening::Answered { call, answer } => self.answered(call, answer),
            Happening::User(user) => self.user_acts(user),
            Happening::Fault => self.inject(),
            Happening::Start(node) => self.start(node),
            Happening::Resume { node, life } => self.resume(node, life),
            Happening::Blow { blow, node, other } => self.strike(blow, node, other),
            Happening::Deploy => self.deploy(),
            Happening::Look => self.look(),
        }
    }

    /// What happens to a paused node waits until it goes on.
    fn hold(&mut self, happening: Happening) -> Option<Happening> {
        let node = match &happening {
            Happening::Arrive { node, .. }
            | Happening::Drain { node, .. }
            | Happening::Timer { node, .. }
            | Happening::Synced { node, .. } => *node,
            Happening::ToServer { connection, .. } | Happening::Retry { connection } => {
                self.connections[*connection].node
            }
            _ => return Some(happening),
        };
        if self.nodes[node].state == State::Paused {
            self.nodes[node].held.push(happening);
            return None;
        }
        Some(happening)
    }

    /// An event reaches a shard: it is handled at once, waits, or is refused.
    fn arrive(&mut self, node: usize, shard: u16, event: Event) {
        let now = self.now;
        let capacity = self.settings.mailbox;
        let id = self.nodes[node].id;
        let Some(host) = self.nodes[node].hosts.get_mut(usize::from(shard)) else {
            return;
        };
        if host.mailbox.is_empty() && host.busy_until <= now {
            return self.step(node, shard, event);
        }
        if is_admission(id, &event) {
            if host.admissions >= capacity {
                self.coverage.meet(Met::Refusals);
                return self.refuse(event);
            }
            host.admissions += 1;
        }
        host.mailbox.push_back(event);
        self.wake(node, shard);
    }

    fn wake(&mut self, node: usize, shard: u16) {
        let life = self.nodes[node].life;
        let host = &mut self.nodes[node].hosts[usize::from(shard)];
        if !host.draining && !host.mailbox.is_empty() {
            host.draining = true;
            let at = host.busy_until.max(self.now);
            self.agenda.put(at, Happening::Drain { node, life, shard });
        }
    }

    fn drain(&mut self, node: usize, shard: u16) {
        let id = self.nodes[node].id;
        let host = &mut self.nodes[node].hosts[usize::from(shard)];
        host.draining = false;
        let Some(event) = host.mailbox.pop_front() else {
            return;
        };
        host.admissions -= usize::from(is_admission(id, &event));
        let life = self.nodes[node].life;
        self.step(node, shard, event);
        if self.nodes[node].life == life {
            self.wake(node, shard);
        }
    }

    /// The timer of a shard: the deadline that was asked for may have moved meanwhile.
    fn ring(&mut self, node: usize, shard: u16) {
        let local = self.nodes[node].clock.read(self.now);
        let host = &mut self.nodes[node].hosts[usize::from(shard)];
        host.timer = None;
        match host.shard.next_deadline() {
            Some(deadline) if deadline <= local.monotonic => self.arrive(node, shard, Event::Expired),
            _ => self.set_timer(node, shard),
        }
    }

    fn set_timer(&mut self, node: usize, shard: u16) {
        let now = self.now;
        let life = self.nodes[node].life;
        let clock = self.nodes[node].clock;
        let host = &mut self.nodes[node].hosts[usize::from(shard)];
        let Some(deadline) = host.shard.next_deadline() else {
            return;
        };
        let at = clock.when(deadline).max(now);
        host.stuck = if at > now { 0 } else { host.stuck + 1 };
        if host.stuck > 10_000 {
            let detail = format!("node {node} shard {shard}: the deadline {deadline:?} does not move on");
            return self.oracle.violate("deadline", detail);
        }
        if host.timer.is_none_or(|set| set > at) {
            host.timer = Some(at);
            self.agenda.put(at, Happening::Timer { node, life, shard });
        }
    }

    /// One shard handles one event, and what it wants is done before anything else happens.
    fn step(&mut self, node: usize, shard: u16, event: Event) {
        let now = self.now;
        self.coverage.events += 1;
        let kind = event_kind(&event);
        if self.trace {
            eprintln!(
                "{:>12.6} node {} shard {shard}: {event:?}",
                now.as_secs_f64(),
                node + 1
            );
        }
        self.invariants.given(node, &event);
        self.take_note_of((node, shard), &event);
        let mut effects = std::mem::take(&mut self.effects);
        let salt = self.loss_rng.draw();
        let owner = &mut self.nodes[node];
        let local = owner.clock.read(now);
        let host = &mut owner.hosts[usize::from(shard)];
        let handling = if host.slow_until > now {
            Duration::from_millis(3)
        } else {
            self.settings.handling
        };
        host.busy_until = now + self.shard_rng.tailed(handling);
        let pinned: Vec<Key> = match &event {
            Event::Loaded { rows, .. } => rows.iter().map(|(key, _)| key.clone()).collect(),
            _ => Vec::new(),
        };
        let rows = owner.disk.rows(Misses {
            seed: salt,
            per_mille: self.settings.miss_permille,
            pinned: &pinned,
        });
        host.shard.handle(local, event, &rows, &mut effects);
        let acts = host.shard.registry_revision();
        self.take_note((node, shard), acts, &effects);
        let place = (node as u64) << 8 | u64::from(shard);
        self.mix(
            u64::try_from(now.as_nanos()).unwrap_or(0) ^ place << 48 ^ kind << 40 ^ effects.len() as u64,
        );
        let life = self.nodes[node].life;
        self.handed.clear();
        for effect in effects.drain(..) {
            if self.nodes[node].life == life {
                self.execute(node, shard, effect);
            }
        }
        self.effects = effects;
        if self.nodes[node].life == life {
            let acts = self.nodes[node].hosts[usize::from(shard)]
                .shard
                .registry_revision();
            self.oracle.judged.acts(now, (node, shard), acts);
            self.watch(node, shard);
            for message in &self.handed {
                self.invariants.shown(message, &mut self.oracle);
            }
            self.set_timer(node, shard);
        }
    }

    /// The checkers look at what a shard shows after each of its steps.
    fn watch(&mut self, node: usize, shard: u16) {
        let seen = self
            .invariants
            .watch(&self.nodes, (node, shard), &mut self.oracle, &mut self.coverage);
        let other = (node + 1) % self.nodes.len();
        if seen.born {
            self.ambushed(ambush::Occasion::Born, node, other);
        }
        if seen.opened {
            self.ambushed(ambush::Occasion::Opened, node, other);
        }
        if seen.voters {
            self.ambushed(ambush::Occasion::Voters, node, other);
        }
    }

    /// A process starts from what its disk holds.
    fn start(&mut self, index: usize) {
        if self.nodes[index].state != State::Down {
            return;
        }
        self.invariants
            .opened(&self.nodes[index], index, &mut self.oracle);
        if !self.oracle.violations.is_empty() {
            return;
        }
        let shards = self.settings.shards;
        let boot = ProcessBoot(self.node_rng.draw());
        let drift = self.settings.faults.drift_ppm;
        let now = self.now;
        let nodes: Vec<NodeId> = (0..self.nodes.len()).map(node_id).collect();
        let node = &mut self.nodes[index];
        node.start_clock(now, drift, &mut self.node_rng);
        node.life += 1;
        node.state = State::Running;
        if !self.driver.keeps_process_boot || node.process == ProcessBoot(0) {
            node.process = boot;
        }
        if self.driver.trusts_damaged_log {
            node.earlier = Some(node.disk.clone());
        }
        let boots = Boots {
            process: node.process,
            disk: node.disk.boot(),
        };
        node.hosts = (0..shards)
            .map(|shard| {
                let config = Config {
                    node: node.id,
                    boots,
                    shard,
                    shards,
                    nodes: nodes.clone(),
                    groups: self.settings.groups,
                    copies: 3,
                    seed: self.settings.seed,
                    limits: self.settings.limits.clone(),
                    any_token: !self.settings.tokens,
                    person_allowlist_required: false,
                    faults: penstock_core::shard::Faults::default(),
                };
                let config = self.driver.configure(config);
                let image = node.image(shard, shards);
                Host {
                    shard: Shard::new(config, image),
                    mailbox: VecDeque::new(),
                    admissions: 0,
                    busy_until: now,
                    draining: false,
                    timer: None,
                    last_inside: Duration::ZERO,
                    slow_until: Duration::ZERO,
                    stuck: 0,
                }
            })
            .collect();
        self.mix(boot.0);
        for shard in 0..shards {
            self.set_timer(index, shard);
        }
    }
}

fn node_id(index: usize) -> NodeId {
    NodeId(u16::try_from(index + 1).expect("a handful of nodes"))
}

/// Whether a full mailbox may refuse it (M-14). Between the shards of a node nothing is refused.
fn is_admission(node: NodeId, event: &Event) -> bool {
    match event {
        Event::Peer { from, message } => *from != node && message.is_admission(),
        Event::ClientFrame { .. } | Event::Ask { .. } => true,
        _ => false,
    }
}

fn event_kind(event: &Event) -> u64 {
    match event {
        Event::Peer { .. } => 1,
        Event::ClientOpened { .. } => 2,
        Event::ClientFrame { .. } => 3,
        Event::ClientClosed { .. } => 4,
        Event::Stored { .. } => 5,
        Event::ReadDone { .. } => 6,
        Event::Loaded { .. } => 7,
        Event::Ask { .. } => 8,
        Event::Expired => 9,
        Event::Space { .. } => 10,
        Event::PluginReturned { .. } => 11,
    }
}
