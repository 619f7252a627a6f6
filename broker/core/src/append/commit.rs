//! What makes a success: the commit notification, and nothing else (AP-1, R25).

use super::batch::ItemId;
use crate::ensure;
use crate::message::Outcome;
use crate::types::{MessageId, Seq};
use std::collections::BTreeMap;

/// Proof that what it holds is committed. Only `Ledger::commit` and `Ledger::prove`, which read the high watermark of a
/// commit notification, can make one of something that is not proved yet.
#[derive(Debug)]
pub struct Committed<T> {
    value: T,
}

/// Where a message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Position.
    pub seq: Seq,
    /// Id.
    pub id: MessageId,
    /// Stamp, ms since 1970.
    pub stamp_ms: u64,
}

impl Committed<Placed> {
    /// The success that may be told to the client.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        Outcome::Committed {
            id: self.value.id,
            seq: self.value.seq,
            stamp_ms: self.value.stamp_ms,
        }
    }
}

/// A record above the high watermark, and who waits for it.
#[derive(Debug)]
pub(super) struct Open {
    placed: Placed,
    claim: Option<u64>,
    waiting: Vec<ItemId>,
}

impl Committed<Open> {
    /// The success, the claim that can be released because the stored row stands for it, and who waits.
    pub(super) fn into_parts(self) -> (Committed<Placed>, Option<u64>, Vec<ItemId>) {
        let Open {
            placed,
            claim,
            waiting,
        } = self.value;
        (Committed { value: placed }, claim, waiting)
    }
}

/// Records of this leadership that are placed and not committed, in order of their positions.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    through: Seq,
    open: BTreeMap<Seq, Open>,
}

impl Ledger {
    /// A ledger at this high watermark.
    pub(super) fn new(through: Seq) -> Ledger {
        Ledger {
            through,
            open: BTreeMap::new(),
        }
    }

    /// How many records wait for their commit.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Notes a record that was just appended, with the claim on its key.
    pub(super) fn open(&mut self, placed: Placed, claim: Option<u64>) {
        ensure!(
            CH_1,
            placed.seq > self.through,
            "{} is committed already",
            placed.seq
        );
        let open = self.entry(placed);
        open.claim = claim;
    }

    /// Lets an item wait for the commit of a record.
    pub(super) fn wait(&mut self, placed: Placed, item: ItemId) {
        self.entry(placed).waiting.push(item);
    }

    fn entry(&mut self, placed: Placed) -> &mut Open {
        let open = self.open.entry(placed.seq).or_insert_with(|| Open {
            placed,
            claim: None,
            waiting: Vec::new(),
        });
        ensure!(CH_1, open.placed == placed, "{placed:?} and {:?}", open.placed);
        open
    }

    /// Consumes a commit notification: everything up to `through`, in order.
    pub(super) fn commit(&mut self, through: Seq) -> Vec<Committed<Open>> {
        self.through = self.through.max(through);
        let later = self.open.split_off(&self.through.next());
        std::mem::replace(&mut self.open, later)
            .into_values()
            .map(|value| Committed { value })
            .collect()
    }

    /// Proof for a record at or below the high watermark.
    pub(super) fn prove(&self, placed: Placed) -> Option<Committed<Placed>> {
        (placed.seq <= self.through).then_some(Committed { value: placed })
    }
}

/// The outcome of a message that is not stored: success is the acceptance of its delivery plan (SF-1).
pub(super) fn ephemeral(id: MessageId, stamp_ms: u64) -> Outcome {
    Outcome::Committed {
        id,
        seq: Seq(0),
        stamp_ms,
    }
}

/// The planted fault `ack_on_append`: success for what only the leader has. Without the feature `mutants` its only caller is
/// never reached.
pub(super) fn without_proof(placed: Placed) -> Outcome {
    Committed { value: placed }.outcome()
}
