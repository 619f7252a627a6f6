//! Bounds, and what is left out.

use super::*;
use bytes::Bytes;
use penstock_core::client::Secret;
use penstock_core::hooks::call::{Digest, HttpRequest, Window};
use penstock_core::hooks::gates::Request;
use penstock_core::message::{Draft, Message, MessageFlags};
use penstock_core::types::{ChannelKind, DeviceFlag, Incarnation, MessageId};
use serde_json::{Map, Value, json};

const SECRET: &str = "what nobody may read";

fn version(binding: &str) -> Version {
    Version {
        binding: Arc::from(binding),
        digest: Digest([7; 32]),
        generation: 1,
    }
}

fn draft(payload: &[u8]) -> Draft {
    Draft {
        from_uid: Uid::new("ann"),
        client_msg_no: Arc::from("n1"),
        flags: MessageFlags {
            red_dot: true,
            ..MessageFlags::default()
        },
        setting: 0,
        expire_s: 0,
        topic: Arc::from(""),
        payload: Bytes::copy_from_slice(payload),
        origin: None,
        subscribers: Arc::from([]),
        attributes: Some(Arc::from([(Arc::from("plan"), Arc::from("paid"))])),
        hops: 0,
    }
}

fn message(seq: u64, payload: &[u8]) -> Message {
    Message {
        id: MessageId(9),
        seq: Seq(seq),
        stamp_ms: 1_234,
        draft: draft(payload),
    }
}

fn call(binding: &str, work: Work) -> Call {
    Call {
        version: version(binding),
        channel: Some(ChannelKey::new("room", ChannelKind::GROUP)),
        within: Duration::from_millis(200),
        work,
    }
}

fn sent(payloads: &[&[u8]]) -> Work {
    Work::BeforeSend {
        drafts: payloads.iter().map(|payload| draft(payload)).collect(),
        wall_ms: 77,
    }
}

fn stored(seq: u64) -> Work {
    Work::PersistAfter {
        binding_incarnation: 1,
        incarnation: Incarnation(3),
        messages: vec![message(seq, b"{}")],
    }
}

fn connecting() -> Work {
    Work::Connect {
        request: Box::new(Request {
            uid: Uid::new("ann"),
            token: Secret(Arc::from(SECRET)),
            device_id: Arc::from("d"),
            flag: DeviceFlag(1),
            address: Arc::from("192.0.2.7"),
        }),
        wall_ms: 77,
    }
}

fn trap() -> Fault {
    Fault {
        class: "trap",
        error: "it trapped".to_owned(),
        took: Duration::from_millis(1),
    }
}

fn captures(bindings: &[&str], captured: Captured) -> Captures {
    let captures = Captures::default();
    captures.learn(&wanted(bindings, captured));
    captures
}

fn wanted(bindings: &[&str], captured: Captured) -> BTreeMap<Arc<str>, Captured> {
    bindings.iter().map(|id| (Arc::from(*id), captured)).collect()
}

fn capture(call: &Call, bytes: usize) -> Capture {
    Capture {
        id: String::new(),
        version: call.version.clone(),
        plugin: Arc::from("p"),
        hook: "before-send",
        class: "trap",
        error: Arc::from("it trapped"),
        at_ms: 5,
        times: 1,
        took: Duration::from_millis(1),
        within: call.within,
        payloads: Payloads::Kept,
        input: Arc::from("x".repeat(bytes)),
        which: Which::of(call),
    }
}

fn shown(work: Work, captured: Captured) -> (Value, Payloads) {
    input_of(&call("b", work), &Map::new(), captured)
}

#[test]
fn the_newest_of_a_binding_are_kept_and_the_newest_comes_first() {
    let captures = captures(&["a", "b"], Captured::Payload);
    for _ in 0..CAPTURES_MAX + 3 {
        captures.put(capture(&call("a", sent(&[b"x"])), 10), Captured::Payload);
    }
    captures.put(capture(&call("b", sent(&[b"x"])), 10), Captured::Payload);
    let ids: Vec<String> = captures.list("a").into_iter().map(|capture| capture.id).collect();
    assert_eq!(ids.len(), CAPTURES_MAX);
    assert_eq!(
        (ids.first().map(String::as_str), ids.last().map(String::as_str)),
        (Some("5-34"), Some("5-3"))
    );
    assert!(captures.get("a", "5-34").is_some() && captures.get("a", "5-2").is_none());
    assert!(captures.get("b", "5-34").is_none(), "it is of another binding");
    let counts = captures.counts()["a"];
    assert_eq!((counts.taken, counts.dropped_size), (35, 0));
    assert_eq!(captures.clear("a"), CAPTURES_MAX);
    assert_eq!(captures.counts()["a"].bytes, 0);
    assert_eq!((captures.list("a").len(), captures.list("b").len()), (0, 1));
}

#[test]
fn all_of_a_node_stay_within_its_bytes_and_who_holds_the_most_gives_room() {
    let captures = captures(&["large", "small"], Captured::Payload);
    captures.put(capture(&call("small", sent(&[b"x"])), 10), Captured::Payload);
    for _ in 0..CAPTURES_MAX {
        let large = capture(
            &call("large", sent(&[b"x"])),
            CAPTURE_BYTES_MAX - 2 * OVERHEAD_BYTES,
        );
        captures.put(large, Captured::Payload);
        let held: usize = captures.counts().values().map(|counts| counts.bytes).sum();
        assert!(held <= CAPTURES_BYTES_MAX, "{held}");
    }
    assert_eq!(captures.list("small").len(), 1);
    assert_eq!(captures.list("large").len(), 16);
    captures.put(
        capture(&call("large", sent(&[b"x"])), CAPTURE_BYTES_MAX),
        Captured::Payload,
    );
    assert_eq!(captures.counts()["large"].dropped_size, 1);
    assert_eq!(captures.list("large").len(), 16);
}

#[test]
fn a_binding_that_fails_all_the_time_costs_so_much_in_a_second() {
    let captures = captures(&["a", "b"], Captured::Headers);
    let now = Instant::now();
    let failing = call("a", sent(&[b"x"]));
    let admitted = (0..100)
        .filter(|_| captures.admit_at(&failing, &trap(), now))
        .count();
    assert_eq!(admitted, 5);
    assert_eq!(captures.counts()["a"].dropped_rate, 95);
    assert!(captures.admit_at(&call("b", sent(&[b"x"])), &trap(), now));
    assert!(captures.admit_at(&failing, &trap(), now + Duration::from_millis(250)));
}

#[test]
fn an_attempt_that_is_repeated_is_counted_and_not_kept_again() {
    let captures = captures(&["a"], Captured::Headers);
    let failing = call("a", stored(4));
    assert!(captures.admit(&failing, &trap()));
    captures.put(capture(&failing, 10), Captured::Headers);
    for _ in 0..9 {
        assert!(!captures.admit(&failing, &trap()));
    }
    let known = captures.list("a");
    assert_eq!((known.len(), known[0].times), (1, 10));
    assert!(captures.admit(&call("a", stored(5)), &trap()), "another message");
    let timeout = Fault {
        class: "timeout",
        ..trap()
    };
    assert!(captures.admit(&failing, &timeout), "another class");
    assert_eq!(captures.counts()["a"].dropped_rate, 0);
}

#[test]
fn what_is_not_wanted_any_more_is_forgotten() {
    let failing = call("a", sent(&[b"x"]));
    let captures = captures(&["a", "b"], Captured::Payload);
    let fill = || captures.put(capture(&failing, 10), Captured::Payload);
    fill();
    captures.learn(&wanted(&["a", "b"], Captured::Payload));
    assert_eq!(captures.list("a").len(), 1);
    captures.learn(&wanted(&["a", "b"], Captured::Headers));
    assert_eq!(captures.list("a").len(), 0);
    // One that was written down before the change comes too late.
    fill();
    assert_eq!(captures.list("a").len(), 0);
    captures.put(capture(&failing, 10), Captured::Headers);
    captures.learn(&wanted(&["a", "b"], Captured::Payload));
    assert_eq!(captures.list("a").len(), 1, "more is wanted, and that is kept");
    captures.learn(&wanted(&["b"], Captured::Payload));
    captures.learn(&wanted(&["a", "b"], Captured::Payload));
    assert_eq!(captures.list("a").len(), 0, "the binding was gone");
    captures.learn(&wanted(&["a"], Captured::Off));
    assert!(!captures.admit(&failing, &trap()));
    assert!(!captures.admit(&call("unknown", sent(&[b"x"])), &trap()));
}

#[test]
fn only_what_the_guest_is_to_blame_for_is_a_fault() {
    let class = |failed| Fault::of(&Err(failed), None, Duration::ZERO).map(|fault| fault.class);
    for (failure, wanted) in [
        (Failure::Timeout, Some("timeout")),
        (Failure::Trap, Some("trap")),
        (Failure::Memory, Some("memory")),
        (Failure::BadOutput, Some("bad-output")),
        (Failure::Host, Some("host-error")),
        (Failure::Busy, None),
        (Failure::NotReady, None),
        (Failure::Suspended, None),
    ] {
        assert_eq!(class(Failed::Call(failure)), wanted);
    }
    assert_eq!(class(Failed::Poison), Some("poison"));
    assert_eq!(class(Failed::Retry { after: None }), None);
    assert_eq!(class(Failed::Gone), None);
}

#[test]
fn an_input_says_all_but_the_payload_unless_that_is_wanted() {
    let (input, payloads) = shown(sent(&[SECRET.as_bytes()]), Captured::Headers);
    assert_eq!(payloads, Payloads::LeftOut);
    assert_eq!(
        input,
        json!({
            "hook": "before-send", "config": {}, "time_ms": 77,
            "messages": [{
                "from": "ann", "channel_type": 2, "channel_id": "room", "client_msg_no": "n1", "flags": ["red_dot"],
                "attributes": [["plan", "paid"]], "payload_bytes": SECRET.len(),
            }],
        })
    );
    let (input, payloads) = shown(sent(&[SECRET.as_bytes(), b"\xff"]), Captured::Payload);
    assert_eq!(payloads, Payloads::Kept);
    assert_eq!(input["messages"][0]["payload"], SECRET);
    assert_eq!(input["messages"][1]["payload_base64"], "/w==");

    let request = HttpRequest {
        method: "POST".to_owned(),
        url: "/a?b".to_owned(),
        headers: vec![("x".to_owned(), "1".to_owned()), ("x".to_owned(), "2".to_owned())],
        body: Bytes::from_static(SECRET.as_bytes()),
    };
    let route = Work::Route {
        request: Box::new(request),
        wall_ms: 77,
    };
    let (input, _) = shown(route.clone(), Captured::Headers);
    assert!(!input.to_string().contains(SECRET), "{input}");
    assert_eq!(input["requests"][0]["headers"], json!([["x", "1"], ["x", "2"]]));
    let (input, _) = shown(route, Captured::Payload);
    assert_eq!(input["requests"][0]["body"], SECRET);
}

#[test]
fn a_stored_message_comes_with_its_place_and_who_is_told_of_it() {
    let work = Work::Webhook {
        window: Window {
            binding_incarnation: 1,
            incarnation: Incarnation(3),
            first: Seq(4),
            last: Seq(4),
        },
        messages: vec![message(4, b"{}")],
        uids: vec![Uid::new("bob")],
    };
    let (input, _) = shown(work, Captured::Payload);
    assert_eq!(
        (&input["hook"], &input["incarnation"], &input["uids"]),
        (&json!("webhook"), &json!(3), &json!(["bob"]))
    );
    let message = &input["messages"][0];
    assert_eq!(
        (
            &message["message_id"],
            &message["message_seq"],
            &message["timestamp_ms"]
        ),
        (&json!(9), &json!(4), &json!(1_234))
    );
}

#[test]
fn a_token_is_never_kept() {
    for captured in Captured::ALL {
        let (input, _) = shown(connecting(), captured);
        assert!(!input.to_string().contains(SECRET), "{input}");
        assert_eq!(input["connects"][0]["token"], "***");
    }
    let error = without_token(&call("b", connecting()), format!("no uid: {SECRET}"));
    assert_eq!(error, "no uid: ***");
}

#[test]
fn what_is_too_large_is_cut_away_and_the_rest_stays() {
    let large = "a".repeat(CAPTURE_BYTES_MAX);
    let (input, payloads) = shown(sent(&[large.as_bytes(), b"small"]), Captured::Payload);
    assert_eq!(payloads, Payloads::Cut);
    assert_eq!(input["messages"][0]["payload_bytes"], large.len());
    assert_eq!(input["messages"][1]["payload"], "small");
    // What is written longer than it is takes the room that it takes when it is written.
    let escaped = "\u{1}".repeat(CAPTURE_BYTES_MAX / 4);
    let (input, payloads) = shown(sent(&[escaped.as_bytes()]), Captured::Payload);
    assert_eq!(payloads, Payloads::Cut);
    assert!(input.to_string().len() < CAPTURE_BYTES_MAX);
}

#[test]
fn the_page_for_operators_says_the_bounds() {
    let page: Vec<&str> = include_str!("../../../docs/plugins.md")
        .split_whitespace()
        .collect();
    let page = page.join(" ");
    for said in [
        format!(
            "the newest {CAPTURES_MAX} of a binding and {} MiB of all",
            CAPTURES_BYTES_MAX >> 20
        ),
        format!("One has at most {} MiB", CAPTURE_BYTES_MAX >> 20),
    ] {
        assert!(page.contains(&said), "plugins.md does not say: {said}");
    }
}
