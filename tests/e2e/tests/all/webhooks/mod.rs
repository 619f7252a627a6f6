//! Webhooks through the binary: what a receiver sees of committed messages, whatever happens to it or to the broker.

mod bombs;
mod crashes;
mod offline;
mod online_status;
mod receiver;
mod refused;

use crate::{GROUP, HELLO};
use anyhow::{Context, Result, ensure};
use penstock_e2e::{Node, binary, component, deploy, get, post, put, until};
use receiver::{Answer, Receiver};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER_SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

/// A node with these secrets under the name `s`, and the webhook plugin.
fn broker(secrets: &[&str]) -> Result<Node> {
    let node = Node::start(&["--set", &format!("webhooks.secrets={{ s = {secrets:?} }}")])?;
    deploy(&node, "webhook", &component("webhook")?)?;
    Ok(node)
}

/// Binds the webhook to a receiver, for the channels of this pattern; what `more` says comes on top.
fn hook(node: &Node, id: &str, receiver: &Receiver, pattern: &str, more: &Value) -> Result<()> {
    let mut binding = json!({
        "plugin": "webhook", "hook": "webhook", "grants": [receiver.grant()],
        "selector": { "channel_ids": [pattern] },
        "config": { "url": receiver.url(), "secret": "s" },
    });
    for (key, value) in more.as_object().context("an object")? {
        binding[key] = value.clone();
    }
    let bound = put(node.http(), &format!("/v1/bindings/{id}"), &binding)?;
    ensure!(bound.status == 200, "the binding was refused: {}", bound.text);
    Ok(())
}

fn make(node: &Node, channel: &str) -> Result<()> {
    let group = json!({ "channel_id": channel, "channel_type": GROUP, "subscribers": ["alice", "bob"] });
    ensure!(post(node.http(), "/channel", &group)?.status == 200, "no channel");
    Ok(())
}

/// Sends a message, and says whether it was acknowledged.
fn send_to(http: &str, channel: &str, number: &str) -> Result<bool> {
    let message = json!({
        "from_uid": "alice", "channel_id": channel, "channel_type": GROUP, "client_msg_no": number, "payload": HELLO,
    });
    let answer = post(http, "/message/send", &message)?;
    Ok(answer.status == 200 && answer.body["message_seq"].as_u64().is_some_and(|seq| seq > 0))
}

fn send_all(node: &Node, channel: &str, numbers: std::ops::RangeInclusive<u32>) -> Result<()> {
    for number in numbers {
        ensure!(
            send_to(node.http(), channel, &format!("{channel}-{number}"))?,
            "{number} was not sent"
        );
    }
    Ok(())
}

/// The binding as the API shows it.
fn shown(node: &Node, id: &str) -> Result<Value> {
    let bindings = get(node.http(), "/v1/bindings")?.body["bindings"].clone();
    let found = bindings
        .as_array()
        .and_then(|all| all.iter().find(|binding| binding["id"] == id));
    Ok(found.cloned().unwrap_or_default())
}

#[test]
fn messages_arrive_verified_in_order_and_as_the_contract_says() -> Result<()> {
    let node = broker(&[SECRET])?;
    let receiver = Receiver::start(&[SECRET, OTHER_SECRET], |_| Answer::Status(204))?;
    make(&node, "room")?;
    hook(&node, "hook", &receiver, "room", &json!({}))?;
    send_all(&node, "room", 1..=30)?;
    until("30 messages", || Ok(receiver.taken("room").len() >= 30))?;
    assert_eq!(receiver.taken("room"), (1..=30).collect::<Vec<u64>>());
    let seen = receiver.seen();
    assert!(seen.iter().all(|seen| seen.verified == [true, false]));
    assert!(
        seen.iter()
            .all(|seen| seen.path == "/in?token=t&event=msg.notify")
    );
    let ids: BTreeSet<&str> = seen.iter().map(|seen| seen.id.as_str()).collect();
    assert!(ids.len() == seen.len() && ids.iter().all(|id| id.starts_with("msg_") && !id.contains('.')));
    let first = &seen[0].messages[0];
    assert_eq!(
        json!([
            first["from_uid"],
            first["channel_id"],
            first["channel_type"],
            first["client_msg_no"],
            first["payload"]
        ]),
        json!(["alice", "room", GROUP, "room-1", HELLO])
    );
    assert_eq!(first["header"]["no_persist"], 0);
    assert_eq!(
        first["message_id"].to_string(),
        first["message_idstr"].as_str().context("a text")?
    );
    let metrics = get(node.http(), "/metrics")?.text;
    assert!(
        metrics.contains("penstock_webhook_failures_total{binding=\"hook\",reason=\"timeout\"} 0"),
        "{metrics}"
    );
    assert!(!metrics.contains("MfKQ9r8"));
    let status = get(node.http(), "/v1/plugins")?.text;
    assert!(
        status.contains("\"breaker\":\"closed\"") && !status.contains("MfKQ9r8"),
        "{status}"
    );
    Ok(())
}

#[test]
fn what_is_not_taken_comes_again_the_same_and_holds_up_what_follows() -> Result<()> {
    let node = broker(&[SECRET])?;
    let receiver = Receiver::start(&[SECRET], |number| match number {
        0 => Answer::Status(500),
        1 => Answer::Status(404),
        2 => Answer::Later(2),
        _ => Answer::Status(200),
    })?;
    make(&node, "room")?;
    hook(&node, "hook", &receiver, "room", &json!({}))?;
    send_all(&node, "room", 1..=5)?;
    until("5 messages", || Ok(receiver.taken("room").len() >= 5))?;
    assert_eq!(receiver.taken("room"), [1, 2, 3, 4, 5]);
    let seen = receiver.seen();
    for again in &seen[1..4] {
        assert_eq!((&again.id, &again.messages), (&seen[0].id, &seen[0].messages));
        assert_eq!(again.verified, [true]);
    }
    assert!(
        seen[3].at - seen[2].at >= Duration::from_secs(2),
        "Retry-After is kept"
    );
    Ok(())
}

#[test]
fn an_endpoint_that_is_gone_is_left_alone_until_it_is_enabled() -> Result<()> {
    let mut node = broker(&[SECRET])?;
    let receiver = Receiver::start(&[SECRET], |_| Answer::Status(410))?;
    make(&node, "room")?;
    hook(&node, "hook", &receiver, "room", &json!({}))?;
    send_all(&node, "room", 1..=2)?;
    until("it is disabled", || {
        Ok(shown(&node, "hook")?["disabled"]["by"] == "gone")
    })?;
    let attempts = receiver.seen().len();
    send_all(&node, "room", 3..=4)?;
    node.kill_and_restart()?;
    send_all(&node, "room", 5..=5)?;
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(receiver.seen().len(), attempts, "nothing is sent to it");
    receiver.script(|_| Answer::Status(200));
    let enabled = Command::new(binary()?)
        .args([
            "plugin",
            "enable",
            "hook",
            "--server",
            &format!("http://{}", node.http()),
        ])
        .output()?;
    assert!(enabled.status.success(), "{enabled:?}");
    until("5 messages", || Ok(receiver.taken("room").len() >= 5))?;
    assert_eq!(receiver.taken("room"), [1, 2, 3, 4, 5]);
    assert_eq!(shown(&node, "hook")?["disabled"], Value::Null);
    Ok(())
}

#[test]
fn during_a_rotation_both_secrets_verify() -> Result<()> {
    let node = broker(&[OTHER_SECRET, SECRET])?;
    let receiver = Receiver::start(&[SECRET, OTHER_SECRET], |_| Answer::Status(200))?;
    make(&node, "room")?;
    hook(&node, "hook", &receiver, "room", &json!({}))?;
    send_all(&node, "room", 1..=1)?;
    until("a message", || Ok(!receiver.taken("room").is_empty()))?;
    assert_eq!(receiver.seen()[0].verified, [true, true]);
    Ok(())
}

#[test]
fn an_endpoint_that_hangs_delays_neither_another_one_nor_a_sender() -> Result<()> {
    let node = broker(&[SECRET])?;
    let hanging = Receiver::start(&[SECRET], |_| Answer::Hang(Duration::from_secs(600)))?;
    let quick = Receiver::start(&[SECRET], |_| Answer::Status(200))?;
    for number in 0..20 {
        make(&node, &format!("room{number}"))?;
    }
    hook(
        &node,
        "hanging",
        &hanging,
        "room*",
        &json!({ "deadline_ms": 60_000 }),
    )?;
    hook(&node, "quick", &quick, "room*", &json!({}))?;
    let mut slowest = Duration::ZERO;
    for round in 1..=5 {
        for number in 0..20 {
            let began = Instant::now();
            let channel = format!("room{number}");
            assert!(send_to(node.http(), &channel, &format!("{channel}-{round}"))?);
            slowest = slowest.max(began.elapsed());
        }
    }
    // So long is a machine with other things to do slow; a hanging endpoint takes a minute.
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    let began = Instant::now();
    until("100 messages", || {
        let taken: usize = (0..20)
            .map(|number| quick.taken(&format!("room{number}")).len())
            .sum();
        Ok(taken >= 100)
    })?;
    assert!(began.elapsed() < Duration::from_secs(10));
    assert!(!hanging.seen().is_empty());
    Ok(())
}
