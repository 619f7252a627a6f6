//! Routers.

use super::guests::router;
use super::{Bench, WITHIN};
use bytes::Bytes;
use penstock_core::hooks::call::{Answer, Failed, HttpRequest, HttpResponse, Returned, Work};
use penstock_core::hooks::pipeline::Failure;
use std::time::Duration;

/// Answers with the body, and as many headers as were given.
const ECHO: &str =
    "(call $respond (i32.const 201) (local.get $header-count) (local.get $body) (local.get $body-length))";
/// A header: name and value are both the text at 3072.
const HEADER: [u32; 4] = [3_072, 4, 3_072, 5];

fn route(body: Vec<u8>) -> Work {
    Work::Route {
        request: Box::new(HttpRequest {
            method: "POST".to_owned(),
            url: "/a?b=c".to_owned(),
            headers: vec![("x".to_owned(), "y".to_owned())],
            body: Bytes::from(body),
        }),
        wall_ms: 1_700_000_000_000,
    }
}

fn ask(handle: &str, headers: &[u32]) -> Returned {
    let bench = Bench::new();
    let version = bench.load("router", &router(handle, headers)).expect("a router");
    bench.ask(&version, WITHIN, route(b"tea".to_vec()))
}

fn response(returned: Returned) -> HttpResponse {
    match returned {
        Ok(Answer::Response(response)) => response,
        other => panic!("no response: {other:?}"),
    }
}

#[test]
fn a_router_sees_the_request_and_says_what_is_answered() {
    let found = response(ask(ECHO, &HEADER));
    assert_eq!((found.status, &found.body[..]), (201, &b"tea"[..]));
    assert_eq!(found.headers, [("spam".to_owned(), "spam!".to_owned())]);
    let url = "(call $respond (i32.const 200) (i32.const 0) (local.get $url) (local.get $url-length))";
    assert_eq!(&response(ask(url, &[])).body[..], b"/a?b=c");
}

#[test]
fn the_largest_bodies_pass_in_both_directions() {
    let bench = Bench::new();
    let version = bench.load("router", &router(ECHO, &HEADER)).expect("a router");
    for bytes in [0, 1 << 20] {
        let found = response(bench.ask(&version, WITHIN, route(vec![7; bytes])));
        assert_eq!(found.body.len(), bytes);
    }
}

#[test]
fn what_is_no_response_is_bad_output() {
    let bad = |handle: &str, headers: &[u32]| {
        assert_eq!(
            ask(handle, headers),
            Err(Failed::Call(Failure::BadOutput)),
            "{handle}"
        );
    };
    for status in [0, 99, 101, 199, 600, 65_535] {
        let handle =
            format!("(call $respond (i32.const {status}) (i32.const 0) (i32.const 0) (i32.const 0))");
        bad(&handle, &[]);
    }
    // A name with a character that names have not, and a header beyond all memory.
    let one = "(call $respond (i32.const 200) (i32.const 1) (i32.const 0) (i32.const 0))";
    bad(one, &[3_072, 5, 3_072, 0x7fff_ffff]);
    bad(one, &[8, 0, 3_072, 5]);
    // More than memory holds, and more than is taken.
    let far = "(call $respond (i32.const 200) (i32.const 0) (i32.const 2147483647) (i32.const 9))";
    bad(far, &[]);
    let grown = "(drop (memory.grow (i32.const 32)))
        (call $respond (i32.const 200) (i32.const 0) (i32.const 0) (i32.const 1048577))";
    bad(grown, &[]);
    let many = "(call $respond (i32.const 200) (i32.const 100000000) (i32.const 0) (i32.const 0))";
    bad(many, &HEADER);
}

#[test]
fn a_hostile_router_fails_alone() {
    let bench = Bench::new();
    let fails = |body: &str, within: Duration, failure: Failure| {
        let version = bench.load("router", &router(body, &[])).expect("a router");
        let returned = bench.ask(&version, within, route(Vec::new()));
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
    // A hook that it does not answer is not run.
    let version = bench.load("router", &router(ECHO, &[])).expect("a router");
    let returned = bench.ask(&version, WITHIN, super::before_send(&["a"]));
    assert_eq!(returned, Err(Failed::Call(Failure::NotReady)));
}
