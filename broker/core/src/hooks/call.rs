//! What the core asks of a plugin, and what it gets back. Free of WebAssembly: the plugin host translates.

use super::pipeline::{Failure, Verdict};
use crate::entrance::{Decision, Request};
use crate::message::{Draft, Message};
use crate::plugins::Hook;
use crate::types::{ChannelKey, Incarnation, Seq, SlotId, Uid};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// SHA-256 of a plugin's component: its name everywhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl std::fmt::Display for Digest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{self}")
    }
}

/// Which code runs for a binding, and under which configuration. An answer belongs to the version that was asked: a swap
/// never falls into the middle of a batch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The binding.
    pub binding: Arc<str>,
    /// The component.
    pub digest: Digest,
    /// Counts the changes of the binding's configuration and grants.
    pub generation: u64,
}

/// One call of a plugin.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// What runs.
    pub version: Version,
    /// The channel of the work; none when somebody connects or asks over HTTP, and for users that came or went.
    pub channel: Option<ChannelKey>,
    /// An answer later than this is not waited for; the guest is stopped by then.
    pub within: Duration,
    /// What it is asked.
    pub work: Work,
}

impl Call {
    /// The channel of work that always has one.
    ///
    /// # Errors
    /// When it has none.
    pub fn of_channel(&self) -> Result<&ChannelKey, Failed> {
        self.channel.as_ref().ok_or(Failed::Call(Failure::Host))
    }
}

/// What a plugin is asked to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Judge drafts, at least one.
    BeforeSend {
        /// The drafts as earlier stages left them.
        drafts: Vec<Draft>,
        /// Wall clock of the batch, ms since 1970: what the guest reads as the time.
        wall_ms: u64,
    },
    /// Work on committed messages, at least one, in order: all that follow the last run, without those of senders that the binding is
    /// not for.
    PersistAfter {
        /// Revision of the registry at the binding's creation: part of the numbers of what the plugin publishes.
        binding_incarnation: u64,
        /// Which creation of the channel.
        incarnation: Incarnation,
        /// The messages.
        messages: Vec<Message>,
    },
    /// Take note of recipients of a committed message who are offline.
    Offline {
        /// Which creation of the channel.
        incarnation: Incarnation,
        /// The message.
        message: Box<Message>,
        /// A page of them, at least one, ascending.
        uids: Vec<Uid>,
    },
    /// Say who may connect.
    Connect {
        /// Who wants to.
        request: Box<Request>,
        /// Wall clock, ms since 1970: what the guest reads as the time.
        wall_ms: u64,
    },
    /// Answer a request over HTTP.
    Route {
        /// The request. Its url is the path below the plugin's own, with its query.
        request: Box<HttpRequest>,
        /// Wall clock, ms since 1970: what the guest reads as the time.
        wall_ms: u64,
    },
    /// Render the requests for committed messages and have them delivered, in order.
    Webhook {
        /// Names the delivery: the same for every attempt.
        window: Window,
        /// The messages of the window, at least one, in order, without those of senders that the binding is not for.
        messages: Vec<Message>,
        /// For `msg.offline` a page of recipients of the one message who are offline, ascending; empty for `msg.notify`.
        uids: Vec<Uid>,
    },
    /// Render the requests for users that came or went and have them delivered, in order.
    OnlineStatus(StatusBatch),
}

/// A batch of users that came or went. Where it comes from names the delivery: the same for every attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusBatch {
    /// Revision of the registry at the binding's creation.
    pub binding_incarnation: u64,
    /// The slot of the users.
    pub slot: SlotId,
    /// Number of the batch in the queue of the slot.
    pub number: u64,
    /// When the first of them came or went, ms since 1970.
    pub wall_ms: u64,
    /// One text for each, as receivers get it, at least one, in order.
    pub statuses: Vec<String>,
}

impl Work {
    /// The hook that is called.
    #[must_use]
    pub const fn hook(&self) -> Hook {
        match self {
            Work::BeforeSend { .. } => Hook::BeforeSend,
            Work::PersistAfter { .. } => Hook::PersistAfter,
            Work::Offline { .. } => Hook::Offline,
            Work::Connect { .. } => Hook::Connect,
            Work::Route { .. } => Hook::Route,
            Work::Webhook { .. } | Work::OnlineStatus(_) => Hook::Webhook,
        }
    }

    /// Whether it follows a channel after the commit, so that no client waits for it.
    #[must_use]
    pub fn follows(&self) -> bool {
        self.hook().follows()
    }
}

/// The messages that a webhook delivers together. They are fixed durably before the first attempt, so that every attempt
/// carries the same ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Window {
    /// Revision of the registry at the binding's creation.
    pub binding_incarnation: u64,
    /// Which creation of the channel.
    pub incarnation: Incarnation,
    /// The first position.
    pub first: Seq,
    /// The last one.
    pub last: Seq,
}

/// What a plugin answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// One verdict for each draft of [`Work::BeforeSend`].
    Verdicts(Vec<Verdict>),
    /// The leading messages of [`Work::PersistAfter`], or uids of [`Work::Offline`], that are done; 0 is a retry. All messages of
    /// [`Work::Webhook`], or all uids if it has any; all users of [`Work::OnlineStatus`].
    Done {
        /// How many messages or uids, at most all.
        messages: u32,
        /// Changes of the binding's keys that these messages cause.
        changes: Vec<KvChange>,
    },
    /// What becomes of [`Work::Connect`].
    Decision(Decision),
    /// The answer to the request of [`Work::Route`].
    Response(HttpResponse),
    /// The requests of [`Work::Webhook`] or [`Work::OnlineStatus`], to be delivered in order. They go to who delivers them, which answers
    /// [`Answer::Done`] in their place.
    Requests(Vec<HttpRequest>),
}

/// A request over HTTP, made by a plugin or to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// GET, POST and so on.
    pub method: String,
    /// Where to.
    pub url: String,
    /// Names and values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
}

/// An answer over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpResponse {
    /// Status, 200 to 599.
    pub status: u16,
    /// Names and values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
}

/// A change of one key, exactly once per message and key (M-18).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvChange {
    /// The message that causes it: its place in the call.
    pub message: u32,
    /// The key within the plugin's namespace.
    pub key: Arc<str>,
    /// What happens to it.
    pub operation: KvOperation,
}

/// What happens to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvOperation {
    /// It gets this value, for so many milliseconds (0: for ever).
    Set {
        /// The value.
        value: Bytes,
        /// Life time, ms.
        ttl_ms: u64,
    },
    /// Its number grows by this.
    Increment(i64),
    /// It goes.
    Delete,
}

/// Why a plugin gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The call itself failed: the guest is broken, too slow, or could not be run.
    Call(Failure),
    /// The guest wants to be asked again, not before this pause when it named one.
    Retry {
        /// Wished pause.
        after: Option<Duration>,
    },
    /// The guest has no time for it now, which counts as no attempt: it is asked again, not before this pause when it named one.
    Busy {
        /// Wished pause.
        after: Option<Duration>,
    },
    /// The guest says that the first message which is not done can never be done.
    Poison,
    /// A webhook's endpoint did not take it, or could not be reached.
    Undelivered {
        /// How long the endpoint wants to be left alone, when it says so.
        after: Option<Duration>,
    },
    /// A webhook was not tried, because its endpoint is left alone for a while or has too much to do.
    Later {
        /// For so long.
        after: Duration,
    },
    /// A webhook's endpoint says that it is gone for good.
    Gone,
}

/// The result of a call.
pub type Returned = Result<Answer, Failed>;
