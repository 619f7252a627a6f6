//! Messages on their way to a guest.

use super::{LAYOUT, MESSAGES_ENTRY, MESSAGES_HEADER};
use penstock_core::message::{Attributes, Draft, Message, MessageFlags};
use penstock_core::types::{ChannelKey, Incarnation};
use std::fmt::Write as _;

/// Bytes and words of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Every string and payload.
    pub(crate) arena: Vec<u8>,
    /// Where they stand.
    pub(crate) index: Vec<u32>,
}

impl Frame {
    /// Begins a frame of `count` entries, of this kind (0 wanted, 1 committed), in the room of the former one.
    fn begin(&mut self, count: usize, kind: u32, arena: usize) {
        let words = MESSAGES_HEADER as usize + count * MESSAGES_ENTRY as usize;
        self.arena.clear();
        self.arena.reserve(arena);
        self.index.clear();
        self.index.reserve(words);
        self.index
            .extend_from_slice(&[LAYOUT, MESSAGES_HEADER, MESSAGES_ENTRY, word(count), kind]);
    }

    /// Makes it the frame of no messages.
    pub(crate) fn fill_empty(&mut self) {
        self.begin(0, 1, 0);
    }

    /// Makes it the frame of drafts of a channel.
    pub(crate) fn fill_wanted(&mut self, channel: &ChannelKey, drafts: &[Draft], wall_ms: u64) {
        let bytes = drafts.iter().map(draft_bytes).sum::<usize>() + channel.id.len();
        self.begin(drafts.len(), 0, bytes);
        let id = self.put(channel.id.as_bytes());
        let stamped = Stamped {
            at_ms: wall_ms,
            ..Stamped::default()
        };
        for draft in drafts {
            self.entry((u32::from(channel.kind.0), id), draft, &stamped);
        }
    }

    /// Makes it the frame of committed messages of a channel.
    pub(crate) fn fill_committed(
        &mut self,
        channel: &ChannelKey,
        incarnation: Incarnation,
        messages: &[Message],
    ) {
        let bytes = messages
            .iter()
            .map(|message| draft_bytes(&message.draft) + channel.id.len() + 64)
            .sum::<usize>();
        self.begin(messages.len(), 1, bytes + channel.id.len());
        let id = self.put(channel.id.as_bytes());
        let mut event = String::new();
        for message in messages {
            event.clear();
            // Writing to a string cannot fail.
            let _ = write!(
                event,
                "{}:{}:{}:{}",
                channel.kind.0, channel.id, incarnation.0, message.seq.0
            );
            let stamped = Stamped {
                id: message.id.0.cast_unsigned(),
                seq: message.seq.0,
                at_ms: message.stamp_ms,
                event: self.put(event.as_bytes()),
            };
            self.entry((u32::from(channel.kind.0), id), &message.draft, &stamped);
        }
    }

    /// Puts bytes into the arena and says where.
    fn put(&mut self, bytes: &[u8]) -> [u32; 2] {
        let at = word(self.arena.len());
        self.arena.extend_from_slice(bytes);
        [at, word(bytes.len())]
    }

    /// Puts names and values into the arena, and says where; nowhere when there are none.
    fn put_attributes(&mut self, attributes: Option<&Attributes>) -> [u32; 2] {
        let Some(attributes) = attributes else {
            return [0, 0];
        };
        let at = self.arena.len();
        for (name, value) in attributes.iter() {
            // A session has far fewer bytes of them than fit (ATTRIBUTES_BYTES_MAX).
            let Ok(length) = u16::try_from(name.len()) else {
                continue;
            };
            self.arena.extend_from_slice(&length.to_le_bytes());
            self.arena.extend_from_slice(name.as_bytes());
            self.arena.extend_from_slice(&word(value.len()).to_le_bytes());
            self.arena.extend_from_slice(value.as_bytes());
        }
        [word(at), word(self.arena.len() - at)]
    }

    fn entry(&mut self, (kind, id): (u32, [u32; 2]), draft: &Draft, stamped: &Stamped) {
        let sender = self.put(draft.from_uid.as_str().as_bytes());
        let payload = self.put(&draft.payload);
        let number = self.put(draft.client_msg_no.as_bytes());
        let topic = self.put(draft.topic.as_bytes());
        let attributes = self.put_attributes(draft.attributes.as_ref());
        let (message, seq, at) = (halves(stamped.id), halves(stamped.seq), halves(stamped.at_ms));
        let entry: [u32; MESSAGES_ENTRY as usize] = [
            id[0],
            id[1],
            kind,
            sender[0],
            sender[1],
            payload[0],
            payload[1],
            number[0],
            number[1],
            topic[0],
            topic[1],
            draft.expire_s,
            flags(draft.flags),
            u32::from(draft.setting),
            message[0],
            message[1],
            seq[0],
            seq[1],
            at[0],
            at[1],
            stamped.event[0],
            stamped.event[1],
            attributes[0],
            attributes[1],
            u32::from(draft.hops),
            0,
        ];
        self.index.extend_from_slice(&entry);
    }
}

/// What a message has once it is committed.
#[derive(Default)]
struct Stamped {
    id: u64,
    seq: u64,
    at_ms: u64,
    event: [u32; 2],
}

fn draft_bytes(draft: &Draft) -> usize {
    draft.from_uid.as_str().len() + draft.payload.len() + draft.client_msg_no.len() + draft.topic.len()
}

fn flags(flags: MessageFlags) -> u32 {
    u32::from(flags.no_persist) | u32::from(flags.red_dot) << 1 | u32::from(flags.sync_once) << 2
}

/// Low half first.
fn halves(number: u64) -> [u32; 2] {
    #[expect(clippy::cast_possible_truncation, reason = "the halves of a number")]
    [number as u32, (number >> 32) as u32]
}

/// A batch stays far below 4 GiB: payloads and batches are bounded long before they come here.
fn word(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
