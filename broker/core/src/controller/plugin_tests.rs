//! Rollouts and bindings: compare-and-set, order of steps, bounds.

mod disabled;
mod routes;

use super::*;
use crate::plugins::{
    Artifact, BINDINGS_MAX, Binding, Captured, Change, Digest, Hook, OnError, PLUGINS_MAX, PlacedReport,
    Policy, Proposal, Refused, Registry, ReportState, Selector, StartAt,
};
use crate::replicated::{Overlay, Rejection, Reply, StateMachine};
use crate::rows::{Key, Miss, Row, Rows, Write};
use crate::types::{ChannelKey, ChannelKind, NodeId};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub(super) struct Store {
    rows: BTreeMap<Key, Row>,
    nodes: Vec<NodeId>,
}

impl Rows for Store {
    fn row(&self, key: &Key) -> Result<Option<Row>, Miss> {
        Ok(self.rows.get(key).cloned())
    }
}

impl Store {
    pub(super) fn started() -> Store {
        Store::of(&[NodeId(1), NodeId(2)])
    }

    pub(super) fn of(nodes: &[NodeId]) -> Store {
        let mut store = Store {
            rows: BTreeMap::new(),
            nodes: nodes.to_vec(),
        };
        store.apply(&bootstrap(5, nodes, 4, 2));
        store
    }

    pub(super) fn apply(&mut self, command: &[u8]) -> Reply {
        let (applied, writes) = {
            let mut rows = Overlay::new(&*self);
            let applied = Machine.apply(command, &mut rows).expect("rows are here");
            (applied, rows.into_writes())
        };
        for write in writes {
            match write {
                Write::Put { key, value } => self.rows.insert(key, value),
                Write::Delete { key } => self.rows.remove(&key),
                other => panic!("{other:?}"),
            };
        }
        applied.reply
    }

    pub(super) fn change(&mut self, change: Change) -> Result<u64, Rejection> {
        self.change_at(77, change, &[])
    }

    /// The same at another time, with nodes that are down.
    pub(super) fn change_at(
        &mut self,
        wall_ms: u64,
        change: Change,
        down: &[NodeId],
    ) -> Result<u64, Rejection> {
        let nodes = Nodes {
            all: &self.nodes,
            down,
        };
        match self.apply(&change_registry(wall_ms, &change, nodes)) {
            Reply::Revision(revision) => Ok(revision),
            Reply::Rejected(rejection) => Err(rejection),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn registry(&self) -> Registry {
        let rows: Vec<(Bytes, Bytes)> = self
            .rows
            .iter()
            .map(|(key, value)| match key {
                Key::Slot { key, .. } => (key.clone(), value.clone()),
                other => panic!("{other:?}"),
            })
            .collect();
        read_registry(&rows).expect("rows decode")
    }

    pub(super) fn revision(&self, plugin: &str) -> u64 {
        self.registry()
            .plugins
            .get(plugin)
            .map_or(0, |plugin| plugin.revision)
    }

    pub(super) fn propose(&mut self, plugin: &str, byte: u8) -> Result<u64, Rejection> {
        let expected_revision = self.revision(plugin);
        self.change(Change::Propose(Proposal {
            plugin: Arc::from(plugin),
            expected_revision,
            artifact: artifact(byte),
        }))
    }

    pub(super) fn report(&mut self, plugin: &str, node: u16, state: ReportState) -> Result<u64, Rejection> {
        let registry = self.registry();
        let rollout = registry.plugins[plugin]
            .rollout
            .as_ref()
            .map_or(0, |rollout| rollout.id);
        self.change(Change::Report(PlacedReport {
            plugin: Arc::from(plugin),
            rollout,
            node: NodeId(node),
            state,
            text: Arc::from(""),
        }))
    }

    pub(super) fn canary(&mut self, plugin: &str, percent: u8) -> Result<u64, Rejection> {
        let (plugin, expected_revision) = (Arc::from(plugin), self.revision(plugin));
        self.change(Change::Canary {
            plugin,
            expected_revision,
            percent,
        })
    }

    pub(super) fn promote(&mut self, plugin: &str) -> Result<u64, Rejection> {
        let (plugin, expected_revision) = (Arc::from(plugin), self.revision(plugin));
        self.change(Change::Promote {
            plugin,
            expected_revision,
        })
    }

    pub(super) fn roll_back(&mut self, plugin: &str) -> Result<u64, Rejection> {
        let (plugin, expected_revision) = (Arc::from(plugin), self.revision(plugin));
        self.change(Change::Rollback {
            plugin,
            expected_revision,
        })
    }

    pub(super) fn deploy(&mut self, plugin: &str, byte: u8) {
        self.propose(plugin, byte).expect("proposed");
        self.all_ready(plugin);
        self.promote(plugin).expect("promoted");
    }

    pub(super) fn all_ready(&mut self, plugin: &str) {
        for node in self.nodes.clone() {
            self.report(plugin, node.0, ReportState::Ready).expect("reported");
        }
    }

    pub(super) fn bind(&mut self, binding: Binding, expected_revision: u64) -> Result<u64, Rejection> {
        self.change(Change::Bind {
            binding: Box::new(binding),
            expected_revision,
        })
    }

    pub(super) fn digest(&self, plugin: &str) -> Option<u8> {
        let active = self.registry().plugins[plugin].active.clone();
        active.map(|artifact| artifact.digest.0[0])
    }
}

pub(super) fn artifact(byte: u8) -> Artifact {
    Artifact {
        digest: Digest([byte; 32]),
        hooks: [Hook::BeforeSend].into(),
        facts: Bytes::from_static(b"{}"),
    }
}

pub(super) fn binding(id: &str) -> Binding {
    Binding {
        id: Arc::from(id),
        plugin: Arc::from("p"),
        hook: Hook::BeforeSend,
        selector: Selector::default(),
        priority: -3,
        deadline: Duration::from_millis(50),
        on_error: OnError::all(Policy::Skip),
        grants: Bytes::new(),
        config: Bytes::from_static(b"{}"),
        start: None,
        attempts_max: 5,
        exact: false,
        patience: Duration::from_secs(60),
        inline: true,
        public: false,
        events: crate::plugins::Events::default(),
        own_messages: false,
        capture: Captured::default(),
    }
}

pub(super) fn refused(why: Refused) -> Result<u64, Rejection> {
    Err(Rejection::Registry(why))
}

#[test]
fn a_version_goes_from_proposal_to_rollback() {
    let mut store = Store::started();
    assert_eq!(store.promote("p"), refused(Refused::NoPlugin));
    assert_eq!(store.propose("p", 1), Ok(1));
    assert_eq!(store.propose("p", 2), refused(Refused::RolloutOpen));
    assert_eq!(store.promote("p"), refused(Refused::NotReady));
    store.report("p", 1, ReportState::Ready).expect("node 1");
    store.report("p", 2, ReportState::Failed).expect("node 2");
    assert_eq!(
        store.canary("p", 10),
        refused(Refused::NotReady),
        "one node is not ready"
    );
    store.report("p", 2, ReportState::Ready).expect("node 2 at last");
    assert_eq!(store.revision("p"), 1, "reports are no intent");
    assert_eq!(store.digest("p"), None);
    store.promote("p").expect("promoted");
    assert_eq!(store.digest("p"), Some(1));
    assert_eq!(store.promote("p"), refused(Refused::NoRollout));
    assert_eq!(store.roll_back("p"), refused(Refused::NothingBefore));
    assert_eq!(store.propose("p", 1), refused(Refused::SameDigest));

    store.propose("p", 2).expect("a second version");
    for node in [1, 2] {
        store.report("p", node, ReportState::Ready).expect("reported");
    }
    store.bind(binding("b"), 0).expect("bound");
    store.canary("p", 100).expect("a canary");
    let runs = |store: &Store| {
        let channel = ChannelKey::new("g", ChannelKind::GROUP);
        let registry = store.registry();
        registry.bindings()[0]
            .version(&channel)
            .map(|version| version.digest.0[0])
    };
    assert_eq!((runs(&store), store.digest("p")), (Some(2), Some(1)));
    store.roll_back("p").expect("the canary ends");
    assert_eq!(runs(&store), Some(1));

    store.deploy("p", 3);
    assert_eq!(runs(&store), Some(3));
    store.roll_back("p").expect("rolled back");
    assert_eq!(runs(&store), Some(1));
    store.roll_back("p").expect("and forth");
    assert_eq!(runs(&store), Some(3));
}

#[test]
fn a_change_of_another_revision_changes_nothing() {
    let mut store = Store::started();
    store.deploy("p", 1);
    let before = store.registry();
    let stale = Change::Rollback {
        plugin: Arc::from("p"),
        expected_revision: before.plugins["p"].revision - 1,
    };
    assert_eq!(store.change(stale), Err(Rejection::Registry(Refused::Changed)));
    assert_eq!(store.registry(), before);
    let late = Change::Report(PlacedReport {
        plugin: Arc::from("p"),
        rollout: 1,
        node: NodeId(1),
        state: ReportState::Ready,
        text: Arc::from(""),
    });
    assert_eq!(
        store.change(late),
        refused(Refused::NoRollout),
        "its rollout is over"
    );
}

#[test]
fn bindings_begin_now_and_count_their_configurations() {
    let mut store = Store::started();
    assert_eq!(store.bind(binding("b"), 0), refused(Refused::NoPlugin));
    store.deploy("p", 1);
    let wrong_hook = Binding {
        hook: Hook::PersistAfter,
        ..binding("b")
    };
    assert_eq!(store.bind(wrong_hook, 0), refused(Refused::NoHook));
    let first = store.bind(binding("b"), 0).expect("bound");
    assert_eq!(
        store.bind(binding("b"), 0),
        Err(Rejection::Registry(Refused::Changed))
    );
    let bound = Arc::clone(store.registry().binding("b").expect("it is there"));
    assert_eq!(
        (bound.revision, bound.incarnation, bound.generation),
        (first, first, 1)
    );
    assert_eq!(bound.binding.start, Some(StartAt::Time(77)));
    let mut expected = binding("b");
    expected.start = Some(StartAt::Time(77));
    assert_eq!(bound.binding, expected);

    let mut other = binding("b");
    other.config = Bytes::from_static(b"{\"a\":1}");
    let second = store.bind(other.clone(), first).expect("configured");
    other.priority = 9;
    let third = store.bind(other, second).expect("moved");
    let bound = Arc::clone(store.registry().binding("b").expect("it is there"));
    assert_eq!(
        (bound.revision, bound.incarnation, bound.generation),
        (third, first, 2)
    );

    let remove = |expected_revision| Change::Remove {
        plugin: Arc::from("p"),
        expected_revision,
    };
    let revision = store.revision("p");
    assert_eq!(store.change(remove(revision)), refused(Refused::StillBound));
    let unbind = |expected_revision| Change::Unbind {
        id: Arc::from("b"),
        expected_revision,
    };
    assert_eq!(
        store.change(unbind(first)),
        Err(Rejection::Registry(Refused::Changed))
    );
    store.change(unbind(third)).expect("unbound");
    assert_eq!(store.change(unbind(third)), refused(Refused::NoBinding));
    store.change(remove(revision)).expect("removed");
    assert!(store.registry().plugins.is_empty() && store.registry().bindings().is_empty());
    store.deploy("p", 1);
    let again = store.bind(binding("b"), 0).expect("bound again");
    assert!(again > third, "another creation");
}

#[test]
fn what_is_too_long_or_too_much_is_refused() {
    let mut store = Store::started();
    for name in ["", "a b", "a/b", &"x".repeat(65)] {
        assert_eq!(store.propose(name, 1), Err(Rejection::Malformed), "{name}");
    }
    store.deploy("p", 1);
    let mut long = binding("b");
    long.deadline = Duration::from_secs(61);
    assert_eq!(store.bind(long, 0), Err(Rejection::Malformed));
    let mut large = binding("b");
    large.config = Bytes::from(vec![b'x'; (64 << 10) + 1]);
    assert_eq!(store.bind(large, 0), Err(Rejection::Malformed));
    for number in 0..BINDINGS_MAX {
        store.bind(binding(&format!("b{number}")), 0).expect("bound");
    }
    assert_eq!(store.bind(binding("more"), 0), refused(Refused::TooManyBindings));
    for number in 1..PLUGINS_MAX {
        store.propose(&format!("p{number}"), 1).expect("proposed");
    }
    assert_eq!(store.propose("more", 1), refused(Refused::TooManyPlugins));

    let mut store = Store::started();
    store.deploy("p", 1);
    let mut filled = binding("b");
    filled.config = Bytes::from(vec![b'x'; 64 << 10]);
    let result = (0..70).try_for_each(|number| {
        filled.id = Arc::from(format!("b{number}"));
        store.bind(filled.clone(), 0).map(|_| ())
    });
    assert_eq!(result, Err(Rejection::Registry(Refused::TooLarge)));
}

#[test]
fn what_is_captured_changes_without_another_generation() {
    let mut store = Store::started();
    store.deploy("p", 1);
    store.bind(binding("b"), 0).expect("bound");
    let captured = |store: &Store| {
        store
            .registry()
            .binding("b")
            .expect("it is there")
            .binding
            .capture
    };
    assert_eq!(
        captured(&store),
        Captured::Headers,
        "the number of bindings that know of none"
    );
    for capture in Captured::ALL {
        let before = Arc::clone(store.registry().binding("b").expect("it is there"));
        let wanted = Binding {
            capture,
            ..binding("b")
        };
        store.bind(wanted, before.revision).expect("changed");
        assert_eq!(captured(&store), capture);
        let after = Arc::clone(store.registry().binding("b").expect("it is there"));
        assert_eq!(after.generation, before.generation, "nothing is loaded anew");
    }
}
