//! Applying committed entries: effects, applied index and a covering commit index in one write (SL-1, M-12).

use super::group::Group;
use super::interface::Output;
use super::members::read_change;
use crate::ensure;
use crate::replicated::{Halt, Notice, Overlay, Rejection, Reply};
use crate::rows::{Miss, Rows, Write};
use crate::types::NodeId;
use raft::eraftpb::{ConfChangeType, Entry, EntryType};

/// Entries applied by one input, so that groups share a shard fairly (SL-6).
const ENTRIES_MAX: usize = 64;

/// Bytes of entries applied by one input; a single entry may be larger.
const BYTES_MAX: usize = 256 << 10;

/// What a run over a batch of entries came to.
struct Run {
    replies: Vec<Option<Reply>>,
    notices: Vec<Notice>,
    writes: Vec<Write>,
    stop: Option<String>,
}

impl Group {
    /// Applies the next batch. On a miss nothing has changed.
    pub(super) fn apply(&mut self, rows: &dyn Rows, out: &mut Vec<Output>) -> Result<(), Miss> {
        let first_is_change = self
            .committed
            .front()
            .is_some_and(|entry| entry.get_entry_type() != EntryType::EntryNormal);
        if first_is_change {
            self.apply_change(out);
        } else {
            let run = self.run(rows)?;
            self.finish(run, out);
        }
        self.apply_asked = false;
        if !self.stopped {
            self.compact(out);
        }
        Ok(())
    }

    /// The length of the next batch: up to the bounds, and up to the next change of members.
    fn batch(&self) -> usize {
        let mut bytes = 0;
        let normal = |entry: &&Entry| entry.get_entry_type() == EntryType::EntryNormal;
        let entries = self.committed.iter().take(ENTRIES_MAX).take_while(normal);
        let fitting = entries.take_while(|entry| {
            let first = bytes == 0;
            bytes += entry.data.len() + 1;
            first || bytes <= BYTES_MAX
        });
        fitting.count()
    }

    fn run(&self, rows: &dyn Rows) -> Result<Run, Miss> {
        let count = self.batch();
        let mut overlay = Overlay::new(rows);
        let commands = || {
            self.committed
                .iter()
                .take(count)
                .map(|entry| entry.data.as_slice())
        };
        overlay.prefetch(commands().flat_map(|command| self.machine.keys(command)))?;
        let mut run = Run {
            replies: Vec::with_capacity(count),
            notices: Vec::new(),
            writes: Vec::new(),
            stop: None,
        };
        for command in commands() {
            if command.is_empty() {
                // A new leader's first entry commands nothing.
                run.replies.push(None);
                continue;
            }
            match self.machine.apply(command, &mut overlay) {
                Ok(applied) => {
                    run.replies.push(Some(applied.reply));
                    run.notices.extend(applied.notices);
                }
                Err(Halt::Miss(miss)) => return Err(miss),
                Err(Halt::Stop(reason)) => {
                    run.stop = Some(reason);
                    break;
                }
            }
        }
        run.writes = overlay.into_writes();
        Ok(run)
    }

    fn finish(&mut self, run: Run, out: &mut Vec<Output>) {
        let mut answers = Vec::new();
        let applied = !run.replies.is_empty();
        for reply in run.replies {
            let Some(entry) = self.committed.pop_front() else {
                break;
            };
            self.count(&entry);
            if let Some((token, own)) = self.proposals.applied(entry.index, &entry.context) {
                let reply = reply.unwrap_or(Reply::Rejected(Rejection::Malformed));
                answers.push(Output::Proposed {
                    token,
                    result: if own { Ok(reply) } else { Err(self.not_leader()) },
                });
            }
        }
        if applied {
            self.take_writes(run.writes, out);
        }
        out.append(&mut answers);
        if !run.notices.is_empty() {
            out.push(Output::Changed(run.notices));
        }
        if let Some(reason) = run.stop {
            self.stop(reason, out);
        }
    }

    fn count(&mut self, entry: &Entry) {
        ensure!(
            SL_1,
            entry.index == self.applied.index + 1,
            "entry {} after {} in group {}",
            entry.index,
            self.applied.index,
            self.config.group
        );
        self.applied.index = entry.index;
        self.applied.term = entry.term;
    }

    /// One write for the effects and how far they reach.
    fn take_writes(&mut self, mut writes: Vec<Write>, out: &mut Vec<Output>) {
        self.note_for_snapshots(&writes);
        let progress = [self.applied_write(), self.state_write()];
        if self.config.faults.applied_not_atomic() {
            self.store(progress.to_vec(), out);
        } else {
            writes.extend(progress);
        }
        if !writes.is_empty() {
            self.store(writes, out);
        }
        self.raft.advance_apply_to(self.applied.index);
    }

    /// Applies a change of members: the configuration is written with the applied index (F5).
    fn apply_change(&mut self, out: &mut Vec<Output>) {
        let Some(entry) = self.committed.pop_front() else {
            return;
        };
        self.count(&entry);
        let mut reply = Reply::Rejected(Rejection::Malformed);
        if let Some((change, node, disk)) = read_change(&entry)
            && let Ok(state) = self.raft.apply_conf_change(&change)
        {
            self.applied.take_conf_state(state);
            match change.get_change_type() {
                ConfChangeType::AddNode | ConfChangeType::AddLearnerNode => {
                    self.applied.members.insert(node, disk);
                }
                ConfChangeType::RemoveNode => self.forget(node),
            }
            reply = Reply::Done;
        }
        self.take_writes(Vec::new(), out);
        if let Some((token, own)) = self.proposals.applied(entry.index, &entry.context) {
            out.push(Output::Proposed {
                token,
                result: if own { Ok(reply) } else { Err(self.not_leader()) },
            });
        }
    }

    fn forget(&mut self, node: NodeId) {
        self.applied.members.remove(&node);
        self.seen_disks.remove(&node);
        self.strangers.remove(&node);
        self.drop_sending(node);
    }
}
