//! Calls of the HTTP API: setting up, sending, reading, and the registers of check 7.

use super::{Clients, Talk, User, Wish};
use crate::oracle::Reading;
use crate::oracle::{Oracle, State, number};
use crate::rng::Rng;
use crate::settings::Settings;
use penstock_core::admin::{Answer, Ask, ChannelFlags, Failure, HistoryQuery, List, ListChange, SendAsk};
use penstock_core::client::Secret;
use penstock_core::message::{MessageFlags, Outcome};
use penstock_core::types::{ChannelKey, ChannelKind, DeviceFlag, DeviceLevel, Reason, Seq, Uid};
use penstock_wire::channel_id;
use std::sync::Arc;
use std::time::Duration;

/// What an answer is for.
#[derive(Clone, Debug)]
pub enum Purpose {
    /// A user's token.
    Token(usize),
    /// A group of users.
    Group(usize),
    /// The channel that carries a register.
    Register(usize),
    /// The next write of a register.
    Write(usize, u64),
    /// A read of a register.
    Read(Reading),
    /// A send over HTTP.
    Send(usize),
    /// What became of a send that was acknowledged or not.
    Outcome(usize),
    /// A change of the registry of plugins.
    Deploy,
    /// What a plugin publishes, by its payload.
    Publish(String),
    /// The group that a plugin publishes to.
    EchoRoom,
    /// The newest messages of a channel, which must reach at least this position.
    History {
        /// Index of the channel.
        channel: usize,
        /// Index of the reader.
        user: usize,
        /// What the reader has seen already.
        floor: u64,
    },
}

/// What the writer of a register does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Register {
    /// Its channel is not made yet.
    New,
    /// It may write.
    Free,
    /// It waits for the answer to a write.
    Writing,
    /// The outcome of a write is unknown; it may still happen, so that nothing may be written after it.
    Retired,
}

/// State of the callers.
#[derive(Debug)]
pub(super) struct Calls {
    registers: Vec<Register>,
    /// (user, channel) → position that this user has seen.
    seen: std::collections::BTreeMap<(usize, usize), u64>,
    /// Members of every group of users who never connect.
    absent: Vec<Arc<str>>,
}

impl Calls {
    pub(super) fn new(absent: Vec<Arc<str>>, rng: &mut Rng, oracle: &mut Oracle) -> Calls {
        oracle.notified.never_connect(&absent);
        let registers = vec![Register::New; rng.index(3) + 1];
        for _ in &registers {
            oracle.registers.add();
        }
        Calls {
            absent,
            registers,
            seen: std::collections::BTreeMap::new(),
        }
    }
}

/// The name of a group of users.
pub(super) fn group_name(channel: usize) -> Arc<str> {
    Arc::from(format!("group{channel}").as_str())
}

fn register_name(register: usize) -> Arc<str> {
    Arc::from(format!("register{register}").as_str())
}

/// Draws who talks with whom: some groups, the first of them with everyone, and some pairs.
pub(super) fn talks(settings: &Settings, rng: &mut Rng, users: &[User], oracle: &mut Oracle) -> Vec<Talk> {
    let mut talks = Vec::new();
    for group in 0..settings.groups_of_users {
        let members: Vec<usize> = (0..users.len())
            .filter(|_| group == 0 || rng.permille(500))
            .collect();
        let key = ChannelKey::new(&group_name(talks.len()), ChannelKind::GROUP);
        talks.push(Talk {
            kind: ChannelKind::GROUP,
            channel: oracle.add_channel(key),
            members,
            ready: false,
        });
    }
    for first in 0..users.len() {
        let second = (first + 1 + rng.index(users.len() - 1)) % users.len();
        let key = ChannelKey::new(
            &channel_id::canonical_person(&users[first].uid, &users[second].uid),
            ChannelKind::PERSON,
        );
        if oracle.channel(&key).is_none() {
            talks.push(Talk {
                kind: ChannelKind::PERSON,
                channel: oracle.add_channel(key),
                members: vec![first, second],
                ready: true,
            });
        }
    }
    talks
}

impl Clients {
    /// The calls that make users and groups; repeated until each was answered.
    pub fn set_up(&mut self, wishes: &mut Vec<Wish>) {
        for user in 0..self.users.len() {
            if !self.users[user].has_token {
                let ask = Ask::SetToken {
                    uid: Uid(self.users[user].uid.clone()),
                    token: Secret(self.users[user].token.clone()),
                    flag: DeviceFlag(1),
                    level: DeviceLevel::Slave,
                };
                self.ask(ask, Purpose::Token(user), wishes);
            }
        }
        for channel in 0..self.talks.len() {
            if !self.talks[channel].ready {
                let members = self.talks[channel].members.clone();
                let subscribers = members.iter().map(|&user| Uid(self.users[user].uid.clone()));
                let absent = self.calls.absent.iter().map(|uid| Uid(uid.clone()));
                let ask = put_channel(group_name(channel), subscribers.chain(absent).collect());
                self.ask(ask, Purpose::Group(channel), wishes);
            }
        }
        for register in 0..self.calls.registers.len() {
            if self.calls.registers[register] == Register::New {
                let ask = put_channel(register_name(register), vec![Uid::new("nobody")]);
                self.ask(ask, Purpose::Register(register), wishes);
            }
        }
    }

    /// Whether everything is set up.
    #[must_use]
    pub fn is_set_up(&self) -> bool {
        self.users.iter().all(|user| user.has_token)
            && self.talks.iter().all(|talk| talk.ready)
            && !self.calls.registers.contains(&Register::New)
    }

    fn ask(&mut self, ask: Ask, purpose: Purpose, wishes: &mut Vec<Wish>) {
        let node = self.rng.index(self.nodes);
        wishes.push(Wish::Ask { node, ask, purpose });
    }

    /// A user calls something.
    pub(super) fn call(&mut self, now: Duration, user: usize, oracle: &mut Oracle, wishes: &mut Vec<Wish>) {
        match self.rng.below(10) {
            0..3 => {
                let register = self.rng.index(self.calls.registers.len());
                if self.calls.registers[register] == Register::Free {
                    self.calls.registers[register] = Register::Writing;
                    self.write_register(register, oracle, wishes);
                }
            }
            3..5 => {
                let register = self.rng.index(self.calls.registers.len());
                if self.calls.registers[register] != Register::New {
                    let ask = Ask::ReadList {
                        channel_id: register_name(register),
                        kind: ChannelKind::GROUP,
                        list: List::Deny,
                    };
                    self.ask(ask, Purpose::Read(oracle.registers.read(register)), wishes);
                }
            }
            5 => {
                let Some(channel) = self.pick_talk(user) else {
                    return;
                };
                let operation = oracle.invoke(now, user, channel, true, 8);
                oracle.attempt(operation);
                let ask = self.send_ask(user, operation, oracle);
                self.ask(ask, Purpose::Send(operation), wishes);
            }
            6 => {
                let Some(operation) = self.users[user].answered else {
                    return;
                };
                let sent = &oracle.operations[operation];
                let ask = Ask::SendOutcome {
                    channel_id: self.name_for(user, sent.channel),
                    kind: self.talks[sent.channel].kind,
                    from_uid: Uid(self.users[user].uid.clone()),
                    client_msg_no: Arc::from(number(operation).as_str()),
                };
                if sent.persist && sent.invoked + self.patience > now {
                    self.ask(ask, Purpose::Outcome(operation), wishes);
                }
            }
            _ => self.read_history(user, oracle, wishes),
        }
    }

    fn write_register(&mut self, register: usize, oracle: &mut Oracle, wishes: &mut Vec<Wish>) {
        let value = oracle.registers.write(register);
        let ask = Ask::ChangeList {
            channel_id: register_name(register),
            kind: ChannelKind::GROUP,
            list: List::Deny,
            change: ListChange::Set(vec![Uid::new(&format!("v{value}"))]),
        };
        self.ask(ask, Purpose::Write(register, value), wishes);
    }

    fn send_ask(&self, user: usize, operation: usize, oracle: &Oracle) -> Ask {
        let sent = &oracle.operations[operation];
        Ask::Send(Box::new(SendAsk {
            from_uid: Uid(self.users[user].uid.clone()),
            channel_id: self.name_for(user, sent.channel),
            kind: self.talks[sent.channel].kind,
            subscribers: Vec::new(),
            client_msg_no: Arc::from(number(operation).as_str()),
            flags: MessageFlags::default(),
            setting: 0,
            expire_s: 0,
            topic: Arc::from(""),
            payload: sent.payload.clone(),
        }))
    }

    fn read_history(&mut self, user: usize, oracle: &mut Oracle, wishes: &mut Vec<Wish>) {
        let Some(channel) = self.pick_talk(user) else {
            return;
        };
        let own = oracle
            .acknowledged_in(channel)
            .filter(|&(_, _, operation)| oracle.operations[operation].user == user)
            .map(|(seq, ..)| seq)
            .max()
            .unwrap_or(0);
        let seen = self.calls.seen.get(&(user, channel)).copied().unwrap_or(0);
        let ask = Ask::History(HistoryQuery {
            login_uid: Uid(self.users[user].uid.clone()),
            channel_id: self.name_for(user, channel),
            kind: self.talks[channel].kind,
            start: Seq(0),
            end: Seq(0),
            limit: self.rng.pick(&[1, 5, 50]),
            newer: false,
        });
        let floor = own.max(seen);
        self.ask(ask, Purpose::History { channel, user, floor }, wishes);
    }

    /// An answer arrives, or none within the time of a caller.
    pub fn answered(&mut self, now: Duration, purpose: Purpose, answer: Option<Answer>, oracle: &mut Oracle) {
        let done = answer == Some(Answer::Done);
        match purpose {
            Purpose::Token(user) => self.users[user].has_token |= done,
            Purpose::Group(channel) => self.talks[channel].ready |= done,
            Purpose::Register(register) if done => self.calls.registers[register] = Register::Free,
            Purpose::Register(_) => {}
            Purpose::Write(register, value) => self.wrote(register, value, answer, oracle),
            Purpose::Read(reading) => read_register(reading, answer, oracle),
            Purpose::Send(operation) => self.sent(now, operation, answer, oracle),
            Purpose::Outcome(operation) => outcome(operation, answer, oracle),
            Purpose::Deploy | Purpose::Publish(_) | Purpose::EchoRoom => {}
            Purpose::History { channel, user, floor } => {
                self.history(channel, user, floor, answer, oracle);
            }
        }
    }

    fn wrote(&mut self, register: usize, value: u64, answer: Option<Answer>, oracle: &mut Oracle) {
        self.calls.registers[register] = match answer {
            Some(Answer::Done) => {
                oracle.registers.written(register, value);
                Register::Free
            }
            None | Some(Answer::Failed(Failure::Timeout)) => {
                oracle.registers.add();
                self.calls.registers.push(Register::New);
                Register::Retired
            }
            // It has not happened: the same value next time.
            Some(_) => Register::Free,
        };
    }

    fn sent(&mut self, now: Duration, operation: usize, answer: Option<Answer>, oracle: &mut Oracle) {
        let user = oracle.operations[operation].user;
        match answer {
            Some(Answer::Sent(Outcome::Committed { id, seq, .. })) => {
                oracle.acknowledge(operation, id, seq.0)
            }
            Some(Answer::Sent(Outcome::Refused(reason)) | Answer::Failed(Failure::Refused(reason))) => {
                self.refused(now, user, operation, reason, oracle);
            }
            Some(Answer::Sent(Outcome::Rejected { reason, .. })) => {
                self.refused(now, user, operation, reason, oracle);
            }
            Some(Answer::Failed(Failure::Busy)) => {
                self.refused(now, user, operation, Reason::RATE_LIMITED, oracle);
            }
            // Perhaps appended: the user sends the same again on its connection.
            _ => self.put_out(user, operation),
        }
    }

    fn history(
        &mut self,
        channel: usize,
        user: usize,
        floor: u64,
        answer: Option<Answer>,
        oracle: &mut Oracle,
    ) {
        let Some(Answer::Messages { messages, .. }) = answer else {
            return;
        };
        let key = oracle.channels[channel].key.clone();
        let reader = format!("a reader ({})", self.users[user].uid);
        let mut before: Option<u64> = None;
        for message in &messages {
            oracle.saw(&key, &message.message, &reader);
            let seq = message.message.seq.0;
            if before.is_some_and(|before| seq != before + 1) {
                let detail = format!("{reader} of {key} gets {seq} after {before:?}");
                oracle.violate("check-5", detail);
            }
            before = Some(seq);
        }
        let newest = before.unwrap_or(0);
        if newest < floor {
            let detail = format!("{reader} of {key} gets nothing after {newest}, but has seen {floor}");
            oracle.violate("check-5", detail);
        }
        let seen = self.calls.seen.entry((user, channel)).or_default();
        *seen = newest.max(*seen);
    }
}

fn put_channel(channel_id: Arc<str>, subscribers: Vec<Uid>) -> Ask {
    Ask::PutChannel {
        channel_id,
        kind: ChannelKind::GROUP,
        flags: ChannelFlags::default(),
        reset: false,
        subscribers,
    }
}

fn read_register(reading: Reading, answer: Option<Answer>, oracle: &mut Oracle) {
    let Some(Answer::Uids(uids)) = answer else { return };
    let values: Vec<u64> = uids
        .iter()
        .filter_map(|uid| uid.as_str().strip_prefix('v')?.parse().ok())
        .collect();
    // A replacement too large for one command adds before it removes: both values are seen in between.
    let value = values.into_iter().max().unwrap_or(0);
    if let Err(detail) = oracle.registers.check(reading, value) {
        oracle.violate("check-7", detail);
    }
}

fn outcome(operation: usize, answer: Option<Answer>, oracle: &mut Oracle) {
    let State::Acknowledged { id, seq } = oracle.operations[operation].state else {
        return;
    };
    let detail = match answer {
        Some(Answer::Sent(Outcome::Committed {
            id: told, seq: at, ..
        })) if (told, at.0) != (id, seq) => {
            format!(
                "{} is {seq} ({id}), its outcome says {at} ({told})",
                number(operation)
            )
        }
        Some(Answer::NoSuchSend) => {
            format!("{} is {seq} ({id}), its outcome is not known", number(operation))
        }
        _ => return,
    };
    oracle.violate("SF-5", detail);
}
