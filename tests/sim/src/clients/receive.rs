//! What a client does with a frame of the server.

use super::{Clients, Link, Wish};
use crate::oracle::Oracle;
use crate::plugins::BANNED;
use penstock_core::client::{ClientFrame, ServerFrame};
use penstock_core::message::Committed;
use penstock_core::types::{Reason, Uid};
use std::time::Duration;

/// A registration kicks an older session this soon.
const KICKED_WITHIN: Duration = Duration::from_millis(300);

impl Clients {
    /// A frame arrives at a user's connection.
    pub fn receive(
        &mut self,
        now: Duration,
        (user, connection): (usize, usize),
        frame: ServerFrame,
        oracle: &mut Oracle,
        wishes: &mut Vec<Wish>,
    ) {
        if self.users[user].connection() != Some(connection) {
            return;
        }
        match frame {
            ServerFrame::Connack { reason, .. } => self.accepted(now, user, connection, reason, oracle),
            ServerFrame::SendAck {
                client_seq,
                id,
                seq,
                reason,
                ..
            } => {
                let Some(operation) = self.remove(user, client_seq, connection) else {
                    let uid = self.users[user].uid.clone();
                    let detail = format!("{uid} gets an answer to frame {client_seq}, which has none open");
                    return oracle.violate("AP-8", detail);
                };
                if reason.is_success() {
                    let sent = &oracle.operations[operation];
                    let place = (connection, sent.channel);
                    if sent.attempts == 1
                        && sent.persist
                        && let Err(detail) = oracle.completions.acknowledged(place, client_seq, seq.0)
                    {
                        oracle.violate("AP-3", detail);
                    }
                    oracle.acknowledge(operation, id, seq.0);
                    if self.rng.permille(300) {
                        self.users[user].answered = Some(operation);
                    }
                } else {
                    self.refused(now, user, operation, reason, oracle);
                }
            }
            ServerFrame::OutcomeUnknown { client_seq, .. } => {
                if let Some(operation) = self.remove(user, client_seq, connection) {
                    // Perhaps appended: only the same number again tells.
                    self.put_out(user, operation);
                }
            }
            ServerFrame::Recv {
                message, duplicate, ..
            } => self.offered(now, (user, connection), (&message, duplicate), oracle, wishes),
            ServerFrame::Disconnect { reason, .. } if reason == Reason::KICKED => {
                self.kicked(now, user, connection, oracle);
            }
            ServerFrame::Pong | ServerFrame::SubAck { .. } | ServerFrame::Disconnect { .. } => {}
        }
    }

    /// Another session of the user was registered later. When what came later was an old registration once more, that session
    /// had ended long before (PR-2).
    fn kicked(&self, now: Duration, user: usize, connection: usize, oracle: &mut Oracle) {
        let uid = &self.users[user].uid;
        let is_recent = |(of, at): &(Uid, Duration)| {
            of.as_str() == uid.as_ref() && *at <= now && now < *at + KICKED_WITHIN
        };
        if self.repeated.as_ref().is_some_and(is_recent) {
            let detail = format!("{uid} is kicked from connection {connection} for a session that is over");
            oracle.violate("PR-2", detail);
        }
    }

    fn accepted(
        &mut self,
        now: Duration,
        user: usize,
        connection: usize,
        reason: Reason,
        oracle: &mut Oracle,
    ) {
        if reason.is_success() {
            self.users[user].link = Link::Up { connection };
            self.users[user].last_frame = now;
            oracle.sessions.open(connection, now);
        } else if [Reason::AUTH_FAIL, BANNED].contains(&reason) && !oracle.entries.is_denied(connection) {
            let uid = self.users[user].uid.clone();
            oracle.violate("connect", format!("{uid} is refused although its token is right"));
        } else {
            self.closed(now, user, connection, oracle);
        }
    }

    fn offered(
        &mut self,
        now: Duration,
        (user, connection): (usize, usize),
        (message, duplicate): (&Committed, bool),
        oracle: &mut Oracle,
        wishes: &mut Vec<Wish>,
    ) {
        let seq = message.message.seq;
        let uid = self.users[user].uid.clone();
        oracle.saw(&message.channel, &message.message, &uid);
        let Some(channel) = oracle.channel(&message.channel) else {
            return;
        };
        if !self.talks[channel].members.contains(&user) {
            let detail = format!(
                "{uid} gets {seq} of {}, to which it does not belong",
                message.channel
            );
            oracle.violate("PC-2", detail);
        }
        if seq.0 > 0
            && let Err(detail) = oracle.sessions.offer(connection, channel, seq.0, duplicate)
        {
            oracle.violate("PC-5", format!("{uid} in {}: {detail}", message.channel));
        }
        if now >= self.users[user].deaf_until {
            let frame = ClientFrame::RecvAck {
                id: message.message.id,
                seq,
            };
            wishes.push(Wish::Frame { connection, frame });
        }
    }
}
