//! The only byte layout of keys. All numbers are big-endian, so that the order of the bytes is the order of the keys.
//!
//! | instance | column family | key | bytes |
//! |---|---|---|---|
//! | meta | `slot` | slot u16, generation u32, table u8, key | 7 + key (M-10) |
//! | meta | `generation` | slot u16 → current generation u32 | 2 → 4 |
//! | meta | `raft` | group u32, index u64 | 12 |
//! | meta | `group` | group u32, what u8: 1 state, 2 applied, 3 install | 5 |
//! | data | `records` | incarnation u64, first seq u64 | 16 (M-11) |
//! | data | `state` | incarnation u64 | 8 |
//! | data | `dedupe` | day u16, incarnation u64, hash u64 | 18 (M-11) |
//! | data | `cursor` | incarnation u64, consumer | 8 + consumer |
//! | data | `node` | name | name |
//!
//! A slot row is written under the slot's current generation, a staged row under the next one.

use bytes::Bytes;
use penstock_core::rows::{Instance, Key, Table};
use penstock_core::types::{GroupId, Incarnation, RaftIndex, Seq, SlotId};

/// A column family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// Cursors of post-commit consumers.
    Cursor,
    /// Idempotency rows.
    Dedupe,
    /// Current generation of each slot.
    Generation,
    /// Hard state, applied index and install progress of Raft groups.
    Group,
    /// Small rows of the node.
    Node,
    /// Entries of Raft logs.
    Raft,
    /// Records of channel logs.
    Records,
    /// Slot rows of all generations.
    Slot,
    /// Channel states.
    State,
}

impl Family {
    /// All of an instance.
    #[must_use]
    pub fn of(instance: Instance) -> &'static [Family] {
        match instance {
            Instance::Meta => &[Family::Generation, Family::Group, Family::Raft, Family::Slot],
            Instance::Data => &[
                Family::Cursor,
                Family::Dedupe,
                Family::Node,
                Family::Records,
                Family::State,
            ],
        }
    }

    /// The name on disk.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Family::Cursor => "cursor",
            Family::Dedupe => "dedupe",
            Family::Generation => "generation",
            Family::Group => "group",
            Family::Node => "node",
            Family::Raft => "raft",
            Family::Records => "records",
            Family::Slot => "slot",
            Family::State => "state",
        }
    }
}

const GROUP_STATE: u8 = 1;
const GROUP_APPLIED: u8 = 2;
const GROUP_INSTALL: u8 = 3;

/// Family and bytes of a point key, given the current generation of its slot (0 where it has none).
#[must_use]
pub fn point(key: &Key, generation: u32) -> (Family, Vec<u8>) {
    match key {
        Key::Slot { slot, table, key } => (Family::Slot, slot_row(*slot, generation, *table, key)),
        // A generation rises with every installed snapshot of one slot: 2^32 of them do not happen.
        Key::Staged { slot, table, key } => (
            Family::Slot,
            slot_row(*slot, generation.saturating_add(1), *table, key),
        ),
        Key::RaftEntry { group, index } => (Family::Raft, raft_entry(*group, *index)),
        Key::RaftState { group } => (Family::Group, group_row(*group, GROUP_STATE)),
        Key::Applied { group } => (Family::Group, group_row(*group, GROUP_APPLIED)),
        Key::Install { group } => (Family::Group, group_row(*group, GROUP_INSTALL)),
        Key::ChannelState { incarnation } => (Family::State, channel_state(*incarnation)),
        Key::Dedupe {
            day,
            incarnation,
            hash,
        } => (Family::Dedupe, dedupe(*day, *incarnation, *hash)),
        Key::Cursor {
            incarnation,
            consumer,
        } => (Family::Cursor, cursor(*incarnation, consumer)),
        Key::Node { name } => (Family::Node, name.to_vec()),
    }
}

/// Key of a slot row.
#[must_use]
pub fn slot_row(slot: SlotId, generation: u32, table: Table, key: &[u8]) -> Vec<u8> {
    let mut bytes = slot_generation(slot, generation);
    bytes.push(table as u8);
    bytes.extend_from_slice(key);
    bytes
}

/// What all rows of a slot's generation start with.
#[must_use]
pub fn slot_generation(slot: SlotId, generation: u32) -> Vec<u8> {
    let mut bytes = slot.0.to_be_bytes().to_vec();
    bytes.extend(generation.to_be_bytes());
    bytes
}

/// Key of a slot's generation, and what all rows of the slot start with.
#[must_use]
pub fn slot(slot: SlotId) -> Vec<u8> {
    slot.0.to_be_bytes().to_vec()
}

/// Key of a Raft entry.
#[must_use]
pub fn raft_entry(group: GroupId, index: RaftIndex) -> Vec<u8> {
    let mut bytes = group.0.to_be_bytes().to_vec();
    bytes.extend(index.0.to_be_bytes());
    bytes
}

fn group_row(group: GroupId, what: u8) -> Vec<u8> {
    let mut bytes = group.0.to_be_bytes().to_vec();
    bytes.push(what);
    bytes
}

/// Key of a value of records.
#[must_use]
pub fn records(incarnation: Incarnation, first: Seq) -> Vec<u8> {
    let mut bytes = incarnation.0.to_be_bytes().to_vec();
    bytes.extend(first.0.to_be_bytes());
    bytes
}

/// Key of a channel state, and what all records and cursors of a channel start with.
#[must_use]
pub fn channel_state(incarnation: Incarnation) -> Vec<u8> {
    incarnation.0.to_be_bytes().to_vec()
}

/// Key of an idempotency row.
#[must_use]
pub fn dedupe(day: u16, incarnation: Incarnation, hash: u64) -> Vec<u8> {
    let mut bytes = day.to_be_bytes().to_vec();
    bytes.extend(incarnation.0.to_be_bytes());
    bytes.extend(hash.to_be_bytes());
    bytes
}

fn cursor(incarnation: Incarnation, consumer: &[u8]) -> Vec<u8> {
    let mut bytes = incarnation.0.to_be_bytes().to_vec();
    bytes.extend_from_slice(consumer);
    bytes
}

/// The first key after all keys with this prefix, for the end of a range.
#[must_use]
pub fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // Only a prefix of nothing but 0xff comes here; no number of ours does.
    vec![u8::MAX; prefix.len() + 64]
}

/// Slot, generation, table and key of a slot row; none of bytes that no version wrote.
#[must_use]
pub fn parse_slot_row(bytes: &[u8]) -> Option<(SlotId, u32, Table, Bytes)> {
    let (slot, rest) = bytes.split_first_chunk::<2>()?;
    let (generation, rest) = rest.split_first_chunk::<4>()?;
    let (table, key) = rest.split_first()?;
    Some((
        SlotId(u16::from_be_bytes(*slot)),
        u32::from_be_bytes(*generation),
        table_of(*table)?,
        Bytes::copy_from_slice(key),
    ))
}

/// Slot and generation of a row of `slot` or of a key of `generation` with its value behind it.
#[must_use]
pub fn parse_generation(bytes: &[u8]) -> Option<(SlotId, u32)> {
    let (slot, rest) = bytes.split_first_chunk::<2>()?;
    let generation = rest.first_chunk::<4>()?;
    Some((SlotId(u16::from_be_bytes(*slot)), u32::from_be_bytes(*generation)))
}

/// Group and index of a Raft entry.
#[must_use]
pub fn parse_raft_entry(bytes: &[u8]) -> Option<(GroupId, RaftIndex)> {
    let (group, rest) = bytes.split_first_chunk::<4>()?;
    Some((
        GroupId(u32::from_be_bytes(*group)),
        RaftIndex(u64::from_be_bytes(rest.try_into().ok()?)),
    ))
}

/// Group of a row of `group` or `raft`.
#[must_use]
pub fn parse_group(bytes: &[u8]) -> Option<GroupId> {
    Some(GroupId(u32::from_be_bytes(*bytes.first_chunk::<4>()?)))
}

/// Incarnation and first position of a value of records.
#[must_use]
pub fn parse_records(bytes: &[u8]) -> Option<(Incarnation, Seq)> {
    let (incarnation, first) = bytes.split_first_chunk::<8>()?;
    Some((
        Incarnation(u64::from_be_bytes(*incarnation)),
        Seq(u64::from_be_bytes(first.try_into().ok()?)),
    ))
}

/// Hash of an idempotency row.
#[must_use]
pub fn parse_dedupe_hash(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.get(10..)?.try_into().ok()?))
}

/// Consumer of a cursor.
#[must_use]
pub fn parse_cursor(bytes: &[u8]) -> Option<Bytes> {
    bytes.get(8..).map(Bytes::copy_from_slice)
}

fn table_of(number: u8) -> Option<Table> {
    const TABLES: [Table; 20] = [
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
    TABLES.into_iter().find(|table| *table as u8 == number)
}

#[cfg(test)]
mod tests;
