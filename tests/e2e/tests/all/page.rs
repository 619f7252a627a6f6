//! The demo page in a browser: what its user does and sees, in tabs of two users.

use crate::guarded::{KEY, KEY_SHA256};
use crate::{GROUP, HELLO, make_group, send};
use anyhow::{Context, Result};
use penstock_e2e::{Browser, Node, Response, get, get_unless, post, post_with_key};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The texts of the messages that a tab shows, from top to bottom.
const TEXTS: &str = "#messages .message p";
const STORED: &str = "#messages .message.mine[data-state=stored]";
const ONLINE: &str = "#connection[data-state=online]";

/// A tab with the page, signed in by its address and connected.
fn enter(browser: &mut Browser, node: &Node, uid: &str) -> Result<()> {
    browser.open(uid, &format!("http://{}/#{uid}", node.http()))?;
    browser.wait(uid, ONLINE, "Connected")
}

fn start_chat(browser: &mut Browser, tab: &str, with: &str) -> Result<()> {
    browser.click(tab, "#new-person")?;
    browser.fill(tab, "#person-uid", with)?;
    browser.press(tab, "#person-uid", "Enter")?;
    browser.wait(tab, "#title", with)
}

fn say(browser: &mut Browser, tab: &str, text: &str) -> Result<()> {
    browser.fill(tab, "#text", text)?;
    browser.press(tab, "#text", "Enter")
}

/// What a message is called in the sends of a tab, for each time that it was sent.
fn names_of(browser: &mut Browser, tab: &str, text: &str) -> Result<Vec<Value>> {
    let sent = browser.sent(tab)?;
    let named = sent
        .iter()
        .filter(|call| call["method"] == "send" && call["params"]["payload"]["content"] == text)
        .map(|call| call["params"]["clientMsgNo"].clone());
    Ok(named.collect())
}

fn nobody_complains(browser: &mut Browser, tabs: &[&str]) -> Result<()> {
    for tab in tabs {
        assert_eq!(browser.complaints(tab)?, Vec::<String>::new(), "{tab}");
    }
    Ok(())
}

#[test]
fn two_tabs_talk_in_a_person_channel_and_history_outlives_a_reload() -> Result<()> {
    let node = Node::start(&[])?;
    let mut browser = Browser::start()?;
    // Alice by the form, bob by his address.
    browser.open("alice", &format!("http://{}/", node.http()))?;
    browser.fill("alice", "#uid", "alice")?;
    browser.press("alice", "#uid", "Enter")?;
    browser.wait("alice", ONLINE, "Connected")?;
    enter(&mut browser, &node, "bob")?;
    start_chat(&mut browser, "alice", "bob")?;
    browser.wait("alice", "#members", "online")?;
    let texts = ["one", "two\n2", "三", "four"];
    for text in texts {
        say(&mut browser, "alice", text)?;
    }
    browser.wait("alice", STORED, "stored #4")?;
    browser.wait("bob", "#conversations .row", "4 new")?;
    browser.click("bob", "#conversations .row")?;
    browser.wait("bob", "#messages", "four")?;
    assert_eq!(browser.texts("bob", TEXTS)?, texts);
    say(&mut browser, "bob", "five")?;
    browser.wait("alice", "#messages .message:not(.mine)", "five")?;
    browser.wait("bob", STORED, "stored #5")?;
    let all = ["one", "two\n2", "三", "four", "five"];
    assert_eq!(browser.texts("alice", TEXTS)?, all);
    browser.wait("alice", "#latency", "ms")?;
    browser.wait("alice", "#connections", "2")?;

    browser.reload("alice")?;
    browser.wait("alice", ONLINE, "Connected")?;
    browser.click("alice", "#conversations .row")?;
    browser.wait("alice", "#messages", "five")?;
    assert_eq!(browser.texts("alice", TEXTS)?, all);
    assert_eq!(browser.texts("alice", STORED)?.len(), 4);
    nobody_complains(&mut browser, &["alice", "bob"])?;
    browser.close("bob")?;
    browser.wait("alice", "#members", "offline")
}

#[test]
fn two_tabs_talk_in_a_group_that_one_of_them_made() -> Result<()> {
    let node = Node::start(&[])?;
    let mut browser = Browser::start()?;
    for uid in ["alice", "bob", "carol"] {
        enter(&mut browser, &node, uid)?;
    }
    browser.click("alice", "#new-group")?;
    browser.fill("alice", "#group-id", "room")?;
    browser.fill("alice", "#group-members", "bob")?;
    browser.press("alice", "#group-members", "Enter")?;
    browser.wait("alice", "#title", "room")?;
    say(&mut browser, "alice", "welcome")?;
    browser.wait("bob", "#conversations .row", "room")?;
    browser.click("bob", "#conversations .row")?;
    browser.click("alice", "#add-members")?;
    browser.fill("alice", "#more-members", "carol")?;
    browser.press("alice", "#more-members", "Enter")?;
    browser.wait("alice", "#members", "carol")?;
    // Both write at once: everybody has the same order in the end, and the newcomer what came since.
    for number in 0..10 {
        for uid in ["alice", "bob"] {
            say(&mut browser, uid, &format!("{uid} {number}"))?;
        }
    }
    for uid in ["alice", "bob"] {
        browser.wait(uid, "#messages .message[data-seq='21']", "#21")?;
    }
    let seen = browser.texts("alice", TEXTS)?;
    assert_eq!(seen.len(), 21);
    assert_eq!(browser.texts("bob", TEXTS)?, seen);
    for uid in ["alice", "bob"] {
        let own: Vec<&String> = seen.iter().filter(|text| text.starts_with(uid)).collect();
        let wanted: Vec<String> = (0..10).map(|number| format!("{uid} {number}")).collect();
        assert!(own.into_iter().eq(&wanted), "{seen:?}");
    }
    browser.wait("carol", "#conversations .row", "20 new")?;
    browser.click("carol", "#conversations .row")?;
    browser.wait("carol", "#messages", &seen[20])?;
    assert_eq!(browser.texts("carol", TEXTS)?, seen[1..]);
    nobody_complains(&mut browser, &["alice", "bob", "carol"])
}

#[test]
fn the_page_comes_back_after_a_restart_and_a_message_meanwhile_arrives_once() -> Result<()> {
    let mut node = Node::start(&[])?;
    let mut browser = Browser::start()?;
    for (uid, other) in [("alice", "bob"), ("bob", "alice")] {
        enter(&mut browser, &node, uid)?;
        start_chat(&mut browser, uid, other)?;
    }
    say(&mut browser, "alice", "before")?;
    browser.wait("bob", "#messages", "before")?;
    node.kill()?;
    browser.wait("alice", "#connection[data-state=waiting]", "Connection lost")?;
    for text in ["meanwhile", "and this"] {
        say(&mut browser, "alice", text)?;
    }
    browser.wait("alice", ".message[data-state=sending]", "meanwhile")?;
    let same_ports = node.same_ports();
    let arguments: Vec<&str> = same_ports.iter().map(String::as_str).collect();
    node.restart_with(&arguments)?;
    for uid in ["alice", "bob"] {
        browser.wait(uid, ONLINE, "Connected")?;
    }
    browser.wait("alice", STORED, "stored #3")?;
    say(&mut browser, "bob", "after")?;
    browser.wait("alice", "#messages", "after")?;
    for uid in ["alice", "bob"] {
        assert_eq!(
            browser.texts(uid, TEXTS)?,
            ["before", "meanwhile", "and this", "after"],
            "{uid}"
        );
    }
    nobody_complains(&mut browser, &["alice", "bob"])
}

#[test]
fn a_lost_acknowledgement_makes_no_second_message() -> Result<()> {
    let mut node = Node::start(&[])?;
    let mut browser = Browser::start()?;
    for (uid, other) in [("alice", "bob"), ("bob", "alice")] {
        enter(&mut browser, &node, uid)?;
        start_chat(&mut browser, uid, other)?;
    }
    // The page does not see the answers to its sends.
    let lose = "window.parse = JSON.parse; void (JSON.parse = (text) => {
        const message = window.parse(text);
        return message.result?.messageSeq ? {} : message;
    })";
    browser.evaluate("alice", lose)?;
    say(&mut browser, "alice", "hello")?;
    browser.wait("bob", "#messages", "hello")?;
    browser.wait("alice", "#messages .message[data-state=sending]", "hello")?;
    node.kill()?;
    browser.wait("alice", "#connection[data-state=waiting]", "Connection lost")?;
    browser.evaluate("alice", "void (JSON.parse = window.parse)")?;
    let same_ports = node.same_ports();
    let arguments: Vec<&str> = same_ports.iter().map(String::as_str).collect();
    node.restart_with(&arguments)?;
    browser.wait("alice", STORED, "stored #1")?;
    browser.wait("bob", ONLINE, "Connected")?;
    say(&mut browser, "bob", "hello yourself")?;
    browser.wait("alice", "#messages", "hello yourself")?;
    browser.wait("bob", STORED, "stored #2")?;
    for uid in ["alice", "bob"] {
        assert_eq!(browser.texts(uid, TEXTS)?, ["hello", "hello yourself"], "{uid}");
    }
    let names = names_of(&mut browser, "alice", "hello")?;
    assert!(names.len() == 2 && names[0] == names[1], "{names:?}");
    Ok(())
}

#[test]
fn older_messages_come_page_by_page_above() -> Result<()> {
    let node = Node::start(&[])?;
    make_group(&node, &["alice", "bob"])?;
    for number in 1..=120 {
        assert_eq!(
            send(&node, "bob", &format!("m{number}"), HELLO)?.body["message_seq"],
            number
        );
    }
    let mut browser = Browser::start()?;
    enter(&mut browser, &node, "alice")?;
    browser.click("alice", "#new-group")?;
    browser.fill("alice", "#group-id", "room")?;
    browser.press("alice", "#group-id", "Enter")?;
    let seqs = "[...document.querySelectorAll('#messages .message')].map((one) => Number(one.dataset.seq))";
    for oldest in [71, 21, 1] {
        let first = format!("#messages .message:first-child[data-seq='{oldest}']");
        browser.wait("alice", &first, &format!("#{oldest}"))?;
        let wanted: Vec<u32> = (oldest..=120).collect();
        assert_eq!(browser.evaluate("alice", seqs)?, json!(wanted));
        if oldest > 1 {
            browser.click("alice", "#earlier")?;
        }
    }
    assert_eq!(
        browser.evaluate("alice", "document.querySelector('#earlier').hidden")?,
        true
    );
    nobody_complains(&mut browser, &["alice"])
}

#[test]
fn a_refused_message_says_why_and_a_retry_keeps_its_name() -> Result<()> {
    let node = Node::start(&[])?;
    make_group(&node, &["alice", "bob"])?;
    let mut browser = Browser::start()?;
    enter(&mut browser, &node, "alice")?;
    browser.click("alice", "#new-group")?;
    browser.fill("alice", "#group-id", "room")?;
    browser.press("alice", "#group-id", "Enter")?;
    browser.wait("alice", "#title", "room")?;
    let alice = json!({ "channel_id": "room", "channel_type": GROUP, "subscribers": ["alice"] });
    assert_eq!(
        post(node.http(), "/channel/subscriber_remove", &alice)?.status,
        200
    );
    say(&mut browser, "alice", "let me in")?;
    let failed = "#messages .message[data-state=failed]";
    browser.wait("alice", failed, "not sent: you are not a member of this group")?;
    assert_eq!(post(node.http(), "/channel/subscriber_add", &alice)?.status, 200);
    browser.click("alice", &format!("{failed} button"))?;
    browser.wait("alice", STORED, "stored #1")?;
    let names = names_of(&mut browser, "alice", "let me in")?;
    assert_eq!(names.len(), 2);
    assert_eq!(names[0], names[1]);
    nobody_complains(&mut browser, &["alice"])
}

#[test]
fn a_session_that_was_ended_stays_away_until_its_user_comes_back() -> Result<()> {
    let node = Node::start(&[])?;
    let mut browser = Browser::start()?;
    enter(&mut browser, &node, "alice")?;
    let quit = json!({ "uid": "alice", "device_flag": -1 });
    assert_eq!(post(node.http(), "/user/device_quit", &quit)?.status, 200);
    browser.wait(
        "alice",
        "#connection[data-state=kicked]",
        "The broker ended this session",
    )?;
    let connects = |browser: &mut Browser| -> Result<usize> {
        let sent = browser.sent("alice")?;
        Ok(sent.iter().filter(|call| call["method"] == "connect").count())
    };
    assert_eq!(connects(&mut browser)?, 1);
    browser.click("alice", "#connect-now")?;
    browser.wait("alice", ONLINE, "Connected")?;
    assert_eq!(connects(&mut browser)?, 2);
    nobody_complains(&mut browser, &["alice"])
}

#[test]
fn foreign_text_stays_text() -> Result<()> {
    const HOSTILE: &str = "<img src=x onerror=window.injected=1><script>window.injected=1</script>";
    let node = Node::start(&[])?;
    let mut browser = Browser::start()?;
    browser.open("eve", &format!("http://{}/", node.http()))?;
    browser.fill("eve", "#uid", HOSTILE)?;
    browser.press("eve", "#uid", "Enter")?;
    browser.wait("eve", ONLINE, "Connected")?;
    enter(&mut browser, &node, "bob")?;
    start_chat(&mut browser, "eve", "bob")?;
    say(&mut browser, "eve", HOSTILE)?;
    browser.wait("bob", "#conversations .row .name", HOSTILE)?;
    browser.click("bob", "#conversations .row")?;
    browser.wait("bob", "#messages", HOSTILE)?;
    // As a group's name and as a member too, and as the text of a payload that is no JSON.
    browser.click("eve", "#new-group")?;
    browser.fill("eve", "#group-id", HOSTILE)?;
    browser.fill("eve", "#group-members", "bob")?;
    browser.press("eve", "#group-members", "Enter")?;
    browser.wait("eve", "#title", HOSTILE)?;
    let raw = json!({
        "from_uid": HOSTILE, "channel_id": HOSTILE, "channel_type": GROUP, "client_msg_no": "raw",
        // `printf '<img src=x onerror=window.injected=1>' | base64`
        "payload": "PGltZyBzcmM9eCBvbmVycm9yPXdpbmRvdy5pbmplY3RlZD0xPg==",
    });
    assert_eq!(post(node.http(), "/message/send", &raw)?.body["reason"], 1);
    browser.wait("bob", "#conversations .row", "1 new")?;
    browser.click("bob", "#conversations .row:has(.unread)")?;
    browser.wait("bob", "#members", HOSTILE)?;
    browser.wait("bob", "#messages", "<img src=x onerror=window.injected=1>")?;
    for tab in ["eve", "bob"] {
        assert_eq!(browser.evaluate(tab, "window.injected ?? 'nothing'")?, "nothing");
        // The icon of the page is its only picture.
        assert_eq!(browser.evaluate(tab, "document.images.length")?, 1);
    }
    nobody_complains(&mut browser, &["eve", "bob"])
}

/// A line of a Prometheus text.
fn series(address: &str, name: &str) -> Result<u64> {
    let metrics: Response = get(address, "/metrics")?;
    let line = metrics.text.lines().find(|line| line.starts_with(name));
    let value = line
        .and_then(|line| line.rsplit(' ').next())
        .context("no such series")?;
    Ok(value.parse()?)
}

#[test]
fn the_numbers_below_are_those_of_the_node() -> Result<()> {
    let node = Node::start(&[])?;
    let mut browser = Browser::start()?;
    enter(&mut browser, &node, "alice")?;
    start_chat(&mut browser, "alice", "bob")?;
    for number in 1..=5 {
        say(&mut browser, "alice", "hello")?;
        browser.wait("alice", STORED, &format!("stored #{number}"))?;
    }
    assert_eq!(series(node.http(), "penstock_gateway_sendack_seconds_count")?, 5);
    assert_eq!(
        series(
            node.http(),
            "penstock_gateway_sendack_seconds_bucket{le=\"+Inf\"}"
        )?,
        5
    );
    // The page's own estimate, against counts whose answer is known: 98 of 100 at most 10 ms, one above all bounds.
    let estimate = "import('/demo/metrics.js').then(({ buckets, parse, quantile }) => {
        const at = (first, second, all) => buckets(parse(
            `x_bucket{le=\"0.01\"} ${first}\nx_bucket{le=\"0.1\"} ${second}\nx_bucket{le=\"+Inf\"} ${all}\nx_count ${all}`), 'x');
        const before = at(7, 7, 7);
        return [quantile(before, at(105, 106, 107), 0.49), quantile(before, at(105, 106, 107), 0.99),
            quantile(before, at(105, 106, 107), 1), quantile(before, before, 0.5)];
    })";
    let found = browser.evaluate("alice", estimate)?;
    let found: Vec<Option<f64>> = serde_json::from_value(found)?;
    for (found, wanted) in found.iter().zip([Some(0.005), Some(0.1), Some(0.1), None]) {
        let is_near = match (found, wanted) {
            (Some(found), Some(wanted)) => (found - wanted).abs() < 1e-9,
            (found, wanted) => *found == wanted,
        };
        assert!(is_near, "{found:?} is not {wanted:?}");
    }
    nobody_complains(&mut browser, &["alice"])
}

#[test]
fn the_page_is_served_with_its_policy_and_kept_until_it_changes() -> Result<()> {
    let node = Node::start(&[])?;
    let page = get(node.http(), "/")?;
    assert_eq!(
        (page.status, page.header("content-type")),
        (200, "text/html; charset=utf-8")
    );
    let policy = page.header("content-security-policy");
    let connect = format!("connect-src 'self' {};", node.websocket());
    for part in [
        "default-src 'none';",
        "script-src 'self';",
        "frame-ancestors 'none';",
        &connect,
    ] {
        assert!(policy.contains(part), "{part} in {policy}");
    }
    assert_eq!(page.header("x-content-type-options"), "nosniff");
    assert_eq!(page.header("referrer-policy"), "no-referrer");
    assert_eq!(page.header("cache-control"), "no-cache");
    let kept = get_unless(node.http(), "/", page.header("etag"))?;
    assert_eq!((kept.status, kept.text.as_str()), (304, ""));
    assert_eq!(get_unless(node.http(), "/", "\"another\"")?.status, 200);
    assert_eq!(
        get(node.http(), "/demo/page.css")?.header("content-type"),
        "text/css; charset=utf-8"
    );
    assert_eq!(get(node.http(), "/demo/nothing.js")?.status, 404);
    Ok(())
}

#[test]
fn a_node_in_production_serves_the_page_only_when_told_to_and_wants_its_secrets() -> Result<()> {
    let node = Node::start_guarded(KEY_SHA256, &[])?;
    assert_eq!(get(node.http(), "/")?.status, 404);
    assert_eq!(get(node.http(), "/demo/app.js")?.status, 404);
    drop(node);

    let node = Node::start_guarded(KEY_SHA256, &["--set", "http.demo_page=true"])?;
    let token = json!({ "uid": "alice", "token": "right", "device_flag": 1, "device_level": 0 });
    assert_eq!(
        post_with_key(node.http(), "/user/token", &token, KEY)?.status,
        200
    );
    let mut browser = Browser::start()?;
    browser.open("alice", &format!("http://{}/", node.http()))?;
    let mut sign_in = |key: &str, token: &str, told: (&str, &str)| -> Result<()> {
        browser.wait("alice", "#key-label", "API key")?;
        for (field, text) in [("#uid", "alice"), ("#key", key), ("#token", token)] {
            browser.fill("alice", field, text)?;
        }
        browser.press("alice", "#token", "Enter")?;
        browser.wait("alice", told.0, told.1)
    };
    let error = "#sign-in-error";
    sign_in("wrong", "right", (error, "not the API key"))?;
    sign_in(KEY, "wrong", (error, "the uid or the token was not accepted"))?;
    sign_in(KEY, "right", (ONLINE, "Connected"))
}

#[test]
fn the_page_can_be_used_without_a_mouse() -> Result<()> {
    let node = Node::start(&[])?;
    let mut browser = Browser::start()?;
    enter(&mut browser, &node, "alice")?;
    let focus =
        "document.activeElement.id || document.activeElement.className || document.activeElement.tagName";
    let mut order = Vec::new();
    for _ in 0..3 {
        browser.press("alice", ":focus, body", "Tab")?;
        order.push(browser.evaluate("alice", focus)?);
    }
    assert_eq!(order, ["sign-out", "new-person", "new-group"]);
    browser.press("alice", ":focus", "Shift+Tab")?;
    browser.press("alice", ":focus", "Enter")?;
    browser.fill("alice", "#person-uid", "bob")?;
    browser.press("alice", "#person-uid", "Enter")?;
    browser.wait("alice", "#title", "bob")?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while browser.evaluate("alice", focus)? != "text" {
        assert!(Instant::now() < deadline, "the message field has no focus");
    }
    browser.press("alice", ":focus", "Shift+Enter")?;
    assert_eq!(browser.evaluate("alice", "document.activeElement.value")?, "\n");
    say(&mut browser, "alice", "hello")?;
    browser.wait("alice", STORED, "stored #1")?;
    // Every field and button has a name for a screen reader, and the focus can be seen.
    let nameless = "[...document.querySelectorAll('button, input, textarea')]
        .filter((one) => !one.textContent.trim() && !one.ariaLabel && !one.labels?.length).map((one) => one.id)";
    assert_eq!(browser.evaluate("alice", nameless)?, json!([]));
    let outline = "getComputedStyle(document.activeElement).outlineStyle";
    assert_eq!(browser.evaluate("alice", outline)?, "solid");
    Ok(())
}
