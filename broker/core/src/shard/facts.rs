//! Rows that answer permission questions: where they are, and how they are gathered (M-16).

use crate::admin::List;
use crate::permission::{Fact, Facts, Membership, Question, Value};
use crate::rows::{Key, Row};
use crate::shard::peer::RowKey;
use crate::slot::{keys, rows};
use crate::types::{DeviceFlag, DeviceLevel, Reason, Seq, Uid};
use bytes::Bytes;
use penstock_wire::storage::v1;

/// The row of a slot key, as it travels in a request. Only slot rows have one.
pub(super) fn row_key(key: &Key) -> Option<RowKey> {
    match key {
        Key::Slot { slot, table, key } => Some(RowKey {
            slot: *slot,
            table: *table,
            key: key.clone(),
        }),
        Key::Staged { .. }
        | Key::RaftEntry { .. }
        | Key::RaftState { .. }
        | Key::Applied { .. }
        | Key::Install { .. }
        | Key::ChannelState { .. }
        | Key::Dedupe { .. }
        | Key::Cursor { .. }
        | Key::Node { .. } => None,
    }
}

/// The part of a slot key inside its table.
pub(super) fn inner_key(key: &Key) -> Option<Bytes> {
    row_key(key).map(|row| row.key)
}

/// The row of a device's token.
pub(super) fn device_row(uid: &Uid, flag: DeviceFlag) -> RowKey {
    row_key(&keys::device(uid, flag)).expect("a device row is a slot row")
}

/// Hash of the token and level of the device; none when the row has no token.
pub(super) fn read_device(row: &[u8]) -> Option<([u8; 32], DeviceLevel)> {
    let device = rows::decode::<v1::Device>(row).ok()?;
    let hash = <[u8; 32]>::try_from(device.token_sha256.as_ref()).ok()?;
    let level = if device.level == 1 {
        DeviceLevel::Master
    } else {
        DeviceLevel::Slave
    };
    Some((hash, level))
}

/// The rows that hold a question's facts, in the order of [`Question::needs`].
pub(super) fn rows_of(question: &Question) -> Vec<RowKey> {
    question
        .needs()
        .iter()
        .filter_map(|fact| row_key(&key_of(fact)))
        .collect()
}

fn key_of(fact: &Fact) -> Key {
    match fact {
        Fact::System(uid) => keys::system_uid(uid),
        Fact::Definition(channel) => keys::definition(channel),
        Fact::Listed(channel, list, uid) => keys::listed(channel, *list, uid),
        Fact::HasAllowlist(channel) => keys::stats(channel),
        Fact::Membership(uid, channel) => keys::membership(uid, channel),
    }
}

/// What the rows of [`rows_of`] say, in the same order.
///
/// # Errors
/// A row that cannot be read is not known: refused, worth a retry (SF-4).
pub(super) fn facts_of<'a>(
    question: &Question,
    found: impl Iterator<Item = Option<&'a Row>>,
) -> Result<Facts, Reason> {
    let mut facts = Facts::default();
    for (fact, row) in question.needs().into_iter().zip(found) {
        let value = value_of(&fact, row).ok_or(Reason::NODE_NOT_MATCH)?;
        facts.add(fact, value);
    }
    Ok(facts)
}

fn value_of(fact: &Fact, row: Option<&Row>) -> Option<Value> {
    Some(match fact {
        Fact::System(_) => Value::Present(row.is_some()),
        Fact::Definition(_) => Value::Definition(match row {
            Some(row) => Some(rows::flags(&rows::decode(row).ok()?)),
            None => None,
        }),
        Fact::Listed(_, List::Subscribers, _) => Value::Member(match row {
            Some(row) => Some(Seq(rows::decode::<v1::Subscriber>(row).ok()?.join_seq)),
            None => None,
        }),
        Fact::Listed(_, List::Deny | List::Allow, _) => Value::Present(row.is_some()),
        Fact::HasAllowlist(_) => Value::Present(match row {
            Some(row) => rows::decode::<v1::ChannelStats>(row).ok()?.allowed > 0,
            None => false,
        }),
        Fact::Membership(..) => Value::Membership(match row {
            Some(row) => {
                let row = rows::decode::<v1::Membership>(row).ok()?;
                Some(Membership {
                    join_seq: Seq(row.join_seq),
                    deleted_to_seq: Seq(row.deleted_to_seq),
                    tombstone: row.tombstone,
                })
            }
            None => None,
        }),
    })
}
