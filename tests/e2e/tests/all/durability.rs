//! Twenty kills in mid-burst: what was acknowledged is there once, in order, with the same id and seq; what was open
//! resolves to one record.

use crate::{GROUP, HELLO, make_group, send};
use anyhow::{Result, ensure};
use penstock_e2e::{Node, Response, get, post};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Kills.
const ROUNDS: usize = 20;
/// Senders at once.
const SENDERS: usize = 4;
/// Acknowledged sends of a round before the kill.
const BEFORE_THE_KILL: usize = 25;

/// What a sender saw: its numbers in order, each with the answer if one came.
type Seen = Vec<(String, Option<(String, u64)>)>;

fn answer_of(response: &Response) -> Option<(String, u64)> {
    let id = response.body["message_idstr"].as_str()?.to_owned();
    let seq = response.body["message_seq"].as_u64()?;
    (response.status == 200 && response.body["reason"] == 1).then_some((id, seq))
}

/// Sends until the node is gone; the last number has no answer.
fn burst(node: &Node, sender: usize, round: usize, stop: &AtomicBool) -> Seen {
    let mut seen = Vec::new();
    for number in 0.. {
        let name = format!("s{sender}-r{round}-{number}");
        let answer = send(node, "alice", &name, HELLO)
            .ok()
            .as_ref()
            .and_then(answer_of);
        let open = answer.is_none();
        seen.push((name, answer));
        if open || stop.load(Ordering::Relaxed) {
            break;
        }
    }
    seen
}

#[test]
fn a_disk_that_is_nearly_full_takes_no_sends_and_says_so() -> Result<()> {
    let mut node = Node::start(&[])?;
    make_group(&node, &["alice", "bob"])?;
    let before = send(&node, "alice", "before", HELLO)?;
    assert_eq!(before.body["reason"], 1, "{before:?}");
    let history = json!({ "login_uid": "bob", "channel_id": "room", "channel_type": GROUP, "limit": 10 });
    // No disk has that much room: from now on it counts as nearly full.
    node.restart_with(&["--set", "store.low_space_bytes=1000000000000000"])?;
    let refused = send(&node, "alice", "during", HELLO)?;
    assert_eq!(refused.status, 503, "{refused:?}");
    let said = get(node.http(), "/readyz")?;
    assert!(
        said.body["sends"]
            .as_str()
            .is_some_and(|why| why.contains("store.low_space_bytes"))
    );
    let kept = post(node.http(), "/channel/messagesync", &history)?;
    assert_eq!(
        kept.body["messages"].as_array().map(Vec::len),
        Some(1),
        "{kept:?}"
    );
    node.restart_with(&["--set", "store.low_space_bytes=0"])?;
    let after = send(&node, "alice", "after", HELLO)?;
    assert_eq!(
        (&after.body["reason"], &after.body["message_seq"]),
        (&json!(1), &json!(2))
    );
    Ok(())
}

#[test]
fn twenty_kills_in_mid_burst_lose_and_repeat_nothing() -> Result<()> {
    let mut node = Node::start(&[])?;
    make_group(&node, &["alice", "bob"])?;
    let mut known: BTreeMap<String, (String, u64)> = BTreeMap::new();
    let mut open = 0;
    for round in 0..ROUNDS {
        let stop = AtomicBool::new(false);
        let seen = thread::scope(|scope| -> Result<Vec<Seen>> {
            let bursts: Vec<_> = (0..SENDERS)
                .map(|sender| {
                    let (node, stop) = (&node, &stop);
                    scope.spawn(move || burst(node, sender, round, stop))
                })
                .collect();
            // A fifth sender decides when: after so many of its own sends were acknowledged, the others are in the middle.
            for number in 0..BEFORE_THE_KILL {
                let name = format!("k-r{round}-{number}");
                let answer = send(&node, "alice", &name, HELLO)?;
                known.insert(
                    name,
                    answer_of(&answer).ok_or_else(|| anyhow::anyhow!("{answer:?}"))?,
                );
            }
            node.kill_shared()?;
            stop.store(true, Ordering::Relaxed);
            Ok(bursts.into_iter().filter_map(|burst| burst.join().ok()).collect())
        })?;
        node.restart()?;
        for (name, answer) in seen.into_iter().flatten() {
            // What was acknowledged must be told again; what was open is settled by its retry.
            open += usize::from(answer.is_none());
            let again = send(&node, "alice", &name, HELLO)?;
            let settled = answer_of(&again).ok_or_else(|| anyhow::anyhow!("{name}: {again:?}"))?;
            if let Some(answer) = answer {
                assert_eq!(answer, settled, "{name} of round {round}");
            }
            known.insert(name, settled);
        }
    }
    ensure!(open > 0, "no kill met a send under way: the test shows nothing");
    check_history(&node, &known)
}

/// Every known send stands once in the history, with its id and seq, and nothing else does.
fn check_history(node: &Node, known: &BTreeMap<String, (String, u64)>) -> Result<()> {
    let question = json!({
        "login_uid": "bob", "channel_id": "room", "channel_type": GROUP,
        "start_message_seq": 1, "end_message_seq": 0, "limit": 10_000, "pull_mode": 1,
    });
    let history = post(node.http(), "/channel/messagesync", &question)?;
    let messages = history.body["messages"].as_array().cloned().unwrap_or_default();
    let seqs: Vec<&Value> = messages.iter().map(|message| &message["message_seq"]).collect();
    assert!(
        (1..).zip(&seqs).all(|(seq, found)| **found == seq),
        "gaps or repeats: {seqs:?}"
    );
    let found: BTreeMap<String, (String, u64)> = messages
        .iter()
        .map(|message| {
            let text = |name: &str| message[name].as_str().unwrap_or_default().to_owned();
            (
                text("client_msg_no"),
                (
                    text("message_idstr"),
                    message["message_seq"].as_u64().unwrap_or_default(),
                ),
            )
        })
        .collect();
    assert_eq!(found.len(), messages.len(), "a number stands twice");
    assert_eq!(&found, known);
    Ok(())
}
