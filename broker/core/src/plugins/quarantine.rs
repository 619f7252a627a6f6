//! Versions that the nodes have given up, and what the cluster makes of it.

use super::{Digest, Failure, Plugin};
use crate::types::NodeId;
use std::sync::Arc;
use std::time::Duration;

/// A version that was promoted so lately is taken back when it turns out to be bad: what ran before it is known to be better.
pub const PROMOTED_LATELY: Duration = Duration::from_secs(60 * 60);
/// Versions of one plugin that may be quarantined when another one is proposed.
pub const QUARANTINED_MAX: usize = 32;

/// A node has given up a version: its breaker does not close.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trip {
    /// The version's component.
    pub digest: Digest,
    /// Who says so.
    pub node: NodeId,
    /// When it was said, ms since 1970.
    pub at_ms: u64,
    /// How the version failed last.
    pub cause: Failure,
}

/// What a node says about a version that it has given up, or tries again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedTrip {
    /// The plugin.
    pub plugin: Arc<str>,
    /// The version's component.
    pub digest: Digest,
    /// Who says so.
    pub node: NodeId,
    /// The failure for which it is given up; none when it is not any more.
    pub cause: Option<Failure>,
}

/// What became of a plugin when one of its versions was quarantined. The number is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consequence {
    /// The version was a candidate: its rollout was dropped.
    Dropped = 1,
    /// The version that ran before runs again.
    RolledBack = 2,
    /// Nothing runs: the bindings answer as when nothing is loaded.
    Disabled = 3,
}

impl Consequence {
    /// The consequence with this number.
    #[must_use]
    pub fn of(number: u32) -> Option<Consequence> {
        [
            Consequence::Dropped,
            Consequence::RolledBack,
            Consequence::Disabled,
        ]
        .into_iter()
        .find(|consequence| *consequence as u32 == number)
    }

    /// Its name, as people read it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Consequence::Dropped => "dropped",
            Consequence::RolledBack => "rolled-back",
            Consequence::Disabled => "disabled",
        }
    }
}

/// A version that runs nowhere until an operator releases it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantine {
    /// Its component.
    pub digest: Digest,
    /// Since when, ms since 1970.
    pub at_ms: u64,
    /// Why, in words.
    pub reason: Arc<str>,
    /// What became of the plugin.
    pub consequence: Consequence,
}

impl Plugin {
    /// The quarantine of a version, if it is in one.
    #[must_use]
    pub fn quarantine(&self, digest: Digest) -> Option<&Quarantine> {
        self.quarantined
            .iter()
            .find(|quarantine| quarantine.digest == digest)
    }

    /// Whether it runs nowhere because its version is quarantined.
    #[must_use]
    pub fn is_disabled(&self) -> bool {
        let active = self.active.as_ref();
        active.is_some_and(|active| self.quarantine(active.digest).is_some())
    }

    /// The versions that are called somewhere: the active one, and a candidate that has a share of the channels.
    pub fn called(&self) -> impl Iterator<Item = Digest> {
        let candidate = self.rollout.as_ref().filter(|rollout| rollout.canary_percent > 0);
        let candidate = candidate.map(|rollout| &rollout.artifact);
        self.active
            .iter()
            .chain(candidate)
            .map(|artifact| artifact.digest)
            .filter(move |digest| self.quarantine(*digest).is_none())
    }
}
