//! Plugins that follow a channel after the commit: which bindings a channel has as consumers, what they are handed, and what
//! their answers mean for their cursors.

use super::Shard;
use super::groups::ReplyTo;
use super::peer::{Redelivery, Reply};
use super::plugins::Waits;
use super::step::Step;
use super::turn::Turn;
use crate::channel;
use crate::codec;
use crate::hooks::call::{Answer, Call, Failed, KvChange, Returned, Work};
use crate::hooks::cursors::{self, Cause};
use crate::hooks::offline;
use crate::message::{Message, Record};
use crate::plugins::{Bound, Failure, Hook, KeySource, Registry, Told};
use crate::types::{ChannelKey, Incarnation, Seq, Token};
use std::sync::Arc;

/// A run that a plugin works on.
#[derive(Clone, Debug)]
pub(super) struct Run {
    channel: ChannelKey,
    /// The cursors' name for it.
    token: Token,
    /// How far the channel is done once each of the messages is: those of senders that the binding is not for go with the message
    /// before them.
    ends: Vec<Seq>,
    /// Their positions.
    seqs: Vec<Seq>,
    /// The plugin, and what its changes of keys come from; none when it may make none.
    keys: Option<(Arc<str>, KeySource)>,
}

/// What follows the log of a channel under a registry has changed.
pub(super) fn differ(before: Option<&Arc<Registry>>, after: &Registry) -> bool {
    let of = |registry: &Registry| -> Vec<Arc<Bound>> { registry.following().cloned().collect() };
    of(after) != before.map_or_else(Vec::new, |registry| of(registry))
}

/// A record as a plugin gets it; none when it is no message.
pub(super) fn message(record: Record) -> Option<Message> {
    let mut message = codec::decode_message(record.body).ok()?;
    message.id = record.id;
    message.seq = record.seq;
    Some(message)
}

impl Shard {
    /// Tells the channels that are led here which bindings follow them from now on.
    pub(super) fn follow_all(&mut self) {
        let led = self.channels.iter().filter(|(_, host)| {
            let active = host.active.as_ref();
            active.is_some_and(|active| active.leading.is_some())
        });
        let channels: Vec<ChannelKey> = led.map(|(channel, _)| channel.clone()).collect();
        for channel in channels {
            self.follow(&channel, true);
        }
    }

    /// Tells a channel which bindings follow it. Where it is led already, what the replica knows of their cursors is told again: the
    /// rows on disk may lag behind it.
    pub(super) fn follow(&mut self, channel: &ChannelKey, led: bool) {
        let Some(registry) = self.plugins.registry() else {
            return;
        };
        let consumers = registry.consumers(channel, &self.config.limits);
        let names = consumers.iter().map(|consumer| Arc::clone(&consumer.name));
        self.tell_offline(channel, offline::Input::Consumers(names.collect()));
        self.tell_cursors(channel, cursors::Input::Consumers(consumers));
        if led && let Some(active) = self.active(channel) {
            let known = active.replica.all_cursors();
            self.tell_known_cursors(channel, known);
        }
    }

    /// What the replicas know of the consumers' cursors.
    pub(super) fn tell_known_cursors(&mut self, channel: &ChannelKey, known: channel::Cursors) {
        for (consumer, value) in known {
            if consumer.as_ref() == crate::hooks::OWED.as_bytes() {
                continue;
            }
            if let (Ok(consumer), Some(cursor)) =
                (std::str::from_utf8(&consumer), cursors::Cursor::decode(&value))
            {
                let consumer = Arc::from(consumer);
                self.tell_cursors(channel, cursors::Input::Learned { consumer, cursor });
            }
        }
    }

    pub(super) fn tell_cursors(&mut self, channel: &ChannelKey, input: cursors::Input) {
        self.queue.push_back(Step::Cursors {
            channel: channel.clone(),
            input,
        });
    }

    /// The effect of a run did not come about.
    pub(super) fn run_failed(&mut self, channel: &ChannelKey, token: Token, failure: cursors::Failure) {
        self.tell_cursors(channel, cursors::Input::Failed { token, failure });
    }

    /// Hands a run to the plugin of a binding, under one version of it.
    pub(super) fn hand_to_plugin(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        (token, consumer): (Token, &str),
        records: Vec<Record>,
    ) {
        let first = records.first().map_or(Seq(0), |record| record.seq);
        let last = records.last().map_or(Seq(0), |record| record.seq);
        let registry = self.plugins.registry().cloned();
        let bound = registry
            .as_ref()
            .and_then(|registry| registry.consumed_by(consumer));
        let version = bound.and_then(|(bound, told)| Some((bound, told, bound.version(channel)?.clone())));
        let incarnation = self.active(channel).map(|active| active.meta.incarnation);
        let (Some((bound, told, version)), Some(incarnation)) = (version, incarnation) else {
            // Another registry holds by now: the consumers of the channel are about to change.
            return self.run_failed(channel, token, cursors::Failure::Untried);
        };
        let messages: Option<Vec<Message>> = records.into_iter().map(message).collect();
        let Some(mut messages) = messages else {
            self.counters.damaged += 1;
            return self.run_failed(channel, token, cursors::Failure::Untried);
        };
        messages.retain(|message| bound.binding.takes_sender(&message.draft.from_uid));
        if messages.is_empty() {
            return self.tell_cursors(channel, cursors::Input::Done { token, through: last });
        }
        if told == Told::Offline {
            return messages
                .into_iter()
                .for_each(|message| self.sweep(channel, (token, consumer), message));
        }
        if bound.binding.hook == Hook::Webhook {
            let window = (incarnation, first, last);
            return self.hand_to_webhook(turn, channel, (bound, version), (token, window, messages));
        }
        let seqs: Vec<Seq> = messages.iter().map(|message| message.seq).collect();
        let keys = self.key_source(channel, bound, token);
        let following = messages.iter().skip(1).map(|message| message.seq.previous());
        let ends = following.chain([last]).collect();
        let call = persist_after(bound, version, channel, (incarnation, messages));
        let run = Run {
            channel: channel.clone(),
            token,
            ends,
            seqs,
            keys,
        };
        self.call_plugin(turn, call, Waits::Run(run));
    }

    /// The plugin answered a run.
    pub(super) fn run_returned(&mut self, run: &Run, returned: Returned) {
        let token = run.token;
        match finished(returned, run.ends.len()) {
            Ok((done, changes)) => {
                let through = run.ends[done - 1];
                match (&run.keys, changes.is_empty()) {
                    (_, true) => self.tell_cursors(&run.channel, cursors::Input::Done { token, through }),
                    (Some(keys), false) => {
                        self.keys_caused(&run.channel, (token, through), keys.clone(), (&run.seqs, changes));
                    }
                    (None, false) => self.run_failed(&run.channel, token, not_granted()),
                }
            }
            Err(failure) => self.run_failed(&run.channel, token, failure),
        }
    }

    /// Hands messages to a binding once more, out of order: a dead letter, or a range for a webhook.
    pub(super) fn redeliver(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        reply_to: ReplyTo,
        (binding, what, records): (&str, Redelivery, Vec<Record>),
    ) {
        let registry = self.plugins.registry().cloned();
        let bound = registry.as_ref().and_then(|registry| registry.binding(binding));
        let follows = bound.filter(|bound| match what {
            Redelivery::Letter(name) => bound.binding.hook.follows() && bound.incarnation == name.of().0,
            Redelivery::Range(..) => bound.binding.hook == Hook::Webhook,
        });
        let follows = follows.filter(|bound| bound.disabled.is_none());
        let version = follows.and_then(|bound| Some((bound, bound.version(channel)?.clone())));
        let incarnation = self.active(channel).map(|active| active.meta.incarnation);
        let last = records.last().map(|record| record.seq);
        let messages: Option<Vec<Message>> = records.into_iter().map(message).collect();
        let messages = messages.filter(|messages| !messages.is_empty());
        let (Some((bound, version)), Some(incarnation), Some(messages), Some(last)) =
            (version, incarnation, messages, last)
        else {
            return self.reply(turn, reply_to, Reply::Redelivered(None));
        };
        if what.is_offline() || bound.binding.hook == Hook::Offline {
            let consumer = bound.consumer(Told::Offline, &self.config.limits).name;
            for message in messages {
                self.replay_sweep(turn, channel, reply_to, (Arc::clone(&consumer), message));
            }
            return;
        }
        if bound.binding.hook == Hook::Webhook {
            let window = (incarnation, what.first(), last);
            return self.replay_webhook(turn, channel, (bound, version), (reply_to, window, messages));
        }
        let call = persist_after(bound, version, channel, (incarnation, messages));
        let plugin = bound.binding.exact.then(|| Arc::clone(&bound.binding.plugin));
        self.call_plugin(turn, call, Waits::Redelivery(reply_to, last, plugin));
    }

    /// The plugin answered for the message of a dead letter, which stands here; with the plugin whose keys it may change.
    pub(super) fn redelivery_returned(
        &mut self,
        turn: &mut Turn<'_>,
        (reply_to, seq, plugin): (ReplyTo, Seq, Option<Arc<str>>),
        returned: Returned,
    ) {
        match (finished(returned, 1), plugin) {
            (Ok((_, changes)), _) if changes.is_empty() => {
                self.reply(turn, reply_to, Reply::Redelivered(Some(seq)));
            }
            (Ok((_, changes)), Some(plugin)) => self.replay_changes(turn, (reply_to, seq), plugin, changes),
            _ => self.reply(turn, reply_to, Reply::Redelivered(None)),
        }
    }
}

fn persist_after(
    bound: &Bound,
    version: crate::hooks::call::Version,
    channel: &ChannelKey,
    (incarnation, messages): (Incarnation, Vec<Message>),
) -> Call {
    Call {
        version,
        channel: Some(channel.clone()),
        within: bound.binding.deadline,
        work: Work::PersistAfter {
            binding_incarnation: bound.incarnation,
            incarnation,
            messages,
        },
    }
}

/// What an answer means with changes of keys of a plugin that may make none.
pub(super) fn not_granted() -> cursors::Failure {
    cursors::Failure::Retry {
        after: None,
        cause: Cause::Call(Failure::BadOutput),
    }
}

/// How many of `asked` messages or uids are done, at least one, and what changes they cause; or what the answer means for the cursor. A host
/// that could not run the plugin has tried nothing.
pub(super) fn finished(returned: Returned, asked: usize) -> Result<(usize, Vec<KvChange>), cursors::Failure> {
    let retry = |after, cause| Err(cursors::Failure::Retry { after, cause });
    match returned {
        Ok(Answer::Done { messages: 0, .. }) => retry(None, Cause::Asked),
        Ok(Answer::Done { messages, changes })
            if messages as usize <= asked && changes.iter().all(|change| change.message < messages) =>
        {
            Ok((messages as usize, changes))
        }
        Ok(
            Answer::Done { .. }
            | Answer::Verdicts(_)
            | Answer::Requests(_)
            | Answer::Decision(_)
            | Answer::Response(_),
        ) => retry(None, Cause::Call(Failure::BadOutput)),
        Err(Failed::Call(Failure::Busy | Failure::NotReady | Failure::Host | Failure::Suspended)) => {
            Err(cursors::Failure::Untried)
        }
        Err(Failed::Call(failure)) => retry(None, Cause::Call(failure)),
        // Of webhooks alone.
        Err(Failed::Undelivered { .. } | Failed::Later { .. } | Failed::Gone) => {
            retry(None, Cause::Call(Failure::BadOutput))
        }
        Err(Failed::Retry { after }) => retry(after, Cause::Asked),
        Err(Failed::Busy { after }) => Err(cursors::Failure::Busy { after }),
        Err(Failed::Poison) => Err(cursors::Failure::Poison),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_answer_means() {
        let done = |messages| {
            let changes = Vec::new();
            Ok(Answer::Done { messages, changes })
        };
        assert_eq!(finished(done(2), 3), Ok((2, Vec::new())));
        assert_eq!(finished(done(3), 3), Ok((3, Vec::new())));
        let bad = Err(cursors::Failure::Retry {
            after: None,
            cause: Cause::Call(Failure::BadOutput),
        });
        assert_eq!(finished(done(4), 3), bad);
        assert_eq!(finished(Ok(Answer::Verdicts(Vec::new())), 1), bad);
        let asked = Err(cursors::Failure::Retry {
            after: None,
            cause: Cause::Asked,
        });
        assert_eq!(finished(done(0), 3), asked);
        assert_eq!(finished(Err(Failed::Retry { after: None }), 3), asked);
        let untried = Err(cursors::Failure::Untried);
        for failure in [Failure::NotReady, Failure::Suspended] {
            assert_eq!(finished(Err(Failed::Call(failure)), 3), untried);
        }
        let after = Some(std::time::Duration::from_secs(1));
        let busy = Err(cursors::Failure::Busy { after });
        assert_eq!(finished(Err(Failed::Busy { after }), 3), busy);
        assert_eq!(finished(Err(Failed::Poison), 3), Err(cursors::Failure::Poison));
    }
}
