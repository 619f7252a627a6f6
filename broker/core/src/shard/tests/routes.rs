//! Requests over HTTP that a plugin answers, through the shard.

use super::Cluster;
use crate::admin::{Answer, Ask, Failure, RouteAsk};
use crate::hooks::call::{self, Digest, Failed, HttpRequest, HttpResponse, Work};
use crate::plugins::{
    self, Artifact, Binding, Captured, Change, Events, Hook, OnError, PlacedReport, Policy, Proposal,
    ReportState, Selector,
};
use crate::shard::plugins::ROUTES_MAX;
use crate::types::{ChannelKey, ChannelKind, NodeId};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

const NODE: NodeId = NodeId(1);

fn request() -> HttpRequest {
    HttpRequest {
        method: "POST".to_owned(),
        url: "/votes?x=1".to_owned(),
        headers: vec![("a".to_owned(), "b".to_owned())],
        body: Bytes::from_static(b"tea"),
    }
}

fn asked(with_key: bool) -> Ask {
    Ask::Route(RouteAsk::Answer {
        plugin: Arc::from("p"),
        request: Box::new(request()),
        with_key,
    })
}

fn response() -> HttpResponse {
    HttpResponse {
        status: 201,
        headers: Vec::new(),
        body: Bytes::from_static(b"1"),
    }
}

fn binding(public: bool) -> Binding {
    Binding {
        id: Arc::from("b"),
        plugin: Arc::from("p"),
        hook: Hook::Route,
        selector: Selector::default(),
        priority: 0,
        deadline: Duration::from_secs(5),
        on_error: OnError::all(Policy::Reject),
        grants: Bytes::new(),
        config: Bytes::new(),
        start: None,
        attempts_max: 0,
        exact: false,
        patience: Duration::ZERO,
        inline: false,
        public,
        events: Events::default(),
        own_messages: false,
        capture: Captured::default(),
    }
}

impl Cluster {
    fn change(&mut self, change: Change) -> u64 {
        match self.ask(NODE, Ask::ChangeRegistry(Box::new(change))) {
            Answer::Changed { revision } => self.knows(revision),
            other => panic!("{other:?}"),
        }
    }

    /// Runs until the node acts on this revision.
    fn knows(&mut self, revision: u64) -> u64 {
        for _ in 0..2_000 {
            let acts = self.nodes[&NODE].shard.registry_revision();
            if acts.is_some_and(|acts| acts >= revision) {
                return revision;
            }
            self.advance();
        }
        panic!("the registry does not come");
    }

    /// A plugin that is promoted.
    fn with_plugin() -> Cluster {
        let mut cluster = Cluster::new();
        cluster.elect(&ChannelKey::new("any", ChannelKind::GROUP));
        let plugin: Arc<str> = Arc::from("p");
        let artifact = Artifact {
            digest: Digest([7; 32]),
            hooks: [Hook::Route].into(),
            facts: Bytes::new(),
        };
        let rollout = cluster.change(Change::Propose(Proposal {
            plugin: Arc::clone(&plugin),
            expected_revision: 0,
            artifact,
        }));
        for node in 1..=3 {
            cluster.change(Change::Report(PlacedReport {
                plugin: Arc::clone(&plugin),
                rollout,
                node: NodeId(node),
                state: ReportState::Ready,
                text: Arc::from(""),
            }));
        }
        cluster.change(Change::Promote {
            plugin,
            expected_revision: rollout,
        });
        cluster
    }

    fn bind(&mut self, public: bool, expected_revision: u64) -> u64 {
        self.change(Change::Bind {
            binding: Box::new(binding(public)),
            expected_revision,
        })
    }
}

fn failed(failure: plugins::Failure) -> Answer {
    Answer::Failed(Failure::Plugin(failure))
}

#[test]
fn a_request_is_answered_by_the_binding_of_the_plugin() {
    let mut cluster = Cluster::new();
    // Nothing is known yet: nobody is told that there is no such plugin.
    let early = cluster.ask(NODE, asked(true));
    assert!(
        matches!(early, Answer::Failed(Failure::Unavailable(_))),
        "{early:?}"
    );
    let mut cluster = Cluster::with_plugin();
    let nobody = cluster.ask(NODE, asked(true));
    assert!(
        matches!(nobody, Answer::Failed(Failure::NotFound(_))),
        "{nobody:?}"
    );
    // Who has no key does not learn that.
    assert_eq!(
        cluster.ask(NODE, asked(false)),
        Answer::Failed(Failure::KeyNeeded)
    );
    let revision = cluster.bind(false, 0);
    assert_eq!(
        cluster.ask(NODE, asked(false)),
        Answer::Failed(Failure::KeyNeeded)
    );
    assert!(cluster.calls.is_empty());

    cluster.returns = Some(Ok(call::Answer::Response(response())));
    assert_eq!(cluster.ask(NODE, asked(true)), Answer::Response(response()));
    let call = cluster.calls.remove(0);
    assert_eq!(
        (&*call.version.binding, call.version.digest),
        ("b", Digest([7; 32]))
    );
    assert_eq!((call.channel, call.within), (None, Duration::from_secs(5)));
    let Work::Route { request: given, .. } = call.work else {
        panic!("{:?}", call.work);
    };
    assert_eq!(*given, request());

    let public = || {
        Ask::Route(RouteAsk::Public {
            plugin: Arc::from("p"),
        })
    };
    assert_eq!(cluster.ask(NODE, public()), Answer::Failed(Failure::KeyNeeded));
    cluster.bind(true, revision);
    assert_eq!(cluster.ask(NODE, public()), Answer::Done);
    assert_eq!(cluster.ask(NODE, asked(false)), Answer::Response(response()));
}

#[test]
fn a_failed_call_is_told_by_its_class_and_counts_for_the_breaker() {
    let mut cluster = Cluster::with_plugin();
    cluster.bind(false, 0);
    // What is no answer to a request is bad output.
    let verdicts = call::Answer::Verdicts(Vec::new());
    for (returned, class) in [
        (Ok(verdicts), plugins::Failure::BadOutput),
        (Err(Failed::Retry { after: None }), plugins::Failure::Busy),
    ] {
        cluster.returns = Some(returned);
        assert_eq!(cluster.ask(NODE, asked(true)), failed(class));
    }
    cluster.returns = Some(Err(Failed::Call(plugins::Failure::Trap)));
    let mut told = Vec::new();
    while told.len() < 10 && !told.contains(&failed(plugins::Failure::Suspended)) {
        told.push(cluster.ask(NODE, asked(true)));
    }
    assert_eq!(told.first(), Some(&failed(plugins::Failure::Trap)));
    assert_eq!(told.last(), Some(&failed(plugins::Failure::Suspended)));
    // After a pause it is tried, and is well again.
    cluster.returns = Some(Ok(call::Answer::Response(response())));
    for _ in 0..200 {
        cluster.advance();
    }
    assert_eq!(cluster.ask(NODE, asked(true)), Answer::Response(response()));
}

#[test]
fn so_many_requests_are_answered_at_a_time_and_each_is_given_up_in_time() {
    let mut cluster = Cluster::with_plugin();
    cluster.bind(false, 0);
    let first = cluster.post(NODE, asked(true));
    for _ in 1..ROUTES_MAX {
        cluster.post(NODE, asked(true));
    }
    assert_eq!(cluster.calls.len(), ROUTES_MAX);
    assert_eq!(cluster.ask(NODE, asked(true)), failed(plugins::Failure::Busy));
    assert_eq!(cluster.calls.len(), ROUTES_MAX);
    assert!(!cluster.answers.contains_key(&first));
    // The host says nothing: its time and some patience.
    for _ in 0..701 {
        cluster.advance();
    }
    let timeouts = cluster
        .answers
        .values()
        .filter(|answer| **answer == failed(plugins::Failure::Timeout));
    assert_eq!(timeouts.count(), ROUTES_MAX);
}
