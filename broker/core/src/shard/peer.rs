//! What nodes and shards say to each other. Every message names the machine that it is for, so that a receiver with
//! another number of shards still finds the right one.

use super::liveness::NodeState;
pub use super::redelivery::Redelivery;
use crate::channel;
use crate::delivery;
use crate::hooks::breaker::Change;
use crate::message::{Committed, Draft, Outcome};
use crate::plugins::Registry;
use crate::presence;
use crate::rows::{Row, Table};
use crate::slot;
use crate::types::{
    Boots, ChannelKey, ChannelMeta, ConnectionId, DeviceFlag, GroupId, Incarnation, LeaderEpoch, NodeId,
    Route, Seq, SlotId, Term, Token, Uid,
};
use bytes::Bytes;
use std::sync::Arc;

/// Lanes of a node pair: shards of a node are 1, 2, 4 or 8, so that a lane (a hash modulo 8) belongs to one shard
/// whatever their number.
pub const LANES: u16 = 8;

/// A message between nodes, or between the shards of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Peer {
    /// Liveness of a node (M-5).
    Heartbeat {
        /// The sender's boots.
        boots: Boots,
        /// Groups that the sender leads, with their terms: who hosts no replica of a group learns its leader by this.
        leads: Vec<(GroupId, Term)>,
        /// Revision of the registry of plugins that the sender acts on: who has an older one reads it again.
        registry: u64,
    },
    /// Shard 0 tells its siblings the plugins and bindings from now on (inside a node only).
    Registry {
        /// The sibling.
        shard: u16,
        /// All of them.
        registry: Arc<Registry>,
    },
    /// A breaker of this shard changed (inside a node only).
    Breaker {
        /// The shard.
        of: u16,
        /// How.
        change: Box<Change>,
    },
    /// Shard 0 tells its siblings of a node (inside a node only).
    NodeState {
        /// The sibling.
        shard: u16,
        /// Which node.
        node: NodeId,
        /// What is known of it.
        state: NodeState,
    },
    /// A shard tells its siblings who leads a group hosted here (inside a node only).
    GroupState {
        /// The sibling.
        shard: u16,
        /// Which group.
        group: GroupId,
        /// The leader as the replica here knows it.
        leader: Option<NodeId>,
        /// Its term.
        term: Term,
        /// Whether this node leads and has applied its term.
        leads: bool,
    },
    /// Newer metadata of a channel, from the slot group (a hint: only the version decides).
    Meta {
        /// The channel.
        channel: ChannelKey,
        /// Its metadata.
        meta: ChannelMeta,
    },
    /// Between the replicas of a group.
    Group {
        /// The group.
        group: GroupId,
        /// What.
        message: slot::Message,
    },
    /// Between the replicas of channel logs: many channels of one lane in one exchange (M-2, CH-12).
    Exchange {
        /// The lane of all its channels.
        lane: u16,
        /// What, by channel.
        exchange: channel::Exchange,
    },
    /// To the presence authority of a group's slots: what a shard has for it in one turn.
    Presence {
        /// The group.
        group: GroupId,
        /// Who asks.
        caller: presence::Caller,
        /// What, in order.
        requests: Vec<presence::Request>,
    },
    /// From a presence authority to a shard.
    PresenceNotice {
        /// The shard that asked or owns.
        shard: u16,
        /// What, in order.
        notices: Vec<presence::Notice>,
    },
    /// Messages for sessions of a node, all of one lane.
    Push {
        /// The lane of all its connections.
        lane: u16,
        /// Where the answer goes.
        reply_to: u16,
        /// Names the answer.
        token: Token,
        /// What.
        push: delivery::Push,
    },
    /// Answer to `Push`: outcomes by position in its targets.
    Pushed {
        /// The shard that pushed.
        shard: u16,
        /// From the push.
        token: Token,
        /// Outcomes.
        outcomes: Vec<(u16, delivery::Pushed)>,
    },
    /// Ends the sessions of a user on this shard (its token was cleared).
    KickUser {
        /// The shard.
        shard: u16,
        /// The user.
        uid: Uid,
        /// One flag, or all.
        flag: Option<DeviceFlag>,
    },
    /// A request that is answered once, or not at all.
    Request {
        /// The shard that waits.
        reply_to: u16,
        /// Names the answer.
        token: Token,
        /// What.
        request: Request,
    },
    /// Answer to `Request`.
    Reply {
        /// The shard that waits.
        shard: u16,
        /// From the request.
        token: Token,
        /// What.
        reply: Reply,
    },
}

/// A request to the machine that decides.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Commit a command in a group.
    Propose {
        /// The group.
        group: GroupId,
        /// Its lane.
        lane: slot::Lane,
        /// The command.
        command: Bytes,
    },
    /// The same for a command that must not be repeated when nobody knows what became of it.
    ProposeOnce {
        /// The group.
        group: GroupId,
        /// The command.
        command: Bytes,
    },
    /// Point reads at the leader of a group, after a read index (SL-5 authoritative).
    Rows {
        /// The group.
        group: GroupId,
        /// Keys.
        keys: Vec<RowKey>,
    },
    /// A page of rows at the leader of a group.
    Page {
        /// The group.
        group: GroupId,
        /// The slot.
        slot: SlotId,
        /// The table.
        table: Table,
        /// Prefix of the keys.
        prefix: Bytes,
        /// Resume key, exclusive.
        after: Option<Bytes>,
        /// Most rows.
        rows_max: u32,
    },
    /// Who leads a channel? Creates it or grants a new leader where needed (CH-5).
    Resolve {
        /// The channel's group.
        group: GroupId,
        /// The channel.
        channel: ChannelKey,
    },
    /// A replica says that the voter change of this version may end, or that a learner has caught up (CH-7).
    VoterChange {
        /// The channel's group.
        group: GroupId,
        /// The channel.
        channel: ChannelKey,
        /// What the replica saw.
        progress: VoterProgress,
    },
    /// Append messages at the channel's leader, item by item (AP-6).
    Append {
        /// The channel.
        channel: ChannelKey,
        /// Which creation the sender knows.
        incarnation: Incarnation,
        /// Which leadership.
        leader_epoch: LeaderEpoch,
        /// What.
        drafts: Vec<Draft>,
    },
    /// A page of committed records at the channel's leader.
    History {
        /// The channel.
        channel: ChannelKey,
        /// Which creation the reader knows.
        incarnation: Incarnation,
        /// Which leadership.
        leader_epoch: LeaderEpoch,
        /// What.
        query: HistoryRange,
    },
    /// What became of a send (SF-5).
    SendOutcome {
        /// The channel.
        channel: ChannelKey,
        /// Which creation the asker knows.
        incarnation: Incarnation,
        /// Which leadership.
        leader_epoch: LeaderEpoch,
        /// Sender.
        from_uid: Uid,
        /// Its number.
        client_msg_no: Arc<str>,
    },
    /// Hand messages to a binding once more.
    Redeliver {
        /// The channel.
        channel: ChannelKey,
        /// Which creation the asker knows.
        incarnation: Incarnation,
        /// Which leadership.
        leader_epoch: LeaderEpoch,
        /// The binding.
        binding: Arc<str>,
        /// Which.
        what: Redelivery,
    },
    /// Add or renew an ephemeral online subscriber (PC-6), or remove it.
    Subscribe {
        /// The channel.
        channel: ChannelKey,
        /// The session.
        route: Route,
        /// Add or remove.
        subscribe: bool,
    },
}

/// A row named for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowKey {
    /// Slot.
    pub slot: SlotId,
    /// Table.
    pub table: Table,
    /// Key.
    pub key: Bytes,
}

/// What a replica tells the slot group about voters and epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoterProgress {
    /// The high watermark reached the epoch start under both sets.
    Committed {
        /// The leader's epoch.
        leader_epoch: LeaderEpoch,
    },
    /// A learner has everything.
    CaughtUp {
        /// The learner.
        learner: NodeId,
        /// The epoch in which it caught up.
        leader_epoch: LeaderEpoch,
    },
    /// A replica gives no evidence before this epoch (R30).
    Withheld {
        /// Its node.
        node: NodeId,
        /// The oldest epoch that helps.
        epoch: LeaderEpoch,
    },
}

/// A range of history (client contract 7.3), after permission and visibility.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryRange {
    /// First position, inclusive; 0 = newest (older) or oldest visible (newer).
    pub start: Seq,
    /// End, exclusive; 0 = unbounded.
    pub end: Seq,
    /// Most messages.
    pub limit: u32,
    /// Ascending from the start, or descending.
    pub newer: bool,
    /// First position that the reader may see.
    pub visible_from: Seq,
}

/// The answer to a [`Request`].
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// From the group's state machine, or why it was not asked.
    Proposed(Result<crate::replicated::Reply, slot::ProposeError>),
    /// Rows by position.
    Rows(Vec<Option<Row>>),
    /// A page `(key, value)`.
    Page {
        /// Rows.
        rows: Vec<(Bytes, Bytes)>,
        /// Whether there may be more.
        more: bool,
    },
    /// The channel's metadata, naming a live leader.
    Resolved(ChannelMeta),
    /// One outcome for each draft.
    Appended(Vec<Outcome>),
    /// History, ascending.
    History {
        /// Messages.
        messages: Vec<Arc<Committed>>,
        /// Whether more match.
        more: bool,
        /// First kept position when retention removed a part of the range.
        gap_until: Option<Seq>,
    },
    /// What became of a send, if it is known.
    SendOutcome(Option<Outcome>),
    /// The last message that the plugin has done again; none when it has done none.
    Redelivered(Option<Seq>),
    /// Done.
    Done,
    /// Not the leader (or another incarnation or epoch): nothing was done. Ask the hinted node, or resolve again.
    NotLeader {
        /// Who leads, if known.
        hint: Option<NodeId>,
    },
    /// Full: nothing was done.
    Busy,
    /// Not possible now: nothing was done; retry later.
    Unavailable,
}

impl Peer {
    /// The shard of the receiving node that handles the message.
    #[must_use]
    pub fn shard(&self, shards: u16) -> u16 {
        let shards = shards.max(1);
        match self {
            Peer::Heartbeat { .. } | Peer::Breaker { .. } => 0,
            Peer::NodeState { shard, .. }
            | Peer::Registry { shard, .. }
            | Peer::GroupState { shard, .. }
            | Peer::PresenceNotice { shard, .. }
            | Peer::Pushed { shard, .. }
            | Peer::KickUser { shard, .. }
            | Peer::Reply { shard, .. } => shard % shards,
            Peer::Group { group, .. } | Peer::Presence { group, .. } => group_shard(*group, shards),
            Peer::Exchange { lane, .. } | Peer::Push { lane, .. } => lane % shards,
            Peer::Meta { channel, .. } => channel_lane(channel) % shards,
            Peer::Request { request, .. } => match request.target() {
                Target::Group(group) => group_shard(group, shards),
                Target::Channel(channel) => channel_lane(channel) % shards,
            },
        }
    }

    /// Whether the receiver may refuse the message when its mailbox is full (M-14): the sender repeats it or its
    /// deadline answers. Replies and completions always fit: their request reserved for them.
    #[must_use]
    pub fn is_admission(&self) -> bool {
        match self {
            Peer::Request { .. } | Peer::Push { .. } | Peer::Presence { .. } | Peer::Group { .. } => true,
            Peer::Heartbeat { .. }
            | Peer::NodeState { .. }
            | Peer::Breaker { .. }
            | Peer::Registry { .. }
            | Peer::GroupState { .. }
            | Peer::Meta { .. }
            | Peer::Exchange { .. }
            | Peer::PresenceNotice { .. }
            | Peer::Pushed { .. }
            | Peer::KickUser { .. }
            | Peer::Reply { .. } => false,
        }
    }
}

/// Who decides a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// A group's leader.
    Group(GroupId),
    /// A channel's leader.
    Channel(&'a ChannelKey),
}

impl Request {
    /// The command that is to be committed, and its lane; none when it is another request.
    pub(super) fn proposal(&self) -> Option<(slot::Lane, Bytes)> {
        match self {
            Request::Propose { lane, command, .. } => Some((*lane, command.clone())),
            Request::ProposeOnce { command, .. } => Some((slot::Lane::Ordinary, command.clone())),
            _ => None,
        }
    }

    /// Who decides it.
    #[must_use]
    pub fn target(&self) -> Target<'_> {
        match self {
            Request::Propose { group, .. }
            | Request::ProposeOnce { group, .. }
            | Request::Rows { group, .. }
            | Request::Page { group, .. }
            | Request::Resolve { group, .. }
            | Request::VoterChange { group, .. } => Target::Group(*group),
            Request::Append { channel, .. }
            | Request::History { channel, .. }
            | Request::SendOutcome { channel, .. }
            | Request::Redeliver { channel, .. }
            | Request::Subscribe { channel, .. } => Target::Channel(channel),
        }
    }
}

/// The leadership of the channel that a request is for, where it names one.
pub(super) fn epoch_of(request: &Request) -> Option<LeaderEpoch> {
    match request {
        Request::Append { leader_epoch, .. }
        | Request::History { leader_epoch, .. }
        | Request::SendOutcome { leader_epoch, .. }
        | Request::Redeliver { leader_epoch, .. } => Some(*leader_epoch),
        Request::Propose { .. }
        | Request::ProposeOnce { .. }
        | Request::Rows { .. }
        | Request::Page { .. }
        | Request::Resolve { .. }
        | Request::VoterChange { .. }
        | Request::Subscribe { .. } => None,
    }
}

/// The shard of a node that hosts a group.
#[must_use]
pub fn group_shard(group: GroupId, shards: u16) -> u16 {
    // The remainder is below `shards`, so it fits.
    (group.0 % u32::from(shards.max(1))) as u16
}

/// The lane of a channel.
#[must_use]
pub fn channel_lane(channel: &ChannelKey) -> u16 {
    channel.shard(LANES)
}

/// The lane of a connection.
#[must_use]
pub fn connection_lane(connection: ConnectionId) -> u16 {
    crate::client::shard_of(connection, LANES)
}
