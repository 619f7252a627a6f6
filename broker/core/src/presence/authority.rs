//! The presence authority: uid → live routes of the slots that this node leads.

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
    /// A node is dead or has restarted: this process of it owns nothing any more.
    NodeDown {
        /// The node.
        node: NodeId,
        /// The process that ended.
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
}

/// The presence of the slots that this node leads.
#[derive(Debug)]
pub struct Authority {
    limits: Limits,
    faults: Faults,
    slots: BTreeMap<SlotId, Slot>,
    /// What may be due: a user, or (without one) the end of a slot's rebuilding. Leases are extended without moving
    /// their entry, so an entry may come too early.
    due: BTreeSet<(Duration, SlotId, Option<Uid>)>,
}

#[derive(Debug)]
struct Slot {
    fence: Fence,
    rebuild: Option<Rebuild>,
    users: BTreeMap<Uid, User>,
}

/// Whose announcements a new leader still misses.
#[derive(Debug)]
struct Rebuild {
    /// The bound: a node that has not announced itself by then has had every chance to touch its routes.
    until: Duration,
    expected: BTreeSet<NodeId>,
    /// Shards that have announced themselves, of how many.
    shards: BTreeMap<NodeId, (BTreeSet<u16>, u16)>,
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
        }
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
            Input::NodeDown { node, boot } => self.node_down(now, node, boot, out),
        }
    }

    /// When [`Authority::expire`] may have something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        self.due.first().map(|(at, ..)| *at)
    }

    /// Ends leases, waits and rebuilding that are over.
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
                None => {
                    if let Some(led) = self.slots.get_mut(&slot) {
                        led.rebuild.take_if(|rebuild| rebuild.until <= now.monotonic);
                    }
                }
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
        if let Some(led) = self.slots.get_mut(&slot)
            && led.fence == fence
        {
            if let Some(rebuild) = &mut led.rebuild {
                rebuild.expected = expected;
            }
            led.settle();
            return;
        }
        let until = now.after(self.limits.touch_interval);
        let rebuild = Rebuild {
            until,
            expected,
            shards: BTreeMap::new(),
        };
        let mut led = Slot {
            fence,
            rebuild: Some(rebuild),
            users: BTreeMap::new(),
        };
        led.settle();
        self.slots.insert(slot, led);
        self.due.insert((until, slot, None));
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
            Request::Touch { slot, fence, routes } => {
                if self.leads(slot, fence, from, out) {
                    self.touch(now, slot, from, &routes, out);
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
                    self.touch(now, slot, from, &routes, out);
                    if last && let Some(led) = self.slots.get_mut(&slot) {
                        led.announced(from);
                    }
                    let notice = Notice::Announced { slot, fence, part };
                    out.push(Output::Send { to: from, notice });
                }
            }
            Request::Lookup { token, slots } => {
                let slots = slots.iter().map(|(slot, uids)| (*slot, self.lookup(*slot, uids)));
                let notice = Notice::Found {
                    token,
                    slots: slots.collect(),
                };
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
        Presence::Known {
            users: users.collect(),
            complete: led.rebuild.is_none() || self.faults.has(Fault::UnknownIsOffline),
        }
    }

    fn touch(&mut self, now: Now, slot: SlotId, from: Caller, routes: &[Route], out: &mut Vec<Output>) {
        for route in routes.iter().filter(|route| route.uid.slot() == slot) {
            self.user(now, slot, &route.uid, out, |user, context| {
                user.touch(from, route, context);
            });
        }
    }

    fn node_down(&mut self, now: Now, node: NodeId, boot: ProcessBoot, out: &mut Vec<Output>) {
        let slots: Vec<SlotId> = self.slots.keys().copied().collect();
        for slot in slots {
            let Some(led) = self.slots.get_mut(&slot) else {
                continue;
            };
            if let Some(rebuild) = &mut led.rebuild {
                rebuild.expected.remove(&node);
            }
            led.settle();
            let uids: Vec<Uid> = led.users.keys().cloned().collect();
            for uid in uids {
                self.user(now, slot, &uid, out, |user, context| {
                    user.node_down(node, boot, context);
                });
            }
        }
    }

    /// Whether this node leads the slot under that fence; otherwise the caller is told.
    fn leads(&self, slot: SlotId, fence: Fence, from: Caller, out: &mut Vec<Output>) -> bool {
        let leads = self.slots.get(&slot).is_some_and(|led| led.fence == fence);
        if !leads {
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
        act(user, &mut context);
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

impl Slot {
    fn announced(&mut self, from: Caller) {
        let Some(rebuild) = &mut self.rebuild else {
            return;
        };
        let (shards, of) = rebuild.shards.entry(from.node).or_default();
        shards.insert(from.shard);
        *of = from.shards;
        self.settle();
    }

    fn settle(&mut self) {
        self.rebuild.take_if(|rebuild| {
            let whole = |node| {
                let announced = rebuild.shards.get(node);
                announced.is_some_and(|(shards, of)| shards.len() >= usize::from(*of))
            };
            rebuild.expected.iter().all(whole)
        });
    }
}
