//! What a binding is for: kinds of channels, patterns of their ids, senders.

use super::{Binding, SELECTOR_PARTS_MAX};
use crate::types::{ChannelKey, Uid};
use penstock_wire::channel_id;
use std::collections::BTreeSet;

/// Longest pattern, bytes.
const PATTERN_BYTES_MAX: usize = 256;

/// A text in which `*` stands for any number of characters, also none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pattern(pub String);

impl Pattern {
    /// Whether the text has this shape. Linear in the text for each part between two stars.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        let Some((head, rest)) = self.0.split_once('*') else {
            return self.0 == text;
        };
        let Some(mut text) = text.strip_prefix(head) else {
            return false;
        };
        let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
        for part in middle.split('*') {
            let Some(at) = text.find(part) else { return false };
            text = &text[at + part.len()..];
        }
        text.ends_with(tail)
    }
}

/// Which channels and senders a binding is for. An empty part takes everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// Kinds of channels.
    pub kinds: BTreeSet<u8>,
    /// Patterns of canonical channel ids; one is enough.
    pub ids: BTreeSet<Pattern>,
    /// Senders, or users who connect.
    pub uids: BTreeSet<Uid>,
}

impl Selector {
    /// Whether the binding is for this channel.
    #[must_use]
    pub fn takes_channel(&self, channel: &ChannelKey) -> bool {
        (self.kinds.is_empty() || self.kinds.contains(&channel.kind.0))
            && (self.ids.is_empty() || self.ids.iter().any(|pattern| pattern.matches(&channel.id)))
    }

    /// Whether this is a sender, or a user who connects, that the selector names. Whether a message goes to a binding is said by
    /// [`Binding::takes_sender`].
    #[must_use]
    pub(super) fn takes_sender(&self, uid: &Uid) -> bool {
        self.uids.is_empty() || self.uids.contains(uid)
    }

    /// Whether it says something of channels.
    #[must_use]
    pub fn names_channels(&self) -> bool {
        !self.kinds.is_empty() || !self.ids.is_empty()
    }

    /// Whether it is within its bounds.
    pub(crate) fn is_bounded(&self) -> bool {
        let few = |count: usize| count <= SELECTOR_PARTS_MAX;
        few(self.kinds.len())
            && few(self.ids.len())
            && few(self.uids.len())
            && self
                .ids
                .iter()
                .all(|pattern| (1..=PATTERN_BYTES_MAX).contains(&pattern.0.len()))
            && self
                .uids
                .iter()
                .all(|uid| (1..=PATTERN_BYTES_MAX).contains(&uid.as_str().len()))
    }
}

impl Binding {
    /// Whether it is for messages of this sender.
    #[must_use]
    pub fn takes_sender(&self, uid: &Uid) -> bool {
        let own = uid.as_str().strip_prefix(channel_id::PLUGIN_PREFIX) == Some(&*self.plugin);
        (self.own_messages || !own) && self.selector.takes_sender(uid)
    }
}
