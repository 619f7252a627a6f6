//! The vocabulary of the core: identities, positions, epochs and time. One word per idea; see the glossary in
//! `broker/ARCHITECTURE.md`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Number of physical hash slots of a cluster (SL, section 3 of the rules).
pub const SLOT_COUNT: u16 = 256;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(formatter)
            }
        }
    };
}

number! {
    /// Durable id of a node, 1..=1023 (it is part of every message id, M-17).
    NodeId(u16)
}
number! {
    /// Random id drawn at every process start. A channel grant names (leader, process boot) (M-4).
    ProcessBoot(u64)
}
number! {
    /// Random id of a data directory's content. Voters are (node, disk boot) (M-4); a new one means that the node
    /// may have lost durable state (M-8).
    DiskBoot(u64)
}
number! {
    /// One of the 256 physical hash slots.
    SlotId(u16)
}
number! {
    /// A Raft group: 0 is the controller's, 1.. are slot groups.
    GroupId(u32)
}
number! {
    /// Raft term.
    Term(u64)
}
number! {
    /// Index in a Raft group's log.
    RaftIndex(u64)
}
number! {
    /// One creation of a channel. Never reused: it is the prefix of everything stored for the channel (R18).
    Incarnation(u64)
}
number! {
    /// Channel leadership: one leader per epoch, granted only by the slot group, never resets within an incarnation
    /// (CH-4). 0 means "none".
    LeaderEpoch(u64)
}
number! {
    /// Position of a message in its channel, from 1, contiguous (CH-1). 0 means "before the first".
    Seq(u64)
}
number! {
    /// Message id: snowflake of time, node, shard and step; positive, never goes back (AP-4, M-17).
    MessageId(i64)
}
number! {
    /// A client connection of this process; `id % shards` is the shard that owns its session.
    ConnectionId(u64)
}
number! {
    /// Ticket of a Store effect: strictly increasing per shard and store instance.
    Ticket(u64)
}
number! {
    /// Names a continuation inside one shard (a request sent, a read started).
    Token(u64)
}

impl GroupId {
    /// The controller's group.
    pub const CONTROLLER: GroupId = GroupId(0);
}

impl Seq {
    /// The next position.
    #[must_use]
    pub fn next(self) -> Seq {
        Seq(self.0 + 1)
    }

    /// The position before; saturates at 0.
    #[must_use]
    pub fn previous(self) -> Seq {
        Seq(self.0.saturating_sub(1))
    }
}

impl LeaderEpoch {
    /// The next epoch.
    #[must_use]
    pub fn next(self) -> LeaderEpoch {
        LeaderEpoch(self.0 + 1)
    }
}

/// The two boots of a node: what it may remember in memory and on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Boots {
    /// This process.
    pub process: ProcessBoot,
    /// This disk content.
    pub disk: DiskBoot,
}

/// The time handed to a machine with every input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// Monotonic time since the process (or the simulation) started. Deadlines are made of it.
    pub monotonic: Duration,
    /// Wall clock in milliseconds since 1970. Stamps are made of it; it may jump.
    pub wall_ms: u64,
}

impl Now {
    /// The monotonic time after `delay`.
    #[must_use]
    pub fn after(self, delay: Duration) -> Duration {
        self.monotonic + delay
    }
}

/// Kind (type) of a channel as on the wire: 1 person, 2 group, … (client contract 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelKind(pub u8);

impl ChannelKind {
    /// Two users; members are derived from the id.
    pub const PERSON: ChannelKind = ChannelKind(1);
    /// Members are subscribers; must exist.
    pub const GROUP: ChannelKind = ChannelKind(2);
    /// Customer service.
    pub const CUSTOMER_SERVICE: ChannelKind = ChannelKind(3);
    /// Community.
    pub const COMMUNITY: ChannelKind = ChannelKind(4);
    /// Community topic.
    pub const COMMUNITY_TOPIC: ChannelKind = ChannelKind(5);
    /// Info.
    pub const INFO: ChannelKind = ChannelKind(6);
    /// Data: ephemeral subscribers (SUB).
    pub const DATA: ChannelKind = ChannelKind(7);
    /// Temporary, request-scoped member lists.
    pub const TEMPORARY: ChannelKind = ChannelKind(8);
    /// Live room: ephemeral subscribers (SUB).
    pub const LIVE: ChannelKind = ChannelKind(9);
    /// Visitors.
    pub const VISITORS: ChannelKind = ChannelKind(10);
    /// Agent: `uid@agent`.
    pub const AGENT: ChannelKind = ChannelKind(11);
    /// Registry of system uids.
    pub const INTERNAL: ChannelKind = ChannelKind(99);
}

/// A channel: canonical id and kind. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelKey {
    /// Canonical id (a person channel's is `a@b` in CRC order).
    pub id: Arc<str>,
    /// Kind.
    pub kind: ChannelKind,
}

impl ChannelKey {
    /// A key from its parts.
    #[must_use]
    pub fn new(id: &str, kind: ChannelKind) -> ChannelKey {
        ChannelKey {
            id: Arc::from(id),
            kind,
        }
    }

    /// The slot that owns the channel's metadata.
    #[must_use]
    pub fn slot(&self) -> SlotId {
        slot_of(&self.id)
    }

    /// The shard of a node that hosts this channel's machines.
    #[must_use]
    pub fn shard(&self, shards: u16) -> u16 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&[self.kind.0, 0x5a]);
        hasher.update(self.id.as_bytes());
        // The remainder is below `shards`, so it fits.
        (hasher.finalize() % u32::from(shards.max(1))) as u16
    }
}

impl fmt::Display for ChannelKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.kind.0, self.id.escape_default())
    }
}

/// User id. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(pub Arc<str>);

impl Uid {
    /// A uid from its text.
    #[must_use]
    pub fn new(text: &str) -> Uid {
        Uid(Arc::from(text))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The slot that owns the user's metadata and presence.
    #[must_use]
    pub fn slot(&self) -> SlotId {
        slot_of(&self.0)
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0.escape_default())
    }
}

/// `slot = crc32(key) % 256` (IEEE CRC-32), key = uid or canonical channel id.
#[must_use]
pub fn slot_of(key: &str) -> SlotId {
    // The remainder is below 256, so it fits.
    SlotId((crc32fast::hash(key.as_bytes()) % u32::from(SLOT_COUNT)) as u16)
}

/// A replica of a channel: the node and the disk content that was granted the vote (M-4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Replica {
    /// The node.
    pub node: NodeId,
    /// Its disk boot at the grant.
    pub disk: DiskBoot,
}

/// A voter set with its write quorum W (CH-2): 1 <= min_isr <= voters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VoterSet {
    /// The in-sync set: who votes.
    pub isr: Vec<Replica>,
    /// Write quorum W.
    pub min_isr: u8,
}

impl VoterSet {
    /// Whether `node` is a voter.
    #[must_use]
    pub fn contains(&self, node: NodeId) -> bool {
        self.isr.iter().any(|replica| replica.node == node)
    }

    /// How many voters must promise before a leader may choose a log: N - W + 1 (CH-5).
    #[must_use]
    pub fn recovery_quorum(&self) -> usize {
        self.isr.len() + 1 - usize::from(self.min_isr)
    }
}

/// Who leads, and in which process (M-4): leadership does not survive a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Leader {
    /// The node.
    pub node: NodeId,
    /// Its process boot at the grant.
    pub process: ProcessBoot,
}

/// ChannelRuntimeMeta: what the slot group decides about one channel's log (semantics section 4). Changed only by
/// compare-and-set on `version` in the channel's slot group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelMeta {
    /// Which creation of the channel.
    pub incarnation: Incarnation,
    /// Current leader, none while fenced or unplaced.
    pub leader: Option<Leader>,
    /// Rises at every change of leader, voters, W, and when a replica registers with lost state.
    pub leader_epoch: LeaderEpoch,
    /// Current voters and W.
    pub voters: VoterSet,
    /// The previous voters and W while a change runs: both quorums hold (CH-7).
    pub previous: Option<VoterSet>,
    /// Replicas without a vote (CH-7).
    pub learners: Vec<Replica>,
    /// Nodes whose disk was replaced while they kept this log, with the first epoch that was granted to the new disk:
    /// they promise nothing and give no evidence until they accepted that epoch or a later one (CH-7, M-4). The slot
    /// group adds a node when a grant names another disk than the one before, and removes it with the replica.
    pub reborn: Vec<(NodeId, LeaderEpoch)>,
    /// Rises at every membership change.
    pub epoch: u64,
    /// Rises at every change of this row: the compare-and-set key.
    pub version: u64,
    /// Task id of the write fence, if fenced (CH-9).
    pub fence: Option<u64>,
    /// Everything up to here may be removed (CH-14).
    pub retention_through: Seq,
}

impl ChannelMeta {
    /// All voters of both sets, without repeats.
    #[must_use]
    pub fn all_voters(&self) -> Vec<Replica> {
        let mut all = self.voters.isr.clone();
        for replica in self.previous.iter().flat_map(|set| &set.isr) {
            if !all.iter().any(|known| known.node == replica.node) {
                all.push(*replica);
            }
        }
        all
    }

    /// Voters and learners, without repeats: everyone who keeps the log.
    #[must_use]
    pub fn replicas(&self) -> Vec<Replica> {
        let mut all = self.all_voters();
        for replica in &self.learners {
            if !all.iter().any(|known| known.node == replica.node) {
                all.push(*replica);
            }
        }
        all
    }
}

/// Device flag of a session (client contract 5.2): 0 app, 1 web, 2 pc, 99 system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceFlag(pub u8);

/// Device level: a master evicts every other session of the same flag, a slave only its own device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceLevel {
    /// Slave (0).
    #[default]
    Slave,
    /// Master (1).
    Master,
}

/// Why a send, connect, read or subscribe was accepted or refused, as the code on the wire (client contract 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reason(pub u8);

impl Reason {
    /// Success.
    pub const SUCCESS: Reason = Reason(1);
    /// Authentication failed.
    pub const AUTH_FAIL: Reason = Reason(2);
    /// The sender is not a subscriber.
    pub const NOT_SUBSCRIBER: Reason = Reason(3);
    /// In the denylist.
    pub const IN_DENYLIST: Reason = Reason(4);
    /// The channel does not exist.
    pub const CHANNEL_NOT_EXIST: Reason = Reason(5);
    /// msgKey does not match.
    pub const MESSAGE_KEY: Reason = Reason(8);
    /// The payload cannot be decoded.
    pub const PAYLOAD_DECODE: Reason = Reason(9);
    /// Sending is not allowed.
    pub const NOT_ALLOWED: Reason = Reason(11);
    /// The connection was kicked.
    pub const KICKED: Reason = Reason(12);
    /// Not in the allowlist.
    pub const NOT_IN_ALLOWLIST: Reason = Reason(13);
    /// System error.
    pub const SYSTEM_ERROR: Reason = Reason(15);
    /// Channel id error.
    pub const CHANNEL_ID: Reason = Reason(16);
    /// Not appended and worth a retry: not leader, no route, fence (AP-8).
    pub const NODE_NOT_MATCH: Reason = Reason(18);
    /// The channel is banned.
    pub const BANNED: Reason = Reason(19);
    /// clientKey is empty.
    pub const CLIENT_KEY_EMPTY: Reason = Reason(21);
    /// Busy or over a rate (AP-8).
    pub const RATE_LIMITED: Reason = Reason(22);
    /// Channel kind not supported.
    pub const KIND_NOT_SUPPORTED: Reason = Reason(23);
    /// The channel is disbanded.
    pub const DISBANDED: Reason = Reason(24);
    /// The sender may not send.
    pub const SEND_BANNED: Reason = Reason(25);
    /// Same idempotency key, other bytes (AP-2).
    pub const IDEMPOTENCY_CONFLICT: Reason = Reason(28);
    /// No positions left.
    pub const SEQ_EXHAUSTED: Reason = Reason(29);

    /// Whether this is success.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Reason::SUCCESS
    }
}

/// A live session of a user (PR-2).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// The user.
    pub uid: Uid,
    /// Device id as announced.
    pub device_id: Arc<str>,
    /// Device flag.
    pub flag: DeviceFlag,
    /// Device level, from the stored token.
    pub level: DeviceLevel,
    /// The node that owns the connection.
    pub node: NodeId,
    /// Its process.
    pub boot: ProcessBoot,
    /// The connection.
    pub connection: ConnectionId,
    /// Rises with every session that the owner registers: fences late messages.
    pub owner_seq: u64,
}
