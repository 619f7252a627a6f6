//! Compare-and-set on channel metas, with the indexes of leaders and replicas (M-5).

use super::{Context, MALFORMED, Refused, bounded, read};
use crate::replicated::{Applied, MetaAnswer, Notice, Overlay, Rejection, Reply};
use crate::rows::{Key, Table};
use crate::slot::rows::{encode, encode_meta, read_leader, read_meta, read_name};
use crate::slot::{keys, rules};
use crate::types::{ChannelKey, ChannelMeta, LeaderEpoch, NodeId, Seq};
use bytes::Bytes;
use penstock_wire::storage::v1;
use std::collections::BTreeSet;

/// The value of an index row: the row itself is the fact.
const MARK: Bytes = Bytes::from_static(&[1]);

pub(super) fn put_all_keys(puts: &v1::PutChannelMetas) -> Vec<Key> {
    let mut keys_read = Vec::new();
    for put in &puts.puts {
        if let Ok(channel) = read_name(put.channel.as_ref()) {
            keys_read.push(keys::meta(&channel));
            if put.expected_version == 0 {
                keys_read.push(keys::incarnation_counter(channel.slot()));
            }
        }
    }
    keys_read
}

pub(super) fn put_all(
    context: Context<'_>,
    puts: &v1::PutChannelMetas,
    rows: &mut Overlay<'_>,
) -> Result<Applied, Refused> {
    bounded(puts.puts.len())?;
    let mut checked = Vec::with_capacity(puts.puts.len());
    for put in &puts.puts {
        let channel = read_name(put.channel.as_ref()).map_err(|_| MALFORMED)?;
        let wanted = put.meta.as_ref().ok_or(MALFORMED)?;
        let wanted = read_meta(wanted).map_err(|_| MALFORMED)?;
        context.machine.owns(channel.slot())?;
        checked.push((channel, put.expected_version, wanted));
    }
    let mut answers = Vec::with_capacity(checked.len());
    let mut notices = Vec::new();
    for (channel, expected_version, wanted) in checked {
        let present = stored(&channel, rows)?;
        let next = match &present {
            None if expected_version == 0 => create(&channel, &wanted, rows)?,
            Some(present) if present.version == expected_version => rules::changed(present, &wanted),
            Some(present) if context.machine.faults.meta_compare_skipped() => {
                rules::changed(present, &wanted)
            }
            _ => Err(Rejection::Conflict),
        };
        answers.push(match next {
            Ok(next) => {
                notices.extend(write(&channel, present.as_ref(), &next, rows));
                MetaAnswer {
                    channel,
                    result: Ok(()),
                    current: Some(next),
                }
            }
            Err(rejection) => MetaAnswer {
                channel,
                result: Err(rejection),
                current: present,
            },
        });
    }
    Ok(Applied {
        reply: Reply::Metas(answers),
        notices,
    })
}

fn stored(channel: &ChannelKey, rows: &mut Overlay<'_>) -> Result<Option<ChannelMeta>, Refused> {
    let Some(row) = read::<v1::ChannelMeta>(rows, &keys::meta(channel))? else {
        return Ok(None);
    };
    // What apply wrote itself is in range, or the store is broken.
    read_meta(&row).map(Some).map_err(|_| {
        Refused::Halt(crate::replicated::Halt::Stop(format!(
            "the stored meta of {channel} is out of range"
        )))
    })
}

/// A first row takes the next incarnation of its slot: the number depends on the log alone, not on any node.
fn create(
    channel: &ChannelKey,
    wanted: &ChannelMeta,
    rows: &mut Overlay<'_>,
) -> Result<Result<ChannelMeta, Rejection>, Refused> {
    let key = keys::incarnation_counter(channel.slot());
    let counter = read::<v1::Counter>(rows, &key)?.unwrap_or_default();
    let number = counter.value.saturating_add(1);
    let Some(incarnation) = rules::incarnation(channel.slot(), number) else {
        return Ok(Err(Rejection::Exhausted));
    };
    let made = rules::created(wanted, incarnation);
    if made.is_ok() {
        rows.put(key, encode(&v1::Counter { value: number }));
    }
    Ok(made)
}

/// Writes the row and the index rows that differ.
fn write(
    channel: &ChannelKey,
    present: Option<&ChannelMeta>,
    next: &ChannelMeta,
    rows: &mut Overlay<'_>,
) -> Option<Notice> {
    if present == Some(next) {
        return None;
    }
    let leaders = |meta: &ChannelMeta| meta.leader.iter().map(|leader| leader.node).collect();
    let replicas = |meta: &ChannelMeta| meta.replicas().iter().map(|replica| replica.node).collect();
    let none = BTreeSet::new;
    let old = (
        present.map_or_else(none, leaders),
        present.map_or_else(none, replicas),
    );
    move_index(Table::LeaderIndex, channel, &old.0, &leaders(next), rows);
    move_index(Table::ReplicaIndex, channel, &old.1, &replicas(next), rows);
    rows.put(keys::meta(channel), encode_meta(next));
    Some(Notice::Meta {
        channel: channel.clone(),
        meta: Box::new(next.clone()),
    })
}

fn move_index(
    table: Table,
    channel: &ChannelKey,
    old: &BTreeSet<NodeId>,
    new: &BTreeSet<NodeId>,
    rows: &mut Overlay<'_>,
) {
    for node in old.difference(new) {
        rows.delete(keys::index(table, *node, channel));
    }
    for node in new.difference(old) {
        rows.put(keys::index(table, *node, channel), MARK);
    }
}

/// One compare-and-set outside of a batch: the same answer as in one.
fn change(
    context: Context<'_>,
    name: Option<&v1::ChannelName>,
    expected_version: Option<u64>,
    rows: &mut Overlay<'_>,
    rule: impl FnOnce(&ChannelMeta) -> Result<ChannelMeta, Rejection>,
) -> Result<Applied, Refused> {
    let channel = read_name(name).map_err(|_| MALFORMED)?;
    context.machine.owns(channel.slot())?;
    let present = stored(&channel, rows)?.ok_or(Rejection::Missing)?;
    let result = match expected_version {
        Some(expected) if expected != present.version => Err(Rejection::Conflict),
        _ => rule(&present),
    };
    let (answer, notice) = match result {
        Ok(next) => {
            let notice = write(&channel, Some(&present), &next, rows);
            (Ok(next), notice)
        }
        Err(rejection) => (Err(rejection), None),
    };
    Ok(Applied {
        reply: Reply::Metas(vec![MetaAnswer {
            channel,
            result: answer.as_ref().map(|_| ()).map_err(|rejection| *rejection),
            current: Some(answer.unwrap_or(present)),
        }]),
        notices: notice.into_iter().collect(),
    })
}

pub(super) fn clear_previous(
    context: Context<'_>,
    clear: &v1::ClearPrevious,
    rows: &mut Overlay<'_>,
) -> Result<Applied, Refused> {
    change(
        context,
        clear.channel.as_ref(),
        Some(clear.expected_version),
        rows,
        |present| rules::cleared(present, LeaderEpoch(clear.leader_epoch)),
    )
}

pub(super) fn fence(
    context: Context<'_>,
    fence: &v1::Fence,
    rows: &mut Overlay<'_>,
) -> Result<Applied, Refused> {
    change(
        context,
        fence.channel.as_ref(),
        Some(fence.expected_version),
        rows,
        |present| rules::fenced(present, fence.task),
    )
}

pub(super) fn clear_fence(
    context: Context<'_>,
    clear: &v1::ClearFence,
    rows: &mut Overlay<'_>,
) -> Result<Applied, Refused> {
    let leader = clear.leader.as_ref().map(read_leader).transpose();
    let leader = leader.map_err(|_| MALFORMED)?;
    change(
        context,
        clear.channel.as_ref(),
        Some(clear.expected_version),
        rows,
        |present| rules::unfenced(present, clear.task, leader),
    )
}

pub(super) fn set_retention(
    context: Context<'_>,
    set: &v1::SetRetention,
    rows: &mut Overlay<'_>,
) -> Result<Applied, Refused> {
    change(context, set.channel.as_ref(), None, rows, |present| {
        rules::retained(present, Seq(set.through))
    })
}
