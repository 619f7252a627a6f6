//! The leader's side: pages, then what was written meanwhile, then Raft's own message.

use super::transfer_bytes;
use crate::rows::{Key, Page, ReadRequest, Table, Write};
use crate::slot::group::{Group, node_of};
use crate::slot::interface::{ChunkAnswer, Message, Output, Transfer};
use crate::slot::members::Applied;
use crate::slot::rows::encode;
use crate::types::{NodeId, Now, SlotId, Term, Token};
use bytes::Bytes;
use penstock_wire::storage::v1;
use raft::eraftpb::{Snapshot, SnapshotMetadata};
use raft::{ProgressState, SnapshotStatus};
use std::collections::BTreeMap;
use std::time::Duration;

/// Bytes of rows written while a snapshot is read, as a multiple of a chunk, beyond which the transfer starts anew.
const CHANGES_CHUNKS_MAX: usize = 64;

/// How often a chunk is sent again, and how many times that wait an offer stands, before the receiver is given up: a node that
/// is gone must not keep others waiting. Raft asks anew when it is heard again.
const RESENDS_MAX: u32 = 10;

type RowKey = (SlotId, Table, Bytes);

/// A snapshot on its way to one member.
#[derive(Debug)]
pub(in crate::slot) struct Sending {
    transfer: Transfer,
    step: Step,
    slot_at: usize,
    after: Option<(Table, Bytes)>,
    all_read: bool,
    /// Rows read for the next chunk.
    page: Vec<(RowKey, Option<Bytes>)>,
    page_bytes: usize,
    /// Rows written since the transfer began and not sent since.
    changes: BTreeMap<RowKey, Option<Bytes>>,
    changes_bytes: usize,
    next_number: u64,
    last: Option<Applied>,
}

#[derive(Debug)]
enum Step {
    /// Waits for rows.
    Reading(u64),
    /// Waits for the receiver's answer to this chunk.
    Chunk {
        number: u64,
        crc: u32,
        body: Bytes,
        send_again: Duration,
        resends: u32,
    },
    /// Every chunk is staged; Raft's own message makes them current.
    Offered {
        sent: Option<Duration>,
        gives_up: Duration,
    },
}

impl Group {
    fn chunk_retry(&self) -> Duration {
        let ticks = u32::try_from(self.config.limits.raft_election_ticks).unwrap_or(u32::MAX);
        self.config.limits.raft_tick * ticks
    }

    /// Starts the transfers that Raft found to be needed; one at a time, so that a group never reads for two. A new leader does not
    /// wait until its term is committed: it may need this very follower for that, and what it sends is applied state anyway.
    pub(in crate::slot) fn start_snapshots(&mut self, out: &mut Vec<Output>) {
        let wanted = self.raft.mut_store().take_wanted();
        if !self.is_raft_leader() || !self.sending.is_empty() {
            return;
        }
        // In turn: whoever asks again and again is not always first.
        let after = wanted.iter().find(|id| **id > self.last_receiver);
        let Some(id) = after.or_else(|| wanted.first()).copied() else {
            return;
        };
        let Some(node) = node_of(id) else { return };
        self.last_receiver = id;
        self.transfers += 1;
        let sending = Sending {
            transfer: Transfer {
                term: Term(self.raft.raft.term),
                sender: self.config.node,
                number: self.transfers,
            },
            step: Step::Reading(0),
            slot_at: 0,
            after: None,
            all_read: false,
            page: Vec::new(),
            page_bytes: 0,
            changes: BTreeMap::new(),
            changes_bytes: 0,
            next_number: 0,
            last: None,
        };
        self.sending.insert(node, sending);
        self.read_on(node, out);
    }

    fn read_on(&mut self, node: NodeId, out: &mut Vec<Output>) {
        let token = self.token();
        let Some(sending) = self.sending.get_mut(&node) else {
            return;
        };
        let Some(slot) = self.config.slots.get(sending.slot_at) else {
            return;
        };
        sending.step = Step::Reading(token);
        out.push(Output::Read {
            token: Token(token),
            request: ReadRequest::SnapshotRows {
                slot: *slot,
                after: sending.after.clone(),
                bytes_max: self.config.limits.snapshot_chunk_bytes,
            },
        });
    }

    /// Rows for the snapshot have been read.
    pub(in crate::slot) fn on_page(&mut self, now: Now, token: u64, page: Page, out: &mut Vec<Output>) {
        let reading = |sending: &Sending| matches!(sending.step, Step::Reading(own) if own == token);
        let Some(node) = self
            .sending
            .iter()
            .find_map(|(node, sending)| reading(sending).then_some(*node))
        else {
            return;
        };
        let Page::Rows { rows, more } = page else {
            // A damaged row is never spread: the transfer ends, and health speaks through the store.
            self.drop_sending(node);
            return;
        };
        let slots = self.config.slots.len();
        let chunk_bytes = self.config.limits.snapshot_chunk_bytes as usize;
        let Some(sending) = self.sending.get_mut(&node) else {
            return;
        };
        let slot = self.config.slots[sending.slot_at];
        sending.after = match rows.last() {
            Some((table, key, _)) if more => Some((*table, key.clone())),
            _ => None,
        };
        if sending.after.is_none() {
            sending.slot_at += 1;
        }
        sending.all_read = sending.slot_at >= slots;
        for (table, key, value) in rows {
            let row = ((slot, table, key), Some(value));
            sending.page_bytes += change_bytes(&row.0, row.1.as_ref());
            sending.page.push(row);
        }
        // Small slots share a chunk: each chunk costs a round trip and a sync.
        if sending.all_read || sending.page_bytes >= chunk_bytes {
            self.send_chunk(now, node, out);
        } else {
            self.read_on(node, out);
        }
    }

    /// One chunk: a page of rows, then what was written meanwhile; the last one names the state that it completes.
    fn send_chunk(&mut self, now: Now, node: NodeId, out: &mut Vec<Output>) {
        let send_again = now.after(self.chunk_retry());
        let chunk_bytes = self.config.limits.snapshot_chunk_bytes as usize;
        let applied = self.applied.clone();
        let Some(sending) = self.sending.get_mut(&node) else {
            return;
        };
        let mut rows = std::mem::take(&mut sending.page);
        sending.page_bytes = 0;
        let mut bytes = 0;
        while bytes < chunk_bytes
            && let Some((key, value)) = sending.changes.pop_first()
        {
            let size = change_bytes(&key, value.as_ref());
            sending.changes_bytes -= size;
            bytes += size;
            rows.push((key, value));
        }
        let mut chunk = v1::SnapshotChunk {
            rows: rows.into_iter().map(stored_row).collect(),
            applied: None,
        };
        if sending.all_read && sending.changes.is_empty() {
            chunk.applied = Some(applied.stored());
            sending.last = Some(applied);
        }
        let body = encode(&chunk);
        let number = sending.next_number;
        sending.next_number += 1;
        sending.step = Step::Chunk {
            number,
            crc: crc32fast::hash(&body),
            body,
            send_again,
            resends: 0,
        };
        self.send_chunk_message(node, out);
    }

    fn send_chunk_message(&self, node: NodeId, out: &mut Vec<Output>) {
        if let Some(sending) = self.sending.get(&node)
            && let Step::Chunk {
                number, crc, body, ..
            } = &sending.step
        {
            out.push(Output::Send {
                node,
                message: Message::Chunk {
                    transfer: sending.transfer,
                    number: *number,
                    crc: *crc,
                    body: body.clone(),
                },
            });
        }
    }

    /// Rows that were just written go behind the pages of every snapshot that is being read.
    pub(in crate::slot) fn note_for_snapshots(&mut self, writes: &[Write]) {
        if self.sending.is_empty() || self.config.faults.snapshot_without_changes() {
            return;
        }
        let chunk_bytes = self.config.limits.snapshot_chunk_bytes as usize;
        let mut overflown = Vec::new();
        for (node, sending) in &mut self.sending {
            if sending.last.is_some() {
                continue;
            }
            for write in writes {
                let (key, value) = match write {
                    Write::Put { key, value } => (key, Some(value.clone())),
                    Write::Delete { key } => (key, None),
                    _ => continue,
                };
                let Key::Slot { slot, table, key } = key else {
                    continue;
                };
                let key = (*slot, *table, key.clone());
                sending.changes_bytes += change_bytes(&key, value.as_ref());
                if let Some(old) = sending.changes.insert(key.clone(), value) {
                    sending.changes_bytes -= change_bytes(&key, old.as_ref());
                }
            }
            if sending.changes_bytes > CHANGES_CHUNKS_MAX * chunk_bytes {
                overflown.push(*node);
            }
        }
        for node in overflown {
            self.drop_sending(node);
        }
    }

    /// Ends a transfer, whatever became of it; Raft does not wait for it any more.
    pub(in crate::slot) fn drop_sending(&mut self, node: NodeId) {
        if self.sending.remove(&node).is_some() {
            let id = u64::from(node.0);
            self.raft.mut_store().withdraw(id);
            if self.awaits_snapshot(id) {
                self.raft.report_snapshot(id, SnapshotStatus::Failure);
            }
        }
    }

    /// Whether Raft sends the member nothing before it hears what became of a snapshot.
    fn awaits_snapshot(&self, id: u64) -> bool {
        let progress = self.raft.raft.prs().get(id);
        progress.is_some_and(|progress| progress.state == ProgressState::Snapshot)
    }

    pub(in crate::slot) fn on_chunk_ack(
        &mut self,
        now: Now,
        from: NodeId,
        transfer: Transfer,
        answer: ChunkAnswer,
        out: &mut Vec<Output>,
    ) {
        let Some(sending) = self
            .sending
            .get_mut(&from)
            .filter(|sending| sending.transfer == transfer)
        else {
            return;
        };
        let next = match answer {
            ChunkAnswer::Staged { next } => next,
            ChunkAnswer::Refused => {
                self.drop_sending(from);
                return;
            }
        };
        let Step::Chunk { number, .. } = sending.step else {
            return;
        };
        if next != number + 1 {
            return;
        }
        if let Some(whole) = sending.last.clone() {
            self.offer(now, from, &whole);
        } else if sending.all_read {
            self.send_chunk(now, from, out);
        } else {
            self.read_on(from, out);
        }
    }

    /// The rows are staged over there: from now on Raft finds a snapshot for this member.
    fn offer(&mut self, now: Now, node: NodeId, whole: &Applied) {
        let gives_up = now.after(self.chunk_retry() * RESENDS_MAX);
        let Some(sending) = self.sending.get_mut(&node) else {
            return;
        };
        sending.step = Step::Offered { sent: None, gives_up };
        let snapshot = Snapshot {
            data: transfer_bytes(sending.transfer),
            metadata: Some(SnapshotMetadata {
                // The membership that the rows were completed under, not a later one (F5).
                conf_state: Some(whole.conf_state()),
                index: whole.index,
                term: whole.term,
            }),
        };
        self.raft.mut_store().offer(u64::from(node.0), snapshot);
        self.raft.ping();
    }

    pub(in crate::slot) fn on_offer_sent(&mut self, node: NodeId) {
        if let Some(sending) = self.sending.get_mut(&node)
            && let Step::Offered { sent, .. } = &mut sending.step
        {
            *sent = sent.or(Some(Duration::ZERO));
        }
    }

    /// Sends chunks again, ends what has arrived, and tells Raft of offers that seem to be lost.
    pub(in crate::slot) fn expire_snapshots(&mut self, now: Now, out: &mut Vec<Output>) {
        let retry = now.after(self.chunk_retry());
        let nodes: Vec<NodeId> = self.sending.keys().copied().collect();
        for node in nodes {
            let id = u64::from(node.0);
            let progress = self.raft.raft.prs().get(id);
            let matched = progress.map_or(0, |progress| progress.matched);
            let in_snapshot = self.awaits_snapshot(id);
            let Some(sending) = self.sending.get_mut(&node) else {
                continue;
            };
            match &mut sending.step {
                Step::Reading(_) => {}
                Step::Chunk {
                    send_again, resends, ..
                } => {
                    if *send_again > now.monotonic {
                        continue;
                    }
                    if *resends >= RESENDS_MAX {
                        self.drop_sending(node);
                        continue;
                    }
                    *resends += 1;
                    *send_again = retry;
                    self.send_chunk_message(node, out);
                }
                Step::Offered { sent, gives_up } => {
                    let arrived = sending.last.as_ref().is_some_and(|whole| matched >= whole.index);
                    if arrived || *gives_up <= now.monotonic {
                        self.drop_sending(node);
                    } else if let Some(since) = sent {
                        if *since == Duration::ZERO {
                            *since = retry;
                        } else if *since <= now.monotonic && in_snapshot {
                            *sent = None;
                            self.raft.report_snapshot(id, SnapshotStatus::Failure);
                        }
                    }
                }
            }
        }
    }
}

fn change_bytes(key: &RowKey, value: Option<&Bytes>) -> usize {
    key.2.len() + value.map_or(0, Bytes::len) + 16
}

fn stored_row(row: (RowKey, Option<Bytes>)) -> v1::SnapshotRow {
    let ((slot, table, key), value) = row;
    v1::SnapshotRow {
        slot: u32::from(slot.0),
        table: table as u32,
        key,
        value,
    }
}
