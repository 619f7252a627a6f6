//! Channels as guests reach them: they publish messages and read committed ones.

use crate::frame::Frame;
use crate::grants::ChannelGrants;
use crate::rates::Rates;
use bytes::Bytes;
use penstock_core::admin::{MessagesAsk, PublishAsk};
use penstock_core::hooks::registry::{Content, HOPS_MAX, Publishing, uid_of};
use penstock_core::message::{Committed, Message};
use penstock_core::permission::Question;
use penstock_core::types::{ChannelKey, ChannelKind, Incarnation, Seq};
use std::sync::Arc;
use std::time::Duration;

/// Messages that one plugin may publish on one node per second, and at once.
const PUBLISHES_PER_S: f64 = 100.0;
/// The same for reads.
const READS_PER_S: f64 = 100.0;
/// Messages of one read.
const READ_MAX: u32 = 100;
/// Bytes of one read, with the first message whatever its size.
const READ_BYTES_MAX: usize = 1 << 20;

/// Why a message is not published. Bounded set: a metrics label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PublishError {
    /// The binding does not grant it, or the hook is none in which plugins publish.
    NotGranted,
    /// The channel does not take it: it is banned or disbanded, the message is too large, a filter refuses it, or there is no such
    /// channel or cause.
    Refused,
    /// Its cause has gone through plugins too often.
    TooManyHops,
    /// The plugin publishes too much.
    Rate,
    /// No answer came in time, or the channel has no leader now: it may be sent, and the same again is the same send.
    Unavailable,
}

impl PublishError {
    /// Its name, as metrics label it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            PublishError::NotGranted => "not-granted",
            PublishError::Refused => "refused",
            PublishError::TooManyHops => "too-many-hops",
            PublishError::Rate => "rate",
            PublishError::Unavailable => "unavailable",
        }
    }
}

/// Why messages are not read. Bounded set: a metrics label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadError {
    /// The binding does not grant it, or the hook is none in which plugins read.
    NotGranted,
    /// No answer came in time, or too many were wanted.
    Unavailable,
}

impl ReadError {
    /// Its name, as metrics label it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ReadError::NotGranted => "not-granted",
            ReadError::Unavailable => "unavailable",
        }
    }
}

/// Where messages go to and come from. Called on a thread of a guest, which waits for the answer.
pub trait Channels: Send + Sync {
    /// Sends a message; what was sent under the same number stands.
    ///
    /// # Errors
    /// Why it is not committed; after [`PublishError::Unavailable`] it may be.
    fn publish(&self, message: PublishAsk, within: Duration) -> Result<(), PublishError>;

    /// Committed messages in order, without those that are not shown any more.
    ///
    /// # Errors
    /// When they cannot be read within this time.
    fn read(&self, wanted: MessagesAsk, within: Duration) -> Result<Vec<Arc<Committed>>, ReadError>;
}

/// The channels of a host that has none.
#[derive(Debug)]
pub struct NoChannels;

impl Channels for NoChannels {
    fn publish(&self, _: PublishAsk, _: Duration) -> Result<(), PublishError> {
        Err(PublishError::Unavailable)
    }

    fn read(&self, _: MessagesAsk, _: Duration) -> Result<Vec<Arc<Committed>>, ReadError> {
        Err(ReadError::Unavailable)
    }
}

/// The way of all guests of a host to channels.
pub(crate) struct Post {
    channels: Arc<dyn Channels>,
    publishes: Rates,
    reads: Rates,
}

/// What a guest wants to publish.
pub(crate) struct Wanted {
    /// Place of the cause in the batch.
    pub(crate) cause: u32,
    pub(crate) channel_id: String,
    pub(crate) kind: ChannelKind,
    pub(crate) payload: Vec<u8>,
    pub(crate) topic: String,
    pub(crate) expire_s: u32,
}

impl Post {
    pub(crate) fn new(channels: Arc<dyn Channels>) -> Post {
        Post {
            channels,
            publishes: Rates::new(PUBLISHES_PER_S),
            reads: Rates::new(READS_PER_S),
        }
    }

    /// Publishes a message of a call, within the time that is left for it; none when too little is.
    pub(crate) fn publish(
        &self,
        plugin: &Arc<str>,
        (call, grants): (Option<&mut Publishing>, &ChannelGrants),
        wanted: Wanted,
        within: Option<Duration>,
    ) -> Result<(), PublishError> {
        let call = call.ok_or(PublishError::NotGranted)?;
        let content = Content {
            channel_id: &wanted.channel_id,
            kind: wanted.kind,
            payload: &wanted.payload,
            topic: &wanted.topic,
            expire_s: wanted.expire_s,
        };
        let ticket = call
            .begin(wanted.cause, &content)
            .map_err(|_| PublishError::Refused)?;
        let (number, hops) = (Arc::clone(&ticket.client_msg_no), ticket.hops);
        let sent = self.send(plugin, grants, wanted, (number, hops, within));
        if sent.is_err() {
            call.failed(&ticket);
        }
        sent
    }

    fn send(
        &self,
        plugin: &Arc<str>,
        grants: &ChannelGrants,
        wanted: Wanted,
        (client_msg_no, hops, within): (Arc<str>, u8, Option<Duration>),
    ) -> Result<(), PublishError> {
        let question = Question::publish(&uid_of(plugin), &wanted.channel_id, wanted.kind);
        let question = question.map_err(|_| PublishError::Refused)?;
        if !grants.has(question.source_channel()) {
            return Err(PublishError::NotGranted);
        }
        if hops > HOPS_MAX {
            return Err(PublishError::TooManyHops);
        }
        let within = within.ok_or(PublishError::Unavailable)?;
        if !self.publishes.admit(plugin) {
            return Err(PublishError::Rate);
        }
        let message = PublishAsk {
            plugin: Arc::clone(plugin),
            channel_id: Arc::from(wanted.channel_id),
            kind: wanted.kind,
            client_msg_no,
            hops,
            expire_s: wanted.expire_s,
            topic: Arc::from(wanted.topic),
            payload: Bytes::from(wanted.payload),
        };
        self.channels.publish(message, within)
    }

    /// Reads messages of a channel as a frame.
    pub(crate) fn read(
        &self,
        (plugin, grants): (&str, &ChannelGrants),
        channel: ChannelKey,
        (from, limit): (u64, u32),
        within: Option<Duration>,
    ) -> Result<Frame, ReadError> {
        if !grants.has(&channel) {
            return Err(ReadError::NotGranted);
        }
        let within = within.ok_or(ReadError::Unavailable)?;
        if !self.reads.admit(plugin) {
            return Err(ReadError::Unavailable);
        }
        let wanted = MessagesAsk {
            channel: channel.clone(),
            from: Seq(from),
            limit: limit.clamp(1, READ_MAX),
        };
        let found = self.channels.read(wanted, within)?;
        let mut frame = Frame::default();
        let incarnation = found.first().map_or(Incarnation(0), |first| first.incarnation);
        frame.fill_committed(&channel, incarnation, &fitting(&found));
        Ok(frame)
    }
}

/// The leading messages that fit one read.
fn fitting(found: &[Arc<Committed>]) -> Vec<Message> {
    let mut bytes = 0;
    let fits = |committed: &&Arc<Committed>| {
        let first = bytes == 0;
        bytes += committed.message.draft.payload.len() + committed.message.draft.topic.len() + 1;
        first || bytes <= READ_BYTES_MAX
    };
    found
        .iter()
        .take_while(fits)
        .map(|committed| committed.message.clone())
        .collect()
}

#[cfg(test)]
#[path = "channels_tests.rs"]
mod tests;
