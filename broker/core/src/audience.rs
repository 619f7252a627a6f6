//! Who receives the messages of a channel (PC-2), under which name each receiver sees it, and what is learned of them: what delivery
//! and the post-commit hooks share.

use crate::message::Committed;
use crate::types::{ChannelKey, ChannelKind, Route, Seq, Uid};
use penstock_wire::channel_id::{agent_sides, command_source, is_command, person_members, person_peer};
use std::sync::Arc;

/// What the id and kind of a channel say about its receivers.
#[derive(Debug)]
pub(crate) struct Audience {
    /// The channel itself, or the one that a command channel belongs to.
    pub(crate) source: ChannelKey,
    /// Receivers that the id names.
    pub(crate) derived: Vec<Uid>,
    /// Whether there are receivers beyond those.
    pub(crate) listed: bool,
    /// Positions of a command channel have nothing to do with `join_seq`, which counts in its source.
    command: bool,
}

impl Audience {
    pub(crate) fn of(channel: &ChannelKey) -> Audience {
        let command = is_command(&channel.id);
        let id = command_source(&channel.id);
        let both = |sides: Option<(&str, &str)>| -> Vec<Uid> {
            let (left, right) = sides.unzip();
            let mut uids: Vec<Uid> = left.into_iter().chain(right).map(Uid::new).collect();
            uids.dedup();
            uids
        };
        let derived = match channel.kind {
            ChannelKind::PERSON => both(person_members(id).ok()),
            ChannelKind::AGENT => both(agent_sides(id).ok()),
            ChannelKind::VISITORS => vec![Uid::new(id)],
            _ => Vec::new(),
        };
        Audience {
            source: ChannelKey::new(id, channel.kind),
            derived,
            listed: ![ChannelKind::PERSON, ChannelKind::AGENT].contains(&channel.kind),
            command,
        }
    }

    /// The channel id as this user sees it: the peer in a person channel, never the command suffix.
    pub(crate) fn seen_by(&self, uid: &Uid) -> Arc<str> {
        if self.source.kind == ChannelKind::PERSON
            && let Some(peer) = person_peer(&self.source.id, uid.as_str())
        {
            return Arc::from(peer);
        }
        Arc::clone(&self.source.id)
    }

    /// Position of the first message that a member who joined at `join_seq` receives; none when it receives nothing.
    pub(crate) fn first_for(&self, join_seq: Seq, messages: &[Arc<Committed>]) -> Option<u16> {
        let first = if self.command {
            0
        } else {
            messages.partition_point(|known| {
                let seq = known.message.seq;
                seq > Seq(0) && seq < join_seq
            })
        };
        u16::try_from(first).ok().filter(|_| first < messages.len())
    }
}

/// A page of members.
#[derive(Clone, Debug, PartialEq)]
pub enum MembersPage {
    /// The revision that was asked with is current.
    Unchanged,
    /// Members.
    Page {
        /// Member revision of the channel when the page was read.
        revision: u64,
        /// (uid, join_seq), ascending by uid.
        members: Vec<(Uid, Seq)>,
        /// Whether there are members after the last one.
        more: bool,
    },
    /// Nothing could be read now: asked again.
    Failed,
}

/// What is known of the users of one slot.
#[derive(Clone, Debug, PartialEq)]
pub enum Presence {
    /// Live routes; when not `complete`, users may have more than these (PR-4).
    Known {
        /// Users that have routes.
        users: Vec<(Uid, Vec<Route>)>,
        /// Whether every node has announced its sessions.
        complete: bool,
        /// Sessions on nodes that are silent now: they are not waited for, but owed.
        doubtful: Vec<Route>,
    },
    /// Nothing is known.
    Unknown,
}
