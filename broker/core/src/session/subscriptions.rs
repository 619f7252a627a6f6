//! Ephemeral subscriptions of one session (PC-6). They are leases at the channel's leader: the session renews them, which
//! asks the permission again, and they end with it.

use super::Output;
use super::state::Context;
use crate::client::{ServerFrame, Subscribe};
use crate::types::{ChannelKind, ConnectionId, NodeId, Reason, Route, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

type Named = (Arc<str>, ChannelKind);

#[derive(Debug)]
struct Pending {
    sub_no: Arc<str>,
    named: Named,
    renewal: bool,
    /// The client left before the answer came.
    cancelled: bool,
    deadline: Duration,
}

/// Granted and asked-for subscriptions, together at most `session_subscriptions_max`.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    /// With the node that led the channel when it was granted or renewed last.
    held: BTreeMap<Named, Option<NodeId>>,
    pending: BTreeMap<Token, Pending>,
    renew_at: Option<Duration>,
}

impl Subscriptions {
    /// SUB with action subscribe: asks the permission.
    pub(super) fn subscribe(&mut self, frame: Subscribe, route: &Route, context: &mut Context<'_>) {
        let named = (frame.channel_id, frame.kind);
        let count = self.held.len() + self.pending.len();
        if count >= context.settings.limits.session_subscriptions_max {
            answer(
                frame.sub_no,
                named,
                true,
                Reason::RATE_LIMITED,
                (route.connection, context),
            );
        } else if named.0.is_empty() {
            answer(
                frame.sub_no,
                named,
                true,
                Reason::CHANNEL_ID,
                (route.connection, context),
            );
        } else {
            self.ask(frame.sub_no, named, false, route, context);
        }
    }

    /// SUB with action unsubscribe: always succeeds.
    pub(super) fn unsubscribe(&mut self, frame: Subscribe, route: &Route, context: &mut Context<'_>) {
        let named = (frame.channel_id, frame.kind);
        let mut known = self.held.remove(&named).is_some();
        for pending in self.pending.values_mut().filter(|pending| pending.named == named) {
            pending.cancelled = true;
            known = true;
        }
        if known {
            leave(&named, route, context);
        }
        answer(
            frame.sub_no,
            named,
            false,
            Reason::SUCCESS,
            (route.connection, context),
        );
    }

    /// The permission was asked, and the leader told.
    pub(super) fn done(
        &mut self,
        token: Token,
        (reason, leader): (Reason, Option<NodeId>),
        route: &Route,
        context: &mut Context<'_>,
    ) {
        let Some(pending) = self.pending.remove(&token) else {
            return;
        };
        if reason.is_success() {
            if pending.cancelled {
                // The grant may have reached the leader after the leave did.
                leave(&pending.named, route, context);
            } else {
                self.held.insert(pending.named.clone(), leader);
                let renewal = context.settings.limits.touch_interval;
                self.renew_at.get_or_insert_with(|| context.now.after(renewal));
            }
        }
        let ends = pending.renewal && !retryable(reason) && self.held.remove(&pending.named).is_some();
        if ends {
            leave(&pending.named, route, context);
        }
        if ends || !pending.renewal {
            answer(
                pending.sub_no,
                pending.named,
                true,
                reason,
                (route.connection, context),
            );
        }
    }

    /// A node is dead: what it led is led elsewhere from now on, where nobody knows of these subscriptions.
    pub(super) fn node_lost(&mut self, node: NodeId, context: &Context<'_>) {
        if self.held.values().any(|leader| *leader == Some(node)) {
            self.renew_at = Some(context.now.monotonic);
        }
    }

    /// The next renewal or overdue answer.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        let pending = self.pending.values().map(|pending| pending.deadline);
        pending.chain(self.renew_at).min()
    }

    /// Refuses what got no answer, and renews the leases.
    pub(super) fn expire(&mut self, route: &Route, context: &mut Context<'_>) {
        let overdue: Vec<Token> = self
            .pending
            .iter()
            .filter(|(_, pending)| pending.deadline <= context.now.monotonic)
            .map(|(token, _)| *token)
            .collect();
        for token in overdue {
            context.tokens.forget(token);
            if let Some(pending) = self.pending.get(&token)
                && !pending.renewal
            {
                leave(&pending.named, route, context);
            }
            self.done(token, (Reason::SYSTEM_ERROR, None), route, context);
        }
        if self.renew_at.is_some_and(|at| at <= context.now.monotonic) {
            let renewal = context.settings.limits.touch_interval;
            self.renew_at = (!self.held.is_empty()).then(|| context.now.after(renewal));
            for named in self.held.keys().cloned().collect::<Vec<_>>() {
                self.ask(Arc::from(""), named, true, route, context);
            }
        }
    }

    /// The session ends: so do its subscriptions.
    pub(super) fn end(&self, route: &Route, context: &mut Context<'_>) {
        let asked = self.pending.values().map(|pending| &pending.named);
        for named in self.held.keys().chain(asked).collect::<BTreeSet<_>>() {
            leave(named, route, context);
        }
    }

    /// The tokens that will still be answered.
    pub(super) fn tokens(&self) -> impl Iterator<Item = Token> {
        self.pending.keys().copied()
    }

    fn ask(
        &mut self,
        sub_no: Arc<str>,
        named: Named,
        renewal: bool,
        route: &Route,
        context: &mut Context<'_>,
    ) {
        let token = context.tokens.issue(route.connection);
        context.out.push(Output::Subscribe {
            token,
            route: route.clone(),
            channel_id: Arc::clone(&named.0),
            kind: named.1,
            renewal,
        });
        let pending = Pending {
            sub_no,
            named,
            renewal,
            cancelled: false,
            deadline: context.now.after(context.settings.limits.request_timeout),
        };
        self.pending.insert(token, pending);
    }
}

/// Whether a refused renewal is asked again at the next one instead of ending the subscription (SF-4).
fn retryable(reason: Reason) -> bool {
    reason.is_success()
        || [Reason::SYSTEM_ERROR, Reason::NODE_NOT_MATCH, Reason::RATE_LIMITED].contains(&reason)
}

fn leave(named: &Named, route: &Route, context: &mut Context<'_>) {
    context.out.push(Output::Unsubscribe {
        route: route.clone(),
        channel_id: Arc::clone(&named.0),
        kind: named.1,
    });
}

fn answer(
    sub_no: Arc<str>,
    named: Named,
    subscribe: bool,
    reason: Reason,
    (connection, context): (ConnectionId, &mut Context<'_>),
) {
    let frame = ServerFrame::SubAck {
        sub_no,
        channel_id: named.0,
        kind: named.1,
        subscribe,
        reason,
    };
    context.out.push(Output::Frame { connection, frame });
}
