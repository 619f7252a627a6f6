//! Webhooks hear who comes and goes: with counts, through a crash of the broker and an outage of the endpoint.

use super::receiver::{Answer, Receiver, Seen};
use super::{SECRET, broker, hook};
use anyhow::{Context as _, Result, ensure};
use penstock_e2e::{Node, Raw, delete, put, until};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// A session that came or went, as a receiver reads it from the end of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Status {
    uid: String,
    flag: u8,
    online: bool,
    session: u64,
    of_flag: u32,
    of_user: u32,
}

fn status(text: &Value) -> Result<Status> {
    let text = text.as_str().context("a text")?;
    let parts: Vec<&str> = text.rsplitn(6, '-').collect();
    ensure!(parts.len() == 6, "{text}");
    Ok(Status {
        uid: parts[5].to_owned(),
        flag: parts[4].parse()?,
        online: parts[3] == "1",
        session: parts[2].parse()?,
        of_flag: parts[1].parse()?,
        of_user: parts[0].parse()?,
    })
}

/// What was taken of a user, once.
fn taken(receiver: &Receiver, uid: &str) -> Result<Vec<Status>> {
    let mut contents: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let mut found = Vec::new();
    for Seen {
        id,
        messages,
        taken,
        verified,
        path,
        ..
    } in receiver.seen()
    {
        ensure!(verified == [true], "not verified");
        ensure!(path == "/in?token=t&event=user.onlinestatus", "{path}");
        let known = contents.get(&id);
        ensure!(
            known.is_none_or(|known| *known == messages),
            "{id} has another content"
        );
        if taken && known.is_none() {
            for message in &messages {
                found.push(status(message)?);
            }
            contents.insert(id, messages);
        }
    }
    found.retain(|status| status.uid == uid);
    Ok(found)
}

fn listen(node: &Node, receiver: &Receiver, events: &[&str]) -> Result<()> {
    let config = json!({ "url": receiver.url(), "secret": "s", "events": events });
    hook(
        node,
        "presence",
        receiver,
        "*",
        &json!({ "selector": {}, "config": config }),
    )
}

#[test]
fn two_devices_of_a_user_are_counted_as_they_come_and_go() -> Result<()> {
    let node = broker(&[SECRET])?;
    let receiver = Receiver::start(&[SECRET], |_| Answer::Status(200))?;
    listen(&node, &receiver, &["user.onlinestatus"])?;
    let phone = Raw::session(node.websocket(), "a-my", "phone")?;
    until("the first session", || Ok(taken(&receiver, "a-my")?.len() == 1))?;
    let tablet = Raw::session(node.websocket(), "a-my", "tablet")?;
    until("the second session", || Ok(taken(&receiver, "a-my")?.len() == 2))?;
    drop(phone);
    until(
        "the end of the first",
        || Ok(taken(&receiver, "a-my")?.len() == 3),
    )?;
    drop(tablet);
    until("the end of the second", || {
        Ok(taken(&receiver, "a-my")?.len() == 4)
    })?;
    let seen = taken(&receiver, "a-my")?;
    let counts: Vec<(u8, bool, u32, u32)> = seen
        .iter()
        .map(|status| (status.flag, status.online, status.of_flag, status.of_user))
        .collect();
    assert_eq!(
        counts,
        [
            (1, true, 1, 1),
            (1, true, 2, 2),
            (1, false, 1, 1),
            (1, false, 0, 0)
        ]
    );
    assert_eq!(seen[0].session, seen[2].session);
    assert_eq!(seen[1].session, seen[3].session);
    assert_ne!(seen[0].session, seen[1].session);
    Ok(())
}

#[test]
fn sessions_that_die_with_the_broker_are_told_as_ended_after_its_restart() -> Result<()> {
    let mut node = broker(&[SECRET])?;
    let receiver = Receiver::start(&[SECRET], |_| Answer::Status(200))?;
    listen(&node, &receiver, &["user.onlinestatus"])?;
    let _lost = Raw::session(node.websocket(), "amy", "phone")?;
    until("the session", || Ok(taken(&receiver, "amy")?.len() == 1))?;
    node.kill_and_restart()?;
    until("its end", || Ok(taken(&receiver, "amy")?.len() == 2))?;
    let _next = Raw::session(node.websocket(), "amy", "phone")?;
    until("the next session", || Ok(taken(&receiver, "amy")?.len() == 3))?;
    let seen = taken(&receiver, "amy")?;
    let online: Vec<(bool, u32)> = seen
        .iter()
        .map(|status| (status.online, status.of_user))
        .collect();
    assert_eq!(online, [(true, 1), (false, 0), (true, 1)]);
    assert_eq!(seen[0].session, seen[1].session);
    assert_ne!(seen[0].session, seen[2].session);
    Ok(())
}

#[test]
fn an_outage_of_the_endpoint_loses_nothing() -> Result<()> {
    let node = broker(&[SECRET])?;
    let receiver = Receiver::start(&[SECRET], |_| Answer::Status(500))?;
    listen(&node, &receiver, &["user.onlinestatus"])?;
    let users: Vec<String> = (0..10).map(|number| format!("user{number}")).collect();
    for _ in 0..2 {
        let sessions: Result<Vec<Raw>> = users
            .iter()
            .map(|uid| Raw::session(node.websocket(), uid, "phone"))
            .collect();
        drop(sessions?);
    }
    until("attempts", || Ok(receiver.seen().len() >= 5))?;
    receiver.script(|_| Answer::Status(200));
    for uid in &users {
        until("all of it", || Ok(taken(&receiver, uid)?.len() >= 4))?;
        let online: Vec<bool> = taken(&receiver, uid)?
            .iter()
            .map(|status| status.online)
            .collect();
        // The end of a session and the next one of the same device come in the order in which the broker saw them.
        let began = online.iter().filter(|online| **online).count();
        assert_eq!(
            (online.len(), began, online[0]),
            (4, 2, true),
            "{uid}: {online:?}"
        );
    }
    assert_eq!(node.counted("penstock_online_status_dropped_total")?, 0);
    Ok(())
}

#[test]
fn who_does_not_want_to_hear_of_it_does_not() -> Result<()> {
    let node = broker(&[SECRET])?;
    let receiver = Receiver::start(&[SECRET], |_| Answer::Status(200))?;
    let unknown = json!({
        "plugin": "webhook", "hook": "webhook", "grants": [receiver.grant()],
        "config": { "url": receiver.url(), "secret": "s", "events": ["user.online"] },
    });
    let refused = put(node.http(), "/v1/bindings/presence", &unknown)?;
    assert_eq!(refused.status, 400, "{}", refused.text);
    assert!(refused.text.contains("user.onlinestatus"), "{}", refused.text);
    listen(&node, &receiver, &["msg.notify"])?;
    let session = Raw::session(node.websocket(), "amy", "phone")?;
    std::thread::sleep(Duration::from_millis(1_000));
    drop(session);
    std::thread::sleep(Duration::from_millis(1_000));
    assert_eq!(receiver.seen().len(), 0);
    // Who is there already when the first binding wants to hear of it is told.
    let _open = Raw::session(node.websocket(), "bob", "phone")?;
    listen(&node, &receiver, &["user.onlinestatus"])?;
    until("the open session", || Ok(taken(&receiver, "bob")?.len() == 1))?;
    assert_eq!(taken(&receiver, "amy")?, []);
    Ok(())
}

#[test]
fn who_is_bound_in_place_of_the_last_one_is_told_of_the_sessions_that_are_open() -> Result<()> {
    let node = broker(&[SECRET])?;
    let first = Receiver::start(&[SECRET], |_| Answer::Status(200))?;
    listen(&node, &first, &["user.onlinestatus"])?;
    let users: Vec<String> = (0..8).map(|number| format!("user{number}")).collect();
    let sessions: Result<Vec<Raw>> = users
        .iter()
        .map(|uid| Raw::session(node.websocket(), uid, "phone"))
        .collect();
    let sessions = sessions?;
    for uid in &users {
        until("the first one is told", || Ok(taken(&first, uid)?.len() == 1))?;
    }
    for round in 0..3 {
        let next = Receiver::start(&[SECRET], |_| Answer::Status(200))?;
        ensure!(
            delete(node.http(), "/v1/bindings/presence")?.status == 200,
            "unbound"
        );
        listen(&node, &next, &["user.onlinestatus"])?;
        for uid in &users {
            until("the next one is told", || Ok(!taken(&next, uid)?.is_empty()))?;
            let told: Vec<bool> = taken(&next, uid)?.iter().map(|status| status.online).collect();
            assert_eq!(told, [true], "{uid} in round {round}");
        }
    }
    drop(sessions);
    Ok(())
}
