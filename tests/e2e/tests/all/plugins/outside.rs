//! What plugins reach outside: as far as their binding grants, and with secrets that nobody sees.

use super::consumers::say_all;
use super::desk::Desk;
use super::say;
use super::site::Site;
use crate::make_group;
use anyhow::{Context, Result};
use penstock_e2e::{Node, Raw, bind, component, deploy, get, put, target_folder, until};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

const PREVIEW: &str = "link-preview";
const FETCHER: &str = "scripted-fetcher";
const SUCCESS: u8 = 1;

/// Binds a plugin that follows the group, with these grants. The answer of the node.
fn bound(node: &Node, name: &str, grants: &[&str]) -> Result<penstock_e2e::Response> {
    let binding = json!({ "plugin": name, "hook": "persist-after", "deadline_ms": 60_000, "grants": grants });
    put(node.http(), &format!("/v1/bindings/{name}"), &binding)
}

/// A node on which this plugin may ask this site, and whatever else these grants say.
fn asking(node: &Node, name: &str, site: &Site, more: &[&str]) -> Result<()> {
    deploy(node, name, &component(name)?)?;
    let grants = site.grants();
    let grants: Vec<&str> = grants
        .iter()
        .map(String::as_str)
        .chain(more.iter().copied())
        .collect();
    let answer = bound(node, name, &grants)?;
    assert_eq!(answer.status, 200, "{}", answer.text);
    make_group(node, &["alice", "bob"])
}

/// How many requests of a plugin ended so.
fn outcomes(node: &Node, name: &str, outcome: &str) -> Result<u64> {
    let page = get(node.http(), "/metrics")?.text;
    let series = format!("penstock_plugin_http_requests_total{{binding=\"{name}\",outcome=\"{outcome}\"}} ");
    let found = page.lines().find_map(|line| line.strip_prefix(&series));
    found.map_or(Ok(0), |count| count.parse().context("a number"))
}

/// The texts that a plugin logged, and the broker about it.
fn logged(node: &Node, name: &str) -> Result<String> {
    Ok(get(node.http(), &format!("/v1/bindings/{name}/logs"))?.text)
}

fn until_logged(node: &Node, name: &str, text: &str) -> Result<()> {
    until(&format!("`{text}` is logged"), || {
        Ok(logged(node, name)?.contains(text))
    })
}

#[test]
fn the_preview_of_a_link_is_kept_for_apps() -> Result<()> {
    let (node, site) = (Node::start(&[])?, Site::start()?);
    asking(&node, PREVIEW, &site, &["kv"])?;
    let text = format!("look: {}, and no further", site.url("/page"));
    say_all(&node, &["no link", &text, &site.url("/inside"), "the last"])?;
    let key = || get(node.http(), &format!("/v1/plugins/{PREVIEW}/keys/2%2Froom%2F2"));
    until("the preview", || Ok(key()?.status == 200))?;
    let value = key()?.body["value"].clone();
    let preview: Value = serde_json::from_str(value.as_str().context("a text")?)?;
    let wanted = json!({ "url": site.url("/page"), "title": "A & B", "description": "What it says" });
    assert_eq!(preview, wanted);
    // A redirect inside is followed by the plugin, and refused by the broker.
    until("the redirect", || {
        Ok(outcomes(&node, PREVIEW, "not-granted")? == 1)
    })?;
    let keys = get(node.http(), &format!("/v1/plugins/{PREVIEW}/keys"))?;
    assert_eq!(
        keys.body["keys"].as_array().map(Vec::len),
        Some(1),
        "{}",
        keys.text
    );
    assert_eq!(outcomes(&node, PREVIEW, "2xx")?, 1);
    let paths: Vec<String> = site.seen().into_iter().map(|seen| seen.path).collect();
    assert_eq!(paths, ["/page", "/inside"]);
    let status =
        Desk::of(&node)?.says(&["status", PREVIEW, "--server", &format!("http://{}", node.http())])?;
    assert!(status.contains("requests: 1 2xx 1 3xx 1 not-granted"), "{status}");
    Ok(())
}

#[test]
fn without_a_grant_nothing_is_sent() -> Result<()> {
    let (node, site) = (Node::start(&[])?, Site::start()?);
    asking(&node, PREVIEW, &site, &["kv"])?;
    let [http, egress] = site.grants();
    let port = site.address.rsplit(':').next().context("a port")?;
    let whole_web = ["http:GET http://*/", "http:GET https://*/", "kv"];
    let only_a_path = format!("http:GET http://{}/public", site.address);
    let only_posts = http.replace("GET,", "");
    let cases: [(&[&str], &str); 4] = [
        (&["http:GET https://example.org/", "kv"], "not-granted"),
        (&[&only_a_path, &egress, "kv"], "not-granted"),
        (&[&only_posts, &egress, "kv"], "not-granted"),
        (&whole_web, "not-granted"),
    ];
    for (number, (grants, outcome)) in cases.into_iter().enumerate() {
        assert_eq!(bound(&node, PREVIEW, grants)?.status, 200);
        until("the new version", || Ok(outcomes(&node, PREVIEW, outcome)? == 0))?;
        let text = |path: &str| format!("{number}: {}", site.url(path));
        say_all(&node, &[&text("/page"), &text("/public/..%2fpage")])?;
        until(outcome, || Ok(outcomes(&node, PREVIEW, outcome)? == 2))?;
    }
    // A port that the grant covers, and an address that no rule lets through.
    let wild = format!("http:GET http://*:{port}/");
    assert_eq!(bound(&node, PREVIEW, &[&wild, "kv"])?.status, 200);
    let localhost = format!("http://localhost:{port}/page");
    say_all(&node, &[&site.url("/page"), &localhost])?;
    until("refused by address", || {
        Ok(outcomes(&node, PREVIEW, "address")? == 2)
    })?;
    assert!(logged(&node, PREVIEW)?.contains("grant egress:"));
    assert!(site.seen().is_empty(), "{:?}", site.seen());
    Ok(())
}

#[test]
fn grants_that_are_none_are_refused_when_they_are_bound() -> Result<()> {
    let node = Node::start(&["--set", "plugins.secrets={ key = \"hush\", lines = \"a\\nb\" }"])?;
    deploy(&node, FETCHER, &component(FETCHER)?)?;
    for (grants, said) in [
        (&["http", "reveal:key"][..], "http:METHODS URL"),
        (&["http:GET", "reveal:key"], "no URL after the methods"),
        (&["http:FETCH https://a/", "reveal:key"], "method `FETCH`"),
        (&["http:GET https://a/../b", "reveal:key"], "the path has"),
        (
            &["http:GET http://example.org/", "reveal:key"],
            "egress:example.org:80",
        ),
        (&["http:GET https://10.0.0.1/", "reveal:key"], "a private address"),
        (
            &["http:GET https://a/", "reveal:other"],
            "no `other` in [plugins.secrets]",
        ),
        (&["http:GET https://a/", "secret:lines"], "fits into no header"),
    ] {
        let answer = bound(&node, FETCHER, grants)?;
        assert_eq!(answer.status, 400, "{grants:?}: {}", answer.text);
        assert!(answer.text.contains(said), "{grants:?}: {}", answer.text);
    }
    Ok(())
}

/// Stands for a key of a service.
const CANARY: &str = "canary-4711-of-a-service";

#[test]
fn a_secret_arrives_in_a_header_and_is_nowhere_else() -> Result<()> {
    let secrets = format!("plugins.secrets={{ key = \"{CANARY}\", unused = \"{CANARY}-2\" }}");
    let node = Node::start_logged(None, &["--set", &secrets, "--set", "log.level=trace"])?;
    let site = Site::start()?;
    asking(&node, FETCHER, &site, &["secret:key", "reveal:key"])?;
    let ask =
        |header: &str| json!({ "url": site.url("/x"), "headers": { "Authorization": header } }).to_string();
    say_all(&node, &[&ask("Bearer secret://key")])?;
    until_logged(&node, FETCHER, "answered 200 fine")?;
    let seen = site.seen();
    assert_eq!(seen[0].headers["authorization"], format!("Bearer {CANARY}"));
    assert_eq!((seen.len(), seen[0].method.as_str()), (1, "GET"));
    // Names that are not granted, or not there, and places where nothing is replaced.
    let refused = [
        "secret://unused",
        "secret://other",
        "a b secret://key",
        "x secret://key, y",
    ];
    say_all(&node, &refused.map(ask).each_ref().map(String::as_str))?;
    until("they are refused", || {
        Ok(outcomes(&node, FETCHER, "not-granted")? == 4)
    })?;
    assert_eq!(site.seen().len(), 1);
    let reveal = |name: &str| json!({ "reveal": name }).to_string();
    say_all(&node, &[&reveal("key"), &reveal("unused")])?;
    until_logged(&node, FETCHER, "revealed nothing")?;
    let lines = logged(&node, FETCHER)?;
    assert!(lines.contains("secrets: key was revealed"), "{lines}");
    assert!(
        lines.contains(&format!("revealed {} bytes", CANARY.len())),
        "{lines}"
    );
    let metrics = get(node.http(), "/metrics")?.text;
    assert!(metrics.contains(&format!(
        "penstock_plugin_secrets_revealed_total{{binding=\"{FETCHER}\"}} 1\n"
    )));
    let pages = ["/v1/plugins", "/v1/bindings"].map(|path| get(node.http(), path));
    for page in pages {
        assert!(!page?.text.contains(CANARY));
    }
    assert!(!metrics.contains(CANARY) && !lines.contains(CANARY));
    assert!(node.log()?.lines().all(|line| !line.contains(CANARY)));
    Ok(())
}

#[test]
fn ready_plugins_do_what_their_fixtures_say() -> Result<()> {
    let desk = Desk::at("http://127.0.0.1:1")?;
    for name in [PREVIEW, "mute"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../plugins")
            .join(name);
        let component = target_folder()?.join("plugins").join(format!("{name}.wasm"));
        let (folder, component) = (folder.display().to_string(), component.display().to_string());
        let tried = desk.says(&["test", "--dir", &folder, "--component", &component])?;
        assert!(tried.contains(" 0 failed"), "{name}: {tried}");
    }
    Ok(())
}

/// Whatever a plugin asks, and whatever answers, others go on.
#[test]
fn requests_and_answers_out_of_bounds_end_and_hold_up_nobody() -> Result<()> {
    let (node, site) = (Node::start(&[])?, Site::start()?);
    asking(&node, FETCHER, &site, &["secrets"])?;
    let mut script = json!({ "url": site.url("/x") });
    for (field, value, outcome) in [
        ("url_bytes", json!(10_000), "too-large"),
        ("pad", json!(100_000), "failed"),
        ("body_bytes", json!((1 << 20) + 1), "too-large"),
        ("method", json!("G E T"), "failed"),
        ("method", json!("DELETE"), "not-granted"),
        ("headers", json!({ "Host": "evil.example" }), "failed"),
        ("headers", json!({ "x": "a\r\nhost: evil.example" }), "failed"),
        ("url", json!(format!("http://me:pw@{}/", site.address)), "failed"),
        ("url", json!(site.url("/large")), "too-large"),
        ("url", json!(site.url("/flood")), "failed"),
    ] {
        let before = outcomes(&node, FETCHER, outcome)?;
        let sane = script.clone();
        script[field] = value;
        say_all(&node, &[&script.to_string()])?;
        until(&format!("{script} ends as {outcome}"), || {
            Ok(outcomes(&node, FETCHER, outcome)? == before + 1)
        })?;
        script = sane;
    }
    let paths: Vec<String> = site.seen().into_iter().map(|seen| seen.path).collect();
    assert_eq!(paths, ["/large", "/flood"]);
    // Somebody who never answers is given up after five seconds; meanwhile messages are judged and stored.
    deploy(&node, "profanity-filter", &component("profanity-filter")?)?;
    bind(
        &node,
        "words",
        &json!({ "plugin": "profanity-filter", "hook": "before-send", "config": { "words": ["darn"] } }),
    )?;
    say_all(
        &node,
        &[&json!({ "url": site.url("/hang"), "times": 3 }).to_string()],
    )?;
    let mut raw = Raw::session(node.websocket(), "alice", "d")?;
    for number in 0..50 {
        assert_eq!(
            say(&mut raw, &format!("beside {number}"), "hello")?["reasonCode"],
            SUCCESS
        );
    }
    until("it is given up", || Ok(outcomes(&node, FETCHER, "timeout")? == 3))?;
    Ok(())
}

#[test]
fn a_gate_asks_a_place_before_it_lets_somebody_in() -> Result<()> {
    const PORTER: &str = "scripted-porter";
    const BANNED: u8 = 19;
    let (node, site) = (Node::start(&[])?, Site::start()?);
    deploy(&node, PORTER, &component(PORTER)?)?;
    deploy(&node, "scripted-filter", &component("scripted-filter")?)?;
    let filter = json!({ "plugin": "scripted-filter", "hook": "before-send", "deadline_ms": 5_000 });
    bind(&node, "filter", &filter)?;
    make_group(&node, &["alice", "bob"])?;
    let [http, egress] = site.grants();
    let below = format!("http:GET {}", site.url("/public"));
    let gate = json!({
        "plugin": PORTER, "hook": "connect", "deadline_ms": 1_000, "grants": [below, egress],
        "selector": { "uids": ["alice"] },
    });
    bind(&node, PORTER, &gate)?;
    let asked = |path: &str| -> Result<(Raw, Value)> {
        let (raw, answer) = Raw::asking(node.websocket(), ("alice", "d"), &site.url(path))?;
        Ok((raw, answer["result"].clone()))
    };
    // What the place says goes with the session.
    let (mut raw, answer) = asked("/public/x")?;
    assert_eq!(answer["reasonCode"], SUCCESS, "{answer}");
    assert_eq!(say(&mut raw, "1", "attributes")?["reason"], "answer=fine");
    // A place that is not granted is not asked, and the gate says what it was told.
    let (_, answer) = asked("/private")?;
    assert_eq!(
        (&answer["reasonCode"], &answer["reason"]),
        (&json!(BANNED), &json!("not-granted"))
    );
    assert!(logged(&node, PORTER)?.contains("http: not-granted: grant `http:GET"));
    let paths: Vec<String> = site.seen().into_iter().map(|seen| seen.path).collect();
    assert_eq!(paths, ["/public/x"]);
    // Who waits for a place that never answers is not let in, and holds up nobody else.
    let everywhere = json!({ "grants": [http, egress], "config": { "round": 2 } });
    let mut slow = gate;
    for (key, value) in everywhere.as_object().context("an object")? {
        slow[key] = value.clone();
    }
    bind(&node, PORTER, &slow)?;
    let began = Instant::now();
    let mut waiting = Raw::websocket(node.websocket())?;
    let params = json!({ "uid": "alice", "token": site.url("/hang"), "deviceId": "d", "deviceFlag": 1 });
    waiting.call("connect", "connect", &params)?;
    for number in 0..5 {
        drop(Raw::session(node.websocket(), "bob", &format!("d{number}"))?);
    }
    let answer = waiting.answer("connect")?["result"].clone();
    assert_ne!(answer["reasonCode"], SUCCESS, "{answer}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let (_, answer) = asked("/x")?;
    assert_eq!(answer["reasonCode"], SUCCESS, "{answer}");
    assert_eq!(outcomes(&node, PORTER, "2xx")?, 1, "of the version that runs now");
    Ok(())
}
