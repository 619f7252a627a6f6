//! From a proposal to a promotion and back, under traffic and over a crash.

use super::{another, history, say, with};
use anyhow::{Context, Result, ensure};
use penstock_e2e::{Node, Raw, component, get, post, propose, until_ready};
use serde_json::{Value, json};

const NAME: &str = "profanity-filter";

fn change(node: &Node, action: &str, wish: &Value) -> Result<Value> {
    let answer = post(node.http(), &format!("/v1/plugins/{NAME}/{action}"), wish)?;
    ensure!(answer.status == 200, "{action}: {}", answer.text);
    Ok(answer.body)
}

/// Messages that a digest has seen on this node.
pub(super) fn judged(node: &Node, digest: &Value) -> Result<u64> {
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
