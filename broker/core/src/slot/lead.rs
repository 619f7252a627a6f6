//! What is asked of a leader: proposals, reads that must be current, and handing leadership over.

use super::group::{Group, Handover};
use super::interface::{Lane, Output, ProposeError};
use crate::types::{NodeId, Now, Term, Token};
use bytes::Bytes;

/// Reads that may wait in one group.
const READS_MAX: usize = 4_096;

impl Group {
    pub(super) fn propose(&mut self, now: Now, proposal: (Token, Lane, Bytes), out: &mut Vec<Output>) {
        let (token, lane, command) = proposal;
        let result = if !self.is_raft_leader() || self.raft.raft.lead_transferee.is_some() {
            Err(self.not_leader())
        } else {
            let deadline = now.after(self.config.limits.request_timeout);
            self.proposals.push(token, lane, command, deadline)
        };
        if let Err(error) = result {
            out.push(Output::Proposed {
                token,
                result: Err(error),
            });
        }
    }

    /// F9: a read that decides something asks a quorum whether this node still leads.
    pub(super) fn read_index(&mut self, now: Now, token: Token, out: &mut Vec<Output>) {
        let error = if !self.is_raft_leader() {
            Some(self.not_leader())
        } else if self.reads.len() >= READS_MAX {
            Some(ProposeError::Full)
        } else {
            None
        };
        if let Some(error) = error {
            out.push(Output::ReadReady {
                token,
                result: Err(error),
            });
            return;
        }
        let deadline = now.after(self.config.limits.request_timeout);
        self.reads.add(token, deadline);
        self.ask_reads(now);
    }

    fn ask_reads(&mut self, now: Now) {
        let limits = &self.config.limits;
        let retry = limits.raft_tick * u32::try_from(limits.raft_election_ticks).unwrap_or(u32::MAX);
        if let Some(context) = self.reads.next_question(now.after(retry)) {
            self.raft.read_index(context.to_vec());
        }
    }

    /// Answers the reads whose index is applied, and asks for those that came meanwhile.
    pub(super) fn answer_reads(&mut self, now: Now, out: &mut Vec<Output>) {
        for token in self.reads.ready(self.applied.index) {
            out.push(Output::ReadReady {
                token,
                result: Ok(()),
            });
        }
        if self.is_raft_leader() {
            let asked = self.reads.is_asking();
            self.ask_reads(now);
            if !asked && self.reads.is_asking() && self.raft.has_ready() {
                let mut more = Vec::new();
                self.pump(now, &mut more);
                out.append(&mut more);
            }
        }
    }

    /// F10: Raft drops a question silently while it has committed nothing in its term; it is asked again under another context.
    pub(super) fn expire_reads(&mut self, now: Now, out: &mut Vec<Output>) {
        for token in self.reads.expired(now.monotonic) {
            out.push(Output::ReadReady {
                token,
                result: Err(ProposeError::Unknown),
            });
        }
        self.reads.give_up_question(now.monotonic);
        if self.is_raft_leader() {
            self.ask_reads(now);
        }
    }

    /// F8: only to a voter that has the whole committed log and is alive, in no membership change, and with a deadline.
    pub(super) fn transfer(&mut self, now: Now, token: Token, to: NodeId, out: &mut Vec<Output>) {
        let error = if !self.is_raft_leader() {
            Some(self.not_leader())
        } else if to == self.config.node {
            out.push(Output::Transferred {
                token,
                result: Ok(()),
            });
            return;
        } else if self.handover.is_some() || self.raft.raft.has_pending_conf() || !self.may_lead(to) {
            Some(ProposeError::Refused)
        } else {
            None
        };
        if let Some(error) = error {
            out.push(Output::Transferred {
                token,
                result: Err(error),
            });
            return;
        }
        let limits = &self.config.limits;
        let elections = u32::try_from(2 * limits.raft_election_ticks).unwrap_or(u32::MAX);
        self.handover = Some(Handover {
            token,
            to,
            deadline: now.after(limits.raft_tick * elections),
        });
        for token in self.proposals.drain_queued() {
            out.push(Output::Proposed {
                token,
                result: Err(self.not_leader()),
            });
        }
        self.raft.transfer_leader(u64::from(to.0));
    }

    fn may_lead(&self, node: NodeId) -> bool {
        let id = u64::from(node.0);
        let progress = self.raft.raft.prs().get(id);
        self.applied.voters.contains(&id)
            && progress.is_some_and(|progress| {
                progress.recent_active && progress.matched >= self.raft.raft.raft_log.committed
            })
    }

    /// Another leader is known: the transfer has come to an end, one way or the other.
    pub(super) fn finish_handover(&mut self, out: &mut Vec<Output>) {
        let Some(handover) = self.handover else { return };
        let Some(leader) = self.leader().filter(|leader| *leader != self.config.node) else {
            return;
        };
        self.handover = None;
        out.push(Output::Transferred {
            token: handover.token,
            result: if leader == handover.to {
                Ok(())
            } else {
                Err(ProposeError::Refused)
            },
        });
    }

    pub(super) fn expire_handover(&mut self, now: Now, out: &mut Vec<Output>) {
        let late = |handover: &Handover| handover.deadline <= now.monotonic;
        if let Some(handover) = self.handover.take_if(|handover| late(handover)) {
            // Raft itself gave the transfer up after one election timeout: whoever leads takes proposals again.
            out.push(Output::Transferred {
                token: handover.token,
                result: Err(ProposeError::Unknown),
            });
        }
    }

    /// Says who leads, if that changed, and answers everyone who counted on this node's leadership.
    pub(super) fn announce(&mut self, out: &mut Vec<Output>) {
        let now = (self.leader(), Term(self.raft.raft.term), self.leads());
        if !self.is_raft_leader() {
            self.step_down(out);
        }
        if now == self.announced {
            return;
        }
        let moved = now.0 != self.announced.0;
        self.announced = now;
        if moved {
            self.finish_handover(out);
        }
        out.push(Output::LeaderChanged {
            leader: now.0,
            term: now.1,
            is_self: now.2,
        });
    }

    fn step_down(&mut self, out: &mut Vec<Output>) {
        for token in self.proposals.drain_queued() {
            let result = Err(self.not_leader());
            out.push(Output::Proposed { token, result });
        }
        for token in self.reads.drain() {
            let result = Err(self.not_leader());
            out.push(Output::ReadReady { token, result });
        }
        if !self.sending.is_empty() {
            self.sending.clear();
            self.raft.mut_store().withdraw_all();
        }
    }
}
