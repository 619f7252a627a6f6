//! The oracle outside: it knows what every user asked for and what every user was shown, and nothing of how the cluster
//! works (reliability checks 1 to 8). Every operation has a time of its call, a time of its answer, and an outcome.

mod registers;

pub use registers::{Reading, Registers};

use crate::invariants::ap_2;
use crate::invariants::ap_3::Completions;
use crate::invariants::m_18::Counted;
use crate::invariants::m_19::{Judged, Shown, original};
use crate::invariants::m_19_connect::Entries;
use crate::invariants::online_status::OnlineStatus;
use crate::invariants::pc_1::Followed;
pub use crate::invariants::pc_5::Sessions;
use crate::invariants::pr_4::Notified;
use crate::invariants::s_16::Suspended;
use crate::invariants::s_17::Published;
use bytes::Bytes;
use penstock_core::message::Message;
use penstock_core::types::{ChannelKey, MessageId, Reason};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A rule that was seen broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Rule id or number of the history check.
    pub rule: &'static str,
    /// What was seen.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.rule, self.detail)
    }
}

/// What is known of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No answer yet, or an answer that says nothing.
    Open,
    /// Acknowledged.
    Acknowledged {
        /// The id that was given.
        id: MessageId,
        /// The position that was given.
        seq: u64,
    },
    /// Refused on every attempt: must never be seen.
    Refused,
}

/// One send of one user, with all its attempts.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Index of the sender.
    pub user: usize,
    /// Index of the channel.
    pub channel: usize,
    /// What is sent.
    pub payload: Bytes,
    /// Whether it is to be stored.
    pub persist: bool,
    /// When it was first sent.
    pub invoked: Duration,
    /// The outcome.
    pub state: State,
    /// Attempts so far.
    pub attempts: u32,
    /// Attempts that may have been appended: no definite refusal came for them.
    pub unanswered: u32,
    /// Highest position of the channel that had been acknowledged to anyone when this was first sent.
    floor: u64,
}

/// What has been seen of one channel's log.
#[derive(Debug, Default)]
pub struct Log {
    /// Position → (id, operation) as anyone outside ever saw it.
    pub known: BTreeMap<u64, (MessageId, usize)>,
    /// Highest position acknowledged so far.
    pub acknowledged_through: u64,
}

/// A channel as the oracle knows it.
#[derive(Debug)]
pub struct Channel {
    /// Its canonical key.
    pub key: ChannelKey,
    /// Its log.
    pub log: Log,
}

/// Everything that users did and saw.
#[derive(Debug, Default)]
pub struct Oracle {
    /// All sends.
    pub operations: Vec<Operation>,
    /// All channels.
    pub channels: Vec<Channel>,
    /// Names of the users, by index.
    pub users: Vec<Arc<str>>,
    /// Broken rules; the first ends the run.
    pub violations: Vec<Violation>,
    /// What webhooks were told of who is online.
    pub online_status: OnlineStatus,
    /// What sessions were offered.
    pub sessions: Sessions,
    /// What sessions saw complete.
    pub completions: Completions,
    /// Single-writer registers.
    pub registers: Registers,
    /// What before-send stages were seen to do.
    pub judged: Judged,
    /// Whom gates have accepted.
    pub entries: Entries,
    /// Which versions may not be called, and where.
    pub suspended: Suspended,
    /// What bindings that follow channels have done.
    pub followed: Followed,
    /// Of which offline recipients bindings were told.
    pub notified: Notified,
    /// What a plugin has published.
    pub published: Published,
    /// What the keys of plugins count.
    pub counted: Counted,
    by_key: BTreeMap<ChannelKey, usize>,
    /// Acknowledged sends.
    pub acknowledged: u64,
    /// Retries that were answered with what their first attempt had got.
    pub deduplicated: u64,
}

impl Oracle {
    /// Notes a broken rule.
    pub fn violate(&mut self, rule: &'static str, detail: String) {
        self.violations.push(Violation { rule, detail });
    }

    /// Adds a channel and returns its index.
    pub fn add_channel(&mut self, key: ChannelKey) -> usize {
        let index = self.channels.len();
        self.by_key.insert(key.clone(), index);
        self.channels.push(Channel {
            key,
            log: Log::default(),
        });
        index
    }

    /// The index of a channel.
    #[must_use]
    pub fn channel(&self, key: &ChannelKey) -> Option<usize> {
        self.by_key.get(key).copied()
    }

    /// A user decides to send something. The number that names it is [`number`] of the index returned.
    pub fn invoke(
        &mut self,
        now: Duration,
        user: usize,
        channel: usize,
        persist: bool,
        padding: usize,
    ) -> usize {
        let index = self.operations.len();
        let mut text = format!("{index}:");
        text.extend(std::iter::repeat_n('.', padding));
        self.operations.push(Operation {
            user,
            channel,
            payload: Bytes::from(text.into_bytes()),
            persist,
            invoked: now,
            state: State::Open,
            attempts: 0,
            unanswered: 0,
            floor: self.channels[channel].log.acknowledged_through,
        });
        index
    }

    /// An attempt leaves the client.
    pub fn attempt(&mut self, operation: usize) {
        let operation = &mut self.operations[operation];
        operation.attempts += 1;
        operation.unanswered += 1;
    }

    /// An attempt was answered with success.
    pub fn acknowledge(&mut self, operation: usize, id: MessageId, seq: u64) {
        let known = self.operations[operation].clone();
        self.operations[operation].unanswered = known.unanswered.saturating_sub(1);
        if known.persist && seq == 0 {
            return self.violate("AP-1", format!("{} was stored at position 0", number(operation)));
        }
        match known.state {
            State::Acknowledged { id: first, seq: at } => {
                self.deduplicated += u64::from(known.persist);
                if known.persist
                    && let Err(detail) = ap_2::repeated(&number(operation), (first, at), (id, seq))
                {
                    self.violate("AP-2", detail);
                }
                return;
            }
            State::Refused => {
                let detail = format!(
                    "{} was refused for good and is acknowledged now",
                    number(operation)
                );
                return self.violate("check-4", detail);
            }
            State::Open => {}
        }
        self.operations[operation].state = State::Acknowledged { id, seq };
        self.acknowledged += 1;
        if !known.persist {
            return;
        }
        // Real time: what was acknowledged before this was sent comes before it.
        if seq <= known.floor {
            let detail = format!(
                "{} got {seq} though {} was acknowledged before it was sent",
                number(operation),
                known.floor
            );
            self.violate("check-3", detail);
        }
        let log = &mut self.channels[known.channel].log;
        log.acknowledged_through = log.acknowledged_through.max(seq);
        self.note(known.channel, seq, id, operation);
    }

    /// An attempt was refused: this attempt was not appended.
    pub fn refuse(&mut self, operation: usize, reason: Reason) {
        let state = &mut self.operations[operation];
        state.unanswered = state.unanswered.saturating_sub(1);
        let acknowledged = matches!(state.state, State::Acknowledged { .. });
        // What was not stored is judged again when it comes again.
        if acknowledged && state.persist && !may_be_retried(reason) {
            let detail = format!(
                "{} is acknowledged, a retry is refused with {reason:?}",
                number(operation)
            );
            self.violate("AP-2", detail);
        }
    }

    /// The client gives a send up. Without an open attempt its record must never be seen.
    pub fn abandon(&mut self, operation: usize) {
        let operation = &mut self.operations[operation];
        if operation.state == State::Open && operation.unanswered == 0 {
            operation.state = State::Refused;
        }
    }

    /// Somebody was shown a stored message: a session, a reader of history, or a replica at the end.
    pub fn saw(&mut self, key: &ChannelKey, message: &Message, who: &str) {
        let seq = message.seq.0;
        let Some(operation) =
            index(&message.draft.client_msg_no).filter(|&index| index < self.operations.len())
        else {
            let detail = format!(
                "{who} sees {:?} in {key}, which nobody sent",
                message.draft.client_msg_no
            );
            return self.violate("check-4", detail);
        };
        let sent = &self.operations[operation];
        let channel = &self.channels[sent.channel].key;
        let detail = if channel != key {
            Some(format!(
                "{who} sees {} in {key}, it was sent to {channel}",
                number(operation)
            ))
        } else if sent.payload != original(&message.draft.payload) {
            Some(format!(
                "{who} sees other bytes in {} than were sent",
                number(operation)
            ))
        } else if self.users[sent.user].as_ref() != message.draft.from_uid.as_str() {
            Some(format!("{who} sees {} from another user", number(operation)))
        } else if sent.state == State::Refused {
            Some(format!(
                "{who} sees {} at {seq} of {key}, which was refused",
                number(operation)
            ))
        } else if seq > 0 && !sent.persist {
            Some(format!(
                "{who} sees {} stored, which was not to be",
                number(operation)
            ))
        } else {
            None
        };
        if let Some(detail) = detail {
            return self.violate("check-4", detail);
        }
        let shown = Shown {
            operation,
            invoked: sent.invoked,
            channel: key,
            from: &message.draft.from_uid,
            payload: &message.draft.payload,
        };
        if let Err(detail) = self.judged.shown(shown) {
            return self.violate("M-19", detail);
        }
        if seq > 0 {
            self.note(sent.channel, seq, message.id, operation);
        }
    }

    /// What stands at a position stays, and an operation stands at one position only.
    fn note(&mut self, channel: usize, seq: u64, id: MessageId, operation: usize) {
        let known = self.channels[channel].log.known.insert(seq, (id, operation));
        let key = &self.channels[channel].key;
        if let Some(before) = known
            && before != (id, operation)
        {
            let (was, is) = (number(before.1), number(operation));
            let detail = format!(
                "{key} held {was} ({}) at {seq} and now holds {is} ({id})",
                before.0
            );
            return self.violate("check-1", detail);
        }
        if let State::Acknowledged { seq: at, .. } = self.operations[operation].state
            && at != seq
        {
            let detail = format!(
                "{} is acknowledged at {at} of {key} and also stands at {seq}",
                number(operation)
            );
            self.violate("check-2", detail);
        }
    }

    /// Every acknowledged send of a channel as (position, id, operation).
    pub fn acknowledged_in(&self, channel: usize) -> impl Iterator<Item = (u64, MessageId, usize)> + '_ {
        self.operations
            .iter()
            .enumerate()
            .filter(move |(_, operation)| operation.channel == channel && operation.persist)
            .filter_map(|(index, operation)| match operation.state {
                State::Acknowledged { id, seq } => Some((seq, id, index)),
                _ => None,
            })
    }
}

/// Whether a refusal says "later" rather than "no" (AP-8).
#[must_use]
pub fn may_be_retried(reason: Reason) -> bool {
    [Reason::NODE_NOT_MATCH, Reason::RATE_LIMITED, Reason::SYSTEM_ERROR].contains(&reason)
}

/// The client message number of an operation.
#[must_use]
pub fn number(operation: usize) -> String {
    format!("op{operation}")
}

/// The operation that a client message number names.
#[must_use]
pub fn index(number: &str) -> Option<usize> {
    number.strip_prefix("op")?.parse().ok()
}

#[cfg(test)]
mod tests;
