//! The owner's side of presence: which sessions of this shard are registered where.

mod leases;

use super::{Fence, Notice, Request};
use crate::limits::Limits;
use crate::types::{ConnectionId, NodeId, Now, Reason, Route, SlotId, Token};
use leases::Before;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

/// Routes in one part of an announcement.
const ANNOUNCE_BATCH: usize = 512;

/// What the owner is told.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnerInput {
    /// Make a session's route live; answered by [`OwnerOutput::Registered`] unless it is unregistered before.
    Register {
        /// Chosen by the caller.
        token: Token,
        /// The route.
        route: Route,
    },
    /// A session is over. May be repeated.
    Unregister {
        /// Its route.
        route: Route,
    },
    /// Sessions had inbound frames.
    Touch {
        /// Their routes.
        routes: Vec<Route>,
    },
    /// The observed leader of a slot, and its fence. Repeating it changes nothing.
    Leader {
        /// The slot.
        slot: SlotId,
        /// Leader node and fence, none while unknown.
        leader: Option<(NodeId, Fence)>,
    },
    /// This process did nothing since then: leaders may have come and gone meanwhile.
    Slept {
        /// When it was awake last.
        since: Duration,
    },
    /// From an authority.
    Notice {
        /// What.
        notice: Notice,
    },
}

/// What the owner wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnerOutput {
    /// Tell the authority at this node, with this shard as the caller. May be lost.
    Send {
        /// The leader of the request's slot.
        to: NodeId,
        /// What.
        request: Request,
    },
    /// A route is live, or the reason for CONNACK.
    Registered {
        /// From the question.
        token: Token,
        /// Live or refused.
        result: Result<(), Reason>,
    },
    /// End this session (PR-3); unregister it in any case.
    Kick {
        /// Its route.
        route: Route,
    },
    /// End this session, so that its client comes back and pulls: it may have missed messages (PC-1).
    Lapsed {
        /// Its route.
        route: Route,
    },
}

/// Which sessions of this shard are registered where.
#[derive(Debug)]
pub struct Owner {
    limits: Limits,
    slots: BTreeMap<SlotId, Slot>,
    /// Slots of the registrations under way.
    asked: BTreeMap<Token, SlotId>,
    due: BTreeSet<(Duration, Due)>,
    sweeping: bool,
}

/// What is repeated until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Announce(SlotId),
    Register(Token),
    Touch(SlotId),
    /// Leases that are over are looked for.
    Sweep,
}

/// A registered session.
#[derive(Debug)]
struct Known {
    route: Route,
    /// The leadership that knew of it last.
    knew: Fence,
    /// Until when its lease lasts at least.
    until: Duration,
}

#[derive(Debug, Default)]
struct Slot {
    leader: Option<(NodeId, Fence)>,
    /// Since when this process slept, if nothing was heard of this leader since it woke up.
    slept_since: Option<Duration>,
    /// From when on an answer shows that the leader was not another one meanwhile.
    believed_from: Duration,
    /// The leadership before, when there is none known now.
    before: Option<Before>,
    /// Since when the leader may have led, at the earliest: since the one before was lost. None when no time without a leader
    /// was seen in between.
    began_after: Option<Duration>,
    routes: BTreeMap<ConnectionId, Known>,
    /// Sessions whose touch is not answered.
    touched: BTreeSet<ConnectionId>,
    touch_due: bool,
    /// Since when touches are sent to this leader that it does not answer.
    unanswered_since: Option<Duration>,
    pending: BTreeMap<Token, Route>,
    announcement: Option<Announcement>,
}

/// Routes are announced in parts, one after the other, so that the last one says that all have arrived.
#[derive(Clone, Copy, Debug)]
struct Announcement {
    part: u32,
    /// When the part was sent first.
    part_since: Duration,
    /// Where the part starts, exclusive.
    after: Option<ConnectionId>,
    /// Where it ends; none in the last part, or before it was sent.
    through: Option<ConnectionId>,
}

impl Announcement {
    fn start(now: Now) -> Announcement {
        Announcement {
            part: 0,
            part_since: now.monotonic,
            after: None,
            through: None,
        }
    }

    /// The routes of the part. A part that is repeated keeps its end: the answer to its first copy must mean the same
    /// routes.
    fn range(self) -> (Bound<ConnectionId>, Bound<ConnectionId>) {
        let from = self.after.map_or(Bound::Unbounded, Bound::Excluded);
        (from, self.through.map_or(Bound::Unbounded, Bound::Included))
    }
}

impl Slot {
    fn has(&self, route: &Route) -> bool {
        let known = self.routes.get(&route.connection);
        known.is_some_and(|known| known.route == *route)
    }

    /// The leader answered what was said at this time. An authority of this very node slept as well: it is believed only when
    /// it would have heard of another leader.
    fn answered(&mut self, at: Duration) {
        if at >= self.believed_from {
            self.slept_since = None;
        }
    }

    /// Whether the leader is the node that has the sessions.
    fn leads_itself(&self) -> bool {
        let leader = self.leader.map(|(node, _)| node);
        let own = self.routes.values().next().map(|known| known.route.node);
        own.is_some() && own == leader
    }

    /// Takes out the sessions that must not go on.
    fn lapse(&mut self, out: &mut Vec<OwnerOutput>, mut over: impl FnMut(&Known) -> bool) {
        let lapsed = self.routes.extract_if(.., |_, known| over(known));
        out.extend(lapsed.map(|(_, known)| OwnerOutput::Lapsed { route: known.route }));
    }
}

impl Owner {
    /// Knows no leader and no session yet.
    #[must_use]
    pub fn new(limits: Limits) -> Owner {
        Owner {
            limits,
            slots: BTreeMap::new(),
            asked: BTreeMap::new(),
            due: BTreeSet::new(),
            sweeping: false,
        }
    }

    /// Handles one input.
    pub fn handle(&mut self, now: Now, input: OwnerInput, out: &mut Vec<OwnerOutput>) {
        match input {
            OwnerInput::Register { token, route } => {
                let slot = route.uid.slot();
                self.slots.entry(slot).or_default().pending.insert(token, route);
                self.asked.insert(token, slot);
                self.ask(now, token, out);
            }
            OwnerInput::Unregister { route } => self.unregister(route, out),
            OwnerInput::Touch { routes } => self.touch(now, routes, out),
            OwnerInput::Leader { slot, leader } => self.leader(now, slot, leader, out),
            OwnerInput::Slept { since } => {
                let led = self.slots.values_mut().filter(|known| known.leader.is_some());
                for known in led {
                    known.slept_since.get_or_insert(since);
                    // An answer to what was asked before may have waited here, and shows nothing of the time since then.
                    known.believed_from = if known.leads_itself() {
                        now.after(self.limits.touch_interval)
                    } else {
                        now.monotonic
                    };
                }
            }
            OwnerInput::Notice { notice } => self.notice(now, notice, out),
        }
    }

    /// When [`Owner::expire`] may have something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Repeats what was not answered.
    pub fn expire(&mut self, now: Now, out: &mut Vec<OwnerOutput>) {
        while let Some((at, due)) = self.due.first().copied() {
            if at > now.monotonic {
                break;
            }
            self.due.pop_first();
            match due {
                Due::Announce(slot) => self.announce(now, slot, out),
                Due::Register(token) => self.ask(now, token, out),
                Due::Touch(slot) => {
                    if let Some(known) = self.slots.get_mut(&slot) {
                        known.touch_due = false;
                    }
                    self.tell_touched(now, slot, out);
                }
                Due::Sweep => self.sweep(now, out),
            }
        }
    }

    /// Registered sessions of this shard.
    #[must_use]
    pub fn routes(&self) -> usize {
        self.slots.values().map(|slot| slot.routes.len()).sum()
    }

    /// Asks for a registration, now and again until it is answered.
    fn ask(&mut self, now: Now, token: Token, out: &mut Vec<OwnerOutput>) {
        let Some(slot) = self.asked.get(&token).copied() else {
            return;
        };
        let Some(known) = self.slots.get(&slot) else {
            return;
        };
        if let Some((to, fence)) = known.leader
            && let Some(route) = known.pending.get(&token)
        {
            let request = Request::Register {
                slot,
                fence,
                token,
                route: route.clone(),
            };
            out.push(OwnerOutput::Send { to, request });
        }
        self.due
            .insert((now.after(self.limits.channel_retry), Due::Register(token)));
    }

    fn unregister(&mut self, route: Route, out: &mut Vec<OwnerOutput>) {
        let slot = route.uid.slot();
        let known = self.slots.entry(slot).or_default();
        if known.has(&route) {
            known.routes.remove(&route.connection);
        }
        let asked = &mut self.asked;
        known.pending.retain(|token, pending| {
            let over = *pending == route;
            if over {
                asked.remove(token);
            }
            !over
        });
        // Without a leader nothing is lost: the next one only learns what is announced to it.
        if let Some((to, _)) = known.leader {
            let request = Request::Unregister { slot, route };
            out.push(OwnerOutput::Send { to, request });
        }
    }

    fn leader(
        &mut self,
        now: Now,
        slot: SlotId,
        leader: Option<(NodeId, Fence)>,
        out: &mut Vec<OwnerOutput>,
    ) {
        let silence = self.limits.node_dead_after;
        let known = self.slots.entry(slot).or_default();
        if known.leader == leader {
            return;
        }
        let slept_since = known.slept_since.take();
        let unanswered_since = known.unanswered_since.take();
        if let Some((_, fence)) = known.leader {
            let lost = slept_since.into_iter().chain(unanswered_since).min();
            known.before = Some(Before {
                fence,
                began_after: known.began_after.take(),
                lost_at: lost.unwrap_or(now.monotonic),
                over_at: now.monotonic,
                unanswered: known.announcement.is_some(),
            });
        } else if let (Some((_, fence)), Some(before)) = (leader, known.before) {
            known.began_after = before.next_began_after(fence);
        }
        known.leader = leader;
        known.announcement = leader.map(|_| Announcement::start(now));
        if let Some((_, fence)) = leader
            && let Some(before) = known.before.take()
        {
            known.lapse(out, |known| {
                before.left_out(known.knew, fence, now.monotonic, silence)
            });
        }
        known.lapse(out, |known| known.until <= now.monotonic);
        let pending: Vec<Token> = known.pending.keys().copied().collect();
        self.announce(now, slot, out);
        for token in pending {
            self.ask(now, token, out);
        }
    }

    /// Sends the current part of the announcement, now and again until it is answered.
    fn announce(&mut self, now: Now, slot: SlotId, out: &mut Vec<OwnerOutput>) {
        let Some(known) = self.slots.get_mut(&slot) else {
            return;
        };
        let (Some((to, fence)), Some(announcement)) = (known.leader, &mut known.announcement) else {
            return;
        };
        let rest = known.routes.range(announcement.range());
        let routes: Vec<Route> = rest
            .take(ANNOUNCE_BATCH)
            .map(|(_, known)| known.route.clone())
            .collect();
        if routes.len() == ANNOUNCE_BATCH {
            announcement.through = routes.last().map(|route| route.connection);
        }
        let last = announcement.through.is_none();
        let request = Request::Announce {
            slot,
            fence,
            part: announcement.part,
            routes,
            last,
        };
        out.push(OwnerOutput::Send { to, request });
        self.due
            .insert((now.after(self.limits.channel_retry), Due::Announce(slot)));
    }

    /// The leader lost what it knew of this node.
    fn announce_again(&mut self, now: Now, slot: SlotId, fence: Fence, out: &mut Vec<OwnerOutput>) {
        if let Some(known) = self.slots.get_mut(&slot)
            && known.leader.is_some_and(|(_, current)| current == fence)
            && known.announcement.is_none()
        {
            known.announcement = Some(Announcement::start(now));
            self.announce(now, slot, out);
        }
    }

    fn notice(&mut self, now: Now, notice: Notice, out: &mut Vec<OwnerOutput>) {
        match notice {
            Notice::Registered { token, fence, result } => self.registered(now, token, fence, result, out),
            Notice::Announced {
                slot,
                fence,
                part,
                lapsed,
            } => {
                for route in lapsed {
                    self.lapsed(route, out);
                }
                self.announced(now, slot, fence, part, out);
            }
            Notice::Lapsed { route } => self.lapsed(route, out),
            Notice::Touched {
                slot,
                fence,
                at,
                alive,
            } => self.answered_touch(slot, fence, at, &alive),
            Notice::Announce { slot, fence } => self.announce_again(now, slot, fence, out),
            Notice::Close { route } => out.push(OwnerOutput::Kick { route }),
            // What was asked is asked again, of whoever leads by then. Lookups are not asked by owners.
            Notice::NotLeader { .. } | Notice::Found { .. } => {}
        }
    }

    fn lapsed(&mut self, route: Route, out: &mut Vec<OwnerOutput>) {
        if let Some(known) = self.slots.get_mut(&route.uid.slot())
            && known.has(&route)
        {
            known.routes.remove(&route.connection);
            out.push(OwnerOutput::Lapsed { route });
        }
    }

    fn registered(
        &mut self,
        now: Now,
        token: Token,
        fence: Fence,
        result: Result<(), Reason>,
        out: &mut Vec<OwnerOutput>,
    ) {
        // The session may have ended meanwhile: its unregister is on the way and leaves a tombstone.
        let Some(known) = self.asked.get(&token).and_then(|slot| self.slots.get_mut(slot)) else {
            return;
        };
        // An earlier leader's answer says nothing about what the present one knows: it is asked too.
        if known.leader.is_none_or(|(_, current)| current != fence) {
            return;
        }
        self.asked.remove(&token);
        let Some(route) = known.pending.remove(&token) else {
            return;
        };
        if result.is_ok() {
            // It was asked at most that long ago.
            let asked_at = now.monotonic.saturating_sub(self.limits.activation_timeout);
            let known_route = Known {
                route,
                knew: fence,
                until: asked_at + self.limits.route_lease,
            };
            known.routes.insert(known_route.route.connection, known_route);
            self.sweep_later(now);
        }
        out.push(OwnerOutput::Registered { token, result });
    }

    fn announced(&mut self, now: Now, slot: SlotId, fence: Fence, part: u32, out: &mut Vec<OwnerOutput>) {
        let Some(known) = self.slots.get_mut(&slot) else {
            return;
        };
        if known.leader.is_none_or(|(_, current)| current != fence) {
            return;
        }
        let Some(announcement) = known.announcement.filter(|current| current.part == part) else {
            return;
        };
        known.answered(announcement.part_since);
        for (_, known) in known.routes.range_mut(announcement.range()) {
            known.knew = fence;
            known.until = known.until.max(announcement.part_since + self.limits.route_lease);
        }
        known.announcement = announcement.through.map(|through| Announcement {
            part: part + 1,
            part_since: now.monotonic,
            after: Some(through),
            through: None,
        });
        self.announce(now, slot, out);
    }
}
