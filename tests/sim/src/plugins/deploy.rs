//! Who deploys: proposes versions, gives them a share, promotes them or goes back, binds and unbinds, by compare-and-set on what is
//! known, which may be old.

use crate::invariants::m_19::digest;
use crate::rng::Rng;
use bytes::Bytes;
use penstock_core::admin::Answer;
use penstock_core::plugins::{
    Artifact, Binding, Bound, Captured, Change, DisabledBy, Events, Failure, Hook, OnError, PlacedReport,
    Plugin, Policy, Proposal, Registry, ReportState, Selector, StartAt, Version,
};
use penstock_core::types::{NodeId, Uid};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const PLUGINS: [&str; 2] = ["alpha", "beta"];
/// The bindings with their plugins: two of one plugin, so that a promotion changes two stages at once.
const BINDINGS: [(&str, &str); 6] = [
    ("first", "alpha"),
    ("second", "alpha"),
    ("third", "beta"),
    ("audit", "alpha"),
    ("index", "beta"),
    ("hooks", "alpha"),
];
/// The first of them that follows channels after the commit.
const FOLLOWING: usize = 3;
/// The one of them that delivers to an endpoint.
const WEBHOOK: usize = 5;

/// Changes plugins and bindings now and then.
#[derive(Debug)]
pub struct Deployer {
    rng: Rng,
    pause: Duration,
    /// Number of the newest component.
    newest: u32,
    configurations: u32,
    /// What a failure of each binding means, the same for the whole run.
    policies: [OnError; 3],
    deadlines: [Duration; 6],
    starts: [Option<StartAt>; 3],
    exact: bool,
    patience: Duration,
    /// Whether the webhook is told who comes and goes.
    online_status: bool,
    /// The highest revision that a change was told to have.
    pub told: u64,
}

impl Deployer {
    /// Somebody with habits of their own.
    #[must_use]
    pub fn new(rng: &mut Rng) -> Deployer {
        let milliseconds = Duration::from_millis;
        let open = [Policy::Allow, Policy::Skip];
        let mixed = OnError::all(rng.pick(&open)).with(Failure::Trap, Policy::Reject);
        let let_through = OnError::all(rng.pick(&open));
        let second = rng.pick(&[let_through, mixed]);
        let third = rng.pick(&[OnError::all(Policy::Reject), OnError::all(Policy::Skip)]);
        Deployer {
            rng: Rng::salted(rng.draw(), 0),
            pause: rng.pick(&[milliseconds(300), milliseconds(900), milliseconds(3_000)]),
            newest: 0,
            configurations: 0,
            // What the first stage did is to be seen: without it nothing passes.
            policies: [OnError::all(Policy::Reject), second, third],
            deadlines: [20, 100, 400, 50, 400, 400].map(|most| milliseconds(rng.pick(&[most, most * 3]))),
            starts: [
                Some(StartAt::Earliest),
                rng.pick(&[None, Some(StartAt::Seq(3))]),
                rng.pick(&[None, Some(StartAt::Earliest), Some(StartAt::Seq(2))]),
            ],
            exact: rng.permille(800),
            patience: rng.pick(&[milliseconds(1_000), milliseconds(8_000), milliseconds(86_400_000)]),
            online_status: rng.permille(700),
            told: 0,
        }
    }

    /// When the next change is wanted.
    pub fn pause(&mut self) -> Duration {
        self.rng.tailed(self.pause)
    }

    /// An index below `bound`.
    pub fn index(&mut self, bound: usize) -> usize {
        self.rng.index(bound)
    }

    /// The next change, as the registry is known.
    pub fn next(&mut self, registry: &Registry) -> Option<Change> {
        if self.rng.permille(450) {
            return self.change_binding(registry);
        }
        let name = self.rng.pick(&PLUGINS);
        let Some(plugin) = registry.plugins.get(name) else {
            return Some(self.propose(name, 0));
        };
        let expected_revision = plugin.revision;
        let named = Arc::clone(&plugin.name);
        if !plugin.quarantined.is_empty() && self.rng.permille(300) {
            return Some(release(plugin));
        }
        match &plugin.rollout {
            None if plugin.previous.is_some() && self.rng.permille(300) => Some(Change::Rollback {
                plugin: named,
                expected_revision,
            }),
            None => Some(self.propose(name, expected_revision)),
            Some(rollout) if rollout.is_ready() => Some(match self.rng.index(4) {
                0 => Change::Canary {
                    plugin: named,
                    expected_revision,
                    percent: self.rng.pick(&[0, 30, 100]),
                },
                1 if self.rng.permille(500) => Change::Rollback {
                    plugin: named,
                    expected_revision,
                },
                _ => Change::Promote {
                    plugin: named,
                    expected_revision,
                },
            }),
            Some(_) => self.rng.permille(100).then_some(Change::Rollback {
                plugin: named,
                expected_revision,
            }),
        }
    }

    /// What makes every plugin run again, once its code is good: releases, and another configuration of a binding with a version that
    /// is not called.
    pub fn repairs(&mut self, registry: &Registry, suspended: Option<&Version>) -> Vec<Change> {
        let quarantined = |plugin: &&Plugin| !plugin.quarantined.is_empty();
        let plugins = registry.plugins.values().filter(quarantined);
        let mut repairs: Vec<Change> = plugins.map(release).collect();
        let disabled = registry
            .bindings()
            .iter()
            .filter(|bound| bound.disabled.is_some());
        repairs.extend(disabled.map(|bound| enable(bound)));
        let bound = suspended.and_then(|version| registry.binding(&version.binding));
        let place = bound.and_then(|bound| {
            BINDINGS
                .iter()
                .position(|(id, _)| *id == bound.binding.id.as_ref())
        });
        if let (Some(bound), Some(at)) = (bound, place) {
            self.configurations += 1;
            repairs.push(Change::Bind {
                binding: Box::new(self.binding(at)),
                expected_revision: bound.revision,
            });
        }
        repairs
    }

    fn propose(&mut self, name: &str, expected_revision: u64) -> Change {
        self.newest += 1;
        Change::Propose(Proposal {
            plugin: Arc::from(name),
            expected_revision,
            artifact: Artifact {
                digest: digest(self.newest),
                hooks: BTreeSet::from(Hook::ALL),
                facts: Bytes::new(),
            },
        })
    }

    fn change_binding(&mut self, registry: &Registry) -> Option<Change> {
        let at = self.rng.index(BINDINGS.len());
        let (id, plugin) = BINDINGS[at];
        let known: Option<&Plugin> = registry.plugins.get(plugin);
        known?;
        let bound: Option<&Arc<Bound>> = registry.binding(id);
        let expected_revision = bound.map_or(0, |bound| bound.revision);
        let unbinds = if at < FOLLOWING { 250 } else { 60 };
        if bound.is_some() && self.rng.permille(unbinds) {
            return Some(Change::Unbind {
                id: Arc::from(id),
                expected_revision,
            });
        }
        if let Some(bound) = bound.filter(|_| at >= FOLLOWING) {
            if bound.disabled.is_some() && self.rng.permille(500) {
                return Some(enable(bound));
            }
            if self.rng.permille(60) {
                return Some(Change::Disable {
                    id: Arc::from(id),
                    incarnation: bound.incarnation,
                    generation: bound.generation,
                    by: DisabledBy::Operator,
                });
            }
        }
        self.configurations += 1;
        Some(Change::Bind {
            binding: Box::new(self.binding(at)),
            expected_revision,
        })
    }

    fn binding(&self, at: usize) -> Binding {
        let (id, plugin) = BINDINGS[at];
        let mut selector = Selector::default();
        let follows = at >= FOLLOWING;
        if at == 2 || at == 4 {
            selector.uids = (0..4).map(|user| Uid::new(&format!("user{user}"))).collect();
        }
        Binding {
            id: Arc::from(id),
            plugin: Arc::from(plugin),
            hook: match at {
                WEBHOOK => Hook::Webhook,
                _ if follows => Hook::PersistAfter,
                _ => Hook::BeforeSend,
            },
            selector,
            priority: [10, 5, 0, 0, 0, 0][at],
            deadline: self.deadlines[at],
            on_error: if follows {
                OnError::all(Policy::Reject)
            } else {
                self.policies[at]
            },
            grants: Bytes::new(),
            config: Bytes::from(self.configurations.to_string()),
            start: if follows {
                self.starts[at - FOLLOWING]
            } else {
                None
            },
            // One gives up after some attempts, the other one never does.
            attempts_max: if at == FOLLOWING { 3 } else { 0 },
            exact: follows && self.exact,
            patience: self.patience,
            inline: true,
            public: false,
            events: Events {
                user_online_status: at == WEBHOOK && self.online_status,
                ..Events::default()
            },
            own_messages: false,
            capture: Captured::default(),
        }
    }

    /// What a node has to say of the candidates of a registry.
    pub fn reports(&mut self, registry: &Registry, node: NodeId) -> Vec<Change> {
        let mut reports = Vec::new();
        for (name, plugin) in &registry.plugins {
            let Some(rollout) = &plugin.rollout else { continue };
            let said = rollout.reports.get(&node).map(|report| report.state);
            if !rollout.wanted.contains(&node) || said == Some(ReportState::Ready) {
                continue;
            }
            let state = self.rng.pick(&[
                ReportState::Ready,
                ReportState::Ready,
                ReportState::Stored,
                ReportState::Failed,
            ]);
            reports.push(Change::Report(PlacedReport {
                plugin: Arc::clone(name),
                rollout: rollout.id,
                node,
                state,
                text: Arc::from(""),
            }));
        }
        reports
    }
}

fn enable(bound: &Bound) -> Change {
    Change::Enable {
        id: Arc::clone(&bound.binding.id),
        expected_revision: bound.revision,
    }
}

fn release(plugin: &Plugin) -> Change {
    Change::Release {
        plugin: Arc::clone(&plugin.name),
        expected_revision: plugin.revision,
        digest: None,
    }
}

/// The revision of a change that was made.
#[must_use]
pub fn changed_by(answer: Option<&Answer>) -> Option<u64> {
    match answer {
        Some(Answer::Changed { revision }) => Some(*revision),
        _ => None,
    }
}
