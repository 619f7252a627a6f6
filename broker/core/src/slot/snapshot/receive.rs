//! The receiver's side: chunks are staged in order, each one durably before it is acknowledged; Raft's message installs them.

use super::{read_transfer, transfer_bytes};
use crate::codec::Corrupt;
use crate::replicated::Notice;
use crate::rows::{Key, Row, Write};
use crate::slot::group::Group;
use crate::slot::interface::{ChunkAnswer, Message, Output, ProposeError, Transfer};
use crate::slot::keys;
use crate::slot::members::Applied;
use crate::slot::rows::{decode, encode, read_node};
use crate::types::{NodeId, RaftIndex, SlotId, Term};
use bytes::Bytes;
use penstock_wire::storage::v1;
use raft::eraftpb::{self, Snapshot};

/// A snapshot that is being staged here.
#[derive(Clone, Debug)]
pub(in crate::slot) struct Receiving {
    transfer: Transfer,
    next: u64,
    whole: Option<Applied>,
    /// The write of the chunk before `next`, while it is not durable.
    staging: Option<u64>,
}

impl Receiving {
    fn row(&self) -> Row {
        encode(&v1::Install {
            term: self.transfer.term.0,
            sender: u32::from(self.transfer.sender.0),
            number: self.transfer.number,
            next_chunk: self.next,
            applied: self.whole.as_ref().map(Applied::stored),
        })
    }

    /// The progress as the disk has it: it goes on where it was.
    pub(in crate::slot) fn recovered(row: &[u8]) -> Result<Option<Receiving>, Corrupt> {
        let stored: v1::Install = decode(row)?;
        Ok(Some(Receiving {
            transfer: Transfer {
                term: Term(stored.term),
                sender: read_node(stored.sender)?,
                number: stored.number,
            },
            next: stored.next_chunk,
            whole: stored.applied.map(Applied::from_stored).transpose()?,
            staging: None,
        }))
    }
}

impl Group {
    /// Stages one chunk, once, in order.
    pub(in crate::slot) fn on_chunk(
        &mut self,
        from: NodeId,
        transfer: Transfer,
        chunk: (u64, u32, Bytes),
        out: &mut Vec<Output>,
    ) {
        let (number, crc, body) = chunk;
        if from != transfer.sender || crc32fast::hash(&body) != crc {
            return;
        }
        let answer = |answer| Output::Send {
            node: from,
            message: Message::ChunkAck { transfer, answer },
        };
        let known = self.receiving.as_ref().map(|receiving| receiving.transfer);
        let stale = transfer.term.0 < self.raft.raft.term || known.is_some_and(|known| known > transfer);
        let begins = known != Some(transfer);
        if stale || self.is_raft_leader() || (begins && number != 0) {
            out.push(answer(ChunkAnswer::Refused));
            return;
        }
        let next = if begins {
            0
        } else {
            self.receiving.as_ref().map_or(0, |receiving| receiving.next)
        };
        if number != next {
            let staging = self
                .receiving
                .as_ref()
                .is_some_and(|receiving| receiving.staging.is_some());
            if number > next {
                out.push(answer(ChunkAnswer::Refused));
            } else if !staging {
                out.push(answer(ChunkAnswer::Staged { next }));
            }
            return;
        }
        match self.stage(transfer, begins, number, &body) {
            Some(writes) => {
                let token = self.store(writes, out);
                if let Some(receiving) = &mut self.receiving {
                    receiving.staging = Some(token);
                }
            }
            None => out.push(answer(ChunkAnswer::Refused)),
        }
    }

    fn stage(&mut self, transfer: Transfer, begins: bool, number: u64, body: &[u8]) -> Option<Vec<Write>> {
        let chunk: v1::SnapshotChunk = decode(body).ok()?;
        let whole = chunk.applied.map(Applied::from_stored).transpose().ok()?;
        let mut writes = Vec::with_capacity(chunk.rows.len() + 2);
        if begins && !self.config.faults.stage_not_cleared() {
            writes.push(Write::ClearStaged {
                slots: self.config.slots.clone(),
            });
        }
        for row in chunk.rows {
            let slot = u16::try_from(row.slot).map(SlotId).ok()?;
            if !self.config.slots.contains(&slot) {
                return None;
            }
            let key = Key::Staged {
                slot,
                table: keys::table(row.table)?,
                key: row.key,
            };
            writes.push(match row.value {
                Some(value) => Write::Put { key, value },
                None => Write::Delete { key },
            });
        }
        let receiving = Receiving {
            transfer,
            next: number + 1,
            whole,
            staging: None,
        };
        writes.push(Write::Put {
            key: Key::Install {
                group: self.config.group,
            },
            value: receiving.row(),
        });
        self.receiving = Some(receiving);
        Some(writes)
    }

    /// A chunk is durable: now it may be acknowledged.
    pub(in crate::slot) fn on_staged(&mut self, token: u64, out: &mut Vec<Output>) {
        let Some(receiving) = &mut self.receiving else {
            return;
        };
        if receiving.staging.take_if(|staging| *staging <= token).is_some() {
            out.push(Output::Send {
                node: receiving.transfer.sender,
                message: Message::ChunkAck {
                    transfer: receiving.transfer,
                    answer: ChunkAnswer::Staged { next: receiving.next },
                },
            });
        }
    }

    /// Whether the rows of this snapshot message are staged here, whole. If not, the sender starts anew.
    pub(in crate::slot) fn has_staged(
        &self,
        from: NodeId,
        message: &eraftpb::Message,
        out: &mut Vec<Output>,
    ) -> bool {
        let snapshot = message.get_snapshot();
        let index = snapshot.get_metadata().index;
        if index <= self.applied.index {
            // Raft answers with its own position.
            return true;
        }
        let staged = self.receiving.as_ref().filter(|receiving| {
            let whole = receiving
                .whole
                .as_ref()
                .is_some_and(|whole| (whole.index, whole.term) == (index, snapshot.get_metadata().term));
            whole && receiving.staging.is_none() && transfer_bytes(receiving.transfer) == snapshot.data
        });
        if staged.is_none()
            && let Some(transfer) = read_transfer(&snapshot.data)
        {
            out.push(Output::Send {
                node: from,
                message: Message::ChunkAck {
                    transfer,
                    answer: ChunkAnswer::Refused,
                },
            });
        }
        staged.is_some()
    }

    /// Makes the staged rows current, with applied index, membership and truncation, in the write of the Ready (M-10).
    pub(in crate::slot) fn install(
        &mut self,
        snapshot: &Snapshot,
        writes: &mut Vec<Write>,
        out: &mut Vec<Output>,
    ) {
        let metadata = snapshot.get_metadata();
        let staged = self.receiving.take().and_then(|receiving| receiving.whole);
        let Some(whole) = staged.filter(|whole| whole.index == metadata.index) else {
            unreachable!("Raft restores only a snapshot whose rows are staged")
        };
        let before = std::mem::replace(&mut self.applied, whole);
        if self.config.faults.conf_from_log() {
            self.applied.voters = before.voters;
            self.applied.learners = before.learners;
        }
        self.committed.clear();
        self.apply_asked = false;
        self.raft.mut_store().restart(metadata.index, metadata.term);
        let (group, slots) = (self.config.group, self.config.slots.clone());
        writes.push(Write::FlipGeneration { slots: slots.clone() });
        writes.push(Write::Delete {
            key: Key::Install { group },
        });
        writes.push(Write::TruncateRaft {
            group,
            from: RaftIndex(0),
        });
        writes.push(self.applied_write());
        for token in self.proposals.skipped(metadata.index) {
            out.push(Output::Proposed {
                token,
                result: Err(ProposeError::Unknown),
            });
        }
        out.push(Output::Changed(vec![Notice::Replaced { slots }]));
    }
}
