//! One handled event: the time, what was asked to be written so far, and the effects.

use crate::effect::Effect;
use crate::rows::{Instance, Key, Miss, Row, Rows, Write};
use crate::types::{Now, Ticket};
use bytes::Bytes;
use std::collections::BTreeMap;

/// Rows as a machine sees them within a turn: own writes first, then the store, then what was loaded for this turn.
/// A value loaded earlier is only a fallback: a write since then is in the store's memory and found there.
pub(super) struct TurnRows<'a> {
    base: &'a dyn Rows,
    written: BTreeMap<Key, Option<Bytes>>,
    loaded: BTreeMap<Key, Option<Row>>,
}

impl Rows for TurnRows<'_> {
    fn row(&self, key: &Key) -> Result<Option<Row>, Miss> {
        if let Some(value) = self.written.get(key) {
            return Ok(value.clone());
        }
        match self.base.row(key) {
            Ok(row) => Ok(row),
            Err(miss) => self.loaded.get(key).cloned().ok_or(miss),
        }
    }
}

/// The context of one `Shard::handle`.
pub(super) struct Turn<'a> {
    /// The time of the event.
    pub(super) now: Now,
    /// Row reader.
    pub(super) rows: TurnRows<'a>,
    /// Effects so far.
    pub(super) out: &'a mut Vec<Effect>,
}

impl<'a> Turn<'a> {
    /// A turn over the store's rows.
    pub(super) fn new(now: Now, base: &'a dyn Rows, out: &'a mut Vec<Effect>) -> Turn<'a> {
        Turn {
            now,
            rows: TurnRows {
                base,
                written: BTreeMap::new(),
                loaded: BTreeMap::new(),
            },
            out,
        }
    }

    /// Adds what the driver loaded.
    pub(super) fn loaded(&mut self, rows: Vec<(Key, Option<Row>)>) {
        self.rows.loaded.extend(rows);
    }

    /// Emits a Store effect; its rows are visible to the rest of the turn.
    pub(super) fn store(&mut self, instance: Instance, ticket: Ticket, writes: Vec<Write>) {
        for write in &writes {
            match write {
                Write::Put { key, value } => {
                    self.rows.written.insert(key.clone(), Some(value.clone()));
                }
                Write::Delete { key } => {
                    self.rows.written.insert(key.clone(), None);
                }
                // Ranges hold nothing that a machine reads by key, except a flipped generation, after which the
                // group ends its turn.
                Write::TruncateRaft { .. }
                | Write::CompactRaft { .. }
                | Write::ClearStaged { .. }
                | Write::FlipGeneration { .. }
                | Write::AppendRecords { .. }
                | Write::TruncateRecords { .. }
                | Write::TrimRecords { .. }
                | Write::DropIncarnation { .. } => {}
            }
        }
        self.out.push(Effect::Store {
            instance,
            ticket,
            writes,
        });
    }
}
