//! One client connection.

use super::offers::Offers;
use super::phase::{Hello, Phase};
use super::sends::Sends;
use super::subscriptions::Subscriptions;
use super::{Offer, Offered, Output, Settings};
use crate::client::{ClientFrame, CloseReason, Connect, Protocol, ServerFrame, Subscribe};
use crate::entrance::Admitted;
use crate::message::{Outcome, Refusal};
use crate::types::{
    ConnectionId, DeviceFlag, DeviceLevel, MessageId, NodeId, Now, Reason, Route, Seq, Token, Uid,
};
use penstock_wire::channel_id::{SYSTEM_DEVICE_ID, check_uid};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What a session needs of its surroundings while it handles something.
pub(super) struct Context<'a> {
    pub(super) now: Now,
    pub(super) settings: &'a Settings,
    pub(super) tokens: &'a mut Tokens,
    /// The last number given to a registered session.
    pub(super) owner_seq: &'a mut u64,
    pub(super) out: &'a mut Vec<Output>,
}

/// Open questions of all sessions of a shard.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    last: u64,
    asked_by: BTreeMap<Token, ConnectionId>,
}

impl Tokens {
    pub(super) fn issue(&mut self, connection: ConnectionId) -> Token {
        self.last += 1;
        let token = Token(self.last);
        self.asked_by.insert(token, connection);
        token
    }

    /// Who asked; every question is answered once.
    pub(super) fn take(&mut self, token: Token) -> Option<ConnectionId> {
        self.asked_by.remove(&token)
    }

    pub(super) fn forget(&mut self, token: Token) {
        self.asked_by.remove(&token);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.asked_by.len()
    }
}

/// One client connection. `Err` ends it: the collection forgets and closes it.
#[derive(Debug)]
pub(super) struct Session {
    connection: ConnectionId,
    protocol: Protocol,
    phase: Phase,
    sends: Sends,
    offers: Offers,
    subscriptions: Subscriptions,
}

impl Session {
    pub(super) fn new(connection: ConnectionId) -> Session {
        Session {
            connection,
            protocol: Protocol::WkProto,
            phase: Phase::AwaitingConnect,
            sends: Sends::default(),
            offers: Offers::default(),
            subscriptions: Subscriptions::default(),
        }
    }

    /// The route, from the moment it may be known to the presence authority.
    pub(super) fn route(&self) -> Option<&Route> {
        match &self.phase {
            Phase::Activating { route, .. } | Phase::Open { route, .. } => Some(route),
            Phase::AwaitingConnect | Phase::Authenticating { .. } | Phase::Entering { .. } => None,
        }
    }

    /// Whose it is, as far as that is proved: from here on it ends with its user's token.
    pub(super) fn user(&self) -> Option<&Uid> {
        match &self.phase {
            Phase::Entering { hello, .. } => Some(&hello.uid),
            _ => self.route().map(|route| &route.uid),
        }
    }

    /// Whether it is of a device with this flag, or of any.
    pub(super) fn has_flag(&self, flag: Option<DeviceFlag>) -> bool {
        let own = match &self.phase {
            Phase::Entering { hello, .. } => Some(hello.flag),
            _ => self.route().map(|route| route.flag),
        };
        own.is_some_and(|own| flag.is_none_or(|flag| flag == own))
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open { .. })
    }

    pub(super) fn unacknowledged(&self) -> usize {
        self.offers.count()
    }

    pub(super) fn frame(&mut self, frame: ClientFrame, context: &mut Context<'_>) -> Result<(), CloseReason> {
        match (&self.phase, frame) {
            (_, ClientFrame::Disconnect { .. }) => Err(CloseReason::PeerClosed),
            (Phase::AwaitingConnect, ClientFrame::Connect(connect)) => self.connect(connect, context),
            (Phase::Open { route, attributes }, ClientFrame::Send(send)) => {
                self.sends
                    .accept(send, (route, attributes.as_ref()), self.protocol, context)
            }
            (Phase::Open { .. }, ClientFrame::RecvAck { id, seq }) => {
                self.acknowledge(id, seq);
                Ok(())
            }
            (Phase::Open { .. }, ClientFrame::Ping) => {
                self.write(ServerFrame::Pong, context);
                Ok(())
            }
            (Phase::Open { route, .. }, ClientFrame::Subscribe(frame)) => {
                let route = route.clone();
                self.change_subscription(frame, &route, context);
                Ok(())
            }
            // A frame before CONNACK, or a second CONNECT.
            _ => Err(CloseReason::PolicyViolation),
        }
    }

    pub(super) fn authenticated(
        &mut self,
        token: Token,
        result: Result<DeviceLevel, Reason>,
        context: &mut Context<'_>,
    ) -> Result<(), CloseReason> {
        match std::mem::replace(&mut self.phase, Phase::AwaitingConnect) {
            Phase::Authenticating {
                token: asked,
                hello,
                deadline,
            } if asked == token => match result {
                Ok(level) => {
                    self.enter((hello, deadline), level, context);
                    Ok(())
                }
                Err(reason) => self.refuse(reason, CloseReason::AuthFailed, context),
            },
            other => {
                self.phase = other;
                Ok(())
            }
        }
    }

    /// The gates have decided.
    pub(super) fn entered(
        &mut self,
        result: Result<Admitted, Refusal>,
        context: &mut Context<'_>,
    ) -> Result<(), CloseReason> {
        match std::mem::replace(&mut self.phase, Phase::AwaitingConnect) {
            Phase::Entering { hello, .. } => match result {
                Ok(admitted) => {
                    self.activate(hello, admitted, context);
                    Ok(())
                }
                Err(why) => {
                    self.write_refusal(why, context);
                    Err(CloseReason::AuthFailed)
                }
            },
            other => {
                self.phase = other;
                Ok(())
            }
        }
    }

    pub(super) fn registered(
        &mut self,
        token: Token,
        result: Result<(), Reason>,
        context: &mut Context<'_>,
    ) -> Result<(), CloseReason> {
        let Phase::Activating {
            token: asked,
            route,
            attributes,
            time_difference_ms,
            ..
        } = &self.phase
        else {
            return Ok(());
        };
        if *asked != token {
            return Ok(());
        }
        if let Err(reason) = result {
            return self.refuse(reason, CloseReason::ActivationFailed, context);
        }
        let frame = ServerFrame::Connack {
            reason: Reason::SUCCESS,
            text: None,
            time_difference_ms: *time_difference_ms,
            node: u64::from(context.settings.node.0),
        };
        self.phase = Phase::Open {
            route: route.clone(),
            attributes: attributes.clone(),
        };
        self.write(frame, context);
        Ok(())
    }

    pub(super) fn send_done(
        &mut self,
        token: Token,
        outcome: Outcome,
        context: &mut Context<'_>,
    ) -> Result<(), CloseReason> {
        self.sends
            .done(token, outcome, self.connection, self.protocol, context)
    }

    pub(super) fn subscribe_done(
        &mut self,
        token: Token,
        result: (Reason, Option<NodeId>),
        context: &mut Context<'_>,
    ) {
        if let Phase::Open { route, .. } = &self.phase {
            self.subscriptions.done(token, result, route, context);
        }
    }

    pub(super) fn node_lost(&mut self, node: NodeId, context: &Context<'_>) {
        self.subscriptions.node_lost(node, context);
    }

    /// Offers to this session if it is the one that is meant (PC-3).
    pub(super) fn offer(&mut self, offer: &Offer, context: &mut Context<'_>) -> Result<Offered, CloseReason> {
        if self.route() != Some(&offer.route) {
            return Ok(Offered::Gone);
        }
        if !self.is_open() {
            return Ok(Offered::NotYet);
        }
        if offer.missed {
            return Err(CloseReason::DeliveryMissed);
        }
        self.offers.offer(offer, self.connection, context)
    }

    /// Says goodbye, so that the SDK does not reconnect and evict its successor.
    pub(super) fn kick(&self, context: &mut Context<'_>) -> CloseReason {
        if self.is_open() {
            let frame = ServerFrame::Disconnect {
                reason: Reason::KICKED,
                text: "kicked",
            };
            self.write(frame, context);
        } else if !matches!(self.phase, Phase::AwaitingConnect) {
            self.write_refusal(Reason::KICKED.into(), context);
        }
        CloseReason::Kicked
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        match &self.phase {
            Phase::AwaitingConnect => None,
            Phase::Authenticating { deadline, .. }
            | Phase::Entering { deadline, .. }
            | Phase::Activating { deadline, .. } => Some(*deadline),
            Phase::Open { .. } => [
                self.sends.next_deadline(),
                self.offers.next_deadline(),
                self.subscriptions.next_deadline(),
            ]
            .into_iter()
            .flatten()
            .min(),
        }
    }

    pub(super) fn expire(&mut self, context: &mut Context<'_>) -> Result<(), CloseReason> {
        let overdue = |deadline: Duration| deadline <= context.now.monotonic;
        match &self.phase {
            Phase::Authenticating { deadline, .. } | Phase::Entering { deadline, .. }
                if overdue(*deadline) =>
            {
                self.refuse(Reason::SYSTEM_ERROR, CloseReason::AuthFailed, context)
            }
            Phase::Activating { deadline, .. } if overdue(*deadline) => {
                self.refuse(Reason::SYSTEM_ERROR, CloseReason::ActivationFailed, context)
            }
            Phase::Open { route, .. } => {
                self.sends.expire(self.connection, self.protocol, context)?;
                self.offers.expire(self.connection, context)?;
                self.subscriptions.expire(route, context);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Takes back what others hold of this session.
    pub(super) fn end(self, context: &mut Context<'_>) {
        for token in self.sends.tokens().chain(self.subscriptions.tokens()) {
            context.tokens.forget(token);
        }
        match self.phase {
            Phase::AwaitingConnect => {}
            Phase::Authenticating { token, .. } => context.tokens.forget(token),
            Phase::Entering { .. } => context.out.push(Output::Left {
                connection: self.connection,
            }),
            Phase::Activating { token, route, .. } => {
                context.tokens.forget(token);
                context.out.push(Output::Unregister { route });
            }
            Phase::Open { route, .. } => {
                self.subscriptions.end(&route, context);
                context.out.push(Output::Unregister { route });
            }
        }
    }

    fn connect(&mut self, connect: Connect, context: &mut Context<'_>) -> Result<(), CloseReason> {
        self.protocol = connect.protocol;
        if check_uid(&connect.uid).is_err() {
            return self.refuse(Reason::AUTH_FAIL, CloseReason::AuthFailed, context);
        }
        // The system device may bypass permissions: nobody gets it by saying so.
        let device_id = if &*connect.device_id == SYSTEM_DEVICE_ID {
            Arc::from("")
        } else {
            connect.device_id
        };
        let wall_ms = i64::try_from(context.now.wall_ms).unwrap_or(i64::MAX);
        let hello = Hello {
            uid: Uid(connect.uid),
            device_id,
            flag: connect.device_flag,
            address: connect.address,
            secret: connect.token,
            time_difference_ms: wall_ms.saturating_sub(connect.client_timestamp_ms),
        };
        let deadline = context.now.after(context.settings.limits.request_timeout);
        if context.settings.any_token {
            self.enter((hello, deadline), DeviceLevel::Slave, context);
            return Ok(());
        }
        let token = context.tokens.issue(self.connection);
        context.out.push(Output::Authenticate {
            token,
            uid: hello.uid.clone(),
            flag: hello.flag,
            secret: hello.secret.clone(),
        });
        self.phase = Phase::Authenticating {
            token,
            deadline,
            hello,
        };
        Ok(())
    }

    /// Asks the gates. What is left of the time for the token check is their time too.
    fn enter(&mut self, (hello, deadline): (Hello, Duration), level: DeviceLevel, context: &mut Context<'_>) {
        context.out.push(Output::Enter {
            connection: self.connection,
            request: hello.request(),
            level,
        });
        self.phase = Phase::Entering { deadline, hello };
    }

    fn activate(&mut self, hello: Hello, admitted: Admitted, context: &mut Context<'_>) {
        *context.owner_seq += 1;
        let route = Route {
            uid: admitted.uid,
            device_id: hello.device_id,
            flag: hello.flag,
            level: admitted.level,
            node: context.settings.node,
            boot: context.settings.boot,
            connection: self.connection,
            owner_seq: *context.owner_seq,
        };
        let token = context.tokens.issue(self.connection);
        context.out.push(Output::Register {
            token,
            route: route.clone(),
        });
        self.phase = Phase::Activating {
            token,
            deadline: context.now.after(context.settings.limits.activation_timeout),
            route,
            attributes: admitted.attributes,
            time_difference_ms: hello.time_difference_ms,
        };
    }

    fn acknowledge(&mut self, id: MessageId, seq: Seq) {
        self.offers.acknowledge(id, seq);
    }

    fn change_subscription(&mut self, frame: Subscribe, route: &Route, context: &mut Context<'_>) {
        if frame.subscribe {
            self.subscriptions.subscribe(frame, route, context);
        } else {
            self.subscriptions.unsubscribe(frame, route, context);
        }
    }

    fn refuse(
        &self,
        reason: Reason,
        close: CloseReason,
        context: &mut Context<'_>,
    ) -> Result<(), CloseReason> {
        self.write_refusal(reason.into(), context);
        Err(close)
    }

    fn write_refusal(&self, why: Refusal, context: &mut Context<'_>) {
        let frame = ServerFrame::Connack {
            reason: why.reason,
            text: why.text,
            time_difference_ms: 0,
            node: u64::from(context.settings.node.0),
        };
        self.write(frame, context);
    }

    fn write(&self, frame: ServerFrame, context: &mut Context<'_>) {
        context.out.push(Output::Frame {
            connection: self.connection,
            frame,
        });
    }
}
