//! What is captured of guests that fail.

use super::connect::{TOKEN_IS_UID, connect};
use super::guests::{ALLOW, FROM_DATA, consumer, filter, gate};
use super::{Bench, WITHIN, before_send, persist_after};
use crate::captures::{Capture, Payloads};
use penstock_core::hooks::call::{Call, Version};
use penstock_core::hooks::registry::Captured;
use penstock_core::types::{ChannelKey, ChannelKind};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

impl Bench {
    fn capturing(&self, version: &Version, captured: Captured) {
        let wanted = [(version.binding.clone(), captured)];
        self.host.captures().learn(&wanted.into());
    }

    /// The captures of a version, once there are so many: they are written down after the answer.
    fn captured(&self, version: &Version, count: usize) -> Vec<Capture> {
        let deadline = Instant::now() + WITHIN;
        loop {
            let captures = self.host.captures().list(&version.binding);
            if captures.len() >= count {
                return captures;
            }
            assert!(Instant::now() < deadline, "{} of {count}", captures.len());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn input(capture: &Capture) -> Value {
    serde_json::from_str(&capture.input).expect("JSON")
}

#[test]
fn a_trap_is_captured_with_the_functions_that_it_came_from() {
    let bench = Bench::new();
    let version = bench
        .load("trap", &filter("", "(call $deep) unreachable", &[]))
        .expect("loads");
    bench.capturing(&version, Captured::Payload);
    bench.judge(&version, &["one", "two"]).expect_err("fails");
    let capture = bench.captured(&version, 1).remove(0);
    assert_eq!(
        (capture.class, capture.hook, &*capture.plugin, capture.times),
        ("trap", "before-send", "filter", 1)
    );
    assert_eq!((capture.payloads, capture.within), (Payloads::Kept, WITHIN));
    assert!(capture.error.contains("!deep"), "{}", capture.error);
    assert_eq!(input(&capture)["messages"][1]["payload"], "two");
}

#[test]
fn what_went_well_or_is_not_wanted_is_not_captured() {
    let bench = Bench::new();
    let good = bench.load("good", &filter("", ALLOW, &[])).expect("loads");
    bench.capturing(&good, Captured::Payload);
    bench.judge(&good, &["a"]).expect("answers");
    // A binding of its own: a capture is written after the answer was given, by what the binding says then.
    let off = bench.load("off", &filter("", "unreachable", &[])).expect("loads");
    bench.capturing(&off, Captured::Off);
    bench.judge(&off, &["a"]).expect_err("fails");
    let bad = bench.load("bad", &filter("", "unreachable", &[])).expect("loads");
    bench.capturing(&bad, Captured::Headers);
    bench.judge(&bad, &["b"]).expect_err("fails");
    let captures = bench.captured(&bad, 1);
    assert_eq!(captures.len(), 1);
    assert_eq!(input(&captures[0])["messages"][0]["payload_bytes"], 1);
    for none in ["good", "off"] {
        assert!(bench.host.captures().list(none).is_empty(), "{none}");
    }
}

#[test]
fn a_bad_answer_and_poison_are_captured_with_what_was_wrong() {
    let bench = Bench::new();
    // One verdict where there are two messages.
    let words = [1, 4, 10, 1, /* entry */ 1, 13, 0, 5, 0, 0, 0, 0, 0, 0];
    let few = bench.load("few", &filter("", FROM_DATA, &words)).expect("loads");
    bench.capturing(&few, Captured::Headers);
    bench.judge(&few, &["a", "b"]).expect_err("fails");
    let capture = bench.captured(&few, 1).remove(0);
    assert_eq!(capture.class, "bad-output");
    assert!(
        capture.error.contains("its answer is not one"),
        "{}",
        capture.error
    );

    let poison = "(call $failed (i32.const 1) (i32.const 0))";
    let poison = bench.load("poison", &consumer(poison)).expect("loads");
    bench.capturing(&poison, Captured::Headers);
    for _ in 0..3 {
        bench
            .ask(&poison, WITHIN, persist_after(&["a"]))
            .expect_err("fails");
    }
    let deadline = Instant::now() + WITHIN;
    while bench.captured(&poison, 1)[0].times < 3 {
        assert!(Instant::now() < deadline, "attempts are counted");
        std::thread::sleep(Duration::from_millis(1));
    }
    let captures = bench.captured(&poison, 1);
    assert_eq!((captures.len(), captures[0].class), (1, "poison"));
    assert!(captures[0].error.contains("persist-after failed"));
}

#[test]
fn what_fails_on_the_thread_of_its_caller_is_captured_elsewhere() {
    let bench = Bench::new();
    // Traps at the first message whose payload begins with `!`: the frame says where that stands.
    let handle = format!(
        "(if (i32.eq (i32.load8_u (i32.add (local.get $arena)
            (i32.load (i32.add (local.get $index) (i32.const 40))))) (i32.const 33)) (then unreachable)) {ALLOW}"
    );
    let version = bench.load("quick", &filter("", &handle, &[])).expect("loads");
    bench.capturing(&version, Captured::Payload);
    bench.host.allow_inline(&version, true);
    let call = |payload: &str| {
        Box::new(Call {
            version: version.clone(),
            channel: Some(ChannelKey::new("room", ChannelKind::GROUP)),
            within: WITHIN,
            work: before_send(&[payload]),
        })
    };
    let deadline = Instant::now() + WITHIN;
    let failed = loop {
        assert!(
            Instant::now() < deadline,
            "it has not earned the thread of its caller"
        );
        bench.judge(&version, &["fine"]).expect("answers");
        let mut patience = Duration::from_secs(1);
        if let Ok(returned) = bench.host.call_inline(call("!"), &mut patience) {
            break returned;
        }
    };
    failed.expect_err("it traps");
    let capture = bench.captured(&version, 1).remove(0);
    assert_eq!(
        (capture.class, input(&capture)["messages"][0]["payload"].clone()),
        ("trap", json!("!"))
    );
}

#[test]
fn a_gate_is_captured_without_the_token() {
    // No uid has this sign, and the answer of the gate is the token.
    let token = "bob@home";
    let bench = Bench::new();
    for (gate_of, body, class) in [
        ("trap", "unreachable", "trap"),
        ("echo", TOKEN_IS_UID, "bad-output"),
    ] {
        let version = bench.load(gate_of, &gate(body, &[])).expect("loads");
        bench.capturing(&version, Captured::Payload);
        bench.ask(&version, WITHIN, connect(token)).expect_err("fails");
        let capture = bench.captured(&version, 1).remove(0);
        assert_eq!((capture.hook, capture.class), ("connect", class));
        assert!(
            !capture.input.contains(token) && !capture.error.contains(token),
            "{}",
            capture.error
        );
        assert_eq!(input(&capture)["connects"][0]["uid"], "ann");
    }
}
