//! `publish` and `messages`. The thread of the guest waits for the answers, so that their time counts as the guest's.

use super::{State, interface};
use crate::channels::{PublishError, ReadError, Wanted};
use penstock_core::types::{ChannelKey, ChannelKind};
use std::time::{Duration, Instant};
use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Lift, Linker, Lower};

/// Longest wait for one answer.
const WITHIN: Duration = Duration::from_secs(5);
/// The last part of a call's time, of so many, is for its answer: a guest that is told that there is no time left can still say how
/// far it came.
const SHARES: u32 = 4;

/// Why a message is not published, as guests see it.
#[derive(Clone, Copy, ComponentType, Lower)]
#[component(enum)]
#[repr(u8)]
enum SendFailed {
    #[component(name = "not-granted")]
    NotGranted,
    #[component(name = "refused")]
    Refused,
    #[component(name = "too-many-hops")]
    TooManyHops,
    #[component(name = "rate")]
    Rate,
    #[component(name = "unavailable")]
    Unavailable,
}

impl From<PublishError> for SendFailed {
    fn from(error: PublishError) -> SendFailed {
        match error {
            PublishError::NotGranted => SendFailed::NotGranted,
            PublishError::Refused => SendFailed::Refused,
            PublishError::TooManyHops => SendFailed::TooManyHops,
            PublishError::Rate => SendFailed::Rate,
            PublishError::Unavailable => SendFailed::Unavailable,
        }
    }
}

/// Why messages are not read, as guests see it.
#[derive(Clone, Copy, ComponentType, Lower)]
#[component(enum)]
#[repr(u8)]
enum ReadFailed {
    #[component(name = "not-granted")]
    NotGranted,
    #[component(name = "unavailable")]
    Unavailable,
}

impl From<ReadError> for ReadFailed {
    fn from(error: ReadError) -> ReadFailed {
        match error {
            ReadError::NotGranted => ReadFailed::NotGranted,
            ReadError::Unavailable => ReadFailed::Unavailable,
        }
    }
}

/// A message that a guest publishes.
#[derive(ComponentType, Lift)]
#[component(record)]
struct Outgoing {
    cause: u32,
    #[component(name = "channel-id")]
    channel_id: String,
    #[component(name = "channel-kind")]
    channel_kind: u8,
    payload: Vec<u8>,
    topic: String,
    #[component(name = "expire-seconds")]
    expire_seconds: u32,
}

/// A frame that a guest reads.
type Read = Result<(Vec<u8>, Vec<u32>), ReadFailed>;

impl State {
    /// Time that a guest may wait for a channel; none when the rest of the call's time is for its answer.
    fn left_for_channels(&self) -> Option<Duration> {
        let left = self.until.checked_duration_since(Instant::now())?;
        let left = left.checked_sub(self.within / SHARES)?;
        (!left.is_zero()).then_some(left.min(WITHIN))
    }

    fn publish(&mut self, message: Outgoing) -> Result<(), SendFailed> {
        let within = self.left_for_channels();
        let wanted = Wanted {
            cause: message.cause,
            channel_id: message.channel_id,
            kind: ChannelKind(message.channel_kind),
            payload: message.payload,
            topic: message.topic,
            expire_s: message.expire_seconds,
        };
        let call = (self.publishing.as_mut(), &self.granted.publish);
        let began = Instant::now();
        let sent = self.post.publish(&self.plugin, call, wanted, within);
        self.board.count(|status| {
            status.host_s += began.elapsed().as_secs_f64();
            match &sent {
                Ok(()) => status.published += 1,
                Err(error) => *status.publish_errors.entry(error.name()).or_default() += 1,
            }
        });
        sent.map_err(SendFailed::from)
    }

    fn read(&self, channel: ChannelKey, part: (u64, u32)) -> Read {
        let began = Instant::now();
        let found = if self.publishing.is_some() {
            let reader = (&*self.plugin, &self.granted.messages);
            self.post.read(reader, channel, part, self.left_for_channels())
        } else {
            Err(ReadError::NotGranted)
        };
        self.board.count(|status| {
            status.host_s += began.elapsed().as_secs_f64();
            match &found {
                Ok(_) => status.reads += 1,
                Err(error) => *status.read_errors.entry(error.name()).or_default() += 1,
            }
        });
        let frame = found.map_err(ReadFailed::from)?;
        Ok((frame.arena, frame.index))
    }
}

/// Publishes.
pub(super) fn link_publish(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.instance(&interface("publish"))?.func_wrap(
        "send",
        |mut store: StoreContextMut<'_, State>, (message,): (Outgoing,)| {
            Ok((store.data_mut().publish(message),))
        },
    )
}

/// Reads.
pub(super) fn link_messages(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.instance(&interface("messages"))?.func_wrap(
        "read",
        |store: StoreContextMut<'_, State>, (id, kind, from, limit): (String, u8, u64, u32)| {
            let channel = ChannelKey::new(&id, ChannelKind(kind));
            Ok((store.data().read(channel, (from, limit)),))
        },
    )
}
