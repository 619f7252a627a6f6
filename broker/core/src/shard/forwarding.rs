//! Sends on their way to the leader of their channel, one batch at a time.

use super::Shard;
use super::continuation::Then;
use super::ingress::Source;
use super::peer::{Reply, Request};
use super::turn::Turn;
use crate::message::{Draft, Outcome};
use crate::slot::ProposeError;
use crate::types::{ChannelKey, Incarnation, LeaderEpoch, Reason};
use std::collections::VecDeque;
use std::time::Duration;

/// Most messages of one batch (client contract 3.4).
const BATCH_MAX: usize = 128;

/// Sends of one channel that wait for their turn.
#[derive(Debug, Default)]
pub(super) struct Forwarder {
    /// With the time until which each is worth sending.
    waiting: VecDeque<(Source, Draft, Duration)>,
    on_the_way: Vec<Source>,
}

impl Forwarder {
    /// Takes out what has waited too long (SL-6).
    fn take_late(&mut self, now: Duration) -> Vec<Source> {
        let is_late = |deadline: Duration| deadline <= now;
        if !self.waiting.iter().any(|(_, _, deadline)| is_late(*deadline)) {
            return Vec::new();
        }
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let (late, kept): (VecDeque<_>, _) = waiting.partition(|(_, _, deadline)| is_late(*deadline));
        self.waiting = kept;
        late.into_iter().map(|(source, ..)| source).collect()
    }

    /// Takes out the next batch, and until when its first message is worth sending.
    fn take_batch(&mut self, bytes_max: usize) -> (Vec<Draft>, Duration) {
        let mut drafts = Vec::new();
        let mut bytes = 0;
        let until = self
            .waiting
            .front()
            .map_or(Duration::ZERO, |(_, _, until)| *until);
        while let Some((_, draft, _)) = self.waiting.front() {
            bytes += draft.payload.len();
            if !drafts.is_empty() && (drafts.len() >= BATCH_MAX || bytes > bytes_max) {
                break;
            }
            let Some((source, draft, _)) = self.waiting.pop_front() else {
                break;
            };
            self.on_the_way.push(source);
            drafts.push(draft);
        }
        (drafts, until)
    }
}

impl Shard {
    /// Puts a draft into its channel's row.
    pub(super) fn forward(
        &mut self,
        turn: &mut Turn<'_>,
        channel: ChannelKey,
        source: Source,
        (draft, deadline): (Draft, Duration),
    ) {
        let backlog = self.config.limits.channel_backlog;
        let forwarder = self.forwarders.entry(channel.clone()).or_default();
        if forwarder.waiting.len() >= backlog {
            return self.sent(turn, source, Outcome::Refused(Reason::RATE_LIMITED));
        }
        forwarder.waiting.push_back((source, draft, deadline));
        self.forward_next(turn, &channel);
    }

    fn forward_next(&mut self, turn: &mut Turn<'_>, channel: &ChannelKey) {
        let bytes_max = self.config.limits.replicate_bytes;
        let Some(forwarder) = self.forwarders.get_mut(channel) else {
            return;
        };
        if !forwarder.on_the_way.is_empty() {
            return;
        }
        let late = forwarder.take_late(turn.now.monotonic);
        let (drafts, until) = forwarder.take_batch(bytes_max);
        if drafts.is_empty() {
            self.forwarders.remove(channel);
            self.opening.sent(channel);
        }
        for source in late {
            self.sent(turn, source, Outcome::Refused(Reason::RATE_LIMITED));
        }
        if drafts.is_empty() {
            return;
        }
        let request = Request::Append {
            channel: channel.clone(),
            incarnation: Incarnation(0),
            leader_epoch: LeaderEpoch(0),
            drafts,
        };
        let then = Then::Appended {
            channel: channel.clone(),
        };
        self.call_until(turn, request, then, until);
    }

    /// A batch is answered.
    pub(super) fn on_forwarded(&mut self, turn: &mut Turn<'_>, channel: &ChannelKey, reply: Option<Reply>) {
        let Some(forwarder) = self.forwarders.get_mut(channel) else {
            return;
        };
        let sources = std::mem::take(&mut forwarder.on_the_way);
        self.opening.sent(channel);
        let outcomes = outcomes_of(reply, sources.len());
        for (source, outcome) in sources.into_iter().zip(outcomes) {
            self.sent(turn, source, outcome);
        }
        self.forward_next(turn, channel);
    }
}

/// One outcome for each message of a batch. Without an answer it is open what became of them (AP-8).
fn outcomes_of(reply: Option<Reply>, count: usize) -> Vec<Outcome> {
    match reply {
        Some(Reply::Appended(outcomes)) if outcomes.len() == count => outcomes,
        Some(Reply::Busy | Reply::Proposed(Err(ProposeError::Full))) => {
            vec![Outcome::Refused(Reason::RATE_LIMITED); count]
        }
        Some(Reply::NotLeader { .. } | Reply::Unavailable) => {
            vec![Outcome::Refused(Reason::NODE_NOT_MATCH); count]
        }
        Some(_) | None => vec![Outcome::Unknown; count],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::MessageFlags;
    use crate::types::{Token, Uid};
    use bytes::Bytes;
    use std::sync::Arc;

    fn draft() -> Draft {
        Draft {
            from_uid: Uid::new("user"),
            client_msg_no: Arc::from("number"),
            flags: MessageFlags::default(),
            setting: 0,
            expire_s: 0,
            topic: Arc::from(""),
            payload: Bytes::from_static(b"payload"),
            origin: None,
            subscribers: Arc::from([]),
            attributes: None,
            hops: 0,
        }
    }

    /// SL-6: behind a batch that gets no answer nothing waits beyond its own time.
    #[test]
    fn what_has_waited_too_long_is_never_sent() {
        let mut forwarder = Forwarder::default();
        for number in 1..=4 {
            let deadline = Duration::from_secs(number);
            forwarder
                .waiting
                .push_back((Source::Ask(Token(number)), draft(), deadline));
        }
        assert_eq!(forwarder.take_late(Duration::from_millis(2_500)).len(), 2);
        let (drafts, until) = forwarder.take_batch(usize::MAX);
        assert_eq!((drafts.len(), until), (2, Duration::from_secs(3)));
        assert_eq!(forwarder.on_the_way.len(), 2);
    }
}
