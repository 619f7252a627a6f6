//! Keys of plugins: all changes of a command or none, those of a message once, within the quota of the slot.

use super::{Context, MALFORMED, Refused, read};
use crate::plugins::{
    KEY_BYTES_MAX, KEY_CHANGES_MAX, KEY_OVERHEAD_BYTES, KeyOutcome, KeyRefused, KeySource, NAME_BYTES_MAX,
    QUOTA_BYTES, TTL_MS_MAX, VALUE_BYTES_MAX, is_alive, key_slot,
};
use crate::replicated::{Applied, Overlay, Rejection, Reply};
use crate::rows::Key;
use crate::slot::keys;
use crate::slot::rows::{encode, read_key_source};
use crate::types::SlotId;
use penstock_wire::storage::v1::{self, key_change::Change};

/// The rows that a command reads.
pub(super) fn keys(change: &v1::ChangeKeys) -> Vec<Key> {
    let mut all: Vec<Key> = change
        .changes
        .iter()
        .take(KEY_CHANGES_MAX)
        .map(|one| keys::plugin_key(&change.plugin, &one.key))
        .collect();
    let source = change
        .source
        .as_ref()
        .and_then(|source| read_key_source(source).ok());
    if let Some(first) = change.changes.first() {
        let slot = key_slot(&change.plugin, &first.key);
        all.push(keys::plugin_bytes(slot, &change.plugin));
        all.extend(source.map(|source| keys::plugin_mark(slot, &change.plugin, &source)));
    }
    all
}

/// Makes the changes. Those of messages that the slot has seen from their source are left out.
pub(super) fn change(
    context: Context<'_>,
    change: &v1::ChangeKeys,
    rows: &mut Overlay<'_>,
) -> Result<Applied, Refused> {
    let slot = checked(context, change)?;
    let source = change.source.as_ref().map(read_key_source).transpose();
    let source = source.map_err(|_| MALFORMED)?;
    let mark_key = source
        .as_ref()
        .map(|source| keys::plugin_mark(slot, &change.plugin, source));
    let mark = match &mark_key {
        Some(key) => read::<v1::PluginMark>(rows, key)?.unwrap_or_default(),
        None => v1::PluginMark::default(),
    };
    if let Some(source) = &source
        && (source.leader_epoch.0, source.run.0) < (mark.leader_epoch, mark.run)
    {
        // A newer run may cover other messages: both would count some of them.
        return Err(Rejection::Fenced.into());
    }
    let bytes_key = keys::plugin_bytes(slot, &change.plugin);
    let before = read::<v1::Counter>(rows, &bytes_key)?.map_or(0, |counter| counter.value);
    let mut bytes = before;
    let mut outcomes = Vec::with_capacity(change.changes.len());
    for one in &change.changes {
        check_position(source.as_ref(), one.seq)?;
        if source.is_some() && one.seq <= mark.seq && !context.machine.faults.key_marks_ignored() {
            outcomes.push(KeyOutcome::Repeated);
            continue;
        }
        outcomes.push(one_change(
            context.wall_ms,
            &change.plugin,
            one,
            (rows, &mut bytes),
        )?);
    }
    // What is above it already, of an older rule, may still shrink.
    if bytes > QUOTA_BYTES && bytes > before {
        return Err(Rejection::Keys(KeyRefused::Quota).into());
    }
    if bytes == 0 {
        rows.delete(bytes_key);
    } else if bytes != before {
        rows.put(bytes_key, encode(&v1::Counter { value: bytes }));
    }
    if let (Some(key), Some(source)) = (mark_key, source) {
        let mark = v1::PluginMark {
            seq: source.through.0.max(mark.seq),
            leader_epoch: source.leader_epoch.0,
            run: source.run.0,
        };
        rows.put(key, encode(&mark));
    }
    Ok(Applied {
        reply: Reply::Keys(outcomes),
        notices: Vec::new(),
    })
}

/// The slot of a command that is one.
fn checked(context: Context<'_>, change: &v1::ChangeKeys) -> Result<SlotId, Refused> {
    if change.changes.len() > KEY_CHANGES_MAX {
        return Err(Rejection::TooMany.into());
    }
    let is_name = (1..=NAME_BYTES_MAX).contains(&change.plugin.len()) && !change.plugin.contains('\0');
    let first = change.changes.first().filter(|_| is_name).ok_or(MALFORMED)?;
    let slot = key_slot(&change.plugin, &first.key);
    context.machine.owns(slot)?;
    for one in &change.changes {
        if !(1..=KEY_BYTES_MAX).contains(&one.key.len()) {
            return Err(Rejection::Keys(KeyRefused::TooLarge).into());
        }
        if key_slot(&change.plugin, &one.key) != slot {
            return Err(MALFORMED);
        }
    }
    Ok(slot)
}

fn check_position(source: Option<&KeySource>, seq: u64) -> Result<(), Refused> {
    let fits = match source {
        Some(source) => (1..=source.through.0).contains(&seq),
        None => seq == 0,
    };
    if fits { Ok(()) } else { Err(MALFORMED) }
}

/// What a key counts for.
fn charge(key: &str, value: &[u8]) -> u64 {
    key.len() as u64 + value.len() as u64 + KEY_OVERHEAD_BYTES
}

fn one_change(
    wall_ms: u64,
    plugin: &str,
    one: &v1::KeyChange,
    (rows, bytes): (&mut Overlay<'_>, &mut u64),
) -> Result<KeyOutcome, Refused> {
    let key = keys::plugin_key(plugin, &one.key);
    let stored: Option<v1::PluginKey> = read(rows, &key)?;
    let charged = stored.as_ref().map_or(0, |row| charge(&one.key, &row.value));
    let is_stored = stored.is_some();
    let alive = stored.filter(|row| is_alive(row.expires_ms, wall_ms));
    let (next, outcome) = match one.change.as_ref().ok_or(MALFORMED)? {
        Change::Set(set) => (Some(given(set, wall_ms)?), KeyOutcome::Done),
        Change::Increment(by) => {
            let (row, sum) = added(alive, *by)?;
            (Some(row), KeyOutcome::Sum(sum))
        }
        Change::Delete(_) => (None, KeyOutcome::Done),
        Change::Forget(_) => (alive, KeyOutcome::Done),
        Change::CompareAndSet(compare) => {
            let set = compare.set.as_ref().ok_or(MALFORMED)?;
            let next = given(set, wall_ms)?;
            let is_expected = alive.as_ref().map(|row| &row.value) == compare.expected.as_ref();
            let next = if is_expected { Some(next) } else { alive };
            (next, KeyOutcome::Swapped(is_expected))
        }
    };
    *bytes = bytes.saturating_sub(charged);
    match next {
        Some(row) => {
            *bytes = bytes.saturating_add(charge(&one.key, &row.value));
            rows.put(key, encode(&row));
        }
        None if is_stored => rows.delete(key),
        None => {}
    }
    Ok(outcome)
}

/// The row that a set makes.
fn given(set: &v1::KeySet, wall_ms: u64) -> Result<v1::PluginKey, Refused> {
    if set.value.len() > VALUE_BYTES_MAX {
        return Err(Rejection::Keys(KeyRefused::TooLarge).into());
    }
    let expires_ms = match set.ttl_ms {
        0 => 0,
        ttl => wall_ms.saturating_add(ttl.min(TTL_MS_MAX)).max(1),
    };
    Ok(v1::PluginKey {
        value: set.value.clone(),
        expires_ms,
    })
}

/// The row with a larger number, and the number.
fn added(row: Option<v1::PluginKey>, by: i64) -> Result<(v1::PluginKey, i64), Refused> {
    let not_a_number = || Refused::Rejected(Rejection::Keys(KeyRefused::NotANumber));
    let row = row.unwrap_or_else(|| v1::PluginKey {
        value: "0".into(),
        expires_ms: 0,
    });
    let number: Option<i64> = std::str::from_utf8(&row.value)
        .ok()
        .and_then(|text| text.parse().ok());
    let sum = number
        .and_then(|number| number.checked_add(by))
        .ok_or_else(not_a_number)?;
    let value = sum.to_string().into();
    Ok((v1::PluginKey { value, ..row }, sum))
}
