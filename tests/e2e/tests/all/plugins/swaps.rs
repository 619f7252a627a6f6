//! A hundred changes of the version that runs, while messages come: none fails, none is lost, and none is missed, counted twice or taken out of
//! order by what follows the channel.

use super::keys::{TALLY, key, key_until, tallied};
use super::rollout::judged;
use super::{another, history, say, with};
use anyhow::{Context, Result, ensure};
use penstock_e2e::{Node, Raw, component, get, post, propose, until_ready};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};

const FILTER: &str = "profanity-filter";
const SWAPS: usize = 100;

fn change(node: &Node, name: &str, action: &str) -> Result<()> {
    let answer = post(node.http(), &format!("/v1/plugins/{name}/{action}"), &json!({}))?;
    ensure!(answer.status == 200, "{action}: {}", answer.text);
    Ok(())
}

/// Swaps two versions of a plugin, one after the other and back, while texts are sent, and calls `look` after each swap. How many were
/// sent: every one of them was acknowledged.
fn swap(
    node: &Node,
    name: &str,
    text: impl Fn(usize) -> String + Sync,
    mut look: impl FnMut() -> Result<()>,
) -> Result<usize> {
    let proposed = propose(node, name, &another(&component(name)?, "two"))?;
    ensure!(proposed.status == 200, "{}", proposed.text);
    until_ready(node, name)?;
    change(node, name, "promote")?;
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| -> Result<usize> {
            let mut raw = Raw::session(node.websocket(), "alice", "d")?;
            let mut sent = 0;
            while !ended.load(Ordering::SeqCst) {
                let answer = say(&mut raw, &format!("m{sent}"), &text(sent))?;
                ensure!(answer["reasonCode"] == 1, "{answer}");
                sent += 1;
            }
            Ok(sent)
        });
        let swapped: Result<()> = (0..SWAPS).try_for_each(|_| {
            change(node, name, "rollback")?;
            look()
        });
        ended.store(true, Ordering::SeqCst);
        swapped?;
        sender.join().expect("the sender")
    })
}

/// Both versions have done their part.
fn both_worked(node: &Node, name: &str) -> Result<()> {
    let plugins = get(node.http(), "/v1/plugins")?.body["plugins"].clone();
    let mut plugins = plugins.as_array().context("plugins")?.iter();
    let plugin = plugins
        .find(|plugin| plugin["name"] == name)
        .context("the plugin")?;
    for side in ["active", "previous"] {
        let seen = judged(node, &plugin[side]["digest"])?;
        assert!(seen > 0, "{side} has seen nothing");
    }
    Ok(())
}

#[test]
fn swaps_of_a_filter_under_traffic_lose_nothing() -> Result<()> {
    let node = with(FILTER, &json!({ "config": { "words": ["darn"] } }))?;
    let sent = swap(&node, FILTER, |number| format!("darn {number}"), || Ok(()))?;
    both_worked(&node, FILTER)?;
    let wanted: Vec<String> = (0..sent).map(|number| format!("**** {number}")).collect();
    let kept = history(&node)?;
    assert_eq!(kept, wanted[..kept.len()]);
    assert_eq!(kept.len(), sent.min(1_000));
    Ok(())
}

/// The number in the message that the consumer took last.
fn last_taken(node: &Node) -> Result<Option<usize>> {
    let Some(payload) = key(node, TALLY, "last")? else {
        return Ok(None);
    };
    let payload: Value = serde_json::from_str(&payload)?;
    let content = payload["content"].as_str().context("a content")?;
    let number = content.split(' ').next().context("a number")?;
    Ok(Some(number.parse()?))
}

#[test]
fn swaps_of_a_consumer_miss_nothing_and_keep_the_order() -> Result<()> {
    let node = tallied(&json!({}))?;
    let mut last = None;
    let look = || {
        let now = last_taken(&node)?;
        ensure!(now >= last, "{now:?} after {last:?}");
        last = now;
        Ok(())
    };
    let sent = swap(&node, TALLY, |number| format!("{number} set:last"), look)?;
    both_worked(&node, TALLY)?;
    key_until(&node, TALLY, "messages%2F2%2Froom", Some(&sent.to_string()))?;
    assert_eq!(last_taken(&node)?, sent.checked_sub(1));
    Ok(())
}
