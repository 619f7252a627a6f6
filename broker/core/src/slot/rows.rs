//! Values of the slot rows, and the core's types in their stored form.

use crate::admin::ChannelFlags;
use crate::codec::Corrupt;
pub use crate::codec::{decode, encode};
use crate::plugins::{
    Cause, DeadLetter, KeyChange, KeyOperation, KeySource, KeyValue, LetterName, NAME_BYTES_MAX,
};
use crate::types::{
    ChannelKey, ChannelKind, ChannelMeta, DiskBoot, Incarnation, Leader, LeaderEpoch, NodeId, ProcessBoot,
    Replica, Seq, Token, VoterSet,
};
use bytes::Bytes;
use penstock_wire::channel_id;
use penstock_wire::storage::v1;
use std::sync::Arc;

/// What a counter row counts; nothing when there is none.
///
/// # Errors
/// [`Corrupt`] when the row is no counter.
pub fn count(row: Option<&Bytes>) -> Result<u64, Corrupt> {
    let Some(row) = row else { return Ok(0) };
    decode::<v1::Counter>(row).map(|counter| counter.value)
}

/// A replica in its stored form.
#[must_use]
pub fn replica(replica: &Replica) -> v1::Replica {
    v1::Replica {
        node: u32::from(replica.node.0),
        disk: replica.disk.0,
    }
}

/// A node id from its stored form: 1..=1023.
///
/// # Errors
/// [`Corrupt`] when out of range.
pub fn read_node(node: u32) -> Result<NodeId, Corrupt> {
    match u16::try_from(node) {
        Ok(node) if (1..=1_023).contains(&node) => Ok(NodeId(node)),
        _ => Err(Corrupt),
    }
}

/// A replica from its stored form.
///
/// # Errors
/// [`Corrupt`] when the node id is out of range.
pub fn read_replica(stored: &v1::Replica) -> Result<Replica, Corrupt> {
    Ok(Replica {
        node: read_node(stored.node)?,
        disk: DiskBoot(stored.disk),
    })
}

/// A leader in its stored form.
#[must_use]
pub fn leader(leader: &Leader) -> v1::Leader {
    v1::Leader {
        node: u32::from(leader.node.0),
        process: leader.process.0,
    }
}

/// A leader from its stored form.
///
/// # Errors
/// [`Corrupt`] when the node id is out of range.
pub fn read_leader(stored: &v1::Leader) -> Result<Leader, Corrupt> {
    Ok(Leader {
        node: read_node(stored.node)?,
        process: ProcessBoot(stored.process),
    })
}

fn voter_set(set: &VoterSet) -> v1::VoterSet {
    v1::VoterSet {
        isr: set.isr.iter().map(replica).collect(),
        min_isr: u32::from(set.min_isr),
    }
}

fn read_voter_set(stored: &v1::VoterSet) -> Result<VoterSet, Corrupt> {
    Ok(VoterSet {
        isr: stored.isr.iter().map(read_replica).collect::<Result<_, _>>()?,
        min_isr: u8::try_from(stored.min_isr).map_err(|_| Corrupt)?,
    })
}

/// A channel's meta in its stored form.
#[must_use]
pub fn meta(meta: &ChannelMeta) -> v1::ChannelMeta {
    v1::ChannelMeta {
        incarnation: meta.incarnation.0,
        leader: meta.leader.as_ref().map(leader),
        leader_epoch: meta.leader_epoch.0,
        voters: Some(voter_set(&meta.voters)),
        previous: meta.previous.as_ref().map(voter_set),
        learners: meta.learners.iter().map(replica).collect(),
        reborn: meta
            .reborn
            .iter()
            .map(|(node, epoch)| v1::Reborn {
                node: u32::from(node.0),
                leader_epoch: epoch.0,
            })
            .collect(),
        epoch: meta.epoch,
        version: meta.version,
        fenced: meta.fence.is_some(),
        fence: meta.fence.unwrap_or_default(),
        retention_through: meta.retention_through.0,
    }
}

/// A channel's meta from its stored form.
///
/// # Errors
/// [`Corrupt`] when a number is out of its range.
pub fn read_meta(stored: &v1::ChannelMeta) -> Result<ChannelMeta, Corrupt> {
    Ok(ChannelMeta {
        incarnation: Incarnation(stored.incarnation),
        leader: stored.leader.as_ref().map(read_leader).transpose()?,
        leader_epoch: LeaderEpoch(stored.leader_epoch),
        voters: read_voter_set(stored.voters.as_ref().ok_or(Corrupt)?)?,
        previous: stored.previous.as_ref().map(read_voter_set).transpose()?,
        learners: stored
            .learners
            .iter()
            .map(read_replica)
            .collect::<Result<_, _>>()?,
        reborn: stored
            .reborn
            .iter()
            .map(|reborn| Ok((read_node(reborn.node)?, LeaderEpoch(reborn.leader_epoch))))
            .collect::<Result<_, _>>()?,
        epoch: stored.epoch,
        version: stored.version,
        fence: stored.fenced.then_some(stored.fence),
        retention_through: Seq(stored.retention_through),
    })
}

/// A channel's meta as the bytes of its row.
#[must_use]
pub fn encode_meta(value: &ChannelMeta) -> Bytes {
    encode(&meta(value))
}

/// A channel's meta from the bytes of its row.
///
/// # Errors
/// [`Corrupt`] when the bytes are none.
pub fn decode_meta(bytes: &[u8]) -> Result<ChannelMeta, Corrupt> {
    read_meta(&decode::<v1::ChannelMeta>(bytes)?)
}

/// The flags of a channel's definition row.
#[must_use]
pub fn flags(stored: &v1::Channel) -> ChannelFlags {
    ChannelFlags {
        large: stored.large,
        ban: stored.ban,
        disband: stored.disband,
        send_ban: stored.send_ban,
        allow_stranger: stored.allow_stranger,
    }
}

/// A channel's name in its stored form.
#[must_use]
pub fn name(channel: &ChannelKey) -> v1::ChannelName {
    v1::ChannelName {
        id: channel.id.to_string(),
        kind: u32::from(channel.kind.0),
    }
}

/// Longest uid or channel id in a row, bytes: the longest that a user may name, and what the broker puts behind one.
pub const ID_BYTES_MAX: usize = 1_024;
const _: () = assert!(channel_id::ID_BYTES_MAX + channel_id::COMMAND_SUFFIX.len() <= ID_BYTES_MAX);

/// A channel from its stored name: a non-empty id of bounded length, a kind of 1..=255.
///
/// # Errors
/// [`Corrupt`] otherwise.
pub fn read_name(stored: Option<&v1::ChannelName>) -> Result<ChannelKey, Corrupt> {
    let stored = stored.ok_or(Corrupt)?;
    let kind = u8::try_from(stored.kind).map_err(|_| Corrupt)?;
    if kind == 0 || stored.id.is_empty() || stored.id.len() > ID_BYTES_MAX {
        return Err(Corrupt);
    }
    Ok(ChannelKey::new(&stored.id, ChannelKind(kind)))
}

/// A dead letter in its stored form.
#[must_use]
pub fn stored_letter(letter: &DeadLetter) -> v1::DeadLetter {
    v1::DeadLetter {
        channel: Some(name(&letter.channel)),
        incarnation: letter.name.incarnation.0,
        seq: letter.name.seq.0,
        binding: letter.binding.to_string(),
        binding_incarnation: letter.name.binding_incarnation,
        attempts: letter.attempts,
        cause: letter.cause.number(),
        wall_ms: letter.wall_ms,
    }
}

/// A dead letter from its stored form.
///
/// # Errors
/// [`Corrupt`] when a name or number is out of its range.
pub fn read_letter(stored: &v1::DeadLetter) -> Result<DeadLetter, Corrupt> {
    if !(1..=NAME_BYTES_MAX).contains(&stored.binding.len()) {
        return Err(Corrupt);
    }
    Ok(DeadLetter {
        binding: Arc::from(stored.binding.as_str()),
        name: LetterName {
            binding_incarnation: stored.binding_incarnation,
            incarnation: Incarnation(stored.incarnation),
            seq: Seq(stored.seq),
        },
        channel: read_name(stored.channel.as_ref())?,
        attempts: stored.attempts,
        cause: Cause::of(stored.cause).ok_or(Corrupt)?,
        wall_ms: stored.wall_ms,
    })
}

/// The source of changes of keys in its stored form.
#[must_use]
pub fn stored_key_source(source: &KeySource) -> v1::KeySource {
    v1::KeySource {
        binding: source.binding.to_string(),
        binding_incarnation: source.binding_incarnation,
        incarnation: source.incarnation.0,
        through: source.through.0,
        leader_epoch: source.leader_epoch.0,
        run: source.run.0,
    }
}

/// The source of changes of keys from its stored form.
///
/// # Errors
/// [`Corrupt`] when the name of the binding is out of its range.
pub fn read_key_source(stored: &v1::KeySource) -> Result<KeySource, Corrupt> {
    if !(1..=NAME_BYTES_MAX).contains(&stored.binding.len()) {
        return Err(Corrupt);
    }
    Ok(KeySource {
        binding: Arc::from(stored.binding.as_str()),
        binding_incarnation: stored.binding_incarnation,
        incarnation: Incarnation(stored.incarnation),
        through: Seq(stored.through),
        leader_epoch: LeaderEpoch(stored.leader_epoch),
        run: Token(stored.run),
    })
}

/// A change of a key in its stored form.
#[must_use]
pub fn stored_key_change(change: &KeyChange) -> v1::KeyChange {
    use v1::key_change::Change;
    let set = |value: &KeyValue| v1::KeySet {
        value: value.value.clone(),
        ttl_ms: value.ttl_ms,
    };
    let stored = match &change.operation {
        KeyOperation::Set(value) => Change::Set(set(value)),
        KeyOperation::Increment(by) => Change::Increment(*by),
        KeyOperation::Delete => Change::Delete(v1::KeyDelete {}),
        KeyOperation::CompareAndSet { expected, value } => Change::CompareAndSet(v1::KeyCompareAndSet {
            expected: expected.clone(),
            set: Some(set(value)),
        }),
        KeyOperation::Forget => Change::Forget(v1::KeyForget {}),
    };
    v1::KeyChange {
        key: change.key.to_string(),
        seq: change.seq.0,
        change: Some(stored),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_a_meta_survives() {
        let replica = |node| Replica {
            node: NodeId(node),
            disk: DiskBoot(u64::from(node) * 7),
        };
        let meta = ChannelMeta {
            incarnation: Incarnation(3 << 48 | 9),
            leader: Some(Leader {
                node: NodeId(2),
                process: ProcessBoot(77),
            }),
            leader_epoch: LeaderEpoch(4),
            voters: VoterSet {
                isr: vec![replica(1), replica(2), replica(3)],
                min_isr: 2,
            },
            previous: Some(VoterSet {
                isr: vec![replica(1), replica(2)],
                min_isr: 2,
            }),
            learners: vec![replica(4)],
            reborn: vec![(NodeId(3), LeaderEpoch(2))],
            epoch: 5,
            version: 6,
            fence: Some(0),
            retention_through: Seq(11),
        };
        assert_eq!(decode_meta(&encode_meta(&meta)), Ok(meta));
        assert_eq!(decode_meta(&[0xff]), Err(Corrupt));
    }
}
