//! Versions that nodes give up: majorities, what becomes of the plugin, and the way back.

use super::plugin_tests::{Store, binding, refused};
use crate::plugins::{
    Change, Consequence, Digest, Failure, PROMOTED_LATELY, PlacedTrip, Plugin, Refused, ReportState,
};
use crate::replicated::Rejection;
use crate::types::{ChannelKey, ChannelKind, NodeId};
use std::sync::Arc;

const THREE: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

impl Store {
    fn trip(&mut self, wall_ms: u64, node: u16, byte: u8, cause: Option<Failure>) -> Result<u64, Rejection> {
        let trip = PlacedTrip {
            plugin: Arc::from("p"),
            digest: Digest([byte; 32]),
            node: NodeId(node),
            cause,
        };
        self.change_at(wall_ms, Change::Trip(trip), &[])
    }

    fn release(&mut self, byte: Option<u8>) -> Result<u64, Rejection> {
        let expected_revision = self.revision("p");
        self.change(Change::Release {
            plugin: Arc::from("p"),
            expected_revision,
            digest: byte.map(|byte| Digest([byte; 32])),
        })
    }

    fn plugin_now(&self) -> Plugin {
        self.registry().plugins["p"].clone()
    }

    /// Digest and consequence of each quarantine.
    fn quarantined(&self) -> Vec<(u8, Consequence)> {
        let plugin = self.plugin_now();
        let quarantined = plugin.quarantined.iter();
        quarantined
            .map(|quarantine| (quarantine.digest.0[0], quarantine.consequence))
            .collect()
    }
}

const TRAP: Option<Failure> = Some(Failure::Trap);

#[test]
fn a_majority_takes_a_new_version_back_and_fewer_do_not() {
    let mut store = Store::of(&THREE);
    store.deploy("p", 1);
    store.deploy("p", 2);
    let promoted = store.revision("p");
    store.trip(100, 1, 2, TRAP).expect("one node");
    assert_eq!(store.trip(101, 1, 2, TRAP), refused(Refused::Known));
    assert_eq!(store.trip(101, 2, 2, None), refused(Refused::Known));
    // The first one tries it again: the second one is alone.
    store.trip(102, 1, 2, None).expect("tried again");
    store.trip(103, 2, 2, TRAP).expect("another node");
    assert_eq!(store.quarantined(), []);
    assert_eq!(store.revision("p"), promoted, "reports are no intent");
    store.trip(104, 3, 2, Some(Failure::Timeout)).expect("a majority");
    assert_eq!(store.quarantined(), [(2, Consequence::RolledBack)]);
    let plugin = store.plugin_now();
    assert!(plugin.revision > promoted && plugin.trips.is_empty() && !plugin.is_disabled());
    assert_eq!(store.digest("p"), Some(1));
    let quarantine = &plugin.quarantined[0];
    assert_eq!(quarantine.at_ms, 104);
    assert_eq!(
        &*quarantine.reason,
        "it kept failing, last by timeout: given up by 2 of 3 nodes (2, 3)"
    );
    // Late reports of it change nothing, and nobody brings it back.
    assert_eq!(store.trip(105, 1, 2, TRAP), refused(Refused::Known));
    assert_eq!(store.propose("p", 2), refused(Refused::Quarantined));
    assert_eq!(store.roll_back("p"), refused(Refused::Quarantined));
    assert_eq!(store.release(Some(1)), refused(Refused::NotQuarantined));
    store.release(Some(2)).expect("released");
    assert_eq!(store.release(None), refused(Refused::NotQuarantined));
    store.roll_back("p").expect("it runs again");
    assert_eq!(store.digest("p"), Some(2));
}

#[test]
fn what_was_promoted_long_ago_or_came_back_is_disabled() {
    let hour = u64::try_from(PROMOTED_LATELY.as_millis()).expect("an hour");
    for (age, consequence) in [(hour - 1, Consequence::RolledBack), (hour, Consequence::Disabled)] {
        let mut store = Store::of(&[NodeId(1)]);
        store.deploy("p", 1);
        store.deploy("p", 2);
        store.trip(77 + age, 1, 2, TRAP).expect("the only node");
        assert_eq!(store.quarantined(), [(2, consequence)]);
    }
    // What came back is bad too: there is nothing better to go to.
    let mut store = Store::of(&[NodeId(1)]);
    store.bind(binding("b"), 0).expect_err("no plugin yet");
    store.deploy("p", 1);
    store.bind(binding("b"), 0).expect("bound");
    store.deploy("p", 2);
    store.trip(80, 1, 2, TRAP).expect("the second");
    store.trip(81, 1, 1, TRAP).expect("the first");
    assert_eq!(
        store.quarantined(),
        [(2, Consequence::RolledBack), (1, Consequence::Disabled)]
    );
    let registry = store.registry();
    assert!(registry.plugins["p"].is_disabled() && registry.plugins["p"].called().next().is_none());
    // Its binding is still there and is asked, so that its policy decides; the version is never called.
    let bound = &registry.bindings()[0];
    let version = bound
        .version(&ChannelKey::new("g", ChannelKind::GROUP))
        .expect("bound");
    assert!(bound.is_quarantined(version) && bound.called().next().is_none());
    // A good version is the way out, and so is a release.
    store.deploy("p", 3);
    assert!(!store.plugin_now().is_disabled());
    store.release(None).expect("all of them");
    assert_eq!(store.quarantined(), []);
}

#[test]
fn a_bad_candidate_loses_its_rollout_and_nothing_else() {
    let mut store = Store::of(&[NodeId(1)]);
    store.deploy("p", 1);
    store.propose("p", 2).expect("proposed");
    store.all_ready("p");
    assert_eq!(
        store.trip(80, 1, 2, TRAP),
        refused(Refused::Known),
        "it has no share"
    );
    store.canary("p", 10).expect("a share");
    store.trip(81, 1, 2, TRAP).expect("given up");
    assert_eq!(store.quarantined(), [(2, Consequence::Dropped)]);
    let plugin = store.plugin_now();
    assert!(plugin.rollout.is_none() && !plugin.is_disabled());
    assert_eq!(store.digest("p"), Some(1));
}

#[test]
fn what_was_said_of_a_version_ends_with_it() {
    let mut store = Store::of(&THREE);
    store.deploy("p", 1);
    store.trip(80, 1, 1, TRAP).expect("given up");
    store.deploy("p", 2);
    assert_eq!(store.plugin_now().trips, []);
    store.roll_back("p").expect("back");
    store.trip(81, 2, 1, TRAP).expect("another node");
    assert_eq!(store.quarantined(), [], "the first report was about another time");
    let stranger = store.trip(82, 9, 1, TRAP);
    assert_eq!(stranger, Err(Rejection::Malformed));
}

#[test]
fn a_node_that_is_down_is_not_waited_for() {
    let mut store = Store::of(&THREE);
    store.deploy("p", 1);
    let propose = |byte, expected_revision| {
        Change::Propose(crate::plugins::Proposal {
            plugin: Arc::from("p"),
            expected_revision,
            artifact: super::plugin_tests::artifact(byte),
        })
    };
    let revision = store.revision("p");
    store
        .change_at(78, propose(2, revision), &[NodeId(3)])
        .expect("proposed");
    for node in [1, 2] {
        store.report("p", node, ReportState::Ready).expect("reported");
    }
    store.promote("p").expect("two are ready, the third is down");
    // One that goes down later is not waited for either.
    store.propose("p", 3).expect("proposed");
    for node in [1, 2] {
        store.report("p", node, ReportState::Ready).expect("reported");
    }
    assert_eq!(store.promote("p"), refused(Refused::NotReady));
    let promote = Change::Promote {
        plugin: Arc::from("p"),
        expected_revision: store.revision("p"),
    };
    store.change_at(79, promote, &[NodeId(3)]).expect("promoted");
    assert_eq!(store.digest("p"), Some(3));
}
