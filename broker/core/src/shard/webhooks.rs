//! Webhooks: what a channel hands to them, and what their answers mean for its cursors. That an endpoint is gone for good is told to
//! the controller.

use super::Shard;
use super::continuation::Then;
use super::groups::ReplyTo;
use super::peer::{Reply, Request};
use super::plugins::Waits;
use super::turn::Turn;
use crate::controller::{Nodes, change_registry};
use crate::hooks::call::{Answer, Call, Failed, Returned, Version, Window, Work};
use crate::hooks::cursors::{self, Cause};
use crate::message::Message;
use crate::plugins::{Bound, Change, DisabledBy, Failure};
use crate::slot::Lane;
use crate::types::{ChannelKey, GroupId, Incarnation, Seq, Token, Uid};
use std::sync::Arc;
use std::time::Duration;

/// A request for a replay is waited for so much longer than its delivery may take.
const REPLAY_MARGIN: Duration = Duration::from_millis(500);

/// A delivery that is under way.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    waits: Waiting,
    /// The last position of its window.
    last: Seq,
    /// Its messages, or the uids of its page.
    asked: usize,
    binding: Configured,
}

/// A binding as it is configured: what its endpoint says is about this configuration.
#[derive(Clone, Debug)]
pub(super) struct Configured {
    id: Arc<str>,
    incarnation: u64,
    generation: u64,
}

impl Configured {
    /// This binding.
    pub(super) fn of(bound: &Bound) -> Configured {
        Configured {
            id: Arc::clone(&bound.binding.id),
            incarnation: bound.incarnation,
            generation: bound.generation,
        }
    }
}

/// Who waits for it.
#[derive(Clone, Debug)]
enum Waiting {
    /// The cursors of a channel, under their own name for it.
    Cursors(ChannelKey, Token),
    /// The sweep over offline recipients of a channel, under its own name for it.
    Offline(ChannelKey, Token),
    /// Whoever replays it.
    Replay(ReplyTo),
}

/// The incarnation of the channel, and the bounds of a window in it.
type Place = (Incarnation, Seq, Seq);

impl Shard {
    /// Hands a run to a webhook. The run covers its whole window, also those messages that the binding is not for.
    pub(super) fn hand_to_webhook(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        (bound, version): (&Bound, Version),
        (token, place, messages): (Token, Place, Vec<Message>),
    ) {
        let waits = Waiting::Cursors(channel.clone(), token);
        let within = bound.binding.deadline;
        let work = (messages, Vec::new());
        self.deliver_webhook(turn, channel, (bound, version, within), (waits, place, work));
    }

    /// Delivers a page of offline recipients of a message.
    pub(super) fn deliver_page(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        (bound, version): (&Bound, Version),
        (token, (incarnation, message, uids)): (Token, (Incarnation, Message, Vec<Uid>)),
    ) {
        let waits = Waiting::Offline(channel.clone(), token);
        let place = (incarnation, message.seq, message.seq);
        let within = bound.binding.deadline;
        let work = (vec![message], uids);
        self.deliver_webhook(turn, channel, (bound, version, within), (waits, place, work));
    }

    /// Delivers messages once more, while somebody waits for it.
    pub(super) fn replay_webhook(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        (bound, version): (&Bound, Version),
        (reply_to, place, mut messages): (ReplyTo, Place, Vec<Message>),
    ) {
        messages.retain(|message| bound.binding.takes_sender(&message.draft.from_uid));
        if messages.is_empty() {
            return self.reply(turn, reply_to, Reply::Redelivered(Some(place.2)));
        }
        let patience = self.config.limits.request_timeout.saturating_sub(REPLAY_MARGIN);
        let within = bound.binding.deadline.min(patience);
        let waits = Waiting::Replay(reply_to);
        let work = (messages, Vec::new());
        self.deliver_webhook(turn, channel, (bound, version, within), (waits, place, work));
    }

    fn deliver_webhook(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        (bound, version, within): (&Bound, Version, Duration),
        (waits, (incarnation, first, last), (messages, uids)): (Waiting, Place, (Vec<Message>, Vec<Uid>)),
    ) {
        let delivery = Delivery {
            waits,
            last,
            asked: if uids.is_empty() {
                messages.len()
            } else {
                uids.len()
            },
            binding: Configured::of(bound),
        };
        let call = Call {
            version,
            channel: Some(channel.clone()),
            within,
            work: Work::Webhook {
                window: Window {
                    binding_incarnation: bound.incarnation,
                    incarnation,
                    first,
                    last,
                },
                messages,
                uids,
            },
        };
        self.call_plugin(turn, call, Waits::Webhook(delivery));
    }

    /// A delivery ended.
    pub(super) fn webhook_returned(&mut self, turn: &mut Turn<'_>, delivery: Delivery, returned: Returned) {
        self.note_endpoint(turn, &delivery.binding, &returned);
        let was_refused = matches!(returned, Err(Failed::Undelivered { .. }));
        let failure = failure_of(returned, delivery.asked)
            .filter(|_| !(was_refused && self.config.faults.hooks.undelivered_counts_as_done()));
        match delivery.waits {
            Waiting::Cursors(channel, token) => {
                let input = match failure {
                    None => cursors::Input::Done {
                        token,
                        through: delivery.last,
                    },
                    Some(failure) => cursors::Input::Failed { token, failure },
                };
                self.tell_cursors(&channel, input);
            }
            Waiting::Offline(channel, token) => {
                let result = failure.map_or(Ok(delivery.asked), Err);
                self.page_returned(&channel, token, result);
            }
            Waiting::Replay(reply_to) => {
                let done = failure.is_none().then_some(delivery.last);
                self.reply(turn, reply_to, Reply::Redelivered(done));
            }
        }
    }

    /// Has the binding disabled whose endpoint says that it is gone. If the controller does not hear it, the next attempt finds the
    /// same.
    pub(super) fn note_endpoint(&mut self, turn: &mut Turn<'_>, binding: &Configured, returned: &Returned) {
        if *returned != Err(Failed::Gone) {
            return;
        }
        let change = Change::Disable {
            id: Arc::clone(&binding.id),
            incarnation: binding.incarnation,
            generation: binding.generation,
            by: DisabledBy::Gone,
        };
        let nodes = Nodes { all: &[], down: &[] };
        let request = Request::Propose {
            group: GroupId::CONTROLLER,
            lane: Lane::Background,
            command: change_registry(turn.now.wall_ms, &change, nodes),
        };
        self.call(turn, request, Then::Nothing);
    }
}

/// What the end of a delivery of so many messages or events means for the cursor; none when all of them are done.
pub(super) fn failure_of(returned: Returned, asked: usize) -> Option<cursors::Failure> {
    let retry = |after, cause| Some(cursors::Failure::Retry { after, cause });
    match returned {
        Ok(Answer::Done { messages, changes }) if messages as usize == asked && changes.is_empty() => None,
        Ok(
            Answer::Done { .. }
            | Answer::Verdicts(_)
            | Answer::Requests(_)
            | Answer::Decision(_)
            | Answer::Response(_),
        ) => retry(None, Cause::Call(Failure::BadOutput)),
        Err(Failed::Call(Failure::Busy | Failure::NotReady | Failure::Host | Failure::Suspended)) => {
            Some(cursors::Failure::Untried)
        }
        Err(Failed::Call(failure)) => retry(None, Cause::Call(failure)),
        Err(Failed::Retry { after }) => retry(after, Cause::Asked),
        Err(Failed::Busy { after }) => Some(cursors::Failure::Busy { after }),
        Err(Failed::Poison) => Some(cursors::Failure::Poison),
        Err(Failed::Undelivered { after }) => retry(after, Cause::Undelivered),
        Err(Failed::Later { after }) => Some(cursors::Failure::Later { after }),
        Err(Failed::Gone) => retry(None, Cause::Undelivered),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_end_of_a_delivery_means() {
        let done = |messages| {
            let changes = Vec::new();
            Ok(Answer::Done { messages, changes })
        };
        let retry = |after, cause| Some(cursors::Failure::Retry { after, cause });
        let pause = Duration::from_secs(7);
        assert_eq!(failure_of(done(3), 3), None);
        // A part of the requests is none: the window comes again whole.
        for wrong in [0, 2, 4] {
            let bad = retry(None, Cause::Call(Failure::BadOutput));
            assert_eq!(failure_of(done(wrong), 3), bad);
        }
        let undelivered = Err(Failed::Undelivered { after: Some(pause) });
        assert_eq!(failure_of(undelivered, 3), retry(Some(pause), Cause::Undelivered));
        let later = cursors::Failure::Later { after: pause };
        assert_eq!(failure_of(Err(Failed::Later { after: pause }), 3), Some(later));
        let after = Some(pause);
        let busy = Some(cursors::Failure::Busy { after });
        assert_eq!(failure_of(Err(Failed::Busy { after }), 3), busy);
        assert_eq!(failure_of(Err(Failed::Gone), 3), retry(None, Cause::Undelivered));
        let untried = Err(Failed::Call(Failure::NotReady));
        assert_eq!(failure_of(untried, 3), Some(cursors::Failure::Untried));
        let trap = Err(Failed::Call(Failure::Trap));
        assert_eq!(failure_of(trap, 3), retry(None, Cause::Call(Failure::Trap)));
    }
}
