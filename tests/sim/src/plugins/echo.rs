//! A binding that publishes: two answers to every fourth message of one group, and one to each of its own answers. Drawn from a stream
//! of its own: the other faults of a seed stay as they are.

use crate::rng::Rng;
use bytes::Bytes;
use penstock_core::admin::{Ask, ChannelFlags, PublishAsk};
use penstock_core::hooks::call::Version;
use penstock_core::hooks::faults::Faults;
use penstock_core::message::Message;
use penstock_core::plugins::{
    Binding, Bound, Captured, Change, Content, HOPS_MAX, Hook, OnError, Pattern, Policy, Publishing,
    Registry, Selector, Source, StartAt,
};
use penstock_core::types::{ChannelKey, ChannelKind, Incarnation, Seq, Uid};
use std::sync::Arc;
use std::time::Duration;

/// The binding.
pub const ECHO: &str = "echo";
/// Its plugin.
const PLUGIN: &str = "beta";
/// Where its answers go.
const ROOM: &str = "echoes";
/// What it answers besides.
const HEARD: &str = "group0";

/// Binds the echo and speaks for it.
#[derive(Debug)]
pub struct Echo {
    rng: Rng,
    configurations: u32,
    deadline: Duration,
    /// Whether the group of the answers is made.
    pub has_room: bool,
}

/// An answer: what names it, and how it is sent; nothing when its cause has come far enough.
pub struct Answer {
    /// The place of its cause in the batch.
    pub place: usize,
    /// Its payload, which names cause and place among the answers of the cause.
    pub name: String,
    /// The request.
    pub ask: PublishAsk,
}

/// How many answers led to a message, by its payload.
#[must_use]
pub fn depth(message: &Message) -> u32 {
    let text = std::str::from_utf8(&message.draft.payload).ok();
    let number = text.and_then(|text| text.strip_prefix("echo ")?.split(' ').next()?.parse().ok());
    number.unwrap_or(0)
}

/// Whether a plugin sent it.
#[must_use]
pub fn is_answer(sender: &Uid) -> bool {
    penstock_wire::channel_id::is_plugin(sender.as_str())
}

/// How often a message is answered. What is said besides has work to do too, so only some of it is.
fn sends(depth: u32, seq: Seq) -> u32 {
    match depth {
        0 if seq.0.is_multiple_of(4) => 2,
        0 => 0,
        _ => 1,
    }
}

impl Echo {
    /// That of a seed: one run of two has one.
    #[must_use]
    pub fn new(seed: u64) -> Option<Echo> {
        let mut rng = Rng::salted(seed, 6_000);
        rng.permille(500).then(|| Echo {
            configurations: 0,
            deadline: Duration::from_millis(rng.pick(&[60, 300])),
            has_room: false,
            rng,
        })
    }

    /// The group of the answers.
    #[must_use]
    pub fn room() -> ChannelKey {
        ChannelKey::new(ROOM, ChannelKind::GROUP)
    }

    /// The request that makes it, until it is made.
    #[must_use]
    pub fn wanted_room(&self) -> Option<Ask> {
        (!self.has_room).then(|| Ask::PutChannel {
            channel_id: Arc::from(ROOM),
            kind: ChannelKind::GROUP,
            flags: ChannelFlags::default(),
            reset: false,
            subscribers: vec![Uid::new("nobody")],
        })
    }

    /// The next change of the binding, as the registry is known.
    pub fn next(&mut self, registry: &Registry) -> Option<Change> {
        registry.plugins.get(PLUGIN)?;
        let bound = registry.binding(ECHO);
        let again = self.rng.permille(100);
        (bound.is_none() || again).then(|| self.bind(bound.map_or(0, |bound| bound.revision)))
    }

    /// Another configuration when this version of it is not called.
    pub fn repair(&mut self, registry: &Registry, suspended: &Version) -> Option<Change> {
        let bound = registry.binding(ECHO).filter(|_| &*suspended.binding == ECHO)?;
        Some(self.bind(bound.revision))
    }

    fn bind(&mut self, expected_revision: u64) -> Change {
        self.configurations += 1;
        let pattern = |text: &str| Pattern(text.to_owned());
        let binding = Binding {
            id: Arc::from(ECHO),
            plugin: Arc::from(PLUGIN),
            hook: Hook::PersistAfter,
            selector: Selector {
                ids: [pattern(HEARD), pattern(ROOM)].into(),
                ..Selector::default()
            },
            priority: 0,
            deadline: self.deadline,
            on_error: OnError::all(Policy::Reject),
            grants: Bytes::new(),
            config: Bytes::from(format!("echo{}", self.configurations)),
            start: Some(StartAt::Earliest),
            attempts_max: 0,
            exact: false,
            patience: Duration::from_secs(60),
            inline: true,
            public: false,
            events: penstock_core::plugins::Events::default(),
            own_messages: true,
            capture: Captured::default(),
        };
        Change::Bind {
            binding: Box::new(binding),
            expected_revision,
        }
    }

    /// The answers to a batch, in order.
    #[must_use]
    pub fn answers(
        bound: &Bound,
        (channel, incarnation, messages): (&ChannelKey, Incarnation, &[Message]),
        faults: Faults,
    ) -> Vec<Answer> {
        let source = Source {
            binding: Arc::clone(&bound.binding.id),
            binding_incarnation: bound.incarnation,
            channel: channel.clone(),
            incarnation,
        };
        let mut publishing = Publishing::about(Arc::from(PLUGIN), source, messages, faults);
        let mut answers = Vec::new();
        for (place, message) in messages.iter().enumerate() {
            let depth = depth(message);
            for ordinal in 0..sends(depth, message.seq) {
                let name = format!(
                    "echo {} {} {channel} {} {} {ordinal}",
                    depth + 1,
                    bound.incarnation,
                    incarnation.0,
                    message.seq.0
                );
                let content = Content {
                    channel_id: ROOM,
                    kind: ChannelKind::GROUP,
                    payload: name.as_bytes(),
                    topic: "",
                    expire_s: 0,
                };
                let ticket = publishing.begin(u32::try_from(place).unwrap_or(u32::MAX), &content);
                let Ok(ticket) = ticket else { continue };
                if ticket.hops > HOPS_MAX {
                    continue;
                }
                let ask = PublishAsk {
                    plugin: Arc::from(PLUGIN),
                    channel_id: Arc::from(ROOM),
                    kind: ChannelKind::GROUP,
                    client_msg_no: ticket.client_msg_no,
                    hops: ticket.hops,
                    expire_s: 0,
                    topic: Arc::from(""),
                    payload: Bytes::from(name.clone()),
                };
                answers.push(Answer { place, name, ask });
            }
        }
        answers
    }
}
