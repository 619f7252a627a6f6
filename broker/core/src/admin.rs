//! What the HTTP API asks of the core, and what it gets back. Free of HTTP: routes and JSON live in `net::http`.

use crate::client::Secret;
use crate::hooks::call::{HttpRequest, HttpResponse};
use crate::message::{Committed, MessageFlags, Outcome};
use crate::plugins::{self, Change, DeadLetter, KeyOperation, KeyOutcome, KeyRefused, LetterName, Registry};
use crate::types::{ChannelKey, ChannelKind, DeviceFlag, DeviceLevel, Seq, SlotId, Uid};
use bytes::Bytes;
use std::sync::Arc;

/// Flags of a channel (client contract 5.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelFlags {
    /// Paged fan-out from the first member on.
    pub large: bool,
    /// Nobody may send (19).
    pub ban: bool,
    /// Terminal end of the channel (24).
    pub disband: bool,
    /// On a person channel record of a uid: this user may not send (25).
    pub send_ban: bool,
    /// On a person channel record of a uid: strangers may send although an allowlist is required.
    pub allow_stranger: bool,
}

/// Which member list of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum List {
    /// Subscribers (members).
    Subscribers,
    /// Denylist.
    Deny,
    /// Allowlist.
    Allow,
}

/// A change of a member list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListChange {
    /// Adds uids.
    Add(Vec<Uid>),
    /// Removes uids.
    Remove(Vec<Uid>),
    /// Makes these uids the whole list.
    Set(Vec<Uid>),
    /// Empties the list.
    Clear,
}

/// History request (client contract 7.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryQuery {
    /// Who reads.
    pub login_uid: Uid,
    /// Channel id as the reader names it.
    pub channel_id: Arc<str>,
    /// Kind.
    pub kind: ChannelKind,
    /// First position, inclusive; 0 = newest (older) or oldest visible (newer).
    pub start: Seq,
    /// End position, exclusive; 0 = unbounded.
    pub end: Seq,
    /// Most messages, 1..=10,000.
    pub limit: u32,
    /// True: newer messages (pull_mode 1); false: older ones (pull_mode 0).
    pub newer: bool,
}

/// A request of the HTTP API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Stores a device token (hashed) and creates the user.
    SetToken {
        /// User.
        uid: Uid,
        /// Token in clear; only its SHA-256 is stored.
        token: Secret,
        /// Device flag.
        flag: DeviceFlag,
        /// Device level.
        level: DeviceLevel,
    },
    /// Clears the token of a device flag (none = 0, 1 and 2) and closes its sessions.
    DeviceQuit {
        /// User.
        uid: Uid,
        /// Flag, or all.
        flag: Option<DeviceFlag>,
    },
    /// All system uids.
    SystemUids,
    /// Adds or removes system uids.
    ChangeSystemUids {
        /// The uids.
        uids: Vec<Uid>,
        /// Add or remove.
        add: bool,
    },
    /// Creates or updates a channel; `subscribers` are added (or set, with `reset`).
    PutChannel {
        /// Canonical id as given.
        channel_id: Arc<str>,
        /// Kind.
        kind: ChannelKind,
        /// Flags.
        flags: ChannelFlags,
        /// Replace the members.
        reset: bool,
        /// Members to add.
        subscribers: Vec<Uid>,
    },
    /// Terminal disband.
    DeleteChannel {
        /// Id.
        channel_id: Arc<str>,
        /// Kind.
        kind: ChannelKind,
    },
    /// Changes a member list.
    ChangeList {
        /// Id (for a person channel's lists: the owner uid).
        channel_id: Arc<str>,
        /// Kind.
        kind: ChannelKind,
        /// Which list.
        list: List,
        /// How.
        change: ListChange,
    },
    /// Reads a member list.
    ReadList {
        /// Id.
        channel_id: Arc<str>,
        /// Kind.
        kind: ChannelKind,
        /// Which list.
        list: List,
    },
    /// Sends a message.
    Send(Box<SendAsk>),
    /// Sends a message of a plugin.
    Publish(Box<PublishAsk>),
    /// Reads committed messages for a plugin.
    ReadMessages(MessagesAsk),
    /// Outcome of a send (SF-5).
    SendOutcome {
        /// Id as the sender names it.
        channel_id: Arc<str>,
        /// Kind.
        kind: ChannelKind,
        /// Sender.
        from_uid: Uid,
        /// Its number.
        client_msg_no: Arc<str>,
    },
    /// History.
    History(HistoryQuery),
    /// Which of these users are online, one entry per session.
    OnlineStatus(Vec<Uid>),
    /// All plugins and bindings, as the controller has them.
    Registry,
    /// Changes a plugin or a binding. A proposal asks every node in service to be ready.
    ChangeRegistry(Box<Change>),
    /// Something about messages that were given up for a binding.
    DeadLetters(LettersAsk),
    /// Something about keys of a plugin.
    Keys(KeysAsk),
    /// Something about requests that plugins answer.
    Route(RouteAsk),
    /// Is this node able to serve: groups have leaders, store is healthy.
    Ready,
}

/// What is asked about the dead letters of a binding, present or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LettersAsk {
    /// A page of them, ascending by name.
    List {
        /// The binding.
        binding: Arc<str>,
        /// Resume position, exclusive.
        after: Option<LetterName>,
        /// Most letters, 1..=1,000.
        limit: u32,
    },
    /// Hands the message of one to the plugin once more, and removes the letter when it is done. Repeated messages must be expected
    /// by the plugin, as always.
    Replay {
        /// The binding.
        binding: Arc<str>,
        /// The channel of the message.
        channel: ChannelKey,
        /// Which.
        name: LetterName,
    },
    /// Hands committed messages to a webhook once more, from `from` on: up to `through`, or as many as one delivery holds. How far
    /// it came is answered.
    Range {
        /// The binding.
        binding: Arc<str>,
        /// The channel of the messages.
        channel: ChannelKey,
        /// First position.
        from: Seq,
        /// Last position.
        through: Seq,
    },
    /// Removes some, at most 1,000.
    Drop {
        /// The binding.
        binding: Arc<str>,
        /// Which.
        names: Vec<LetterName>,
    },
}

/// What is asked about the keys of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeysAsk {
    /// Reads one.
    Get {
        /// The plugin.
        plugin: Arc<str>,
        /// The key.
        key: Arc<str>,
    },
    /// Changes one, once: where no answer comes, nobody knows whether it was changed.
    Change {
        /// The plugin.
        plugin: Arc<str>,
        /// The key.
        key: Arc<str>,
        /// What happens to it.
        operation: KeyOperation,
    },
    /// Lists them, slot by slot.
    List {
        /// The plugin.
        plugin: Arc<str>,
        /// Resume position, exclusive; the key is none where a slot begins.
        after: Option<KeyPlace>,
        /// Most keys, 1..=1,000.
        limit: u32,
    },
}

/// What is asked about requests over HTTP that a plugin answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteAsk {
    /// Whether a plugin answers requests without the API key. What does not, and what is not there, needs the key.
    Public {
        /// The plugin.
        plugin: Arc<str>,
    },
    /// The answer to a request.
    Answer {
        /// The plugin.
        plugin: Arc<str>,
        /// The request, without what guests must not see.
        request: Box<HttpRequest>,
        /// Whether it came with the API key.
        with_key: bool,
    },
}

/// Where a list of keys goes on: in this slot, after this key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPlace {
    /// The slot.
    pub slot: SlotId,
    /// The last key that was listed of it.
    pub key: Option<Arc<str>>,
}

/// A key of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginKey {
    /// The key.
    pub key: Arc<str>,
    /// Its value.
    pub value: Bytes,
    /// When it will be forgotten, ms since 1970; 0: never.
    pub expires_ms: u64,
}

/// A message sent over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendAsk {
    /// Sender.
    pub from_uid: Uid,
    /// Id as the sender names it; empty with `subscribers`.
    pub channel_id: Arc<str>,
    /// Kind.
    pub kind: ChannelKind,
    /// Request-scoped member list (needs sync_once).
    pub subscribers: Vec<Uid>,
    /// Number.
    pub client_msg_no: Arc<str>,
    /// Flags.
    pub flags: MessageFlags,
    /// Setting byte.
    pub setting: u8,
    /// Expiry, s.
    pub expire_s: u32,
    /// Topic.
    pub topic: Arc<str>,
    /// Payload.
    pub payload: Bytes,
}

/// A message that a plugin publishes. That it may, its host has checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishAsk {
    /// The plugin, which sends as `plugin:<name>`.
    pub plugin: Arc<str>,
    /// The canonical id, or the uid of a person that the plugin writes to.
    pub channel_id: Arc<str>,
    /// Kind.
    pub kind: ChannelKind,
    /// Number; the same for the same send of the same cause, empty when there is no cause.
    pub client_msg_no: Arc<str>,
    /// Times that it went through a plugin, this one included.
    pub hops: u8,
    /// Expiry, s.
    pub expire_s: u32,
    /// Topic.
    pub topic: Arc<str>,
    /// Payload.
    pub payload: Bytes,
}

/// Committed messages that a plugin reads. That it may, its host has checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessagesAsk {
    /// The channel, by its canonical id.
    pub channel: ChannelKey,
    /// First position, inclusive; 0 begins at the first kept one.
    pub from: Seq,
    /// Most messages, at least 1.
    pub limit: u32,
}

/// The answer to an [`Ask`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done and committed.
    Done,
    /// What became of a send.
    Sent(Outcome),
    /// The send is not known (never appended, or its window has passed).
    NoSuchSend,
    /// Uids.
    Uids(Vec<Uid>),
    /// One entry per live session.
    Online(Vec<(Uid, DeviceFlag)>),
    /// History, ascending.
    Messages {
        /// The messages.
        messages: Vec<Arc<Committed>>,
        /// Whether more match.
        more: bool,
        /// Positions that were removed by retention inside the range asked for: first kept position (RD-3).
        gap_until: Option<Seq>,
    },
    /// Plugins and bindings.
    Registry(Arc<Registry>),
    /// A change of the registry is committed; this is its revision.
    Changed {
        /// The revision, and that of what was changed.
        revision: u64,
    },
    /// Dead letters, ascending by name.
    DeadLetters {
        /// The letters.
        letters: Vec<DeadLetter>,
        /// Whether there are more.
        more: bool,
    },
    /// A key of a plugin, if it is there.
    Key(Option<PluginKey>),
    /// A key was changed.
    KeyChanged(KeyOutcome),
    /// Keys of a plugin, by slot and key.
    Keys {
        /// The keys.
        keys: Vec<PluginKey>,
        /// Where the list goes on; none at its end.
        next: Option<KeyPlace>,
    },
    /// What a plugin answers to a request.
    Response(HttpResponse),
    /// Messages were handed out once more.
    Replayed {
        /// The last of them.
        through: Seq,
    },
    /// Readiness.
    Ready(Readiness),
    /// Not done.
    Failed(Failure),
}

/// Health of a node (GA-12, CL-1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Whether the node serves with its configured durability.
    pub ready: bool,
    /// What is missing, for people.
    pub reason: String,
    /// Copies configured for channels; 1 is labelled "single copy".
    pub copies: u8,
    /// Groups hosted here that have no known leader.
    pub groups_without_leader: u32,
    /// The disk is nearly full: history is served, new messages are refused (R14).
    pub space_low: bool,
}

/// Why an [`Ask`] was not done. Every one says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The request itself is wrong: do not retry. The text names the field.
    Invalid(String),
    /// The channel (or user) does not exist.
    NotFound(String),
    /// Not allowed, with the wire code.
    Refused(crate::types::Reason),
    /// It was changed by someone else meanwhile: read it again.
    Conflict(String),
    /// Keys of a plugin do not allow it.
    Keys(KeyRefused),
    /// The API key is needed.
    KeyNeeded,
    /// A plugin gave no answer.
    Plugin(plugins::Failure),
    /// Queues are full: retry later.
    Busy,
    /// No leader or route now: retry later.
    Unavailable(String),
    /// No answer within the deadline; the change may or may not have happened: retry (every change is idempotent).
    Timeout,
}
