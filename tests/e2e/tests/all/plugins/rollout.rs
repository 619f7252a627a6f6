//! From a proposal to a promotion and back, under traffic and over a crash.

use super::{history, say, with};
use anyhow::{Context, Result, ensure};
use penstock_e2e::{Node, Raw, component, get, post, propose, until_ready};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};

const NAME: &str = "profanity-filter";

/// The same plugin under another digest: a custom section more.
pub(super) fn another(component: &[u8], text: &str) -> Vec<u8> {
    let mut other = component.to_vec();
    let name = b"remark";
    let length = u8::try_from(1 + name.len() + text.len()).expect("short");
    assert!(length < 0x80, "one byte of length");
    other.extend([0, length, 6]);
    other.extend(name);
    other.extend(text.as_bytes());
    other
}

fn change(node: &Node, action: &str, wish: &Value) -> Result<Value> {
    let answer = post(node.http(), &format!("/v1/plugins/{NAME}/{action}"), wish)?;
    ensure!(answer.status == 200, "{action}: {}", answer.text);
    Ok(answer.body)
}

/// Messages that each digest of the binding has judged on this node.
fn judged(node: &Node, digest: &Value) -> Result<u64> {
    let here = get(node.http(), "/v1/plugins")?.body["here"].clone();
    let versions = here.as_array().context("versions")?;
    let version = versions.iter().find(|version| version["digest"] == *digest);
    Ok(version.map_or(0, |version| version["messages"].as_u64().unwrap_or_default()))
}

#[test]
fn a_candidate_takes_its_share_is_promoted_and_rolled_back() -> Result<()> {
    let node = with(NAME, &json!({ "config": { "words": ["darn"] } }))?;
    let first = get(node.http(), "/v1/plugins")?.body["plugins"][0]["active"]["digest"].clone();
    let proposed = propose(&node, NAME, &another(&component(NAME)?, "two"))?;
    ensure!(proposed.status == 200, "{}", proposed.text);
    until_ready(&node, NAME)?;
    let plugin = get(node.http(), "/v1/plugins")?.body["plugins"][0].clone();
    let second = plugin["rollout"]["candidate"]["digest"].clone();
    assert_ne!(first, second);

    let mut raw = Raw::session(node.websocket(), "alice", "d")?;
    say(&mut raw, "1", "darn")?;
    assert_eq!((judged(&node, &first)?, judged(&node, &second)?), (1, 0));
    change(&node, "canary", &json!({ "percent": 100 }))?;
    say(&mut raw, "2", "darn")?;
    assert_eq!(judged(&node, &second)?, 1);
    change(&node, "canary", &json!({ "percent": 0 }))?;
    say(&mut raw, "3", "darn")?;
    assert_eq!(judged(&node, &second)?, 1);

    change(&node, "promote", &json!({}))?;
    say(&mut raw, "4", "darn")?;
    let plugin = get(node.http(), "/v1/plugins")?.body["plugins"][0].clone();
    assert_eq!(
        (&plugin["active"]["digest"], &plugin["previous"]["digest"]),
        (&second, &first)
    );
    change(&node, "rollback", &json!({}))?;
    say(&mut raw, "5", "darn")?;
    let plugin = get(node.http(), "/v1/plugins")?.body["plugins"][0].clone();
    assert_eq!(plugin["active"]["digest"], first);
    assert_eq!(history(&node)?, ["****"; 5]);
    Ok(())
}

#[test]
fn swaps_under_traffic_lose_nothing() -> Result<()> {
    const SWAPS: usize = 20;
    let node = with(NAME, &json!({ "config": { "words": ["darn"] } }))?;
    let proposed = propose(&node, NAME, &another(&component(NAME)?, "two"))?;
    ensure!(proposed.status == 200, "{}", proposed.text);
    until_ready(&node, NAME)?;
    change(&node, "promote", &json!({}))?;
    let ended = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let sender = scope.spawn(|| -> Result<usize> {
            let mut raw = Raw::session(node.websocket(), "alice", "d")?;
            let mut sent = 0;
            while !ended.load(Ordering::SeqCst) {
                let answer = say(&mut raw, &format!("m{sent}"), &format!("darn {sent}"))?;
                ensure!(answer["reasonCode"] == 1, "{answer}");
                sent += 1;
            }
            Ok(sent)
        });
        let swapped: Result<()> =
            (0..SWAPS).try_for_each(|_| change(&node, "rollback", &json!({})).map(drop));
        ended.store(true, Ordering::SeqCst);
        swapped?;
        sender.join().expect("the sender")
    })?;
    assert!(sent > 0);
    let plugin = get(node.http(), "/v1/plugins")?.body["plugins"][0].clone();
    for side in ["active", "previous"] {
        assert!(
            judged(&node, &plugin[side]["digest"])? > 0,
            "{side} has judged nothing"
        );
    }
    let wanted: Vec<String> = (0..sent).map(|number| format!("**** {number}")).collect();
    let kept = history(&node)?;
    assert_eq!(kept, wanted[..kept.len()]);
    assert_eq!(kept.len(), sent.min(1_000));
    Ok(())
}

#[test]
fn nothing_passes_by_a_filter_after_a_crash() -> Result<()> {
    let mut node = with(NAME, &json!({ "config": { "words": ["darn"] } }))?;
    for round in 0..3 {
        node.kill_and_restart()?;
        let mut raw = Raw::session(node.websocket(), "alice", "d")?;
        assert_eq!(say(&mut raw, &format!("m{round}"), "darn")?["reasonCode"], 1);
    }
    assert_eq!(history(&node)?, ["****"; 3]);
    Ok(())
}
