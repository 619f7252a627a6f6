//! Users, devices, system uids, memberships.

use super::{Context, MALFORMED, Refused, checked_uid, checked_uids, done, read};
use crate::replicated::{Applied, Notice, Overlay, Rejection};
use crate::rows::Key;
use crate::slot::keys;
use crate::slot::rows::{encode, read_name};
use crate::types::{DeviceFlag, Uid};
use penstock_wire::storage::v1::{self, change_membership::Change};

/// Device flags that one command may clear.
const FLAGS_MAX: usize = 8;

/// SHA-256, bytes.
const DIGEST_BYTES: usize = 32;

fn flag(number: u32) -> Result<DeviceFlag, Refused> {
    u8::try_from(number).map(DeviceFlag).map_err(|_| MALFORMED)
}

pub(super) fn put_token_keys(put: &v1::PutUserToken) -> Vec<Key> {
    vec![keys::user(&Uid::new(&put.uid))]
}

pub(super) fn put_token(
    context: Context<'_>,
    put: &v1::PutUserToken,
    rows: &mut Overlay<'_>,
) -> Result<Applied, Refused> {
    let uid = checked_uid(&put.uid)?;
    let flag = flag(put.flag)?;
    if put.level > 1 || put.token_sha256.len() != DIGEST_BYTES {
        return Err(MALFORMED);
    }
    context.machine.owns(uid.slot())?;
    let user = keys::user(&uid);
    if read::<v1::User>(rows, &user)?.is_none() {
        let row = v1::User {
            created_ms: context.wall_ms,
        };
        rows.put(user, encode(&row));
    }
    let row = v1::Device {
        token_sha256: put.token_sha256.clone(),
        level: put.level,
        updated_ms: context.wall_ms,
    };
    rows.put(keys::device(&uid, flag), encode(&row));
    Ok(done(vec![Notice::Token { uid, flag }]))
}

pub(super) fn clear_token_keys(clear: &v1::ClearToken) -> Vec<Key> {
    let uid = Uid::new(&clear.uid);
    let flags = clear.flags.iter().take(FLAGS_MAX);
    flags
        .filter_map(|number| Some(keys::device(&uid, flag(*number).ok()?)))
        .collect()
}

pub(super) fn clear_token(
    context: Context<'_>,
    clear: &v1::ClearToken,
    rows: &mut Overlay<'_>,
) -> Result<Applied, Refused> {
    let uid = checked_uid(&clear.uid)?;
    if clear.flags.len() > FLAGS_MAX {
        return Err(Rejection::TooMany.into());
    }
    context.machine.owns(uid.slot())?;
    let mut notices = Vec::new();
    for number in &clear.flags {
        let flag = flag(*number)?;
        let key = keys::device(&uid, flag);
        if read::<v1::Device>(rows, &key)?.is_some() {
            let row = v1::Device {
                token_sha256: bytes::Bytes::new(),
                level: 1,
                updated_ms: context.wall_ms,
            };
            rows.put(key, encode(&row));
            notices.push(Notice::Token {
                uid: uid.clone(),
                flag,
            });
        }
    }
    Ok(done(notices))
}

pub(super) fn change_system_uids_keys(change: &v1::ChangeSystemUids) -> Vec<Key> {
    change
        .uids
        .iter()
        .map(|uid| keys::system_uid(&Uid::new(uid)))
        .collect()
}

pub(super) fn change_system_uids(
    context: Context<'_>,
    change: &v1::ChangeSystemUids,
    rows: &mut Overlay<'_>,
) -> Result<Applied, Refused> {
    let uids = checked_uids(&change.uids)?;
    context.machine.owns(keys::system_uids_slot())?;
    for uid in &uids {
        let key = keys::system_uid(uid);
        let present = read::<v1::Listed>(rows, &key)?.is_some();
        if change.add && !present {
            let row = v1::Listed {
                since_ms: context.wall_ms,
            };
            rows.put(key, encode(&row));
        } else if !change.add && present {
            rows.delete(key);
        }
    }
    Ok(done(vec![Notice::SystemUids]))
}

pub(super) fn change_membership_keys(change: &v1::ChangeMembership) -> Vec<Key> {
    read_name(change.channel.as_ref())
        .map(|channel| vec![keys::membership(&Uid::new(&change.uid), &channel)])
        .unwrap_or_default()
}

pub(super) fn change_membership(
    context: Context<'_>,
    change: &v1::ChangeMembership,
    rows: &mut Overlay<'_>,
) -> Result<Applied, Refused> {
    let uid = checked_uid(&change.uid)?;
    let channel = read_name(change.channel.as_ref()).map_err(|_| MALFORMED)?;
    context.machine.owns(uid.slot())?;
    let key = keys::membership(&uid, &channel);
    let present = read::<v1::Membership>(rows, &key)?;
    let next = match change.change.as_ref().ok_or(MALFORMED)? {
        Change::State(state) => with_state(present.clone(), state, context.wall_ms),
        Change::Read(read) => with_read(live(present.clone())?, read)?,
        Change::DeleteThrough(through) => {
            let mut row = live(present.clone())?;
            row.deleted_to_seq = row.deleted_to_seq.max(*through);
            row.activated_ms = 0;
            row
        }
        Change::ActivateMs(at_ms) => {
            let mut row = live(present.clone())?;
            row.activated_ms = row.activated_ms.max(*at_ms);
            row
        }
    };
    if present.as_ref() == Some(&next) {
        return Ok(done(Vec::new()));
    }
    rows.put(key, encode(&next));
    Ok(done(vec![Notice::Membership { uid, channel }]))
}

/// A join or leave counts only if it is newer than what the row knows: outbox rows may arrive twice and late.
fn with_state(present: Option<v1::Membership>, state: &v1::MembershipState, wall_ms: u64) -> v1::Membership {
    let known = present.is_some();
    let mut row = present.unwrap_or_default();
    if known && row.revision >= state.revision {
        return row;
    }
    row.revision = state.revision;
    row.tombstone = !state.joined;
    if state.joined {
        row.join_seq = state.join_seq;
        row.activated_ms = row.activated_ms.max(wall_ms);
    }
    row
}

fn live(present: Option<v1::Membership>) -> Result<v1::Membership, Refused> {
    present
        .filter(|row| !row.tombstone)
        .ok_or(Refused::Rejected(Rejection::Missing))
}

/// Read positions only rise, for the user and for each device (RD-2).
fn with_read(mut row: v1::Membership, read: &v1::MembershipRead) -> Result<v1::Membership, Refused> {
    row.read_seq = row.read_seq.max(read.read_seq);
    if let Some(number) = read.flag {
        let flag = u32::from(flag(number)?.0);
        match row.devices.binary_search_by_key(&flag, |device| device.flag) {
            Ok(at) => row.devices[at].read_seq = row.devices[at].read_seq.max(read.read_seq),
            Err(at) => row.devices.insert(
                at,
                v1::DeviceRead {
                    flag,
                    read_seq: read.read_seq,
                },
            ),
        }
    }
    Ok(row)
}
