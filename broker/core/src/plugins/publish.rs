//! What plugins publish because of messages: the number of each send, and how often a message may go through plugins (S17).

use crate::hooks::faults::Faults;
use crate::message::Message;
use crate::types::{ChannelKey, ChannelKind, Incarnation, Seq, Uid};
use penstock_wire::channel_id;
use sha2::{Digest as _, Sha256};
use std::sync::Arc;

/// How often a message may go through plugins: an answer to an answer to an answer is the last one.
pub const HOPS_MAX: u8 = 3;
/// Sends of one call; a longer one has to be cut by the plugin.
pub const SENDS_MAX: usize = 4_096;

/// The uid that a plugin sends as.
#[must_use]
pub fn uid_of(plugin: &str) -> Uid {
    Uid::new(&channel_id::plugin_uid(plugin))
}

/// Where the messages of a call come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The binding.
    pub binding: Arc<str>,
    /// Revision of the registry at the binding's creation.
    pub binding_incarnation: u64,
    /// The channel.
    pub channel: ChannelKey,
    /// Which creation of it.
    pub incarnation: Incarnation,
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    /// The channel, as the plugin names it.
    pub channel_id: &'a str,
    /// Its kind.
    pub kind: ChannelKind,
    /// Payload.
    pub payload: &'a [u8],
    /// Topic.
    pub topic: &'a str,
    /// Expiry, s.
    pub expire_s: u32,
}

/// A send that is under way.
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Its idempotency number.
    pub client_msg_no: Arc<str>,
    /// Times that the message went through a plugin, this one included.
    pub hops: u8,
    cause: usize,
    ordinal: u32,
    digest: [u8; 32],
}

/// Why there is no send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTicket {
    /// The batch has no message at this place.
    NoCause,
    /// The call has sent as much as it may.
    TooMany,
}

/// What one call of a plugin is about, and what it has sent because of it.
///
/// The number of a send is made of the plugin, the binding and its creation, the channel of the cause and its creation, the position
/// of the cause, and how many sends the cause had before in this call. Nothing of it depends on how batches are cut, on the version
/// of the plugin, or on the node. A send that failed and comes again unchanged is the same send.
#[derive(Debug)]
pub struct Publishing {
    plugin: Arc<str>,
    source: Source,
    causes: Vec<Cause>,
    sends: usize,
    faults: Faults,
}

#[derive(Debug)]
struct Cause {
    seq: Seq,
    hops: u8,
    sends: u32,
    /// Place and content of those that failed.
    failed: Vec<(u32, [u8; 32])>,
}

impl Cause {
    fn new(seq: Seq, hops: u8) -> Cause {
        Cause {
            seq,
            hops,
            sends: 0,
            failed: Vec::new(),
        }
    }
}

impl Publishing {
    /// A call about committed messages.
    #[must_use]
    pub fn about(plugin: Arc<str>, source: Source, messages: &[Message], faults: Faults) -> Publishing {
        let causes = messages
            .iter()
            .map(|message| Cause::new(message.seq, message.draft.hops));
        Publishing {
            plugin,
            source,
            causes: causes.collect(),
            sends: 0,
            faults,
        }
    }

    /// The plugin wants to send this because of the message at this place of the batch. Its place among the sends of the cause is
    /// taken whatever becomes of it: what is refused today may be granted when the message is handed out again.
    ///
    /// # Errors
    /// When there is no such message, or it was too much.
    pub fn begin(&mut self, cause: u32, content: &Content<'_>) -> Result<Ticket, NoTicket> {
        let at = cause as usize;
        let cause = self.causes.get_mut(at).ok_or(NoTicket::NoCause)?;
        let digest = digest(content);
        let again = cause.failed.iter().position(|(_, failed)| *failed == digest);
        let ordinal = match again {
            Some(failed) => cause.failed.swap_remove(failed).0,
            None if self.sends >= SENDS_MAX => return Err(NoTicket::TooMany),
            None => {
                self.sends += 1;
                cause.sends += 1;
                cause.sends - 1
            }
        };
        let hops = if self.faults.hops_not_counted() {
            1
        } else {
            cause.hops.saturating_add(1)
        };
        let position = if self.faults.number_by_place() {
            at as u64
        } else {
            cause.seq.0
        };
        let number = number(&self.plugin, &self.source, position, ordinal);
        Ok(Ticket {
            client_msg_no: Arc::from(number),
            hops,
            cause: at,
            ordinal,
            digest,
        })
    }

    /// A send did not come about, or nobody knows: the same again is the same send.
    pub fn failed(&mut self, ticket: &Ticket) {
        if let Some(cause) = self.causes.get_mut(ticket.cause) {
            cause.failed.push((ticket.ordinal, ticket.digest));
        }
    }
}

fn digest(content: &Content<'_>) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update([content.kind.0]);
    hasher.update(content.expire_s.to_be_bytes());
    for part in [
        content.channel_id.as_bytes(),
        content.topic.as_bytes(),
        content.payload,
    ] {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

/// 128 bits in hexadecimal digits.
fn number(plugin: &str, source: &Source, position: u64, ordinal: u32) -> String {
    let mut hasher = Sha256::new();
    for part in [plugin, &*source.binding, &*source.channel.id] {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hasher.update(source.binding_incarnation.to_be_bytes());
    hasher.update([source.channel.kind.0]);
    hasher.update(source.incarnation.0.to_be_bytes());
    hasher.update(position.to_be_bytes());
    hasher.update(ordinal.to_be_bytes());
    let hash = hasher.finalize();
    hash[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::decode_message;
    use bytes::Bytes;
    use std::collections::BTreeSet;

    fn message(seq: u64, hops: u8) -> Message {
        let mut message = decode_message(Bytes::new()).expect("an empty one");
        message.seq = Seq(seq);
        message.draft.hops = hops;
        message
    }

    fn source() -> Source {
        Source {
            binding: Arc::from("b"),
            binding_incarnation: 4,
            channel: ChannelKey::new("room", ChannelKind::GROUP),
            incarnation: Incarnation(9),
        }
    }

    fn about(seqs: &[u64]) -> Publishing {
        let messages: Vec<Message> = seqs.iter().map(|&seq| message(seq, 0)).collect();
        Publishing::about(Arc::from("p"), source(), &messages, Faults::default())
    }

    fn content(text: &str) -> Content<'_> {
        Content {
            channel_id: "hall",
            kind: ChannelKind::GROUP,
            payload: text.as_bytes(),
            topic: "",
            expire_s: 0,
        }
    }

    fn numbers(publishing: &mut Publishing, sends: &[(u32, &str)]) -> Vec<Arc<str>> {
        let number = |&(cause, text): &(u32, &str)| {
            let ticket = publishing.begin(cause, &content(text)).expect("a ticket");
            ticket.client_msg_no
        };
        sends.iter().map(number).collect()
    }

    /// AP-2: what a redelivery sends again has the number that it had, however the batches were cut.
    #[test]
    fn a_number_depends_on_the_message_and_not_on_its_batch() {
        let whole = numbers(&mut about(&[5, 6, 7]), &[(0, "a"), (1, "b"), (1, "c"), (2, "d")]);
        assert_eq!(
            numbers(&mut about(&[6, 7]), &[(0, "b"), (0, "c"), (1, "d")]),
            whole[1..]
        );
        // In another order over the causes, and with other words: the place among the sends of a cause is what counts.
        assert_eq!(
            numbers(&mut about(&[6, 7]), &[(1, "x"), (0, "y")]),
            [whole[3].clone(), whole[1].clone()]
        );
        assert_eq!(whole.iter().collect::<BTreeSet<_>>().len(), 4);
        assert!(whole.iter().all(|number| number.len() == 32));
    }

    #[test]
    fn two_bindings_creations_and_channels_do_not_share_numbers() {
        let other = |change: fn(&mut Source)| {
            let mut source = source();
            change(&mut source);
            let messages = [message(5, 0)];
            let mut publishing = Publishing::about(Arc::from("p"), source, &messages, Faults::default());
            numbers(&mut publishing, &[(0, "a")]).remove(0)
        };
        let all: BTreeSet<Arc<str>> = [
            other(|_| {}),
            other(|source| source.binding = Arc::from("c")),
            other(|source| source.binding_incarnation = 5),
            other(|source| source.channel = ChannelKey::new("room", ChannelKind::PERSON)),
            other(|source| source.channel = ChannelKey::new("hall", ChannelKind::GROUP)),
            other(|source| source.incarnation = Incarnation(10)),
        ]
        .into();
        assert_eq!(all.len(), 6);
    }

    #[test]
    fn what_failed_and_comes_again_unchanged_is_the_same_send() {
        let mut publishing = about(&[5]);
        let first = publishing.begin(0, &content("a")).expect("a ticket");
        publishing.failed(&first);
        let other = publishing.begin(0, &content("b")).expect("a ticket");
        let again = publishing.begin(0, &content("a")).expect("a ticket");
        assert_eq!(first, again);
        assert_ne!(first.client_msg_no, other.client_msg_no);
        // What went well and is wanted a second time is a second one.
        let second = publishing.begin(0, &content("b")).expect("a ticket");
        assert_ne!(other.client_msg_no, second.client_msg_no);
        assert_eq!(publishing.begin(1, &content("a")), Err(NoTicket::NoCause));
    }

    #[test]
    fn hops_are_counted_and_sends_bounded() {
        let messages = [message(1, 0), message(2, 2), message(3, u8::MAX)];
        let mut publishing = Publishing::about(Arc::from("p"), source(), &messages, Faults::default());
        let mut hops = |cause| publishing.begin(cause, &content("a")).map(|ticket| ticket.hops);
        assert_eq!((hops(0), hops(1), hops(2)), (Ok(1), Ok(3), Ok(u8::MAX)));
        let sent = (0..SENDS_MAX).filter(|_| hops(0).is_ok()).count();
        assert_eq!(sent, SENDS_MAX - 3);
    }
}
