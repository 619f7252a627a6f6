//! How long the owner takes a session for registered: while its touches are answered, and no leader was there that may
//! not have known it.

use super::{ANNOUNCE_BATCH, Due, Owner, OwnerOutput};
use crate::presence::{Fence, Request};
use crate::types::{ConnectionId, Now, Route, SlotId};
use std::collections::BTreeSet;
use std::time::Duration;

/// A leadership that is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    pub(super) fence: Fence,
    /// Since when it may have lasted, at the earliest; none when that is not known.
    pub(super) began_after: Option<Duration>,
    /// Until when it is known to have lasted: the time when it was found over, or when this process fell asleep before that, or
    /// when the first touch was sent that it did not answer.
    pub(super) lost_at: Duration,
    /// When it was found over.
    pub(super) over_at: Duration,
    /// Whether an announcement to it stayed without an answer.
    pub(super) unanswered: bool,
}

impl Before {
    /// Whether a session may have been taken as offline before the leadership of `next`: this one was told of it and did
    /// not answer, or there was another one in between that was not heard of here (PC-1). What took less time than a node
    /// needs to be taken as silent left nobody out, unless this process slept meanwhile.
    pub(super) fn left_out(self, knew: Fence, next: Fence, at: Duration, silence: Duration) -> bool {
        let brief = self
            .began_after
            .is_some_and(|began| self.over_at <= began + silence);
        // The same leader, heard of again, is told again and answers for itself.
        let unanswered = self.unanswered && !brief && knew != self.fence && next != self.fence;
        let skipped = next.term.0 > self.fence.term.0 + 1;
        let unheard_of = skipped && (self.over_at == at || self.lost_at + silence < at);
        unanswered || unheard_of
    }

    /// Since when the leadership of `next` may have lasted, at the earliest. It may have begun long before it was heard of,
    /// by a node that slept or was cut off, but not before this one was lost.
    pub(super) fn next_began_after(self, next: Fence) -> Option<Duration> {
        if next == self.fence {
            self.began_after
        } else {
            Some(self.lost_at)
        }
    }
}

impl Owner {
    pub(super) fn touch(&mut self, now: Now, routes: Vec<Route>, out: &mut Vec<OwnerOutput>) {
        let mut slots = BTreeSet::new();
        for route in routes {
            let slot = route.uid.slot();
            if let Some(known) = self.slots.get_mut(&slot).filter(|known| known.has(&route)) {
                known.touched.insert(route.connection);
                slots.insert(slot);
            }
        }
        for slot in slots {
            self.tell_touched(now, slot, out);
        }
    }

    /// Tells which sessions are alive, now and again until it is answered.
    pub(super) fn tell_touched(&mut self, now: Now, slot: SlotId, out: &mut Vec<OwnerOutput>) {
        let Some(known) = self.slots.get_mut(&slot) else {
            return;
        };
        known.lapse(out, |known| known.until <= now.monotonic);
        known
            .touched
            .retain(|connection| known.routes.contains_key(connection));
        let touched = known.touched.iter().filter_map(|one| known.routes.get(one));
        let routes: Vec<Route> = touched
            .take(ANNOUNCE_BATCH)
            .map(|one| one.route.clone())
            .collect();
        if routes.is_empty() {
            return;
        }
        if let Some((to, fence)) = known.leader {
            let at = now.monotonic;
            known.unanswered_since.get_or_insert(at);
            let request = Request::Touch {
                slot,
                fence,
                at,
                routes,
            };
            out.push(OwnerOutput::Send { to, request });
        }
        if !std::mem::replace(&mut known.touch_due, true) {
            self.due
                .insert((now.after(self.limits.channel_retry), Due::Touch(slot)));
        }
    }

    pub(super) fn answered_touch(
        &mut self,
        slot: SlotId,
        fence: Fence,
        at: Duration,
        alive: &[ConnectionId],
    ) {
        let Some(known) = self.slots.get_mut(&slot) else {
            return;
        };
        if known.leader.is_none_or(|(_, current)| current != fence) {
            return;
        }
        known.answered(at);
        for connection in alive {
            known.touched.remove(connection);
            if let Some(known) = known.routes.get_mut(connection) {
                known.knew = fence;
                known.until = known.until.max(at + self.limits.route_lease);
            }
        }
        known.unanswered_since = (!known.touched.is_empty()).then_some(at);
    }

    /// A session whose lease is over is not found by anybody: it ends, so that its client comes back.
    pub(super) fn sweep(&mut self, now: Now, out: &mut Vec<OwnerOutput>) {
        self.sweeping = false;
        for known in self.slots.values_mut() {
            known.lapse(out, |known| known.until <= now.monotonic);
        }
        self.sweep_later(now);
    }

    pub(super) fn sweep_later(&mut self, now: Now) {
        if !self.sweeping && self.slots.values().any(|known| !known.routes.is_empty()) {
            self.sweeping = true;
            self.due
                .insert((now.after(self.limits.touch_interval), Due::Sweep));
        }
    }
}
