//! Connections on their way through scripted gates.

use super::*;
use crate::client::Secret;
use crate::entrance::is_whole;
use crate::hooks::call::Digest;
use crate::plugins::{Artifact, Binding, Captured, OnError, Plugin, Rollout, Selector};
use crate::types::{DeviceFlag, Uid};
use bytes::Bytes;
use std::collections::BTreeSet;

const CLIENT: ConnectionId = ConnectionId(7);

fn now(ms: u64) -> Now {
    Now {
        monotonic: Duration::from_millis(ms),
        wall_ms: ms,
    }
}

fn artifact(number: u8) -> Artifact {
    Artifact {
        digest: Digest([number; 32]),
        hooks: [Hook::Connect].into(),
        facts: Bytes::new(),
    }
}

fn plugin(name: &str) -> Plugin {
    Plugin {
        name: Arc::from(name),
        revision: 1,
        active: Some(artifact(7)),
        ..Plugin::default()
    }
}

fn binding(id: &str, priority: i32, policy: Policy) -> Binding {
    Binding {
        id: Arc::from(id),
        plugin: Arc::from(id),
        hook: Hook::Connect,
        selector: Selector::default(),
        priority,
        deadline: Duration::from_millis(200),
        on_error: OnError::all(policy),
        grants: Bytes::new(),
        config: Bytes::new(),
        start: None,
        attempts_max: 0,
        exact: false,
        patience: Duration::ZERO,
        inline: false,
        public: false,
        events: crate::plugins::Events::default(),
        own_messages: false,
        capture: Captured::default(),
    }
}

fn list(bindings: Vec<Binding>) -> List {
    let plugins: Vec<Plugin> = bindings.iter().map(|binding| plugin(&binding.plugin)).collect();
    let bound = bindings
        .into_iter()
        .zip(&plugins)
        .map(|(binding, plugin)| Bound::new(binding, 1, 1, 1, plugin))
        .collect();
    List::of(&Registry::new(1, plugins, bound))
}

fn request(uid: &str) -> Box<Request> {
    Box::new(Request {
        uid: Uid::new(uid),
        token: Secret(Arc::from("t")),
        device_id: Arc::from("d"),
        flag: DeviceFlag(1),
        address: Arc::from("192.0.2.7"),
    })
}

fn acceptance(uid: &str, level: DeviceLevel, attributes: &[(&str, &str)]) -> Decision {
    let attribute = |(name, value): &(&str, &str)| (Arc::from(*name), Arc::from(*value));
    Ok(Acceptance {
        uid: Uid::new(uid),
        level,
        attributes: attributes.iter().map(attribute).collect(),
    })
}

struct World(Gates);

impl World {
    fn new(bindings: Vec<Binding>) -> World {
        let mut world = World(Gates::new(Faults::default(), Token(1)));
        assert!(world.input(Input::Gates(list(bindings))).is_empty());
        world
    }

    fn input(&mut self, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        self.0.handle(now(0), input, &mut out);
        out
    }

    fn ask(&mut self, uid: &str) -> Vec<Output> {
        self.input(Input::Ask {
            connection: CLIENT,
            request: request(uid),
            level: DeviceLevel::Slave,
        })
    }

    fn returned(&mut self, token: Token, result: Result<Decision, Failure>) -> Vec<Output> {
        self.input(Input::Returned { token, result })
    }
}

/// The call: its token, binding and uid.
#[track_caller]
fn call(out: &[Output]) -> (Token, &str, &str) {
    match out {
        [
            Output::Call {
                token,
                version,
                request,
                ..
            },
        ] => (*token, &version.binding, request.uid.as_str()),
        other => panic!("not a call: {other:?}"),
    }
}

/// As whom the client is let in, or the code of its refusal.
#[track_caller]
fn done(out: &[Output]) -> Result<String, u8> {
    match out {
        [Output::Done { connection, result }] => {
            assert_eq!(*connection, CLIENT);
            let shown = |admitted: &Admitted| {
                let attributes = admitted.attributes.iter().flat_map(|all| all.iter());
                let attributes: Vec<String> = attributes
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect();
                format!("{} {:?} {}", admitted.uid, admitted.level, attributes.join(","))
            };
            result.as_ref().map(shown).map_err(|refusal| refusal.reason.0)
        }
        other => panic!("not done: {other:?}"),
    }
}

#[test]
fn without_a_gate_everybody_is_let_in_as_they_come() {
    let mut world = World::new(Vec::new());
    assert_eq!(done(&world.ask("a")), Ok("a Slave ".to_owned()));
    let mut other = binding("only-b", 0, Policy::Reject);
    other.selector.uids = [Uid::new("b")].into();
    let mut world = World::new(vec![other]);
    assert_eq!(done(&world.ask("a")), Ok("a Slave ".to_owned()));
    assert_eq!(call(&world.ask("b")).1, "only-b");
}

#[test]
fn what_a_gate_accepts_is_what_the_next_one_is_asked_about() {
    let gates = vec![
        binding("low", 1, Policy::Reject),
        binding("high", 2, Policy::Reject),
    ];
    let mut world = World::new(gates);
    let out = world.ask("a");
    let (token, gate, uid) = call(&out);
    assert_eq!((gate, uid), ("high", "a"));
    let first = acceptance("b", DeviceLevel::Master, &[("team", "red"), ("plan", "free")]);
    let out = world.returned(token, Ok(first));
    let (token, gate, uid) = call(&out);
    assert_eq!((gate, uid), ("low", "b"));
    let second = acceptance("b", DeviceLevel::Slave, &[("plan", "paid")]);
    let out = world.returned(token, Ok(second.clone()));
    assert_eq!(done(&out), Ok("b Slave team=red,plan=paid".to_owned()));
    assert!(world.returned(token, Ok(second)).is_empty(), "answered twice");
    assert_eq!((world.0.waiting(), world.0.next_deadline()), (0, None));
}

#[test]
fn a_denial_is_the_end_and_never_says_success() {
    for (code, told) in [(19, 19), (1, 2)] {
        let mut world = World::new(vec![
            binding("a", 2, Policy::Allow),
            binding("b", 1, Policy::Allow),
        ]);
        let (token, ..) = call(&world.ask("u"));
        let why = Refusal {
            reason: Reason(code),
            text: Some(Arc::from("x".repeat(2_000))),
        };
        let out = world.returned(token, Ok(Err(why)));
        assert_eq!(done(&out), Err(told));
        let [Output::Done { result: Err(why), .. }] = &out[..] else {
            panic!("{out:?}");
        };
        assert_eq!(why.text.as_ref().map(|text| text.len()), Some(1_024));
    }
}

#[test]
fn a_failure_means_what_the_policy_says() {
    for (policy, told) in [
        (Policy::Reject, Some(Err(15))),
        (Policy::Allow, Some(Ok("u Slave ".to_owned()))),
        (Policy::Skip, None),
    ] {
        let mut world = World::new(vec![binding("a", 2, policy), binding("b", 1, Policy::Reject)]);
        let (token, ..) = call(&world.ask("u"));
        let out = world.returned(token, Err(Failure::Trap));
        match told {
            Some(told) => assert_eq!(done(&out), told),
            None => assert_eq!(call(&out).1, "b"),
        }
    }
}

#[test]
fn what_is_no_acceptance_is_a_failure_of_its_gate() {
    let long = "x".repeat(ATTRIBUTES_BYTES_MAX);
    for flawed in [
        acceptance("", DeviceLevel::Slave, &[]),
        acceptance("a@b", DeviceLevel::Slave, &[]),
        acceptance("u", DeviceLevel::Slave, &[("k", &long)]),
    ] {
        let mut world = World::new(vec![binding("a", 0, Policy::Reject)]);
        let (token, ..) = call(&world.ask("u"));
        assert!(!is_whole(&flawed));
        assert_eq!(done(&world.returned(token, Ok(flawed))), Err(15));
    }
    // Two gates that keep within the bound, and together do not.
    let mut world = World::new(vec![
        binding("a", 2, Policy::Reject),
        binding("b", 1, Policy::Reject),
    ]);
    let (token, ..) = call(&world.ask("u"));
    let half = &long[..ATTRIBUTES_BYTES_MAX - 1];
    let out = world.returned(token, Ok(acceptance("u", DeviceLevel::Slave, &[("k", half)])));
    let (token, ..) = call(&out);
    let out = world.returned(token, Ok(acceptance("u", DeviceLevel::Slave, &[("l", half)])));
    assert_eq!(done(&out), Err(15));
}

#[test]
fn an_answer_is_waited_for_until_its_deadline_alone() {
    let mut world = World::new(vec![binding("a", 0, Policy::Reject)]);
    let (token, ..) = call(&world.ask("u"));
    assert_eq!(world.0.next_deadline(), Some(Duration::from_millis(200)));
    let mut out = Vec::new();
    world.0.expire(now(199), &mut out);
    assert!(out.is_empty());
    world.0.expire(now(200), &mut out);
    assert_eq!(done(&out), Err(15));
    let late = world.returned(token, Ok(acceptance("u", DeviceLevel::Slave, &[])));
    assert!(late.is_empty());
}

#[test]
fn who_comes_before_the_gates_are_known_waits_for_them() {
    let mut world = World(Gates::new(Faults::default(), Token(1)));
    assert!(world.ask("u").is_empty());
    assert_eq!(world.0.waiting(), 1);
    let out = world.input(Input::Gates(list(vec![binding("a", 0, Policy::Reject)])));
    assert_eq!(call(&out).1, "a");
}

#[test]
fn who_leaves_is_forgotten() {
    let mut world = World(Gates::new(Faults::default(), Token(1)));
    assert!(world.ask("u").is_empty());
    let left = Input::Left { connection: CLIENT };
    assert!(world.input(left.clone()).is_empty());
    let gates = Input::Gates(list(vec![binding("a", 0, Policy::Reject)]));
    assert!(world.input(gates).is_empty());
    let (token, ..) = call(&world.ask("u"));
    assert!(world.input(left).is_empty());
    assert_eq!((world.0.waiting(), world.0.next_deadline()), (0, None));
    let late = world.returned(token, Ok(acceptance("u", DeviceLevel::Slave, &[])));
    assert!(late.is_empty());
}

#[test]
fn a_canary_takes_users_by_hash() {
    let mut plugin = plugin("p");
    plugin.rollout = Some(Rollout {
        id: 5,
        artifact: artifact(8),
        wanted: BTreeSet::new(),
        reports: BTreeMap::new(),
        canary_percent: 30,
    });
    let bound = Bound::new(binding("p", 0, Policy::Reject), 1, 1, 1, &plugin);
    let candidate = |number: &u32| {
        let version = bound.version_of_user(&Uid::new(&format!("user{number}")));
        version.is_some_and(|version| version.digest == Digest([8; 32]))
    };
    let share = (0..1_000).filter(candidate).count();
    assert!((250..350).contains(&share), "{share}");
}
