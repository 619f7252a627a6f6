//! What a delivery is about, and what names it.

use penstock_core::hooks::call::{Call, Window, Work};
use penstock_core::types::{ChannelKey, SlotId, Uid};

/// What a delivery is about.
pub(super) struct About {
    pub(super) binding_incarnation: u64,
    source: Source,
    /// Messages, the uids of a page, or users that came or went.
    pub(super) count: u32,
    /// When the oldest of it happened, ms since 1970.
    pub(super) oldest_ms: u64,
}

/// What names a delivery, besides its binding.
enum Source {
    /// Messages of a channel; for `msg.offline` one message, and recipients who are offline.
    Window(ChannelKey, Window, Vec<Uid>),
    /// A batch of the queue of a slot.
    Batch(SlotId, u64),
}

impl About {
    /// What a call is about; none when it is about nothing that is delivered.
    pub(super) fn of(call: &Call) -> Option<About> {
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        match (&call.work, &call.channel) {
            (
                Work::Webhook {
                    window,
                    messages,
                    uids,
                },
                Some(channel),
            ) => Some(About {
                binding_incarnation: window.binding_incarnation,
                source: Source::Window(channel.clone(), *window, uids.clone()),
                count: count(if uids.is_empty() {
                    messages.len()
                } else {
                    uids.len()
                }),
                oldest_ms: messages.first().map_or(0, |message| message.stamp_ms),
            }),
            (Work::OnlineStatus(batch), _) => Some(About {
                binding_incarnation: batch.binding_incarnation,
                source: Source::Batch(batch.slot, batch.number),
                count: count(batch.statuses.len()),
                oldest_ms: batch.wall_ms,
            }),
            _ => None,
        }
    }

    /// The parts of the ids of its requests: no two deliveries of a binding have the same.
    pub(super) fn parts(&self) -> Vec<Vec<u8>> {
        let numbers = |numbers: &[u64]| {
            numbers
                .iter()
                .map(|number| number.to_be_bytes().to_vec())
                .collect()
        };
        match &self.source {
            Source::Window(channel, window, uids) => {
                let mut parts = vec![channel.id.as_bytes().to_vec(), vec![channel.kind.0]];
                let bounds: Vec<Vec<u8>> = numbers(&[
                    self.binding_incarnation,
                    window.incarnation.0,
                    window.first.0,
                    window.last.0,
                ]);
                parts.extend(bounds);
                parts.extend(uids.iter().map(|uid| uid.as_str().as_bytes().to_vec()));
                parts
            }
            Source::Batch(slot, number) => numbers(&[self.binding_incarnation, u64::from(slot.0), *number]),
        }
    }
}
