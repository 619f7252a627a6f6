//! The state machine of a slot group: from commands to rows, the same on every replica (SL-3).

mod channels;
mod letters;
mod metas;
mod online;
mod plugin_keys;
mod users;

use super::command::{ENTRIES_MAX, UIDS_MAX};
use super::faults::Faults;
use super::rows::ID_BYTES_MAX;
use crate::codec::{COMMAND_VERSION, Corrupt};
use crate::replicated::{Applied, Halt, Notice, Overlay, Rejection, Reply, StateMachine};
use crate::rows::Key;
use crate::types::{SlotId, Uid};
use penstock_wire::storage::v1::{self, command::Body};
use prost::Message as _;
use std::collections::BTreeSet;

/// The state machine of the group that owns these slots.
#[derive(Clone, Debug)]
pub struct Machine {
    slots: BTreeSet<SlotId>,
    faults: Faults,
}

impl Machine {
    /// The machine of a group with these slots.
    #[must_use]
    pub fn new(slots: impl IntoIterator<Item = SlotId>) -> Machine {
        Machine {
            slots: slots.into_iter().collect(),
            faults: Faults::default(),
        }
    }

    /// The machine with planted faults, for the simulator.
    #[must_use]
    pub fn with_faults(self, faults: Faults) -> Machine {
        Machine { faults, ..self }
    }

    /// SL-2: nothing of a slot of another group is touched.
    fn owns(&self, slot: SlotId) -> Result<(), Refused> {
        if self.slots.contains(&slot) || self.faults.foreign_slot_applied() {
            Ok(())
        } else {
            Err(Refused::Rejected(Rejection::WrongSlot))
        }
    }

    fn run(&self, command: &v1::Command, rows: &mut Overlay<'_>) -> Result<Applied, Refused> {
        let context = Context {
            machine: self,
            wall_ms: command.wall_ms,
        };
        match command.body.as_ref().ok_or(MALFORMED)? {
            Body::PutUserToken(put) => users::put_token(context, put, rows),
            Body::ClearToken(clear) => users::clear_token(context, clear, rows),
            Body::ChangeSystemUids(change) => users::change_system_uids(context, change, rows),
            Body::ChangeMembership(change) => users::change_membership(context, change, rows),
            Body::PutChannel(put) => channels::put(context, put, rows),
            Body::Disband(disband) => channels::disband(context, disband, rows),
            Body::ChangeList(change) => channels::change_list(context, change, rows),
            Body::ClearOutbox(clear) => channels::clear_outbox(context, clear, rows),
            Body::PutChannelMetas(puts) => metas::put_all(context, puts, rows),
            Body::ClearPrevious(clear) => metas::clear_previous(context, clear, rows),
            Body::Fence(fence) => metas::fence(context, fence, rows),
            Body::ClearFence(clear) => metas::clear_fence(context, clear, rows),
            Body::SetRetention(set) => metas::set_retention(context, set, rows),
            Body::PutDeadLetter(put) => letters::put(context, put, rows),
            Body::DropDeadLetters(drop) => letters::drop(context, drop, rows),
            Body::ChangeKeys(change) => plugin_keys::change(context, change, rows),
            Body::NoteSessions(note) => online::note(context, note, rows),
            Body::AdvanceOnlineReader(advance) => online::advance(context, advance, rows),
            Body::Bootstrap(_)
            | Body::RegisterNode(_)
            | Body::SetLifecycle(_)
            | Body::SetSlotTable(_)
            | Body::SetPlacement(_)
            | Body::SetSettings(_)
            | Body::PluginPropose(_)
            | Body::PluginReady(_)
            | Body::PluginCanary(_)
            | Body::PluginPromote(_)
            | Body::PluginRollback(_)
            | Body::PluginRemove(_)
            | Body::PluginTripped(_)
            | Body::PluginRelease(_)
            | Body::PutBinding(_)
            | Body::RemoveBinding(_)
            | Body::DisableBinding(_)
            | Body::EnableBinding(_) => Err(MALFORMED),
        }
    }
}

impl StateMachine for Machine {
    fn keys(&self, command: &[u8]) -> Vec<Key> {
        let Ok(command) = v1::Command::decode(command) else {
            return Vec::new();
        };
        match &command.body {
            Some(Body::PutUserToken(put)) => users::put_token_keys(put),
            Some(Body::ClearToken(clear)) => users::clear_token_keys(clear),
            Some(Body::ChangeSystemUids(change)) => users::change_system_uids_keys(change),
            Some(Body::ChangeMembership(change)) => users::change_membership_keys(change),
            Some(Body::ChangeList(change)) => channels::change_list_keys(change),
            Some(Body::ClearOutbox(clear)) => channels::clear_outbox_keys(clear),
            Some(Body::PutChannelMetas(puts)) => metas::put_all_keys(puts),
            Some(Body::DropDeadLetters(drop)) => letters::drop_keys(drop),
            Some(Body::ChangeKeys(change)) => plugin_keys::keys(change),
            Some(Body::NoteSessions(note)) => online::note_keys(note),
            // One row each, which apply asks for by itself.
            _ => Vec::new(),
        }
    }

    fn apply(&self, command: &[u8], rows: &mut Overlay<'_>) -> Result<Applied, Halt> {
        let Ok(command) = v1::Command::decode(command) else {
            return Ok(Applied::rejected(Rejection::Malformed));
        };
        if command.version != COMMAND_VERSION {
            return Err(Halt::Stop(format!(
                "command version {} is not known to this build",
                command.version
            )));
        }
        match self.run(&command, rows) {
            Ok(applied) => {
                rows.keep();
                Ok(applied)
            }
            Err(Refused::Rejected(rejection)) => {
                rows.drop_command();
                Ok(Applied::rejected(rejection))
            }
            Err(Refused::Halt(halt)) => {
                rows.drop_command();
                Err(halt)
            }
        }
    }
}

/// Why a command did not run through.
#[derive(Debug)]
pub(super) enum Refused {
    Rejected(Rejection),
    Halt(Halt),
}

const MALFORMED: Refused = Refused::Rejected(Rejection::Malformed);

impl From<crate::rows::Miss> for Refused {
    fn from(miss: crate::rows::Miss) -> Refused {
        Refused::Halt(Halt::Miss(miss))
    }
}

impl From<Rejection> for Refused {
    fn from(rejection: Rejection) -> Refused {
        Refused::Rejected(rejection)
    }
}

#[derive(Clone, Copy)]
struct Context<'a> {
    machine: &'a Machine,
    wall_ms: u64,
}

/// A stored row, or none. A row that does not decode stops the group: answering from it would differ between replicas.
fn read<M: prost::Message + Default>(rows: &mut Overlay<'_>, key: &Key) -> Result<Option<M>, Refused> {
    let Some(row) = rows.row(key)? else {
        return Ok(None);
    };
    match super::rows::decode(&row) {
        Ok(value) => Ok(Some(value)),
        Err(Corrupt) => Err(Refused::Halt(Halt::Stop(format!(
            "the stored row {key:?} does not decode"
        )))),
    }
}

fn checked_uid(text: &str) -> Result<Uid, Refused> {
    if text.is_empty() || text.len() > ID_BYTES_MAX {
        return Err(MALFORMED);
    }
    Ok(Uid::new(text))
}

/// The distinct uids of a command, in order.
fn checked_uids(texts: &[String]) -> Result<BTreeSet<Uid>, Refused> {
    if texts.len() > UIDS_MAX {
        return Err(Rejection::TooMany.into());
    }
    texts.iter().map(|text| checked_uid(text)).collect()
}

fn bounded(entries: usize) -> Result<(), Refused> {
    if entries > ENTRIES_MAX {
        return Err(Rejection::TooMany.into());
    }
    Ok(())
}

fn done(notices: Vec<Notice>) -> Applied {
    Applied {
        reply: Reply::Done,
        notices,
    }
}

#[cfg(test)]
mod online_tests;
#[cfg(test)]
mod plugin_keys_tests;
#[cfg(test)]
mod tests;
