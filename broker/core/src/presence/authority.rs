//! The presence authority: uid → live routes of the slots that this node leads.

use super::census::{Census, Waits};
use super::user::{Context, User};
use super::{Caller, Fault, Faults, Fence, Notice, Presence, Request};
use crate::limits::Limits;
use crate::types::{NodeId, Now, ProcessBoot, Route, SlotId, Uid};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What the authority is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Who leads a slot changed. Repeating the same fence keeps what is known.
    Leadership {
        /// The slot.
        slot: SlotId,
        /// The fence while this node leads the slot's group and has applied its term; none otherwise.
        fence: Option<Fence>,
        /// Live nodes that may own sessions: the slot is complete when each has announced itself (PR-4).
        expected: BTreeSet<NodeId>,
    },
    /// A request, perhaps from this node.
    Request {
        /// Who asks.
        from: Caller,
        /// What.
        request: Request,
    },
    /// A node has restarted: this process of it owns nothing any more.
    NodeDown {
        /// The node.
        node: NodeId,
        /// The process that ended.
        boot: ProcessBoot,
    },
    /// A node is not heard any more: its sessions may live on where others reach it.
    NodeSilent {
        /// The node.
        node: NodeId,
        /// The process that was heard last.
        boot: ProcessBoot,
    },
}

/// What the authority wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Tell a shard. May be lost: what matters is repeated.
    Send {
        /// The shard.
        to: Caller,
        /// What.
        notice: Notice,
    },
    /// A session became live, or ceased to be; only while that is watched. Those that a new leadership hears of again become
    /// live once more.
    Changed {
        /// The slot of its user.
        slot: SlotId,
        /// The session.
        route: Route,
        /// Whether it is live.
        online: bool,
    },
}

/// The presence of the slots that this node leads.
#[derive(Debug)]
pub struct Authority {
    limits: Limits,
    faults: Faults,
    slots: BTreeMap<SlotId, Slot>,
    /// What may be due: a user, or (without one) a slot's census. Leases are extended without moving
    /// their entry, so an entry may come too early.
    due: BTreeSet<(Duration, SlotId, Option<Uid>)>,
    /// Whether anybody wants to hear of [`Output::Changed`].
    watched: bool,
}

#[derive(Debug)]
struct Slot {
    fence: Fence,
    census: Census,
    /// The census's place in the authority's deadlines.
    armed: Option<Duration>,
    users: BTreeMap<Uid, User>,
    /// Whether somebody was told under this fence who is not online: a session that was not known then may have missed
    /// what was sent to it (PC-1).
    answered: bool,
}

impl Authority {
    /// Leads nothing yet.
    #[must_use]
    pub fn new(limits: Limits, faults: Faults) -> Authority {
        Authority {
            limits,
            faults,
            slots: BTreeMap::new(),
            due: BTreeSet::new(),
            watched: false,
        }
    }

    /// Whether [`Output::Changed`] is wanted. It begins with all sessions that are live.
    pub fn watch(&mut self, watched: bool, out: &mut Vec<Output>) {
        let begins = watched && !self.watched;
        self.watched = watched;
        if !begins {
            return;
        }
        for (slot, led) in &self.slots {
            let routes = led.users.values().flat_map(User::all);
            out.extend(routes.map(|route| changed(*slot, route.clone(), true)));
        }
    }

    /// The live sessions of these users, those in doubt too; none while a node has not announced its own.
    #[must_use]
    pub fn sessions(&self, slot: SlotId, uids: &[Uid]) -> Option<Vec<Route>> {
        let led = self.slots.get(&slot).filter(|led| led.census.is_complete())?;
        let users = uids.iter().filter_map(|uid| led.users.get(uid));
        Some(users.flat_map(User::all).cloned().collect())
    }

    /// Handles one input.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Leadership {
                slot,
                fence,
                expected,
            } => self.leadership(now, slot, fence, expected),
            Input::Request { from, request } => self.request(now, from, request, out),
            Input::NodeDown { node, boot } => {
                self.node_lost(now, node, boot, out, |user, context| {
                    user.node_down(node, boot, context)
                });
            }
            Input::NodeSilent { node, boot } => {
                self.node_lost(now, node, boot, out, |user, context| {
                    user.node_silent(node, boot, context)
                });
            }
        }
    }

    /// When [`Authority::expire`] may have something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        self.due.first().map(|(at, ..)| *at)
    }

    /// Ends leases and waits that are over, and asks again who has not announced itself.
    pub fn expire(&mut self, now: Now, out: &mut Vec<Output>) {
        while let Some((at, slot, uid)) = self.due.first().cloned() {
            if at > now.monotonic {
                break;
            }
            self.due.pop_first();
            match uid {
                Some(uid) => {
                    let user = self.slots.get_mut(&slot).and_then(|led| led.users.get_mut(&uid));
                    if let Some(user) = user
                        && user.armed == Some(at)
                    {
                        user.armed = None;
                        self.user(now, slot, &uid, out, User::expire);
                    }
                }
                None => self.census(now, slot, at, out),
            }
        }
    }

    /// Live routes of all slots led here.
    #[must_use]
    pub fn routes(&self) -> usize {
        let users = self.slots.values().flat_map(|led| led.users.values());
        users.map(|user| user.routes().len()).sum()
    }

    fn leadership(&mut self, now: Now, slot: SlotId, fence: Option<Fence>, expected: BTreeSet<NodeId>) {
        let Some(fence) = fence else {
            self.slots.remove(&slot);
            return;
        };
        let waits = self.waits();
        let fresh = || Slot {
            fence,
            census: Census::default(),
            armed: None,
            users: BTreeMap::new(),
            answered: false,
        };
        let led = self.slots.entry(slot).or_insert_with(fresh);
        if led.fence != fence {
            *led = fresh();
        }
        led.census.expect(expected, now.monotonic, waits);
        self.arm_census(slot);
    }

    fn waits(&self) -> Waits {
        Waits {
            longest: self.limits.touch_interval,
            between_questions: self.limits.channel_retry,
        }
    }

    fn census(&mut self, now: Now, slot: SlotId, at: Duration, out: &mut Vec<Output>) {
        let waits = self.waits();
        let Some(led) = self.slots.get_mut(&slot).filter(|led| led.armed == Some(at)) else {
            return;
        };
        led.armed = None;
        let notices = led.census.expire(now.monotonic, (slot, led.fence), waits);
        out.extend(
            notices
                .into_iter()
                .map(|(to, notice)| Output::Send { to, notice }),
        );
        self.arm_census(slot);
    }

    fn arm_census(&mut self, slot: SlotId) {
        let Some(led) = self.slots.get_mut(&slot) else {
            return;
        };
        let due = led.census.next_deadline();
        if led.armed != due {
            if let Some(armed) = led.armed {
                self.due.remove(&(armed, slot, None));
            }
            led.armed = due;
            self.due.extend(due.map(|at| (at, slot, None)));
        }
    }

    fn request(&mut self, now: Now, from: Caller, request: Request, out: &mut Vec<Output>) {
        match request {
            Request::Register {
                slot,
                fence,
                token,
                route,
            } => {
                if self.leads(slot, fence, from, out) {
                    let uid = route.uid.clone();
                    self.user(now, slot, &uid, out, |user, context| {
                        user.register(from, token, route, context);
                    });
                }
            }
            Request::Unregister { slot, route } => {
                if self.slots.contains_key(&slot) {
                    let uid = route.uid.clone();
                    self.user(now, slot, &uid, out, |user, context| {
                        user.unregister(&route, context)
                    });
                }
            }
            Request::Touch {
                slot,
                fence,
                at,
                routes,
            } => {
                if self.leads(slot, fence, from, out) {
                    let lapsed = self.touch(now, slot, from, &routes, out);
                    answer_touch(from, (slot, fence, at), &routes, &lapsed, out);
                }
            }
            Request::Announce {
                slot,
                fence,
                part,
                routes,
                last,
            } => {
                if self.leads(slot, fence, from, out) {
                    let lapsed = self.touch(now, slot, from, &routes, out);
                    if last {
                        self.announced(now, slot, from, out);
                    }
                    self.arm_census(slot);
                    let notice = Notice::Announced {
                        slot,
                        fence,
                        part,
                        lapsed,
                    };
                    out.push(Output::Send { to: from, notice });
                }
            }
            Request::Lookup { token, slots } => {
                let found = slots.iter().map(|(slot, uids)| (*slot, self.lookup(*slot, uids)));
                let found: Vec<_> = found.collect();
                for (slot, _) in slots {
                    if let Some(led) = self.slots.get_mut(&slot) {
                        led.answered |= led.census.is_complete();
                    }
                }
                let notice = Notice::Found { token, slots: found };
                out.push(Output::Send { to: from, notice });
            }
        }
    }

    pub(super) fn lookup(&self, slot: SlotId, uids: &[Uid]) -> Presence {
        let Some(led) = self.slots.get(&slot) else {
            return Presence::Unknown;
        };
        let users = uids.iter().filter_map(|uid| {
            let routes = led.users.get(uid)?.routes();
            (!routes.is_empty()).then(|| (uid.clone(), routes))
        });
        let doubtful = uids
            .iter()
            .filter_map(|uid| led.users.get(uid))
            .flat_map(User::doubtful);
        Presence::Known {
            users: users.collect(),
            doubtful: doubtful.collect(),
            complete: led.census.is_complete() || self.faults.has(Fault::UnknownIsOffline),
        }
    }

    /// These sessions are said to be alive; returns those that have lapsed.
    fn touch(
        &mut self,
        now: Now,
        slot: SlotId,
        from: Caller,
        routes: &[Route],
        out: &mut Vec<Output>,
    ) -> Vec<Route> {
        let answered = self.slots.get(&slot).is_some_and(|led| led.answered);
        let mut lapsed = Vec::new();
        for route in routes.iter().filter(|route| route.uid.slot() == slot) {
            self.user(now, slot, &route.uid, out, |user, context| {
                if !user.touch(from, route, answered, context) {
                    lapsed.push(route.clone());
                }
            });
        }
        lapsed
    }

    fn node_lost(
        &mut self,
        now: Now,
        node: NodeId,
        boot: ProcessBoot,
        out: &mut Vec<Output>,
        act: impl Fn(&mut User, &mut Context<'_>),
    ) {
        let slots: Vec<SlotId> = self.slots.keys().copied().collect();
        for slot in slots {
            let Some(led) = self.slots.get_mut(&slot) else {
                continue;
            };
            led.census.node_down(node, boot);
            let uids: Vec<Uid> = led.users.keys().cloned().collect();
            for uid in uids {
                self.user(now, slot, &uid, out, &act);
            }
            self.arm_census(slot);
        }
    }

    /// A shard has announced all that it has. Once all of its node have, what its node did not name is over.
    fn announced(&mut self, now: Now, slot: SlotId, from: Caller, out: &mut Vec<Output>) {
        let Some(led) = self.slots.get_mut(&slot) else {
            return;
        };
        led.census.announced(from);
        if led.census.whole(from.node) {
            let doubtful = |user: &User| user.doubtful().any(|route| route.node == from.node);
            let users = led.users.iter().filter(|(_, user)| doubtful(user));
            let uids: Vec<Uid> = users.map(|(uid, _)| uid.clone()).collect();
            for uid in uids {
                self.user(now, slot, &uid, out, |user, context| {
                    user.not_named(from.node, context)
                });
            }
        }
    }

    /// Whether this node leads the slot under that fence; otherwise the caller is told.
    fn leads(&mut self, slot: SlotId, fence: Fence, from: Caller, out: &mut Vec<Output>) -> bool {
        let led = self.slots.get_mut(&slot).filter(|led| led.fence == fence);
        let leads = led.is_some();
        if let Some(led) = led {
            led.census.heard(from);
        } else {
            let notice = Notice::NotLeader { slot };
            out.push(Output::Send { to: from, notice });
        }
        leads
    }

    /// Lets a user's sessions act, then notes when they are due next.
    fn user(
        &mut self,
        now: Now,
        slot: SlotId,
        uid: &Uid,
        out: &mut Vec<Output>,
        act: impl FnOnce(&mut User, &mut Context<'_>),
    ) {
        let Some(led) = self.slots.get_mut(&slot) else {
            return;
        };
        let user = led.users.entry(uid.clone()).or_default();
        let mut notices = Vec::new();
        let mut context = Context {
            at: now.monotonic,
            fence: led.fence,
            limits: &self.limits,
            faults: self.faults,
            out: &mut notices,
        };
        let before = if self.watched { user.snapshot() } else { Vec::new() };
        act(user, &mut context);
        if self.watched {
            let after = user.snapshot();
            let ended = before.iter().filter(|route| !after.contains(route));
            out.extend(ended.map(|route| changed(slot, route.clone(), false)));
            let began = after.iter().filter(|route| !before.contains(route));
            out.extend(began.map(|route| changed(slot, route.clone(), true)));
        }
        out.extend(
            notices
                .into_iter()
                .map(|(to, notice)| Output::Send { to, notice }),
        );
        let due = user.next_deadline();
        if let Some(at) = due
            && user.armed.is_none_or(|armed| at < armed)
        {
            if let Some(armed) = user.armed.replace(at) {
                self.due.remove(&(armed, slot, Some(uid.clone())));
            }
            self.due.insert((at, slot, Some(uid.clone())));
        }
        if user.is_empty() {
            if let Some(armed) = user.armed {
                self.due.remove(&(armed, slot, Some(uid.clone())));
            }
            led.users.remove(uid);
        }
    }
}

fn changed(slot: SlotId, route: Route, online: bool) -> Output {
    Output::Changed { slot, route, online }
}

/// Says which of these sessions are alive, and ends the others.
fn answer_touch(
    to: Caller,
    (slot, fence, at): (SlotId, Fence, Duration),
    routes: &[Route],
    lapsed: &[Route],
    out: &mut Vec<Output>,
) {
    let alive = routes.iter().filter(|route| !lapsed.contains(route));
    let alive = alive.map(|route| route.connection).collect();
    let lapsed = lapsed.iter().cloned().map(|route| Notice::Lapsed { route });
    let notices = lapsed.chain([Notice::Touched {
        slot,
        fence,
        at,
        alive,
    }]);
    out.extend(notices.map(|notice| Output::Send { to, notice }));
}
