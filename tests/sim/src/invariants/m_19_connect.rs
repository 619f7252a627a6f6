//! The gates, seen from outside: whom a node lets in has been accepted by every gate that was bound, unless the gate's policy lets
//! pass who could not be judged.

use super::m_19::Judged;
use penstock_core::hooks::call::Version;
use penstock_core::plugins::{Bound, Hook, OnError, Policy, Registry};
use penstock_core::types::Uid;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

type Place = (usize, u16);

/// Who is being let in.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its number.
    pub connection: usize,
    /// Since when it is open.
    pub since: Duration,
    /// Its user.
    pub uid: &'a Uid,
}

/// What gates said, and under which registries they were asked.
#[derive(Debug, Default)]
pub struct Entries {
    /// Since when each shard of a living process acts on which registry; none before it has read one.
    acted: BTreeMap<Place, Vec<(Duration, Option<u64>)>>,
    /// (connection, version) → when its acceptance arrives.
    accepted: BTreeMap<(usize, Version), Duration>,
    denied: BTreeSet<usize>,
    /// Connections that were let in after a gate had accepted them.
    pub passed: u64,
}

/// Whether a failure of any kind can let somebody pass.
fn lets_pass(on_error: OnError) -> Option<Policy> {
    let open = |policy: Policy| on_error.each().any(|(_, of)| of == policy).then_some(policy);
    open(Policy::Allow).or_else(|| open(Policy::Skip))
}

impl Entries {
    /// A shard acts on this registry.
    pub fn acts(&mut self, now: Duration, place: Place, revision: Option<u64>) {
        let acted = self.acted.entry(place).or_default();
        if acted.last().is_none_or(|(_, last)| *last != revision) {
            acted.push((now, revision));
        }
    }

    /// A process ended.
    pub fn ended(&mut self, node: usize) {
        self.acted.retain(|(of, _), _| *of != node);
    }

    /// A gate accepts a connection; its shard hears that at this time.
    pub fn accepts(&mut self, connection: usize, version: &Version, at: Duration) {
        self.accepted.entry((connection, version.clone())).or_insert(at);
    }

    /// A gate denies a connection.
    pub fn denies(&mut self, connection: usize) {
        self.denied.insert(connection);
    }

    /// Whether a gate has denied a connection.
    #[must_use]
    pub fn is_denied(&self, connection: usize) -> bool {
        self.denied.contains(&connection)
    }

    /// A connection is let in.
    ///
    /// # Errors
    /// Says which gate it has not passed.
    pub fn let_in(
        &mut self,
        now: Duration,
        place: Place,
        entry: Entry<'_>,
        judged: &Judged,
    ) -> Result<(), String> {
        let acted = self.acted.get(&place).map_or(&[][..], |acted| acted);
        let began = acted.partition_point(|(at, _)| *at <= entry.since);
        let known: BTreeSet<u64> = acted
            .get(began.saturating_sub(1)..)
            .unwrap_or_default()
            .iter()
            .filter_map(|(_, revision)| *revision)
            .collect();
        let mut missing = None;
        let mut gates = 0;
        for revision in &known {
            let Some(registry) = judged.registry(*revision) else {
                continue;
            };
            match self.lacks(now, &entry, registry) {
                Ok(passed) => {
                    self.passed += u64::from(passed > 0);
                    return Ok(());
                }
                Err(gate) => missing = Some((*revision, gate)),
            }
            gates += 1;
        }
        let who = format!("connection {} of {}", entry.connection, entry.uid);
        match missing {
            Some((revision, gate)) => Err(format!(
                "{who} is let in, and {gate:?} of registry {revision} has not accepted it; nor is it let in by {gates} registries"
            )),
            None => Err(format!("{who} is let in by a shard that knows no registry")),
        }
    }

    /// How many gates of a registry have accepted somebody, or the first that had to and has not.
    fn lacks(&self, now: Duration, entry: &Entry<'_>, registry: &Registry) -> Result<usize, Version> {
        let mut passed = 0;
        for bound in registry.of(Hook::Connect) {
            let bound: &Arc<Bound> = bound;
            let Some(version) = bound.version_of_user(entry.uid) else {
                continue;
            };
            let key = (entry.connection, version.clone());
            let accepted = self.accepted.get(&key).is_some_and(|at| *at <= now);
            passed += usize::from(accepted);
            match lets_pass(bound.binding.on_error) {
                _ if accepted => {}
                Some(Policy::Skip) => {}
                // Whom it lets pass no later gate is asked about.
                Some(Policy::Allow) => return Ok(passed),
                Some(Policy::Reject) | None => return Err(version.clone()),
            }
        }
        Ok(passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::m_19::digest;
    use bytes::Bytes;
    use penstock_core::plugins::{Artifact, Binding, Captured, Plugin, Selector};

    const PLACE: Place = (0, 0);

    fn registry(policy: Policy) -> Registry {
        let plugin = Plugin {
            name: Arc::from("alpha"),
            active: Some(Artifact {
                digest: digest(1),
                hooks: [Hook::Connect].into(),
                facts: Bytes::new(),
            }),
            ..Plugin::default()
        };
        let binding = Binding {
            id: Arc::from("front"),
            plugin: Arc::from("alpha"),
            hook: Hook::Connect,
            selector: Selector::default(),
            priority: 0,
            deadline: Duration::from_millis(100),
            on_error: OnError::all(policy),
            grants: Bytes::new(),
            config: Bytes::new(),
            start: None,
            attempts_max: 0,
            exact: false,
            patience: Duration::ZERO,
            inline: false,
            public: false,
            events: penstock_core::plugins::Events::default(),
            own_messages: false,
            capture: Captured::default(),
        };
        let bound = Bound::new(binding, 5, 5, 1, &plugin);
        Registry::new(5, vec![plugin], vec![bound])
    }

    fn let_in(entries: &mut Entries, policy: Policy) -> Result<(), String> {
        let mut judged = Judged::default();
        judged.learned(&Arc::new(registry(policy)));
        let uid = Uid::new("user0");
        let entry = Entry {
            connection: 7,
            since: Duration::from_millis(10),
            uid: &uid,
        };
        entries.let_in(Duration::from_millis(90), PLACE, entry, &judged)
    }

    fn version() -> Version {
        Version {
            binding: Arc::from("front"),
            digest: digest(1),
            generation: 1,
        }
    }

    #[test]
    fn who_was_not_accepted_is_found() {
        let mut entries = Entries::default();
        assert!(
            let_in(&mut entries, Policy::Reject).is_err(),
            "no registry is known"
        );
        entries.acts(Duration::ZERO, PLACE, Some(5));
        assert!(let_in(&mut entries, Policy::Reject).is_err(), "nobody accepted");
        assert!(let_in(&mut entries, Policy::Skip).is_ok());
        entries.accepts(7, &version(), Duration::from_millis(200));
        assert!(let_in(&mut entries, Policy::Reject).is_err(), "that comes later");
        let mut entries = Entries::default();
        entries.acts(Duration::ZERO, PLACE, Some(5));
        entries.accepts(7, &version(), Duration::from_millis(50));
        assert!(let_in(&mut entries, Policy::Reject).is_ok());
        assert_eq!(entries.passed, 1);
        entries.ended(0);
        assert!(let_in(&mut entries, Policy::Reject).is_err());
    }

    #[test]
    fn a_registry_that_came_meanwhile_counts() {
        let mut entries = Entries::default();
        entries.acts(Duration::ZERO, PLACE, None);
        entries.acts(Duration::from_millis(20), PLACE, Some(4));
        entries.acts(Duration::from_millis(30), PLACE, Some(5));
        let mut judged = Judged::default();
        judged.learned(&Arc::new(registry(Policy::Reject)));
        judged.learned(&Arc::new(Registry::new(4, Vec::new(), Vec::new())));
        let uid = Uid::new("user0");
        let entry = |since| Entry {
            connection: 7,
            since: Duration::from_millis(since),
            uid: &uid,
        };
        let now = Duration::from_millis(90);
        assert!(entries.let_in(now, PLACE, entry(10), &judged).is_ok());
        assert!(entries.let_in(now, PLACE, entry(40), &judged).is_err());
    }
}
