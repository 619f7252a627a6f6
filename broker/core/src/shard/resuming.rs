//! Sleeping channels in which a consumer is behind: a process ended while it worked, or a binding is new. Nobody may ever use such
//! a channel again, so they are looked for (PC-1, PC-2).
//!
//! # Owns
//! One sweep over the channels of this shard of which the node keeps a copy by the slots' indexes, and the channels that it has woken.
//! Copies, not leaderships: what a quorum has committed may be missing on the disk of the leader that lost power.
//!
//! # Invariants
//! The sweep begins anew when the registry of plugins is known for the first time, and when other bindings follow channels. It
//! wakes a channel only if a cursor is behind the last record on disk: what is awake needs no looking after, and what has nothing to
//! do stays asleep. One page of an index, [`LOOKING_MAX`] looks and [`AWAKE_MAX`] channels that have not caught up at a time.
//!
//! # Absent
//! The channels of a dead leader: whoever is granted one is told, and opens it (M-5).

use super::Shard;
use super::continuation::{Reading, Then};
use super::peer::{Reply, Request, RowKey, channel_lane};
use super::step::Step;
use super::turn::Turn;
use crate::effect::Effect;
use crate::hooks::cursors::{self, Cursor};
use crate::rows::{Key, Miss, Page, ReadRequest, Rows, Table};
use crate::slot::keys;
use crate::slot::rows::decode_meta;
use crate::types::{ChannelKey, ChannelMeta, Incarnation, SLOT_COUNT, Seq, SlotId};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Index rows of one page.
const PAGE_ROWS: u32 = 64;
/// Channels that are read, or asked about, at once.
const LOOKING_MAX: usize = 16;
/// Woken channels that have not caught up.
const AWAKE_MAX: usize = 128;
/// Channels that wait to be looked at; beyond, the sweep begins anew instead.
const DUE_MAX: usize = 4_096;
/// Pause after something could not be asked, and between looks at what is awake.
const PAUSE: Duration = Duration::from_secs(1);
/// A woken channel that has not caught up by then has a consumer that waits or fails: others need not wait for it.
const AWAKE_FOR: Duration = Duration::from_secs(10);

/// The sweep.
#[derive(Debug, Default)]
pub(super) struct Resuming {
    /// Slots whose channels are still to be looked at.
    slots: VecDeque<SlotId>,
    /// Where the index of the first one goes on.
    after: Option<Bytes>,
    /// A page, or the metadata of its channels, were asked for.
    asking: bool,
    due: VecDeque<Sleeper>,
    /// Channels that are being looked at.
    looking: usize,
    /// Woken channels, and until when they are waited for.
    awake: BTreeMap<ChannelKey, Duration>,
    again_at: Option<Duration>,
}

/// A channel that may be behind.
#[derive(Clone, Debug)]
pub(super) struct Sleeper {
    channel: ChannelKey,
    incarnation: Incarnation,
}

/// What is read of it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Look {
    /// The cursors.
    Cursors,
    /// The last record: is it at or after the first position that a consumer has not done?
    Tail(Seq),
}

/// What the sweep waits for.
#[derive(Clone, Debug)]
pub(super) enum Sweep {
    /// A page of an index.
    Page,
    /// The metadata of its channels.
    Metas(Vec<ChannelKey>),
    /// The leader of a channel that is behind.
    Woken(Sleeper),
}

impl Resuming {
    /// When it wants to go on.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.again_at
    }
}

impl Shard {
    /// Looks at all channels of which this node keeps a copy, from the beginning.
    pub(super) fn resume_all(&mut self, turn: &mut Turn<'_>) {
        if self.config.faults.hooks.behind_sleeps() {
            return;
        }
        self.resuming.slots = (0..SLOT_COUNT).map(SlotId).collect();
        self.resuming.after = None;
        self.resume_on(turn);
    }

    /// A channel was granted to a process of this node that is over: nobody else looks after it.
    pub(super) fn resume_one(&mut self, turn: &mut Turn<'_>, channel: &ChannelKey, meta: &ChannelMeta) {
        if self.resuming.due.len() >= DUE_MAX {
            return self.resume_all(turn);
        }
        self.resuming.due.push_back(Sleeper {
            channel: channel.clone(),
            incarnation: meta.incarnation,
        });
        self.resume_on(turn);
    }

    /// Its pause is over.
    pub(super) fn expire_resuming(&mut self, turn: &mut Turn<'_>) {
        if self.resuming.again_at.is_some_and(|at| at <= turn.now.monotonic) {
            self.resuming.again_at = None;
            self.resume_on(turn);
        }
    }

    fn resume_on(&mut self, turn: &mut Turn<'_>) {
        if !self.knows_plugins() || self.config.faults.hooks.behind_sleeps() {
            return;
        }
        self.let_sleep(turn);
        while self.resuming.looking < LOOKING_MAX
            && self.resuming.awake.len() + self.resuming.looking < AWAKE_MAX
            && let Some(sleeper) = self.resuming.due.pop_front()
        {
            self.resuming.looking += 1;
            self.look(turn, sleeper, Look::Cursors);
        }
        let resuming = &mut self.resuming;
        if !resuming.awake.is_empty() {
            resuming.again_at = Some(turn.now.after(PAUSE));
        }
        let Some(slot) = resuming.slots.front().copied() else {
            return;
        };
        if resuming.asking || resuming.looking > 0 || !resuming.due.is_empty() {
            return;
        }
        resuming.asking = true;
        let request = Request::Page {
            group: self.directory.group_of(slot),
            slot,
            table: Table::ReplicaIndex,
            prefix: keys::node_prefix(self.config.node),
            after: resuming.after.clone(),
            rows_max: PAGE_ROWS,
        };
        self.call(turn, request, Then::Resuming(Sweep::Page));
    }

    /// Woken channels that have caught up go to sleep at once: a sweep may wake very many.
    fn let_sleep(&mut self, turn: &Turn<'_>) {
        let now = turn.now.monotonic;
        let mut asleep = Vec::new();
        let channels = &self.channels;
        self.resuming.awake.retain(|channel, until| {
            let active = channels.get(channel).and_then(|host| host.active.as_ref());
            let working = active.is_some_and(|active| active.leading.is_none() || !active.cursors.is_idle());
            if active.is_some_and(|active| !working && active.replica.is_at_rest()) {
                asleep.push(channel.clone());
            }
            *until > now && (working || active.is_some_and(|active| !active.replica.is_at_rest()))
        });
        for channel in asleep {
            self.evict(&channel);
        }
    }

    /// The sweep has an answer, or none in time.
    pub(super) fn on_resuming(&mut self, turn: &mut Turn<'_>, sweep: Sweep, reply: Option<Reply>) {
        match (sweep, reply) {
            (Sweep::Page, Some(Reply::Page { rows, more })) => self.on_index(turn, &rows, more),
            (Sweep::Metas(channels), Some(Reply::Rows(rows))) => {
                self.resuming.asking = false;
                let metas = rows.iter().map(|row| decode_meta(row.as_ref()?).ok());
                let found = channels.into_iter().zip(metas);
                self.resuming.due.extend(found.filter_map(|(channel, meta)| {
                    Some(Sleeper {
                        channel,
                        incarnation: meta?.incarnation,
                    })
                }));
                self.resume_on(turn);
            }
            (Sweep::Woken(sleeper), Some(Reply::Resolved(meta))) => {
                self.resuming.looking -= 1;
                let until = turn.now.after(AWAKE_FOR);
                self.resuming.awake.insert(sleeper.channel.clone(), until);
                self.directory.learn_channel(&sleeper.channel, &meta);
                self.on_meta_known(turn, &sleeper.channel, &meta);
                self.resume_on(turn);
            }
            (Sweep::Woken(sleeper), _) => {
                self.resuming.looking -= 1;
                self.resuming.due.push_back(sleeper);
                self.resuming.again_at = Some(turn.now.after(PAUSE));
            }
            (Sweep::Page | Sweep::Metas(_), _) => {
                // The same page again: what is asked for twice is looked at twice, no more.
                self.resuming.asking = false;
                self.resuming.again_at = Some(turn.now.after(PAUSE));
            }
        }
    }

    fn on_index(&mut self, turn: &mut Turn<'_>, rows: &[(Bytes, Bytes)], more: bool) {
        let Some(slot) = self.resuming.slots.front().copied() else {
            return;
        };
        let channels: Vec<ChannelKey> = rows
            .iter()
            .filter_map(|(key, _)| keys::read_index(key))
            .map(|(_, channel)| channel)
            .filter(|channel| channel.slot() == slot && self.may_be_behind(channel))
            .collect();
        self.resuming.after = rows.last().map(|(key, _)| key.clone()).filter(|_| more);
        if self.resuming.after.is_none() {
            self.resuming.slots.pop_front();
        }
        if channels.is_empty() {
            self.resuming.asking = false;
            return self.resume_on(turn);
        }
        let row = |channel: &ChannelKey| match keys::meta(channel) {
            Key::Slot { slot, table, key } => Some(RowKey { slot, table, key }),
            _ => None,
        };
        let request = Request::Rows {
            group: self.directory.group_of(slot),
            keys: channels.iter().filter_map(row).collect(),
        };
        self.call(turn, request, Then::Resuming(Sweep::Metas(channels)));
    }

    /// Whether it is a channel of this shard that sleeps and has consumers.
    fn may_be_behind(&self, channel: &ChannelKey) -> bool {
        let here = channel_lane(channel) % self.config.shards.max(1) == self.config.shard;
        let active = self.channels.get(channel).and_then(|host| host.active.as_ref());
        here && active.is_none_or(|active| active.leading.is_none()) && !self.consumers_of(channel).is_empty()
    }

    fn consumers_of(&self, channel: &ChannelKey) -> Vec<cursors::Consumer> {
        let mut consumers = cursors::built_in(channel);
        if let Some(registry) = self.plugins.registry() {
            consumers.extend(registry.consumers(channel, &self.limits));
        }
        consumers
    }

    fn look(&mut self, turn: &mut Turn<'_>, sleeper: Sleeper, look: Look) {
        let incarnation = sleeper.incarnation;
        let request = match look {
            Look::Cursors => ReadRequest::Cursors { incarnation },
            Look::Tail(_) => ReadRequest::LogTail { incarnation },
        };
        let token = self.reading(Reading::Resuming { sleeper, look });
        turn.out.push(Effect::Read { token, request });
    }

    /// What was read of a sleeping channel.
    pub(super) fn on_look(&mut self, turn: &mut Turn<'_>, sleeper: Sleeper, look: Look, page: Page) {
        match (look, page) {
            (Look::Cursors, Page::Cursors(rows)) => match self.owed_from(&sleeper.channel, &rows) {
                Some(seq) => self.look(turn, sleeper, Look::Tail(seq)),
                None => self.looked(turn),
            },
            (Look::Tail(owed), Page::Records(records)) => match records.last() {
                Some(last) if last.seq >= owed => self.wake(turn, sleeper),
                Some(_) => self.looked(turn),
                None => self.queue.push_back(Step::Resuming(sleeper)),
            },
            // Damage is for the replica to judge.
            _ => self.wake(turn, sleeper),
        }
    }

    /// First position that one of its consumers has not done.
    fn owed_from(&self, channel: &ChannelKey, rows: &[(Bytes, Bytes)]) -> Option<Seq> {
        let stored = |name: &str| {
            let row = rows.iter().find(|(consumer, _)| consumer == name.as_bytes())?;
            Cursor::decode(&row.1)
        };
        let consumers = self.consumers_of(channel);
        let owed = consumers
            .iter()
            .filter_map(|consumer| consumer.owed_from(stored(&consumer.name)));
        owed.min()
    }

    /// It has no record here: an empty channel, or one whose records this disk does not hold.
    pub(super) fn look_at_state(&mut self, turn: &mut Turn<'_>, sleeper: Sleeper) -> Result<(), Miss> {
        let key = Key::ChannelState {
            incarnation: sleeper.incarnation,
        };
        match turn.rows.row(&key)? {
            Some(_) => self.looked(turn),
            None => self.wake(turn, sleeper),
        }
        Ok(())
    }

    fn looked(&mut self, turn: &mut Turn<'_>) {
        self.resuming.looking -= 1;
        self.resume_on(turn);
    }

    /// Its leader, here or elsewhere, is found or granted anew, and opens it.
    fn wake(&mut self, turn: &mut Turn<'_>, sleeper: Sleeper) {
        self.counters.resumed += 1;
        let request = Request::Resolve {
            group: self.directory.group_of(sleeper.channel.slot()),
            channel: sleeper.channel.clone(),
        };
        self.call(turn, request, Then::Resuming(Sweep::Woken(sleeper)));
    }
}
