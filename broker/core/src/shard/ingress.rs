//! The way in of sends, reads and subscriptions: normalise, gather facts, decide, forward to the channel's leader.
//!
//! Sends of one session are decided in the order in which they came. Sends of one channel leave this shard in one row: a
//! batch is on its way at a time and the next one takes whatever has gathered meanwhile, so that the network cannot
//! reorder them and a busy channel is batched by itself (AP-3, AP-6).

use super::Shard;
use super::continuation::Then;
use super::peer::{HistoryRange, Request, RowKey};
use super::step::Step;
use super::turn::Turn;
use crate::admin::{Answer, Failure, HistoryQuery, PublishAsk, SendAsk};
use crate::client;
use crate::message::{Attributes, Draft, MessageFlags, Outcome};
use crate::permission::{self, Facts, Question};
use crate::plugins::uid_of;
use crate::rows::Row;
use crate::session;
use crate::types::{
    ChannelKey, ChannelKind, ConnectionId, Incarnation, LeaderEpoch, Now, Reason, Route, Seq, Token, Uid,
};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Who asked.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// A session of this shard.
    Session { token: Token, connection: ConnectionId },
    /// The HTTP API.
    Ask(Token),
}

/// What is asked.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    /// Send a message.
    Send(Box<Sending>),
    /// Receive while online.
    Subscribe {
        route: Route,
        channel_id: Arc<str>,
        kind: ChannelKind,
    },
    /// Read history.
    Read(HistoryQuery),
}

/// A send on its way in.
#[derive(Clone, Debug)]
pub(super) struct Sending {
    channel_id: Arc<str>,
    kind: ChannelKind,
    draft: Draft,
    /// Whether a plugin publishes it, whose grants were checked.
    by_plugin: bool,
    /// Until when it is worth sending. After that its client has been told that the outcome is unknown and sends again: an append
    /// much later could come when its idempotency key is forgotten (SL-6, AP-2).
    deadline: Duration,
}

/// A session's wish to subscribe.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) token: Token,
    pub(super) route: Route,
    pub(super) channel_id: Arc<str>,
    pub(super) kind: ChannelKind,
    pub(super) renewal: bool,
}

/// One thing on its way in.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) source: Source,
    pub(super) purpose: Purpose,
    pub(super) question: Question,
    pub(super) rows: Vec<(RowKey, Option<Option<Row>>)>,
    pub(super) asked: usize,
    /// Only the leaders' rows count: what this node's own replicas say would refuse.
    pub(super) certain: bool,
}

/// Everything on its way in at this shard.
#[derive(Debug, Default)]
pub(super) struct Ingress {
    pub(super) jobs: BTreeMap<Token, Job>,
    /// What sessions with a job under way asked meanwhile.
    sessions: BTreeMap<ConnectionId, VecDeque<(Source, Purpose)>>,
}

impl Purpose {
    /// A send that has waited behind what its session asked before for longer than it is worth.
    fn is_late(&self, now: Now) -> bool {
        matches!(self, Purpose::Send(sending) if sending.deadline <= now.monotonic)
    }

    /// A send of the HTTP API.
    pub(super) fn from_ask(send: SendAsk, deadline: Duration) -> Purpose {
        let draft = Draft {
            from_uid: send.from_uid,
            client_msg_no: send.client_msg_no,
            flags: send.flags,
            setting: send.setting,
            expire_s: send.expire_s,
            topic: send.topic,
            payload: send.payload,
            origin: None,
            subscribers: Arc::from(send.subscribers),
            attributes: None,
            hops: 0,
        };
        Purpose::Send(Box::new(Sending {
            channel_id: send.channel_id,
            kind: send.kind,
            draft,
            by_plugin: false,
            deadline,
        }))
    }

    /// What a plugin publishes.
    pub(super) fn from_plugin(publish: PublishAsk, deadline: Duration) -> Purpose {
        let draft = Draft {
            from_uid: uid_of(&publish.plugin),
            client_msg_no: publish.client_msg_no,
            flags: MessageFlags::default(),
            setting: 0,
            expire_s: publish.expire_s,
            topic: publish.topic,
            payload: publish.payload,
            origin: None,
            subscribers: Arc::from([]),
            attributes: None,
            hops: publish.hops,
        };
        Purpose::Send(Box::new(Sending {
            channel_id: publish.channel_id,
            kind: publish.kind,
            draft,
            by_plugin: true,
            deadline,
        }))
    }
}

impl Shard {
    /// A session sends.
    pub(super) fn submit_from_session(
        &mut self,
        turn: &mut Turn<'_>,
        token: Token,
        (route, attributes): (Route, Option<Attributes>),
        send: client::Send,
    ) {
        let Ok(payload) = send.payload else { return };
        let connection = route.connection;
        let draft = Draft {
            from_uid: route.uid,
            client_msg_no: send.client_msg_no,
            flags: MessageFlags {
                no_persist: send.no_persist,
                red_dot: send.red_dot,
                sync_once: send.sync_once,
            },
            setting: send.setting,
            expire_s: send.expire_s,
            topic: send.topic,
            payload,
            origin: Some((self.config.node, connection)),
            subscribers: Arc::from([]),
            attributes,
            hops: 0,
        };
        let sending = Sending {
            channel_id: send.channel_id,
            kind: send.kind,
            draft,
            by_plugin: false,
            deadline: self.send_deadline(turn),
        };
        self.ingress(
            turn,
            Source::Session { token, connection },
            Purpose::Send(Box::new(sending)),
        );
    }

    /// A session subscribes.
    pub(super) fn subscribe_session(&mut self, turn: &mut Turn<'_>, subscription: Subscription) {
        let Subscription {
            token,
            route,
            channel_id,
            kind,
            renewal,
        } = subscription;
        let connection = route.connection;
        if renewal && let Some(channel) = channel_for(&route.uid, &channel_id, kind) {
            // Permission was given; a lease is renewed at whoever leads now.
            self.call(
                turn,
                Request::Subscribe {
                    channel,
                    route,
                    subscribe: true,
                },
                Then::Subscribed { token, leader: None },
            );
            return;
        }
        self.ingress(
            turn,
            Source::Session { token, connection },
            Purpose::Subscribe {
                route,
                channel_id,
                kind,
            },
        );
    }

    /// A session leaves a channel.
    pub(super) fn unsubscribe_session(
        &mut self,
        turn: &mut Turn<'_>,
        route: Route,
        channel_id: &str,
        kind: ChannelKind,
    ) {
        if let Some(channel) = channel_for(&route.uid, channel_id, kind) {
            self.call(
                turn,
                Request::Subscribe {
                    channel,
                    route,
                    subscribe: false,
                },
                Then::Nothing,
            );
        }
    }

    /// Something comes in. What a session asked before comes first.
    pub(super) fn ingress(&mut self, turn: &mut Turn<'_>, source: Source, purpose: Purpose) {
        if let Source::Session { connection, .. } = source {
            match self.ingress.sessions.entry(connection) {
                Entry::Occupied(mut waiting) => return waiting.get_mut().push_back((source, purpose)),
                Entry::Vacant(idle) => idle.insert(VecDeque::new()),
            };
        }
        self.begin_job(turn, source, purpose);
    }

    /// Until when a send that comes in now is worth sending on.
    pub(super) fn send_deadline(&self, turn: &Turn<'_>) -> Duration {
        turn.now.after(self.config.limits.append_timeout)
    }

    /// Begins a job. What is refused at once is followed by what its session asked next, one after the other.
    fn begin_job(&mut self, turn: &mut Turn<'_>, source: Source, purpose: Purpose) {
        let mut next = Some((source, purpose));
        while let Some((source, purpose)) = next {
            match self.admitted(&purpose) {
                Ok(question) => return self.add_job(source, purpose, question),
                Err(reason) => {
                    let session = source.clone();
                    self.conclude(turn, source, purpose, None, Err(reason));
                    next = self.next_of_session(turn, &session);
                }
            }
        }
    }

    /// What has to be found out for this purpose, unless it is refused before anything is looked up: that must cost little.
    fn admitted(&mut self, purpose: &Purpose) -> Result<Question, Reason> {
        let question = self.question(purpose)?;
        if matches!(purpose, Purpose::Send(_)) && !self.may_open(&question) {
            return Err(Reason::RATE_LIMITED);
        }
        Ok(question)
    }

    fn add_job(&mut self, source: Source, purpose: Purpose, question: Question) {
        let rows: Vec<_> = super::facts::rows_of(&question)
            .into_iter()
            .map(|row| (row, None))
            .collect();
        let token = self.next_token();
        self.ingress.jobs.insert(
            token,
            Job {
                source,
                purpose,
                question,
                rows,
                asked: 0,
                certain: false,
            },
        );
        self.queue.push_back(Step::Facts { job: token });
    }

    fn question(&self, purpose: &Purpose) -> Result<Question, Reason> {
        let allowlist = self.config.person_allowlist_required;
        match purpose {
            Purpose::Send(sending) => {
                let limit = self.config.limits.payload_bytes_max;
                if sending.draft.payload.len() > limit {
                    return Err(Reason::PAYLOAD_DECODE);
                }
                if sending.by_plugin {
                    return Question::publish(&sending.draft.from_uid, &sending.channel_id, sending.kind);
                }
                Question::send(
                    &sending.draft.from_uid,
                    &sending.channel_id,
                    sending.kind,
                    &sending.draft.flags,
                    &sending.draft.subscribers,
                    allowlist,
                )
            }
            Purpose::Subscribe {
                route,
                channel_id,
                kind,
            } => Question::subscribe(&route.uid, channel_id, *kind),
            Purpose::Read(query) => Question::read(&query.login_uid, &query.channel_id, query.kind),
        }
    }

    /// Permission is decided: forward, or refuse.
    pub(super) fn finish(
        &mut self,
        turn: &mut Turn<'_>,
        source: Source,
        purpose: Purpose,
        question: Option<Question>,
        verdict: Result<Facts, Reason>,
    ) {
        let session = source.clone();
        self.conclude(turn, source, purpose, question, verdict);
        if let Some((source, purpose)) = self.next_of_session(turn, &session) {
            self.begin_job(turn, source, purpose);
        }
    }

    fn conclude(
        &mut self,
        turn: &mut Turn<'_>,
        source: Source,
        purpose: Purpose,
        question: Option<Question>,
        verdict: Result<Facts, Reason>,
    ) {
        match (purpose, question, verdict) {
            (Purpose::Send(sending), Some(question), Ok(_)) => {
                let channel = question.log_channel().clone();
                self.forward(turn, channel, source, (sending.draft, sending.deadline));
            }
            (Purpose::Send(_), question, Err(reason)) => {
                if let Some(question) = question {
                    self.opening.sent(question.log_channel());
                }
                self.sent(turn, source, Outcome::Refused(reason));
            }
            (Purpose::Subscribe { route, .. }, Some(question), Ok(_)) => {
                if let Source::Session { token, .. } = source {
                    let channel = question.log_channel().clone();
                    self.call(
                        turn,
                        Request::Subscribe {
                            channel,
                            route,
                            subscribe: true,
                        },
                        Then::Subscribed { token, leader: None },
                    );
                }
            }
            (Purpose::Subscribe { .. }, _, Err(reason)) => {
                if let Source::Session { token, .. } = source {
                    self.subscribed(token, reason, None);
                }
            }
            (Purpose::Read(query), Some(question), Ok(facts)) => {
                self.read_history(
                    turn,
                    &source,
                    &query,
                    question.log_channel().clone(),
                    facts.visible_from(),
                );
            }
            (Purpose::Read(_), _, Err(reason)) => {
                if let Source::Ask(ask) = source {
                    self.asks.remove(ask);
                    super::asks::answer(turn, ask, Answer::Failed(Failure::Refused(reason)));
                }
            }
            (_, None, Ok(_)) => {}
        }
    }

    fn next_of_session(&mut self, turn: &mut Turn<'_>, source: &Source) -> Option<(Source, Purpose)> {
        let Source::Session { connection, .. } = source else {
            return None;
        };
        let waiting = self.ingress.sessions.get_mut(connection)?;
        let mut late = Vec::new();
        while waiting
            .front()
            .is_some_and(|(_, purpose)| purpose.is_late(turn.now))
        {
            late.extend(waiting.pop_front().map(|(source, _)| source));
        }
        let next = waiting.pop_front();
        if next.is_none() {
            self.ingress.sessions.remove(connection);
        }
        for source in late {
            self.sent(turn, source, Outcome::Refused(Reason::RATE_LIMITED));
        }
        next
    }

    fn read_history(
        &mut self,
        turn: &mut Turn<'_>,
        source: &Source,
        query: &HistoryQuery,
        channel: ChannelKey,
        visible_from: Seq,
    ) {
        let Source::Ask(ask) = *source else { return };
        let range = HistoryRange {
            start: query.start,
            end: query.end,
            limit: query.limit,
            newer: query.newer,
            visible_from,
        };
        let (incarnation, leader_epoch) = (Incarnation(0), LeaderEpoch(0));
        let request = Request::History {
            channel,
            incarnation,
            leader_epoch,
            query: range,
        };
        self.call(turn, request, Then::Ask { ask });
    }

    /// What became of one send.
    pub(super) fn sent(&mut self, turn: &mut Turn<'_>, source: Source, outcome: Outcome) {
        match outcome {
            Outcome::Committed { .. } => self.counters.sends_committed += 1,
            Outcome::Refused(_) | Outcome::Rejected { .. } => self.counters.sends_refused += 1,
            Outcome::Unknown => self.counters.sends_unknown += 1,
        }
        match source {
            Source::Session { token, .. } => {
                self.queue
                    .push_back(Step::Sessions(session::Input::SendDone { token, outcome }));
            }
            Source::Ask(ask) => self.on_ask_sent(turn, ask, outcome),
        }
    }
}

/// The log that a reader or sender means by a channel id.
pub(super) fn channel_for(uid: &Uid, id: &str, kind: ChannelKind) -> Option<ChannelKey> {
    permission::normalise(uid, id, kind).ok()
}
