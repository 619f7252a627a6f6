//! What happens when something asked for is there: durable writes, scans, answers, look-ups. Plain data, so that a
//! shard stays a value.

use super::Shard;
use super::groups::Registration;
use super::peer::Reply;
use super::step::Step;
use super::turn::Turn;
use crate::client::Secret;
use crate::rows::{Instance, Page};
use crate::types::{
    ChannelKey, DeviceLevel, GroupId, NodeId, ProcessBoot, Reason, Seq, SlotId, Ticket, Token,
};
use crate::{channel, session, slot};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// What waits for a ticket to be durable.
#[derive(Clone, Debug)]
pub(super) enum Stored {
    /// A group's write.
    Group { group: GroupId, token: Token },
    /// A channel replica's write.
    Channel {
        channel: ChannelKey,
        activation: u64,
        token: Token,
    },
    /// A lease of message ids.
    Ids { token: Token },
}

/// What waits for a scan.
#[derive(Clone, Debug)]
pub(super) enum Reading {
    /// A group's snapshot page.
    Group { group: GroupId, token: Token },
    /// A page of a sweep over the channels of a dead leader.
    Grants { group: GroupId, token: Token },
    /// A page of a sweep over sessions that were told as online.
    OnlineStatus { group: GroupId, token: Token },
    /// A channel replica's read.
    Channel {
        channel: ChannelKey,
        activation: u64,
        token: Token,
    },
    /// A page of rows for a caller.
    Page { reply_to: super::groups::ReplyTo },
    /// What the disk holds of a sleeping channel.
    Resuming {
        sleeper: super::resuming::Sleeper,
        look: super::resuming::Look,
    },
}

/// What waits for a look-up of users.
#[derive(Clone, Debug)]
pub(super) enum Lookup {
    /// Delivery of a channel.
    Delivery { channel: ChannelKey, token: Token },
    /// The recipients of a message of a channel, for a post-commit consumer.
    Offline { channel: ChannelKey, token: Token },
    /// The HTTP question who is online.
    Online { ask: Token },
}

/// What waits for the answer to a request.
#[derive(Clone, Debug)]
pub(super) enum Then {
    /// Nothing.
    Nothing,
    /// The controller's answer to a registration.
    Registered,
    /// A session's token check.
    Authenticated { token: Token, secret: Secret },
    /// A channel's leader.
    Resolved { channel: ChannelKey },
    /// A channel here needs its newest metadata.
    Meta { channel: ChannelKey },
    /// Facts of a send, subscription or read on its way in.
    Facts { job: Token, positions: Vec<usize> },
    /// A forwarded batch.
    Appended { channel: ChannelKey },
    /// A session's subscription at the channel's leader.
    Subscribed { token: Token, leader: Option<NodeId> },
    /// A step of an HTTP request.
    Ask { ask: Token },
    /// Revision, then a page of members.
    Members {
        channel: ChannelKey,
        reader: super::members::Reader,
        stage: super::members::Stage,
    },
    /// The controller's rows about plugins.
    Registry,
    /// What this node says of versions that it has given up.
    GivenUp,
    /// A dead letter of a binding.
    Buried {
        channel: ChannelKey,
        token: Token,
        seq: Seq,
    },
    /// Changes of keys in one slot, which a run has caused.
    Keys {
        channel: ChannelKey,
        token: Token,
        slot: SlotId,
    },
    /// Keys of a plugin in a slot, of which those are removed whose life time is over.
    KeySweep { plugin: Arc<str>, slot: SlotId },
    /// Changes of keys of the message of a dead letter.
    Redelivered(super::keys::Replay),
    /// A membership row of a person channel.
    Membership { channel: ChannelKey, token: Token },
    /// The sweep over sleeping channels.
    Resuming(super::resuming::Sweep),
}

impl Shard {
    /// A new name inside this shard, which no other process of this node gives.
    pub(super) fn next_token(&mut self) -> Token {
        self.last_token += 1;
        Token(self.last_token)
    }

    /// A new ticket with what waits for it.
    pub(super) fn ticket(&mut self, instance: Instance, stored: Stored) -> Ticket {
        let tickets = match instance {
            Instance::Meta => &mut self.meta_tickets,
            Instance::Data => &mut self.data_tickets,
        };
        tickets.last += 1;
        tickets.waiting.push_back((Ticket(tickets.last), stored));
        Ticket(tickets.last)
    }

    /// Names a scan.
    pub(super) fn reading(&mut self, reading: Reading) -> Token {
        let token = self.next_token();
        self.readings.insert(token, reading);
        token
    }

    /// Everything up to a ticket is durable: the machines hear it in order.
    pub(super) fn on_stored(&mut self, instance: Instance, through: Ticket) {
        loop {
            let tickets = match instance {
                Instance::Meta => &mut self.meta_tickets,
                Instance::Data => &mut self.data_tickets,
            };
            match tickets.waiting.front() {
                Some((ticket, _)) if *ticket <= through => {}
                _ => return,
            }
            let Some((_, stored)) = tickets.waiting.pop_front() else {
                return;
            };
            let step = match stored {
                Stored::Group { group, token } => Step::Group {
                    group,
                    input: slot::Input::Stored { token },
                },
                Stored::Channel {
                    channel,
                    activation,
                    token,
                } => Step::Channel {
                    channel,
                    activation,
                    input: channel::Input::Stored { token },
                },
                Stored::Ids { token } => Step::IdsStored { token },
            };
            self.queue.push_back(step);
        }
    }

    /// A scan is done.
    pub(super) fn on_read(&mut self, turn: &mut Turn<'_>, token: Token, page: Page) {
        match self.readings.remove(&token) {
            Some(Reading::Group { group, token }) => {
                self.queue.push_back(Step::Group {
                    group,
                    input: slot::Input::ReadDone { token, page },
                });
            }
            Some(Reading::Grants { group, token }) => {
                let input = slot::grants::Input::ReadDone { token, page };
                self.queue.push_back(Step::Grants { group, input });
            }
            Some(Reading::OnlineStatus { group, token }) => {
                let input = slot::online::Input::ReadDone { token, page };
                self.queue.push_back(Step::OnlineStatus { group, input });
            }
            Some(Reading::Channel {
                channel,
                activation,
                token,
            }) => {
                let input = channel::Input::ReadDone { token, page };
                self.queue.push_back(Step::Channel {
                    channel,
                    activation,
                    input,
                });
            }
            Some(Reading::Resuming { sleeper, look }) => self.on_look(turn, sleeper, look, page),
            Some(Reading::Page { reply_to }) => {
                let reply = match page {
                    Page::Rows { rows, more } => {
                        let rows = rows.into_iter().map(|(_, key, value)| (key, value)).collect();
                        Reply::Page { rows, more }
                    }
                    Page::Records(_) | Page::Cursors(_) | Page::Dedupe { .. } | Page::Corrupt { .. } => {
                        Reply::Unavailable
                    }
                };
                self.reply(turn, reply_to, reply);
            }
            None => {}
        }
    }

    /// A request has its answer, or none within its deadline.
    pub(super) fn settle(&mut self, turn: &mut Turn<'_>, then: Then, reply: Option<Reply>) {
        match then {
            Then::Nothing => {}
            Then::Registered => {
                let known = matches!(reply, Some(Reply::Proposed(Ok(crate::replicated::Reply::Done))));
                self.registration = if known {
                    Registration::Done
                } else {
                    Registration::Due
                };
            }
            Then::Authenticated { token, secret } => {
                let result = authenticated(reply, &secret);
                self.queue
                    .push_back(Step::Sessions(session::Input::Authenticated { token, result }));
            }
            Then::Resolved { channel } => {
                if let Some(Reply::Resolved(meta)) = &reply {
                    self.directory.learn_channel(&channel, meta);
                    self.on_meta_known(turn, &channel, meta);
                }
                self.on_resolved(turn, &channel, reply.as_ref());
            }
            Then::Meta { channel } => self.on_meta_answer(turn, &channel, reply),
            Then::Facts { job, positions } => self.on_facts(turn, job, &positions, reply),
            Then::Appended { channel } => self.on_forwarded(turn, &channel, reply),
            Then::Subscribed { token, leader } => {
                let reason = if reply == Some(Reply::Done) {
                    Reason::SUCCESS
                } else {
                    Reason::NODE_NOT_MATCH
                };
                self.subscribed(token, reason, leader);
            }
            Then::Ask { ask } => self.on_ask_reply(turn, ask, reply),
            Then::Members {
                channel,
                reader,
                stage,
            } => self.on_members(turn, channel, reader, stage, reply),
            Then::Registry => self.on_registry(turn, reply),
            Then::GivenUp => self.on_given_up(),
            Then::Buried { channel, token, seq } => self.on_buried(&channel, (token, seq), reply.as_ref()),
            Then::Resuming(sweep) => self.on_resuming(turn, sweep, reply),
            Then::Keys { channel, token, slot } => self.on_keys_changed(turn, &channel, (token, slot), reply),
            Then::KeySweep { plugin, slot } => self.on_key_sweep(turn, (plugin, slot), reply),
            Then::Redelivered(replay) => self.on_replay_changed(turn, replay, reply.as_ref()),
            Then::Membership { channel, token } => {
                self.on_membership_written(&channel, token, reply.as_ref())
            }
        }
    }
}

/// Where a process begins to count its names. Two processes of a node count in different places: an answer to what the former
/// one asked names nothing in the present one (CH-13), and a request that comes late is not taken for one of the present.
pub(super) fn first_token(process: ProcessBoot) -> u64 {
    u64::from(crc32fast::hash(&process.0.to_be_bytes()) >> 1) << 32
}

/// Compares a token with the stored hash in constant time; unknown users cost the same (S28).
fn authenticated(reply: Option<Reply>, secret: &Secret) -> Result<DeviceLevel, Reason> {
    let Some(Reply::Rows(rows)) = reply else {
        return Err(Reason::SYSTEM_ERROR);
    };
    let shown: [u8; 32] = Sha256::digest(secret.0.as_bytes()).into();
    let device = rows
        .first()
        .and_then(Option::as_ref)
        .and_then(|row| super::facts::read_device(row));
    let (hash, level) = device.unwrap_or_default();
    let equal: bool = hash.ct_eq(&shown).into();
    if equal { Ok(level) } else { Err(Reason::AUTH_FAIL) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_processes_give_different_names() {
        let (one, other) = (first_token(ProcessBoot(1)), first_token(ProcessBoot(2)));
        assert!(one.abs_diff(other) >= 1 << 32);
        assert!(one <= u64::MAX >> 1 && other <= u64::MAX >> 1, "room to count");
    }
}
