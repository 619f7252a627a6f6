//! The thread of one shard: drains its mailbox, steps the shard, executes the effects in order. Frames for clients gather meanwhile,
//! in their own order.

use super::mailbox::{Drained, Mailbox};
use super::reader::Job;
use super::shared::Shared;
use penstock_core::client::ServerFrame;
use penstock_core::effect::{Effect, Event};
use penstock_core::rows::Key;
use penstock_core::shard::Shard;
use penstock_core::types::ConnectionId;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// After so many events, or frames for clients, what gathered is handed over, so that the network and the disk go on meanwhile. Each
/// hand-over wakes other threads, which costs as much as an event.
const EVENTS_TOGETHER: usize = 64;
const FRAMES_TOGETHER_MAX: usize = 256;
/// So long may plugins keep this thread between two looks at elections and deadlines, and a call that is begun then a little longer.
const PLUGIN_PATIENCE: Duration = Duration::from_millis(1);
/// How often it is counted how far plugins are behind, which looks at every channel.
const LAGS_EVERY: Duration = Duration::from_secs(5);

/// A shard and all it needs to run.
pub(super) struct ShardThread {
    shard: Shard,
    index: u16,
    mailbox: Arc<Mailbox>,
    shared: Arc<Shared>,
    effects: Vec<Effect>,
    /// For clients, until the events at hand are handled.
    frames: Vec<(ConnectionId, ServerFrame)>,
    /// What plugins answered on this thread while the last event was handled.
    returned: VecDeque<Event>,
    /// What is left for them.
    patience: Duration,
    space_low: bool,
    /// When it is counted next how far plugins are behind.
    lags_at: Duration,
}

impl ShardThread {
    pub(super) fn new(shard: Shard, index: u16, mailbox: Arc<Mailbox>, shared: Arc<Shared>) -> ShardThread {
        ShardThread {
            shard,
            index,
            mailbox,
            shared,
            effects: Vec::new(),
            frames: Vec::new(),
            returned: VecDeque::new(),
            patience: PLUGIN_PATIENCE,
            space_low: false,
            lags_at: Duration::ZERO,
        }
    }

    /// Runs until the mailbox is stopped and empty.
    pub(super) fn run(mut self) {
        let mut batch = VecDeque::new();
        loop {
            let deadline = self.shard.next_deadline().map(|at| self.shared.clock.instant(at));
            if self.mailbox.drain(&mut batch, deadline) == Drained::Stopped {
                return;
            }
            self.patience = PLUGIN_PATIENCE;
            let low = self.shared.store.space_low();
            if std::mem::replace(&mut self.space_low, low) != low {
                self.step(Event::Space { low });
            }
            while let Some(event) = batch.pop_front() {
                self.step(event);
                if batch.len() % EVENTS_TOGETHER == 0 && !batch.is_empty() {
                    self.hand_over(false);
                    self.patience = PLUGIN_PATIENCE;
                    // Under a flood the batch takes long, and elections and deadlines do not wait for its end.
                    self.expire();
                }
            }
            self.expire();
            self.hand_over(self.mailbox.is_empty());
        }
    }

    fn expire(&mut self) {
        let now = self.shared.clock.now();
        if self.shard.next_deadline().is_some_and(|at| at <= now.monotonic) {
            self.step(Event::Expired);
            self.shared.counted.post(self.index, &self.shard.summary());
        }
        if now.monotonic >= self.lags_at {
            self.lags_at = now.monotonic + LAGS_EVERY;
            self.shared.counted.post_lags(self.index, self.shard.lags());
        }
    }

    /// Hands over what gathered: frames to the network first, then writes to the disk.
    fn hand_over(&mut self, alone: bool) {
        self.shared.clients.deliver(&mut self.frames);
        self.shared.writer.flush(alone);
    }

    fn step(&mut self, event: Event) {
        self.handle(event);
        // An answer may lead to the next call, as long as there is patience left for it.
        while let Some(event) = self.returned.pop_front() {
            self.handle(event);
        }
    }

    fn handle(&mut self, event: Event) {
        let now = self.shared.clock.now();
        let mut effects = std::mem::take(&mut self.effects);
        let pinned: Vec<Key> = match &event {
            Event::Loaded { rows, .. } => rows.iter().map(|(key, _)| key.clone()).collect(),
            _ => Vec::new(),
        };
        let rows = self.shared.store.rows(&pinned);
        self.shard.handle(now, event, &rows, &mut effects);
        for effect in effects.drain(..) {
            self.execute(effect);
        }
        self.effects = effects;
    }

    fn execute(&mut self, effect: Effect) {
        match effect {
            Effect::Send { to, message } => self.shared.send(to, message),
            Effect::Store {
                instance,
                ticket,
                writes,
            } => {
                if let Err(error) = self.shared.writer.submit(self.index, instance, ticket, &writes) {
                    // Nothing written after a failure may be acknowledged (R14).
                    self.shared.fail(&format!("the store refused a write: {error}"));
                }
            }
            Effect::Read { token, request } => self.shared.readers.submit(Job::Read {
                shard: self.index,
                token,
                request,
            }),
            Effect::Load { token, keys } => self.shared.readers.submit(Job::Load {
                shard: self.index,
                token,
                keys,
            }),
            Effect::Client { connection, frame } => {
                self.frames.push((connection, frame));
                if self.frames.len() >= FRAMES_TOGETHER_MAX {
                    self.hand_over(false);
                }
            }
            Effect::CloseClient { connection, reason } => {
                self.shared.clients.deliver(&mut self.frames);
                self.shared.clients.close(connection, reason);
            }
            Effect::Answer { token, answer } => self.shared.answers.resolve(token, answer),
            Effect::CallPlugin { token, call } => {
                match self.shared.plugins.call_inline(call, &mut self.patience) {
                    // The shard is not entered again before all that it wants is done (M-19).
                    Ok(returned) => self.returned.push_back(Event::PluginReturned { token, returned }),
                    Err(call) => {
                        let mailbox = Arc::clone(&self.mailbox);
                        let reply =
                            move |returned| mailbox.complete(Event::PluginReturned { token, returned });
                        self.shared.plugins.call(*call, Box::new(reply));
                    }
                }
            }
            Effect::Breaker(change) => self.shared.plugins.breaker(self.index, &change),
            Effect::Registry(registry) => {
                self.shared.registry.send_replace(registry);
            }
        }
    }
}
