//! What guests reach outside: only what the services let them, within the time of their call, and counted.

use super::guests::{COMMON, module};
use super::{Bench, WITHIN, persist_after};
use crate::host::Services;
use crate::outside::{HttpError, HttpResponse, Outside, Reach, Unanswered};
use crate::refused::Refused;
use crate::status::VersionStatus;
use bytes::Bytes;
use penstock_core::hooks::call::{Failed, HttpRequest, Returned, Version};
use penstock_core::hooks::pipeline::Failure;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const MANIFEST: &str = r#"name = "asks"
version = "0.1.0"
api = "1"
hooks = ["persist-after"]
capabilities = ["http", "secrets"]
"#;

/// Remembers what was asked, and answers as the URL says.
#[derive(Clone, Default)]
struct Places(Arc<Mutex<Vec<(HttpRequest, Duration)>>>);

impl Outside for Places {
    fn granted(&self, grants: &BTreeSet<String>) -> Result<Arc<dyn Reach>, String> {
        if grants.contains("http:wrong") {
            return Err("http:wrong: not one".to_owned());
        }
        Ok(Arc::new(self.clone()))
    }
}

impl Reach for Places {
    fn send(&self, request: HttpRequest, within: Duration) -> Result<HttpResponse, Unanswered> {
        let url = request.url.clone();
        self.0.lock().expect("whole").push((request, within));
        match url.as_str() {
            "https://a/" => Ok(HttpResponse {
                status: 204,
                headers: vec![("x".to_owned(), "y".to_owned())],
                body: Bytes::from_static(b"body"),
            }),
            "https://b/" => Err(Unanswered::new(HttpError::Timeout, "b is slow")),
            _ => {
                std::thread::sleep(within);
                Err(Unanswered::new(HttpError::Timeout, "too slow"))
            }
        }
    }

    fn reveal(&self, name: &str) -> Option<Bytes> {
        (name == "GET").then(|| Bytes::from_static(b"secret"))
    }
}

/// A consumer whose `handle` has this body. `$ask` gets the URL at 2048 of so many bytes, and returns the result where the tag stands;
/// `$done` and `$failed` end the call. `GET` stands at 3072.
fn guest(url: &str, handle: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
  (import "penstock:plugin/http@1.0.0" "send" (func $send (param i32 i32 i32 i32 i32 i32 i32 i32 i32)))
  (import "penstock:plugin/secrets@1.0.0" "reveal" (func $reveal (param i32 i32 i32)))
  {COMMON}
  (data (i32.const 2048) "{url}")
  (data (i32.const 3084) "GET")
  (func (export "penstock:plugin/lifecycle@1.0.0#init") (param i32 i32) (result i32)
    (i32.store8 (i32.const 1024) (i32.const 0)) (i32.const 1024))
  (func $ask (param $length i32) (param $body i32) (result i32)
    (call $send (i32.const 3084) (i32.const 3) (i32.const 2048) (local.get $length) (i32.const 0) (i32.const 0)
      (i32.const 0) (local.get $body) (i32.const 4096)) (i32.const 4096))
  (func $done (param i32) (result i32)
    (i32.store (i32.const 1024) (i32.const 0)) (i32.store (i32.const 1028) (local.get 0))
    (i32.store (i32.const 1032) (i32.const 1024)) (i32.store (i32.const 1036) (i32.const 0)) (i32.const 1024))
  (func $failed (param i32) (result i32)
    (i32.store (i32.const 1024) (i32.const 1)) (i32.store (i32.const 1028) (i32.const 0))
    (i32.store (i32.const 1032) (local.get 0))
    (i32.store (i32.const 1036) (i32.const 3072)) (i32.store (i32.const 1040) (i32.const 5)) (i32.const 1024))
  (func (export "penstock:plugin/persist-after@1.0.0#handle") (param i32 i32 i32 i32) (result i32) {handle})
  (func (export "cabi_post_penstock:plugin/persist-after@1.0.0#handle") (param i32)
    (global.set $heap (i32.const 8192))))"#
    );
    module("consumer", MANIFEST, &text)
}

/// Asks, and fails with 1 ms and the error when there is no answer, with as many ms as its status has otherwise.
fn asking(url: &str) -> Vec<u8> {
    let handle = format!(
        "(local $at i32) (local.set $at (call $ask (i32.const {}) (i32.const 0)))
         (if (result i32) (i32.load8_u (local.get $at))
           (then (call $failed (i32.add (i32.const 1) (i32.load8_u offset=4 (local.get $at)))))
           (else (call $failed (i32.load16_u offset=4 (local.get $at)))))",
        url.len()
    );
    guest(url, &handle)
}

struct Asked {
    returned: Returned,
    places: Places,
    status: VersionStatus,
    lines: Vec<String>,
}

fn ask(module: &[u8], within: Duration) -> Asked {
    let places = Places::default();
    let bench = bench(&places);
    let version = load(&bench, module, &["http", "secrets"]).expect("loads");
    let returned = bench.ask(&version, within, persist_after(&["a"]));
    let status = bench.host.status().remove(0).1;
    let lines = bench.host.logs(&version, 0).lines;
    Asked {
        returned,
        places,
        status,
        lines: lines.into_iter().map(|line| line.text).collect(),
    }
}

fn bench(places: &Places) -> Bench {
    Bench::with(Services {
        outside: Arc::new(places.clone()),
        ..Services::default()
    })
}

fn load(bench: &Bench, module: &[u8], grants: &[&str]) -> Result<Version, Refused> {
    bench.load_granted("asks", module, grants)
}

fn after(ms: u64) -> Returned {
    Err(Failed::Retry {
        after: Some(Duration::from_millis(ms)),
    })
}

#[test]
fn an_answer_reaches_the_guest_and_is_counted() {
    let asked = ask(&asking("https://a/"), WITHIN);
    assert_eq!(asked.returned, after(204));
    assert_eq!(asked.status.http_requests, [("2xx", 1)].into());
    let seen = asked.places.0.lock().expect("whole");
    let (request, within) = &seen[0];
    assert_eq!(
        (request.method.as_str(), request.url.as_str()),
        ("GET", "https://a/")
    );
    assert!(*within <= Duration::from_secs(5), "{within:?}");
}

#[test]
fn an_error_reaches_the_guest_and_its_reason_the_log() {
    let asked = ask(&asking("https://b/"), WITHIN);
    // The third of the errors.
    assert_eq!(asked.returned, after(3));
    assert_eq!(asked.status.http_requests, [("timeout", 1)].into());
    assert!(
        asked.lines.iter().any(|line| line == "http: timeout: b is slow"),
        "{:?}",
        asked.lines
    );
}

#[test]
fn nobody_waits_longer_than_the_call() {
    let within = Duration::from_millis(300);
    let asked = ask(&asking("https://hangs/"), within);
    // By then the time of the call is over: the guest is ended, or was quick to answer.
    let ended = Err(Failed::Call(Failure::Timeout));
    assert!(
        asked.returned == ended || asked.returned == after(3),
        "{:?}",
        asked.returned
    );
    let seen = asked.places.0.lock().expect("whole");
    assert!(seen[0].1 <= within);
    assert!(asked.status.http_s > 0.0 && asked.status.host_s >= asked.status.http_s);
}

#[test]
fn what_is_out_of_bounds_is_never_sent() {
    for (handle, returned) in [
        // A URL of 5,000 bytes is too large, the fourth error.
        ("(call $failed (i32.add (i32.const 1) (i32.load8_u offset=4 (call $ask (i32.const 5000) (i32.const 0)))))", after(4)),
        (
            "(drop (memory.grow (i32.const 20)))
             (call $failed (i32.add (i32.const 1) (i32.load8_u offset=4 (call $ask (i32.const 10) (i32.const 0x100001)))))",
            after(4),
        ),
        (
            "(call $failed (i32.load8_u (call $ask (i32.const 0x7fffffff) (i32.const 0))))",
            Err(Failed::Call(Failure::BadOutput)),
        ),
        (
            "(drop (memory.grow (i32.const 80)))
             (call $failed (i32.load8_u (call $ask (i32.const 10) (i32.const 0x400000))))",
            Err(Failed::Call(Failure::BadOutput)),
        ),
    ] {
        let asked = ask(&guest("https://a/", handle), WITHIN);
        assert_eq!(asked.returned, returned, "{handle}");
        assert!(asked.places.0.lock().expect("whole").is_empty());
    }
}

#[test]
fn a_secret_is_revealed_and_that_is_recorded() {
    let reveal = |at: u32| {
        format!(
            "(call $reveal (i32.const {at}) (i32.const 3) (i32.const 4096))
             (call $failed (i32.add (i32.const 1) (i32.load8_u (i32.const 4096))))"
        )
    };
    let asked = ask(&guest("", &reveal(3_084)), WITHIN);
    assert_eq!((asked.returned, asked.status.secrets_revealed), (after(2), 1));
    assert!(
        asked.lines.iter().any(|line| line == "secrets: GET was revealed"),
        "{:?}",
        asked.lines
    );
    let asked = ask(&guest("", &reveal(3_072)), WITHIN);
    assert_eq!((asked.returned, asked.status.secrets_revealed), (after(1), 0));
    assert!(
        asked.lines.iter().any(|line| line.contains("grant reveal:NAME")),
        "{:?}",
        asked.lines
    );
}

#[test]
fn a_grant_that_says_where_is_a_grant_of_the_capability() {
    let bench = bench(&Places::default());
    let module = asking("https://a/");
    let refused = |grants: &[&str]| load(&bench, &module, grants).expect_err("refused").to_string();
    assert!(refused(&["secrets"]).contains("asks for `http`"));
    assert!(refused(&["http"]).contains("asks for `secrets`"));
    assert!(refused(&["http:wrong", "secrets"]).contains("grants: http:wrong"));
    load(&bench, &module, &["http:GET https://a/", "reveal:n"]).expect("loads");
    load(&bench, &module, &["http", "secret:n"]).expect("loads");
}

/// As many calls that wait for a place as there are threads for them: what asks nobody goes on.
#[test]
fn slow_places_hold_up_nothing_else() {
    let bench = bench(&Places::default());
    let slow = asking("https://hangs/");
    let versions: Vec<Version> = ["one", "two", "three"]
        .iter()
        .map(|binding| {
            bench
                .load_granted(binding, &slow, &["http", "secrets"])
                .expect("loads")
        })
        .collect();
    let quick = bench
        .load("quick", &super::guests::filter("", super::guests::ALLOW, &[]))
        .expect("loads");
    std::thread::scope(|scope| {
        for version in &versions {
            for _ in 0..4 {
                scope.spawn(|| bench.ask(version, Duration::from_secs(3), persist_after(&["a"])));
            }
        }
        std::thread::sleep(Duration::from_millis(300));
        let answered = bench.ask(&quick, Duration::from_secs(1), super::before_send(&["a"]));
        assert!(answered.is_ok(), "{answered:?}");
    });
}
