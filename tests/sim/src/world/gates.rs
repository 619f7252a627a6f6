//! Gates: what they answer, and who is let in.

use super::World;
use crate::coverage::Met;
use crate::invariants::m_19_connect::Entry;
use crate::plugins::Fate;
use penstock_core::client::ServerFrame;
use penstock_core::hooks::call::{self, Failed, Version};
use penstock_core::hooks::gates::Request;
use penstock_core::hooks::pipeline::Failure;
use penstock_core::types::{Reason, Uid};
use std::time::Duration;

impl World {
    /// A gate is asked about a connection, whose number is its address.
    pub(super) fn ask_gate(
        &mut self,
        fate: Fate,
        version: &Version,
        request: &Request,
    ) -> (Duration, call::Returned) {
        let failed = |failure| Err(Failed::Call(failure));
        match fate {
            Fate::Trap(after) => (after, failed(Failure::Trap)),
            Fate::Stall(after) => (after, failed(Failure::Timeout)),
            Fate::Lost => (Duration::ZERO, failed(Failure::Timeout)),
            Fate::Answer(after) => {
                let calm = self.plugins.calm;
                let Some(keeper) = &mut self.plugins.gatekeeper else {
                    return (after, failed(Failure::NotReady));
                };
                let decision = keeper.decide(version, request, calm);
                let connection = request.address.parse().expect("a number of ours");
                if decision.is_ok() {
                    let at = self.now + after;
                    self.oracle.entries.accepts(connection, version, at);
                } else {
                    self.oracle.entries.denies(connection);
                }
                self.coverage.fault(
                    if decision.is_ok() {
                        "gate accepts"
                    } else {
                        "gate denies"
                    },
                    1,
                );
                (after, Ok(call::Answer::Decision(decision)))
            }
        }
    }

    /// A node tells a client that it is let in.
    pub(super) fn note_entry(&mut self, place: (usize, u16), connection: usize, frame: &ServerFrame) {
        let ServerFrame::Connack {
            reason: Reason::SUCCESS,
            ..
        } = frame
        else {
            return;
        };
        let link = &self.connections[connection];
        let uid = Uid::new(&self.oracle.users[link.user]);
        let entry = Entry {
            connection,
            since: link.opened,
            uid: &uid,
        };
        let oracle = &mut self.oracle;
        let before = oracle.entries.passed;
        match oracle.entries.let_in(self.now, place, entry, &oracle.judged) {
            Ok(()) => self
                .coverage
                .meet_many(Met::Admissions, oracle.entries.passed - before),
            Err(detail) => oracle.violate("M-19", detail),
        }
    }
}
