//! Channels as guests reach them: messages are read where the binding says, and nobody publishes without end.

use super::consumers::say_all;
use super::history;
use crate::make_group;
use anyhow::{Context as _, Result, ensure};
use penstock_e2e::{Node, PATIENCE, bind, component, deploy, get, post, put};
use serde_json::{Value, json};
use std::thread;
use std::time::{Duration, Instant};

const NAME: &str = "scripted-publisher";
/// More than a plugin may publish in a second.
const MANY: u64 = 300;

/// A node on which the plugin may do this.
fn granted(grants: &[&str]) -> Result<Node> {
    let node = Node::start(&[])?;
    deploy(&node, NAME, &component(NAME)?)?;
    let binding = json!({ "plugin": NAME, "hook": "persist-after", "deadline_ms": 60_000, "grants": grants });
    bind(&node, NAME, &binding)?;
    make_group(&node, &["alice", "bob"])?;
    Ok(node)
}

/// The rest of the last line of the log that begins so, once there are so many of them.
fn line(node: &Node, begin: &str, count: usize) -> Result<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let logs = get(node.http(), &format!("/v1/bindings/{NAME}/logs"))?.body;
        let lines = logs.as_array().context("lines")?.iter();
        let texts = lines.filter_map(|line| line["text"].as_str());
        let found: Vec<&str> = texts.filter_map(|text| text.strip_prefix(begin)).collect();
        if found.len() >= count {
            return Ok(found[count - 1].to_owned());
        }
        ensure!(Instant::now() < deadline, "no `{begin}`: {logs}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn counted(node: &Node, series: &str) -> Result<u64> {
    node.counted(&format!("{series}}}"))
}

#[test]
fn messages_are_read_in_the_channels_that_are_granted_and_in_no_other() -> Result<()> {
    let node = granted(&["messages:2/room", "publish:2/room"])?;
    let vault = json!({ "channel_id": "vault", "channel_type": 2, "subscribers": ["alice"] });
    assert_eq!(post(node.http(), "/channel", &vault)?.status, 200);
    let secret = json!({
        "from_uid": "alice", "channel_id": "vault", "channel_type": 2, "client_msg_no": "s",
        "payload": "eyJ0eXBlIjoxLCJjb250ZW50IjoiaGVsbG8ifQ==",
    });
    assert_eq!(post(node.http(), "/message/send", &secret)?.status, 200);
    let read = |script: Value| script.to_string();
    let all = read(json!({ "read": "room" }));
    say_all(&node, &["one", "two", "three", &all])?;
    let shown = line(&node, "read room: ", 1)?;
    assert_eq!(shown, format!("1 one, 2 two, 3 three, 4 {all}"));
    say_all(&node, &[&read(json!({ "read": "room", "from": 2, "limit": 2 }))])?;
    assert_eq!(line(&node, "read room: ", 2)?, "2 two, 3 three");
    // Behind the end there is nothing.
    say_all(&node, &[&read(json!({ "read": "room", "from": 1_000 }))])?;
    assert_eq!(line(&node, "read room: ", 3)?, "");
    for other in ["vault", "nowhere", "rooms"] {
        say_all(&node, &[&read(json!({ "read": other }))])?;
        let shown = line(&node, &format!("read {other}: "), 1)?;
        assert_eq!(shown, "not-granted");
    }
    let of = format!("{{binding=\"{NAME}\"");
    assert_eq!(
        counted(&node, &format!("penstock_plugin_message_reads_total{of}"))?,
        3
    );
    let refused = format!("penstock_plugin_message_read_errors_total{of},reason=\"not-granted\"");
    assert_eq!(counted(&node, &refused)?, 3);
    // A grant that names no channels is none.
    for (wrong, why) in [
        ("messages", "say in which channels"),
        ("messages:room", "messages:2/*"),
    ] {
        let binding = json!({ "plugin": NAME, "hook": "persist-after", "grants": [wrong, "publish:2/room"] });
        let answer = put(node.http(), &format!("/v1/bindings/{NAME}"), &binding)?;
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(answer.text.contains(why), "{}", answer.text);
    }
    Ok(())
}

#[test]
fn who_publishes_too_much_is_told_so_and_goes_on_later() -> Result<()> {
    let node = granted(&["messages:2/room", "publish:2/*"])?;
    // A channel that is not there refuses at once: sends are quicker than they may be.
    let flood = json!({ "publish": "nowhere", "text": "x", "times": MANY }).to_string();
    say_all(&node, &[&flood])?;
    let ends = line(&node, "published nowhere: ", 1)?;
    let of = |end: &str| -> u64 {
        let mut ends = ends.split(", ").filter_map(|one| one.split_once(' '));
        let found = ends.find(|(_, name)| *name == end);
        found.and_then(|(count, _)| count.parse().ok()).unwrap_or(0)
    };
    let (refused, rate) = (of("refused"), of("rate"));
    // What it may do in a second, and what came to that meanwhile.
    assert!(refused >= 100 && rate > 0, "{ends}");
    assert_eq!(refused + rate, MANY, "{ends}");
    let errors = |reason: &str| {
        let series = format!("penstock_plugin_publish_errors_total{{binding=\"{NAME}\",reason=\"{reason}\"");
        counted(&node, &series)
    };
    assert_eq!((errors("refused")?, errors("rate")?), (refused, rate));
    // A second later it may publish again.
    thread::sleep(Duration::from_millis(1_100));
    let hello = json!({ "publish": "room", "text": "hello", "times": 3 }).to_string();
    say_all(&node, &[&hello])?;
    assert_eq!(line(&node, "published room: ", 1)?, "3 sent");
    assert_eq!(
        history(&node)?,
        [flood.as_str(), &hello, "hello", "hello", "hello"]
    );
    Ok(())
}
