//! What a decision may have to know, one row each.

use crate::admin::{ChannelFlags, List};
use crate::types::{ChannelKey, ChannelKind, Reason, Seq, Uid};
use std::collections::BTreeMap;

/// A fact, named by what it is about. Each is one row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fact {
    /// Whether the uid is a system uid: [`Value::Present`].
    System(Uid),
    /// Definition and flags of a channel: [`Value::Definition`]. Of the person record of a uid, which is `(uid, person)`, the
    /// flags `send_ban` and `allow_stranger` are its user's.
    Definition(ChannelKey),
    /// Whether the uid is in the denylist or allowlist of the channel: [`Value::Present`]; whether it is a subscriber:
    /// [`Value::Member`]. The lists of a person are those of its person record.
    Listed(ChannelKey, List, Uid),
    /// Whether the channel's allowlist has any entry: [`Value::Present`].
    HasAllowlist(ChannelKey),
    /// The user's own row for a conversation: [`Value::Membership`].
    Membership(Uid, ChannelKey),
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// Yes or no.
    Present(bool),
    /// Flags, or no such channel.
    Definition(Option<ChannelFlags>),
    /// First position that the subscriber sees, or not a subscriber.
    Member(Option<Seq>),
    /// The membership, or none.
    Membership(Option<Membership>),
}

/// A user's own row for a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// First position that the user sees.
    pub join_seq: Seq,
    /// Everything up to here is hidden from the user.
    pub deleted_to_seq: Seq,
    /// The user has left.
    pub tombstone: bool,
}

/// Facts that were found out. What is not in here is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts(BTreeMap<Fact, Value>);

impl Facts {
    /// Adds what was found. A lookup that failed adds nothing.
    pub fn add(&mut self, fact: Fact, value: Value) {
        self.0.insert(fact, value);
    }

    /// First position that the reader of a read question may see: after what they deleted, and not before they joined.
    #[must_use]
    pub fn visible_from(&self) -> Seq {
        let bounds = self.0.values().map(|value| match value {
            Value::Member(Some(join)) => *join,
            Value::Membership(Some(membership)) => membership.join_seq.max(membership.deleted_to_seq.next()),
            Value::Present(_) | Value::Definition(_) | Value::Member(None) | Value::Membership(None) => {
                Seq(1)
            }
        });
        bounds.max().unwrap_or(Seq(1)).max(Seq(1))
    }

    pub(super) fn is_present(&self, fact: &Fact) -> Result<bool, Reason> {
        match self.0.get(fact) {
            Some(Value::Present(present)) => Ok(*present),
            Some(Value::Member(member)) => Ok(member.is_some()),
            _ => Err(UNKNOWN),
        }
    }

    pub(super) fn definition(&self, channel: &ChannelKey) -> Result<Option<ChannelFlags>, Reason> {
        match self.0.get(&Fact::Definition(channel.clone())) {
            Some(Value::Definition(flags)) => Ok(*flags),
            _ => Err(UNKNOWN),
        }
    }

    /// Flags of the person record of a uid; a missing record has none set.
    pub(super) fn person(&self, uid: &Uid) -> Result<ChannelFlags, Reason> {
        self.definition(&person_record(uid))
            .map(Option::unwrap_or_default)
    }

    pub(super) fn listed(&self, channel: &ChannelKey, list: List, uid: &Uid) -> Result<bool, Reason> {
        self.is_present(&Fact::Listed(channel.clone(), list, uid.clone()))
    }
}

/// The answer while something is not known: not refused for good, and not allowed (SF-4).
const UNKNOWN: Reason = Reason::NODE_NOT_MATCH;

/// The channel under which flags and lists of a single user are kept.
pub(super) fn person_record(uid: &Uid) -> ChannelKey {
    ChannelKey::new(uid.as_str(), ChannelKind::PERSON)
}
