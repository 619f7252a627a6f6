//! Composes the machines of one shard; the only place that knows them all.
//!
//! # Owns
//! The machines of its slots' groups and channels (by hash) and of its connections. Another shard, of this node or of
//! another, is just another address: everything between them is a [`Peer`] message.
//!
//! # Invariants
//! A handled event never blocks; its effects are executed in order before the next event is handled. A step that misses
//! rows changes nothing and is taken again when they are loaded, and whatever belongs to the same channel or group waits
//! behind it (M-13).
//!
//! # States
//! ```text
//! event → steps (one input of one machine each) → outputs → effects
//!            ↑ ready ─────────── held ← miss
//! ```
//!
//! # Absent
//! Threads, sockets, files, clocks. The driver (production) and the world (simulator) step the same value.

mod asks;
mod breakers;
mod calls;
mod channels;
mod config;
mod consumers;
mod continuation;
mod deciding;
mod delivering;
mod directory;
mod expiry;
mod facts;
mod followers;
mod forwarding;
mod gates;
mod gather;
mod grants;
mod groups;
mod history;
mod ingress;
mod keys;
mod letters;
mod lifecycle;
mod links;
mod liveness;
mod members;
mod news;
pub mod offline;
mod online_status;
mod opening;
mod peer;
mod plugins;
mod presence;
mod reads;
mod redelivery;
mod repeats;
mod resuming;
mod sessions;
mod step;
#[cfg(test)]
mod tests;
mod turn;
mod view;
mod webhooks;

pub use config::{Config, Faults, Image};
pub use liveness::NodeState;
pub use peer::{
    HistoryRange, LANES, Peer, Redelivery, Reply, Request, RowKey, VoterProgress, channel_lane,
    connection_lane, group_shard,
};
pub use view::{ChannelView, Counters, GroupView, Lag, View};

use crate::append::ids;
use crate::effect::{Effect, Event};
use crate::hooks::gates::Gates;
use crate::hooks::pipeline::{Pipeline, Stages};
use crate::limits::Limits;
use crate::pending::Pending;
use crate::rows::{Miss, Rows};
use crate::types::{ChannelKey, GroupId, Now, Ticket, Token};
use crate::{delivery, presence as presence_machine, session};
use continuation::{Lookup, Reading, Stored};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use turn::Turn;

/// Tickets of one store instance, in order.
#[derive(Debug, Default)]
struct Tickets {
    last: u64,
    waiting: VecDeque<(Ticket, Stored)>,
}

/// One shard of a node: a value that is stepped.
pub struct Shard {
    config: Config,
    limits: Arc<Limits>,
    started: bool,
    /// When the last event was handled.
    awake_at: Duration,
    queue: VecDeque<step::Step>,
    held: step::Held,
    last_token: u64,
    last_activation: u64,
    meta_tickets: Tickets,
    data_tickets: Tickets,
    readings: BTreeMap<Token, Reading>,
    directory: directory::Directory,
    liveness: liveness::Liveness,
    calls: calls::Calls,
    groups: BTreeMap<GroupId, groups::GroupHost>,
    /// What the disk held, until the groups start.
    stored_groups: Vec<(GroupId, Vec<(crate::rows::Key, bytes::Bytes)>)>,
    stopped_groups: BTreeMap<GroupId, String>,
    registration: groups::Registration,
    channels: BTreeMap<ChannelKey, channels::Host>,
    opening: opening::Opening,
    deadlines: BTreeSet<(Duration, ChannelKey)>,
    channel_deadlines: BTreeMap<ChannelKey, Duration>,
    links: links::Links,
    /// Channels whose replicas took an input in the last event.
    touched: Vec<ChannelKey>,
    /// When `Event::Expired` is wanted, as of the last event.
    next_deadline: Option<Duration>,
    ids: ids::Generator,
    pipeline: Pipeline,
    gates: Gates,
    plugins: plugins::Plugins,
    sessions: session::Sessions,
    owner: presence_machine::Owner,
    lookups: Pending<(Lookup, BTreeSet<crate::types::SlotId>)>,
    pushes: BTreeMap<Token, sessions::PushFrom>,
    pushing: Pending<delivering::Pushing>,
    ingress: ingress::Ingress,
    forwarders: BTreeMap<ChannelKey, forwarding::Forwarder>,
    repeats: repeats::Repeats,
    asks: asks::Asks,
    online_parts: BTreeMap<Token, usize>,
    /// Keys of which those are being removed whose life time is over.
    key_sweeps: BTreeSet<(Arc<str>, crate::types::SlotId)>,
    counters: Counters,
    /// The disk is nearly full: no new messages (R14).
    space_low: bool,
    resuming: resuming::Resuming,
}

impl Shard {
    /// A shard from its configuration and what the node's disk held at the start.
    #[must_use]
    pub fn new(config: Config, image: Image) -> Shard {
        let limits = Arc::new(config.limits.clone());
        let session_settings = session::Settings {
            node: config.node,
            boot: config.boots.process,
            any_token: config.any_token,
            limits: config.limits.clone(),
            faults: config.faults.session,
        };
        Shard {
            started: false,
            awake_at: Duration::ZERO,
            queue: VecDeque::new(),
            held: step::Held::default(),
            last_token: continuation::first_token(config.boots.process),
            last_activation: 0,
            meta_tickets: Tickets::default(),
            data_tickets: Tickets::default(),
            readings: BTreeMap::new(),
            directory: directory::Directory::new(config.node, &config.nodes, config.groups, config.copies),
            liveness: liveness::Liveness::new(config.node, config.boots, &config.nodes),
            calls: calls::Calls::default(),
            groups: BTreeMap::new(),
            stored_groups: image.groups,
            stopped_groups: BTreeMap::new(),
            registration: groups::Registration::Due,
            channels: BTreeMap::new(),
            opening: opening::Opening::new(limits.channel_openings_max, config.faults.opening),
            deadlines: BTreeSet::new(),
            channel_deadlines: BTreeMap::new(),
            links: links::Links::new(
                (0..LANES).filter(|lane| lane % config.shards.max(1) == config.shard),
                config.boots.process,
                &limits,
            ),
            touched: Vec::new(),
            next_deadline: Some(Duration::ZERO),
            ids: ids::Generator::new(config.node, config.shard),
            pipeline: Pipeline::new(Stages::default(), config.faults.hooks, Token(1)),
            gates: Gates::new(config.faults.hooks, Token(1)),
            plugins: plugins::Plugins::new(config.faults.hooks),
            sessions: session::Sessions::new(session_settings),
            owner: presence_machine::Owner::new(config.limits.clone()),
            lookups: Pending::default(),
            pushes: BTreeMap::new(),
            pushing: Pending::default(),
            ingress: ingress::Ingress::default(),
            forwarders: BTreeMap::new(),
            repeats: repeats::Repeats::default(),
            asks: asks::Asks::default(),
            online_parts: BTreeMap::new(),
            key_sweeps: BTreeSet::new(),
            counters: Counters::default(),
            space_low: false,
            resuming: resuming::Resuming::default(),
            limits,
            config,
        }
    }

    /// Handles one event; pushes what must be done, in order. The driver executes every effect before the next call.
    pub fn handle(&mut self, now: Now, event: Event, rows: &dyn Rows, out: &mut Vec<Effect>) {
        let mut turn = Turn::new(now, rows, out);
        self.touched.clear();
        self.notice_sleep(&mut turn);
        if !std::mem::replace(&mut self.started, true) {
            self.queue.push_back(step::Step::IdsStart);
            self.start_groups(&mut turn);
            self.run(&mut turn);
        }
        self.on_event(&mut turn, event);
        self.run(&mut turn);
        self.flush_links(&mut turn);
        gather::gather(turn.out);
        self.next_deadline = self.earliest_deadline();
    }

    fn on_event(&mut self, turn: &mut Turn<'_>, event: Event) {
        match event {
            Event::Peer { from, message } => self.on_peer(turn, from, message),
            Event::ClientOpened { connection } => {
                self.session_input(turn, session::Input::Opened { connection })
            }
            Event::ClientFrame { connection, frame } => {
                self.session_input(turn, session::Input::Frame { connection, frame });
            }
            Event::ClientClosed { connection } => {
                self.session_input(turn, session::Input::Closed { connection })
            }
            Event::Stored { instance, through } => self.on_stored(instance, through),
            Event::ReadDone { token, page } => self.on_read(turn, token, page),
            Event::Loaded { token, rows } => self.on_loaded(turn, token, rows),
            Event::Ask { token, ask } => self.on_ask(turn, token, ask),
            Event::PluginReturned { token, returned } => self.on_plugin_returned(turn, token, returned),
            Event::Space { low } => self.space_low = low,
            Event::Expired => self.expire(turn),
        }
    }

    /// Its configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Steps the message ids.
    fn ids_input(&mut self, turn: &mut Turn<'_>, input: ids::Input) -> Result<(), Miss> {
        let mut outputs = Vec::new();
        self.ids.handle(turn.now, input, &turn.rows, &mut outputs)?;
        self.ids_outputs(turn, outputs);
        Ok(())
    }

    /// A lease of message ids may be due after ids were given.
    fn ids_due(&mut self, turn: &mut Turn<'_>) {
        let mut outputs = Vec::new();
        self.ids.expire(turn.now, &mut outputs);
        self.ids_outputs(turn, outputs);
    }

    fn ids_outputs(&mut self, turn: &mut Turn<'_>, outputs: Vec<ids::Output>) {
        for ids::Output::Store { token, writes } in outputs {
            let ticket = self.ticket(crate::rows::Instance::Data, Stored::Ids { token });
            turn.store(crate::rows::Instance::Data, ticket, writes);
        }
    }

    fn delivery_settings(&self) -> delivery::Settings {
        delivery::Settings {
            limits: self.config.limits.clone(),
            faults: self.config.faults.delivery,
        }
    }
}
