//! Plugins that publish: each answer once over crashes, loops that end, who may send as a plugin, and what a binding must grant.

use super::consumers::say_all;
use super::desk::Desk;
use super::{bind_to, history, with};
use crate::{GROUP, PERSON, make_group};
use anyhow::{Context, Result, ensure};
use penstock_e2e::{Node, PATIENCE, Raw, component, deploy, get, post, put, target_folder};
use serde_json::{Value, json};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const NAME: &str = "auto-reply";
const UID: &str = "plugin:auto-reply";
/// Who may not come in.
const AUTH_FAIL: u8 = 2;

/// A node on which this is answered; what `binding` says comes on top.
fn answering(replies: &Value, binding: &Value) -> Result<Node> {
    let mut whole = json!({
        "hook": "persist-after", "attempts_max": 0, "grants": ["publish:*/*"], "config": { "replies": replies },
    });
    for (key, value) in binding.as_object().context("an object")? {
        whole[key] = value.clone();
    }
    with(NAME, &whole)
}

/// Sends numbered questions until the node is gone, or so many are sent.
fn burst(address: &str, round: u32) -> thread::JoinHandle<()> {
    let address = address.to_owned();
    thread::spawn(move || {
        for number in 0..60 {
            // {"type":1,"content":"ping"}
            let message = json!({
                "from_uid": "alice", "channel_id": "room", "channel_type": GROUP,
                "client_msg_no": format!("{round}-{number}"), "payload": "eyJ0eXBlIjoxLCJjb250ZW50IjoicGluZyJ9",
            });
            if post(&address, "/message/send", &message).is_err() {
                return;
            }
        }
    })
}

/// How often each of these texts is in the group, once this holds of them.
fn counted_until(node: &Node, texts: [&str; 2], good: impl Fn([usize; 2]) -> bool) -> Result<[usize; 2]> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = history(node)?;
        let counts = texts.map(|text| found.iter().filter(|content| *content == text).count());
        if good(counts) {
            return Ok(counts);
        }
        ensure!(Instant::now() < deadline, "{texts:?}: {counts:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// The messages of a channel as a reader sees them.
fn messages(node: &Node, login: &str, (id, kind): (&str, u8)) -> Result<Vec<Value>> {
    let question = json!({
        "login_uid": login, "channel_id": id, "channel_type": kind,
        "start_message_seq": 1, "end_message_seq": 0, "limit": 100, "pull_mode": 1,
    });
    let found = post(node.http(), "/channel/messagesync", &question)?.body;
    found["messages"]
        .as_array()
        .cloned()
        .with_context(|| found.to_string())
}

#[test]
fn each_question_is_answered_once_over_crashes_in_the_middle_of_bursts() -> Result<()> {
    let replies = json!([{ "equals": "ping", "text": "pong" }]);
    let mut node = answering(&replies, &json!({}))?;
    for round in 0..5 {
        let sender = burst(node.http(), round);
        thread::sleep(Duration::from_millis(150 + u64::from(round) * 60));
        node.kill_and_restart()?;
        sender.join().expect("no panic");
    }
    // Nobody asks anything any more.
    let [asked, _] = counted_until(&node, ["ping", "pong"], |[asked, answered]| asked == answered)?;
    assert!(asked > 5, "{asked} questions are too few");
    // Nothing is on its way any more that would answer once more.
    thread::sleep(Duration::from_millis(500));
    counted_until(&node, ["ping", "pong"], |counts| counts == [asked, asked])?;
    Ok(())
}

/// The series of the binding for this metric, with its labels.
fn metric(node: &Node, series: &str) -> Result<Option<u64>> {
    let text = get(node.http(), "/metrics")?.text;
    let line = text.lines().find_map(|line| line.strip_prefix(series));
    line.map(|value| value.trim().parse().context("a number"))
        .transpose()
}

#[test]
fn a_plugin_that_answers_itself_stops_after_three_hops() -> Result<()> {
    let replies = json!([{ "contains": "ping", "text": "ping again" }]);
    let node = answering(&replies, &json!({ "own_messages": true }))?;
    say_all(&node, &["ping"])?;
    counted_until(&node, ["ping", "ping again"], |counts| counts == [1, 3])?;
    let ended =
        format!("penstock_plugin_publish_errors_total{{binding=\"{NAME}\",reason=\"too-many-hops\"}}");
    let deadline = Instant::now() + PATIENCE;
    while metric(&node, &ended)? != Some(1) {
        ensure!(Instant::now() < deadline, "the end of the loop is not counted");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(history(&node)?.len(), 4);
    let published = format!("penstock_plugin_published_total{{binding=\"{NAME}\"}}");
    assert_eq!(metric(&node, &published)?, Some(3));
    Ok(())
}

#[test]
fn a_plugin_is_not_told_of_its_own_messages_and_answers_two_persons_in_their_channel() -> Result<()> {
    let replies = json!([{ "contains": "ping", "text": "ping again" }]);
    let node = answering(&replies, &json!({}))?;
    say_all(&node, &["ping"])?;
    counted_until(&node, ["ping", "ping again"], |counts| counts == [1, 1])?;
    let message = json!({
        "from_uid": "alice", "channel_id": "bob", "channel_type": PERSON, "client_msg_no": "p",
        "payload": "eyJ0eXBlIjoxLCJjb250ZW50IjoicGluZyJ9",
    });
    assert_eq!(post(node.http(), "/message/send", &message)?.status, 200);
    let deadline = Instant::now() + PATIENCE;
    for (login, peer) in [("alice", "bob"), ("bob", "alice")] {
        loop {
            let found = messages(&node, login, (peer, PERSON))?;
            let senders: Vec<&str> = found.iter().filter_map(|one| one["from_uid"].as_str()).collect();
            if senders == ["alice", UID] {
                break;
            }
            ensure!(Instant::now() < deadline, "{login} sees {senders:?}");
            thread::sleep(Duration::from_millis(20));
        }
    }
    // Time for a loop, if there were one.
    thread::sleep(Duration::from_millis(500));
    assert_eq!(history(&node)?.len(), 2);
    Ok(())
}

/// The plugin's own fixtures, under the scripted host of `penstock plugin test`.
#[test]
fn it_does_what_its_fixtures_say() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../plugins")
        .join(NAME);
    let desk = Desk::at("http://127.0.0.1:1")?;
    let built = target_folder()?.join("plugins").join(format!("{NAME}.wasm"));
    let (folder, built) = (folder.display().to_string(), built.display().to_string());
    let tried = desk.says(&["test", "--component", &built, "--dir", &folder])?;
    assert!(tried.contains(" 0 failed"), "{tried}");
    for fixture in ["answers.json", "loop.json", "two-persons.json"] {
        assert!(tried.contains(&format!("ok    {fixture}")), "{tried}");
    }
    Ok(())
}

#[test]
fn nobody_connects_or_sends_as_a_plugin() -> Result<()> {
    let node = Node::start(&[])?;
    make_group(&node, &["alice", "bob", UID])?;
    let (_, answer) = Raw::asking(node.websocket(), (UID, "d"), "any")?;
    assert_eq!(answer["result"]["reasonCode"], AUTH_FAIL, "{answer}");
    let message = json!({
        "from_uid": UID, "channel_id": "room", "channel_type": GROUP, "client_msg_no": "n", "payload": "aGk=",
    });
    let refused = post(node.http(), "/message/send", &message)?;
    assert_eq!(refused.status, 400, "{}", refused.text);
    assert!(
        refused.text.contains("`from_uid` is one of a plugin"),
        "{}",
        refused.text
    );
    let token = json!({ "uid": UID, "token": "t", "device_flag": 1, "device_level": 0 });
    let refused = post(node.http(), "/user/token", &token)?;
    assert_eq!(refused.status, 400, "{}", refused.text);
    assert!(history(&node)?.is_empty());
    Ok(())
}

#[test]
fn a_plugin_publishes_where_its_binding_says_and_the_channel_takes_it() -> Result<()> {
    let replies = json!([{ "equals": "ping", "text": "pong" }]);
    let node = answering(&replies, &json!({ "grants": ["publish:1/*"] }))?;
    say_all(&node, &["ping"])?;
    let errors = |reason: &str| {
        format!("penstock_plugin_publish_errors_total{{binding=\"{NAME}\",reason=\"{reason}\"}}")
    };
    let until = |series: &str| -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while metric(&node, series)? != Some(1) {
            ensure!(Instant::now() < deadline, "{series} is not 1");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    };
    until(&errors("not-granted"))?;
    assert_eq!(history(&node)?, ["ping"]);
    for (wrong, why) in [
        ("publish", "say in which channels"),
        ("publish:group/*", "publish:2/*"),
    ] {
        let binding = json!({ "plugin": NAME, "hook": "persist-after", "grants": [wrong] });
        let refused = put(node.http(), &format!("/v1/bindings/{NAME}"), &binding)?;
        assert_eq!(refused.status, 400, "{}", refused.text);
        assert!(refused.text.contains(why), "{}", refused.text);
    }
    // A filter of others judges what a plugin sends, as what everybody sends.
    deploy(&node, "profanity-filter", &component("profanity-filter")?)?;
    let words = json!({ "config": { "words": ["pong"], "mode": "reject" } });
    bind_to(&node, "words", "profanity-filter", &words)?;
    let granted = json!({
        "hook": "persist-after", "attempts_max": 0, "grants": ["publish:2/ro*"], "config": { "replies": replies },
    });
    bind_to(&node, NAME, NAME, &granted)?;
    let mut raw = Raw::session(node.websocket(), "alice", "d")?;
    super::say(&mut raw, "second", "ping")?;
    until(&errors("refused"))?;
    assert_eq!(history(&node)?, ["ping", "ping"]);
    Ok(())
}
