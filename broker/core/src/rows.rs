//! How a pure machine reads and writes large state: point reads through [`Rows`], everything else as effects (M-13).

use crate::message::Record;
use crate::types::{GroupId, Incarnation, RaftIndex, Seq, SlotId};
use bytes::Bytes;

/// The two RocksDB instances of a node (M-7). No batch spans both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instance {
    /// Raft logs, hard states, slot rows, applied indexes.
    Meta,
    /// Records, channel state, idempotency, cursors.
    Data,
}

/// A table of slot rows. The number is on disk: never reuse one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// uid → user.
    User = 1,
    /// uid, device flag → token hash and level.
    Device = 2,
    /// uid → system uid marker (all in the registry channel's slot).
    SystemUid = 3,
    /// channel → definition and flags.
    Channel = 4,
    /// channel, uid → subscriber (join_seq).
    Subscriber = 5,
    /// channel, uid → in the allowlist.
    Allow = 6,
    /// channel, uid → in the denylist.
    Deny = 7,
    /// uid, channel → membership (join_seq, read_seq, deleted_to_seq, activated_at, tombstone).
    Membership = 8,
    /// channel → [`crate::types::ChannelMeta`].
    ChannelMeta = 9,
    /// leader node, channel → marker (M-5).
    LeaderIndex = 10,
    /// replica node, channel → marker (M-5).
    ReplicaIndex = 11,
    /// channel, uid → membership row still to be written in the uid's slot.
    MembershipOutbox = 12,
    /// Counters of the slot (next incarnation, member revision).
    Counter = 13,
    /// Controller state (pseudo slot [`CONTROLLER_SLOT`]).
    Controller = 14,
    /// channel → subscriber count and revision.
    ChannelStats = 15,
    /// binding, names → message that was given up for it (all in the binding's slot).
    DeadLetter = 16,
    /// plugin, key → value of a key of the plugin.
    PluginKey = 17,
    /// plugin, binding, channel → up to which message its changes of keys of this slot are made (M-18).
    PluginMark = 18,
    /// uid → the sessions that webhooks are told of as online.
    OnlineUser = 19,
    /// number → batch of sessions that began or ended, for webhooks; 0 → what the queue holds.
    OnlineQueue = 20,
}

/// The pseudo slot under which the controller's rows are kept.
pub const CONTROLLER_SLOT: SlotId = SlotId(256);

/// A point key. The store alone turns it into bytes (`store::keys`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A slot row of the current generation (M-10).
    Slot {
        /// The slot.
        slot: SlotId,
        /// The table.
        table: Table,
        /// Key inside the table, made by `slot::keys` (order-preserving, prefix-free parts).
        key: Bytes,
    },
    /// A slot row of the generation that a running snapshot install fills (M-10). Never read.
    Staged {
        /// The slot.
        slot: SlotId,
        /// The table.
        table: Table,
        /// Key inside the table.
        key: Bytes,
    },
    /// One entry of a group's Raft log.
    RaftEntry {
        /// The group.
        group: GroupId,
        /// Its index.
        index: RaftIndex,
    },
    /// Hard state, conf state, truncated state of a group, encoded by `slot`.
    RaftState {
        /// The group.
        group: GroupId,
    },
    /// Applied index and term of a group, written with the effects (SL-1).
    Applied {
        /// The group.
        group: GroupId,
    },
    /// Progress of a snapshot install of a group (restartable, M-10).
    Install {
        /// The group.
        group: GroupId,
    },
    /// Promised, accepted, high watermark, log start, epoch table of a channel log (M-11).
    ChannelState {
        /// The channel's incarnation.
        incarnation: Incarnation,
    },
    /// Idempotency row → [`crate::message::DedupeRow`].
    Dedupe {
        /// Day of the leader's stamp (days since 1970).
        day: u16,
        /// The channel's incarnation.
        incarnation: Incarnation,
        /// Hash of [`crate::message::DedupeKey`].
        hash: u64,
    },
    /// Durable cursor of a post-commit consumer of a channel (PC-1, M-6).
    Cursor {
        /// The channel's incarnation.
        incarnation: Incarnation,
        /// The consumer, e.g. `delivery`, `membership`.
        consumer: Bytes,
    },
    /// Node-wide small rows in `Data` (message id floor of a shard, …), by name.
    Node {
        /// Name.
        name: Bytes,
    },
}

impl Key {
    /// The instance that holds the key.
    #[must_use]
    pub fn instance(&self) -> Instance {
        match self {
            Key::Slot { .. }
            | Key::Staged { .. }
            | Key::RaftEntry { .. }
            | Key::RaftState { .. }
            | Key::Applied { .. }
            | Key::Install { .. } => Instance::Meta,
            Key::ChannelState { .. } | Key::Dedupe { .. } | Key::Cursor { .. } | Key::Node { .. } => {
                Instance::Data
            }
        }
    }
}

/// A stored value.
pub type Row = Bytes;

/// The keys that are not in memory. The input that met a miss is redelivered once they are loaded and pinned; the
/// machine has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Miss(pub Vec<Key>);

/// Point reads, at most 8 per input (M-13). Own Store effects are visible at once, durable when `Stored` says so.
pub trait Rows {
    /// The row of `key`: `Ok(None)` when there is none, `Err` when it must be loaded first.
    fn row(&self, key: &Key) -> Result<Option<Row>, Miss>;
}

/// One change of a Store effect. All writes of one effect are atomic and ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Sets a row.
    Put {
        /// Key.
        key: Key,
        /// Value.
        value: Bytes,
    },
    /// Removes a row.
    Delete {
        /// Key.
        key: Key,
    },
    /// Removes the entries `from..` of a group's Raft log (before the new ones of the same batch are put; F3).
    TruncateRaft {
        /// The group.
        group: GroupId,
        /// First index removed.
        from: RaftIndex,
    },
    /// Removes the entries `..through` inclusive of a group's Raft log after compaction.
    CompactRaft {
        /// The group.
        group: GroupId,
        /// Last index removed.
        through: RaftIndex,
    },
    /// Removes all staged rows of these slots (start of an install).
    ClearStaged {
        /// The slots.
        slots: Vec<SlotId>,
    },
    /// Makes the staged rows of these slots current, atomically; the old generation is removed afterwards (M-10).
    FlipGeneration {
        /// The slots.
        slots: Vec<SlotId>,
    },
    /// Adds contiguous records to a channel log, as one value (M-11).
    AppendRecords {
        /// The channel's incarnation.
        incarnation: Incarnation,
        /// At least one record, contiguous from the first.
        records: Vec<Record>,
    },
    /// Removes records with seq >= `from` (divergence; cuts inside a stored value too).
    TruncateRecords {
        /// The channel's incarnation.
        incarnation: Incarnation,
        /// First position removed.
        from: Seq,
    },
    /// Removes records with seq <= `through` (retention; whole values, the rest is hidden by the log start).
    TrimRecords {
        /// The channel's incarnation.
        incarnation: Incarnation,
        /// Last position removed.
        through: Seq,
    },
    /// Removes everything of an incarnation: records, state, cursors.
    DropIncarnation {
        /// The incarnation.
        incarnation: Incarnation,
    },
}

impl Write {
    /// The instance that holds what is written. All writes of one effect go to one instance (M-7).
    #[must_use]
    pub fn instance(&self) -> Instance {
        match self {
            Write::Put { key, .. } | Write::Delete { key } => key.instance(),
            Write::TruncateRaft { .. }
            | Write::CompactRaft { .. }
            | Write::ClearStaged { .. }
            | Write::FlipGeneration { .. } => Instance::Meta,
            Write::AppendRecords { .. }
            | Write::TruncateRecords { .. }
            | Write::TrimRecords { .. }
            | Write::DropIncarnation { .. } => Instance::Data,
        }
    }
}

/// A bounded scan, answered by `ReadDone` (M-13). Scans see all earlier Store effects of the same shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadRequest {
    /// Records of a channel in ascending order from `from`, at most `records_max` and `bytes_max` (at least one record if
    /// there is any).
    Records {
        /// The channel's incarnation.
        incarnation: Incarnation,
        /// First position wanted.
        from: Seq,
        /// Last position wanted, inclusive.
        through: Seq,
        /// Most records returned.
        records_max: u32,
        /// Most bytes of bodies returned.
        bytes_max: u32,
    },
    /// The last stored record of a channel log, if any (activation).
    LogTail {
        /// The channel's incarnation.
        incarnation: Incarnation,
    },
    /// Slot rows of one table of one slot whose key starts with `prefix` and is > `after` (empty: from the first).
    SlotRows {
        /// The slot.
        slot: SlotId,
        /// The table.
        table: Table,
        /// Prefix.
        prefix: Bytes,
        /// Resume key, exclusive.
        after: Option<Bytes>,
        /// Most rows returned.
        rows_max: u32,
    },
    /// All rows of a slot in (table, key) order, for a snapshot, resuming after a (table, key).
    SnapshotRows {
        /// The slot.
        slot: SlotId,
        /// Resume position, exclusive.
        after: Option<(Table, Bytes)>,
        /// Most bytes returned.
        bytes_max: u32,
    },
    /// Cursor rows of a channel.
    Cursors {
        /// The channel's incarnation.
        incarnation: Incarnation,
    },
    /// Idempotency rows of a channel of one day, ascending by hash (a follower below the log start is given them, CH-14).
    Dedupe {
        /// The channel's incarnation.
        incarnation: Incarnation,
        /// Day of the leader's stamp.
        day: u16,
        /// Resume after this hash, exclusive.
        after: Option<u64>,
        /// Most rows returned.
        rows_max: u32,
    },
}

/// The answer to a [`ReadRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Page {
    /// Records, ascending.
    Records(Vec<Record>),
    /// Slot rows `(table, key, value)`; `more` when the bound stopped the scan.
    Rows {
        /// The rows.
        rows: Vec<(Table, Bytes, Bytes)>,
        /// Whether there may be more.
        more: bool,
    },
    /// Cursors `(consumer, value)`.
    Cursors(Vec<(Bytes, Bytes)>),
    /// Idempotency rows `(hash, value)` of the day asked for; `more` when the bound stopped the scan.
    Dedupe {
        /// The rows.
        rows: Vec<(u64, Bytes)>,
        /// Whether there may be more of that day.
        more: bool,
    },
    /// Stored bytes are not what was written: the replica must withdraw and refetch (R30).
    Corrupt {
        /// What is wrong.
        what: String,
        /// The first record that is lost by it, where the store knows: the value that is damaged begins there.
        first: Option<Seq>,
    },
}

/// What a store holds of one Raft group when a node starts: the recovery image of its in-memory log (M-12).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupImage {
    /// Value of [`Key::RaftState`].
    pub state: Option<Row>,
    /// Value of [`Key::Applied`].
    pub applied: Option<Row>,
    /// Value of [`Key::Install`].
    pub install: Option<Row>,
    /// Every [`Key::RaftEntry`], ascending.
    pub entries: Vec<(RaftIndex, Row)>,
}
