//! Who binds gates, and what gates say. All of it is drawn from a stream of its own: the other faults of a seed stay as they are.

use crate::invariants::m_19::number;
use crate::rng::Rng;
use bytes::Bytes;
use penstock_core::hooks::call::Version;
use penstock_core::hooks::gates::{Acceptance, Decision, Request};
use penstock_core::message::Refusal;
use penstock_core::plugins::{
    Binding, Bound, Captured, Change, Failure, Hook, OnError, Policy, Registry, Selector,
};
use penstock_core::types::{DeviceLevel, Reason, Uid};
use std::sync::Arc;
use std::time::Duration;

/// A code with which nobody but a gate refuses.
pub const BANNED: Reason = Reason(19);

/// The gates with their plugins.
const GATES: [(&str, &str); 2] = [("front", "alpha"), ("side", "beta")];

/// Binds gates now and then, and speaks for them.
#[derive(Debug)]
pub struct Gatekeeper {
    rng: Rng,
    configurations: u32,
    /// What a failure of the second gate means.
    side: OnError,
    deadlines: [Duration; 2],
    deny_permille: u32,
}

impl Gatekeeper {
    /// That of a seed: one run of two has one.
    #[must_use]
    pub fn new(seed: u64) -> Option<Gatekeeper> {
        let mut rng = Rng::salted(seed, 5_000);
        if !rng.permille(500) {
            return None;
        }
        let open = [Policy::Allow, Policy::Skip];
        let mixed = OnError::all(Policy::Reject).with(Failure::Timeout, Policy::Skip);
        let milliseconds = Duration::from_millis;
        Some(Gatekeeper {
            configurations: 0,
            side: {
                let policy = rng.pick(&open);
                rng.pick(&[OnError::all(policy), mixed])
            },
            deadlines: [100, 60].map(|most| milliseconds(rng.pick(&[most, most * 4]))),
            deny_permille: rng.pick(&[0, 50, 300]),
            rng,
        })
    }

    /// The next change of the gates, as the registry is known, and which of so many nodes is asked for it.
    pub fn next(&mut self, registry: &Registry, nodes: usize) -> Option<(usize, Change)> {
        if !self.rng.permille(300) {
            return None;
        }
        let at = self.rng.index(GATES.len());
        let (id, plugin) = GATES[at];
        registry.plugins.get(plugin)?;
        let bound: Option<&Arc<Bound>> = registry.binding(id);
        let expected_revision = bound.map_or(0, |bound| bound.revision);
        if bound.is_some() && self.rng.permille(200) {
            let id = Arc::from(id);
            let unbind = Change::Unbind {
                id,
                expected_revision,
            };
            return Some((self.rng.index(nodes), unbind));
        }
        Some((self.rng.index(nodes), self.bind(at, expected_revision)))
    }

    /// Another configuration of the gate of a version that is not called.
    pub fn repair(&mut self, registry: &Registry, suspended: &Version) -> Option<Change> {
        let at = GATES.iter().position(|(id, _)| *id == &*suspended.binding)?;
        let bound = registry.binding(GATES[at].0)?;
        Some(self.bind(at, bound.revision))
    }

    fn bind(&mut self, at: usize, expected_revision: u64) -> Change {
        self.configurations += 1;
        let (id, plugin) = GATES[at];
        let mut selector = Selector::default();
        if at == 1 {
            selector.uids = (0..4).map(|user| Uid::new(&format!("user{user}"))).collect();
        }
        let binding = Binding {
            id: Arc::from(id),
            plugin: Arc::from(plugin),
            hook: Hook::Connect,
            selector,
            priority: [10, 5][at],
            deadline: self.deadlines[at],
            on_error: [OnError::all(Policy::Reject), self.side][at],
            grants: Bytes::new(),
            config: Bytes::from(format!("gate{}", self.configurations)),
            start: None,
            attempts_max: 0,
            exact: false,
            patience: Duration::from_secs(60),
            inline: true,
            public: false,
            events: penstock_core::plugins::Events::default(),
            own_messages: false,
            capture: Captured::default(),
        };
        Change::Bind {
            binding: Box::new(binding),
            expected_revision,
        }
    }

    /// What a gate says: as whom somebody is let in is the same user, with what the gate knows.
    pub fn decide(&mut self, version: &Version, request: &Request, calm: bool) -> Decision {
        if !calm && self.rng.permille(self.deny_permille) {
            return Err(Refusal {
                reason: self.rng.pick(&[Reason::AUTH_FAIL, BANNED]),
                text: Some(Arc::from("not today")),
            });
        }
        let value = format!("{}.{}", number(version), version.generation);
        Ok(Acceptance {
            uid: request.uid.clone(),
            level: DeviceLevel::Slave,
            attributes: vec![(Arc::clone(&version.binding), Arc::from(value))],
        })
    }
}
