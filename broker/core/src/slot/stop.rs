//! A group that met a command which this build does not know, and does nothing any more (F12).

use super::group::Group;
use super::interface::{Input, Output, ProposeError};
use crate::types::Term;

impl Group {
    /// A command that this build does not know must not be skipped: the group ends here (F12).
    pub(super) fn stop(&mut self, reason: String, out: &mut Vec<Output>) {
        self.stopped = true;
        self.sending.clear();
        for token in self.proposals.drain() {
            let result = Err(ProposeError::Stopped);
            out.push(Output::Proposed { token, result });
        }
        for token in self.reads.drain() {
            let result = Err(ProposeError::Stopped);
            out.push(Output::ReadReady { token, result });
        }
        if let Some(handover) = self.handover.take() {
            out.push(Output::Transferred {
                token: handover.token,
                result: Err(ProposeError::Stopped),
            });
        }
        out.push(Output::LeaderChanged {
            leader: None,
            term: Term(self.raft.raft.term),
            is_self: false,
        });
        out.push(Output::Stopped { reason });
    }

    pub(super) fn refuse(&self, input: Input, out: &mut Vec<Output>) {
        let stopped = ProposeError::Stopped;
        match input {
            Input::Propose { token, .. } | Input::ChangeMember { token, .. } => out.push(Output::Proposed {
                token,
                result: Err(stopped),
            }),
            Input::ReadIndex { token } => out.push(Output::ReadReady {
                token,
                result: Err(stopped),
            }),
            Input::Transfer { token, .. } => out.push(Output::Transferred {
                token,
                result: Err(stopped),
            }),
            Input::Peer { .. } | Input::Stored { .. } | Input::ReadDone { .. } | Input::Apply => {}
        }
    }
}
