//! Channel definitions, their lists, and the outbox of memberships.

use super::{Context, MALFORMED, Refused, bounded, checked_uid, checked_uids, done, read};
use crate::admin::List;
use crate::replicated::{Applied, Notice, Overlay, Rejection, Reply};
use crate::rows::Key;
use crate::slot::keys;
use crate::slot::rows::{encode, read_name};
use crate::types::{ChannelKey, Uid};
use penstock_wire::storage::v1;
use std::collections::BTreeSet;

fn own_channel(context: Context<'_>, name: Option<&v1::ChannelName>) -> Result<ChannelKey, Refused> {
    let channel = read_name(name).map_err(|_| MALFORMED)?;
    context.machine.owns(channel.slot())?;
    Ok(channel)
}

pub(super) fn put(
    context: Context<'_>,
    put: &v1::PutChannel,
    rows: &mut Overlay<'_>,
) -> Result<Applied, Refused> {
    let channel = own_channel(context, put.channel.as_ref())?;
    let key = keys::definition(&channel);
    let present = read::<v1::Channel>(rows, &key)?;
    let next = v1::Channel {
        large: put.large,
        ban: put.ban,
        disband: put.disband,
        send_ban: put.send_ban,
        allow_stranger: put.allow_stranger,
        created_ms: present.map_or(context.wall_ms, |row| row.created_ms),
    };
    if present == Some(next) {
        return Ok(done(Vec::new()));
    }
    if present.is_some_and(|row| row.disband) {
        return Err(Rejection::Disbanded.into());
    }
    rows.put(key, encode(&next));
    Ok(done(vec![Notice::Channel { channel }]))
}

pub(super) fn disband(
    context: Context<'_>,
    disband: &v1::Disband,
    rows: &mut Overlay<'_>,
) -> Result<Applied, Refused> {
    let channel = own_channel(context, disband.channel.as_ref())?;
    let key = keys::definition(&channel);
    let mut row = read::<v1::Channel>(rows, &key)?.ok_or(Rejection::Missing)?;
    if row.disband {
        return Ok(done(Vec::new()));
    }
    row.disband = true;
    rows.put(key, encode(&row));
    Ok(done(vec![Notice::Channel { channel }]))
}

fn list_of(number: i32) -> Result<List, Refused> {
    match v1::ListKind::try_from(number) {
        Ok(v1::ListKind::Subscribers) => Ok(List::Subscribers),
        Ok(v1::ListKind::Deny) => Ok(List::Deny),
        Ok(v1::ListKind::Allow) => Ok(List::Allow),
        Ok(v1::ListKind::None) | Err(_) => Err(MALFORMED),
    }
}

pub(super) fn change_list_keys(change: &v1::ChangeList) -> Vec<Key> {
    let (Ok(channel), Ok(list)) = (read_name(change.channel.as_ref()), list_of(change.list)) else {
        return Vec::new();
    };
    let uids = change.remove.iter().chain(&change.add).map(|uid| Uid::new(uid));
    [keys::definition(&channel), keys::stats(&channel)]
        .into_iter()
        .chain(uids.map(|uid| keys::listed(&channel, list, &uid)))
        .collect()
}

pub(super) fn change_list(
    context: Context<'_>,
    change: &v1::ChangeList,
    rows: &mut Overlay<'_>,
) -> Result<Applied, Refused> {
    let channel = own_channel(context, change.channel.as_ref())?;
    let list = list_of(change.list)?;
    let removed = checked_uids(&change.remove)?;
    let added = checked_uids(&change.add)?;
    let definition = read::<v1::Channel>(rows, &keys::definition(&channel))?;
    if definition.is_some_and(|row| row.disband) {
        return Err(Rejection::Disbanded.into());
    }
    let mut stats = read::<v1::ChannelStats>(rows, &keys::stats(&channel))?.unwrap_or_default();
    if change
        .expected_revision
        .is_some_and(|expected| expected != stats.revision)
    {
        return Err(Rejection::Conflict.into());
    }
    let edit = Edit {
        channel: &channel,
        list,
        revision: stats.revision.checked_add(1).ok_or(Rejection::Exhausted)?,
        join_seq: change.join_seq,
        wall_ms: context.wall_ms,
    };
    let removals = edit.remove(&removed, &added, rows)?;
    let additions = edit.add(&added, rows)?;
    if removals + additions == 0 {
        return Ok(Applied {
            reply: Reply::Revision(stats.revision),
            notices: Vec::new(),
        });
    }
    stats.revision = edit.revision;
    let count = match list {
        List::Subscribers => &mut stats.subscribers,
        List::Deny => &mut stats.denied,
        List::Allow => &mut stats.allowed,
    };
    *count = (*count + additions).saturating_sub(removals);
    rows.put(keys::stats(&channel), encode(&stats));
    Ok(edit.applied())
}

struct Edit<'a> {
    channel: &'a ChannelKey,
    list: List,
    revision: u64,
    join_seq: u64,
    wall_ms: u64,
}

impl Edit<'_> {
    /// Removes who is listed and is not added again; returns how many.
    fn remove(
        &self,
        removed: &BTreeSet<Uid>,
        added: &BTreeSet<Uid>,
        rows: &mut Overlay<'_>,
    ) -> Result<u64, Refused> {
        let mut count = 0;
        for uid in removed.difference(added) {
            let key = keys::listed(self.channel, self.list, uid);
            if rows.row(&key)?.is_some() {
                rows.delete(key);
                self.remember(uid, false, rows);
                count += 1;
            }
        }
        Ok(count)
    }

    /// Adds who is not listed yet; a member keeps its first join position. Returns how many.
    fn add(&self, added: &BTreeSet<Uid>, rows: &mut Overlay<'_>) -> Result<u64, Refused> {
        let mut count = 0;
        for uid in added {
            let key = keys::listed(self.channel, self.list, uid);
            if rows.row(&key)?.is_some() {
                continue;
            }
            let row = if self.list == List::Subscribers {
                encode(&v1::Subscriber {
                    join_seq: self.join_seq,
                    joined_ms: self.wall_ms,
                })
            } else {
                encode(&v1::Listed {
                    since_ms: self.wall_ms,
                })
            };
            rows.put(key, row);
            self.remember(uid, true, rows);
            count += 1;
        }
        Ok(count)
    }

    /// The uid's own row lives in another group: what must be written there is kept until it is.
    fn remember(&self, uid: &Uid, joined: bool, rows: &mut Overlay<'_>) {
        if self.list == List::Subscribers {
            let row = v1::Outbox {
                joined,
                join_seq: self.join_seq,
                revision: self.revision,
                changed_ms: self.wall_ms,
            };
            rows.put(keys::outbox(self.channel, uid), encode(&row));
        }
    }

    fn applied(&self) -> Applied {
        let mut notices = vec![Notice::List {
            channel: self.channel.clone(),
            list: self.list,
            revision: self.revision,
        }];
        if self.list == List::Subscribers {
            notices.push(Notice::Outbox {
                channel: self.channel.clone(),
            });
        }
        Applied {
            reply: Reply::Revision(self.revision),
            notices,
        }
    }
}

pub(super) fn clear_outbox_keys(clear: &v1::ClearOutbox) -> Vec<Key> {
    let Ok(channel) = read_name(clear.channel.as_ref()) else {
        return Vec::new();
    };
    clear
        .delivered
        .iter()
        .map(|delivered| keys::outbox(&channel, &Uid::new(&delivered.uid)))
        .collect()
}

pub(super) fn clear_outbox(
    context: Context<'_>,
    clear: &v1::ClearOutbox,
    rows: &mut Overlay<'_>,
) -> Result<Applied, Refused> {
    let channel = own_channel(context, clear.channel.as_ref())?;
    bounded(clear.delivered.len())?;
    for delivered in &clear.delivered {
        let key = keys::outbox(&channel, &checked_uid(&delivered.uid)?);
        let row = read::<v1::Outbox>(rows, &key)?;
        if row.is_some_and(|row| row.revision == delivered.revision) {
            rows.delete(key);
        }
    }
    Ok(done(Vec::new()))
}
