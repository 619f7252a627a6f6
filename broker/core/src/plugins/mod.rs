//! Which plugins there are, which of their versions runs where, and what they are bound to.
//!
//! # Owns
//! Values only: a [`Registry`] is one revision of the controller's rows about plugins, made whole and swapped whole.
//!
//! # Invariants
//! - A channel, and a user who connects, sees one digest of a binding at one revision: the candidate when its hash falls into the
//!   canary's share, else the active one (M-19).
//! - Bindings stand in the order in which they run: priority from high to low, then plugin, then binding.
//!
//! # States
//! A plugin: proposed → ready on every node → canary → promoted; the former digest stays as what to roll back to. A digest that
//! a majority of the nodes has given up is quarantined, until somebody releases it.
//!
//! # Absent
//! The rows and the commands that change them (`controller`), components and their bytes (the plugin host).

mod captured;
mod change;
mod consumers;
mod events;
mod keys;
mod letters;
mod policy;
mod publish;
mod quarantine;
mod select;
mod share;
#[cfg(test)]
mod tests;

pub use captured::Captured;
pub use change::{Change, Disabled, DisabledBy, PlacedReport, Proposal, Refused, ReportState};
pub use consumers::Told;
pub use events::Events;
pub use keys::{
    KEY_BYTES_MAX, KEY_CHANGES_MAX, KEY_OVERHEAD_BYTES, KeyChange, KeyOperation, KeyOutcome, KeyRefused,
    KeySource, KeyValue, QUOTA_BYTES, TTL_MS_MAX, VALUE_BYTES_MAX, is_alive, key_slot,
};
pub use letters::{Cause, DeadLetter, LETTERS_MAX, LetterName, OFFLINE_LETTER, letters_slot};
pub(crate) use policy::FAILURES;
pub use policy::{Failure, OnError, Policy};
pub use publish::{Content, HOPS_MAX, NoTicket, Publishing, SENDS_MAX, Source, Ticket, uid_of};
pub use quarantine::{Consequence, PROMOTED_LATELY, PlacedTrip, QUARANTINED_MAX, Quarantine, Trip};
pub use select::{Pattern, Selector};
pub use share::{share, slot_share, user_share};

pub use crate::hooks::call::{Digest, Version};
use crate::types::{ChannelKey, NodeId, SlotId, Uid};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Most plugins of a cluster.
pub const PLUGINS_MAX: usize = 256;
/// Most bindings of a cluster.
pub const BINDINGS_MAX: usize = 1_024;
/// Longest name of a plugin and id of a binding, bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Facts of one component that the core only carries, bytes.
pub const FACTS_BYTES_MAX: usize = 16 << 10;
/// Configuration and grants of one binding, together, bytes.
pub const CONFIG_BYTES_MAX: usize = 64 << 10;
/// All rows about plugins together, bytes: every node reads them in one go.
pub const REGISTRY_BYTES_MAX: u64 = 4 << 20;
/// Patterns, kinds and uids of one selector, each.
pub const SELECTOR_PARTS_MAX: usize = 64;
/// Shortest and longest time that a binding may wait for an answer.
pub const DEADLINE: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(60);
/// Longest time that a route binding may wait for an answer: whoever asks over HTTP is not kept for longer.
pub const ROUTE_DEADLINE_MAX: Duration = Duration::from_secs(10);
/// Records of one run of a post-commit binding.
pub const RUN_MAX: u32 = 256;
/// Records of one run of a webhook.
pub const WEBHOOK_RUN_MAX: u32 = 100;
/// How long a message of a webhook may be tried.
pub const PATIENCE: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(7 * 24 * 3_600);
/// Longest text that a node says about a candidate, bytes.
pub const REPORT_BYTES_MAX: usize = 1_024;

/// Where a plugin takes part. The number is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    /// Before a message is appended.
    BeforeSend = 1,
    /// After it is committed, by a durable cursor.
    PersistAfter = 2,
    /// After it is committed, by a durable cursor too: the plugin renders requests, the host delivers them.
    Webhook = 3,
    /// When a session opens, after its token was checked.
    Connect = 4,
    /// After it is committed, by a durable cursor: for the recipients who are offline.
    Offline = 5,
    /// When somebody asks over HTTP below the plugin's name.
    Route = 6,
}

impl Hook {
    /// All of them.
    pub const ALL: [Hook; 6] = [
        Hook::BeforeSend,
        Hook::PersistAfter,
        Hook::Webhook,
        Hook::Connect,
        Hook::Offline,
        Hook::Route,
    ];

    /// The hook with this number.
    #[must_use]
    pub fn of(number: u32) -> Option<Hook> {
        Hook::ALL.into_iter().find(|hook| *hook as u32 == number)
    }

    /// The hook of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Hook> {
        Hook::ALL.into_iter().find(|hook| hook.name() == name)
    }

    /// Whether its bindings follow channels after the commit.
    #[must_use]
    pub fn follows(self) -> bool {
        match self {
            Hook::BeforeSend | Hook::Connect | Hook::Route => false,
            Hook::PersistAfter | Hook::Webhook | Hook::Offline => true,
        }
    }

    /// Its name, as people write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Hook::BeforeSend => "before-send",
            Hook::PersistAfter => "persist-after",
            Hook::Webhook => "webhook",
            Hook::Connect => "connect",
            Hook::Offline => "offline",
            Hook::Route => "route",
        }
    }
}

/// A component as the cluster knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// SHA-256 of its bytes.
    pub digest: Digest,
    /// The hooks that it exports.
    pub hooks: BTreeSet<Hook>,
    /// What else its manifest says, for the plugin host: the core only carries it.
    pub facts: Bytes,
}

/// A candidate on its way to be the active digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollout {
    /// Unique; part of the hash that chooses the channels and users of a canary.
    pub id: u64,
    /// The candidate.
    pub artifact: Artifact,
    /// The nodes that must be ready first.
    pub wanted: BTreeSet<NodeId>,
    /// What they have said.
    pub reports: BTreeMap<NodeId, Report>,
    /// Per cent of the channels that run the candidate.
    pub canary_percent: u8,
}

/// What a node says of a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// How far it is.
    pub state: ReportState,
    /// Why not, in words; empty when all is well.
    pub text: Arc<str>,
}

impl Rollout {
    /// Whether every node that is needed is ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let ready = |node: &NodeId| {
            self.reports
                .get(node)
                .is_some_and(|report| report.state == ReportState::Ready)
        };
        self.wanted.iter().all(ready)
    }
}

/// A plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plugin {
    /// Unique name.
    pub name: Arc<str>,
    /// Compare-and-set key.
    pub revision: u64,
    /// What runs.
    pub active: Option<Artifact>,
    /// What ran before, for a rollback.
    pub previous: Option<Artifact>,
    /// The candidate, if a rollout is open.
    pub rollout: Option<Rollout>,
    /// When what runs was promoted, ms since 1970; 0 when it came back by a rollback.
    pub promoted_ms: u64,
    /// The nodes that have given up a version that is called.
    pub trips: Vec<Trip>,
    /// The versions that are quarantined, the oldest first.
    pub quarantined: Vec<Quarantine>,
}

/// Where a post-commit binding begins in a channel in which it has done nothing yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// At the first kept message.
    Earliest,
    /// At this position.
    Seq(u64),
    /// At the first message stamped at or after this time, ms since 1970: "latest" is the time of the binding.
    Time(u64),
}

/// What an operator binds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Unique id.
    pub id: Arc<str>,
    /// The plugin's name.
    pub plugin: Arc<str>,
    /// Where it takes part.
    pub hook: Hook,
    /// In which channels, for which senders.
    pub selector: Selector,
    /// From high to low.
    pub priority: i32,
    /// How long one call may take.
    pub deadline: Duration,
    /// What a failed call of a before-send or connect binding means.
    pub on_error: OnError,
    /// What the plugin may do: opaque to the core.
    pub grants: Bytes,
    /// Its configuration, JSON: opaque to the core.
    pub config: Bytes,
    /// Where a post-commit binding begins; none means now.
    pub start: Option<StartAt>,
    /// Attempts of a post-commit binding before a message is given up; 0 tries for ever.
    pub attempts_max: u32,
    /// Whether windows are fixed durably before they are handed out, so that changes of its keys are exact (M-18). Those of a
    /// webhook always are: an attempt that is repeated carries the same messages under the same id.
    pub exact: bool,
    /// How long a message of a webhook is tried before it is given up; of no meaning for other hooks.
    pub patience: Duration,
    /// Whether a node may run a before-send plugin on the thread of a shard once it has proved to be quick.
    pub inline: bool,
    /// Whether a route binding answers requests without the API key.
    pub public: bool,
    /// Which events a webhook delivers; of no meaning for other hooks.
    pub events: Events,
    /// Whether it gets messages that its own plugin published: not without a wish, because that is how loops begin (S17).
    pub own_messages: bool,
    /// What a node keeps of the input of a call that failed.
    pub capture: Captured,
}

/// A binding as it stands in the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// What the operator bound.
    pub binding: Binding,
    /// Compare-and-set key.
    pub revision: u64,
    /// Revision of its creation: a binding of the same id that comes later is another one, with cursors of its own.
    pub incarnation: u64,
    /// Counts the changes of configuration and grants.
    pub generation: u64,
    /// Since when, and why, a binding that follows channels does not; none while it does.
    pub disabled: Option<Disabled>,
    /// The digest of every channel that is not in the canary; none before the first promotion.
    active: Option<Version>,
    /// The candidate, with its rollout and share.
    canary: Option<(Version, u64, u8)>,
    /// What may become active by one command: the candidate of an open rollout, and what ran before.
    standby: Vec<Version>,
    /// Versions that are quarantined: never called.
    quarantined: Vec<Version>,
}

impl Bound {
    /// A binding with the versions that its plugin gives it.
    #[must_use]
    pub fn new(binding: Binding, revision: u64, incarnation: u64, generation: u64, plugin: &Plugin) -> Bound {
        // A digest that does not export the hook is called all the same: its failure has a policy, its absence has none.
        let version = |artifact: &Artifact| Version {
            binding: Arc::clone(&binding.id),
            digest: artifact.digest,
            generation,
        };
        let active = plugin.active.as_ref().map(version);
        let canary = plugin
            .rollout
            .as_ref()
            .filter(|rollout| rollout.canary_percent > 0)
            .map(|rollout| (version(&rollout.artifact), rollout.id, rollout.canary_percent));
        let candidate = plugin.rollout.as_ref().map(|rollout| &rollout.artifact);
        let standby = candidate
            .into_iter()
            .chain(&plugin.previous)
            .map(version)
            .collect();
        let quarantined = plugin.quarantined.iter().map(|quarantine| Version {
            binding: Arc::clone(&binding.id),
            digest: quarantine.digest,
            generation,
        });
        let quarantined = quarantined.collect();
        Bound {
            binding,
            revision,
            incarnation,
            generation,
            disabled: None,
            active,
            canary,
            standby,
            quarantined,
        }
    }

    /// The same, disabled or not.
    #[must_use]
    pub fn with_disabled(mut self, disabled: Option<Disabled>) -> Bound {
        self.disabled = disabled;
        self
    }

    /// What runs in this channel; none when it is not selected or nothing is promoted yet.
    #[must_use]
    pub fn version(&self, channel: &ChannelKey) -> Option<&Version> {
        if !self.binding.selector.takes_channel(channel) {
            return None;
        }
        self.version_at(|rollout| share(rollout, channel))
    }

    /// What runs when this user connects; none when it is not selected or nothing is promoted yet.
    #[must_use]
    pub fn version_of_user(&self, uid: &Uid) -> Option<&Version> {
        if !self.binding.selector.takes_sender(uid) {
            return None;
        }
        self.version_at(|rollout| user_share(rollout, uid))
    }

    /// What answers requests over HTTP: never a candidate, because a request has no user or channel that would see one version only.
    #[must_use]
    pub fn version_of_requests(&self) -> Option<&Version> {
        self.active.as_ref()
    }

    /// What tells of users that came or went in this slot; none when nothing is promoted yet.
    #[must_use]
    pub fn version_of_slot(&self, slot: SlotId) -> Option<&Version> {
        self.version_at(|rollout| slot_share(rollout, slot))
    }

    fn version_at(&self, share: impl FnOnce(u64) -> u8) -> Option<&Version> {
        match &self.canary {
            Some((version, rollout, percent)) if share(*rollout) < *percent => Some(version),
            _ => self.active.as_ref(),
        }
    }

    /// The versions that run somewhere.
    pub fn called(&self) -> impl Iterator<Item = &Version> {
        let canary = self.canary.as_ref().map(|(version, ..)| version);
        let is_free = move |version: &&Version| !self.is_quarantined(version);
        self.active.iter().chain(canary).filter(is_free)
    }

    /// The versions that are quarantined.
    #[must_use]
    pub fn quarantined(&self) -> &[Version] {
        &self.quarantined
    }

    /// Whether a version is never called: it answers as if it were not loaded.
    #[must_use]
    pub fn is_quarantined(&self, version: &Version) -> bool {
        self.quarantined.contains(version)
    }
}

/// One revision of everything about plugins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registry {
    /// Rises with every change.
    pub revision: u64,
    /// The plugins by name.
    pub plugins: BTreeMap<Arc<str>, Plugin>,
    /// The bindings, in the order in which they run.
    bindings: Vec<Arc<Bound>>,
}

impl Registry {
    /// Puts the parts together. A binding of a plugin that is not there is left out: the commands keep that from happening.
    #[must_use]
    pub fn new(revision: u64, plugins: Vec<Plugin>, mut bindings: Vec<Bound>) -> Registry {
        bindings.sort_by(|left, right| {
            let (left, right) = (&left.binding, &right.binding);
            right
                .priority
                .cmp(&left.priority)
                .then_with(|| left.plugin.cmp(&right.plugin))
                .then_with(|| left.id.cmp(&right.id))
        });
        Registry {
            revision,
            plugins: plugins
                .into_iter()
                .map(|plugin| (Arc::clone(&plugin.name), plugin))
                .collect(),
            bindings: bindings.into_iter().map(Arc::new).collect(),
        }
    }

    /// All bindings, in the order in which they run.
    #[must_use]
    pub fn bindings(&self) -> &[Arc<Bound>] {
        &self.bindings
    }

    /// The bindings of a hook, in the order in which they run.
    pub fn of(&self, hook: Hook) -> impl Iterator<Item = &Arc<Bound>> {
        self.bindings
            .iter()
            .filter(move |bound| bound.binding.hook == hook)
    }

    /// The binding of this id.
    #[must_use]
    pub fn binding(&self, id: &str) -> Option<&Arc<Bound>> {
        self.bindings.iter().find(|bound| bound.binding.id.as_ref() == id)
    }

    /// The binding that answers requests below the name of a plugin: the commands keep it at one.
    #[must_use]
    pub fn route(&self, plugin: &str) -> Option<&Arc<Bound>> {
        self.of(Hook::Route)
            .find(|bound| bound.binding.plugin.as_ref() == plugin)
    }

    /// Every version that may be called, now or after one command: what a plugin host keeps loaded.
    pub fn versions(&self) -> impl Iterator<Item = (&Arc<Bound>, &Version)> {
        self.bindings.iter().flat_map(|bound| {
            let canary = bound.canary.as_ref().map(|(version, ..)| version);
            bound
                .active
                .iter()
                .chain(canary)
                .chain(&bound.standby)
                .map(move |version| (bound, version))
        })
    }
}
