//! Bindings that are disabled, by an endpoint that is gone or by an operator.

use super::*;
use crate::limits::Limits;
use crate::plugins::{Disabled, DisabledBy};

fn webhook() -> Store {
    let mut store = Store::started();
    let mut artifact = artifact(1);
    artifact.hooks.extend([Hook::PersistAfter, Hook::Webhook]);
    let proposal = Proposal {
        plugin: Arc::from("p"),
        expected_revision: 0,
        artifact,
    };
    store.change(Change::Propose(proposal)).expect("proposed");
    for node in [1, 2] {
        store.report("p", node, ReportState::Ready).expect("reported");
    }
    store.promote("p").expect("promoted");
    store.bind(hook(b"{}"), 0).expect("bound");
    store
}

fn hook(config: &'static [u8]) -> Binding {
    Binding {
        hook: Hook::Webhook,
        config: Bytes::from_static(config),
        ..binding("b")
    }
}

fn disable(incarnation: u64, generation: u64) -> Change {
    Change::Disable {
        id: Arc::from("b"),
        incarnation,
        generation,
        by: DisabledBy::Gone,
    }
}

fn enable(expected_revision: u64) -> Change {
    Change::Enable {
        id: Arc::from("b"),
        expected_revision,
    }
}

#[test]
fn a_disabled_binding_follows_no_channel_until_it_is_enabled() {
    let mut store = webhook();
    let channel = ChannelKey::new("g", ChannelKind::GROUP);
    let follows = |store: &Store| store.registry().consumers(&channel, &Limits::default()).len();
    let bound = |store: &Store| Arc::clone(store.registry().binding("b").expect("it is there"));
    let (incarnation, revision) = (bound(&store).incarnation, bound(&store).revision);
    assert_eq!((follows(&store), bound(&store).disabled), (1, None));
    assert_eq!(store.change(enable(revision)), refused(Refused::NotDisabled));
    assert_eq!(store.change(disable(incarnation + 1, 1)), refused(Refused::Known));
    store.change(disable(incarnation, 1)).expect("disabled");
    let disabled = Disabled {
        by: DisabledBy::Gone,
        since_ms: 77,
    };
    assert_eq!((follows(&store), bound(&store).disabled), (0, Some(disabled)));
    assert_eq!(store.change(disable(incarnation, 1)), refused(Refused::Known));
    assert_eq!(store.change(enable(revision)), refused(Refused::Changed));
    let revision = bound(&store).revision;
    store.change(enable(revision)).expect("enabled");
    assert_eq!((follows(&store), bound(&store).disabled), (1, None));
    assert_eq!(
        bound(&store).incarnation,
        incarnation,
        "it goes on at its cursors"
    );
}

#[test]
fn another_configuration_is_tried_and_the_same_one_is_not() {
    let mut store = webhook();
    let bound = |store: &Store| Arc::clone(store.registry().binding("b").expect("it is there"));
    store
        .change(disable(bound(&store).incarnation, 1))
        .expect("disabled");
    let mut same = hook(b"{}");
    same.priority += 1;
    let revision = bound(&store).revision;
    store.bind(same, revision).expect("changed");
    assert!(bound(&store).disabled.is_some());
    let revision = bound(&store).revision;
    store.bind(hook(b"{\"url\":1}"), revision).expect("changed");
    assert_eq!(bound(&store).disabled, None);
    // What an attempt under the former configuration found is late.
    let late = disable(bound(&store).incarnation, 1);
    assert_eq!(store.change(late), refused(Refused::Known));
}

#[test]
fn a_filter_cannot_be_disabled_and_patience_has_bounds() {
    let mut store = webhook();
    store
        .bind(
            Binding {
                id: Arc::from("filter"),
                ..binding("b")
            },
            0,
        )
        .expect("bound");
    let change = Change::Disable {
        id: Arc::from("filter"),
        incarnation: store.registry().binding("filter").expect("there").incarnation,
        generation: 1,
        by: DisabledBy::Operator,
    };
    assert_eq!(store.change(change), refused(Refused::NotFollowing));
    let endless = Binding {
        id: Arc::from("endless"),
        patience: Duration::from_secs(8 * 24 * 3_600),
        ..hook(b"{}")
    };
    assert_eq!(store.bind(endless, 0), Err(Rejection::Malformed));
}
