//! SENDs in flight of one session, answered in their order per channel.

use super::Output;
use super::state::Context;
use crate::client::{CloseReason, Protocol, Send, ServerFrame};
use crate::message::{Attributes, Outcome};
use crate::types::{ChannelKind, ConnectionId, MessageId, Reason, Route, Seq, Token};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// A channel as the client names it. Two spellings of one person channel are two queues here, which costs nothing: the
/// authority orders the messages themselves.
type Named = (Arc<str>, ChannelKind);

/// A SEND without its SENDACK.
#[derive(Debug)]
struct Waiting {
    token: Option<Token>,
    client_seq: u64,
    client_msg_no: Arc<str>,
    outcome: Option<Outcome>,
}

/// The SENDs of one session that have no SENDACK yet, at most `session_sends_max`.
#[derive(Debug, Default)]
pub(super) struct Sends {
    channels: BTreeMap<Named, VecDeque<Waiting>>,
    unanswered: BTreeMap<Token, Named>,
    deadlines: VecDeque<(Duration, Token)>,
    count: usize,
}

impl Sends {
    /// Takes a SEND: submits it, or queues its refusal behind what its channel still waits for.
    pub(super) fn accept(
        &mut self,
        send: Send,
        (route, attributes): (&Route, Option<&Attributes>),
        protocol: Protocol,
        context: &mut Context<'_>,
    ) -> Result<(), CloseReason> {
        if self.count >= context.settings.limits.session_sends_max {
            // Out of order on purpose: a place in the queue is what there is none of.
            let waiting = Waiting::of(&send, None, None);
            return waiting.answer(
                Outcome::Refused(Reason::RATE_LIMITED),
                route.connection,
                protocol,
                context,
            );
        }
        let named = (Arc::clone(&send.channel_id), send.kind);
        let refusal = refusal(&send, context.settings.limits.payload_bytes_max);
        let token = refusal.is_none().then(|| context.tokens.issue(route.connection));
        let waiting = Waiting::of(&send, token, refusal.map(Outcome::Refused));
        self.channels.entry(named.clone()).or_default().push_back(waiting);
        self.count += 1;
        let Some(token) = token else {
            return self.flush(&named, route.connection, protocol, context);
        };
        let limits = &context.settings.limits;
        // The authority answers within `append_timeout`; the rest is the way there and back.
        let deadline = context.now.after(limits.append_timeout + limits.request_timeout);
        self.deadlines.push_back((deadline, token));
        self.unanswered.insert(token, named);
        context.out.push(Output::Submit {
            token,
            route: route.clone(),
            send,
            attributes: attributes.cloned(),
        });
        Ok(())
    }

    /// A submitted SEND has its outcome: it and those behind it that waited only for it are answered.
    pub(super) fn done(
        &mut self,
        token: Token,
        outcome: Outcome,
        connection: ConnectionId,
        protocol: Protocol,
        context: &mut Context<'_>,
    ) -> Result<(), CloseReason> {
        let Some(named) = self.unanswered.remove(&token) else {
            return Ok(());
        };
        while self
            .deadlines
            .front()
            .is_some_and(|(_, token)| !self.unanswered.contains_key(token))
        {
            self.deadlines.pop_front();
        }
        let queue = self.channels.get_mut(&named).into_iter().flatten();
        for waiting in queue.filter(|waiting| waiting.token == Some(token)) {
            waiting.outcome = Some(outcome.clone());
        }
        self.flush(&named, connection, protocol, context)
    }

    /// When the oldest unanswered SEND is given up.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.deadlines.front().map(|(deadline, _)| *deadline)
    }

    /// SENDs whose answer is overdue become unknown: perhaps they were appended (AP-8).
    pub(super) fn expire(
        &mut self,
        connection: ConnectionId,
        protocol: Protocol,
        context: &mut Context<'_>,
    ) -> Result<(), CloseReason> {
        while let Some((deadline, token)) = self.deadlines.front().copied() {
            if deadline > context.now.monotonic {
                break;
            }
            self.deadlines.pop_front();
            context.tokens.forget(token);
            self.done(token, Outcome::Unknown, connection, protocol, context)?;
        }
        Ok(())
    }

    /// The tokens that will still be answered.
    pub(super) fn tokens(&self) -> impl Iterator<Item = Token> {
        self.unanswered.keys().copied()
    }

    fn flush(
        &mut self,
        named: &Named,
        connection: ConnectionId,
        protocol: Protocol,
        context: &mut Context<'_>,
    ) -> Result<(), CloseReason> {
        let Some(queue) = self.channels.get_mut(named) else {
            return Ok(());
        };
        while let Some(outcome) = queue.front().and_then(|waiting| waiting.outcome.clone()) {
            if let Some(waiting) = queue.pop_front() {
                self.count -= 1;
                waiting.answer(outcome, connection, protocol, context)?;
            }
        }
        if queue.is_empty() {
            self.channels.remove(named);
        }
        Ok(())
    }
}

impl Waiting {
    fn of(send: &Send, token: Option<Token>, outcome: Option<Outcome>) -> Waiting {
        Waiting {
            token,
            client_seq: send.client_seq,
            client_msg_no: Arc::clone(&send.client_msg_no),
            outcome,
        }
    }

    fn answer(
        self,
        outcome: Outcome,
        connection: ConnectionId,
        protocol: Protocol,
        context: &mut Context<'_>,
    ) -> Result<(), CloseReason> {
        let (id, seq, reason, text) = match outcome {
            Outcome::Committed { id, seq, .. } => (id, seq, Reason::SUCCESS, None),
            Outcome::Refused(reason) => (MessageId(0), Seq(0), reason, None),
            Outcome::Rejected { reason, text } => (MessageId(0), Seq(0), reason, Some(text)),
            // The SDK drops a message on any SENDACK and resends it only on a new connection.
            Outcome::Unknown if protocol == Protocol::WkProto => return Err(CloseReason::OutcomeUnknown),
            Outcome::Unknown => {
                let frame = ServerFrame::OutcomeUnknown {
                    client_seq: self.client_seq,
                    client_msg_no: self.client_msg_no,
                };
                context.out.push(Output::Frame { connection, frame });
                return Ok(());
            }
        };
        let frame = ServerFrame::SendAck {
            client_seq: self.client_seq,
            client_msg_no: self.client_msg_no,
            id,
            seq,
            reason,
            text,
        };
        context.out.push(Output::Frame { connection, frame });
        Ok(())
    }
}

/// Why a SEND is refused before it goes anywhere.
fn refusal(send: &Send, payload_bytes_max: usize) -> Option<Reason> {
    match &send.payload {
        Err(reason) => Some(*reason),
        Ok(payload) if payload.len() > payload_bytes_max => Some(Reason::PAYLOAD_DECODE),
        Ok(_) if send.channel_id.is_empty() => Some(Reason::CHANNEL_ID),
        Ok(_) => None,
    }
}
