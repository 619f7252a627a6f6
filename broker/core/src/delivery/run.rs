//! One run of messages on its way to its receivers.

mod waits;

use super::members::{RouteKey, key_of};
use super::memory::{Context, Effort, Kind, MemberList};
use super::targets::{Messages, by_node};
use super::{MembersPage, Output, Presence, Pushed, Target};
use crate::audience::Audience;
use crate::message::Committed;
use crate::types::{NodeId, Route, Seq, SlotId, Token, Uid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Where the next receivers come from.
#[derive(Debug)]
enum Source {
    Subscribers {
        after: Option<RouteKey>,
    },
    Derived,
    /// The receivers that the messages name, from this one on.
    Named {
        from: usize,
    },
    Members {
        after: Option<Uid>,
    },
    Asked {
        token: Token,
        after: Option<Uid>,
        ask_again_at: Duration,
    },
    Cached {
        from: usize,
    },
    Exhausted,
}

/// Users of one slot whose routes are not known yet.
#[derive(Debug)]
struct Search {
    /// With the position of each one's first message.
    users: Vec<(Uid, u16)>,
    /// Sessions that have their share already.
    reached: BTreeSet<RouteKey>,
    effort: Effort,
}

/// Sessions of one node that have not bound their share yet, by position in the push.
#[derive(Debug)]
struct Parcel {
    node: NodeId,
    targets: BTreeMap<u16, Target>,
    effort: Effort,
}

#[derive(Debug)]
enum Retry {
    Search(SlotId, Search),
    Parcel(Parcel),
}

/// One run of messages on its way to its receivers.
#[derive(Debug)]
pub(super) struct Run {
    messages: Messages,
    pub(super) kind: Kind,
    give_up_members_at: Duration,
    /// Subscriptions up to here are served as such. Whoever subscribes later is served as the member that it may be.
    mark: u64,
    source: Source,
    searches: BTreeMap<(Token, SlotId), Search>,
    parcels: BTreeMap<Token, Parcel>,
    retries: Vec<(Duration, Retry)>,
    /// Sessions that this run was given up for.
    unreached: Vec<Route>,
}

impl Run {
    pub(super) fn new(messages: Vec<Arc<Committed>>, kind: Kind, context: &Context<'_>) -> Run {
        let source = match messages.first() {
            None => Source::Exhausted,
            Some(first) if first.message.draft.subscribers.is_empty() => Source::Subscribers { after: None },
            Some(_) => Source::Named { from: 0 },
        };
        Run {
            messages: Messages::new(messages),
            kind,
            give_up_members_at: context.patience(false),
            mark: context.memory.subscribers.mark(),
            source,
            searches: BTreeMap::new(),
            parcels: BTreeMap::new(),
            retries: Vec::new(),
            unreached: Vec::new(),
        }
    }

    /// Looks for those that are owed something. Nobody waits long for them.
    pub(super) fn settling(context: &mut Context<'_>) -> Run {
        let limits = &context.settings.limits;
        let (pause, longest) = (limits.channel_retry, limits.touch_interval);
        context.memory.owed.start(context.now.monotonic, pause, longest);
        let mut run = Run::new(Vec::new(), Kind::Settling, context);
        let users = context.memory.owed.users();
        run.search(users.into_iter().map(|uid| (uid, 0)).collect(), context);
        run
    }

    /// Goes on as far as the bound on targets allows; true when every receiver is dealt with.
    pub(super) fn advance(&mut self, context: &mut Context<'_>) -> bool {
        // Half a page of stragglers may be carried, so that they do not hold up the next page.
        while self.outstanding() <= context.page() / 2 {
            match &self.source {
                Source::Subscribers { after } => {
                    let (routes, next) = context.memory.subscribers.page(*after, context.page(), self.mark);
                    self.source = match next {
                        Some(after) => Source::Subscribers { after: Some(after) },
                        None => Source::Derived,
                    };
                    let targets = routes
                        .into_iter()
                        .filter_map(|route| self.target(route, 0, context));
                    self.send(targets.collect(), context);
                }
                Source::Derived => {
                    let derived = context.audience.derived.iter();
                    let users = derived.map(|uid| (uid.clone(), 0)).collect();
                    self.source = if context.audience.listed {
                        Source::Members { after: None }
                    } else {
                        Source::Exhausted
                    };
                    self.search(users, context);
                }
                Source::Named { from } => self.search_named(*from, context),
                Source::Members { after } => self.ask_members(after.clone(), context),
                Source::Asked { .. } => return false,
                Source::Cached { from } => self.search_cached(*from, context),
                Source::Exhausted => return self.outstanding() == 0,
            }
        }
        false
    }

    pub(super) fn members(&mut self, token: Token, page: MembersPage, context: &mut Context<'_>) {
        let Source::Asked {
            token: asked, after, ..
        } = &self.source
        else {
            return;
        };
        if *asked != token {
            return;
        }
        let after = after.clone();
        match page {
            MembersPage::Unchanged => self.source = Source::Cached { from: 0 },
            MembersPage::Failed => {
                self.source = Source::Asked {
                    token: context.memory.issue(),
                    after,
                    ask_again_at: context.now.after(context.settings.limits.channel_retry),
                };
            }
            MembersPage::Page {
                revision,
                members,
                more,
            } => {
                let whole = after.is_none() && !more;
                let last = members.last().map(|(uid, _)| uid.clone());
                self.source = match last.filter(|_| more) {
                    Some(last) => Source::Members { after: Some(last) },
                    None => Source::Exhausted,
                };
                let users = self.users(&members, context.audience);
                let members_max = context.settings.limits.large_group_members;
                let small = u32::try_from(members.len()).is_ok_and(|count| count <= members_max);
                context.memory.cache = (whole && small).then(|| MemberList {
                    revision,
                    members: Arc::from(members),
                });
                self.search(users, context);
            }
        }
    }

    pub(super) fn found(&mut self, token: Token, slots: Vec<(SlotId, Presence)>, context: &mut Context<'_>) {
        let mut targets = Vec::new();
        for (slot, presence) in slots {
            let Some(mut search) = self.searches.remove(&(token, slot)) else {
                continue;
            };
            let Presence::Known {
                users,
                complete,
                doubtful,
            } = presence
            else {
                self.search_again(slot, search, false, context);
                continue;
            };
            if complete {
                context.memory.failing_slots.remove(&slot);
            }
            let mut known: BTreeMap<Uid, Vec<Route>> = users.into_iter().collect();
            for (uid, first) in &search.users {
                let routes = known.remove(uid).unwrap_or_default();
                if complete {
                    self.all_known(uid, &routes, &doubtful, context);
                }
                for route in routes.into_iter().filter(|route| route.uid == *uid) {
                    let new = search.reached.insert(key_of(&route));
                    // A run that settles serves no subscribers besides: what a session is owed it is told as a member.
                    let served =
                        self.kind != Kind::Settling && context.memory.subscribers.contains(&route, self.mark);
                    if new && !served {
                        targets.extend(self.target(route, *first, context));
                    }
                }
            }
            if !complete {
                self.search_again(slot, search, false, context);
            }
        }
        self.send(targets, context);
    }

    /// All sessions of a user are known, those of silent nodes perhaps. Those that are owed something stay so until they are
    /// told: another leader may have to do it.
    fn all_known(&self, uid: &Uid, routes: &[Route], doubtful: &[Route], context: &mut Context<'_>) {
        let missed = matches!(self.kind, Kind::Stored(_));
        let settle_at = context.settle_at();
        let owed = &mut context.memory.owed;
        let owing = routes.iter().filter(|route| owed.owes(route));
        let doubtful = doubtful.iter().filter(|route| missed || owed.owes(route));
        let all = owing.chain(doubtful).chain(&self.unreached);
        let still: Vec<&Route> = all.filter(|route| route.uid == *uid).collect();
        owed.settle(uid, &still, settle_at);
    }

    pub(super) fn pushed(&mut self, token: Token, outcomes: Vec<(u16, Pushed)>, context: &mut Context<'_>) {
        let Some(parcel) = self.parcels.get_mut(&token) else {
            return;
        };
        context.memory.failing_nodes.remove(&parcel.node);
        let mut not_yet = BTreeMap::new();
        let mut full = BTreeMap::new();
        for (position, outcome) in outcomes {
            let Some(target) = parcel.targets.remove(&position) else {
                continue;
            };
            if target.missed && matches!(outcome, Pushed::Bound | Pushed::Gone) {
                context.memory.owed.paid(&target.route);
            }
            match outcome {
                Pushed::Bound => context.memory.counters.bound += self.messages.count_of(&target),
                Pushed::Gone => context.memory.subscribers.release(&target.route),
                Pushed::NotYet => {
                    not_yet.insert(position, target);
                }
                Pushed::Full => {
                    full.insert(position, target);
                }
            }
        }
        let (node, effort) = (parcel.node, parcel.effort);
        let rest = |targets| Parcel {
            node,
            targets,
            effort,
        };
        let (again, soon) = (rest(not_yet), rest(full));
        if parcel.targets.is_empty() {
            self.parcels.remove(&token);
        }
        if !again.targets.is_empty() {
            self.push_again(again, false, context);
        }
        if !soon.targets.is_empty() {
            let due = context.now.after(context.settings.limits.full_window_pause);
            self.retries.push((due, Retry::Parcel(soon)));
        }
    }

    pub(super) fn expire(&mut self, context: &mut Context<'_>) {
        let at = context.now.monotonic;
        let unanswered = self
            .searches
            .extract_if(.., |_, search| search.effort.answer_by <= at);
        for ((_, slot), search) in unanswered.collect::<Vec<_>>() {
            self.search_again(slot, search, true, context);
        }
        let unanswered = self
            .parcels
            .extract_if(.., |_, parcel| parcel.effort.answer_by <= at);
        for (_, parcel) in unanswered.collect::<Vec<_>>() {
            self.push_again(parcel, true, context);
        }
        for (_, retry) in self
            .retries
            .extract_if(.., |(due, _)| *due <= at)
            .collect::<Vec<_>>()
        {
            match retry {
                Retry::Search(slot, search) => {
                    self.lookup(vec![(slot, search)], context);
                }
                Retry::Parcel(parcel) => self.push(parcel, context),
            }
        }
        if let Source::Asked {
            after, ask_again_at, ..
        } = &self.source
            && *ask_again_at <= at
        {
            if self.kind == Kind::Ephemeral && self.give_up_members_at <= at {
                context.memory.counters.ephemeral_lost += 1;
                self.source = Source::Exhausted;
            } else {
                self.ask_members(after.clone(), context);
            }
        }
    }

    fn ask_members(&mut self, after: Option<Uid>, context: &mut Context<'_>) {
        let token = context.memory.issue();
        let cached = context.memory.cache.as_ref().map(|list| list.revision);
        context.out.push(Output::Members {
            token,
            channel: context.audience.source.clone(),
            known_revision: cached.filter(|_| after.is_none()),
            after: after.clone(),
            members_max: context.settings.limits.delivery_page.max(1),
        });
        self.source = Source::Asked {
            token,
            after,
            ask_again_at: context.now.after(context.settings.limits.request_timeout),
        };
    }

    /// The request named the receivers: exactly they get the messages.
    fn search_named(&mut self, from: usize, context: &mut Context<'_>) {
        let named = self.messages.all.first();
        let named = named.map_or(&[][..], |first| &first.message.draft.subscribers);
        let page = named.iter().skip(from).take(context.page());
        let users: Vec<(Uid, u16)> = page.map(|uid| (uid.clone(), 0)).collect();
        let until = from + users.len();
        self.source = if until < named.len() {
            Source::Named { from: until }
        } else {
            Source::Exhausted
        };
        self.search(users, context);
    }

    fn search_cached(&mut self, from: usize, context: &mut Context<'_>) {
        let members = context
            .memory
            .cache
            .as_ref()
            .map(|list| Arc::clone(&list.members));
        let Some(members) = members else {
            // "Unchanged" without a list kept here: whoever answered meant another question.
            self.source = Source::Members { after: None };
            return;
        };
        let until = members.len().min(from + context.page());
        self.source = if until < members.len() {
            Source::Cached { from: until }
        } else {
            Source::Exhausted
        };
        let users = self.users(members.get(from..until).unwrap_or_default(), context.audience);
        self.search(users, context);
    }

    /// The members that get something, with the position of their first message.
    fn users(&self, members: &[(Uid, Seq)], audience: &Audience) -> Vec<(Uid, u16)> {
        members
            .iter()
            .filter(|(uid, _)| !audience.derived.contains(uid))
            .filter_map(|(uid, join_seq)| {
                let first = audience.first_for(*join_seq, &self.messages.all)?;
                Some((uid.clone(), first))
            })
            .collect()
    }

    fn target(&self, route: Route, first: u16, context: &Context<'_>) -> Option<Target> {
        let missed = context.memory.owed.owes(&route);
        self.messages.target(route, first, missed, context.audience)
    }

    /// Asks for the routes of these users.
    fn search(&mut self, users: Vec<(Uid, u16)>, context: &mut Context<'_>) {
        let mut slots: BTreeMap<SlotId, Vec<(Uid, u16)>> = BTreeMap::new();
        for (uid, first) in users {
            slots.entry(uid.slot()).or_default().push((uid, first));
        }
        let searches = slots.into_iter().map(|(slot, users)| {
            let failing = self.kind == Kind::Settling || context.memory.failing_slots.contains(&slot);
            let search = Search {
                users,
                reached: BTreeSet::new(),
                effort: Effort::new(failing, context),
            };
            (slot, search)
        });
        let searches = searches.collect();
        self.lookup(searches, context);
    }

    fn lookup(&mut self, searches: Vec<(SlotId, Search)>, context: &mut Context<'_>) {
        if searches.is_empty() {
            return;
        }
        let token = context.memory.issue();
        let mut slots = Vec::new();
        for (slot, mut search) in searches {
            slots.push((slot, search.users.iter().map(|(uid, _)| uid.clone()).collect()));
            search.effort.start(context);
            self.searches.insert((token, slot), search);
        }
        context.out.push(Output::Lookup { token, slots });
    }

    fn search_again(&mut self, slot: SlotId, search: Search, silence: bool, context: &mut Context<'_>) {
        if let Some(due) = search.effort.again_at(silence, context) {
            self.retries.push((due, Retry::Search(slot, search)));
            return;
        }
        context.memory.failing_slots.insert(slot);
        if let Kind::Stored(_) = self.kind {
            context.memory.counters.given_up += u64::try_from(search.users.len()).unwrap_or(u64::MAX);
            let settle_at = context.settle_at();
            for (uid, _) in &search.users {
                context.memory.owed.note_user(uid, &search.reached, settle_at);
            }
        }
    }

    fn send(&mut self, targets: Vec<Target>, context: &mut Context<'_>) {
        for (node, targets) in by_node(targets, context.page()) {
            let failing = self.kind == Kind::Settling || context.memory.failing_nodes.contains(&node);
            let parcel = Parcel {
                node,
                targets: (0_u16..).zip(targets).collect(),
                effort: Effort::new(failing, context),
            };
            self.push(parcel, context);
        }
    }

    fn push(&mut self, mut parcel: Parcel, context: &mut Context<'_>) {
        let token = context.memory.issue();
        let targets: Vec<Target> = parcel.targets.into_values().collect();
        parcel.targets = (0_u16..).zip(targets.iter().cloned()).collect();
        parcel.effort.start(context);
        context.out.push(Output::Push {
            token,
            node: parcel.node,
            push: self.messages.push(targets, context.audience),
        });
        self.parcels.insert(token, parcel);
    }

    fn push_again(&mut self, parcel: Parcel, silence: bool, context: &mut Context<'_>) {
        // A silent push may have arrived, and a message that is not stored is offered once.
        let once = silence && self.kind == Kind::Ephemeral;
        if let Some(due) = parcel.effort.again_at(silence, context)
            && !once
        {
            self.retries.push((due, Retry::Parcel(parcel)));
            return;
        }
        context.memory.failing_nodes.insert(parcel.node);
        if let Kind::Stored(_) = self.kind {
            context.memory.counters.given_up += u64::try_from(parcel.targets.len()).unwrap_or(u64::MAX);
        }
        let stored = self.kind != Kind::Ephemeral;
        let settle_at = context.settle_at();
        for target in parcel.targets.values() {
            if stored || target.missed {
                context.memory.owed.note_session(&target.route, settle_at);
                self.unreached.push(target.route.clone());
            }
        }
    }
}
