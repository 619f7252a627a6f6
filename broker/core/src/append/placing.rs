//! From the queue into the log and to an outcome.

use super::batch::{Appending, Item, ItemId, Place, State};
use super::commit::{self, Placed};
use super::{Append, Authority, Entry, Output, ids};
use crate::message::{Message, Outcome};
use crate::types::{Now, Reason, Seq, Token};

impl Authority {
    /// The one way into the log (R25): gives the stored messages of a batch their ids and hands them to the replica.
    pub(super) fn place(&mut self, now: Now, number: u64, ids: &mut ids::Generator, out: &mut Vec<Output>) {
        let Some(leading) = &mut self.leading else { return };
        let stamp_ms = now.wall_ms.max(leading.last_stamp_ms);
        leading.last_stamp_ms = stamp_ms;
        let leading = *leading;
        let length = self.queue.batch(number).map_or(0, |batch| batch.items.len());
        let mut entries = Vec::new();
        let mut appending = Vec::new();
        for index in 0..length {
            let id = ItemId { batch: number, index };
            let Some(item) = self.queue.item_mut(id) else {
                continue;
            };
            if !matches!(item.state, State::New) || item.draft.flags.no_persist {
                continue;
            }
            let Some(message_id) = ids.next(now) else {
                self.refuse(id, Reason::RATE_LIMITED);
                continue;
            };
            item.state = State::Appending;
            entries.push(Entry {
                message: Message {
                    id: message_id,
                    seq: Seq(0),
                    stamp_ms,
                    draft: item.draft.clone(),
                },
                key: item.key,
            });
            appending.push(Appending {
                item: id,
                hash: item.key.map(|key| key.hash),
                id: message_id,
                stamp_ms,
            });
        }
        if entries.is_empty() {
            return;
        }
        let token = self.token();
        self.appending.insert(token, appending);
        out.push(Output::Append(Append {
            token,
            incarnation: leading.incarnation,
            leader_epoch: leading.leader_epoch,
            entries,
        }));
    }

    /// Hands a message that is not stored to delivery, after everything before it is over (SF-1). False when the item is
    /// something else or is already with delivery.
    pub(super) fn plan_ephemeral(
        &mut self,
        now: Now,
        id: ItemId,
        ids: &mut ids::Generator,
        out: &mut Vec<Output>,
    ) -> bool {
        let Some(item) = self.queue.item_mut(id) else {
            return false;
        };
        if !matches!(item.state, State::New) {
            return false;
        }
        let draft = item.draft.clone();
        let Some(message_id) = ids.next(now) else {
            self.refuse(id, Reason::RATE_LIMITED);
            return true;
        };
        let token = self.token();
        let last = self.leading.map_or(0, |leading| leading.last_stamp_ms);
        let stamp_ms = now.wall_ms.max(last);
        self.set(
            id,
            State::Planning {
                token,
                id: message_id,
                stamp_ms,
            },
        );
        out.push(Output::Ephemeral {
            token,
            message: Message {
                id: message_id,
                seq: Seq(0),
                stamp_ms,
                draft,
            },
        });
        false
    }

    pub(super) fn planned(&mut self, token: Token, accepted: bool) {
        let asked =
            |item: &Item| matches!(item.state, State::Planning { token: asked, .. } if asked == token);
        let Some(item) = self.queue.find(asked).and_then(|id| self.queue.item_mut(id)) else {
            return;
        };
        let State::Planning { id, stamp_ms, .. } = item.state else {
            return;
        };
        item.state = State::Done(if accepted {
            commit::ephemeral(id, stamp_ms)
        } else {
            Outcome::Refused(Reason::RATE_LIMITED)
        });
    }

    pub(super) fn appended(&mut self, token: Token, first: Seq) {
        let Some(entries) = self.appending.remove(&token) else {
            return;
        };
        for (seq, entry) in (first.0..).map(Seq).zip(entries) {
            let placed = Placed {
                seq,
                id: entry.id,
                stamp_ms: entry.stamp_ms,
            };
            self.ledger.open(placed, entry.hash);
            if let Some(claim) = entry.hash.and_then(|hash| self.claims.get_mut(&hash)) {
                claim.place = Place::Record(placed);
            }
            for alias in self.queue.aliases.remove(&entry.item).unwrap_or_default() {
                self.repeats(alias.item, placed, alias.differs);
            }
            // The item may have been answered as unknown meanwhile.
            let waits = |item: &&mut Item| matches!(item.state, State::Appending);
            if self.queue.item_mut(entry.item).filter(waits).is_some() {
                self.repeats(entry.item, placed, false);
            }
            if self.faults.ack_on_append() {
                self.set(entry.item, State::Done(commit::without_proof(placed)));
            }
        }
    }

    pub(super) fn append_refused(&mut self, token: Token, reason: Reason) {
        for entry in self.appending.remove(&token).unwrap_or_default() {
            if let Some(hash) = entry.hash {
                self.release(hash, entry.item);
            }
            self.settle(entry.item, Outcome::Refused(reason));
        }
    }

    pub(super) fn committed(&mut self, through: Seq) {
        for proof in self.ledger.commit(through) {
            let (proof, claim, waiting) = proof.into_parts();
            // The stored row stands for the claim from now on.
            if let Some(hash) = claim
                && !self.faults.idempotency_skipped_after_failover()
            {
                self.claims.remove(&hash);
            }
            for id in waiting {
                self.settle(id, proof.outcome());
            }
        }
    }
}
