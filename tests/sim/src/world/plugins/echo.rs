//! The binding that publishes, as its host makes its calls.

use super::HandedOut;
use crate::census;
use crate::clients::Purpose;
use crate::invariants::s_17::Published;
use crate::plugins::{ECHO, Echo, depth};
use crate::world::World;
use penstock_core::admin::{Answer, Ask};
use penstock_core::hooks::call::Failed;
use penstock_core::message::Outcome;
use penstock_core::plugins::Bound;
use penstock_core::types::Reason;
use std::time::Duration;

/// What a guest asks for before it is tried again.
const AGAIN: Duration = Duration::from_millis(40);

impl World {
    /// The guest sends its answers to a batch, those too that it has sent before. How many of the leading messages are done: those
    /// whose answers it was told of when they were handed out before.
    pub(in crate::world) fn echo(
        &mut self,
        node: usize,
        bound: &Bound,
        (channel, incarnation, messages): HandedOut<'_>,
    ) -> Result<usize, Failed> {
        for message in messages {
            if let Err(detail) = Published::handed(depth(message)) {
                self.oracle.violate("S17", detail);
            }
        }
        let faults = self.driver.hooks();
        let answers = Echo::answers(bound, (channel, incarnation, messages), faults);
        let mut done = messages.len();
        for answer in answers {
            if !self.oracle.published.is_told(&answer.name) {
                done = done.min(answer.place);
            }
            self.coverage.fault("answer published", 1);
            self.call(
                node,
                Ask::Publish(Box::new(answer.ask)),
                Purpose::Publish(answer.name),
            );
        }
        if done == 0 {
            return Err(Failed::Retry { after: Some(AGAIN) });
        }
        Ok(done)
    }

    /// A send of the guest was answered.
    pub(in crate::world) fn published(&mut self, name: String, answer: Option<&Answer>) {
        match answer {
            Some(Answer::Sent(
                Outcome::Committed { .. } | Outcome::Refused(Reason::IDEMPOTENCY_CONFLICT),
            )) => self.oracle.published.told(name),
            _ => self.coverage.fault("answer not published", 1),
        }
    }

    /// The group of the answers is made, or not.
    pub(in crate::world) fn echo_room(&mut self, answer: Option<&Answer>) {
        if let Some(echo) = &mut self.plugins.echo {
            echo.has_room |= answer == Some(&Answer::Done);
        }
    }

    /// An answer that the binding has not answered yet.
    pub(in crate::world) fn unanswered(&self) -> Option<String> {
        let room = Echo::room();
        let bound = self.oracle.judged.newest()?.binding(ECHO)?;
        bound.version(&room)?;
        let (incarnation, meta) = self.invariants.incarnation(&room)?;
        let records = census::records_of(&self.nodes, incarnation, meta);
        let seq = self.oracle.followed.missing(bound, incarnation, &records)?;
        Some(format!("{ECHO} has not done {seq} of {room}"))
    }

    /// Looks at what was published, once nothing goes on any more.
    pub(in crate::world) fn check_published(&mut self) {
        let room = Echo::room();
        let Some((incarnation, meta)) = self.invariants.incarnation(&room) else {
            return;
        };
        let records = census::records_of(&self.nodes, incarnation, meta);
        if let Err(detail) = self
            .oracle
            .published
            .check(&records, self.settings.limits.dedupe_window)
        {
            self.oracle.violate("S17", format!("{room}: {detail}"));
        }
    }
}
