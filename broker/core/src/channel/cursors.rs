//! The side lane of post-commit consumers' positions: merged by maximum, durable with the next batch or after an interval (M-6).

use super::leader::Leading;
use super::{Cursors, Output, Replica, Role, Turn, quorum};
use crate::cursor::Cursor;
use crate::rows::{Key, Write};
use crate::types::{Token, VoterSet};
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

    /// Whether a window is among what is not written: it must be durable before it is confirmed (M-18).
    fn has_unwritten_window(&self) -> bool {
        let unwritten = self.unwritten.iter();
        let mut values = unwritten.filter_map(|consumer| self.value(consumer));
        values.any(|value| Cursor::decode(value).is_some_and(Cursor::is_open))
    }
}

/// A position that has to be held by a quorum.
pub(super) struct Fix {
    token: Token,
    mark: u64,
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

    /// Takes a position that must not be lost, and has it stored here and at the followers at once.
    pub(super) fn on_fix_cursor(
        &mut self,
        token: Token,
        (consumer, value): (&Bytes, &Bytes),
        turn: &mut Turn<'_>,
    ) {
        if !matches!(self.role, Role::Leading(_)) {
            return;
        }
        self.cursors.merge(consumer, value);
        let mark = match self.cursors.positions.get(consumer) {
            Some(position) if position.value == *value => position.mark,
            // Another leadership went further: whoever asks hears of that, and asks anew.
            _ => return,
        };
        if let Role::Leading(leading) = &mut self.role {
            leading.fixes.push(Fix { token, mark });
            leading.fixed_mark = leading.fixed_mark.max(mark);
        }
        self.store.write_cursors_now();
        self.share_cursors(turn);
        self.fix_again(turn);
        self.settle_fixes(turn);
    }

    /// While a position is not held yet, followers are asked again before long: an answer may be lost.
    pub(super) fn fix_again(&mut self, turn: &Turn<'_>) {
        if matches!(&self.role, Role::Leading(leading) if !leading.fixes.is_empty()) {
            let at = turn.now.after(self.limits.channel_retry);
            self.flush_at = Some(self.flush_at.map_or(at, |flush_at| flush_at.min(at)));
        }
    }

    /// Tells of the positions that every quorum holds now.
    pub(super) fn settle_fixes(&mut self, turn: &mut Turn<'_>) {
        let Role::Leading(leading) = &self.role else {
            return;
        };
        let held: Vec<bool> = leading
            .fixes
            .iter()
            .map(|fix| self.sets().all(|set| self.holds_cursors(leading, set, fix.mark)))
            .collect();
        let Role::Leading(leading) = &mut self.role else {
            return;
        };
        let mut held = held.into_iter();
        leading.fixes.retain(|fix| {
            let is_held = held.next() == Some(true);
            if is_held {
                turn.push(Output::CursorFixed { token: fix.token });
            }
            !is_held
        });
    }

    /// Whether a write quorum of this set holds all positions up to this mark durably.
    pub(super) fn holds_cursors(&self, leading: &Leading, set: &VoterSet, mark: u64) -> bool {
        let alone = self.faults.window_fixed_alone();
        quorum::writes(set, |node| {
            if node == self.node {
                self.store.durable.cursors >= mark
            } else {
                alone
                    || leading
                        .peers
                        .get(&node)
                        .is_some_and(|peer| peer.holds_cursors(mark))
            }
        })
    }

    pub(super) fn merge_cursors(&mut self, cursors: &Cursors, turn: &Turn<'_>) {
        for (consumer, value) in cursors {
            if self.cursors.merge(consumer, value) {
                self.flush_later(turn);
            }
        }
        if self.cursors.has_unwritten_window() && !self.faults.window_fixed_alone() {
            self.store.write_cursors_now();
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
