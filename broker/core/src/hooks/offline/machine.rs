//! The machine.

use super::sweep::{Page, Place, State, Sweep, concerns};
use super::{Attempt, Input, Output, UIDS_MAX};
use crate::audience::{Audience, MembersPage, Presence};
use crate::hooks::cursors::Failure;
use crate::hooks::faults::Faults;
use crate::limits::Limits;
use crate::message::Message;
use crate::types::{ChannelKey, Now, Seq, SlotId, Token, Uid};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The sweeps of one channel.
#[derive(Debug)]
pub struct Offline {
    audience: Audience,
    members_max: u32,
    pause: Duration,
    patience: Duration,
    faults: Faults,
    sweeps: BTreeMap<Arc<str>, Sweep>,
    last_token: u64,
}

impl Offline {
    /// The machine of a channel. Whoever builds it again passes a higher `first_token` (CH-13).
    #[must_use]
    pub fn new(channel: &ChannelKey, limits: &Limits, faults: Faults, first_token: Token) -> Offline {
        let mut audience = Audience::of(channel);
        audience.derived.sort();
        Offline {
            audience,
            members_max: limits.delivery_page.clamp(1, UIDS_MAX),
            pause: limits.channel_retry,
            patience: limits.request_timeout,
            faults,
            sweeps: BTreeMap::new(),
            last_token: first_token.0,
        }
    }

    /// Takes one input.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Begin { attempt, message } => self.begin(now, attempt, message, out),
            Input::Members { token, page } => self.members(now, token, page, out),
            Input::Found { token, slots } => self.found(now, token, slots, out),
            Input::Returned { token, result } => self.returned(now, token, result, out),
            Input::Consumers(consumers) => {
                self.sweeps
                    .retain(|name, sweep| sweep.attempt.single || consumers.contains(name));
            }
            Input::Lost => self.sweeps.clear(),
        }
    }

    /// When presence, or a page, may be asked for again.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        self.sweeps.values().filter_map(Sweep::paused_until).min()
    }

    /// Asks again what has paused long enough.
    pub fn expire(&mut self, now: Now, out: &mut Vec<Output>) {
        let due = |sweep: &Sweep| sweep.paused_until().is_some_and(|until| until <= now.monotonic);
        let due = self.sweeps.iter().filter(|(_, sweep)| due(sweep));
        for name in due.map(|(name, _)| Arc::clone(name)).collect::<Vec<_>>() {
            let Some(sweep) = self.sweeps.get_mut(&name) else {
                continue;
            };
            match std::mem::replace(&mut sweep.state, State::Resting) {
                State::LookingPaused { page, .. } => self.look(&name, page, true, out),
                State::ReadingPaused { give_up_at, .. } => self.read(&name, give_up_at, out),
                other => sweep.state = other,
            }
        }
    }

    /// Whether nobody waits for it.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.sweeps
            .values()
            .all(|sweep| matches!(sweep.state, State::Resting))
    }

    fn issue(&mut self) -> Token {
        self.last_token += 1;
        Token(self.last_token)
    }

    fn begin(&mut self, now: Now, attempt: Attempt, message: Arc<Message>, out: &mut Vec<Output>) {
        let name = Arc::clone(&attempt.consumer);
        let rested = self.sweeps.remove(&name);
        let place = rested
            .filter(|sweep| sweep.seq == message.seq)
            .map_or(Place::Derived(None), |sweep| sweep.place);
        let sweep = Sweep {
            attempt,
            seq: message.seq,
            message: Some(message),
            place,
            state: State::Resting,
        };
        self.sweeps.insert(Arc::clone(&name), sweep);
        self.advance(now, &name, out);
    }

    /// Goes on at the place of a sweep, until something must be waited for.
    fn advance(&mut self, now: Now, name: &Arc<str>, out: &mut Vec<Output>) {
        let give_up_at = now.after(self.patience);
        loop {
            let Some(sweep) = self.sweeps.get_mut(name) else {
                return;
            };
            let concerns = sweep
                .message
                .as_ref()
                .is_some_and(|message| concerns(message, now));
            match &sweep.place {
                Place::Members(_) if concerns => return self.read(name, give_up_at, out),
                Place::Derived(after) if concerns => {
                    let rest = |uid: &&Uid| after.as_ref().is_none_or(|after| *uid > after);
                    let uids: Vec<Uid> = self.audience.derived.iter().filter(rest).cloned().collect();
                    let next = if self.audience.listed {
                        Place::Members(None)
                    } else {
                        Place::End
                    };
                    let page = sweep.page(uids, next, give_up_at);
                    if page.unknown.is_empty() {
                        sweep.place = page.next;
                        continue;
                    }
                    return self.look(name, page, false, out);
                }
                Place::End | Place::Derived(_) | Place::Members(_) => {
                    let (attempt, seq) = (sweep.attempt.clone(), sweep.seq);
                    self.sweeps.remove(name);
                    return out.push(Output::Done { attempt, seq });
                }
            }
        }
    }

    fn read(&mut self, name: &Arc<str>, give_up_at: Duration, out: &mut Vec<Output>) {
        let token = self.issue();
        let Some(sweep) = self.sweeps.get_mut(name) else {
            return;
        };
        let Place::Members(after) = &sweep.place else {
            return;
        };
        out.push(Output::Members {
            token,
            channel: self.audience.source.clone(),
            after: after.clone(),
            members_max: self.members_max,
        });
        sweep.state = State::Reading { token, give_up_at };
    }

    fn look(&mut self, name: &Arc<str>, page: Page, again: bool, out: &mut Vec<Output>) {
        let token = self.issue();
        let Some(sweep) = self.sweeps.get_mut(name) else {
            return;
        };
        let slots = page.unknown.iter();
        out.push(Output::Lookup {
            token,
            slots: slots.map(|(slot, uids)| (*slot, uids.clone())).collect(),
            again,
        });
        sweep.state = State::Looking {
            token,
            waiting: page.unknown.keys().copied().collect(),
            page,
        };
    }

    /// The sweep that waits for this answer.
    fn waits(&self, token: Token) -> Option<Arc<str>> {
        let is_it = |(_, sweep): &(&Arc<str>, &Sweep)| sweep.asked() == Some(token);
        self.sweeps.iter().find(is_it).map(|(name, _)| Arc::clone(name))
    }

    fn members(&mut self, now: Now, token: Token, page: MembersPage, out: &mut Vec<Output>) {
        let Some(name) = self.waits(token) else { return };
        let Some(sweep) = self.sweeps.get_mut(&name) else {
            return;
        };
        let State::Reading { give_up_at, .. } = sweep.state else {
            return;
        };
        let MembersPage::Page { members, more, .. } = page else {
            if give_up_at <= now.monotonic {
                return self.fail(&name, Failure::Untried, out);
            }
            let until = now.after(self.pause).min(give_up_at);
            sweep.state = State::ReadingPaused { until, give_up_at };
            return;
        };
        let last = members.last().map(|(uid, _)| uid.clone());
        let next = match last.filter(|_| more && !self.faults.pages_skipped()) {
            Some(last) => Place::Members(Some(last)),
            None => Place::End,
        };
        let seq = sweep.seq;
        let had_it = |(uid, join_seq): &(Uid, Seq)| *join_seq <= seq && !self.audience.derived.contains(uid);
        let uids = members.into_iter().filter(had_it).map(|(uid, _)| uid).collect();
        let page = sweep.page(uids, next, now.after(self.patience));
        if page.unknown.is_empty() {
            sweep.place = page.next;
            return self.advance(now, &name, out);
        }
        self.look(&name, page, false, out);
    }

    fn found(&mut self, now: Now, token: Token, slots: Vec<(SlotId, Presence)>, out: &mut Vec<Output>) {
        let Some(name) = self.waits(token) else { return };
        let unknown_is_offline = self.faults.unknown_presence_is_offline();
        let Some(sweep) = self.sweeps.get_mut(&name) else {
            return;
        };
        let State::Looking { waiting, page, .. } = &mut sweep.state else {
            return;
        };
        for (slot, presence) in slots {
            if waiting.remove(&slot) {
                page.learn(slot, presence, unknown_is_offline);
            }
        }
        if !waiting.is_empty() {
            return;
        }
        let State::Looking { page, .. } = std::mem::replace(&mut sweep.state, State::Resting) else {
            return;
        };
        if page.unknown.is_empty() {
            self.decided(now, &name, page, out);
        } else if page.give_up_at <= now.monotonic {
            self.fail(&name, Failure::Untried, out);
        } else {
            let until = now.after(self.pause).min(page.give_up_at);
            sweep.state = State::LookingPaused { until, page };
        }
    }

    /// It is known of everybody of a page whether they are offline.
    fn decided(&mut self, now: Now, name: &Arc<str>, mut page: Page, out: &mut Vec<Output>) {
        page.offline.sort();
        if page.offline.is_empty() {
            if let Some(sweep) = self.sweeps.get_mut(name) {
                sweep.place = page.next;
            }
            return self.advance(now, name, out);
        }
        self.call(name, page.offline, page.next, out);
    }

    fn call(&mut self, name: &Arc<str>, uids: Vec<Uid>, next: Place, out: &mut Vec<Output>) {
        let token = self.issue();
        let Some(sweep) = self.sweeps.get_mut(name) else {
            return;
        };
        let Some(message) = sweep.message.clone() else {
            return;
        };
        out.push(Output::Call {
            token,
            attempt: sweep.attempt.clone(),
            message,
            uids: uids.clone(),
        });
        sweep.state = State::Calling { token, uids, next };
    }

    fn returned(&mut self, now: Now, token: Token, result: Result<usize, Failure>, out: &mut Vec<Output>) {
        let Some(name) = self.waits(token) else { return };
        let done = match result {
            Ok(done) => done,
            Err(failure) => return self.fail(&name, failure, out),
        };
        let Some(sweep) = self.sweeps.get_mut(&name) else {
            return;
        };
        let State::Calling { mut uids, next, .. } = std::mem::replace(&mut sweep.state, State::Resting)
        else {
            return;
        };
        let rest = uids.split_off(done.min(uids.len()));
        if rest.is_empty() {
            sweep.place = next;
            return self.advance(now, &name, out);
        }
        if let (Place::Derived(after) | Place::Members(after), Some(last)) = (&mut sweep.place, uids.pop()) {
            *after = Some(last);
        }
        self.call(&name, rest, next, out);
    }

    fn fail(&mut self, name: &Arc<str>, failure: Failure, out: &mut Vec<Output>) {
        let Some(sweep) = self.sweeps.get_mut(name) else {
            return;
        };
        let attempt = sweep.attempt.clone();
        (sweep.message, sweep.state) = (None, State::Resting);
        if attempt.single {
            self.sweeps.remove(name);
        }
        out.push(Output::Failed { attempt, failure });
    }
}
