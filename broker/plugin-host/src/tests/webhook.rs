//! Webhooks: what a guest may render. Where requests go is judged by whoever makes them.

use super::kinds::{KINDS, Kind};
use super::{Bench, WITHIN};
use penstock_core::hooks::call::{Answer, Failed, Returned};
use penstock_core::hooks::pipeline::Failure;
use std::time::Duration;

/// Where the words stand that a guest is given.
const WORDS: u32 = 2_048;
/// `POST`, `https://a/` and `spam!`: where they stand and how long they are.
const POST: [u32; 2] = [3_088, 4];
const URL: [u32; 2] = [3_096, 10];
const BODY: [u32; 2] = [3_072, 5];
const NONE: [u32; 2] = [0, 0];

fn kind() -> &'static Kind {
    KINDS
        .iter()
        .find(|kind| kind.interface == "webhook")
        .expect("it is there")
}

/// How a guest's call ended, and its log. So many pages are added to its memory first.
fn rendered(pages: u32, answer: &[u32], words: &[u32]) -> (Returned, String) {
    let bench = Bench::new();
    let grow = format!("(drop (memory.grow (i32.const {pages})))");
    let module = kind().guest(&grow, answer, words);
    let version = bench.load("webhook", &module).expect("loads");
    let returned = bench.ask(&version, WITHIN, (kind().work)());
    let lines = bench.host.logs(&version, 0).lines.into_iter();
    let texts: Vec<String> = lines.map(|line| line.text).collect();
    (returned, texts.join("\n"))
}

/// One request: method, url, headers and body.
fn request(parts: [[u32; 2]; 4]) -> Vec<u32> {
    parts.concat()
}

/// A request with this header.
fn with_header(name: &str, value: &str) -> Vec<u32> {
    let texts = WORDS + 12 * 4;
    let length = |text: &str| u32::try_from(text.len()).expect("short");
    let mut words = request([POST, URL, [WORDS + 32, 1], BODY]);
    words.extend([texts, length(name), texts + length(name), length(value)]);
    let mut bytes = [name, value].concat().into_bytes();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let (chunks, _) = bytes.as_chunks();
    words.extend(chunks.iter().map(|chunk| u32::from_le_bytes(*chunk)));
    words
}

#[test]
fn requests_reach_who_delivers_them() {
    let (returned, _) = rendered(0, &[0, WORDS, 1], &with_header("X-Spam", "a b"));
    let Ok(Answer::Requests(requests)) = returned else {
        panic!("{returned:?}")
    };
    let [request] = &requests[..] else {
        panic!("{} requests", requests.len())
    };
    assert_eq!(
        (request.method.as_str(), request.url.as_str(), &request.body[..]),
        ("POST", "https://a/", &b"spam!"[..])
    );
    assert_eq!(request.headers, [("x-spam".to_owned(), "a b".to_owned())]);
}

#[test]
fn a_guest_that_renders_nothing_says_why() {
    let after = Some(Duration::from_millis(250));
    let (retry, lines) = rendered(0, &[1, 0, 250, 3_072, 5], &[]);
    assert_eq!(retry, Err(Failed::Retry { after }));
    assert!(lines.contains("webhook failed: spam!"), "{lines}");
    let (poison, _) = rendered(0, &[1, 1, 0, 3_072, 5], &[]);
    assert_eq!(poison, Err(Failed::Poison));
    let (busy, _) = rendered(0, &[1, 2, 250, 3_072, 5], &[]);
    assert_eq!(busy, Err(Failed::Busy { after }));
}

#[test]
fn a_request_that_is_not_made_is_told_with_what_to_do() {
    let far = 1 << 16;
    let one = [0, WORDS, 1];
    let long = |url: u32, body: u32| request([POST, [far, url], NONE, [far, body]]);
    let cases: [(u32, &[u32], Vec<u32>, &str); 9] = [
        (
            8,
            &[0, far, 10_000],
            Vec::new(),
            "10000 requests for one batch; at most 16: put several messages into one body",
        ),
        (
            20,
            &one,
            long(1 << 20, 0),
            "request 1: a URL of 1048576 bytes; at most 4096: put what is long into the body",
        ),
        (
            30,
            &one,
            request([POST, URL, NONE, [far, 1_572_865]]),
            "request 1: a body of 1572865 bytes; at most 1572864: cut the batch into several requests",
        ),
        (
            40,
            &one,
            request([POST, URL, NONE, [far, (2 << 20) + 1]]),
            "more than 2 MiB would cross",
        ),
        (
            0,
            &one,
            request([BODY, URL, NONE, BODY]),
            "request 1: method `spam!`: use one of POST, PUT, PATCH",
        ),
        (
            0,
            &one,
            with_header("x", "a\r\nhost: b"),
            "header `x`: not one: a name has letters, digits and hyphens, a value is printable ASCII on one line",
        ),
        (
            0,
            &one,
            with_header("x\r\nhost", "b"),
            "header `x\\r\\nhost`: not one",
        ),
        (
            0,
            &one,
            with_header("Webhook-Signature", "v1,AAAA"),
            "header `webhook-signature`: the broker sets it, leave it out",
        ),
        (
            0,
            &one,
            with_header("Host", "b.example"),
            "header `host`: the broker sets it, leave it out",
        ),
    ];
    for (pages, answer, words, said) in cases {
        let (returned, lines) = rendered(pages, answer, &words);
        assert_eq!(returned, Err(Failed::Call(Failure::BadOutput)), "{said}");
        assert!(lines.contains(said), "{said}: {lines}");
    }
}
