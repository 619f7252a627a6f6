//! Where webhooks do not go, what becomes of what is not taken, and how it is delivered once more.

use super::receiver::{Answer, Receiver};
use super::{OTHER_SECRET, SECRET, broker, hook, make, send_all};
use anyhow::{Context, Result};
use penstock_e2e::{Node, binary, get, put, until};
use serde_json::{Value, json};
use std::process::Command;
use std::time::Duration;

/// What the node says to a binding that it refuses.
fn refused(node: &Node, url: &str, secret: &str, grants: &[&str]) -> Result<String> {
    let binding = json!({
        "plugin": "webhook", "hook": "webhook", "grants": grants, "config": { "url": url, "secret": secret },
    });
    let answer = put(node.http(), "/v1/bindings/hook", &binding)?;
    assert_eq!(answer.status, 400, "{url}: {}", answer.text);
    Ok(answer.text)
}

#[test]
fn what_cannot_or_must_not_be_delivered_to_is_refused_when_it_is_bound() -> Result<()> {
    let node = broker(&[SECRET])?;
    for (url, secret, grants, said) in [
        ("http://127.0.0.1:1/", "s", &[][..], "egress:127.0.0.1:1"),
        ("https://127.0.0.1/", "s", &[], "a loopback address"),
        (
            "https://[::ffff:10.0.0.1]/",
            "s",
            &["egress:192.168.0.0/16"],
            "a private address",
        ),
        ("https://169.254.169.254/latest", "s", &[], "metadata"),
        (
            "http://hooks.example.org/",
            "s",
            &["egress:10.0.0.0/8"],
            "not https",
        ),
        (
            "https://me:pw@hooks.example.org/",
            "s",
            &[],
            "a user or a password",
        ),
        ("", "s", &[], "delivered to"),
        ("https://hooks.example.org/", "", &[], "[webhooks.secrets]"),
        ("https://hooks.example.org/", "other", &[], "no `other`"),
        ("https://hooks.example.org/", "s", &["egress:x/y"], "egress:HOST"),
    ] {
        let text = refused(&node, url, secret, grants)?;
        assert!(text.contains(said), "{url}: {text}");
    }
    Ok(())
}

#[test]
fn a_redirect_is_a_failure_and_not_followed() -> Result<()> {
    let node = broker(&[SECRET])?;
    let inside = Receiver::start(&[SECRET], |_| Answer::Status(200))?;
    let elsewhere = inside.url();
    let receiver = Receiver::start(&[SECRET], move |_| Answer::Elsewhere(elsewhere.clone()))?;
    make(&node, "room")?;
    hook(&node, "hook", &receiver, "room", &json!({}))?;
    send_all(&node, "room", 1..=1)?;
    until("a second attempt", || Ok(receiver.seen().len() >= 2))?;
    let failures = "penstock_webhook_failures_total{binding=\"hook\",reason=\"redirect\"}";
    until("it is counted", || Ok(node.counted(failures)? >= 2))?;
    assert!(inside.seen().is_empty() && receiver.taken("room").is_empty());
    Ok(())
}

/// A name may lead anywhere: it is judged by its addresses, when it is asked for them.
#[test]
fn a_name_that_leads_inside_is_not_delivered_to() -> Result<()> {
    let node = broker(&[SECRET])?;
    let receiver = Receiver::start(&[SECRET], |_| Answer::Status(200))?;
    make(&node, "room")?;
    let port = receiver.grant().rsplit(':').next().context("a port")?.to_owned();
    let url = format!("https://localhost:{port}/");
    let more = json!({ "grants": [], "config": { "url": url, "secret": "s" } });
    hook(&node, "hook", &receiver, "room", &more)?;
    send_all(&node, "room", 1..=1)?;
    let failures = "penstock_webhook_failures_total{binding=\"hook\",reason=\"forbidden\"}";
    until("it is counted", || Ok(node.counted(failures)? >= 1))?;
    assert!(receiver.seen().is_empty());
    let status = get(node.http(), "/v1/plugins")?.text;
    assert!(status.contains("a loopback address"), "{status}");
    Ok(())
}

fn plugin(node: &Node, words: &[&str]) -> Result<String> {
    let output = Command::new(binary()?)
        .arg("plugin")
        .args(words)
        .args(["--server", &format!("http://{}", node.http())])
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{words:?}: {said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(said)
}

#[test]
fn what_is_never_taken_becomes_a_dead_letter_and_is_replayed() -> Result<()> {
    let node = broker(&[SECRET])?;
    let receiver = Receiver::start(&[SECRET, OTHER_SECRET], |_| Answer::Status(500))?;
    make(&node, "room")?;
    hook(&node, "hook", &receiver, "room", &json!({ "patience_s": 1 }))?;
    send_all(&node, "room", 1..=2)?;
    let letters = || -> Result<Vec<Value>> {
        let page = get(node.http(), "/v1/bindings/hook/dead-letters")?.body;
        page["dead_letters"].as_array().cloned().context("letters")
    };
    until("two dead letters", || Ok(letters()?.len() == 2))?;
    assert!(letters()?.iter().all(|letter| letter["cause"] == "undelivered"));
    receiver.script(|_| Answer::Status(200));
    // A breaker that the failures have opened lets the next one through after a second or two.
    until("both are replayed", || {
        let _ = Command::new(binary()?)
            .args(["plugin", "dlq", "replay", "--all", "--bind", "hook", "--server"])
            .arg(format!("http://{}", node.http()))
            .output()?;
        Ok(letters()?.is_empty())
    })?;
    assert_eq!(receiver.taken("room"), [1, 2]);
    // The channel goes on behind what was given up.
    send_all(&node, "room", 3..=3)?;
    until("the third", || Ok(receiver.taken("room") == [1, 2, 3]))?;
    Ok(())
}

#[test]
fn a_range_is_delivered_once_more_under_the_same_ids_every_time() -> Result<()> {
    let node = broker(&[SECRET])?;
    let receiver = Receiver::start(&[SECRET], |_| Answer::Status(200))?;
    make(&node, "room")?;
    hook(&node, "hook", &receiver, "room", &json!({}))?;
    for number in 1..=3 {
        send_all(&node, "room", number..=number)?;
        until("it came", || Ok(receiver.taken("room").len() >= number as usize))?;
    }
    let before = receiver.seen();
    let range = ["replay", "hook", "--channel", "room", "--type", "2", "--from"];
    assert!(plugin(&node, &[&range[..], &["2", "--to", "2"]].concat())?.contains("2 to 2"));
    let again = receiver.seen();
    assert_eq!(again.len(), before.len() + 1);
    let (replayed, first) = (&again[before.len()], &before[1]);
    assert_eq!((&replayed.id, &replayed.messages), (&first.id, &first.messages));
    assert_eq!(replayed.verified, [true]);
    plugin(&node, &[&range[..], &["1", "--to", "3"]].concat())?;
    plugin(&node, &[&range[..], &["1", "--to", "3"]].concat())?;
    let last = receiver.seen();
    let two = &last[last.len() - 2..];
    assert_eq!((&two[0].id, two[0].messages.len()), (&two[1].id, 3));
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(receiver.seen().len(), last.len());
    Ok(())
}
