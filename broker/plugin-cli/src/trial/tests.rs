//! Fixtures and their comparison.

use super::compare::{outcome, verdict};
use super::fixtures::{Expected, ExpectedVerdict, parse, read};
use super::given::{Scene, before_send};
use anyhow::Result;
use bytes::Bytes;
use penstock_core::hooks::call::{
    Answer, Call, Digest, Failed, HttpRequest, StatusBatch, Version, Window, Work,
};
use penstock_core::hooks::pipeline::{Failure, Rewrite, Verdict};
use penstock_core::hooks::registry::Captured;
use penstock_core::message::{Draft, Message, MessageFlags, Refusal};
use penstock_core::types::{ChannelKey, ChannelKind, Incarnation, MessageId, Reason, Seq, SlotId, Uid};
use penstock_plugin_host::input_of;
use std::sync::Arc;
use std::time::Duration;

fn fixture(messages: &str, expect: &str) -> Result<super::Fixture> {
    parse(&format!("{{\"messages\":[{messages}],\"expect\":{expect}}}"))
}

const MESSAGE: &str = r#"{"from":"ann","channel_id":"room","payload":{"type":1,"content":"a"}}"#;

fn expected(text: &str) -> ExpectedVerdict {
    let fixture = fixture(MESSAGE, &format!("[{text}]")).expect("a fixture");
    match fixture.expect {
        Some(Expected::Verdicts(mut verdicts)) => verdicts.remove(0),
        other => panic!("{other:?}"),
    }
}

fn rewrite(payload: &str) -> Verdict {
    Verdict::Rewrite(Rewrite {
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        expire_s: 9,
        topic: Arc::from("t"),
    })
}

fn reject() -> Verdict {
    Verdict::Reject(Refusal {
        reason: Reason(13),
        text: Some(Arc::from("not here")),
    })
}

#[test]
fn what_is_named_is_compared_and_nothing_else() {
    let same = [
        (r#"{"allow":true}"#, Verdict::Allow),
        (r#"{"allow":false}"#, reject()),
        (r#"{"reject":true}"#, reject()),
        (r#"{"reject":{}}"#, reject()),
        (r#"{"reject":{"code":13}}"#, reject()),
        (r#"{"reject":{"text":"not here"}}"#, reject()),
        (r#"{"rewrite":{}}"#, rewrite("A")),
        (
            r#"{"rewrite":{"payload":"A","expire":9,"topic":"t"}}"#,
            rewrite("A"),
        ),
        (
            r#"{"rewrite":{"payload":{"b":1,"a":[2]}}}"#,
            rewrite("{\"a\": [2], \"b\": 1}"),
        ),
    ];
    for (text, found) in same {
        assert_eq!(verdict(&expected(text), &found), None, "{text}");
    }
    let other = [
        (
            r#"{"allow":true}"#,
            reject(),
            "expected allow, got reject (code 13, text \"not here\")",
        ),
        (r#"{"reject":true}"#, Verdict::Allow, "expected reject, got allow"),
        (
            r#"{"reject":{"code":2}}"#,
            reject(),
            "expected reject (code 2), got",
        ),
        (
            r#"{"reject":{"text":"not"}}"#,
            reject(),
            "expected reject (text \"not\"), got",
        ),
        (
            r#"{"rewrite":{"payload":"a"}}"#,
            rewrite("A"),
            "expected rewrite (payload a), got rewrite (payload A, topic \"t\", expire 9)",
        ),
        (
            r#"{"rewrite":{"payload":{"a":1}}}"#,
            rewrite("{\"a\":2}"),
            "payload {\"a\":1}",
        ),
        (
            r#"{"rewrite":{"payload":{"a":1}}}"#,
            rewrite("no JSON"),
            "no JSON",
        ),
        (r#"{"rewrite":{"topic":"u"}}"#, rewrite("A"), "topic \"u\""),
        (r#"{"rewrite":{"expire":1}}"#, rewrite("A"), "expire 1"),
        (r#"{"rewrite":{}}"#, Verdict::Allow, "expected rewrite, got allow"),
    ];
    for (text, found, said) in other {
        let difference = verdict(&expected(text), &found).expect(text);
        assert!(difference.contains(said), "{difference}");
    }
}

#[test]
fn outcomes_of_committed_messages_are_compared() -> Result<()> {
    let Some(Expected::Outcome(done)) = fixture(MESSAGE, "{\"done\":1}")?.expect else {
        panic!("an outcome")
    };
    let answer = |messages| {
        Ok(Answer::Done {
            messages,
            changes: Vec::new(),
        })
    };
    assert_eq!(outcome(&done, &answer(1)), None);
    assert_eq!(
        outcome(&done, &answer(0)).as_deref(),
        Some("expected 1 done, got 0 done")
    );
    assert_eq!(
        outcome(&done, &Err(Failed::Poison)).as_deref(),
        Some("expected 1 done, got poison")
    );
    let Some(Expected::Outcome(poison)) = fixture(MESSAGE, "{\"poison\":true}")?.expect else {
        panic!("an outcome")
    };
    assert_eq!(outcome(&poison, &Err(Failed::Poison)), None);
    assert!(outcome(&poison, &answer(1)).is_some());
    Ok(())
}

#[test]
fn what_is_wrong_with_a_fixture_is_said() {
    let wrong = [
        ("", "[]", "at least one"),
        (MESSAGE, "[]", "0 verdicts for 1 messages"),
        (MESSAGE, "[{\"alow\":true}]", "variant"),
        (
            "{\"from\":\"a\",\"channel_id\":\"r\"}",
            "[{\"allow\":true}]",
            "payload",
        ),
        (
            "{\"from\":\"a\",\"channel_id\":\"r\",\"payload\":\"\",\"to\":1}",
            "[{\"allow\":true}]",
            "to",
        ),
    ];
    for (messages, expect, said) in wrong {
        let refused = fixture(messages, expect).expect_err(messages).to_string();
        assert!(refused.contains(said), "{refused}");
    }
    let other = MESSAGE.replace("room", "hall");
    let refused = fixture(&format!("{MESSAGE},{other}"), "{\"done\":2}").expect_err("two channels");
    assert!(refused.to_string().contains("one channel"));
}

#[test]
fn who_connects_has_a_decision_each() -> Result<()> {
    let fixture =
        |connects: &str, expect: &str| parse(&format!("{{\"connects\":[{connects}],\"expect\":[{expect}]}}"));
    let ann = r#"{"uid":"ann","token":"t","device_flag":1}"#;
    let good = fixture(ann, r#"{"accept":{"uid":"ann"}}"#)?;
    let [turn] = &super::turns::of_fixture("connect", &good)[..] else {
        panic!("one call");
    };
    let Work::Connect { request, .. } = &turn.work else {
        panic!("a call of connect");
    };
    assert_eq!((request.uid.as_str(), &*request.token.0), ("ann", "t"));
    assert_eq!(turn.channel, None);
    for (connects, expect, said) in [
        (ann, r#"{"accept":{}},{"deny":{}}"#, "2 decisions for 1 connects"),
        (ann, r#"{"allow":true}"#, "the decision on each"),
        (ann, r#"{"deny":{"text":1}}"#, "expect"),
        (r#"{"token":"t"}"#, r#"{"accept":{}}"#, "uid"),
    ] {
        let refused = fixture(connects, expect).expect_err(expect).to_string();
        assert!(refused.contains(said), "{refused}");
    }
    Ok(())
}

#[test]
fn requests_have_a_response_each() -> Result<()> {
    let fixture =
        |requests: &str, expect: &str| parse(&format!("{{\"requests\":[{requests}],\"expect\":[{expect}]}}"));
    let asked = r#"{"method":"POST","url":"/a?b=c","headers":{"x":"y"},"body":{"n":1}}"#;
    let good = fixture(asked, r#"{"response":{"status":200}}"#)?;
    let [turn] = &super::turns::of_fixture("route", &good)[..] else {
        panic!("one call");
    };
    let Work::Route { request, .. } = &turn.work else {
        panic!("a call of route");
    };
    assert_eq!(
        (request.method.as_str(), request.url.as_str()),
        ("POST", "/a?b=c")
    );
    assert_eq!((&request.body[..], request.headers.len()), (&b"{\"n\":1}"[..], 1));
    for (requests, expect, said) in [
        (
            asked,
            r#"{"response":{}},{"response":{}}"#,
            "2 responses for 1 requests",
        ),
        (asked, r#"{"allow":true}"#, "the response to each"),
        (asked, r#"{"response":{"status":"200"}}"#, "expect"),
        (r#"{"path":"/"}"#, r#"{"response":{}}"#, "path"),
    ] {
        let refused = fixture(requests, expect).expect_err(expect).to_string();
        assert!(refused.contains(said), "{refused}");
    }
    Ok(())
}

#[test]
fn payloads_are_text_or_json() -> Result<()> {
    let text =
        r#"{"from":"ann","channel_type":1,"channel_id":"a@b","payload":"plain","topic":"t","expire":7}"#;
    let fixture = fixture(
        &format!("{MESSAGE},{text}"),
        "[{\"allow\":true},{\"allow\":true}]",
    )?;
    assert_eq!(fixture.messages[1].channel().kind.0, 1);
    let Work::BeforeSend { drafts, .. } = before_send(&fixture.messages, Scene::default()) else {
        panic!("a call of before-send")
    };
    let json: serde_json::Value = serde_json::from_slice(&drafts[0].payload)?;
    assert_eq!(json["content"], "a");
    assert_eq!(
        (&drafts[1].payload[..], drafts[1].expire_s, &*drafts[1].topic),
        (&b"plain"[..], 7, "t")
    );
    assert_ne!(drafts[0].client_msg_no, drafts[1].client_msg_no);
    Ok(())
}

#[test]
fn the_fixtures_of_a_folder_come_in_order_and_a_bad_one_is_named() -> Result<()> {
    let folder = tempfile::tempdir()?;
    assert!(read(folder.path()).is_err(), "there is no folder");
    std::fs::create_dir(folder.path().join("fixtures"))?;
    assert!(
        read(folder.path())
            .expect_err("is empty")
            .to_string()
            .contains("no .json")
    );
    for name in ["b.json", "a.json", "notes.txt"] {
        let text = format!("{{\"messages\":[{MESSAGE}],\"expect\":[{{\"allow\":true}}]}}");
        std::fs::write(folder.path().join("fixtures").join(name), text)?;
    }
    let names: Vec<String> = read(folder.path())?.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["a.json", "b.json"]);
    std::fs::write(folder.path().join("fixtures/c.json"), "{")?;
    let refused = format!("{:#}", read(folder.path()).expect_err("is bad"));
    assert!(refused.contains("c.json"), "{refused}");
    Ok(())
}

/// What a broker captures of these calls, read again.
fn captured(call: &Call) -> Result<super::Turn> {
    let (input, _) = input_of(call, &serde_json::Map::new(), Captured::Payload);
    let hook = input["hook"].as_str().unwrap_or_default().to_owned();
    let mut turns = super::turns::of_fixture(&hook, &parse(&input.to_string())?);
    assert_eq!(turns.len(), 1);
    Ok(turns.remove(0))
}

fn draft(payload: &'static [u8]) -> Draft {
    Draft {
        from_uid: Uid::new("ann"),
        client_msg_no: Arc::from("n"),
        flags: MessageFlags {
            sync_once: true,
            ..MessageFlags::default()
        },
        setting: 2,
        expire_s: 9,
        topic: Arc::from("t"),
        payload: Bytes::from_static(payload),
        origin: None,
        subscribers: Arc::from([]),
        attributes: Some(Arc::from([
            (Arc::from("z"), Arc::from("1")),
            (Arc::from("a"), Arc::from("2")),
        ])),
        hops: 3,
    }
}

fn message(seq: u64, payload: &'static [u8]) -> Message {
    Message {
        id: MessageId(i64::MAX - 1),
        seq: Seq(seq),
        stamp_ms: 1_234_567,
        draft: draft(payload),
    }
}

/// A call of every kind, but those whose input is never whole.
fn works() -> [Work; 6] {
    let incarnation = Incarnation(77);
    let messages = vec![message(4, b"{ \"a\":1}"), message(9, b"\xff\x00")];
    [
        Work::BeforeSend {
            drafts: vec![draft(b""), draft(b"text"), draft(b"\xff")],
            wall_ms: 5,
        },
        Work::PersistAfter {
            binding_incarnation: 1,
            incarnation,
            messages: messages.clone(),
        },
        Work::Offline {
            incarnation,
            message: Box::new(message(4, b"x")),
            uids: vec![Uid::new("bob"), Uid::new("eve")],
        },
        Work::Webhook {
            window: Window {
                binding_incarnation: 1,
                incarnation,
                first: Seq(4),
                last: Seq(9),
            },
            messages,
            uids: Vec::new(),
        },
        Work::Route {
            request: Box::new(HttpRequest {
                method: "PUT".to_owned(),
                url: "/a?b".to_owned(),
                headers: vec![("x".to_owned(), "2".to_owned()), ("x".to_owned(), "1".to_owned())],
                body: Bytes::from_static(b"\xfe"),
            }),
            wall_ms: 6,
        },
        Work::OnlineStatus(StatusBatch {
            binding_incarnation: 1,
            slot: SlotId(7),
            number: 8,
            wall_ms: 9,
            statuses: vec!["ann-1-1".to_owned()],
        }),
    ]
}

#[test]
fn what_a_broker_captures_is_asked_again_as_it_was() -> Result<()> {
    for work in works() {
        let alone = matches!(work, Work::Route { .. } | Work::OnlineStatus(_));
        let call = Call {
            version: Version {
                binding: Arc::from("b"),
                digest: Digest([0; 32]),
                generation: 1,
            },
            channel: (!alone).then(|| ChannelKey::new("room", ChannelKind::GROUP)),
            within: Duration::from_secs(1),
            work,
        };
        let turn = captured(&call)?;
        assert_eq!((turn.work, turn.channel), (call.work, call.channel));
    }
    Ok(())
}

#[test]
fn without_what_must_come_a_case_is_one_all_the_same() -> Result<()> {
    let case = parse(&format!("{{\"messages\":[{MESSAGE}]}}"))?;
    assert!(case.expect.is_none() && !case.stands_in());
    let survived = super::survived;
    assert!(survived(&Ok(Answer::Verdicts(vec![reject()]))).is_empty());
    assert!(survived(&Err(Failed::Retry { after: None })).is_empty());
    assert_eq!(survived(&Err(Failed::Poison)), ["poison"]);
    assert_eq!(survived(&Err(Failed::Call(Failure::Trap))).len(), 1);
    let cut = r#"{"messages":[{"from":"a","channel_id":"r","payload_bytes":3}]}"#;
    assert!(parse(cut)?.stands_in());
    let two = format!(r#"{{"messages":[{MESSAGE}],"connects":[{{"uid":"a"}}]}}"#);
    assert!(
        parse(&two)
            .expect_err("two kinds")
            .to_string()
            .contains("one of them")
    );
    Ok(())
}
