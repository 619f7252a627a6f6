//! Requests below the name of a plugin: what the plugin sees of them, and what becomes of its answers.

use super::{another, bind_to, say};
use crate::guarded::{KEY, KEY_SHA256};
use crate::make_group;
use anyhow::{Context, Result, ensure};
use penstock_e2e::{
    Node, PATIENCE, Raw, Response, bind, component, deploy, exchange, propose, put, until_ready,
};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const NAME: &str = "scripted-router";
const PLUGIN: &str = "/plugins/scripted-router";
/// Largest body that a plugin is given, bytes.
const BODY_MAX: usize = 1 << 20;

/// A node with the scripted router.
fn routed(binding: &Value) -> Result<Node> {
    let node = Node::start(&[])?;
    deploy(&node, NAME, &component(NAME)?)?;
    bind_router(&node, NAME, binding)?;
    Ok(node)
}

fn bind_router(node: &Node, id: &str, binding: &Value) -> Result<()> {
    let mut whole = binding.clone();
    whole["hook"] = json!("route");
    let grants = whole["grants"].as_array().cloned().unwrap_or_default();
    whole["grants"] = [vec![json!("kv")], grants].concat().into();
    bind_to(node, id, NAME, &whole)
}

/// Sends a request. `headers` are whole lines.
fn ask(node: &Node, method: &str, path: &str, (headers, body): (&str, &[u8])) -> Result<Response> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n",
        node.http(),
        body.len()
    );
    exchange(node.http(), &[head.as_bytes(), body].concat())
}

fn get(node: &Node, path: &str) -> Result<Response> {
    ask(node, "GET", path, ("", b""))
}

/// Announces a body that is too large, and sends none of it.
fn announce(node: &Node, headers: &str) -> Result<Response> {
    let head = format!(
        "POST {PLUGIN} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n",
        node.http(),
        BODY_MAX + 1
    );
    exchange(node.http(), head.as_bytes())
}

/// Has the plugin do what these words say.
fn tell(node: &Node, words: &str) -> Result<Response> {
    ask(node, "POST", PLUGIN, ("", words.as_bytes()))
}

#[test]
fn a_plugin_sees_the_request_without_credentials_and_answers_it() -> Result<()> {
    let node = routed(&json!({}))?;
    let headers = "Authorization: Bearer secret-1\r\nToken: secret-2\r\nCookie: secret=3\r\n\
                   X-Mine: 4\r\nTE: trailers\r\nContent-Type: text/plain\r\n";
    let path = format!("{PLUGIN}/a%2Fb/c?d=%20&e");
    let answer = ask(&node, "PUT", &path, (headers, b"tea"))?;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let mut lines = answer.text.lines();
    assert_eq!(lines.next(), Some("PUT /a%2Fb/c?d=%20&e"));
    assert_eq!(lines.next_back(), Some("tea"));
    let mut seen: Vec<&str> = lines.filter_map(|line| line.split(':').next()).collect();
    seen.sort_unstable();
    assert_eq!(seen, ["content-type", "host", "x-mine"]);
    assert!(!answer.text.contains("secret"));
    for (path, url) in [(PLUGIN.to_owned(), "GET /"), (format!("{PLUGIN}/?x"), "GET /?x")] {
        assert_eq!(get(&node, &path)?.text.lines().next(), Some(url));
    }
    // What a router is told it answers, but not for the whole origin.
    let answer = tell(
        &node,
        "status:404 x-mine=a_b Set-Cookie=session=1 clear-site-data=* tag",
    )?;
    assert_eq!((answer.status, answer.header("x-mine")), (404, "a b"));
    assert_eq!(
        (answer.header("set-cookie"), answer.header("clear-site-data")),
        ("", "")
    );
    assert_eq!(
        (
            answer.header("content-security-policy"),
            answer.header("x-content-type-options")
        ),
        ("sandbox", "nosniff")
    );
    let nobody = get(&node, "/plugins/nobody/a")?;
    assert_eq!(nobody.status, 404);
    assert!(
        nobody.text.contains("bind `nobody` to the hook `route`"),
        "{}",
        nobody.text
    );
    // Its keys are those of the plugin.
    assert_eq!(tell(&node, "visit")?.text, "1");
    assert_eq!(tell(&node, "visit")?.text, "2");
    Ok(())
}

#[test]
fn bodies_have_a_bound_in_both_directions() -> Result<()> {
    let node = routed(&json!({}))?;
    let largest = ask(&node, "POST", PLUGIN, ("", &vec![b'x'; BODY_MAX]))?;
    // It is echoed behind a line of its own: more than an answer may have.
    assert_eq!(largest.status, 502, "{}", largest.text);
    let near = ask(&node, "POST", PLUGIN, ("", &vec![b'x'; BODY_MAX - 1_024]))?;
    assert_eq!(near.status, 200, "{}", near.text);
    assert!(near.text.len() > BODY_MAX - 1_024);
    let larger = announce(&node, "")?;
    assert_eq!(larger.status, 413);
    assert!(larger.text.contains("1048576"), "{}", larger.text);
    Ok(())
}

#[test]
fn what_is_no_answer_is_told_by_its_class() -> Result<()> {
    let node = routed(&json!({}))?;
    for (round, (words, status, class)) in [
        ("trap", 503, "trap"),
        ("panic", 503, "trap"),
        ("grow", 503, "memory"),
        ("loop", 503, "timeout"),
        ("huge", 502, "bad-output"),
        ("status:101", 502, "bad-output"),
        ("status:600", 502, "bad-output"),
        ("x=a^set-cookie:_b", 502, "bad-output"),
        ("content-length=1", 502, "bad-output"),
        ("transfer-encoding=chunked", 502, "bad-output"),
    ]
    .into_iter()
    .enumerate()
    {
        // As another version each time: what failed before does not count.
        let deadline_ms = if words == "loop" { 300 } else { 5_000 };
        let binding = json!({ "config": { "round": round }, "deadline_ms": deadline_ms });
        bind_router(&node, NAME, &binding)?;
        let answer = tell(&node, words)?;
        assert_eq!(answer.status, status, "{words}: {}", answer.text);
        assert!(
            answer.text.contains(&format!("({class})")),
            "{words}: {}",
            answer.text
        );
        assert_eq!(answer.header("retry-after"), if status == 503 { "1" } else { "" });
        // Nothing of the guest, and nothing of how it failed.
        assert!(!answer.text.contains("wasm") && answer.header("x").is_empty());
        assert_eq!(tell(&node, "tag")?.status, 200, "after {words}");
    }
    Ok(())
}

#[test]
fn a_router_that_keeps_failing_is_left_alone_for_a_while() -> Result<()> {
    let node = routed(&json!({}))?;
    let began = Instant::now();
    loop {
        let answer = tell(&node, "trap")?;
        assert_eq!(answer.status, 503);
        if answer.text.contains("(suspended)") {
            break;
        }
        ensure!(
            began.elapsed() < PATIENCE,
            "its breaker stays closed: {}",
            answer.text
        );
    }
    // It is called again after a pause.
    while tell(&node, "tag")?.status != 200 {
        ensure!(began.elapsed() < PATIENCE, "its breaker stays open");
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

#[test]
fn one_binding_is_a_route_and_it_selects_nothing() -> Result<()> {
    let node = routed(&json!({}))?;
    let refused = |id: &str, binding: Value| -> Result<String> {
        let answer = put(node.http(), &format!("/v1/bindings/{id}"), &binding)?;
        assert_eq!(answer.status, 400, "{}", answer.text);
        Ok(answer.text)
    };
    let route = |more: &Value| {
        let mut whole = json!({ "plugin": NAME, "hook": "route", "grants": ["kv"] });
        for (key, value) in more.as_object().into_iter().flatten() {
            whole[key] = value.clone();
        }
        whole
    };
    assert!(refused("second", route(&json!({})))?.contains("one alone answers its requests"));
    assert!(refused(NAME, route(&json!({ "selector": { "uids": ["a"] } })))?.contains("leave it out"));
    assert!(refused(NAME, route(&json!({ "deadline_ms": 10_001 })))?.contains("at most 10000"));
    let public = json!({ "hook": "connect", "grants": ["route:public"] });
    assert!(refused("gate", route(&public))?.contains("for the hook `route` alone"));
    assert_eq!(tell(&node, "tag")?.status, 200);
    Ok(())
}

/// A request with the API key, that of JSON unless the body says otherwise.
fn with_key(node: &Node, method: &str, path: &str, body: &[u8]) -> Result<Response> {
    let answer = ask(
        node,
        method,
        path,
        (&format!("Authorization: Bearer {KEY}\r\n"), body),
    )?;
    ensure!(answer.status == 200, "{method} {path}: {}", answer.text);
    Ok(answer)
}

#[test]
fn without_the_key_only_a_public_route_answers() -> Result<()> {
    let node = Node::start_guarded(KEY_SHA256, &[])?;
    let uploaded = with_key(&node, "POST", "/v1/plugins", &component(NAME)?)?;
    let digest = json!({ "digest": uploaded.body["digest"] }).to_string();
    let change = format!("/v1/plugins/{NAME}");
    with_key(&node, "POST", &format!("{change}/propose"), digest.as_bytes())?;
    let began = Instant::now();
    loop {
        let shown = with_key(&node, "GET", "/v1/plugins", b"")?;
        if shown.body["plugins"][0]["rollout"]["ready"] == true {
            break;
        }
        ensure!(began.elapsed() < PATIENCE, "not ready: {}", shown.text);
        thread::sleep(Duration::from_millis(20));
    }
    with_key(&node, "POST", &format!("{change}/promote"), b"{}")?;
    let bind = |grants: &[&str]| {
        let binding = json!({ "plugin": NAME, "hook": "route", "grants": grants }).to_string();
        let path = format!("/v1/bindings/{NAME}");
        with_key(&node, "PUT", &path, binding.as_bytes())
    };
    bind(&["kv"])?;
    let answer = with_key(&node, "POST", PLUGIN, b"hello")?;
    assert!(
        answer.text.ends_with("hello") && !answer.text.contains(KEY),
        "{}",
        answer.text
    );
    for key in ["", "Authorization: Bearer wrong\r\n", "Token: wrong\r\n"] {
        // Nothing is read of who is not let in, and nobody learns which plugins there are.
        for path in [PLUGIN, "/plugins/nobody"] {
            let refused = ask(&node, "POST", path, (key, b"hello"))?;
            assert_eq!(refused.status, 401, "{key} {path}");
        }
        assert_eq!(announce(&node, key)?.status, 401, "{key}");
    }
    bind(&["kv", "route:public"])?;
    let answer = tell(&node, "hello")?;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(ask(&node, "POST", "/plugins/nobody", ("", b""))?.status, 401);
    assert_eq!(announce(&node, "")?.status, 413);
    let token = format!("Token: {KEY}\r\n");
    assert!(!ask(&node, "POST", PLUGIN, (&token, b"hello"))?.text.contains(KEY));
    // The rest of the API is as it was.
    assert_eq!(get(&node, "/v1/plugins")?.status, 401);
    bind(&["kv"])?;
    assert_eq!(tell(&node, "hello")?.status, 401);
    Ok(())
}

#[test]
fn swaps_under_requests_fail_none_of_them() -> Result<()> {
    const SWAPS: usize = 20;
    let node = routed(&json!({ "config": { "tag": "on" } }))?;
    let proposed = propose(&node, NAME, &another(&component(NAME)?, "two"))?;
    ensure!(proposed.status == 200, "{}", proposed.text);
    until_ready(&node, NAME)?;
    let change = |action: &str| -> Result<()> {
        let path = format!("/v1/plugins/{NAME}/{action}");
        let answer = ask(&node, "POST", &path, ("", b"{}"))?;
        ensure!(answer.status == 200, "{action}: {}", answer.text);
        Ok(())
    };
    let ended = AtomicBool::new(false);
    let answered = thread::scope(|scope| -> Result<usize> {
        let client = || -> Result<usize> {
            let mut answered = 0;
            while !ended.load(Ordering::SeqCst) {
                let answer = tell(&node, "tag")?;
                ensure!((answer.status, &*answer.text) == (200, "on"), "{}", answer.text);
                answered += 1;
            }
            Ok(answered)
        };
        let clients = [scope.spawn(client), scope.spawn(client)];
        let swapped = change("promote").and_then(|()| (0..SWAPS).try_for_each(|_| change("rollback")));
        ended.store(true, Ordering::SeqCst);
        let answered = clients.map(|client| client.join().expect("a client"));
        swapped?;
        answered.into_iter().sum()
    })?;
    assert!(answered > 0);
    // Both have answered.
    let here = get(&node, "/v1/plugins")?.body["here"].clone();
    let calls = here.as_array().context("versions")?.iter();
    let busy = calls.filter(|version| version["calls"].as_u64() > Some(0));
    assert_eq!(busy.count(), 2, "{here}");
    Ok(())
}

#[test]
fn a_route_comes_back_after_a_crash() -> Result<()> {
    let mut node = routed(&json!({}))?;
    assert_eq!(tell(&node, "visit")?.text, "1");
    node.kill_and_restart()?;
    let began = Instant::now();
    loop {
        let answer = tell(&node, "visit")?;
        if answer.status == 200 {
            assert_eq!(answer.text, "2");
            return Ok(());
        }
        // It is not told that there is no such plugin because nothing is known yet.
        assert_eq!(answer.status, 503, "{}", answer.text);
        ensure!(
            began.elapsed() < PATIENCE,
            "it does not come back: {}",
            answer.text
        );
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_a_consumer_counts_is_shown_by_the_same_plugin() -> Result<()> {
    let node = Node::start(&[])?;
    deploy(&node, "tally", &component("tally")?)?;
    let grants = json!({ "grants": ["kv"], "hook": "persist-after" });
    bind_to(&node, "counts", "tally", &grants)?;
    bind(
        &node,
        "shows",
        &json!({ "plugin": "tally", "hook": "route", "grants": ["kv"] }),
    )?;
    make_group(&node, &["alice", "bob"])?;
    assert_eq!(get(&node, "/plugins/tally/from/alice")?.status, 404);
    let mut raw = Raw::session(node.websocket(), "alice", "d")?;
    for number in 0..3 {
        assert_eq!(say(&mut raw, &number.to_string(), "hello")?["reasonCode"], 1);
    }
    let began = Instant::now();
    while get(&node, "/plugins/tally/from/alice")?.text != "3" {
        ensure!(began.elapsed() < PATIENCE, "it is not counted");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(
        ask(&node, "POST", "/plugins/tally/from/alice", ("", b""))?.status,
        405
    );
    Ok(())
}
