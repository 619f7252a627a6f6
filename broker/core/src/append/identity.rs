//! Who repeats what: claims on idempotency keys, and the records that they turn out to be (AP-2, R20).

use super::batch::{Alias, Claim, Item, ItemId, Place, State};
use super::commit::Placed;
use super::{Authority, Checked, Output};
use crate::message::{DedupeKey, DedupeRow, Outcome, Record};
use crate::types::{Reason, Token};
use std::collections::VecDeque;

impl Authority {
    /// Gives an item the claim on its key, or joins it to whatever holds it.
    pub(super) fn claim(
        &mut self,
        id: ItemId,
        key: DedupeKey,
        candidates: VecDeque<DedupeRow>,
        out: &mut Vec<Output>,
    ) {
        let Some(claim) = self.claims.get(&key.hash).copied() else {
            let claim = Claim {
                digest: key.digest,
                place: Place::Item(id),
            };
            self.claims.insert(key.hash, claim);
            self.check_next(id, candidates, out);
            return;
        };
        let differs = self.differs(claim.digest, key.digest);
        match claim.place {
            Place::Record(placed) => self.repeats(id, placed, differs),
            Place::Item(of) => {
                self.set(id, State::Alias);
                self.queue
                    .aliases
                    .entry(of)
                    .or_default()
                    .push(Alias { item: id, differs });
            }
        }
    }

    pub(super) fn differs(&self, known: u128, given: u128) -> bool {
        known != given && !self.faults.digest_ignored()
    }

    /// Looks at the front candidate of an item; without one its key is unknown.
    pub(super) fn check_next(
        &mut self,
        id: ItemId,
        mut candidates: VecDeque<DedupeRow>,
        out: &mut Vec<Output>,
    ) {
        let Some(row) = candidates.front().copied() else {
            self.set(id, State::New);
            return;
        };
        // Below the log start the record is gone, but it was committed: a tail that is cut takes its rows along (R20).
        if self.leading.is_some_and(|leading| row.seq < leading.log_start) {
            candidates.clear();
            let placed = Placed {
                seq: row.seq,
                id: row.id,
                stamp_ms: row.stamp_ms,
            };
            self.is_known(id, row.digest, placed);
            return;
        }
        let token = self.token();
        self.set(id, State::Checking { token, candidates });
        out.push(Output::CheckRecord { token, seq: row.seq });
    }

    pub(super) fn checked(&mut self, token: Token, checked: Checked, out: &mut Vec<Output>) {
        let asked =
            |item: &Item| matches!(&item.state, State::Checking { token: asked, .. } if *asked == token);
        let Some(id) = self.queue.find(asked) else { return };
        let Some(item) = self.queue.item_mut(id) else {
            return;
        };
        let hash = item.key.map(|key| key.hash);
        let State::Checking { mut candidates, .. } = std::mem::replace(&mut item.state, State::New) else {
            return;
        };
        match checked {
            Checked::Failed => self.refuse(id, Reason::NODE_NOT_MATCH),
            Checked::Record(Record {
                seq,
                stamp_ms,
                id: message,
                key: Some(key),
                ..
            }) if Some(key.hash) == hash => {
                let placed = Placed {
                    seq,
                    id: message,
                    stamp_ms,
                };
                self.is_known(id, key.digest, placed);
            }
            Checked::Removed { log_start } => {
                if let Some(leading) = &mut self.leading {
                    leading.log_start = leading.log_start.max(log_start);
                }
                self.check_next(id, candidates, out);
            }
            // The row outlived its record: another one stands there, or none.
            Checked::Record(_) | Checked::Missing => {
                candidates.pop_front();
                self.check_next(id, candidates, out);
            }
        }
        self.begin_hooks(id.batch, out);
    }

    /// An item, which holds the claim on its key, turns out to repeat a record.
    pub(super) fn is_known(&mut self, id: ItemId, known_digest: u128, placed: Placed) {
        let Some(key) = self.queue.item_mut(id).and_then(|item| item.key) else {
            return;
        };
        self.claims.remove(&key.hash);
        let differs = self.differs(known_digest, key.digest);
        // Whoever repeats this item is compared with the record, not with this item.
        for alias in self.queue.aliases.remove(&id).unwrap_or_default() {
            let digest = self.queue.item_mut(alias.item).and_then(|item| item.key);
            let differs = digest.is_some_and(|key| self.differs(known_digest, key.digest));
            self.repeats(alias.item, placed, differs);
        }
        self.repeats(id, placed, differs);
    }

    /// The item repeats a record with a position.
    pub(super) fn repeats(&mut self, id: ItemId, placed: Placed, differs: bool) {
        if differs {
            self.settle(id, Outcome::Refused(Reason::IDEMPOTENCY_CONFLICT));
        } else if let Some(proof) = self.ledger.prove(placed) {
            self.settle(id, proof.outcome());
        } else {
            self.set(id, State::Waiting);
            self.ledger.wait(placed, id);
        }
    }
}
