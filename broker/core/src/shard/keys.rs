//! Keys of plugins: the changes that runs of bindings cause, made slot by slot before their cursor moves (M-18); and keys whose life
//! time is over.

use super::Shard;
use super::continuation::Then;
use super::groups::ReplyTo;
use super::peer::{Reply, Request};
use super::turn::Turn;
use crate::hooks::call::{KvChange, KvOperation};
use crate::hooks::cursors::{self, Cause};
use crate::plugins::{
    Bound, Failure, KEY_CHANGES_MAX, KeyChange, KeyOperation, KeyRefused, KeySource, KeyValue, is_alive,
    key_slot,
};
use crate::replicated::{self, Rejection};
use crate::rows::Table;
use crate::slot::{Lane, ProposeError, command, keys, rows};
use crate::types::{ChannelKey, Seq, SlotId, Token};
use bytes::Bytes;
use penstock_wire::storage::v1;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Slots that are asked at a time for one run.
const SLOTS_AT_ONCE: usize = 8;
/// Keys of a slot that are looked at together.
const SWEPT_AT_ONCE: u32 = 1_000;

/// Changes of one slot.
type Part = (SlotId, Vec<KeyChange>);

/// The changes that a run has caused.
#[derive(Debug)]
pub(super) struct KeyJob {
    plugin: Arc<str>,
    source: KeySource,
    /// Not proposed yet.
    parts: VecDeque<Part>,
    /// Proposed and not answered.
    open: usize,
    /// Why the run is not done: the first refusal, or that a slot could not be asked.
    failed: Option<cursors::Failure>,
}

/// The changes of the message of a dead letter, slot by slot.
#[derive(Clone, Debug)]
pub(super) struct Replay {
    reply_to: ReplyTo,
    /// The message.
    seq: Seq,
    plugin: Arc<str>,
    parts: VecDeque<Part>,
}

/// What a slot said of changes.
pub(super) fn refusal(reply: Option<&Reply>) -> Result<(), Option<Cause>> {
    use replicated::Reply::{Keys, Rejected};
    match reply {
        Some(Reply::Proposed(Ok(Keys(_)))) => Ok(()),
        Some(Reply::Proposed(Ok(Rejected(Rejection::Keys(why))))) => Err(Some(Cause::Keys(*why))),
        Some(
            Reply::Proposed(Ok(Rejected(Rejection::TooMany)))
            | Reply::Proposed(Err(ProposeError::TooLarge { .. })),
        ) => Err(Some(Cause::Keys(KeyRefused::TooLarge))),
        Some(Reply::Proposed(Ok(Rejected(Rejection::Malformed)))) => {
            Err(Some(Cause::Call(Failure::BadOutput)))
        }
        _ => Err(None),
    }
}

/// The changes by their slots, each in the order in which the plugin wants them.
fn parts(plugin: &str, changes: impl Iterator<Item = KeyChange>) -> VecDeque<Part> {
    let mut parts: BTreeMap<SlotId, Vec<KeyChange>> = BTreeMap::new();
    for change in changes {
        parts
            .entry(key_slot(plugin, &change.key))
            .or_default()
            .push(change);
    }
    parts.into_iter().collect()
}

fn change(change: KvChange, seq: Seq) -> KeyChange {
    KeyChange {
        key: change.key,
        seq,
        operation: match change.operation {
            KvOperation::Set { value, ttl_ms } => KeyOperation::Set(KeyValue { value, ttl_ms }),
            KvOperation::Increment(by) => KeyOperation::Increment(by),
            KvOperation::Delete => KeyOperation::Delete,
        },
    }
}

impl Shard {
    /// The plugin of a binding that may change keys, and what marks the changes of this run.
    pub(super) fn key_source(
        &mut self,
        channel: &ChannelKey,
        bound: &Bound,
        run: Token,
    ) -> Option<(Arc<str>, KeySource)> {
        let active = self.active(channel)?;
        let source = KeySource {
            binding: Arc::clone(&bound.binding.id),
            binding_incarnation: bound.incarnation,
            incarnation: active.meta.incarnation,
            through: Seq(0),
            leader_epoch: active.leading?,
            run,
        };
        let plugin = Arc::clone(&bound.binding.plugin);
        bound.binding.exact.then_some((plugin, source))
    }

    /// A run is done up to here, and causes changes. Where it is done in part, its window ends there first.
    pub(super) fn keys_caused(
        &mut self,
        channel: &ChannelKey,
        (token, through): (Token, Seq),
        (plugin, source): (Arc<str>, KeySource),
        (seqs, changes): (&[Seq], Vec<KvChange>),
    ) {
        if changes.len() > KEY_CHANGES_MAX {
            self.counters.key_too_large += 1;
            let cause = Cause::Keys(KeyRefused::TooLarge);
            return self.run_failed(channel, token, cursors::Failure::Retry { after: None, cause });
        }
        let placed = changes.into_iter().filter_map(|one| {
            let seq = seqs.get(one.message as usize)?;
            Some(change(one, *seq))
        });
        let parts = parts(&plugin, placed);
        let Some(active) = self.active(channel) else {
            return;
        };
        let job = KeyJob {
            plugin,
            source: KeySource { through, ..source },
            parts,
            open: 0,
            failed: None,
        };
        active.key_jobs.insert(token, job);
        self.tell_cursors(channel, cursors::Input::Narrow { token, through });
    }

    /// The window of a run is what its changes stand for: they are made.
    pub(super) fn change_keys_of(&mut self, turn: &mut Turn<'_>, channel: &ChannelKey, token: Token) {
        loop {
            let Some(job) = self
                .active(channel)
                .and_then(|active| active.key_jobs.get_mut(&token))
            else {
                return;
            };
            if job.failed.is_some() || job.open >= SLOTS_AT_ONCE {
                return;
            }
            let Some((slot, changes)) = job.parts.pop_front() else {
                return;
            };
            job.open += 1;
            let command = command::change_keys(turn.now.wall_ms, &job.plugin, Some(&job.source), &changes);
            let request = Request::Propose {
                group: self.directory.group_of(slot),
                lane: Lane::Background,
                command,
            };
            let channel = channel.clone();
            self.call(turn, request, Then::Keys { channel, token, slot });
        }
    }

    /// A slot has made its part of the changes, or not.
    pub(super) fn on_keys_changed(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        (token, slot): (Token, SlotId),
        reply: Option<Reply>,
    ) {
        let refused = refusal(reply.as_ref());
        self.count_changes(&refused);
        let Some(job) = self
            .active(channel)
            .and_then(|active| active.key_jobs.get_mut(&token))
        else {
            return;
        };
        job.open = job.open.saturating_sub(1);
        match refused {
            Ok(()) => {}
            Err(Some(cause)) => job.failed = Some(cursors::Failure::Retry { after: None, cause }),
            Err(None) => {
                job.failed.get_or_insert(cursors::Failure::Untried);
            }
        }
        let full = refused == Err(Some(Cause::Keys(KeyRefused::Quota)));
        let swept = full.then(|| Arc::clone(&job.plugin));
        let ended = job.open == 0 && (job.failed.is_some() || job.parts.is_empty());
        let (failed, through) = (job.failed, job.source.through);
        if let Some(plugin) = swept {
            self.sweep_keys(turn, plugin, slot);
        }
        if !ended {
            return self.change_keys_of(turn, channel, token);
        }
        if let Some(active) = self.active(channel) {
            active.key_jobs.remove(&token);
        }
        match failed {
            Some(failure) => self.run_failed(channel, token, failure),
            None => self.tell_cursors(channel, cursors::Input::Done { token, through }),
        }
    }

    pub(super) fn count_changes(&mut self, refused: &Result<(), Option<Cause>>) {
        let counters = &mut self.counters;
        *match refused {
            Ok(()) => &mut counters.key_changes,
            Err(Some(Cause::Keys(KeyRefused::Quota))) => &mut counters.key_quota,
            Err(Some(Cause::Keys(KeyRefused::NotANumber))) => &mut counters.key_not_a_number,
            Err(Some(_)) => &mut counters.key_too_large,
            Err(None) => &mut counters.key_unavailable,
        } += 1;
    }

    /// Makes the changes of the message of a dead letter. Its place may lie before what the slots have seen of the channel, so that
    /// they are made each time somebody replays it.
    pub(super) fn replay_changes(
        &mut self,
        turn: &mut Turn<'_>,
        (reply_to, seq): (ReplyTo, Seq),
        plugin: Arc<str>,
        changes: Vec<KvChange>,
    ) {
        if changes.len() > KEY_CHANGES_MAX {
            return self.reply(turn, reply_to, Reply::Redelivered(None));
        }
        let parts = parts(&plugin, changes.into_iter().map(|one| change(one, Seq(0))));
        let replay = Replay {
            reply_to,
            seq,
            plugin,
            parts,
        };
        self.replay_next(turn, replay);
    }

    fn replay_next(&mut self, turn: &mut Turn<'_>, mut replay: Replay) {
        let Some((slot, changes)) = replay.parts.pop_front() else {
            return self.reply(turn, replay.reply_to, Reply::Redelivered(Some(replay.seq)));
        };
        let request = Request::ProposeOnce {
            group: self.directory.group_of(slot),
            command: command::change_keys(turn.now.wall_ms, &replay.plugin, None, &changes),
        };
        self.call(turn, request, Then::Redelivered(replay));
    }

    /// A slot has made its part of the changes of a dead letter, or not.
    pub(super) fn on_replay_changed(&mut self, turn: &mut Turn<'_>, replay: Replay, reply: Option<&Reply>) {
        let refused = refusal(reply);
        self.count_changes(&refused);
        match refused {
            Ok(()) => self.replay_next(turn, replay),
            Err(_) => self.reply(turn, replay.reply_to, Reply::Redelivered(None)),
        }
    }

    /// A slot has no room for more of a plugin: what nobody can see any more is removed. Once at a time.
    pub(super) fn sweep_keys(&mut self, turn: &mut Turn<'_>, plugin: Arc<str>, slot: SlotId) {
        if self.key_sweeps.insert((Arc::clone(&plugin), slot)) {
            self.sweep_page(turn, (plugin, slot), None);
        }
    }

    fn sweep_page(&mut self, turn: &mut Turn<'_>, (plugin, slot): (Arc<str>, SlotId), after: Option<Bytes>) {
        let request = Request::Page {
            group: self.directory.group_of(slot),
            slot,
            table: Table::PluginKey,
            prefix: keys::plugin_prefix(&plugin),
            after,
            rows_max: SWEPT_AT_ONCE,
        };
        self.call(turn, request, Then::KeySweep { plugin, slot });
    }

    /// Some keys of the plugin in the slot.
    pub(super) fn on_key_sweep(
        &mut self,
        turn: &mut Turn<'_>,
        (plugin, slot): (Arc<str>, SlotId),
        reply: Option<Reply>,
    ) {
        let Some(Reply::Page { rows, more }) = reply else {
            self.key_sweeps.remove(&(plugin, slot));
            return;
        };
        let wall_ms = turn.now.wall_ms;
        let is_over = |row: &[u8]| {
            rows::decode::<v1::PluginKey>(row).is_ok_and(|row| !is_alive(row.expires_ms, wall_ms))
        };
        let over = rows.iter().filter(|(_, row)| is_over(row));
        let changes: Vec<KeyChange> = over
            .filter_map(|(key, _)| keys::read_plugin_key(key))
            .map(|(_, key)| KeyChange {
                key: Arc::from(key),
                seq: Seq(0),
                operation: KeyOperation::Forget,
            })
            .collect();
        if !changes.is_empty() {
            let request = Request::Propose {
                group: self.directory.group_of(slot),
                lane: Lane::Background,
                command: command::change_keys(wall_ms, &plugin, None, &changes),
            };
            self.call(turn, request, Then::Nothing);
        }
        match rows.last().filter(|_| more) {
            Some((last, _)) => self.sweep_page(turn, (plugin, slot), Some(last.clone())),
            None => {
                self.key_sweeps.remove(&(plugin, slot));
            }
        }
    }
}
