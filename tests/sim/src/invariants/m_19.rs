//! M-19 and the rules of the before-send stages, seen from outside: what a batch became was decided under one registry, every
//! message is as some stage left it, and none passes by a filter that was bound.

use bytes::Bytes;
use penstock_core::hooks::call::{Digest, Version};
use penstock_core::plugins::{Bound, Failure, Hook, OnError, Policy, Registry};
use penstock_core::types::{ChannelKey, Uid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Begins the mark of a stage behind a payload; no sender writes it.
const MARK: u8 = b'~';

/// What became of drafts, as plugins and shards were seen to act.
#[derive(Debug, Default)]
pub struct Judged {
    registries: BTreeMap<u64, Arc<Registry>>,
    /// (node, shard) → the revision that it acts on.
    acting: BTreeMap<(usize, u16), u64>,
    /// Since when which revision was the lowest that any shard acted on.
    floors: Vec<(Duration, u64)>,
    /// Operation → the payloads with which a stage may have left it.
    left: BTreeMap<usize, BTreeSet<Bytes>>,
    seen: BTreeSet<(usize, Bytes)>,
}

/// A message as it is shown.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// The send that it comes from.
    pub operation: usize,
    /// When that was first sent.
    pub invoked: Duration,
    /// Where.
    pub channel: &'a ChannelKey,
    /// Who sent it.
    pub from: &'a Uid,
    /// Its payload now.
    pub payload: &'a Bytes,
}

/// What the sender wrote of this payload.
#[must_use]
pub fn original(payload: &[u8]) -> &[u8] {
    let end = payload.iter().position(|&byte| byte == MARK);
    &payload[..end.unwrap_or(payload.len())]
}

/// The payload with the mark of a stage.
#[must_use]
pub fn marked(payload: &[u8], version: &Version) -> Bytes {
    let mut out = payload.to_vec();
    let mark = format!("~{}.{}.{}", version.binding, number(version), version.generation);
    out.extend_from_slice(mark.as_bytes());
    Bytes::from(out)
}

/// The component with this number.
#[must_use]
pub fn digest(number: u32) -> Digest {
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    Digest(bytes)
}

/// The number of a version's component.
#[must_use]
pub fn number(version: &Version) -> u32 {
    let [first, second, third, fourth, ..] = version.digest.0;
    u32::from_be_bytes([first, second, third, fourth])
}

/// The stages that have marked a payload, in order.
fn marks(payload: &[u8]) -> Vec<Version> {
    let text = String::from_utf8_lossy(payload);
    let version = |mark: &str| {
        let mut parts = mark.split('.');
        Some(Version {
            binding: Arc::from(parts.next()?),
            digest: digest(parts.next()?.parse().ok()?),
            generation: parts.next()?.parse().ok()?,
        })
    };
    text.split('~').skip(1).filter_map(version).collect()
}

/// Whether these versions run in this order in a channel under a registry.
fn agrees(registry: &Registry, channel: &ChannelKey, versions: &[Version]) -> bool {
    let mut stages = registry
        .of(Hook::BeforeSend)
        .filter_map(|bound| bound.version(channel));
    versions.iter().all(|wanted| stages.any(|stage| stage == wanted))
}

/// Whether a message may come by these stages in their order when those are not called whose versions are suspended or quarantined:
/// nobody sees that.
fn lets_pass_uncalled(stages: impl Iterator<Item = OnError>) -> bool {
    for on_error in stages {
        let policies = [Failure::Suspended, Failure::NotReady].map(|failure| on_error.of(failure));
        if policies.contains(&Policy::Allow) {
            return true;
        }
        if !policies.contains(&Policy::Skip) {
            return false;
        }
    }
    true
}

impl Judged {
    /// A node knows this registry.
    pub fn learned(&mut self, registry: &Arc<Registry>) {
        self.registries.insert(registry.revision, Arc::clone(registry));
    }

    /// A shard acts on this revision.
    pub fn acts(&mut self, now: Duration, place: (usize, u16), revision: Option<u64>) {
        let Some(revision) = revision else { return };
        if self.acting.insert(place, revision) != Some(revision) {
            let lowest = self.acting.values().min().copied().unwrap_or(revision);
            self.floors.push((now, lowest));
        }
    }

    /// A process ended.
    pub fn ended(&mut self, node: usize) {
        self.acting.retain(|(of, _), _| *of != node);
    }

    /// The registry of this revision.
    #[must_use]
    pub fn registry(&self, revision: u64) -> Option<&Arc<Registry>> {
        self.registries.get(&revision)
    }

    /// The newest registry that anyone knows.
    #[must_use]
    pub fn newest(&self) -> Option<&Arc<Registry>> {
        self.registries.values().next_back()
    }

    /// The binding of this id, as it is or was.
    #[must_use]
    pub fn binding(&self, id: &str) -> Option<&Arc<Bound>> {
        self.registries
            .values()
            .rev()
            .find_map(|registry| registry.binding(id))
    }

    /// Whether a failure of a stage lets messages through.
    #[must_use]
    pub fn is_open(&self, version: &Version, failure: Failure) -> bool {
        self.binding(&version.binding)
            .is_some_and(|bound| bound.binding.on_error.of(failure) != Policy::Reject)
    }

    /// A stage may have left a draft with this payload.
    pub fn left(&mut self, operation: usize, payload: Bytes) {
        self.left.entry(operation).or_default().insert(payload);
    }

    /// A stage is asked about a draft.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn asked(
        &self,
        (operation, payload): (usize, &Bytes),
        channel: &ChannelKey,
        version: &Version,
    ) -> Result<(), String> {
        let name = format!("op{operation} with {}", String::from_utf8_lossy(payload));
        let known = self
            .left
            .get(&operation)
            .is_some_and(|left| left.contains(payload));
        if !known && original(payload).len() < payload.len() {
            return Err(format!("{name} is given to {version:?}: no stage left it so"));
        }
        let mut versions = marks(payload);
        versions.push(version.clone());
        let agrees = |registry: &Arc<Registry>| agrees(registry, channel, &versions);
        if self.registries.values().any(agrees) {
            return Ok(());
        }
        Err(format!(
            "{name} is given to {version:?}: no registry has all of that in {channel}"
        ))
    }

    /// Somebody is shown a message.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn shown(&mut self, shown: Shown<'_>) -> Result<(), String> {
        if !self.seen.insert((shown.operation, shown.payload.clone())) {
            return Ok(());
        }
        let known = self.left.get(&shown.operation);
        if known.is_some_and(|left| left.contains(shown.payload)) || self.may_pass(&shown) {
            return Ok(());
        }
        let payload = String::from_utf8_lossy(shown.payload);
        Err(format!(
            "op{} is shown in {} as {payload}: no stage left it so, and none was missing",
            shown.operation, shown.channel
        ))
    }

    /// Whether some shard may have judged the message when nothing was bound for it.
    fn may_pass(&self, shown: &Shown<'_>) -> bool {
        if original(shown.payload).len() < shown.payload.len() {
            return false;
        }
        let began = self.floors.partition_point(|(since, _)| *since <= shown.invoked);
        let since = self.floors.get(began.saturating_sub(1)..).unwrap_or_default();
        let floor = since.iter().map(|(_, lowest)| *lowest).min().unwrap_or(0);
        let judges = |bound: &&Arc<Bound>| {
            bound.version(shown.channel).is_some() && bound.binding.takes_sender(shown.from)
        };
        self.registries.range(floor..).any(|(_, registry)| {
            let stages = registry.of(Hook::BeforeSend).filter(judges);
            lets_pass_uncalled(stages.map(|bound| bound.binding.on_error))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_core::types::ChannelKind;

    fn version(binding: &str, number: u32, generation: u64) -> Version {
        Version {
            binding: Arc::from(binding),
            digest: digest(number),
            generation,
        }
    }

    #[test]
    fn an_uncalled_stage_lets_pass_what_its_policy_says() {
        let [reject, allow, skip] = [Policy::Reject, Policy::Allow, Policy::Skip].map(OnError::all);
        let passes = |stages: &[OnError]| lets_pass_uncalled(stages.iter().copied());
        assert!(passes(&[]) && passes(&[skip]) && passes(&[allow, reject]));
        assert!(!passes(&[reject, allow]) && !passes(&[skip, reject]));
        assert!(!passes(&[OnError::all(Policy::Allow)
            .with(Failure::Suspended, Policy::Reject)
            .with(Failure::NotReady, Policy::Reject)]));
    }

    #[test]
    fn marks_are_read_as_they_were_written() {
        let (first, second) = (version("first", 3, 1), version("second", 70_000, 12));
        let payload = marked(&marked(b"7:..", &first), &second);
        assert_eq!(original(&payload), b"7:..");
        assert_eq!(number(&second), 70_000);
        assert_eq!(marks(&payload), [first, second]);
        assert!(marks(b"7:..").is_empty());
    }

    #[test]
    fn what_no_stage_left_is_found() {
        let channel = ChannelKey::new("group0", ChannelKind::GROUP);
        let (from, payload) = (Uid::new("a"), marked(b"7:", &version("first", 1, 1)));
        let shown = Shown {
            operation: 7,
            invoked: Duration::ZERO,
            channel: &channel,
            from: &from,
            payload: &payload,
        };
        let mut judged = Judged::default();
        judged.learned(&Arc::new(Registry::default()));
        assert!(judged.shown(shown).is_err());
        assert!(
            judged
                .asked((7, &payload), &channel, &version("second", 1, 1))
                .is_err()
        );
        let plain = Bytes::from_static(b"7:");
        assert!(
            judged
                .shown(Shown {
                    payload: &plain,
                    ..shown
                })
                .is_ok(),
            "nothing was bound"
        );
        let mut judged = Judged::default();
        judged.left(7, payload.clone());
        assert!(judged.shown(shown).is_ok());
    }
}
