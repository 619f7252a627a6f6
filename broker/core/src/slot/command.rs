//! Commands of a slot group, ready to be proposed. Every constructor takes what apply will need: time and ids included (SL-3).

use super::online::SessionChange;
use super::rows::{leader, meta, name, stored_key_change, stored_key_source, stored_letter};
use crate::admin::{ChannelFlags, List};
use crate::codec::encode_command as encode;
use crate::plugins::{DeadLetter, KeyChange, KeySource, LetterName};
use crate::types::{ChannelKey, ChannelMeta, DeviceFlag, DeviceLevel, Leader, LeaderEpoch, Seq, SlotId, Uid};
use bytes::Bytes;
use penstock_wire::storage::v1::{self, command::Body};
use std::sync::Arc;

/// Most entries of one command, unless `Limits` says less.
pub const ENTRIES_MAX: usize = 4_096;

/// Most uids added or removed by one list command.
pub const UIDS_MAX: usize = 1_000;

/// Stores a device token (its SHA-256) and creates the user.
#[must_use]
pub fn put_user_token(
    wall_ms: u64,
    uid: &Uid,
    flag: DeviceFlag,
    token_sha256: [u8; 32],
    level: DeviceLevel,
) -> Bytes {
    encode(
        wall_ms,
        Body::PutUserToken(v1::PutUserToken {
            uid: uid.as_str().to_owned(),
            flag: u32::from(flag.0),
            token_sha256: Bytes::copy_from_slice(&token_sha256),
            level: u32::from(level == DeviceLevel::Master),
        }),
    )
}

/// Clears the tokens of these device flags, where there are any.
#[must_use]
pub fn clear_token(wall_ms: u64, uid: &Uid, flags: &[DeviceFlag]) -> Bytes {
    encode(
        wall_ms,
        Body::ClearToken(v1::ClearToken {
            uid: uid.as_str().to_owned(),
            flags: flags.iter().map(|flag| u32::from(flag.0)).collect(),
        }),
    )
}

fn texts(uids: &[Uid]) -> Vec<String> {
    uids.iter().map(|uid| uid.as_str().to_owned()).collect()
}

/// Adds or removes system uids; for the group of [`super::keys::system_uids_slot`].
#[must_use]
pub fn change_system_uids(wall_ms: u64, uids: &[Uid], add: bool) -> Bytes {
    encode(
        wall_ms,
        Body::ChangeSystemUids(v1::ChangeSystemUids {
            uids: texts(uids),
            add,
        }),
    )
}

/// Creates or updates a channel's definition.
#[must_use]
pub fn put_channel(wall_ms: u64, channel: &ChannelKey, flags: ChannelFlags) -> Bytes {
    encode(
        wall_ms,
        Body::PutChannel(v1::PutChannel {
            channel: Some(name(channel)),
            large: flags.large,
            ban: flags.ban,
            disband: flags.disband,
            send_ban: flags.send_ban,
            allow_stranger: flags.allow_stranger,
        }),
    )
}

/// Ends a channel for ever.
#[must_use]
pub fn disband(wall_ms: u64, channel: &ChannelKey) -> Bytes {
    encode(
        wall_ms,
        Body::Disband(v1::Disband {
            channel: Some(name(channel)),
        }),
    )
}

/// A change of one member list; at most [`UIDS_MAX`] uids either way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListEdit {
    /// The channel.
    pub channel: ChannelKey,
    /// Which list.
    pub list: List,
    /// Removed first.
    pub remove: Vec<Uid>,
    /// Added then.
    pub add: Vec<Uid>,
    /// First position that added subscribers receive (PC-2).
    pub join_seq: Seq,
    /// When set, the change counts only if the list revision is still this one.
    pub expected_revision: Option<u64>,
}

/// Changes a member list.
#[must_use]
pub fn change_list(wall_ms: u64, edit: &ListEdit) -> Bytes {
    let list = match edit.list {
        List::Subscribers => v1::ListKind::Subscribers,
        List::Deny => v1::ListKind::Deny,
        List::Allow => v1::ListKind::Allow,
    };
    encode(
        wall_ms,
        Body::ChangeList(v1::ChangeList {
            channel: Some(name(&edit.channel)),
            list: list.into(),
            add: texts(&edit.add),
            remove: texts(&edit.remove),
            join_seq: edit.join_seq.0,
            expected_revision: edit.expected_revision,
        }),
    )
}

/// A change of one membership row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MembershipChange {
    /// Joins or leaves, under the revision of the channel's member list.
    State {
        /// True to join.
        joined: bool,
        /// First position that the member receives.
        join_seq: Seq,
        /// Older revisions than the row's change nothing.
        revision: u64,
    },
    /// Moves the read position forward (RD-2).
    Read {
        /// Last position read.
        read_seq: Seq,
        /// On this device flag.
        flag: Option<DeviceFlag>,
    },
    /// Hides the conversation and everything up to here.
    Delete {
        /// Last hidden position.
        through: Seq,
    },
    /// Puts the conversation on top.
    Activate {
        /// When, ms since 1970.
        at_ms: u64,
    },
}

/// Changes a membership row, in the uid's slot.
#[must_use]
pub fn change_membership(wall_ms: u64, uid: &Uid, channel: &ChannelKey, change: MembershipChange) -> Bytes {
    use v1::change_membership::Change;
    let change = match change {
        MembershipChange::State {
            joined,
            join_seq,
            revision,
        } => Change::State(v1::MembershipState {
            joined,
            join_seq: join_seq.0,
            revision,
        }),
        MembershipChange::Read { read_seq, flag } => Change::Read(v1::MembershipRead {
            read_seq: read_seq.0,
            flag: flag.map(|flag| u32::from(flag.0)),
        }),
        MembershipChange::Delete { through } => Change::DeleteThrough(through.0),
        MembershipChange::Activate { at_ms } => Change::ActivateMs(at_ms),
    };
    encode(
        wall_ms,
        Body::ChangeMembership(v1::ChangeMembership {
            uid: uid.as_str().to_owned(),
            channel: Some(name(channel)),
            change: Some(change),
        }),
    )
}

/// Removes outbox rows that were written in their uids' slots, where their revision is still the one given.
#[must_use]
pub fn clear_outbox(wall_ms: u64, channel: &ChannelKey, delivered: &[(Uid, u64)]) -> Bytes {
    encode(
        wall_ms,
        Body::ClearOutbox(v1::ClearOutbox {
            channel: Some(name(channel)),
            delivered: delivered
                .iter()
                .map(|(uid, revision)| v1::Delivered {
                    uid: uid.as_str().to_owned(),
                    revision: *revision,
                })
                .collect(),
        }),
    )
}

/// One compare-and-set of a channel's meta. Of `meta`, leader, voters, previous and learners count; apply computes the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaPut {
    /// The channel.
    pub channel: ChannelKey,
    /// Version that the row must have; 0 = there must be none.
    pub expected_version: u64,
    /// The wanted row.
    pub meta: ChannelMeta,
}

/// The stored form of one compare-and-set.
#[must_use]
pub fn stored_put(put: &MetaPut) -> v1::PutChannelMeta {
    v1::PutChannelMeta {
        channel: Some(name(&put.channel)),
        expected_version: put.expected_version,
        meta: Some(meta(&put.meta)),
    }
}

/// A batch of grants (M-5).
#[must_use]
pub fn put_metas(wall_ms: u64, puts: Vec<v1::PutChannelMeta>) -> Bytes {
    encode(wall_ms, Body::PutChannelMetas(v1::PutChannelMetas { puts }))
}

/// Ends a voter change: the leader of `leader_epoch` saw its HW reach the epoch start under both sets (CH-7).
#[must_use]
pub fn clear_previous(
    wall_ms: u64,
    channel: &ChannelKey,
    expected_version: u64,
    leader_epoch: LeaderEpoch,
) -> Bytes {
    encode(
        wall_ms,
        Body::ClearPrevious(v1::ClearPrevious {
            channel: Some(name(channel)),
            expected_version,
            leader_epoch: leader_epoch.0,
        }),
    )
}

/// Fences a channel for a task (CH-9).
#[must_use]
pub fn fence(wall_ms: u64, channel: &ChannelKey, expected_version: u64, task: u64) -> Bytes {
    encode(
        wall_ms,
        Body::Fence(v1::Fence {
            channel: Some(name(channel)),
            expected_version,
            task,
        }),
    )
}

/// Clears the fence of a task and names the next leader.
#[must_use]
pub fn clear_fence(
    wall_ms: u64,
    channel: &ChannelKey,
    expected_version: u64,
    task: u64,
    next: Option<Leader>,
) -> Bytes {
    encode(
        wall_ms,
        Body::ClearFence(v1::ClearFence {
            channel: Some(name(channel)),
            expected_version,
            task,
            leader: next.as_ref().map(leader),
        }),
    )
}

/// Keeps a dead letter, in the slot of its binding.
#[must_use]
pub fn put_dead_letter(wall_ms: u64, letter: &DeadLetter) -> Bytes {
    let letter = stored_letter(letter);
    encode(
        wall_ms,
        Body::PutDeadLetter(v1::PutDeadLetter { letter: Some(letter) }),
    )
}

/// Removes dead letters of a binding, at most [`ENTRIES_MAX`].
#[must_use]
pub fn drop_dead_letters(wall_ms: u64, binding: &str, names: &[LetterName]) -> Bytes {
    let stored = |name: &LetterName| v1::DeadLetterName {
        binding_incarnation: name.binding_incarnation,
        incarnation: name.incarnation.0,
        seq: name.seq.0,
    };
    encode(
        wall_ms,
        Body::DropDeadLetters(v1::DropDeadLetters {
            binding: binding.to_owned(),
            names: names.iter().map(stored).collect(),
        }),
    )
}

/// Changes keys of a plugin, at least one and all of one slot: [`crate::plugins::key_slot`].
#[must_use]
pub fn change_keys(wall_ms: u64, plugin: &str, source: Option<&KeySource>, changes: &[KeyChange]) -> Bytes {
    encode(
        wall_ms,
        Body::ChangeKeys(v1::ChangeKeys {
            plugin: plugin.to_owned(),
            source: source.map(stored_key_source),
            changes: changes.iter().map(stored_key_change).collect(),
        }),
    )
}

/// Sessions of one slot that began or ended, at most [`super::online::EVENTS_OF_BATCH`], and the bindings that are to be told, by id and
/// creation, as of a revision of the registry.
#[must_use]
pub fn note_sessions(
    wall_ms: u64,
    slot: SlotId,
    (registry, readers): (u64, &[(Arc<str>, u64)]),
    changes: &[SessionChange],
) -> Bytes {
    let reader = |(binding, incarnation): &(Arc<str>, u64)| v1::OnlineReader {
        binding: binding.to_string(),
        binding_incarnation: *incarnation,
        done: 0,
    };
    let change = |change: &SessionChange| v1::SessionChange {
        uid: change.uid.as_str().to_owned(),
        session: Some(change.session),
        online: change.online,
    };
    encode(
        wall_ms,
        Body::NoteSessions(v1::NoteSessions {
            slot: u32::from(slot.0),
            registry,
            readers: readers.iter().map(reader).collect(),
            changes: changes.iter().map(change).collect(),
        }),
    )
}

/// A batch of the queue of a slot is done for a binding, or given up.
#[must_use]
pub fn advance_online_reader(
    wall_ms: u64,
    slot: SlotId,
    (binding, binding_incarnation): (&str, u64),
    (done, given_up): (u64, bool),
) -> Bytes {
    encode(
        wall_ms,
        Body::AdvanceOnlineReader(v1::AdvanceOnlineReader {
            slot: u32::from(slot.0),
            binding: binding.to_owned(),
            binding_incarnation,
            done,
            given_up,
        }),
    )
}

/// Raises a channel's retention position (CH-14).
#[must_use]
pub fn set_retention(wall_ms: u64, channel: &ChannelKey, through: Seq) -> Bytes {
    encode(
        wall_ms,
        Body::SetRetention(v1::SetRetention {
            channel: Some(name(channel)),
            through: through.0,
        }),
    )
}
