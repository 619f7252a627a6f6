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

/// Most messages of one batch (client contract 3.4).
const BATCH_MAX: usize = 128;

/// Sends of one channel that wait for their turn.
#[derive(Debug, Default)]
pub(super) struct Forwarder {
    waiting: VecDeque<(Source, Draft)>,
    on_the_way: Vec<Source>,
}

impl Shard {
    /// Puts a draft into its channel's row.
    pub(super) fn forward(&mut self, turn: &mut Turn<'_>, channel: ChannelKey, source: Source, draft: Draft) {
        let backlog = self.config.limits.channel_backlog;
        let forwarder = self.forwarders.entry(channel.clone()).or_default();
        if forwarder.waiting.len() >= backlog {
            return self.sent(turn, source, Outcome::Refused(Reason::RATE_LIMITED));
        }
        forwarder.waiting.push_back((source, draft));
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
        let mut drafts = Vec::new();
        let mut bytes = 0;
        while let Some((_, draft)) = forwarder.waiting.front() {
            bytes += draft.payload.len();
            if !drafts.is_empty() && (drafts.len() >= BATCH_MAX || bytes > bytes_max) {
                break;
            }
            let Some((source, draft)) = forwarder.waiting.pop_front() else {
                break;
            };
            forwarder.on_the_way.push(source);
            drafts.push(draft);
        }
        if drafts.is_empty() {
            self.forwarders.remove(channel);
            return;
        }
        let request = Request::Append {
            channel: channel.clone(),
            incarnation: Incarnation(0),
            leader_epoch: LeaderEpoch(0),
            drafts,
        };
        self.call(
            turn,
            request,
            Then::Appended {
                channel: channel.clone(),
            },
        );
    }

    /// A batch is answered.
    pub(super) fn on_forwarded(&mut self, turn: &mut Turn<'_>, channel: &ChannelKey, reply: Option<Reply>) {
        let Some(forwarder) = self.forwarders.get_mut(channel) else {
            return;
        };
        let sources = std::mem::take(&mut forwarder.on_the_way);
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
