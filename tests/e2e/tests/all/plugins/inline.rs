//! Filters that have proved to be quick run on the thread of the shard, and lose that when they hold it up.

use super::{bind_to, history, say, with};
use crate::PERSON;
use anyhow::{Context, Result, ensure};
use penstock_e2e::{Node, Raw, component, get, post, propose, until_ready};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const FILTER: &str = "profanity-filter";
const SCRIPTED: &str = "scripted-filter";
/// A busy machine makes calls slow, so that a version has to try again.
const EARNED_WITHIN: Duration = Duration::from_secs(120);

/// Sessions that each write to somebody who is away, one message at a time: each is a call of its own.
struct Crowd {
    sessions: Vec<Raw>,
    sent: usize,
}

impl Crowd {
    fn new(node: &Node) -> Result<Self> {
        let sessions = (0..8).map(|number| Raw::session(node.websocket(), &format!("c{number}"), "d"));
        Ok(Self {
            sessions: sessions.collect::<Result<_>>()?,
            sent: 0,
        })
    }

    /// Each sends a message, which must pass.
    fn round(&mut self) -> Result<()> {
        let id = format!("m{}", self.sent);
        for (number, session) in self.sessions.iter_mut().enumerate() {
            let params = json!({
                "channelId": format!("away{number}"), "channelType": PERSON, "clientMsgNo": id,
                "payload": { "type": 1, "content": "fine" },
            });
            session.call(&id, "send", &params)?;
        }
        for session in &mut self.sessions {
            let answer = session.answer(&id)?;
            ensure!(answer["result"]["reasonCode"] == 1, "{answer}");
        }
        self.sent += 1;
        Ok(())
    }

    /// Writes until the condition holds.
    fn until(&mut self, what: &str, holds: impl Fn() -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + EARNED_WITHIN;
        while !holds()? {
            ensure!(Instant::now() < deadline, "not {what} in time");
            for _ in 0..50 {
                self.round()?;
            }
        }
        Ok(())
    }
}

/// What the node says of the version of a binding, the latest when there are several.
fn version(node: &Node, binding: &str) -> Result<Value> {
    let here = get(node.http(), "/v1/plugins")?.body["here"].clone();
    let versions = here.as_array().context("versions")?;
    let of = versions.iter().filter(|version| version["binding"] == binding);
    of.max_by_key(|version| version["generation"].as_u64())
        .cloned()
        .context("a version")
}

fn is_inline(node: &Node, binding: &str) -> Result<bool> {
    Ok(version(node, binding)?["inline"] == true)
}

fn calls_inline(node: &Node, binding: &str) -> Result<u64> {
    node.counted(&format!(
        "penstock_plugin_calls_inline_total{{binding=\"{binding}\"}}"
    ))
}

fn demoted(node: &Node, why: &str) -> Result<u64> {
    let of_reason = format!("penstock_plugin_demotions_total{{binding=\"{SCRIPTED}\",reason=\"{why}\"}}");
    node.counted(&of_reason)
}

#[test]
fn a_quick_filter_earns_the_thread_of_the_shard_and_judges_as_before() -> Result<()> {
    let node = with(FILTER, &json!({ "config": { "words": ["darn"] } }))?;
    let refusing = json!({ "config": { "words": ["heck"], "mode": "reject", "text": "mind your words" } });
    bind_to(&node, "second", FILTER, &refusing)?;
    let mut crowd = Crowd::new(&node)?;
    // On a busy machine one may have gone back when the other comes.
    crowd.until("both on the shard", || {
        Ok(calls_inline(&node, FILTER)? > 0 && calls_inline(&node, "second")? > 0)
    })?;
    assert!(
        node.counted(&format!(
            "penstock_plugin_promotions_total{{binding=\"{FILTER}\"}}"
        ))? > 0
    );

    let mut raw = Raw::session(node.websocket(), "alice", "d")?;
    for (number, (text, code)) in [("oh darn", 1), ("oh heck", 11), ("well", 1), ("darn heck", 11)]
        .into_iter()
        .enumerate()
    {
        assert_eq!(say(&mut raw, &number.to_string(), text)?["reasonCode"], code);
    }
    assert_eq!(history(&node)?, ["oh ****", "well"]);
    crowd.round()
}

#[test]
fn a_filter_that_turns_slow_goes_back_and_everything_goes_on() -> Result<()> {
    let node = with(SCRIPTED, &json!({ "deadline_ms": 2_000 }))?;
    let mut crowd = Crowd::new(&node)?;
    crowd.until("on the shard", || is_inline(&node, SCRIPTED))?;
    let mut raw = Raw::session(node.websocket(), "alice", "d")?;
    // It takes too long for a shard, and has its deadline still before it.
    assert_eq!(say(&mut raw, "1", "flood")?["reasonCode"], 1);
    assert_eq!(demoted(&node, "overrun")?, 1);
    assert!(!is_inline(&node, SCRIPTED)?);
    let before = calls_inline(&node, SCRIPTED)?;
    crowd.round()?;
    assert_eq!(calls_inline(&node, SCRIPTED)?, before);

    crowd.until("on the shard again", || is_inline(&node, SCRIPTED))?;
    assert_ne!(say(&mut raw, "2", "loop")?["reasonCode"], 1);
    assert_eq!(demoted(&node, "overrun")?, 2);
    // On a busy machine the trap itself may take too long for a shard: then it traps elsewhere.
    let mut traps = (3..6).map(|number| -> Result<bool> {
        crowd.until("on the shard once more", || is_inline(&node, SCRIPTED))?;
        assert_ne!(say(&mut raw, &format!("trap {number}"), "trap")?["reasonCode"], 1);
        Ok(demoted(&node, "trap").is_ok_and(|count| count == 1))
    });
    let trapped = traps.find(|trapped| !matches!(trapped, Ok(false)));
    assert!(trapped.transpose()?.unwrap_or_default());
    assert_eq!(say(&mut raw, "4", "well")?["reasonCode"], 1);
    assert_eq!(history(&node)?, ["flood", "well"]);
    crowd.round()
}

#[test]
fn a_binding_may_forbid_it() -> Result<()> {
    let node = with(FILTER, &json!({ "inline": false }))?;
    let mut crowd = Crowd::new(&node)?;
    bind_to(&node, "second", FILTER, &json!({}))?;
    crowd.until("the other on the shard", || is_inline(&node, "second"))?;
    assert!(!is_inline(&node, FILTER)?);
    assert_eq!(calls_inline(&node, FILTER)?, 0);

    bind_to(&node, "second", FILTER, &json!({ "inline": false }))?;
    let ended = calls_inline(&node, "second")?;
    crowd.round()?;
    assert_eq!(calls_inline(&node, "second")?, ended);
    assert_eq!(version(&node, "second")?["demotions"]["forbidden"], 1);
    Ok(())
}

#[test]
fn swaps_of_a_filter_on_the_shard_lose_nothing() -> Result<()> {
    const SWAPS: usize = 20;
    let node = with(FILTER, &json!({ "config": { "words": ["darn"] } }))?;
    let proposed = propose(&node, FILTER, &super::another(&component(FILTER)?, "two"))?;
    ensure!(proposed.status == 200, "{}", proposed.text);
    until_ready(&node, FILTER)?;
    let change = |action: &str| -> Result<()> {
        let answer = post(node.http(), &format!("/v1/plugins/{FILTER}/{action}"), &json!({}))?;
        ensure!(answer.status == 200, "{action}: {}", answer.text);
        Ok(())
    };
    let on_shard = || -> Result<usize> {
        let here = get(node.http(), "/v1/plugins")?.body["here"].clone();
        let versions = here.as_array().context("versions")?;
        Ok(versions
            .iter()
            .filter(|version| version["inline"] == true)
            .count())
    };
    // Both digests earn it first.
    let mut crowd = Crowd::new(&node)?;
    crowd.until("the first on the shard", || Ok(on_shard()? == 1))?;
    change("promote")?;
    crowd.until("both on the shard", || Ok(on_shard()? == 2))?;

    let (ended, before) = (AtomicBool::new(false), calls_inline(&node, FILTER)?);
    let sent = std::thread::scope(|scope| {
        let sender = scope.spawn(|| -> Result<u64> {
            let mut raw = Raw::session(node.websocket(), "alice", "d")?;
            let mut sent = 0_u64;
            while !ended.load(Ordering::SeqCst) {
                let answer = say(&mut raw, &format!("m{sent}"), &format!("darn {sent}"))?;
                sent += 1;
                ensure!(
                    answer["reasonCode"] == 1 && answer["messageSeq"] == sent,
                    "{answer}"
                );
            }
            Ok(sent)
        });
        let swapped: Result<()> = (0..SWAPS).try_for_each(|_| {
            let calls = calls_inline(&node, FILTER)?;
            change("rollback")?;
            crowd.until("a call on the shard", || Ok(calls_inline(&node, FILTER)? > calls))
        });
        ended.store(true, Ordering::SeqCst);
        swapped?;
        sender.join().expect("the sender")
    })?;
    assert!(sent > 0 && calls_inline(&node, FILTER)? > before);
    let kept = history(&node)?;
    let wanted: Vec<String> = (0..kept.len()).map(|number| format!("**** {number}")).collect();
    assert_eq!(kept, wanted);
    assert_eq!(kept.len() as u64, sent.min(1_000));
    Ok(())
}
