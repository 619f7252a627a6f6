//! The changes of the registry that can be asked for.

use super::{Artifact, Binding, Digest, PlacedTrip};
use crate::types::NodeId;
use std::sync::Arc;

/// How far a node is with a candidate. The number is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReportState {
    /// It holds the component.
    Stored = 1,
    /// It has compiled, started and tried it.
    Ready = 2,
    /// It cannot run it.
    Failed = 3,
}

impl ReportState {
    /// The state with this number.
    #[must_use]
    pub fn of(number: u32) -> Option<ReportState> {
        [ReportState::Stored, ReportState::Ready, ReportState::Failed]
            .into_iter()
            .find(|state| *state as u32 == number)
    }
}

/// A new candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The plugin, new or known.
    pub plugin: Arc<str>,
    /// Revision that the plugin must have; 0 = there must be none.
    pub expected_revision: u64,
    /// The candidate.
    pub artifact: Artifact,
}

/// What a node says of a candidate, with what it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedReport {
    /// The plugin.
    pub plugin: Arc<str>,
    /// The rollout: what is said of another one counts for nothing.
    pub rollout: u64,
    /// Who says so.
    pub node: NodeId,
    /// How far it is.
    pub state: ReportState,
    /// Why not, in words.
    pub text: Arc<str>,
}

/// Why a binding that follows channels does not. The number is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DisabledBy {
    /// Its endpoint has said that it is gone for good.
    Gone = 1,
    /// An operator wants it so.
    Operator = 2,
}

impl DisabledBy {
    /// The cause with this number.
    #[must_use]
    pub fn of(number: u32) -> Option<DisabledBy> {
        [DisabledBy::Gone, DisabledBy::Operator]
            .into_iter()
            .find(|cause| *cause as u32 == number)
    }

    /// Its name, as people read it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            DisabledBy::Gone => "gone",
            DisabledBy::Operator => "operator",
        }
    }
}

/// A binding that follows channels is disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disabled {
    /// Why.
    pub by: DisabledBy,
    /// Since when, ms since 1970.
    pub since_ms: u64,
}

/// A change of the registry. Each is made in one step at one revision, or refused with its cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Opens a rollout.
    Propose(Proposal),
    /// A node reports on the candidate.
    Report(PlacedReport),
    /// Gives the candidate a share of the channels.
    Canary {
        /// The plugin.
        plugin: Arc<str>,
        /// Revision that it must have.
        expected_revision: u64,
        /// Per cent of the channels, 0..=100.
        percent: u8,
    },
    /// Makes the candidate the active digest.
    Promote {
        /// The plugin.
        plugin: Arc<str>,
        /// Revision that it must have.
        expected_revision: u64,
    },
    /// Drops an open rollout, or else changes the active and the previous digest. Keys that a canary wrote stay.
    Rollback {
        /// The plugin.
        plugin: Arc<str>,
        /// Revision that it must have.
        expected_revision: u64,
    },
    /// A node gives up a version, or tries it again. When a majority of the nodes has given it up, it is quarantined.
    Trip(PlacedTrip),
    /// Lets quarantined versions be proposed, promoted and run again.
    Release {
        /// The plugin.
        plugin: Arc<str>,
        /// Revision that it must have.
        expected_revision: u64,
        /// Which; all of them without it.
        digest: Option<Digest>,
    },
    /// Removes a plugin that nothing is bound to.
    Remove {
        /// The plugin.
        plugin: Arc<str>,
        /// Revision that it must have.
        expected_revision: u64,
    },
    /// Makes or changes a binding.
    Bind {
        /// The binding.
        binding: Box<Binding>,
        /// Revision that it must have; 0 = there must be none.
        expected_revision: u64,
    },
    /// Has a binding that follows channels follow them no more. It keeps its cursors.
    Disable {
        /// The binding.
        id: Arc<str>,
        /// Which creation of it.
        incarnation: u64,
        /// Which configuration of it: another one may work.
        generation: u64,
        /// Why.
        by: DisabledBy,
    },
    /// Has it go on where it stopped.
    Enable {
        /// The binding.
        id: Arc<str>,
        /// Revision that it must have.
        expected_revision: u64,
    },
    /// Removes a binding, and with it its claim on what it has not done.
    Unbind {
        /// The binding.
        id: Arc<str>,
        /// Revision that it must have.
        expected_revision: u64,
    },
}

/// Why a change was not made. Decided by the rows alone, so every replica says the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Its revision is not the expected one.
    Changed,
    /// No plugin has this name.
    NoPlugin,
    /// No binding has this id.
    NoBinding,
    /// Another rollout of the plugin is open.
    RolloutOpen,
    /// No rollout of the plugin is open.
    NoRollout,
    /// A node that is needed is not ready.
    NotReady,
    /// Nothing ran before.
    NothingBefore,
    /// The candidate is the active digest already.
    SameDigest,
    /// The version is quarantined.
    Quarantined,
    /// The version is not quarantined, or none is.
    NotQuarantined,
    /// So many versions are quarantined that no other one may be proposed.
    TooManyQuarantined,
    /// What a node says of a version is known, or the version is not called any more.
    Known,
    /// The binding is not disabled.
    NotDisabled,
    /// The binding does not follow channels.
    NotFollowing,
    /// Bindings name the plugin.
    StillBound,
    /// Neither the active digest nor the candidate exports the hook.
    NoHook,
    /// Another binding answers requests below the name of the plugin.
    RouteBound,
    /// The hook or the plugin of a binding cannot be changed.
    Fixed,
    /// There are as many plugins as there may be.
    TooManyPlugins,
    /// There are as many bindings as there may be.
    TooManyBindings,
    /// All rows together would be too large.
    TooLarge,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match self {
            Refused::Changed => "it has another revision by now: read it and decide again",
            Refused::NoPlugin => "no plugin has this name: deploy it first",
            Refused::NoBinding => "no binding has this id: the list of bindings has them all",
            Refused::RolloutOpen => "a rollout of this plugin is open: promote it or roll it back first",
            Refused::NoRollout => "no rollout of this plugin is open: propose a version first",
            Refused::NotReady => {
                "not every node is ready for the candidate: see the plugin's status for what each of them says"
            }
            Refused::NothingBefore => "nothing ran before: there is nothing to roll back to",
            Refused::SameDigest => "this version is active already",
            Refused::Quarantined => {
                "this version is quarantined because it kept failing: see the plugin's status for how, and release it first"
            }
            Refused::NotQuarantined => "nothing of that is quarantined: the plugin's status names what is",
            Refused::TooManyQuarantined => {
                "too many versions of this plugin are quarantined: release some of them first"
            }
            Refused::Known => "this is known, or the version is not called any more",
            Refused::NotDisabled => "this binding is not disabled",
            Refused::NotFollowing => {
                "only bindings that follow channels after the commit can be disabled: to take a filter out, remove its binding"
            }
            Refused::StillBound => "bindings still name this plugin: remove them first",
            Refused::NoHook => "the plugin does not export this hook",
            Refused::RouteBound => {
                "another binding of this plugin has the hook `route`, and one alone answers its requests: change that one, or remove it first"
            }
            Refused::Fixed => "plugin and hook of a binding stay: remove it and make another one",
            Refused::TooManyPlugins => "there are as many plugins as there may be: remove one first",
            Refused::TooManyBindings => "there are as many bindings as there may be: remove one first",
            Refused::TooLarge => {
                "all plugins and bindings together would be larger than every node keeps in memory"
            }
        };
        formatter.write_str(text)
    }
}
