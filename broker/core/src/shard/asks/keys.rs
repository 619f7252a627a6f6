//! Keys of a plugin: read, changed, listed.

use super::{Job, answer};
use crate::admin::{Answer, Failure, KeyPlace, KeysAsk, PluginKey};
use crate::plugins::{KEY_BYTES_MAX, KeyChange, KeyRefused, NAME_BYTES_MAX, is_alive, key_slot};
use crate::replicated::{self, Rejection};
use crate::rows::{Key, Table};
use crate::shard::Shard;
use crate::shard::continuation::Then;
use crate::shard::peer::{Reply, Request, RowKey};
use crate::shard::turn::Turn;
use crate::slot::{command, keys, rows};
use crate::types::{SLOT_COUNT, Seq, SlotId, Token};
use bytes::Bytes;
use penstock_wire::storage::v1;
use std::sync::Arc;

/// Keys of one page of a list.
const KEYS_AT_ONCE: usize = 1_000;
/// Slots that one request lists; where they have fewer keys than were asked for, the list goes on with the next request.
const SLOTS_AT_ONCE: u16 = 64;

/// What is done about keys.
#[derive(Debug)]
pub(in crate::shard) enum KeysJob {
    /// One is read.
    Get { key: Arc<str> },
    /// One is changed.
    Change { plugin: Arc<str>, slot: SlotId },
    /// They are listed.
    List(List),
}

/// A list on its way.
#[derive(Debug)]
pub(in crate::shard) struct List {
    plugin: Arc<str>,
    slot: SlotId,
    slots_left: u16,
    limit: usize,
    found: Vec<PluginKey>,
}

impl Shard {
    /// Reads, changes or lists.
    pub(super) fn ask_keys(&mut self, turn: &mut Turn<'_>, ask: Token, wanted: KeysAsk) {
        let (KeysAsk::Get { plugin, .. } | KeysAsk::Change { plugin, .. } | KeysAsk::List { plugin, .. }) =
            &wanted;
        if !(1..=NAME_BYTES_MAX).contains(&plugin.len()) || plugin.contains('\0') {
            return refuse(turn, ask, "a name of a plugin has 1 to 64 bytes");
        }
        if let KeysAsk::Get { key, .. } | KeysAsk::Change { key, .. } = &wanted
            && !(1..=KEY_BYTES_MAX).contains(&key.len())
        {
            return refuse(turn, ask, "a key has 1 to 512 bytes");
        }
        match wanted {
            KeysAsk::Get { plugin, key } => self.get_key(turn, ask, &plugin, key),
            KeysAsk::Change {
                plugin,
                key,
                operation,
            } => {
                let slot = key_slot(&plugin, &key);
                let change = KeyChange {
                    key,
                    seq: Seq(0),
                    operation,
                };
                let request = Request::ProposeOnce {
                    group: self.directory.group_of(slot),
                    command: command::change_keys(turn.now.wall_ms, &plugin, None, &[change]),
                };
                self.keep_ask(turn, ask, Job::Keys(KeysJob::Change { plugin, slot }));
                self.call(turn, request, Then::Ask { ask });
            }
            KeysAsk::List { plugin, after, limit } => {
                if !(1..=KEYS_AT_ONCE).contains(&(limit as usize)) {
                    return refuse(turn, ask, "`limit` must be from 1 to 1000");
                }
                let place = after.unwrap_or(KeyPlace {
                    slot: SlotId(0),
                    key: None,
                });
                if place.slot.0 >= SLOT_COUNT {
                    return refuse(turn, ask, "`after` is no place of a list");
                }
                let list = List {
                    plugin,
                    slot: place.slot,
                    slots_left: SLOTS_AT_ONCE,
                    limit: limit as usize,
                    found: Vec::new(),
                };
                self.list_keys(turn, ask, list, place.key);
            }
        }
    }

    fn get_key(&mut self, turn: &mut Turn<'_>, ask: Token, plugin: &str, key: Arc<str>) {
        let Key::Slot {
            slot,
            table,
            key: row,
        } = keys::plugin_key(plugin, &key)
        else {
            return refuse(turn, ask, "no key of a plugin");
        };
        let request = Request::Rows {
            group: self.directory.group_of(slot),
            keys: vec![RowKey {
                slot,
                table,
                key: row,
            }],
        };
        self.keep_ask(turn, ask, Job::Keys(KeysJob::Get { key }));
        self.call(turn, request, Then::Ask { ask });
    }

    fn list_keys(&mut self, turn: &mut Turn<'_>, ask: Token, list: List, after: Option<Arc<str>>) {
        let after = after.map(|key| {
            let mut row = keys::plugin_prefix(&list.plugin).to_vec();
            row.extend_from_slice(&keys::plugin_prefix(&key));
            Bytes::from(row)
        });
        let request = Request::Page {
            group: self.directory.group_of(list.slot),
            slot: list.slot,
            table: Table::PluginKey,
            prefix: keys::plugin_prefix(&list.plugin),
            after,
            rows_max: u32::try_from(list.limit - list.found.len()).unwrap_or(u32::MAX),
        };
        self.keep_ask(turn, ask, Job::Keys(KeysJob::List(list)));
        self.call(turn, request, Then::Ask { ask });
    }

    /// A change that somebody asked for was made or refused: counted, and room is made where there is none.
    pub(super) fn key_change_answered(
        &mut self,
        turn: &mut Turn<'_>,
        (plugin, slot): (&Arc<str>, SlotId),
        reply: &Reply,
    ) {
        self.count_changes(&crate::shard::keys::refusal(Some(reply)));
        let full = Rejection::Keys(KeyRefused::Quota);
        if *reply == Reply::Proposed(Ok(replicated::Reply::Rejected(full))) {
            self.sweep_keys(turn, Arc::clone(plugin), slot);
        }
    }

    /// Rows came, or a change is made.
    pub(super) fn on_keys_reply(&mut self, turn: &mut Turn<'_>, ask: Token, job: KeysJob, reply: Reply) {
        let wall_ms = turn.now.wall_ms;
        match (job, reply) {
            (KeysJob::Get { key }, Reply::Rows(rows)) => {
                let row = rows.into_iter().next().flatten();
                let read = row.map(|row| shown(key, &row));
                let answered = match read {
                    None => Answer::Key(None),
                    Some(Some(read)) => {
                        Answer::Key(Some(read).filter(|read| is_alive(read.expires_ms, wall_ms)))
                    }
                    Some(None) => unavailable("a stored key cannot be read"),
                };
                answer(turn, ask, answered);
            }
            (KeysJob::Change { .. }, Reply::Proposed(Ok(replicated::Reply::Keys(outcomes)))) => {
                let answered = match outcomes.first() {
                    Some(outcome) => Answer::KeyChanged(*outcome),
                    None => unavailable("no answer about the key"),
                };
                answer(turn, ask, answered);
            }
            (KeysJob::List(list), Reply::Page { rows, more }) => self.listed(turn, ask, list, (rows, more)),
            _ => answer(turn, ask, unavailable("no answer about keys")),
        }
    }

    fn listed(
        &mut self,
        turn: &mut Turn<'_>,
        ask: Token,
        mut list: List,
        (rows, more): (Vec<(Bytes, Bytes)>, bool),
    ) {
        let wall_ms = turn.now.wall_ms;
        let mut last = None;
        for (row_key, row) in &rows {
            let read = keys::read_plugin_key(row_key).and_then(|(_, key)| shown(Arc::from(key), row));
            let Some(read) = read else {
                return answer(turn, ask, unavailable("a stored key cannot be read"));
            };
            last = Some(Arc::clone(&read.key));
            if is_alive(read.expires_ms, wall_ms) {
                list.found.push(read);
            }
        }
        let slot = list.slot;
        if more && list.found.len() < list.limit {
            return self.list_keys(turn, ask, list, last);
        }
        let next = if more {
            Some(KeyPlace { slot, key: last })
        } else {
            let next = SlotId(slot.0 + 1);
            (next.0 < SLOT_COUNT).then_some(KeyPlace {
                slot: next,
                key: None,
            })
        };
        match next {
            Some(KeyPlace { slot, key: None }) if list.found.len() < list.limit && list.slots_left > 1 => {
                list.slot = slot;
                list.slots_left -= 1;
                self.list_keys(turn, ask, list, None);
            }
            next => answer(
                turn,
                ask,
                Answer::Keys {
                    keys: list.found,
                    next,
                },
            ),
        }
    }
}

fn shown(key: Arc<str>, row: &[u8]) -> Option<PluginKey> {
    let row: v1::PluginKey = rows::decode(row).ok()?;
    Some(PluginKey {
        key,
        value: row.value,
        expires_ms: row.expires_ms,
    })
}

fn refuse(turn: &mut Turn<'_>, ask: Token, text: &str) {
    answer(turn, ask, Answer::Failed(Failure::Invalid(text.to_owned())));
}

fn unavailable(text: &str) -> Answer {
    Answer::Failed(Failure::Unavailable(text.to_owned()))
}
