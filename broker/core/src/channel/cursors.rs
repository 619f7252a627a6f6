//! The side lane of post-commit consumers' positions: merged by maximum, durable with the next batch or after an interval (M-6).

use super::{Cursors, Replica, Role, Turn};
use crate::rows::{Key, Write};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

struct Position {
    value: Bytes,
    /// Rises with every change: tells what a follower has not confirmed.
    mark: u64,
}

#[derive(Default)]
pub(super) struct CursorTable {
    positions: BTreeMap<Bytes, Position>,
    unwritten: BTreeSet<Bytes>,
    mark: u64,
}

impl CursorTable {
    /// A position from the disk.
    pub(super) fn load(&mut self, consumer: Bytes, value: Bytes) {
        if self.merge(&consumer, &value) {
            self.unwritten.remove(&consumer);
        }
    }

    /// Takes the position if it is further. Says whether it was.
    pub(super) fn merge(&mut self, consumer: &Bytes, value: &Bytes) -> bool {
        let known = self.positions.get(consumer);
        if known.is_some_and(|known| known.value >= *value) {
            return false;
        }
        self.mark += 1;
        let position = Position {
            value: value.clone(),
            mark: self.mark,
        };
        self.positions.insert(consumer.clone(), position);
        self.unwritten.insert(consumer.clone());
        true
    }

    pub(super) fn mark(&self) -> u64 {
        self.mark
    }

    pub(super) fn value(&self, consumer: &[u8]) -> Option<&Bytes> {
        self.positions.get(consumer).map(|position| &position.value)
    }

    /// What changed after `mark`.
    pub(super) fn since(&self, mark: u64) -> Cursors {
        if mark >= self.mark {
            return Vec::new();
        }
        self.positions
            .iter()
            .filter(|(_, position)| position.mark > mark)
            .map(|(consumer, position)| (consumer.clone(), position.value.clone()))
            .collect()
    }

    pub(super) fn is_written(&self) -> bool {
        self.unwritten.is_empty()
    }
}

impl Replica {
    /// A consumer's durable position, as far as this replica knows.
    #[must_use]
    pub fn cursor(&self, consumer: &[u8]) -> Option<&Bytes> {
        self.cursors.value(consumer)
    }

    /// All consumers' positions, as far as this replica knows.
    #[must_use]
    pub fn all_cursors(&self) -> Cursors {
        self.cursors
            .positions
            .iter()
            .map(|(consumer, position)| (consumer.clone(), position.value.clone()))
            .collect()
    }

    pub(super) fn on_cursor(&mut self, consumer: &Bytes, value: &Bytes, turn: &Turn<'_>) {
        if matches!(self.role, Role::Leading(_)) && self.cursors.merge(consumer, value) {
            self.flush_later(turn);
        }
    }

    pub(super) fn merge_cursors(&mut self, cursors: &Cursors, turn: &Turn<'_>) {
        for (consumer, value) in cursors {
            if self.cursors.merge(consumer, value) {
                self.flush_later(turn);
            }
        }
    }

    /// Lazily kept values are stored with the next batch, or alone after an interval.
    pub(super) fn flush_later(&mut self, turn: &Turn<'_>) {
        let at = turn.now.after(self.limits.cursor_interval);
        self.flush_at.get_or_insert(at);
    }

    pub(super) fn write_cursors(&mut self, writes: &mut Vec<Write>) {
        for consumer in std::mem::take(&mut self.cursors.unwritten) {
            if let Some(position) = self.cursors.positions.get(&consumer) {
                writes.push(Write::Put {
                    key: Key::Cursor {
                        incarnation: self.meta.incarnation,
                        consumer,
                    },
                    value: position.value.clone(),
                });
            }
        }
    }
}
