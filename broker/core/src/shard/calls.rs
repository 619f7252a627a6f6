//! Requests to machines that may live on another shard or node: bounded tries, newest hints, one answer (SL-4, SL-6).

use super::Shard;
use super::continuation::Then;
use super::peer::{Peer, Reply, Request, Target};
use super::turn::Turn;
use crate::effect::Effect;
use crate::slot::ProposeError;
use crate::types::{ChannelKey, NodeId, Now, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Wait before a request without a better hint is tried again; grows with the tries up to ten times this.
const BACKOFF: Duration = Duration::from_millis(20);
/// How long one try of an idempotent request is waited for before the next node is asked.
const TRY_TIMEOUT: Duration = Duration::from_millis(700);

/// A request that waits for its answer.
#[derive(Debug)]
pub(super) struct Call {
    request: Request,
    then: Then,
    deadline: Duration,
    /// When it ends if no node is asked just then: what was not asked, or was answered that nothing was done, did nothing.
    give_up: Duration,
    wake: Duration,
    tries: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Asked this node.
    Asked(NodeId),
    /// To be tried at `wake`.
    Backoff,
    /// Waits until the channel is resolved.
    Resolving,
}

/// All waiting requests of a shard.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pending: BTreeMap<Token, Call>,
    wakes: BTreeSet<(Duration, Token)>,
    resolving: BTreeMap<ChannelKey, Vec<Token>>,
}

impl Calls {
    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// When the next one needs attention.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.wakes.first().map(|(at, _)| *at)
    }

    fn insert(&mut self, token: Token, call: Call) {
        self.wakes.insert((call.wake, token));
        self.pending.insert(token, call);
    }

    fn take(&mut self, token: Token) -> Option<Call> {
        let call = self.pending.remove(&token)?;
        self.wakes.remove(&(call.wake, token));
        Some(call)
    }

    fn due(&mut self, now: Now) -> Option<(Token, Call)> {
        let (at, token) = self.wakes.first().copied()?;
        if at > now.monotonic {
            return None;
        }
        self.take(token).map(|call| (token, call))
    }
}

/// Whether a try may be repeated at another node without knowing what became of it.
fn is_repeatable(request: &Request) -> bool {
    match request {
        // An unanswered append may have been appended: its outcome is unknown (AP-8).
        Request::Append { .. } => false,
        // Neither is known what became of it.
        Request::ProposeOnce { .. } => false,
        // A plugin may take longer for it than a try.
        Request::Redeliver { .. } => false,
        Request::Propose { .. }
        | Request::Rows { .. }
        | Request::Page { .. }
        | Request::Resolve { .. }
        | Request::VoterChange { .. }
        | Request::History { .. }
        | Request::SendOutcome { .. }
        | Request::Subscribe { .. } => true,
    }
}

impl Shard {
    /// Sends a request; `then` gets its answer, or `None` when none came within the deadline.
    pub(super) fn call(&mut self, turn: &mut Turn<'_>, request: Request, then: Then) {
        self.call_until(turn, request, then, Duration::MAX);
    }

    /// The same, and after `give_up` nobody is asked any more who was not asked before.
    pub(super) fn call_until(
        &mut self,
        turn: &mut Turn<'_>,
        request: Request,
        then: Then,
        give_up: Duration,
    ) {
        let limits = &self.config.limits;
        let patience = if is_repeatable(&request) {
            limits.request_timeout
        } else {
            limits.append_timeout + Duration::from_secs(1)
        };
        let deadline = turn.now.after(patience);
        let token = self.next_token();
        let call = Call {
            request,
            then,
            deadline,
            give_up: give_up.min(deadline),
            wake: deadline,
            tries: 0,
            state: State::Backoff,
        };
        self.attempt(turn, token, call);
    }

    fn attempt(&mut self, turn: &mut Turn<'_>, token: Token, mut call: Call) {
        call.tries += 1;
        let node = match call.request.target() {
            Target::Group(group) => self.directory.group_node(group, call.tries),
            Target::Channel(channel) => {
                let channel = channel.clone();
                match self.directory.channel(&channel) {
                    Some(route) => {
                        stamp(&mut call.request, &route);
                        Some(route.node)
                    }
                    None => return self.wait_for_route(turn, token, call, channel),
                }
            }
        };
        let Some(node) = node else {
            return self.back_off(turn, token, call);
        };
        call.state = State::Asked(node);
        call.wake = if is_repeatable(&call.request) {
            call.deadline.min(turn.now.after(TRY_TIMEOUT))
        } else {
            call.deadline
        };
        let message = Peer::Request {
            reply_to: self.config.shard,
            token,
            request: call.request.clone(),
        };
        self.calls.insert(token, call);
        turn.out.push(Effect::Send { to: node, message });
    }

    fn wait_for_route(&mut self, turn: &mut Turn<'_>, token: Token, mut call: Call, channel: ChannelKey) {
        call.state = State::Resolving;
        call.wake = call.give_up;
        self.calls.insert(token, call);
        let waiting = self.calls.resolving.entry(channel.clone()).or_default();
        waiting.push(token);
        if waiting.len() == 1 {
            let group = self.directory.group_of(channel.slot());
            self.call(
                turn,
                Request::Resolve {
                    group,
                    channel: channel.clone(),
                },
                Then::Resolved { channel },
            );
        }
    }

    fn back_off(&mut self, turn: &mut Turn<'_>, token: Token, mut call: Call) {
        call.state = State::Backoff;
        call.wake = call.give_up.min(turn.now.after(BACKOFF * call.tries.min(10)));
        self.calls.insert(token, call);
    }

    /// A channel's leader is known now, or could not be found: its waiting requests go on or end. Where the slot group has too much
    /// to do for the question, a send is told so at once.
    pub(super) fn on_resolved(&mut self, turn: &mut Turn<'_>, channel: &ChannelKey, reply: Option<&Reply>) {
        let found = matches!(reply, Some(Reply::Resolved(_)));
        let busy = matches!(reply, Some(Reply::Busy));
        for token in self.calls.resolving.remove(channel).unwrap_or_default() {
            let Some(call) = self.calls.take(token) else {
                continue;
            };
            if found {
                self.attempt(turn, token, call);
            } else if busy && !is_repeatable(&call.request) {
                self.settle(turn, call.then, Some(Reply::Busy));
            } else {
                self.back_off(turn, token, call);
            }
        }
    }

    /// An answer came.
    pub(super) fn on_reply(&mut self, turn: &mut Turn<'_>, from: NodeId, token: Token, reply: Reply) {
        let Some(mut call) = self.calls.take(token) else {
            return;
        };
        if let Then::Subscribed { leader, .. } = &mut call.then {
            *leader = Some(from);
        }
        if !matches!(call.state, State::Asked(node) if node == from) && !is_repeatable(&call.request) {
            // A late answer of a node that is no longer asked still settles an append: it was asked once.
            return self.settle(turn, call.then, Some(reply));
        }
        match (&reply, call.request.target()) {
            (
                Reply::NotLeader { hint } | Reply::Proposed(Err(ProposeError::NotLeader { hint })),
                Target::Group(group),
            ) => {
                let better = hint.is_some_and(|hint| hint != from);
                self.directory.hint(group, from, *hint);
                if better && call.tries < 4 {
                    self.attempt(turn, token, call)
                } else {
                    self.back_off(turn, token, call)
                }
            }
            (Reply::NotLeader { .. } | Reply::Unavailable, Target::Channel(channel)) => {
                self.directory.forget_channel(channel);
                self.back_off(turn, token, call);
            }
            // A place for a subscription comes free as the channels before it are led.
            (Reply::Busy, Target::Channel(_)) if matches!(call.request, Request::Subscribe { .. }) => {
                self.back_off(turn, token, call);
            }
            (Reply::Unavailable | Reply::Proposed(Err(ProposeError::Full)), Target::Group(_)) => {
                self.back_off(turn, token, call);
            }
            (_, Target::Group(group)) => {
                self.directory.answered(group, from);
                self.settle(turn, call.then, Some(reply));
            }
            (_, Target::Channel(_)) => self.settle(turn, call.then, Some(reply)),
        }
    }

    /// Tries again what is due and ends what is over its deadline.
    pub(super) fn expire_calls(&mut self, turn: &mut Turn<'_>) {
        while let Some((token, call)) = self.calls.due(turn.now) {
            // Whoever did not answer is not asked first by the next request either.
            match (call.state, call.request.target()) {
                (State::Asked(node), Target::Group(group)) => self.directory.hint(group, node, None),
                (State::Asked(_), Target::Channel(channel)) => self.directory.forget_channel(channel),
                (State::Backoff | State::Resolving, _) => {}
            }
            let end = match call.state {
                State::Asked(_) => call.deadline,
                State::Backoff | State::Resolving => call.give_up,
            };
            if turn.now.monotonic < end {
                self.attempt(turn, token, call);
                continue;
            }
            // What was asked and not answered may have been done; what was never asked was not.
            let reply = match call.state {
                State::Asked(_) => None,
                State::Backoff | State::Resolving => Some(Reply::Unavailable),
            };
            self.settle(turn, call.then, reply);
        }
    }

    /// A node is dead or has restarted: what it was asked is not answered any more. Repeatable requests go elsewhere at
    /// once, the outcome of others is unknown at once.
    pub(super) fn calls_lost(&mut self, turn: &mut Turn<'_>, node: NodeId) {
        self.directory.forget_node(node);
        let lost: Vec<Token> = self
            .calls
            .pending
            .iter()
            .filter(|(_, call)| call.state == State::Asked(node))
            .map(|(&token, _)| token)
            .collect();
        for token in lost {
            let Some(mut call) = self.calls.take(token) else {
                continue;
            };
            if !is_repeatable(&call.request) {
                call.deadline = turn.now.monotonic;
            }
            call.wake = turn.now.monotonic;
            self.calls.insert(token, call);
        }
        self.expire_calls(turn);
    }
}

/// Writes the route's fence into a request to a channel leader (CH-4).
fn stamp(request: &mut Request, route: &super::directory::ChannelRoute) {
    match request {
        Request::Append {
            incarnation,
            leader_epoch,
            ..
        }
        | Request::History {
            incarnation,
            leader_epoch,
            ..
        }
        | Request::SendOutcome {
            incarnation,
            leader_epoch,
            ..
        }
        | Request::Redeliver {
            incarnation,
            leader_epoch,
            ..
        } => {
            *incarnation = route.incarnation;
            *leader_epoch = route.leader_epoch;
        }
        Request::Propose { .. }
        | Request::ProposeOnce { .. }
        | Request::Rows { .. }
        | Request::Page { .. }
        | Request::Resolve { .. }
        | Request::VoterChange { .. }
        | Request::Subscribe { .. } => {}
    }
}
