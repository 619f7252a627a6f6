//! A submitted batch and its items on their way to an outcome.

use super::commit::Placed;
use crate::message::{DedupeKey, DedupeRow, Draft, Outcome};
use crate::types::{MessageId, Token};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// An item: number of its batch, position in it. Ordered like the submissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ItemId {
    pub(super) batch: u64,
    pub(super) index: usize,
}

/// A batch.
#[derive(Debug)]
pub(super) struct Batch {
    /// Token of the submission.
    pub(super) token: Token,
    /// When what is open becomes unknown or refused.
    pub(super) deadline: Duration,
    pub(super) phase: Phase,
    pub(super) items: Vec<Item>,
}

/// How far a batch is. Items that need no place pass through with the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Keys are being looked up.
    Checking,
    /// The before-send hooks have it.
    Hooks(Token),
    /// Its items may be placed when all batches before it are.
    Ready,
    /// Its items have been handed to the log.
    Placed,
}

/// One message of a batch.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) draft: Draft,
    pub(super) key: Option<DedupeKey>,
    pub(super) state: State,
}

/// Where an item is.
#[derive(Debug)]
pub(super) enum State {
    /// Unknown key or none: to be judged by the hooks and placed.
    New,
    /// The record that an idempotency row names is being read; the front candidate is the one that was asked for.
    Checking {
        token: Token,
        candidates: VecDeque<DedupeRow>,
    },
    /// Repeats an earlier item that has no position yet.
    Alias,
    /// Handed to the replica, which has not answered.
    Appending,
    /// Its record, or the one that it repeats, is not committed yet.
    Waiting,
    /// Delivery is planning its fan-out.
    Planning {
        token: Token,
        id: MessageId,
        stamp_ms: u64,
    },
    /// Over.
    Done(Outcome),
}

/// An item that repeats another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alias {
    pub(super) item: ItemId,
    /// Same key, other bytes.
    pub(super) differs: bool,
}

/// A claim on an idempotency key until its record is committed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) digest: u128,
    pub(super) place: Place,
}

/// What a claim stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// An item without a position.
    Item(ItemId),
    /// A record.
    Record(Placed),
}

/// An append that the replica has not answered. It outlives its batch when that is answered as unknown.
#[derive(Debug)]
pub(super) struct Appending {
    pub(super) item: ItemId,
    pub(super) hash: Option<u64>,
    pub(super) id: MessageId,
    pub(super) stamp_ms: u64,
}

/// The batches of a channel in the order of their submission.
#[derive(Debug, Default)]
pub(super) struct Queue {
    first: u64,
    batches: VecDeque<Batch>,
    /// First batch that is not placed.
    unplaced: u64,
    /// Who repeats whom.
    pub(super) aliases: BTreeMap<ItemId, Vec<Alias>>,
}

impl Queue {
    /// Number that the next batch will have.
    pub(super) fn next_number(&self) -> u64 {
        self.first + self.batches.len() as u64
    }

    pub(super) fn push(&mut self, batch: Batch) {
        self.batches.push_back(batch);
    }

    pub(super) fn front(&self) -> Option<(u64, &Batch)> {
        self.batches.front().map(|batch| (self.first, batch))
    }

    pub(super) fn pop(&mut self) -> Option<Batch> {
        let batch = self.batches.pop_front()?;
        self.first += 1;
        self.unplaced = self.unplaced.max(self.first);
        Some(batch)
    }

    fn offset(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.first)?).ok()
    }

    pub(super) fn batch(&self, number: u64) -> Option<&Batch> {
        self.batches.get(self.offset(number)?)
    }

    pub(super) fn batch_mut(&mut self, number: u64) -> Option<&mut Batch> {
        let offset = self.offset(number)?;
        self.batches.get_mut(offset)
    }

    pub(super) fn item_mut(&mut self, id: ItemId) -> Option<&mut Item> {
        self.batch_mut(id.batch)?.items.get_mut(id.index)
    }

    /// The batch that is to be placed next, if it is ready for it.
    pub(super) fn placeable(&mut self) -> Option<u64> {
        let number = self.unplaced;
        (self.batch(number)?.phase == Phase::Ready).then_some(number)
    }

    /// Notes that the batch found by [`Queue::placeable`] is placed.
    pub(super) fn placed(&mut self) {
        if let Some(batch) = self.batch_mut(self.unplaced) {
            batch.phase = Phase::Placed;
            self.unplaced += 1;
        }
    }

    /// Items of batches that are not placed.
    pub(super) fn unplaced_items(&self) -> usize {
        let skipped = self.offset(self.unplaced).unwrap_or(0);
        self.batches
            .iter()
            .skip(skipped)
            .map(|batch| batch.items.len())
            .sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// The batch and item whose question has this token.
    pub(super) fn find(&self, wanted: impl Fn(&Item) -> bool) -> Option<ItemId> {
        self.batches.iter().enumerate().find_map(|(offset, batch)| {
            let index = batch.items.iter().position(&wanted)?;
            Some(ItemId {
                batch: self.first + offset as u64,
                index,
            })
        })
    }

    /// The batch that the hooks have under this token.
    pub(super) fn with_hooks(&self, token: Token) -> Option<u64> {
        let offset = self
            .batches
            .iter()
            .position(|batch| batch.phase == Phase::Hooks(token))?;
        Some(self.first + offset as u64)
    }
}
