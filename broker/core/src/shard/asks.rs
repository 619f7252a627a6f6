//! Requests of the HTTP API: each is a short row of requests to the authorities, one after the other.

mod keys;
mod letters;
mod lists;
mod reads;
mod registry;
mod routes;

pub(super) use lists::ListJob;
pub(super) use routes::answer_route;

use super::Shard;
use super::continuation::Then;
use super::ingress::{Purpose, Source};
use super::peer::{LANES, Peer, Reply, Request};
use super::turn::Turn;
use crate::admin::{Answer, Ask, ChannelFlags, Failure, List, ListChange, PublishAsk, SendAsk};
use crate::client::Secret;
use crate::effect::Effect;
use crate::message::Outcome;
use crate::pending::Pending;
use crate::replicated::{self, Rejection};
use crate::slot::{self, Lane, command};
use crate::types::{ChannelKey, ChannelKind, DeviceFlag, DeviceLevel, Reason, SlotId, Token, Uid};
use bytes::Bytes;
use penstock_wire::channel_id;
use sha2::{Digest, Sha256};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// Longest time an HTTP request is worked on.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);

/// How far an HTTP request is.
#[derive(Debug)]
pub(super) enum Job {
    /// Commands that remain, in order; the first was proposed.
    Commands(VecDeque<(SlotId, Bytes)>),
    /// Clear the tokens, then close the sessions.
    DeviceQuit { uid: Uid, flag: Option<DeviceFlag> },
    /// A member list is read or changed.
    List(ListJob),
    /// Who is online.
    Online(Vec<(Uid, DeviceFlag)>),
    /// An answer of a channel leader is awaited.
    History,
    /// The same.
    SendOutcome,
    /// The controller's rows about plugins are read.
    Registry,
    /// A change of them is on its way.
    Change,
    /// Dead letters are read, or one is replayed.
    Letters(letters::LettersJob),
    /// Keys of a plugin are read, or one is changed.
    Keys(keys::KeysJob),
}

/// All waiting HTTP requests of a shard.
pub(super) type Asks = Pending<Job>;

impl Shard {
    /// Starts a request.
    pub(super) fn begin_ask(&mut self, turn: &mut Turn<'_>, ask: Token, request: Ask) {
        match request {
            Ask::SetToken {
                uid,
                token,
                flag,
                level,
            } => self.set_token(turn, ask, &uid, &token, (flag, level)),
            Ask::DeviceQuit { uid, flag } => self.device_quit(turn, ask, uid, flag),
            Ask::SystemUids => self.read_list(turn, ask, ListJob::system_uids()),
            Ask::ChangeSystemUids { uids, add } => self.change_system_uids(turn, ask, &uids, add),
            Ask::PutChannel {
                channel_id,
                kind,
                flags,
                reset,
                subscribers,
            } => match channel_of(&channel_id, kind) {
                Err(failure) => answer(turn, ask, Answer::Failed(failure)),
                Ok(channel) => {
                    let change = if reset {
                        ListChange::Set(subscribers)
                    } else {
                        ListChange::Add(subscribers)
                    };
                    self.put_channel(turn, ask, channel, flags, change);
                }
            },
            Ask::DeleteChannel { channel_id, kind } => self.delete_channel(turn, ask, &channel_id, kind),
            Ask::ChangeList {
                channel_id,
                kind,
                list,
                change,
            } => match channel_of(&channel_id, kind) {
                Err(failure) => answer(turn, ask, Answer::Failed(failure)),
                Ok(channel) => self.change_list(turn, ask, ListJob::change(channel, list, change)),
            },
            Ask::ReadList {
                channel_id,
                kind,
                list,
            } => match channel_of(&channel_id, kind) {
                Err(failure) => answer(turn, ask, Answer::Failed(failure)),
                Ok(channel) => self.read_list(turn, ask, ListJob::read(channel, list)),
            },
            Ask::Send(send) => self.send_from_ask(turn, ask, *send),
            Ask::Publish(publish) => self.publish_from_ask(turn, ask, *publish),
            Ask::ReadMessages(wanted) => self.ask_messages(turn, ask, wanted),
            Ask::SendOutcome {
                channel_id,
                kind,
                from_uid,
                client_msg_no,
            } => {
                self.ask_outcome(turn, ask, &channel_id, kind, (from_uid, client_msg_no));
            }
            Ask::History(query) => self.ask_history(turn, ask, query),
            Ask::OnlineStatus(uids) => self.ask_online(turn, ask, uids),
            Ask::Registry => self.ask_registry(turn, ask),
            Ask::ChangeRegistry(change) => self.ask_change(turn, ask, &change),
            Ask::DeadLetters(wanted) => self.ask_letters(turn, ask, wanted),
            Ask::Keys(wanted) => self.ask_keys(turn, ask, wanted),
            Ask::Route(wanted) => self.ask_route(turn, ask, wanted),
            Ask::Ready => {
                let readiness = self.readiness();
                answer(turn, ask, Answer::Ready(readiness));
            }
        }
    }

    fn change_system_uids(&mut self, turn: &mut Turn<'_>, ask: Token, uids: &[Uid], add: bool) {
        let wall = turn.now.wall_ms;
        let slot = slot::keys::system_uids_slot();
        let commands = uids
            .chunks(command::UIDS_MAX)
            .map(|chunk| (slot, command::change_system_uids(wall, chunk, add)))
            .collect();
        self.run_commands(turn, ask, commands);
    }

    /// Creates or updates a channel, then changes its subscribers.
    fn put_channel(
        &mut self,
        turn: &mut Turn<'_>,
        ask: Token,
        channel: ChannelKey,
        flags: ChannelFlags,
        change: ListChange,
    ) {
        let named = match &change {
            ListChange::Add(uids) | ListChange::Remove(uids) | ListChange::Set(uids) => !uids.is_empty(),
            ListChange::Clear => false,
        };
        if channel.kind == ChannelKind::PERSON && named {
            let text = "a person channel has no subscribers: leave `subscribers` empty".to_owned();
            return answer(turn, ask, Answer::Failed(Failure::Invalid(text)));
        }
        let first = command::put_channel(turn.now.wall_ms, &channel, flags);
        let job = ListJob::change(channel, List::Subscribers, change).after(first);
        self.change_list(turn, ask, job);
    }

    fn delete_channel(&mut self, turn: &mut Turn<'_>, ask: Token, channel_id: &str, kind: ChannelKind) {
        match channel_of(channel_id, kind) {
            Err(failure) => answer(turn, ask, Answer::Failed(failure)),
            Ok(_) if kind == ChannelKind::PERSON => {
                let text = "a person channel cannot be deleted".to_owned();
                answer(turn, ask, Answer::Failed(Failure::Invalid(text)));
            }
            Ok(channel) => {
                let disband = command::disband(turn.now.wall_ms, &channel);
                self.run_commands(turn, ask, VecDeque::from([(channel.slot(), disband)]));
            }
        }
    }

    pub(super) fn keep_ask(&mut self, turn: &Turn<'_>, ask: Token, job: Job) {
        self.asks.insert(ask, turn.now.after(ASK_TIMEOUT), job);
    }

    fn set_token(
        &mut self,
        turn: &mut Turn<'_>,
        ask: Token,
        uid: &Uid,
        token: &Secret,
        (flag, level): (DeviceFlag, DeviceLevel),
    ) {
        if let Err(error) = channel_id::check_uid(uid.as_str()) {
            let text = format!("invalid `uid`: {error}");
            return answer(turn, ask, Answer::Failed(Failure::Invalid(text)));
        }
        if token.0.is_empty() {
            return answer(
                turn,
                ask,
                Answer::Failed(Failure::Invalid("`token` is empty".to_owned())),
            );
        }
        let hash: [u8; 32] = Sha256::digest(token.0.as_bytes()).into();
        let put = command::put_user_token(turn.now.wall_ms, uid, flag, hash, level);
        self.run_commands(turn, ask, VecDeque::from([(uid.slot(), put)]));
    }

    fn device_quit(&mut self, turn: &mut Turn<'_>, ask: Token, uid: Uid, flag: Option<DeviceFlag>) {
        let flags = flag.map_or_else(|| (0..3).map(DeviceFlag).collect(), |flag| vec![flag]);
        let clear = command::clear_token(turn.now.wall_ms, &uid, &flags);
        let slot = uid.slot();
        self.keep_ask(turn, ask, Job::DeviceQuit { uid, flag });
        self.propose_for(turn, ask, slot, clear);
    }

    /// Runs commands one after the other; done when all are committed.
    pub(super) fn run_commands(
        &mut self,
        turn: &mut Turn<'_>,
        ask: Token,
        mut commands: VecDeque<(SlotId, Bytes)>,
    ) {
        let Some((slot, first)) = commands.pop_front() else {
            return answer(turn, ask, Answer::Done);
        };
        self.keep_ask(turn, ask, Job::Commands(commands));
        self.propose_for(turn, ask, slot, first);
    }

    pub(super) fn propose_for(&mut self, turn: &mut Turn<'_>, ask: Token, slot: SlotId, command: Bytes) {
        let group = self.directory.group_of(slot);
        self.call(
            turn,
            Request::Propose {
                group,
                lane: Lane::Ordinary,
                command,
            },
            Then::Ask { ask },
        );
    }

    fn send_from_ask(&mut self, turn: &mut Turn<'_>, ask: Token, send: SendAsk) {
        self.keep_ask(turn, ask, Job::SendOutcome);
        let purpose = Purpose::from_ask(send, self.send_deadline(turn));
        self.ingress(turn, Source::Ask(ask), purpose);
    }

    fn publish_from_ask(&mut self, turn: &mut Turn<'_>, ask: Token, publish: PublishAsk) {
        self.keep_ask(turn, ask, Job::SendOutcome);
        let purpose = Purpose::from_plugin(publish, self.send_deadline(turn));
        self.ingress(turn, Source::Ask(ask), purpose);
    }

    /// What became of a send that came over HTTP or from a plugin.
    pub(super) fn on_ask_sent(&mut self, turn: &mut Turn<'_>, ask: Token, outcome: Outcome) {
        if self.asks.remove(ask).is_some() {
            answer(turn, ask, Answer::Sent(outcome));
        }
    }

    /// A step of a request is answered, or not within its deadline.
    pub(super) fn on_ask_reply(&mut self, turn: &mut Turn<'_>, ask: Token, reply: Option<Reply>) {
        let Some(job) = self.asks.remove(ask) else { return };
        let Some(reply) = reply else {
            return answer(turn, ask, Answer::Failed(Failure::Timeout));
        };
        if let Job::Keys(keys::KeysJob::Change { plugin, slot }) = &job {
            self.key_change_answered(turn, (plugin, *slot), &reply);
        }
        if let Some(failure) = failure_of(&reply) {
            return answer(turn, ask, Answer::Failed(failure));
        }
        match job {
            Job::Commands(commands) => self.run_commands(turn, ask, commands),
            Job::DeviceQuit { uid, flag } => {
                self.kick_everywhere(turn, &uid, flag);
                answer(turn, ask, Answer::Done);
            }
            Job::List(job) => self.on_list_reply(turn, ask, job, reply),
            Job::Online(_) => {}
            Job::History => match reply {
                Reply::History {
                    messages,
                    more,
                    gap_until,
                } => {
                    answer(
                        turn,
                        ask,
                        Answer::Messages {
                            messages,
                            more,
                            gap_until,
                        },
                    );
                }
                _ => answer(
                    turn,
                    ask,
                    Answer::Failed(Failure::Unavailable("no answer of the channel".to_owned())),
                ),
            },
            Job::Registry => self.answer_registry(turn, ask, &reply),
            Job::Change => registry::answer_change(turn, ask, &reply),
            Job::Letters(job) => self.on_letters_reply(turn, ask, job, reply),
            Job::Keys(job) => self.on_keys_reply(turn, ask, job, reply),
            Job::SendOutcome => match reply {
                Reply::SendOutcome(Some(outcome)) => answer(turn, ask, Answer::Sent(outcome)),
                _ => answer(turn, ask, Answer::NoSuchSend),
            },
        }
    }

    /// Tells every shard of every node that a user's sessions end.
    fn kick_everywhere(&mut self, turn: &mut Turn<'_>, uid: &Uid, flag: Option<DeviceFlag>) {
        let nodes: BTreeSet<_> = self.liveness.nodes().map(|(node, _, _)| node).collect();
        for node in nodes {
            for shard in 0..LANES {
                let message = Peer::KickUser {
                    shard,
                    uid: uid.clone(),
                    flag,
                };
                turn.out.push(Effect::Send { to: node, message });
            }
        }
    }

    /// Requests over their deadline are answered.
    pub(super) fn expire_asks(&mut self, turn: &mut Turn<'_>) {
        while let Some((ask, job)) = self.asks.pop_due(turn.now) {
            match job {
                Job::Online(found) => answer(turn, ask, Answer::Online(found)),
                _ => answer(turn, ask, Answer::Failed(Failure::Timeout)),
            }
        }
    }
}

pub(super) fn answer(turn: &mut Turn<'_>, token: Token, answer: Answer) {
    turn.out.push(Effect::Answer { token, answer });
}

/// The channel of a management request: the id as given, within the rules.
fn channel_of(id: &str, kind: ChannelKind) -> Result<ChannelKey, Failure> {
    if kind.0 == 0 || kind == ChannelKind::INTERNAL {
        return Err(Failure::Invalid(format!(
            "`channel_type` {} is not a channel type",
            kind.0
        )));
    }
    if let Err(error) = channel_id::check_channel(id) {
        return Err(Failure::Invalid(format!("invalid `channel_id`: {error}")));
    }
    Ok(ChannelKey::new(id, kind))
}

/// What an answer that is not the expected one means for the caller.
fn failure_of(reply: &Reply) -> Option<Failure> {
    let rejection = match reply {
        Reply::Proposed(Ok(replicated::Reply::Rejected(rejection))) => *rejection,
        Reply::Proposed(Err(error)) => return Some(unproposed(error)),
        Reply::Busy => return Some(Failure::Busy),
        Reply::NotLeader { .. } | Reply::Unavailable => {
            return Some(Failure::Unavailable("no leader is known now".to_owned()));
        }
        _ => return None,
    };
    Some(match rejection {
        Rejection::Missing => Failure::NotFound("the channel or user does not exist".to_owned()),
        Rejection::Registry(why) => registry::failure_of(why),
        Rejection::Keys(why) => Failure::Keys(why),
        Rejection::Disbanded => Failure::Refused(Reason::DISBANDED),
        Rejection::Conflict | Rejection::Fenced => {
            Failure::Unavailable("changed by someone else at the same time".to_owned())
        }
        Rejection::Malformed
        | Rejection::WrongSlot
        | Rejection::TooMany
        | Rejection::Rule
        | Rejection::Exhausted => Failure::Invalid(format!("refused by the metadata rules ({rejection:?})")),
    })
}

fn unproposed(error: &slot::ProposeError) -> Failure {
    match error {
        slot::ProposeError::Full => Failure::Busy,
        slot::ProposeError::TooLarge { bytes_max } => {
            Failure::Invalid(format!("the change is larger than {bytes_max} bytes: cut it"))
        }
        slot::ProposeError::Unknown => Failure::Timeout,
        slot::ProposeError::NotLeader { .. } | slot::ProposeError::Refused => {
            Failure::Unavailable("no leader is known now".to_owned())
        }
        slot::ProposeError::Stopped => {
            Failure::Unavailable("the metadata group has stopped: see the log".to_owned())
        }
    }
}
