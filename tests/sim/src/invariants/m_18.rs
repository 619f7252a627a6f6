//! M-18: keys that a binding changes count every message once, over crashes, failovers and redelivery; also where the plugin sums up
//! over the messages of a window.

use penstock_core::hooks::call::{KvChange, KvOperation};
use penstock_core::message::Message;
use penstock_core::plugins::Bound;
use penstock_core::rows::{Key, Table, Write};
use penstock_core::slot::{keys, rows};
use penstock_core::types::Incarnation;
use penstock_wire::storage::v1;
use std::collections::{BTreeMap, BTreeSet};

/// Messages are counted one by one in so many keys, and together in one.
const PARTS: u64 = 3;

/// What the slots were seen to count.
#[derive(Debug, Default)]
pub struct Counted {
    /// Name of a key → the highest number that any replica had: they only grow.
    numbers: BTreeMap<String, u64>,
    /// Changes that plugins wanted.
    pub wanted: u64,
}

fn together(bound: &Bound, incarnation: Incarnation) -> String {
    format!("together/{}/{}", bound.incarnation, incarnation.0)
}

fn part(bound: &Bound, incarnation: Incarnation, seq: u64) -> String {
    format!("part/{}/{}/{}", bound.incarnation, incarnation.0, seq % PARTS)
}

impl Counted {
    /// What the code of a binding changes because of these messages, which are the first of a call.
    pub fn changes(&mut self, bound: &Bound, incarnation: Incarnation, done: &[Message]) -> Vec<KvChange> {
        let place = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let mut changes: Vec<KvChange> = done
            .iter()
            .enumerate()
            .map(|(at, message)| KvChange {
                message: place(at),
                key: part(bound, incarnation, message.seq.0).into(),
                operation: KvOperation::Increment(1),
            })
            .collect();
        if let Some(last) = done.len().checked_sub(1) {
            changes.push(KvChange {
                message: place(last),
                key: together(bound, incarnation).into(),
                operation: KvOperation::Increment(i64::from(place(done.len()))),
            });
        }
        self.wanted += changes.len() as u64;
        changes
    }

    /// A replica of a slot group has applied something.
    pub fn wrote(&mut self, writes: &[Write]) {
        for write in writes {
            if let Write::Put {
                key: Key::Slot { table, key, .. },
                value,
            } = write
                && *table == Table::PluginKey
                && let Some((_, name)) = keys::read_plugin_key(key)
                && let Ok(row) = rows::decode::<v1::PluginKey>(value)
                && let Some(number) = std::str::from_utf8(&row.value)
                    .ok()
                    .and_then(|text| text.parse::<u64>().ok())
            {
                let known = self.numbers.entry(name).or_default();
                *known = number.max(*known);
            }
        }
    }

    fn number(&self, name: &str) -> u64 {
        self.numbers.get(name).copied().unwrap_or_default()
    }

    /// What is counted of these positions by a binding that has done all of them: what is missing still, or what is too much. Others it
    /// may have done too: a binding that begins at a time takes what comes after its beginning was found, and clocks jump.
    ///
    /// # Errors
    /// Says which key counts a message more than once.
    pub fn check(
        &self,
        bound: &Bound,
        incarnation: Incarnation,
        (seqs, done): (&BTreeSet<u64>, &BTreeSet<u64>),
    ) -> Result<Option<String>, String> {
        let mut wanted: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for &seq in seqs.union(done) {
            let least = u64::from(seqs.contains(&seq));
            for name in [together(bound, incarnation), part(bound, incarnation, seq)] {
                let (low, high) = wanted.entry(name).or_default();
                *low += least;
                *high += 1;
            }
        }
        let mut missing = None;
        for (name, (least, most)) in wanted {
            let found = self.number(&name);
            let said = format!(
                "{name} of {} is {found} after {least} to {most} messages",
                bound.binding.id
            );
            if found > most {
                return Err(said);
            }
            if found < least {
                missing = Some(said);
            }
        }
        Ok(missing)
    }
}
