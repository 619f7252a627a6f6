//! From Raft's Ready to outputs: what leaves at once, what is written first, and what follows the write (F1).

use super::group::{Group, Unsaved, node_of};
use super::interface::{Message, Output};
use super::log::entry_row;
use crate::rows::{Key, Write};
use crate::types::{DiskBoot, NodeId, Now, RaftIndex};
use bytes::Bytes;
use prost_raft::Message as _;
use raft::Ready;
use raft::eraftpb::{self, HardState, MessageType};

impl Group {
    /// A Raft message of another node. Local messages, and those that followers would forward, come from nobody.
    pub(super) fn on_raft(
        &mut self,
        from: NodeId,
        disks: (DiskBoot, DiskBoot),
        body: &Bytes,
        out: &mut Vec<Output>,
    ) {
        let (disk, to_disk) = disks;
        let Ok(message) = eraftpb::Message::decode(body.as_ref()) else {
            return;
        };
        if to_disk.0 != 0 && to_disk != self.config.boots.disk {
            return;
        }
        let addressed = message.from == u64::from(from.0) && message.to == u64::from(self.config.node.0);
        if !addressed || from == self.config.node || !self.knows(from, disk) {
            return;
        }
        match message.get_msg_type() {
            // It would campaign.
            MessageType::MsgTimeoutNow if self.is_installing() => return,
            MessageType::MsgAppend
            | MessageType::MsgAppendResponse
            | MessageType::MsgRequestVote
            | MessageType::MsgRequestVoteResponse
            | MessageType::MsgHeartbeat
            | MessageType::MsgHeartbeatResponse
            | MessageType::MsgTimeoutNow
            | MessageType::MsgRequestPreVote
            | MessageType::MsgRequestPreVoteResponse => {}
            MessageType::MsgSnapshot => {
                if !self.has_staged(from, &message, out) {
                    return;
                }
            }
            MessageType::MsgHup
            | MessageType::MsgBeat
            | MessageType::MsgPropose
            | MessageType::MsgUnreachable
            | MessageType::MsgSnapStatus
            | MessageType::MsgCheckQuorum
            | MessageType::MsgTransferLeader
            | MessageType::MsgReadIndex
            | MessageType::MsgReadIndexResp => return,
        }
        // A stale or unknown sender is no error of ours.
        let _ = self.raft.step(message);
    }

    /// Drains Raft: as long as it has something ready, turns it into outputs.
    pub(super) fn pump(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.stopped {
            return;
        }
        self.flush_proposals(out);
        while self.raft.has_ready() {
            let ready = self.raft.ready();
            self.on_ready(ready, out);
            self.flush_proposals(out);
        }
        self.announce(out);
        self.start_snapshots(out);
        self.answer_reads(now, out);
        if !self.committed.is_empty() && !self.apply_asked {
            self.apply_asked = true;
            out.push(Output::Apply);
        }
    }

    fn on_ready(&mut self, mut ready: Ready, out: &mut Vec<Output>) {
        for message in ready.take_messages() {
            self.send(message, out);
        }
        let number = ready.number();
        let mut messages = ready.take_persisted_messages();
        if self.config.faults.persisted_messages_early() {
            for message in std::mem::take(&mut messages) {
                self.send(message, out);
            }
        }
        let must_write = ready.must_sync() || !ready.entries().is_empty() || !ready.snapshot().is_empty();
        let mut writes = Vec::new();
        let snapshot = (!ready.snapshot().is_empty()).then(|| ready.snapshot().get_metadata().index);
        if snapshot.is_some() {
            let installed = ready.snapshot().clone();
            self.install(&installed, &mut writes, out);
        }
        if let Some(hard_state) = ready.hs() {
            self.keep_hard_state(hard_state.clone());
        }
        self.append_entries(&ready.take_entries(), &mut writes);
        if must_write {
            writes.push(self.state_write());
        }
        self.committed.extend(ready.take_committed_entries());
        for state in ready.take_read_states() {
            self.reads.on_state(&state.request_ctx, state.index);
        }
        self.raft.advance_append_async(ready);
        if must_write {
            let token = self.store(writes, out);
            self.unsaved.push_back(Unsaved {
                token,
                number,
                messages,
                snapshot,
            });
        } else if let Some(last) = self.unsaved.back_mut() {
            // What these messages say may rest on the write before them.
            last.number = number;
            last.messages.append(&mut messages);
        } else {
            self.raft.on_persist_ready(number);
            for message in messages {
                self.send(message, out);
            }
        }
        if self.config.faults.applies_before_persisted() {
            self.raft.on_persist_ready(number);
        }
    }

    /// An installed snapshot is not durable yet. Until it is, Raft's applied index stands below the start of the log, and a
    /// campaign, which reads what is not applied, would find nothing there.
    pub(super) fn is_installing(&self) -> bool {
        self.unsaved.iter().any(|unsaved| unsaved.snapshot.is_some())
    }

    fn keep_hard_state(&mut self, hard_state: HardState) {
        let mut kept = hard_state;
        if self.config.faults.hard_state_skipped() {
            let commit = kept.commit;
            kept = HardState {
                commit,
                ..self.raft.store().hard_state()
            };
        }
        self.raft.mut_store().set_hard_state(kept);
    }

    fn append_entries(&mut self, entries: &[eraftpb::Entry], writes: &mut Vec<Write>) {
        let Some(first) = entries.first() else { return };
        let group = self.config.group;
        if first.index <= self.raft.store().last().0 {
            writes.push(Write::TruncateRaft {
                group,
                from: RaftIndex(first.index),
            });
        }
        writes.extend(entries.iter().map(|entry| Write::Put {
            key: Key::RaftEntry {
                group,
                index: RaftIndex(entry.index),
            },
            value: entry_row(entry),
        }));
        self.raft.mut_store().append(entries);
    }

    /// Everything up to this token is durable: what waited for it may leave.
    pub(super) fn on_stored(&mut self, token: u64, out: &mut Vec<Output>) {
        while self.unsaved.front().is_some_and(|first| first.token <= token) {
            let Some(saved) = self.unsaved.pop_front() else {
                break;
            };
            self.raft.on_persist_ready(saved.number);
            if let Some(index) = saved.snapshot {
                self.raft.advance_apply_to(index);
            }
            for message in saved.messages {
                self.send(message, out);
            }
        }
        self.on_staged(token, out);
    }

    pub(super) fn send(&mut self, message: eraftpb::Message, out: &mut Vec<Output>) {
        let Some(node) = node_of(message.to) else { return };
        if message.get_msg_type() == MessageType::MsgSnapshot {
            self.on_offer_sent(node);
        }
        out.push(Output::Send {
            node,
            message: Message::Raft {
                disk: self.config.boots.disk,
                to_disk: self.applied.members.get(&node).copied().unwrap_or_default(),
                body: message.encode_to_vec().into(),
            },
        });
    }

    /// Moves queued proposals into the log as far as the window allows.
    fn flush_proposals(&mut self, out: &mut Vec<Output>) {
        if !self.is_raft_leader() || self.raft.raft.lead_transferee.is_some() {
            return;
        }
        while let Some(batch) = self.proposals.next_batch() {
            let mut message = eraftpb::Message {
                from: u64::from(self.config.node.0),
                ..eraftpb::Message::default()
            };
            message.set_msg_type(MessageType::MsgPropose);
            message.entries = batch
                .entries
                .iter()
                .map(|(context, command)| eraftpb::Entry {
                    data: command.to_vec(),
                    context: context.to_vec(),
                    ..eraftpb::Entry::default()
                })
                .collect();
            let first = self.raft.raft.raft_log.last_index() + 1;
            if self.raft.raft.step(message).is_ok() {
                self.proposals.appended(batch, first);
                continue;
            }
            let error = self.not_leader();
            for token in super::proposals::Proposals::refused(&batch) {
                out.push(Output::Proposed {
                    token,
                    result: Err(error.clone()),
                });
            }
        }
    }

    /// Forgets the log below what is applied, once it is long: up to the slowest live follower, and further only when it is
    /// twice as long (F14). A running snapshot holds it, up to four times.
    pub(super) fn compact(&mut self, out: &mut Vec<Output>) {
        let log = self.raft.store();
        let limits = &self.config.limits;
        let times = (log.len() / limits.raft_compact_entries.max(1))
            .max(log.bytes() / limits.raft_compact_bytes.max(1));
        if times == 0 || (times < 4 && !self.sending.is_empty()) {
            return;
        }
        let mut through = self.applied.index;
        if times < 2 && self.is_raft_leader() {
            let progress = self.raft.raft.prs().iter();
            let live = progress.filter(|(_, progress)| progress.recent_active);
            through = live.fold(through, |through, (_, progress)| through.min(progress.matched));
        }
        if through <= log.truncated().0 {
            return;
        }
        self.raft.mut_store().compact(through);
        let writes = vec![
            Write::CompactRaft {
                group: self.config.group,
                through: RaftIndex(through),
            },
            self.state_write(),
        ];
        self.store(writes, out);
    }
}
