//! Keys of plugins: exact over crashes, read by a filter, refused with a reason, and looked after by operators.

use super::consumers::say_all;
use super::desk::Desk;
use super::{history, say};
use crate::{GROUP, make_group};
use anyhow::{Context, Result, ensure};
use penstock_e2e::{Node, PATIENCE, Raw, bind, component, delete, deploy, get, post, put};
use serde_json::{Value, json};
use std::thread;
use std::time::{Duration, Instant};

pub(super) const TALLY: &str = "tally";
const SUCCESS: u8 = 1;

/// A node on which every message is tallied; what `binding` says comes on top.
pub(super) fn tallied(binding: &Value) -> Result<Node> {
    let node = Node::start(&[])?;
    deploy(&node, TALLY, &component(TALLY)?)?;
    // Room enough for a busy machine.
    let mut whole =
        json!({ "plugin": TALLY, "hook": "persist-after", "deadline_ms": 5_000, "grants": ["kv"] });
    for (key, value) in binding.as_object().context("an object")? {
        whole[key] = value.clone();
    }
    bind(&node, TALLY, &whole)?;
    make_group(&node, &["alice", "bob"])?;
    Ok(node)
}

fn path(plugin: &str, key: &str) -> String {
    format!("/v1/plugins/{plugin}/keys/{key}")
}

/// The text of a key; none when it is not there.
pub(super) fn key(node: &Node, plugin: &str, key: &str) -> Result<Option<String>> {
    let found = get(node.http(), &path(plugin, key))?;
    Ok(found.body["value"].as_str().map(str::to_owned))
}

/// Waits until a key has this text.
pub(super) fn key_until(node: &Node, plugin: &str, name: &str, wanted: Option<&str>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = key(node, plugin, name)?;
        if found.as_deref() == wanted {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{name} is {found:?}, not {wanted:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Sends until the node is gone, or so many messages are sent.
fn burst(address: &str, round: u32) -> thread::JoinHandle<()> {
    let address = address.to_owned();
    thread::spawn(move || {
        for number in 0..120 {
            let message = json!({
                "from_uid": "alice", "channel_id": "room", "channel_type": GROUP,
                "client_msg_no": format!("{round}-{number}"), "payload": "eyJ0eXBlIjoxLCJjb250ZW50IjoiaGkifQ==",
            });
            if post(&address, "/message/send", &message).is_err() {
                return;
            }
        }
    })
}

#[test]
fn a_counter_is_exact_over_crashes_in_the_middle_of_bursts() -> Result<()> {
    let mut node = tallied(&json!({}))?;
    for round in 0..6 {
        let sender = burst(node.http(), round);
        thread::sleep(Duration::from_millis(150 + u64::from(round) * 40));
        node.kill_and_restart()?;
        sender.join().expect("no panic");
    }
    // Nobody says anything any more.
    let sent = history(&node)?.len().to_string();
    key_until(&node, TALLY, "messages%2F2%2Froom", Some(&sent))?;
    key_until(&node, TALLY, "from%2Falice", Some(&sent))?;
    // Nothing is on its way any more that would count once more.
    thread::sleep(Duration::from_millis(500));
    assert_eq!(key(&node, TALLY, "messages%2F2%2Froom")?, Some(sent.clone()));
    assert_eq!(key(&node, TALLY, "from%2Falice")?, Some(sent));
    Ok(())
}

/// Causes of the dead letters, by position.
fn causes(node: &Node) -> Result<Vec<(u64, String)>> {
    let page = get(node.http(), &format!("/v1/bindings/{TALLY}/dead-letters"))?.body;
    let letters = page["dead_letters"].as_array().context("letters")?;
    let cause = |letter: &Value| {
        let seq = letter["message_seq"].as_u64().context("a position")?;
        Ok((seq, letter["cause"].as_str().context("a cause")?.to_owned()))
    };
    letters.iter().map(cause).collect()
}

/// Waits until these are the dead letters: a key may count a message that is about to be given up.
fn causes_until(node: &Node, wanted: &[(u64, &str)]) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = causes(node)?;
        let same = |(found, wanted): (&(u64, String), &(u64, &str))| (found.0, found.1.as_str()) == *wanted;
        if found.len() == wanted.len() && found.iter().zip(wanted).all(same) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{found:?}, not {wanted:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_cannot_be_kept_becomes_a_dead_letter_that_says_why() -> Result<()> {
    let node = tallied(&json!({ "attempts_max": 2 }))?;
    let text = put(
        node.http(),
        &path(TALLY, "text"),
        &json!({ "value": "no number" }),
    )?;
    assert_eq!(text.status, 200, "{}", text.text);
    say_all(&node, &["first", "second add:text", "third"])?;
    // Each slot decides for its own keys: the others count the message that is given up.
    key_until(&node, TALLY, "messages%2F2%2Froom", Some("3"))?;
    causes_until(&node, &[(2, "key-not-a-number")])?;
    // Keys beside one in its slot until there is no room for another one.
    let large = json!({ "value": "x".repeat(60_000) });
    let full = (0..4_000).find_map(|number| {
        let put = put(node.http(), &path(TALLY, &format!("fill{number}")), &large);
        put.map(|put| (put.status == 507).then_some(number)).transpose()
    });
    let full = full.context("no slot is full")??;
    let fourth = format!("fourth set:fill{full} {}", "y".repeat(25_000));
    let mut alice = Raw::session(node.websocket(), "alice", "d")?;
    assert_eq!(say(&mut alice, "4", &fourth)?["reasonCode"], SUCCESS);
    assert_eq!(say(&mut alice, "5", "fifth")?["reasonCode"], SUCCESS);
    key_until(&node, TALLY, "messages%2F2%2Froom", Some("5"))?;
    causes_until(&node, &[(2, "key-not-a-number"), (4, "key-quota")])
}

#[test]
fn operators_list_read_change_and_delete_keys() -> Result<()> {
    let mut node = tallied(&json!({}))?;
    say_all(&node, &["first add:visits", "second add:visits"])?;
    key_until(&node, TALLY, "visits", Some("2"))?;
    let more = put(node.http(), &path(TALLY, "visits"), &json!({ "increment": 40 }))?;
    assert_eq!(more.body["value"], "42", "{}", more.text);
    let set = put(
        node.http(),
        &path(TALLY, "a%2Fb"),
        &json!({ "value": "c", "ttl_ms": 600_000 }),
    )?;
    assert_eq!(set.status, 200, "{}", set.text);
    let brief = put(
        node.http(),
        &path(TALLY, "brief"),
        &json!({ "value": "x", "ttl_ms": 50 }),
    )?;
    assert_eq!(brief.status, 200);
    key_until(&node, TALLY, "brief", None)?;
    node.kill_and_restart()?;
    key_until(&node, TALLY, "visits", Some("42"))?;
    let desk = Desk::of(&node)?;
    let of_it = ["--plugin", TALLY, "--server", &desk.server];
    let keys = |words: &[&str]| desk.says(&[&["keys"][..], words, &of_it].concat());
    let listed = keys(&["list"])?;
    for line in [
        "visits  2 bytes",
        "a/b  1 bytes, until ",
        "from/alice  1 bytes",
        "of tally",
    ] {
        assert!(listed.contains(line), "no `{line}`: {listed}");
    }
    assert!(!listed.contains("brief"), "{listed}");
    assert_eq!(keys(&["get", "a/b"])?, "c\n");
    keys(&["set", "a/b", "d"])?;
    assert_eq!(key(&node, TALLY, "a%2Fb")?.as_deref(), Some("d"));
    assert_eq!(delete(node.http(), &path(TALLY, "visits"))?.status, 200);
    assert_eq!(get(node.http(), &path(TALLY, "visits"))?.status, 404);
    let gone = desk.complains(&[&["keys", "get", "visits"][..], &of_it].concat())?;
    assert!(gone.contains("no such key"), "{gone}");
    keys(&["delete", "--all"])?;
    assert!(keys(&[])?.contains("0 keys of tally"));
    let metrics = get(node.http(), "/metrics")?.text;
    assert!(metrics.contains("penstock_key_changes_total"), "{metrics}");
    Ok(())
}

/// What becomes of a text that bob says.
fn bob_says(bob: &mut Raw, number: u32) -> Result<Value> {
    say(bob, &format!("b{number}"), "hello")
}

#[test]
fn a_moderator_mutes_by_a_message_and_the_filter_reads_it() -> Result<()> {
    const NAME: &str = "mute";
    let mut node = Node::start(&[])?;
    deploy(&node, NAME, &component(NAME)?)?;
    for (id, hook) in [("mute-read", "persist-after"), ("mute-guard", "before-send")] {
        let binding = json!({
            "plugin": NAME, "hook": hook, "deadline_ms": 5_000, "grants": ["kv", "kv-read"],
            "config": { "moderators": ["alice"], "text": "muted" },
        });
        bind(&node, id, &binding)?;
    }
    make_group(&node, &["alice", "bob"])?;
    let mut bob = Raw::session(node.websocket(), "bob", "d")?;
    assert_eq!(bob_says(&mut bob, 0)?["reasonCode"], SUCCESS);
    say_all(&node, &["/mute bob"])?;
    let deadline = Instant::now() + PATIENCE;
    for number in 1.. {
        let answer = bob_says(&mut bob, number)?;
        if answer["reason"] == "muted" {
            break;
        }
        ensure!(Instant::now() < deadline, "{answer}");
        thread::sleep(Duration::from_millis(50));
    }
    // It is kept: another process knows it from the first message on.
    node.kill_and_restart()?;
    let mut bob = Raw::session(node.websocket(), "bob", "d")?;
    assert_eq!(bob_says(&mut bob, 10_000)?["reason"], "muted");
    say_all(&node, &["/unmute bob"])?;
    let deadline = Instant::now() + PATIENCE;
    for number in 20_000.. {
        let answer = bob_says(&mut bob, number)?;
        if answer["reasonCode"] == SUCCESS {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{answer}");
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
