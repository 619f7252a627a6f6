//! Calls on the thread of their caller, which spares them the way to a thread of the host and back. A shard is such a caller: it
//! must not be held up, so only what proved to be quick runs there, and nothing is started or dropped there.

use super::lanes::{Crew, Errand, Failing};
use super::pace::{MESSAGES_MAX, Ran};
use super::{Workshop, failure_of, trace};
use crate::captures::Fault;
use crate::instance::{Ended, Guest, Prepared};
use crate::patience::Patience;
use penstock_core::hooks::call::{Call, Returned, Version, Work};
use penstock_core::hooks::pipeline::Failure;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Instances that wait to be dropped; beyond, the caller drops them itself.
const ERRANDS_MAX: usize = 64;

/// An instance for a call, and the life of the version that it is of.
struct Taken {
    lane: u64,
    prepared: Arc<Prepared>,
    guest: Guest,
}

impl Workshop {
    /// Whether calls of a version may run on the thread of their caller once it has proved to be quick.
    pub(crate) fn allow_inline(&self, version: &Version, allowed: bool) {
        if let Some(lane) = self.lock().lanes.get_mut(version) {
            let change = lane.pace.allow(allowed);
            lane.note(change);
        }
    }

    /// Does a call on this thread, or gives it back with the time that is left for it.
    pub(crate) fn call_inline(
        &self,
        mut call: Box<Call>,
        patience: &mut Duration,
    ) -> Result<Returned, Box<Call>> {
        let Work::BeforeSend { drafts, .. } = &call.work else {
            return Err(call);
        };
        let messages = u64::try_from(drafts.len()).unwrap_or(u64::MAX);
        if patience.is_zero() || messages > MESSAGES_MAX {
            return Err(call);
        }
        let Some(mut taken) = self.take(&call.version) else {
            return Err(call);
        };
        let span = trace::span(&call).entered();
        let began = Instant::now();
        let ended = taken.guest.call(&call, Patience::Shard, &self.ticker);
        let took = began.elapsed();
        *patience = patience.saturating_sub(took);
        let failed = ended.returned.as_ref().err().map(failure_of);
        let overran = failed == Some(Failure::Timeout);
        let ran = Ran {
            took,
            inline: true,
            messages,
            failed: failed.map(|failure| if overran { "overrun" } else { failure.name() }),
        };
        // What ran too long for a shard has its deadline still before it, and a filter does nothing that must not be done twice.
        let left = call.within.saturating_sub(took);
        let again = overran && !left.is_zero();
        trace::ended(&ended.returned, Duration::ZERO, Some(&ran));
        drop(span);
        count(&taken.prepared, &ran, &ended, again);
        let fault = Fault::of(&ended.returned, ended.error, took).filter(|_| !again);
        let fault = fault.filter(|fault| self.captures.admit(&call, fault));
        // What it was asked is written down elsewhere; a copy of the call shares its payloads.
        let failing = fault.map(|fault| {
            Box::new(Failing {
                call: Call::clone(&call),
                fault,
            })
        });
        self.settle(
            &call.version,
            taken,
            (ended.retired, failing),
            (ran, began + took),
        );
        if again {
            call.within = left;
            return Err(call);
        }
        Ok(ended.returned)
    }

    /// An instance that is free, of a version whose calls may run here.
    fn take(&self, version: &Version) -> Option<Taken> {
        let mut lanes = self.lock();
        let lane = lanes.lanes.get_mut(version)?;
        if !lane.pace.is_inline() {
            return None;
        }
        let prepared = Arc::clone(lane.prepared.as_ref()?);
        let (guest, _) = lane.warm.pop()?;
        Some(Taken {
            lane: lane.number,
            prepared,
            guest,
        })
    }

    fn settle(
        &self,
        version: &Version,
        taken: Taken,
        (retired, failing): (Option<&'static str>, Option<Box<Failing>>),
        (ran, now): (Ran, Instant),
    ) {
        let mut lanes = self.lock();
        if let Some(lane) = lanes.life(version, taken.lane) {
            lane.count(Some(ran), now);
        }
        let gone = match retired {
            None => self.put(&mut lanes, version, taken.guest),
            Some(_) => Some(taken.guest),
        };
        let Some(gone) = gone else { return };
        if lanes.stopped || lanes.errands.len() >= ERRANDS_MAX {
            drop(lanes);
            if failing.is_some() {
                self.captures.pass_over(&version.binding);
            }
            return drop(gone);
        }
        lanes.errands.push_back(Errand {
            version: version.clone(),
            prepared: taken.prepared,
            gone,
            failing,
        });
        self.wake[Crew::Inside as usize].notify_one();
    }
}

/// Counts a call, unless it is done again elsewhere: then only what it cost.
fn count(prepared: &Prepared, ran: &Ran, ended: &Ended, again: bool) {
    prepared.board.count(|status| {
        status.guest_s += ran.took.as_secs_f64();
        status.charge(&ended.usage);
        if let Some(reason) = ended.retired {
            *status.retired.entry(reason).or_default() += 1;
        }
        if again {
            return;
        }
        status.calls += 1;
        status.calls_inline += 1;
        status.messages += ran.messages;
        if let Err(failed) = &ended.returned {
            *status.failures.entry(failure_of(failed)).or_default() += 1;
        }
    });
}
