//! Gates.

use super::guests::gate;
use super::{Bench, WITHIN};
use penstock_core::client::Secret;
use penstock_core::hooks::call::{Answer, Failed, Returned, Work};
use penstock_core::hooks::gates::{Decision, Request};
use penstock_core::hooks::pipeline::Failure;
use penstock_core::types::{DeviceFlag, DeviceLevel, Uid};
use std::sync::Arc;
use std::time::Duration;

/// Accepts as whoever showed what as the token: the uid is the token.
pub(super) const TOKEN_IS_UID: &str =
    "(call $accept (local.get $token) (local.get $token-length) (i32.const 1) (i32.const 1))";

pub(super) fn connect(token: &str) -> Work {
    Work::Connect {
        request: Box::new(Request {
            uid: Uid::new("ann"),
            token: Secret(Arc::from(token)),
            device_id: Arc::from("d"),
            flag: DeviceFlag(1),
            address: Arc::from("192.0.2.7"),
        }),
        wall_ms: 1_700_000_000_000,
    }
}

fn ask(body: &str, attributes: &[u32], token: &str) -> Returned {
    let bench = Bench::new();
    let version = bench.load("gate", &gate(body, attributes)).expect("a gate");
    bench.ask(&version, WITHIN, connect(token))
}

fn decided(returned: Returned) -> Decision {
    match returned {
        Ok(Answer::Decision(decision)) => decision,
        other => panic!("no decision: {other:?}"),
    }
}

#[test]
fn a_gate_sees_the_token_and_says_who_it_is() {
    // One attribute: name and value are both the text at 3072.
    let attributes = [3_072, 4, 3_072, 5];
    let accepted = decided(ask(TOKEN_IS_UID, &attributes, "bob")).expect("accepted");
    assert_eq!(
        (accepted.uid.as_str(), accepted.level),
        ("bob", DeviceLevel::Master)
    );
    let attributes: Vec<(&str, &str)> = accepted
        .attributes
        .iter()
        .map(|(name, value)| (&**name, &**value))
        .collect();
    assert_eq!(attributes, [("spam", "spam!")]);
}

#[test]
fn a_denial_has_a_code_and_words() {
    let why = decided(ask("(call $deny (i32.const 19) (i32.const 5))", &[], "t")).expect_err("denied");
    assert_eq!((why.reason.0, why.text.as_deref()), (19, Some("spam!")));
    let why = decided(ask("(call $deny (i32.const 0) (i32.const 0))", &[], "t")).expect_err("denied");
    assert_eq!((why.reason.0, why.text), (2, None));
}

#[test]
fn what_is_no_decision_is_bad_output() {
    let bad = |returned: Returned| assert_eq!(returned, Err(Failed::Call(Failure::BadOutput)));
    let none = "(call $accept (local.get $uid) (i32.const 0) (i32.const 0) (i32.const 0))";
    bad(ask(none, &[], "t"));
    let level = "(call $accept (local.get $uid) (i32.const 3) (i32.const 2) (i32.const 0))";
    bad(ask(level, &[], "t"));
    let far = "(call $accept (i32.const 2147483647) (i32.const 9) (i32.const 0) (i32.const 0))";
    bad(ask(far, &[], "t"));
    // 5 KiB in one attribute, out of the data segment.
    let large = "(call $accept (local.get $uid) (i32.const 3) (i32.const 0) (i32.const 1))";
    bad(ask(large, &[3_072, 4, 3_072, 5_120], "t"));
    bad(ask("(call $deny (i32.const 19) (i32.const 1025))", &[], "t"));
}

#[test]
fn a_hostile_gate_fails_alone() {
    let bench = Bench::new();
    let fails = |body: &str, within: Duration, failure: Failure| {
        let version = bench.load("gate", &gate(body, &[])).expect("a gate");
        let returned = bench.ask(&version, within, connect("t"));
        assert_eq!(returned, Err(Failed::Call(failure)), "{body}");
    };
    fails("unreachable", WITHIN, Failure::Trap);
    fails("(call $deep) unreachable", WITHIN, Failure::Trap);
    fails(
        "(loop $on (br $on)) unreachable",
        Duration::from_millis(50),
        Failure::Timeout,
    );
    let grow = "(loop $on (if (i32.eq (memory.grow (i32.const 64)) (i32.const -1)) (then unreachable)) (br $on)) unreachable";
    fails(grow, WITHIN, Failure::Memory);
}
