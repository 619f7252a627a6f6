//! Order, policies and deadlines of the before-send stages.

use super::*;
use crate::hooks::call::Digest;
use crate::message::MessageFlags;
use crate::plugins::{Artifact, Binding, Captured, Plugin, Selector};
use crate::types::{ChannelKind, Uid};

fn now(millis: u64) -> Now {
    Now {
        monotonic: Duration::from_millis(millis),
        wall_ms: millis,
    }
}

fn channel() -> ChannelKey {
    ChannelKey::new("g", ChannelKind::GROUP)
}

fn draft(payload: &str) -> Draft {
    Draft {
        from_uid: Uid::new("u1"),
        client_msg_no: Arc::from("n"),
        flags: MessageFlags::default(),
        setting: 0,
        expire_s: 0,
        topic: Arc::from(""),
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        origin: None,
        subscribers: Arc::from([]),
        attributes: None,
        hops: 0,
    }
}

fn stage(name: &str, priority: i32, on_failure: Policy) -> Stage {
    Stage::bound(&bound(
        name,
        priority,
        OnError::all(on_failure),
        Selector::default(),
    ))
}

fn bound(name: &str, priority: i32, on_error: OnError, selector: Selector) -> Arc<Bound> {
    let plugin = Plugin {
        name: Arc::from(name),
        revision: 1,
        active: Some(Artifact {
            digest: Digest([7; 32]),
            hooks: [Hook::BeforeSend].into(),
            facts: Bytes::new(),
        }),
        ..Plugin::default()
    };
    let binding = Binding {
        id: Arc::from(name),
        plugin: Arc::from(name),
        hook: Hook::BeforeSend,
        selector,
        priority,
        deadline: Duration::from_millis(50),
        on_error,
        grants: Bytes::new(),
        config: Bytes::new(),
        start: None,
        attempts_max: 0,
        exact: false,
        patience: Duration::from_secs(60),
        inline: true,
        public: false,
        events: crate::plugins::Events::default(),
        own_messages: false,
        capture: Captured::default(),
    };
    Arc::new(Bound::new(binding, 1, 1, 1, &plugin))
}

fn rewrite(payload: &str) -> Verdict {
    Verdict::Rewrite(Rewrite {
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        expire_s: 3,
        topic: Arc::from("t"),
    })
}

struct World(Pipeline);

impl World {
    fn new(stages: Vec<Stage>) -> World {
        World(Pipeline::new(Stages::new(stages), Faults::default(), Token(1)))
    }

    fn input(&mut self, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        self.0.handle(now(0), input, &mut out);
        out
    }

    fn send(&mut self, token: u64, payloads: &[&str]) -> Vec<Output> {
        self.input(Input::BeforeSend {
            token: Token(token),
            channel: channel(),
            drafts: payloads.iter().map(|payload| draft(payload)).collect(),
        })
    }

    fn returned(&mut self, token: Token, result: Result<Vec<Verdict>, Failure>) -> Vec<Output> {
        self.input(Input::Returned { token, result })
    }
}

/// The call: its token, stage and payloads.
fn call(out: &[Output]) -> (Token, String, Vec<String>) {
    match out {
        [
            Output::Call {
                token,
                version,
                drafts,
                ..
            },
        ] => {
            let payloads = drafts.iter().map(|draft| text(&draft.payload)).collect();
            (*token, version.binding.to_string(), payloads)
        }
        other => panic!("not a call: {other:?}"),
    }
}

fn text(payload: &Bytes) -> String {
    String::from_utf8_lossy(payload).into_owned()
}

/// The verdicts: payloads, or codes.
fn finished(out: &[Output]) -> Vec<Result<String, u8>> {
    match out {
        [Output::Done { verdicts, .. }] => verdicts
            .iter()
            .map(|verdict| {
                verdict
                    .as_ref()
                    .map(|draft| text(&draft.payload))
                    .map_err(|refusal| refusal.reason.0)
            })
            .collect(),
        other => panic!("not done: {other:?}"),
    }
}

fn good(payload: &str) -> Result<String, u8> {
    Ok(payload.to_owned())
}

#[test]
fn without_stages_everything_passes_at_once() {
    let mut world = World::new(vec![]);
    let out = world.send(7, &["a", "b"]);
    assert!(matches!(&out[..], [Output::Done { token: Token(7), .. }]));
    assert_eq!(finished(&out), vec![good("a"), good("b")]);
}

#[test]
fn stages_run_by_priority_then_name_and_feed_each_other() {
    let policy = Policy::Reject;
    let mut world = World::new(vec![
        stage("z", 1, policy),
        stage("b", 5, policy),
        stage("a", 5, policy),
    ]);
    let (token, name, _) = call(&world.send(1, &["one", "two", "three"]));
    assert_eq!(name, "a");
    let verdicts = vec![
        rewrite("ONE"),
        Verdict::Reject(Reason::NOT_ALLOWED.into()),
        Verdict::Allow,
    ];
    let (token, name, payloads) = call(&world.returned(token, Ok(verdicts)));
    assert_eq!(
        (name.as_str(), payloads),
        ("b", vec!["ONE".to_owned(), "three".to_owned()])
    );
    let verdicts = vec![Verdict::Allow, rewrite("THREE")];
    let (token, name, _) = call(&world.returned(token, Ok(verdicts)));
    assert_eq!(name, "z");
    let out = world.returned(
        token,
        Ok(vec![Verdict::Allow, Verdict::Reject(Reason::SUCCESS.into())]),
    );
    assert_eq!(
        finished(&out),
        vec![good("ONE"), Err(11), Err(11)],
        "no refusal looks like success"
    );
    assert_eq!(world.0.running(), 0);
}

#[test]
fn a_batch_without_open_drafts_asks_nobody_else() {
    let mut world = World::new(vec![stage("a", 2, Policy::Reject), stage("b", 1, Policy::Reject)]);
    let (token, ..) = call(&world.send(1, &["one"]));
    let out = world.returned(token, Ok(vec![Verdict::Reject(Reason::NOT_ALLOWED.into())]));
    assert_eq!(finished(&out), vec![Err(11)]);
    assert_eq!(finished(&world.send(2, &[])), vec![]);
}

/// What was rewritten before a failure survives whatever lets the message through.
#[test]
fn policies_of_a_failure() {
    let failures = [
        Failure::Timeout,
        Failure::Trap,
        Failure::Memory,
        Failure::BadOutput,
        Failure::Busy,
        Failure::NotReady,
        Failure::Host,
    ];
    for failure in failures {
        for policy in [Policy::Reject, Policy::Allow, Policy::Skip] {
            let stages = vec![
                stage("a", 3, Policy::Reject),
                stage("b", 2, policy),
                stage("c", 1, Policy::Reject),
            ];
            let mut world = World::new(stages);
            let (token, ..) = call(&world.send(1, &["x"]));
            let (token, ..) = call(&world.returned(token, Ok(vec![rewrite("y")])));
            let out = world.returned(token, Err(failure));
            match policy {
                Policy::Reject => {
                    let code = if failure == Failure::Busy { 22 } else { 18 };
                    assert_eq!(finished(&out), vec![Err(code)]);
                }
                Policy::Allow => assert_eq!(finished(&out), vec![good("y")]),
                Policy::Skip => {
                    let (token, name, payloads) = call(&out);
                    assert_eq!((name.as_str(), payloads), ("c", vec!["y".to_owned()]));
                    let out = world.returned(token, Ok(vec![rewrite("z")]));
                    assert_eq!(finished(&out), vec![good("z")]);
                }
            }
        }
    }
}

#[test]
fn an_answer_of_the_wrong_length_is_a_failure() {
    let mut world = World::new(vec![stage("a", 1, Policy::Reject)]);
    let (token, ..) = call(&world.send(1, &["x", "y"]));
    let out = world.returned(token, Ok(vec![Verdict::Allow]));
    assert_eq!(finished(&out), vec![Err(18), Err(18)]);
}

#[test]
fn a_late_answer_is_dropped() {
    let mut world = World::new(vec![stage("a", 1, Policy::Allow)]);
    let (token, ..) = call(&world.send(1, &["x"]));
    assert_eq!(world.0.next_deadline(), Some(Duration::from_millis(50)));
    let mut out = Vec::new();
    world.0.expire(now(49), &mut out);
    assert_eq!(out, vec![]);
    world.0.expire(now(50), &mut out);
    assert_eq!(finished(&out), vec![good("x")]);
    assert_eq!(world.returned(token, Ok(vec![rewrite("late")])), vec![]);
    assert_eq!(world.0.next_deadline(), None);
}

#[test]
fn a_batch_keeps_the_stages_that_it_started_with() {
    let policy = Policy::Reject;
    let mut world = World::new(vec![stage("a", 2, policy), stage("b", 1, policy)]);
    let (token, ..) = call(&world.send(1, &["x"]));
    assert_eq!(
        world.input(Input::Stages(Stages::new(vec![stage("new", 9, policy)]))),
        vec![]
    );
    let (token, name, _) = call(&world.returned(token, Ok(vec![Verdict::Allow])));
    assert_eq!(name, "b");
    assert_eq!(
        finished(&world.returned(token, Ok(vec![Verdict::Allow]))),
        vec![good("x")]
    );
    assert_eq!(call(&world.send(2, &["x"])).1, "new");
}

#[test]
fn the_built_in_guards() {
    let mut world = World::new(vec![Stage::payload_guard(3), Stage::expire_guard(60, true)]);
    let out = world.send(1, &["abc", "abcd", ""]);
    assert_eq!(finished(&out), vec![good("abc"), Err(9), Err(9)]);
    let [Output::Done { verdicts, .. }] = &out[..] else {
        panic!("{out:?}")
    };
    assert_eq!(verdicts[0].as_ref().map(|draft| draft.expire_s).ok(), Some(60));

    let mut world = World::new(vec![Stage::expire_guard(60, false)]);
    let mut long = draft("x");
    long.expire_s = 61;
    let out = world.input(Input::BeforeSend {
        token: Token(1),
        channel: channel(),
        drafts: vec![long, draft("y")],
    });
    let [Output::Done { verdicts, .. }] = &out[..] else {
        panic!("{out:?}")
    };
    let expiries: Vec<u32> = verdicts.iter().flatten().map(|draft| draft.expire_s).collect();
    assert_eq!(expiries, vec![60, 0]);
}

#[test]
fn a_stage_judges_only_whom_it_is_for() {
    let selector = |uid: &str| Selector {
        uids: [Uid::new(uid)].into(),
        ..Selector::default()
    };
    let on_error = OnError::all(Policy::Reject);
    let stages = vec![
        Stage::bound(&bound("all", 2, on_error, Selector::default())),
        Stage::bound(&bound("one", 1, on_error, selector("u2"))),
    ];
    let mut world = World::new(stages);
    let mut other = draft("other");
    other.from_uid = Uid::new("u2");
    let out = world.input(Input::BeforeSend {
        token: Token(1),
        channel: channel(),
        drafts: vec![draft("x"), other],
    });
    let (token, name, payloads) = call(&out);
    assert_eq!((name.as_str(), payloads.len()), ("all", 2));
    let (token, name, payloads) = call(&world.returned(token, Ok(vec![Verdict::Allow, Verdict::Allow])));
    assert_eq!((name.as_str(), payloads), ("one", vec!["other".to_owned()]));
    let out = world.returned(token, Err(Failure::Trap));
    assert_eq!(finished(&out), vec![good("x"), Err(18)]);
    // Nobody of this batch is meant: the stage is not asked.
    let (token, ..) = call(&world.send(2, &["x"]));
    let out = world.returned(token, Ok(vec![Verdict::Allow]));
    assert_eq!(finished(&out), vec![good("x")]);
}

#[test]
fn each_failure_has_its_own_policy() {
    let on_error = OnError::all(Policy::Reject).with(Failure::NotReady, Policy::Skip);
    assert_eq!(
        on_error
            .each()
            .filter(|(_, policy)| *policy == Policy::Skip)
            .count(),
        1
    );
    for (failure, code) in [(Failure::NotReady, None), (Failure::Trap, Some(18))] {
        let mut world = World::new(vec![Stage::bound(&bound("a", 1, on_error, Selector::default()))]);
        let (token, ..) = call(&world.send(1, &["x"]));
        let expected = code.map_or_else(|| good("x"), Err);
        assert_eq!(finished(&world.returned(token, Err(failure))), vec![expected]);
    }
}

#[test]
fn a_refusal_keeps_its_words_within_their_bound_and_a_rewrite_is_guarded() {
    let mut world = World::new(vec![Stage::payload_guard(3), stage("a", i32::MAX, Policy::Allow)]);
    let (token, ..) = call(&world.send(1, &["abc", "abc"]));
    let long = Refusal {
        reason: Reason::NOT_ALLOWED,
        text: Some(Arc::from(format!("x{}", "ö".repeat(600)).as_str())),
    };
    let out = world.returned(token, Ok(vec![Verdict::Reject(long), rewrite("four")]));
    let [Output::Done { verdicts, .. }] = &out[..] else {
        panic!("{out:?}")
    };
    let text = verdicts[0]
        .as_ref()
        .err()
        .and_then(|refusal| refusal.text.clone());
    assert_eq!(
        text.map(|text| text.len()),
        Some(1_023),
        "cut between two characters"
    );
    assert_eq!(
        verdicts[1],
        Err(Reason::PAYLOAD_DECODE.into()),
        "a rewrite is bounded too"
    );
}
