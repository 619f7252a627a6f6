//! The event `msg.offline`: who has no session when a message comes.

use super::receiver::{Answer, Receiver, Seen};
use super::{SECRET, broker, hook, make, send_all};
use crate::GROUP;
use anyhow::Result;
use penstock_e2e::{Raw, get, post, until};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What the configuration of a binding says for these events.
fn config(receiver: &Receiver, events: &[&str]) -> Value {
    json!({ "config": { "url": receiver.url(), "secret": "s", "events": events } })
}

fn of_event(receiver: &Receiver, event: &str) -> Vec<Seen> {
    let mut seen = receiver.seen();
    seen.retain(|seen| seen.path.ends_with(&format!("event={event}")));
    seen
}

#[test]
fn who_is_offline_is_delivered_verified_beside_the_message() -> Result<()> {
    let node = broker(&[SECRET])?;
    // The first request fails, and comes again as it was.
    let receiver = Receiver::start(&[SECRET], |number| {
        Answer::Status(if number == 0 { 500 } else { 204 })
    })?;
    make(&node, "room")?;
    let events = ["msg.offline"];
    hook(&node, "hook", &receiver, "room", &config(&receiver, &events))?;
    send_all(&node, "room", 1..=3)?;
    until("3 messages", || Ok(receiver.taken("room").len() >= 3))?;
    assert_eq!(receiver.taken("room"), [1, 2, 3]);
    let seen = receiver.seen();
    assert!(seen.iter().all(|seen| seen.verified == [true]));
    assert!(
        seen.iter()
            .all(|seen| seen.path == "/in?token=t&event=msg.offline")
    );
    assert_eq!((&seen[0].id, &seen[0].messages), (&seen[1].id, &seen[1].messages));
    let ids: BTreeSet<&str> = seen.iter().map(|seen| seen.id.as_str()).collect();
    assert_eq!(ids.len(), 3);
    // The sender is not among them.
    let first = &seen[1].messages[0];
    assert_eq!(
        json!([
            first["to_uids"],
            first["from_uid"],
            first["channel_id"],
            first["channel_type"]
        ]),
        json!([["bob"], "alice", "room", GROUP])
    );
    // Who is there is not told of.
    let _bob = Raw::session(node.websocket(), "bob", "d")?;
    send_all(&node, "room", 4..=4)?;
    let everybody = json!({ "channel_id": "room", "channel_type": GROUP, "subscribers": ["carol"] });
    assert_eq!(
        post(node.http(), "/channel/subscriber_add", &everybody)?.status,
        200
    );
    send_all(&node, "room", 5..=5)?;
    until("the fifth", || Ok(receiver.taken("room").contains(&5)))?;
    assert_eq!(receiver.taken("room"), [1, 2, 3, 5]);
    let last = receiver
        .seen()
        .pop()
        .map(|seen| seen.messages[0]["to_uids"].clone());
    assert_eq!(last, Some(json!(["carol"])));
    Ok(())
}

#[test]
fn two_events_of_a_binding_do_not_wait_for_each_other() -> Result<()> {
    let node = broker(&[SECRET])?;
    let receiver = Receiver::start(&[SECRET], |_| Answer::Status(200))?;
    make(&node, "room")?;
    let mut both = config(&receiver, &["msg.notify", "msg.offline"]);
    both["attempts_max"] = json!(1);
    hook(&node, "hook", &receiver, "room", &both)?;
    send_all(&node, "room", 1..=2)?;
    let count = |event: &str| {
        of_event(&receiver, event)
            .iter()
            .map(|seen| seen.messages.len())
            .sum::<usize>()
    };
    until("both events", || {
        Ok(count("msg.notify") == 2 && count("msg.offline") == 2)
    })?;
    // Each gives a message up for itself.
    receiver.script(|_| Answer::Status(500));
    send_all(&node, "room", 3..=3)?;
    let path = "/v1/bindings/hook/dead-letters";
    let letters = || -> Result<Vec<Value>> {
        let page = get(node.http(), path)?.body;
        Ok(page["dead_letters"].as_array().cloned().unwrap_or_default())
    };
    until("two letters", || Ok(letters()?.len() == 2))?;
    receiver.script(|_| Answer::Status(200));
    let letters = letters()?;
    let offline = letters.iter().find(|letter| letter["event"] == "msg.offline");
    let offline = offline.expect("its letter");
    assert_eq!(offline["message_seq"], 3);
    let before = count("msg.offline");
    until("the breaker lets it pass", || {
        let which = json!({ "id": offline["id"], "channel_id": "room", "channel_type": GROUP });
        Ok(post(node.http(), &format!("{path}/replay"), &which)?.status == 200)
    })?;
    assert!(count("msg.offline") > before);
    Ok(())
}

#[test]
fn an_event_that_is_not_there_is_refused() -> Result<()> {
    let node = broker(&[SECRET])?;
    let receiver = Receiver::start(&[SECRET], |_| Answer::Status(200))?;
    for events in [json!(["msg.other"]), json!("msg.offline")] {
        let mut wrong = config(&receiver, &[]);
        wrong["config"]["events"] = events;
        let refused = hook(&node, "hook", &receiver, "room", &wrong).expect_err("refused");
        assert!(
            refused
                .to_string()
                .contains("msg.notify, msg.offline, user.onlinestatus"),
            "{refused}"
        );
    }
    Ok(())
}
