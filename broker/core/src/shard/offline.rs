//! Consumers that are told of offline recipients: their machine's questions go to the members, to presence and to the plugin, and what
//! comes of a message goes to the cursors, or to who replays it.

use super::Shard;
use super::continuation::Lookup;
use super::followers::{finished, not_granted};
use super::groups::ReplyTo;
use super::members::Reader;
use super::peer::Reply;
use super::plugins::Waits;
use super::step::Step;
use super::turn::Turn;
use crate::hooks::call::{Call, Returned, Work};
use crate::hooks::cursors;
use crate::hooks::offline::{Attempt, Input, Output};
use crate::message::Message;
use crate::plugins::Hook;
use crate::types::{ChannelKey, Seq, Token, Uid};
use std::sync::Arc;

/// Messages of one channel that are replayed at once.
const REPLAYS_MAX: usize = 16;

/// A page that a plugin has.
#[derive(Clone, Debug)]
pub(super) struct Handed {
    channel: ChannelKey,
    /// The machine's name for it.
    token: Token,
    uids: usize,
}

impl Shard {
    /// Steps a channel's sweeps.
    pub(super) fn offline_input(&mut self, turn: &mut Turn<'_>, channel: &ChannelKey, input: Input) {
        let Some(active) = self.active(channel) else {
            return;
        };
        let mut outputs = Vec::new();
        active.offline.handle(turn.now, input, &mut outputs);
        self.offline_outputs(turn, channel, outputs);
        self.note_deadline(channel);
    }

    pub(super) fn offline_outputs(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        outputs: Vec<Output>,
    ) {
        for output in outputs {
            match output {
                Output::Members {
                    token,
                    channel: of,
                    after,
                    members_max,
                } => {
                    let reader = Reader::Offline(token);
                    self.read_members(turn, channel, reader, (&of, 0), (after, members_max));
                }
                Output::Lookup { token, slots, again } => {
                    self.counters.presence_retries += u64::from(again);
                    let channel = channel.clone();
                    self.lookup(turn, slots, Lookup::Offline { channel, token });
                }
                Output::Call {
                    token,
                    attempt,
                    message,
                    uids,
                } => self.hand_uids(turn, channel, (token, &attempt), (&message, uids)),
                Output::Done { attempt, seq } => self.sweep_ended(turn, channel, attempt, Ok(seq)),
                Output::Failed { attempt, failure } => {
                    self.sweep_ended(turn, channel, attempt, Err(failure));
                }
            }
        }
    }

    pub(super) fn tell_offline(&mut self, channel: &ChannelKey, input: Input) {
        self.queue.push_back(Step::Offline {
            channel: channel.clone(),
            input,
        });
    }

    /// A consumer comes to a message.
    pub(super) fn sweep(&mut self, channel: &ChannelKey, (run, consumer): (Token, &str), message: Message) {
        let attempt = Attempt {
            consumer: Arc::from(consumer),
            run,
            single: false,
        };
        let message = Arc::new(message);
        self.tell_offline(channel, Input::Begin { attempt, message });
    }

    /// The message of a dead letter is handed to a consumer once more.
    pub(super) fn replay_sweep(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        reply_to: ReplyTo,
        (consumer, message): (Arc<str>, Message),
    ) {
        let run = self.next_token();
        let Some(active) = self.active(channel) else {
            return;
        };
        if active.offline_replays.len() >= REPLAYS_MAX {
            return self.reply(turn, reply_to, Reply::Redelivered(None));
        }
        active.offline_replays.insert(run, (reply_to, consumer));
        let attempt = Attempt {
            consumer: Arc::from(format!("replay/{}", run.0)),
            run,
            single: true,
        };
        let message = Arc::new(message);
        self.tell_offline(channel, Input::Begin { attempt, message });
    }

    /// Hands a page to the plugin, under the version that runs in the channel now.
    fn hand_uids(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        (token, attempt): (Token, &Attempt),
        (message, uids): (&Message, Vec<Uid>),
    ) {
        let Some(active) = self.active(channel) else {
            return;
        };
        let replayed = active.offline_replays.get(&attempt.run);
        let consumer = match replayed.filter(|_| attempt.single) {
            Some((_, consumer)) => Arc::clone(consumer),
            None => Arc::clone(&attempt.consumer),
        };
        let incarnation = active.meta.incarnation;
        let registry = self.plugins.registry().cloned();
        let bound = registry
            .as_ref()
            .and_then(|registry| registry.consumed_by(&consumer));
        let bound = bound.map(|(bound, _)| bound);
        let bound = bound.filter(|bound| bound.disabled.is_none());
        let version = bound.and_then(|bound| Some((bound, bound.version(channel)?.clone())));
        let Some((bound, version)) = version else {
            // Another registry holds by now: the consumers of the channel are about to change.
            let result = Err(cursors::Failure::Untried);
            return self.tell_offline(channel, Input::Returned { token, result });
        };
        if bound.binding.hook == Hook::Webhook {
            let page = (incarnation, message.clone(), uids);
            return self.deliver_page(turn, channel, (bound, version), (token, page));
        }
        let handed = Handed {
            channel: channel.clone(),
            token,
            uids: uids.len(),
        };
        let call = Call {
            version,
            channel: Some(channel.clone()),
            within: bound.binding.deadline,
            work: Work::Offline {
                incarnation,
                message: Box::new(message.clone()),
                uids,
            },
        };
        self.call_plugin(turn, call, Waits::Offline(handed));
    }

    /// The plugin answered for a page.
    pub(super) fn uids_returned(&mut self, handed: &Handed, returned: Returned) {
        let result = match finished(returned, handed.uids) {
            Ok((done, changes)) if changes.is_empty() => Ok(done),
            Ok(_) => Err(not_granted()),
            Err(failure) => Err(failure),
        };
        self.page_returned(&handed.channel, handed.token, result);
    }

    /// It is known what became of a page.
    pub(super) fn page_returned(
        &mut self,
        channel: &ChannelKey,
        token: Token,
        result: Result<usize, cursors::Failure>,
    ) {
        let done = *result.as_ref().unwrap_or(&0);
        self.counters.offline_uids += u64::try_from(done).unwrap_or(u64::MAX);
        self.tell_offline(channel, Input::Returned { token, result });
    }

    /// An attempt at a message is over.
    fn sweep_ended(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        attempt: Attempt,
        result: Result<Seq, cursors::Failure>,
    ) {
        let token = attempt.run;
        if attempt.single {
            let replay = self
                .active(channel)
                .and_then(|active| active.offline_replays.remove(&token));
            if let Some((reply_to, _)) = replay {
                self.reply(turn, reply_to, Reply::Redelivered(result.ok()));
            }
            return;
        }
        match result {
            Ok(through) => self.tell_cursors(channel, cursors::Input::Done { token, through }),
            Err(failure) => self.run_failed(channel, token, failure),
        }
    }
}
