//! Bindings that answer requests over HTTP.

use super::*;
use crate::plugins::{Pattern, ROUTE_DEADLINE_MAX};

fn routed() -> Store {
    let mut store = Store::started();
    let mut artifact = artifact(1);
    artifact.hooks.insert(Hook::Route);
    let proposal = Proposal {
        plugin: Arc::from("p"),
        expected_revision: 0,
        artifact,
    };
    store.change(Change::Propose(proposal)).expect("proposed");
    store
}

fn route(id: &str) -> Binding {
    Binding {
        hook: Hook::Route,
        selector: Selector::default(),
        deadline: ROUTE_DEADLINE_MAX,
        ..binding(id)
    }
}

fn unbind(store: &Store, id: &str) -> Change {
    let registry = store.registry();
    Change::Unbind {
        id: Arc::from(id),
        expected_revision: registry.binding(id).expect("it is there").revision,
    }
}

#[test]
fn one_binding_answers_the_requests_of_a_plugin() {
    let mut store = routed();
    store.bind(binding("filter"), 0).expect("bound");
    let first = store.bind(route("first"), 0).expect("bound");
    assert_eq!(store.bind(route("second"), 0), refused(Refused::RouteBound));
    let public = Binding {
        public: true,
        ..route("first")
    };
    store.bind(public, first).expect("changed");
    let registry = store.registry();
    let found = registry.route("p").expect("a route");
    assert_eq!((&*found.binding.id, found.binding.public), ("first", true));
    assert!(registry.route("q").is_none());
    // Another binding that goes leaves it.
    store.change(unbind(&store, "filter")).expect("removed");
    assert_eq!(store.bind(route("second"), 0), refused(Refused::RouteBound));
    store.change(unbind(&store, "first")).expect("removed");
    store.bind(route("second"), 0).expect("bound");
}

#[test]
fn a_route_selects_nothing_and_waits_for_a_time() {
    let mut store = routed();
    let selecting = Selector {
        ids: [Pattern("room".to_owned())].into(),
        ..Selector::default()
    };
    for wrong in [
        Binding {
            selector: selecting,
            ..route("b")
        },
        Binding {
            deadline: ROUTE_DEADLINE_MAX + Duration::from_millis(1),
            ..route("b")
        },
        Binding {
            public: true,
            ..binding("b")
        },
    ] {
        assert_eq!(store.bind(wrong, 0), Err(Rejection::Malformed));
    }
}
