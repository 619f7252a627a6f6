//! Keys inside the slot tables. Every part is prefix-free and keeps the order of what it encodes, so that one channel's or
//! user's rows are one range and pages resume by key.

use crate::admin::List;
use crate::plugins::{KeySource, LetterName, key_slot, letters_slot};
use crate::rows::{CONTROLLER_SLOT, Key, Table};
use crate::types::{ChannelKey, ChannelKind, DeviceFlag, NodeId, SlotId, Uid, slot_of};
use bytes::Bytes;
use penstock_wire::channel_id::SYSTEM_UIDS_CHANNEL;

/// Ends a text; a NUL inside is written as `00 ff`, which sorts after the end.
const END: [u8; 2] = [0x00, 0x01];
const NUL: [u8; 2] = [0x00, 0xff];

/// Name of the counter row that hands out incarnations.
const INCARNATION: &[u8] = b"incarnation";
/// Begins the names of the counter rows of dead letters.
const LETTERS: &[u8] = b"letters/";
/// Begins the names of the counter rows of the bytes of plugins' keys.
const PLUGIN_BYTES: &[u8] = b"keys/";

fn text(into: &mut Vec<u8>, value: &str) {
    for byte in value.bytes() {
        if byte == 0 {
            into.extend_from_slice(&NUL);
        } else {
            into.push(byte);
        }
    }
    into.extend_from_slice(&END);
}

fn read_text(bytes: &[u8]) -> Option<(String, &[u8])> {
    let mut value = Vec::new();
    let mut rest = bytes;
    loop {
        match rest {
            [0x00, 0x01, after @ ..] => return Some((String::from_utf8(value).ok()?, after)),
            [0x00, 0xff, after @ ..] => {
                value.push(0);
                rest = after;
            }
            [0x00, ..] | [] => return None,
            [byte, after @ ..] => {
                value.push(*byte);
                rest = after;
            }
        }
    }
}

fn channel_into(into: &mut Vec<u8>, channel: &ChannelKey) {
    into.push(channel.kind.0);
    text(into, &channel.id);
}

fn read_channel(bytes: &[u8]) -> Option<(ChannelKey, &[u8])> {
    let (kind, rest) = bytes.split_first()?;
    let (id, rest) = read_text(rest)?;
    Some((ChannelKey::new(&id, ChannelKind(*kind)), rest))
}

/// All rows of a user in a table start with this.
#[must_use]
pub fn uid_prefix(uid: &Uid) -> Bytes {
    let mut key = Vec::with_capacity(uid.as_str().len() + 2);
    text(&mut key, uid.as_str());
    key.into()
}

/// All rows of a channel in a table start with this.
#[must_use]
pub fn channel_prefix(channel: &ChannelKey) -> Bytes {
    let mut key = Vec::with_capacity(channel.id.len() + 3);
    channel_into(&mut key, channel);
    key.into()
}

/// All index rows of a node start with this.
#[must_use]
pub fn node_prefix(node: NodeId) -> Bytes {
    Bytes::copy_from_slice(&node.0.to_be_bytes())
}

fn channel_uid(channel: &ChannelKey, uid: &Uid) -> Bytes {
    let mut key = Vec::with_capacity(channel.id.len() + uid.as_str().len() + 5);
    channel_into(&mut key, channel);
    text(&mut key, uid.as_str());
    key.into()
}

fn at(slot: SlotId, table: Table, key: Bytes) -> Key {
    Key::Slot { slot, table, key }
}

/// Row of a user.
#[must_use]
pub fn user(uid: &Uid) -> Key {
    at(uid.slot(), Table::User, uid_prefix(uid))
}

/// Row of a user's device flag.
#[must_use]
pub fn device(uid: &Uid, flag: DeviceFlag) -> Key {
    let mut key = uid_prefix(uid).to_vec();
    key.push(flag.0);
    at(uid.slot(), Table::Device, key.into())
}

/// The slot that keeps all system uids.
#[must_use]
pub fn system_uids_slot() -> SlotId {
    slot_of(SYSTEM_UIDS_CHANNEL)
}

/// Row that makes a uid a system uid.
#[must_use]
pub fn system_uid(uid: &Uid) -> Key {
    at(system_uids_slot(), Table::SystemUid, uid_prefix(uid))
}

/// Row of a channel's definition.
#[must_use]
pub fn definition(channel: &ChannelKey) -> Key {
    at(channel.slot(), Table::Channel, channel_prefix(channel))
}

/// The table of a list.
#[must_use]
pub fn list_table(list: List) -> Table {
    match list {
        List::Subscribers => Table::Subscriber,
        List::Deny => Table::Deny,
        List::Allow => Table::Allow,
    }
}

/// Row of a uid in one of a channel's lists.
#[must_use]
pub fn listed(channel: &ChannelKey, list: List, uid: &Uid) -> Key {
    at(channel.slot(), list_table(list), channel_uid(channel, uid))
}

/// Row of a channel's counts and list revision.
#[must_use]
pub fn stats(channel: &ChannelKey) -> Key {
    at(channel.slot(), Table::ChannelStats, channel_prefix(channel))
}

/// Row of a user's membership.
#[must_use]
pub fn membership(uid: &Uid, channel: &ChannelKey) -> Key {
    let mut key = uid_prefix(uid).to_vec();
    channel_into(&mut key, channel);
    at(uid.slot(), Table::Membership, key.into())
}

/// Row of a channel's meta.
#[must_use]
pub fn meta(channel: &ChannelKey) -> Key {
    at(channel.slot(), Table::ChannelMeta, channel_prefix(channel))
}

/// Row that still waits to be written in the uid's slot.
#[must_use]
pub fn outbox(channel: &ChannelKey, uid: &Uid) -> Key {
    at(channel.slot(), Table::MembershipOutbox, channel_uid(channel, uid))
}

/// Index row of a node in [`Table::LeaderIndex`] or [`Table::ReplicaIndex`].
#[must_use]
pub fn index(table: Table, node: NodeId, channel: &ChannelKey) -> Key {
    let mut key = node_prefix(node).to_vec();
    channel_into(&mut key, channel);
    at(channel.slot(), table, key.into())
}

/// The counter of incarnations of a slot.
#[must_use]
pub fn incarnation_counter(slot: SlotId) -> Key {
    at(slot, Table::Counter, Bytes::from_static(INCARNATION))
}

/// All dead letters of a binding start with this.
#[must_use]
pub fn letters_prefix(binding: &str) -> Bytes {
    let mut key = Vec::with_capacity(binding.len() + 2);
    text(&mut key, binding);
    key.into()
}

/// Row of a dead letter.
#[must_use]
pub fn letter(binding: &str, name: LetterName) -> Key {
    let mut key = letters_prefix(binding).to_vec();
    for number in [name.binding_incarnation, name.incarnation.0, name.seq.0] {
        key.extend_from_slice(&number.to_be_bytes());
    }
    at(letters_slot(binding), Table::DeadLetter, key.into())
}

/// Row that counts the dead letters of a binding.
#[must_use]
pub fn letters_counter(binding: &str) -> Key {
    let mut key = LETTERS.to_vec();
    text(&mut key, binding);
    at(letters_slot(binding), Table::Counter, key.into())
}

/// All keys of a plugin, within a slot, start with this.
#[must_use]
pub fn plugin_prefix(plugin: &str) -> Bytes {
    let mut key = Vec::with_capacity(plugin.len() + 2);
    text(&mut key, plugin);
    key.into()
}

/// Row of a key of a plugin.
#[must_use]
pub fn plugin_key(plugin: &str, name: &str) -> Key {
    let mut key = plugin_prefix(plugin).to_vec();
    text(&mut key, name);
    at(key_slot(plugin, name), Table::PluginKey, key.into())
}

/// The plugin and key that the row's key names.
#[must_use]
pub fn read_plugin_key(key: &[u8]) -> Option<(String, String)> {
    let (plugin, rest) = read_text(key)?;
    let (name, rest) = read_text(rest)?;
    rest.is_empty().then_some((plugin, name))
}

/// Row that counts the bytes of a plugin's keys in a slot.
#[must_use]
pub fn plugin_bytes(slot: SlotId, plugin: &str) -> Key {
    let mut key = PLUGIN_BYTES.to_vec();
    text(&mut key, plugin);
    at(slot, Table::Counter, key.into())
}

/// Row that says how far a binding's changes of a channel are made in a slot.
#[must_use]
pub fn plugin_mark(slot: SlotId, plugin: &str, source: &KeySource) -> Key {
    let mut key = plugin_prefix(plugin).to_vec();
    text(&mut key, &source.binding);
    for number in [source.binding_incarnation, source.incarnation.0] {
        key.extend_from_slice(&number.to_be_bytes());
    }
    at(slot, Table::PluginMark, key.into())
}

/// Row of the sessions of a user that webhooks are told of as online.
#[must_use]
pub fn online_user(uid: &Uid) -> Key {
    at(uid.slot(), Table::OnlineUser, uid_prefix(uid))
}

/// Row of what the queue of sessions that began or ended holds in a slot.
#[must_use]
pub fn online_queue(slot: SlotId) -> Key {
    online_batch(slot, 0)
}

/// Row of a batch of that queue; they count from 1.
#[must_use]
pub fn online_batch(slot: SlotId, number: u64) -> Key {
    at(
        slot,
        Table::OnlineQueue,
        Bytes::copy_from_slice(&number.to_be_bytes()),
    )
}

/// A row of the controller, by name.
#[must_use]
pub fn controller(name: &str) -> Key {
    let mut key = Vec::new();
    text(&mut key, name);
    at(CONTROLLER_SLOT, Table::Controller, key.into())
}

/// The channel and uid of a list or outbox row's key.
#[must_use]
pub fn read_channel_uid(key: &[u8]) -> Option<(ChannelKey, Uid)> {
    let (channel, rest) = read_channel(key)?;
    let (uid, rest) = read_text(rest)?;
    rest.is_empty().then(|| (channel, Uid::new(&uid)))
}

/// The uid and channel of a membership row's key.
#[must_use]
pub fn read_membership(key: &[u8]) -> Option<(Uid, ChannelKey)> {
    let (uid, rest) = read_text(key)?;
    let (channel, rest) = read_channel(rest)?;
    rest.is_empty().then(|| (Uid::new(&uid), channel))
}

/// The node and channel of an index row's key.
#[must_use]
pub fn read_index(key: &[u8]) -> Option<(NodeId, ChannelKey)> {
    let (node, rest) = key.split_first_chunk::<2>()?;
    let (channel, rest) = read_channel(rest)?;
    rest.is_empty()
        .then(|| (NodeId(u16::from_be_bytes(*node)), channel))
}

/// The uid of a key that is a uid alone.
#[must_use]
pub fn read_uid(key: &[u8]) -> Option<Uid> {
    let (uid, rest) = read_text(key)?;
    rest.is_empty().then(|| Uid::new(&uid))
}

/// The table with this number.
#[must_use]
pub fn table(number: u32) -> Option<Table> {
    const ALL: [Table; 20] = [
        Table::User,
        Table::Device,
        Table::SystemUid,
        Table::Channel,
        Table::Subscriber,
        Table::Allow,
        Table::Deny,
        Table::Membership,
        Table::ChannelMeta,
        Table::LeaderIndex,
        Table::ReplicaIndex,
        Table::MembershipOutbox,
        Table::Counter,
        Table::Controller,
        Table::ChannelStats,
        Table::DeadLetter,
        Table::PluginKey,
        Table::PluginMark,
        Table::OnlineUser,
        Table::OnlineQueue,
    ];
    ALL.into_iter().find(|table| *table as u32 == number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_keep_the_order_and_no_key_is_the_start_of_another(
            left in ("[\0a-c]{1,4}", "[\0a-c]{1,4}"), right in ("[\0a-c]{1,4}", "[\0a-c]{1,4}"),
        ) {
            let key = |(id, uid): &(String, String)| {
                channel_uid(&ChannelKey::new(id, ChannelKind::GROUP), &Uid::new(uid))
            };
            prop_assert_eq!(left.cmp(&right), key(&left).cmp(&key(&right)));
            if left != right {
                prop_assert!(!key(&left).starts_with(&key(&right)));
            }
            let (channel, uid) = read_channel_uid(&key(&left)).unwrap();
            prop_assert_eq!((channel.id.as_ref(), uid.as_str()), (left.0.as_str(), left.1.as_str()));
        }

        #[test]
        fn reading_any_bytes_as_a_key_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = (read_channel_uid(&bytes), read_membership(&bytes), read_index(&bytes), read_uid(&bytes));
        }
    }

    #[test]
    fn tables_have_the_number_that_names_them() {
        for number in 0..=22 {
            assert_eq!(
                table(number).map(|table| table as u32),
                (1..=20).contains(&number).then_some(number)
            );
        }
    }
}
