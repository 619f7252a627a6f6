//! The users: sessions that connect to any node, send, acknowledge, lose their connection and come back, and resend what
//! was not answered with the same number, as the SDK does. And the callers of the HTTP API.

mod asks;
mod receive;
mod wish;

pub use asks::Purpose;
pub use wish::Wish;

use crate::oracle::{Oracle, State, number};
use crate::plugins::absent;
use crate::rng::{Rng, Stream};
use crate::settings::Settings;
use penstock_core::client::{ClientFrame, Connect, Protocol, Secret, Send, Subscribe};
use penstock_core::types::{ChannelKind, DeviceFlag, Reason, Uid};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// A channel that users talk in.
#[derive(Clone, Debug)]
pub struct Talk {
    /// Kind.
    pub kind: ChannelKind,
    /// Index of the channel at the oracle; the same as in the list of talks.
    pub channel: usize,
    /// Indexes of the members, who stay members for the whole run.
    pub members: Vec<usize>,
    /// Whether it exists: a group must have been created.
    pub ready: bool,
}

/// What a send is waiting for.
#[derive(Clone, Copy, Debug)]
struct Outgoing {
    operation: usize,
    /// The connection it was last written to.
    written_on: Option<usize>,
    /// Number of the frame.
    client_seq: u64,
    /// When it was last written.
    written_at: Duration,
    /// Not before this time again.
    retry_at: Duration,
}

/// How a user is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Not at all, until that time.
    Down {
        /// When the next attempt comes.
        until: Duration,
    },
    /// The CONNECT is on its way.
    Opening {
        /// Number of the connection.
        connection: usize,
        /// Since when.
        since: Duration,
    },
    /// Accepted.
    Up {
        /// Number of the connection.
        connection: usize,
    },
}

/// One user with one device.
#[derive(Debug)]
pub struct User {
    /// Name.
    pub uid: Arc<str>,
    token: Arc<str>,
    has_token: bool,
    protocol: Protocol,
    /// Its connection.
    pub link: Link,
    outbox: VecDeque<Outgoing>,
    client_seq: u64,
    deaf_until: Duration,
    last_frame: Duration,
    /// Something acknowledged, to be sent again now and then.
    answered: Option<usize>,
    next_action: Duration,
}

impl User {
    /// The connection that is open, if any.
    #[must_use]
    pub fn connection(&self) -> Option<usize> {
        match self.link {
            Link::Down { .. } => None,
            Link::Opening { connection, .. } | Link::Up { connection } => Some(connection),
        }
    }
}

/// All users of a run.
#[derive(Debug)]
pub struct Clients {
    /// The users.
    pub users: Vec<User>,
    /// The channels.
    pub talks: Vec<Talk>,
    nodes: usize,
    next_connection: usize,
    rng: Rng,
    pause: Duration,
    patience: Duration,
    /// Whose registration comes once more after its session has ended, and when.
    pub repeated: Option<(Uid, Duration)>,
    tokens: bool,
    /// No new sends: only what is open is finished.
    pub quiet: bool,
    /// Nobody connects.
    pub away: bool,
    /// Sends that were written again.
    pub resends: u64,
    calls: asks::Calls,
}

/// Without any frame for this long a client pings.
const PING_AFTER: Duration = Duration::from_secs(4);
/// Without an answer for this long a client gives its connection up.
const ANSWER_WITHIN: Duration = Duration::from_secs(8);
/// Sends that a user has open before it waits.
const OUTBOX_MAX: usize = 12;

impl Clients {
    /// Users and channels of a seed; the channels are made known to the oracle.
    #[must_use]
    pub fn new(settings: &Settings, oracle: &mut Oracle) -> Clients {
        let mut rng = Rng::new(settings.seed, Stream::Clients);
        let users: Vec<User> = (0..settings.users)
            .map(|index| User {
                uid: Arc::from(format!("user{index}").as_str()),
                token: Arc::from(format!("token{index}").as_str()),
                has_token: !settings.tokens,
                protocol: rng.pick(&[Protocol::WkProto, Protocol::WkProto, Protocol::JsonRpc]),
                link: Link::Down {
                    until: rng.time(Duration::from_millis(200), Duration::from_secs(2)),
                },
                outbox: VecDeque::new(),
                client_seq: 0,
                deaf_until: Duration::ZERO,
                last_frame: Duration::ZERO,
                answered: None,
                next_action: Duration::ZERO,
            })
            .collect();
        oracle.users = users.iter().map(|user| user.uid.clone()).collect();
        let talks = asks::talks(settings, &mut rng, &users, oracle);
        Clients {
            calls: asks::Calls::new(absent(settings.seed), &mut rng, oracle),
            users,
            talks,
            nodes: settings.nodes,
            next_connection: 0,
            rng,
            pause: settings.pause_between_actions,
            patience: settings.patience,
            repeated: None,
            tokens: settings.tokens,
            quiet: false,
            away: false,
            resends: 0,
        }
    }

    /// A user looks at the clock. Returns when it wants to look again.
    pub fn act(
        &mut self,
        now: Duration,
        user: usize,
        oracle: &mut Oracle,
        wishes: &mut Vec<Wish>,
    ) -> Duration {
        match self.users[user].link {
            Link::Down { until } if until <= now && self.users[user].has_token && !self.away => {
                self.connect(now, user, wishes)
            }
            Link::Opening { connection, since } if since + ANSWER_WITHIN <= now => {
                self.hang_up(now, user, connection, oracle, wishes);
            }
            Link::Up { connection } => self.act_online(now, user, connection, oracle, wishes),
            Link::Down { .. } | Link::Opening { .. } => {}
        }
        now + self.rng.time(self.pause / 4, self.pause)
    }

    fn connect(&mut self, now: Duration, user: usize, wishes: &mut Vec<Wish>) {
        let connection = self.next_connection;
        self.next_connection += 1;
        let node = self.rng.index(self.nodes);
        self.users[user].link = Link::Opening {
            connection,
            since: now,
        };
        wishes.push(Wish::Open { node, connection });
        let user = &self.users[user];
        wishes.push(Wish::Frame {
            connection,
            frame: ClientFrame::Connect(Connect {
                protocol: user.protocol,
                version: 4,
                uid: user.uid.clone(),
                token: Secret(user.token.clone()),
                device_id: Arc::from(format!("device-of-{}", user.uid).as_str()),
                device_flag: DeviceFlag(1),
                client_timestamp_ms: i64::try_from(now.as_millis()).unwrap_or(0),
                // Names the connection, so that a gate's answer can be told from one for the next attempt.
                address: Arc::from(connection.to_string()),
            }),
        });
    }

    fn hang_up(
        &mut self,
        now: Duration,
        user: usize,
        connection: usize,
        oracle: &mut Oracle,
        wishes: &mut Vec<Wish>,
    ) {
        wishes.push(Wish::Close { connection });
        self.closed(now, user, connection, oracle);
    }

    /// A user's connection is gone, whoever closed it.
    pub fn closed(&mut self, now: Duration, user: usize, connection: usize, oracle: &mut Oracle) {
        if self.users[user].connection() != Some(connection) {
            return;
        }
        oracle.sessions.close(connection);
        oracle.completions.closed(connection);
        self.users[user].link = Link::Down {
            until: now + self.rng.time(Duration::from_millis(50), Duration::from_secs(2)),
        };
    }

    fn act_online(
        &mut self,
        now: Duration,
        user: usize,
        connection: usize,
        oracle: &mut Oracle,
        wishes: &mut Vec<Wish>,
    ) {
        self.give_up_old(now, user, oracle);
        let waits_too_long = self.users[user].outbox.iter().any(|outgoing| {
            outgoing.written_on == Some(connection) && outgoing.written_at + ANSWER_WITHIN <= now
        });
        if waits_too_long || (!self.quiet && self.rng.permille(4)) {
            return self.hang_up(now, user, connection, oracle, wishes);
        }
        self.write_due(now, user, connection, oracle, wishes);
        if now >= self.users[user].next_action && !self.quiet {
            self.users[user].next_action = now + self.rng.tailed(self.pause);
            self.something(now, user, connection, oracle, wishes);
        }
        if self.users[user].last_frame + PING_AFTER <= now {
            self.write(now, user, connection, ClientFrame::Ping, wishes);
        }
    }

    fn something(
        &mut self,
        now: Duration,
        user: usize,
        connection: usize,
        oracle: &mut Oracle,
        wishes: &mut Vec<Wish>,
    ) {
        match self.rng.below(100) {
            0..72 => {
                let burst = if self.rng.permille(150) {
                    self.rng.between(2, 5)
                } else {
                    1
                };
                for _ in 0..burst {
                    let Some(channel) = self.pick_talk(user) else {
                        return;
                    };
                    self.say(now, user, channel, oracle);
                }
                self.write_due(now, user, connection, oracle, wishes);
            }
            72..78 => {
                // The acknowledgement was lost, for all that the user knows; what is old is not asked for again.
                let fresh = |operation: &usize| oracle.operations[*operation].invoked + self.patience > now;
                if let Some(operation) = self.users[user].answered.take().filter(fresh) {
                    self.put_out(user, operation);
                    self.write_due(now, user, connection, oracle, wishes);
                }
            }
            78..80 => {
                let Some(channel) = self.pick_talk(user) else {
                    return;
                };
                let frame = ClientFrame::Subscribe(Subscribe {
                    sub_no: Arc::from("sub"),
                    channel_id: self.name_for(user, channel),
                    kind: self.talks[channel].kind,
                    subscribe: self.rng.permille(500),
                    param: Arc::from(""),
                });
                self.write(now, user, connection, frame, wishes);
            }
            _ => self.call(now, user, oracle, wishes),
        }
    }

    fn pick_talk(&mut self, user: usize) -> Option<usize> {
        let open: Vec<usize> = (0..self.talks.len())
            .filter(|&index| self.talks[index].ready && self.talks[index].members.contains(&user))
            .collect();
        (!open.is_empty()).then(|| self.rng.pick(&open))
    }

    /// A user has something to say: it stands in the outbox until it is answered.
    pub fn say(&mut self, now: Duration, user: usize, channel: usize, oracle: &mut Oracle) -> Option<usize> {
        if !self.quiet && self.users[user].outbox.len() >= OUTBOX_MAX {
            return None;
        }
        let persist = self.quiet || !self.rng.permille(40);
        let padding = self.rng.index(80);
        let operation = oracle.invoke(now, user, channel, persist, padding);
        self.put_out(user, operation);
        Some(operation)
    }

    fn put_out(&mut self, user: usize, operation: usize) {
        self.users[user].outbox.push_back(Outgoing {
            operation,
            written_on: None,
            client_seq: 0,
            written_at: Duration::ZERO,
            retry_at: Duration::ZERO,
        });
    }

    /// Writes what was not written on this connection and what is due again, in the order in which it was said.
    fn write_due(
        &mut self,
        now: Duration,
        user: usize,
        connection: usize,
        oracle: &mut Oracle,
        wishes: &mut Vec<Wish>,
    ) {
        for at in 0..self.users[user].outbox.len() {
            let outgoing = self.users[user].outbox[at];
            if outgoing.written_on == Some(connection) || outgoing.retry_at > now {
                continue;
            }
            self.users[user].client_seq += 1;
            let client_seq = self.users[user].client_seq;
            self.resends += u64::from(outgoing.written_on.is_some());
            self.users[user].outbox[at] = Outgoing {
                written_on: Some(connection),
                client_seq,
                written_at: now,
                ..outgoing
            };
            oracle.attempt(outgoing.operation);
            let frame = self.send_frame(user, outgoing.operation, client_seq, oracle);
            self.write(now, user, connection, frame, wishes);
        }
    }

    fn send_frame(&self, user: usize, operation: usize, client_seq: u64, oracle: &Oracle) -> ClientFrame {
        let sent = &oracle.operations[operation];
        ClientFrame::Send(Send {
            client_seq,
            client_msg_no: Arc::from(number(operation).as_str()),
            channel_id: self.name_for(user, sent.channel),
            kind: self.talks[sent.channel].kind,
            no_persist: !sent.persist,
            red_dot: operation.is_multiple_of(2),
            sync_once: false,
            setting: 0,
            expire_s: 0,
            topic: Arc::from(""),
            payload: Ok(sent.payload.clone()),
        })
    }

    /// The id under which a user names a channel: in a person channel the other one's uid.
    #[must_use]
    pub fn name_for(&self, user: usize, channel: usize) -> Arc<str> {
        let talk = &self.talks[channel];
        if talk.kind == ChannelKind::PERSON {
            let other = talk
                .members
                .iter()
                .find(|&&member| member != user)
                .unwrap_or(&user);
            self.users[*other].uid.clone()
        } else {
            asks::group_name(channel)
        }
    }

    fn write(
        &mut self,
        now: Duration,
        user: usize,
        connection: usize,
        frame: ClientFrame,
        wishes: &mut Vec<Wish>,
    ) {
        self.users[user].last_frame = now;
        wishes.push(Wish::Frame { connection, frame });
    }

    /// A client does not retry for ever: keys are forgotten after a window.
    fn give_up_old(&mut self, now: Duration, user: usize, oracle: &mut Oracle) {
        let patience = self.patience;
        let connection = self.users[user].connection();
        self.users[user].outbox.retain(|outgoing| {
            let waits = outgoing.written_on.is_some() && outgoing.written_on == connection;
            let old = !waits && oracle.operations[outgoing.operation].invoked + patience <= now;
            if old {
                oracle.abandon(outgoing.operation);
            }
            !old
        });
    }

    /// Makes a user stop acknowledging until then.
    pub fn deafen(&mut self, until: Duration) {
        let user = self.rng.index(self.users.len());
        self.users[user].deaf_until = until;
    }

    /// Whether nothing is open any more.
    #[must_use]
    pub fn settled(&self) -> bool {
        self.users
            .iter()
            .all(|user| user.outbox.is_empty() && matches!(user.link, Link::Up { .. }))
    }

    /// What is still open, for people.
    #[must_use]
    pub fn unsettled(&self, oracle: &Oracle) -> String {
        let mut text = String::new();
        for user in &self.users {
            if !matches!(user.link, Link::Up { .. }) {
                text += &format!(" {} is {:?};", user.uid, user.link);
            }
            for outgoing in &user.outbox {
                let channel = oracle.operations[outgoing.operation].channel;
                let key = &oracle.channels[channel].key;
                text += &format!(" {} waits for {} in {key};", user.uid, number(outgoing.operation));
            }
        }
        text
    }

    fn remove(&mut self, user: usize, client_seq: u64, connection: usize) -> Option<usize> {
        let outbox = &mut self.users[user].outbox;
        let at = outbox.iter().position(|outgoing| {
            outgoing.client_seq == client_seq && outgoing.written_on == Some(connection)
        })?;
        outbox.remove(at).map(|outgoing| outgoing.operation)
    }

    /// A send was refused on this connection: later again, or never.
    fn refused(&mut self, now: Duration, user: usize, operation: usize, reason: Reason, oracle: &mut Oracle) {
        oracle.refuse(operation, reason);
        let acknowledged = matches!(oracle.operations[operation].state, State::Acknowledged { .. });
        // Some users give up at the first refusal: what they sent must never be seen.
        let gives_up = !self.quiet && self.rng.permille(100);
        if !crate::oracle::may_be_retried(reason) || acknowledged || gives_up {
            oracle.abandon(operation);
            return;
        }
        let retry_at = now
            + self
                .rng
                .time(Duration::from_millis(20), Duration::from_millis(800));
        self.put_out(user, operation);
        if let Some(outgoing) = self.users[user].outbox.back_mut() {
            outgoing.retry_at = retry_at;
        }
    }

    /// Whether tokens must be set before users connect.
    #[must_use]
    pub fn needs_tokens(&self) -> bool {
        self.tokens
    }
}
