//! Dead letters of post-commit bindings, in the slot of their binding, counted and bounded.

use super::{Context, MALFORMED, Refused, bounded, done, read};
use crate::plugins::{LETTERS_MAX, LetterName, NAME_BYTES_MAX, letters_slot};
use crate::replicated::{Applied, Overlay, Rejection};
use crate::rows::Key;
use crate::slot::keys;
use crate::slot::rows::{encode, read_letter, stored_letter};
use crate::types::{Incarnation, Seq};
use penstock_wire::storage::v1;

fn named(binding: &str, name: &v1::DeadLetterName) -> Key {
    let name = LetterName {
        binding_incarnation: name.binding_incarnation,
        incarnation: Incarnation(name.incarnation),
        seq: Seq(name.seq),
    };
    keys::letter(binding, name)
}

pub(super) fn drop_keys(drop: &v1::DropDeadLetters) -> Vec<Key> {
    let letters = drop.names.iter().map(|name| named(&drop.binding, name));
    letters.chain([keys::letters_counter(&drop.binding)]).collect()
}

fn count(rows: &mut Overlay<'_>, key: &Key) -> Result<u64, Refused> {
    Ok(read::<v1::Counter>(rows, key)?.map_or(0, |counter| counter.value))
}

/// Keeps a letter. One that is kept already changes nothing: its consumer did not hear of it.
pub(super) fn put(
    context: Context<'_>,
    put: &v1::PutDeadLetter,
    rows: &mut Overlay<'_>,
) -> Result<Applied, Refused> {
    let stored = put.letter.as_ref().ok_or(MALFORMED)?;
    let mut letter = read_letter(stored).map_err(|_| MALFORMED)?;
    context.machine.owns(letters_slot(&letter.binding))?;
    let key = keys::letter(&letter.binding, letter.name);
    if rows.row(&key)?.is_some() {
        return Ok(done(Vec::new()));
    }
    let counter = keys::letters_counter(&letter.binding);
    let value = count(rows, &counter)? + 1;
    if value > LETTERS_MAX {
        return Err(Rejection::TooMany.into());
    }
    letter.wall_ms = context.wall_ms;
    rows.put(counter, encode(&v1::Counter { value }));
    rows.put(key, encode(&stored_letter(&letter)));
    Ok(done(Vec::new()))
}

/// Removes letters; what is not there is removed already.
pub(super) fn drop(
    context: Context<'_>,
    drop: &v1::DropDeadLetters,
    rows: &mut Overlay<'_>,
) -> Result<Applied, Refused> {
    if !(1..=NAME_BYTES_MAX).contains(&drop.binding.len()) {
        return Err(MALFORMED);
    }
    bounded(drop.names.len())?;
    context.machine.owns(letters_slot(&drop.binding))?;
    let counter = keys::letters_counter(&drop.binding);
    let mut value = count(rows, &counter)?;
    for name in &drop.names {
        let key = named(&drop.binding, name);
        if rows.row(&key)?.is_some() {
            rows.delete(key);
            value = value.saturating_sub(1);
        }
    }
    if value == 0 {
        rows.delete(counter);
    } else {
        rows.put(counter, encode(&v1::Counter { value }));
    }
    Ok(done(Vec::new()))
}
