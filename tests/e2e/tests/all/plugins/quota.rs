//! `quota`: so many messages of a sender in a channel, counted once each over crashes, on every binding of the plugin.

use super::say;
use crate::{GROUP, make_group};
use anyhow::{Result, ensure};
use penstock_e2e::{Node, PATIENCE, Raw, bind, component, deploy, get};
use serde_json::json;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

const NAME: &str = "quota";
const SUCCESS: u8 = 1;
const QUOTA: u64 = 4;
/// A time that does not end while the test runs, but for one moment of the year.
const SECONDS: u64 = 31_622_400;

/// A node on which alice and bob have a quota, and the channel's third has none.
fn limited() -> Result<Node> {
    let node = Node::start(&[])?;
    deploy(&node, NAME, &component(NAME)?)?;
    for (id, hook) in [("quota-count", "persist-after"), ("quota-guard", "before-send")] {
        let binding = json!({
            "plugin": NAME, "hook": hook, "deadline_ms": 5_000, "grants": ["kv", "kv-read"],
            "config": { "messages": QUOTA, "seconds": SECONDS, "unlimited": ["carol"], "text": "enough" },
        });
        bind(&node, id, &binding)?;
    }
    make_group(&node, &["alice", "bob", "carol"])?;
    Ok(node)
}

/// What is counted of a sender in the room.
fn counted(node: &Node, sender: &str) -> Result<Option<String>> {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let time = since_1970.as_secs() / SECONDS;
    let path = format!("/v1/plugins/{NAME}/keys/{time}%2F{GROUP}%2Froom%2F{sender}");
    Ok(get(node.http(), &path)?.body["value"].as_str().map(str::to_owned))
}

fn counted_until(node: &Node, sender: &str, wanted: u64) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = counted(node, sender)?;
        if found == Some(wanted.to_string()) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{sender}: {found:?}, not {wanted}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_sender_has_so_many_messages_also_over_crashes() -> Result<()> {
    let mut node = limited()?;
    for number in 0..QUOTA {
        let mut alice = Raw::session(node.websocket(), "alice", "d")?;
        let answer = say(&mut alice, &format!("a{number}"), "hello")?;
        ensure!(answer["reasonCode"] == SUCCESS, "{number}: {answer}");
        node.kill_and_restart()?;
        counted_until(&node, "alice", number + 1)?;
    }
    let mut alice = Raw::session(node.websocket(), "alice", "d")?;
    let refused = say(&mut alice, "beyond", "hello")?;
    ensure!(refused["reason"] == "enough", "{refused}");
    // Others have their own, or no bound at all.
    let mut bob = Raw::session(node.websocket(), "bob", "d")?;
    assert_eq!(say(&mut bob, "b", "hello")?["reasonCode"], SUCCESS);
    let mut carol = Raw::session(node.websocket(), "carol", "d")?;
    for number in 0..2 * QUOTA {
        assert_eq!(
            say(&mut carol, &format!("c{number}"), "hello")?["reasonCode"],
            SUCCESS
        );
    }
    counted_until(&node, "bob", 1)?;
    assert_eq!(counted(&node, "carol")?, None);
    assert_eq!(counted(&node, "alice")?, Some(QUOTA.to_string()));
    Ok(())
}
