//! Who binds a plugin to offline recipients. All of it is drawn from a stream of its own: the other faults of a seed stay as they are.

use crate::rng::Rng;
use bytes::Bytes;
use penstock_core::plugins::{
    Binding, Bound, Captured, Change, Events, Hook, OnError, Policy, Registry, Selector, StartAt,
};
use std::sync::Arc;
use std::time::Duration;

/// The binding and its plugin.
const BINDING: &str = "notify";
const PLUGIN: &str = "beta";
/// Members of groups who never connect.
const ABSENT: usize = 5;

/// The members of every group of users who never connect in this seed: none in one run of two.
#[must_use]
pub fn absent(seed: u64) -> Vec<Arc<str>> {
    let count = if Rng::salted(seed, 6_000).permille(500) {
        ABSENT
    } else {
        0
    };
    (0..count)
        .map(|index| Arc::from(format!("absent{index}")))
        .collect()
}

/// Binds it, and now and then anew.
#[derive(Debug)]
pub struct Notifier {
    rng: Rng,
    configurations: u32,
    deadline: Duration,
    attempts_max: u32,
    /// The hook, or a webhook for the event.
    hook: Hook,
}

impl Notifier {
    /// That of a seed with members who never connect.
    #[must_use]
    pub fn new(seed: u64) -> Option<Notifier> {
        let mut rng = Rng::salted(seed, 6_001);
        (!absent(seed).is_empty()).then(|| Notifier {
            configurations: 0,
            deadline: Duration::from_millis(rng.pick(&[50, 400])),
            attempts_max: rng.pick(&[0, 3]),
            hook: rng.pick(&[Hook::Offline, Hook::Webhook]),
            rng,
        })
    }

    /// The next change of the binding, as the registry is known, and which of so many nodes is asked for it.
    pub fn next(&mut self, registry: &Registry, nodes: usize) -> Option<(usize, Change)> {
        if !self.rng.permille(200) {
            return None;
        }
        registry.plugins.get(PLUGIN)?;
        let bound: Option<&Arc<Bound>> = registry.binding(BINDING);
        let expected_revision = bound.map_or(0, |bound| bound.revision);
        if bound.is_some() && self.rng.permille(100) {
            let id = Arc::from(BINDING);
            let unbind = Change::Unbind {
                id,
                expected_revision,
            };
            return Some((self.rng.index(nodes), unbind));
        }
        Some((self.rng.index(nodes), self.bind(expected_revision)))
    }

    /// Another configuration, when a version of it is not called.
    pub fn repair(&mut self, registry: &Registry, suspended: &str) -> Option<Change> {
        let bound = registry.binding(BINDING).filter(|_| suspended == BINDING)?;
        Some(self.bind(bound.revision))
    }

    /// An index below `bound`.
    pub fn index(&mut self, bound: usize) -> usize {
        self.rng.index(bound)
    }

    fn bind(&mut self, expected_revision: u64) -> Change {
        self.configurations += 1;
        let binding = Binding {
            id: Arc::from(BINDING),
            plugin: Arc::from(PLUGIN),
            hook: self.hook,
            selector: Selector::default(),
            priority: 0,
            deadline: self.deadline,
            on_error: OnError::all(Policy::Reject),
            grants: Bytes::new(),
            config: Bytes::from(format!("notifier{}", self.configurations)),
            start: Some(StartAt::Seq(1)),
            attempts_max: self.attempts_max,
            exact: false,
            patience: Duration::from_secs(60),
            inline: true,
            public: false,
            own_messages: false,
            capture: Captured::default(),
            events: Events {
                message_offline: true,
                ..Events::NONE
            },
        };
        Change::Bind {
            binding: Box::new(binding),
            expected_revision,
        }
    }
}
