//! All sessions of one shard.

use super::state::{Context, Session, Tokens};
use super::{Input, Offer, Offered, Output, Settings};
use crate::client::{ClientFrame, CloseReason};
use crate::types::{ConnectionId, DeviceFlag, Now, Route, Token, Uid};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Routes in one touch.
const TOUCH_BATCH: usize = 512;

/// All sessions of one shard: who asked what, who is due when, and whose frames are to be told to presence.
#[derive(Debug)]
pub struct Sessions {
    settings: Settings,
    sessions: BTreeMap<ConnectionId, Entry>,
    users: BTreeMap<Uid, BTreeSet<ConnectionId>>,
    deadlines: BTreeSet<(Duration, ConnectionId)>,
    tokens: Tokens,
    owner_seq: u64,
    touched: BTreeSet<ConnectionId>,
    touch_at: Option<Duration>,
}

#[derive(Debug)]
struct Entry {
    session: Box<Session>,
    /// Its place in `deadlines`.
    armed: Option<Duration>,
    /// Its place in `users`.
    user: Option<Uid>,
}

impl Sessions {
    /// No sessions yet.
    #[must_use]
    pub fn new(settings: Settings) -> Sessions {
        Sessions {
            settings,
            sessions: BTreeMap::new(),
            users: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            tokens: Tokens::default(),
            owner_seq: 0,
            touched: BTreeSet::new(),
            touch_at: None,
        }
    }

    /// Handles one input. Late answers to sessions that are gone are dropped.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Opened { connection } => {
                let entry = Entry {
                    session: Box::new(Session::new(connection)),
                    armed: None,
                    user: None,
                };
                self.sessions.entry(connection).or_insert(entry);
            }
            Input::Frame { connection, frame } => self.frame(now, connection, frame, out),
            Input::Closed { connection } => self.end(now, connection, None, out),
            Input::Authenticated { token, result } => self.answered(now, token, out, |session, context| {
                session.authenticated(token, result, context)
            }),
            Input::Entered { connection, result } => self.with(now, connection, out, |session, context| {
                session.entered(result, context)
            }),
            Input::Registered { token, result } => self.answered(now, token, out, |session, context| {
                session.registered(token, result, context)
            }),
            Input::SendDone { token, outcome } => self.answered(now, token, out, |session, context| {
                session.send_done(token, outcome, context)
            }),
            Input::SubscribeDone {
                token,
                reason,
                leader,
            } => self.answered(now, token, out, |session, context| {
                session.subscribe_done(token, (reason, leader), context);
                Ok(())
            }),
            Input::NodeLost { node } => {
                let connections: Vec<ConnectionId> = self.sessions.keys().copied().collect();
                for connection in connections {
                    self.with(now, connection, out, |session, context| {
                        session.node_lost(node, context);
                        Ok(())
                    });
                }
            }
            Input::Offer { token, offers } => {
                let outcomes = offers.iter().map(|offer| self.offer(now, offer, out)).collect();
                out.push(Output::Offered { token, outcomes });
            }
            Input::Kick { route } => self.kick(now, route, out),
            Input::Lapsed { route } => self.lapsed(now, route, out),
            Input::KickUser { uid, flag } => self.kick_user(now, &uid, flag, out),
            Input::Stop => {
                while let Some(connection) = self.sessions.keys().next().copied() {
                    self.end(now, connection, Some(CloseReason::ServerStop), out);
                }
            }
        }
    }

    /// When [`Sessions::expire`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        let first = self.deadlines.first().map(|(at, _)| *at);
        first.into_iter().chain(self.touch_at).min()
    }

    /// Does what is due: re-offers, refusals of overdue answers, renewals, the touch of presence.
    pub fn expire(&mut self, now: Now, out: &mut Vec<Output>) {
        while let Some((at, connection)) = self.deadlines.first().copied() {
            if at > now.monotonic {
                break;
            }
            self.with(now, connection, out, |session, context| session.expire(context));
        }
        if self.touch_at.is_some_and(|at| at <= now.monotonic) {
            self.touch(out);
        }
    }

    /// Connections of this shard, open or not.
    #[must_use]
    pub fn count(&self) -> usize {
        self.sessions.len()
    }

    /// Messages offered by this shard and not acknowledged.
    #[must_use]
    pub fn unacknowledged(&self) -> usize {
        let sessions = self.sessions.values();
        sessions.map(|entry| entry.session.unacknowledged()).sum()
    }

    #[cfg(test)]
    pub(super) fn open_questions(&self) -> usize {
        self.tokens.len()
    }

    fn frame(&mut self, now: Now, connection: ConnectionId, frame: ClientFrame, out: &mut Vec<Output>) {
        self.with(now, connection, out, |session, context| {
            session.frame(frame, context)
        });
        // Any frame is liveness, a PONG of the transport is none (PR-5).
        if self
            .sessions
            .get(&connection)
            .is_some_and(|entry| entry.session.is_open())
        {
            self.touched.insert(connection);
            self.touch_at
                .get_or_insert_with(|| now.after(self.settings.limits.touch_interval));
        }
    }

    fn answered(
        &mut self,
        now: Now,
        token: Token,
        out: &mut Vec<Output>,
        act: impl FnOnce(&mut Session, &mut Context<'_>) -> Result<(), CloseReason>,
    ) {
        if let Some(connection) = self.tokens.take(token) {
            self.with(now, connection, out, act);
        }
    }

    fn offer(&mut self, now: Now, offer: &Offer, out: &mut Vec<Output>) -> Offered {
        let mut outcome = Offered::Gone;
        let connection = offer.route.connection;
        self.with(now, connection, out, |session, context| {
            outcome = session.offer(offer, context)?;
            Ok(())
        });
        let ours = self
            .sessions
            .get(&connection)
            .and_then(|entry| entry.session.route());
        if outcome == Offered::Gone && ours != Some(&offer.route) {
            // Its authority believes in a session that is over: an earlier unregister was lost.
            out.push(Output::Unregister {
                route: offer.route.clone(),
            });
        }
        outcome
    }

    /// Whether the route is that of a session here, and not of an earlier one of its connection.
    fn is_ours(&self, route: &Route) -> bool {
        let entry = self.sessions.get(&route.connection);
        entry.and_then(|entry| entry.session.route()) == Some(route)
    }

    fn kick(&mut self, now: Now, route: Route, out: &mut Vec<Output>) {
        if self.is_ours(&route) {
            self.with(now, route.connection, out, |session, context| {
                Err(session.kick(context))
            });
        } else {
            out.push(Output::Unregister { route });
        }
    }

    fn lapsed(&mut self, now: Now, route: Route, out: &mut Vec<Output>) {
        if self.is_ours(&route) {
            self.end(now, route.connection, Some(CloseReason::DeliveryMissed), out);
        } else {
            out.push(Output::Unregister { route });
        }
    }

    fn kick_user(&mut self, now: Now, uid: &Uid, flag: Option<DeviceFlag>, out: &mut Vec<Output>) {
        let connections = self.users.get(uid).cloned().unwrap_or_default();
        for connection in connections {
            self.with(now, connection, out, |session, context| {
                if session.has_flag(flag) {
                    Err(session.kick(context))
                } else {
                    Ok(())
                }
            });
        }
    }

    /// Lets a session act, then ends it or notes when it is due next.
    fn with(
        &mut self,
        now: Now,
        connection: ConnectionId,
        out: &mut Vec<Output>,
        act: impl FnOnce(&mut Session, &mut Context<'_>) -> Result<(), CloseReason>,
    ) {
        let Some(entry) = self.sessions.get_mut(&connection) else {
            return;
        };
        let mut context = Context {
            now,
            settings: &self.settings,
            tokens: &mut self.tokens,
            owner_seq: &mut self.owner_seq,
            out,
        };
        if let Err(reason) = act(&mut entry.session, &mut context) {
            self.end(now, connection, Some(reason), out);
            return;
        }
        let due = entry.session.next_deadline();
        if due != entry.armed {
            if let Some(at) = entry.armed {
                self.deadlines.remove(&(at, connection));
            }
            self.deadlines.extend(due.map(|at| (at, connection)));
            entry.armed = due;
        }
        if entry.user.as_ref() != entry.session.user() {
            let before = std::mem::replace(&mut entry.user, entry.session.user().cloned());
            let after = entry.user.clone();
            self.list_user(connection, before.as_ref(), after);
        }
    }

    /// Lists a connection under its user, and no longer under another one.
    fn list_user(&mut self, connection: ConnectionId, before: Option<&Uid>, after: Option<Uid>) {
        if let Some(uid) = before
            && let Some(connections) = self.users.get_mut(uid)
        {
            connections.remove(&connection);
            if connections.is_empty() {
                self.users.remove(uid);
            }
        }
        if let Some(uid) = after {
            self.users.entry(uid).or_default().insert(connection);
        }
    }

    /// Forgets a session; `reason` is none when the client closed already.
    fn end(
        &mut self,
        now: Now,
        connection: ConnectionId,
        reason: Option<CloseReason>,
        out: &mut Vec<Output>,
    ) {
        let Some(entry) = self.sessions.remove(&connection) else {
            return;
        };
        if let Some(at) = entry.armed {
            self.deadlines.remove(&(at, connection));
        }
        self.list_user(connection, entry.user.as_ref(), None);
        self.touched.remove(&connection);
        if self.touched.is_empty() {
            self.touch_at = None;
        }
        let mut context = Context {
            now,
            settings: &self.settings,
            tokens: &mut self.tokens,
            owner_seq: &mut self.owner_seq,
            out,
        };
        entry.session.end(&mut context);
        if let Some(reason) = reason {
            out.push(Output::Close { connection, reason });
        }
    }

    fn touch(&mut self, out: &mut Vec<Output>) {
        self.touch_at = None;
        let touched = std::mem::take(&mut self.touched);
        let routes: Vec<Route> = touched
            .iter()
            .filter_map(|connection| self.sessions.get(connection))
            .filter_map(|entry| entry.session.route().cloned())
            .collect();
        for batch in routes.chunks(TOUCH_BATCH) {
            out.push(Output::Touch {
                routes: batch.to_vec(),
            });
        }
    }
}
