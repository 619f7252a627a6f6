//! Messages that are given up for a binding: kept in the slot of the binding before the cursor passes them.

use super::Shard;
use super::continuation::Then;
use super::groups::ReplyTo;
use super::peer::{Redelivery, Reply, Request};
use super::reads::Purpose;
use super::turn::Turn;
use crate::hooks::cursors::{self, GivenUp};
use crate::plugins::{DeadLetter, Hook, LetterName, OFFLINE_LETTER, Told, WEBHOOK_RUN_MAX, letters_slot};
use crate::replicated;
use crate::slot::{Lane, command};
use crate::types::{ChannelKey, Seq, Token};
use std::sync::Arc;

impl Shard {
    /// Keeps a record that is to be given up.
    pub(super) fn bury(&mut self, turn: &mut Turn<'_>, channel: &ChannelKey, record: &GivenUp) {
        let token = record.token;
        let registry = self.plugins.registry().cloned();
        let bound = registry
            .as_ref()
            .and_then(|registry| registry.consumed_by(&record.consumer));
        let incarnation = self.active(channel).map(|active| active.meta.incarnation);
        let (Some((bound, told)), Some(incarnation)) = (bound, incarnation) else {
            return self.run_failed(channel, token, cursors::Failure::Untried);
        };
        let is_second = told == Told::Offline && bound.binding.hook == Hook::Webhook;
        let letter = DeadLetter {
            binding: Arc::clone(&bound.binding.id),
            name: LetterName {
                binding_incarnation: bound.incarnation | if is_second { OFFLINE_LETTER } else { 0 },
                incarnation,
                seq: record.seq,
            },
            channel: channel.clone(),
            attempts: record.attempts,
            cause: record.cause,
            wall_ms: turn.now.wall_ms,
        };
        let request = Request::Propose {
            group: self.directory.group_of(letters_slot(&letter.binding)),
            lane: Lane::Background,
            command: command::put_dead_letter(turn.now.wall_ms, &letter),
        };
        let then = Then::Buried {
            channel: channel.clone(),
            token,
            seq: record.seq,
        };
        self.call(turn, request, then);
    }

    /// Reads the message of a letter, or of a range, for its binding.
    pub(super) fn read_again(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        reply_to: ReplyTo,
        (binding, what): (Arc<str>, Redelivery),
    ) {
        let current = self.active(channel).map(|active| active.meta.incarnation);
        let is_here = match what {
            Redelivery::Letter(name) => current == Some(name.incarnation),
            Redelivery::Range(first, last) => current.is_some() && first <= last,
        };
        if !is_here {
            return self.reply(turn, reply_to, Reply::Redelivered(None));
        }
        let count = (what.last().0 - what.first().0).saturating_add(1);
        let records_max = u32::try_from(count).map_or(WEBHOOK_RUN_MAX, |count| count.min(WEBHOOK_RUN_MAX));
        let purpose = Purpose::Redelivery {
            reply_to,
            binding,
            what,
        };
        self.read_records(channel, what.first(), records_max, purpose);
    }

    /// The letter is kept, or not: then the consumer is asked once more.
    pub(super) fn on_buried(
        &mut self,
        channel: &ChannelKey,
        (token, seq): (Token, Seq),
        reply: Option<&Reply>,
    ) {
        if matches!(reply, Some(Reply::Proposed(Ok(replicated::Reply::Done)))) {
            self.counters.dead_letters += 1;
            let input = cursors::Input::Done { token, through: seq };
            self.tell_cursors(channel, input);
        } else {
            self.run_failed(channel, token, cursors::Failure::Untried);
        }
    }
}
