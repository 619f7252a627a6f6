//! What filters do to messages, as senders, receivers and the history see it.

use super::{bind_to, history, next_text, say, with};
use crate::{GROUP, PERSON};
use anyhow::Result;
use penstock_e2e::{Client, Raw, component, delete, deploy, post};
use serde_json::json;

const SUCCESS: u8 = 1;
/// The code of a message that is not allowed.
const NOT_ALLOWED: u8 = 11;

#[test]
fn a_refused_message_tells_its_sender_why_and_reaches_nobody() -> Result<()> {
    let config = json!({ "words": ["darn"], "mode": "reject", "text": "mind your words" });
    let node = with("profanity-filter", &json!({ "config": config }))?;
    let mut bob = Client::sdk(node.websocket(), "bob", "any")?;

    let mut raw = Raw::session(node.websocket(), "alice", "d")?;
    let refused = say(&mut raw, "1", "oh darn")?;
    assert_eq!(
        (&refused["reasonCode"], &refused["messageSeq"]),
        (&json!(NOT_ALLOWED), &json!(0))
    );
    assert_eq!(refused["reason"], "mind your words");
    assert_eq!(say(&mut raw, "2", "oh well")?["reasonCode"], SUCCESS);

    // WKProto has room for the code alone.
    let mut alice = Client::sdk(node.websocket(), "alice", "any")?;
    alice.send("room", GROUP, "DARN", "")?;
    assert_eq!(alice.acknowledgement()?["reason"], NOT_ALLOWED);
    alice.send("room", GROUP, "all is well", "")?;
    assert_eq!(alice.acknowledgement()?["reason"], SUCCESS);

    // `{"type":1,"content":"darn"}`
    let payload = "eyJ0eXBlIjoxLCJjb250ZW50IjoiZGFybiJ9";
    let message =
        json!({ "from_uid": "alice", "channel_id": "room", "channel_type": GROUP, "payload": payload });
    let answer = post(node.http(), "/message/send", &message)?.body;
    assert_eq!(
        (&answer["reason"], &answer["reason_text"]),
        (&json!(NOT_ALLOWED), &json!("mind your words"))
    );

    assert_eq!(
        (next_text(&mut bob)?, next_text(&mut bob)?),
        ("oh well".to_owned(), "all is well".to_owned())
    );
    assert_eq!(history(&node)?, ["oh well", "all is well"]);
    Ok(())
}

#[test]
fn a_rewritten_message_is_what_is_received_and_kept() -> Result<()> {
    let node = with("profanity-filter", &json!({ "config": { "words": ["darn"] } }))?;
    let mut bob = Client::sdk(node.websocket(), "bob", "any")?;
    let mut alice = Client::sdk(node.websocket(), "alice", "any")?;
    alice.send("room", GROUP, "oh darn", "one")?;
    assert_eq!(alice.acknowledgement()?["reason"], SUCCESS);
    assert_eq!(next_text(&mut bob)?, "oh ****");
    // A retry is the same message, although its bytes are not what is stored.
    let mut raw = Raw::session(node.websocket(), "alice", "d")?;
    let first = say(&mut raw, "two", "darn it")?;
    assert_eq!(say(&mut raw, "two", "darn it")?, first);
    assert_eq!(history(&node)?, ["oh ****", "**** it"]);
    Ok(())
}

#[test]
fn three_filters_run_by_priority_and_each_sees_what_the_one_before_made() -> Result<()> {
    let stage = |priority: i32, word: &str, mode: &str| json!({ "priority": priority, "config": { "words": [word], "mode": mode, "text": "the third saw it" } });
    let node = with("profanity-filter", &stage(30, "bad", "mask"))?;
    // Bound in another order than they run in.
    bind_to(&node, "third", "profanity-filter", &stage(10, "****", "reject"))?;
    bind_to(&node, "second", "profanity-filter", &stage(20, "***x", "mask"))?;
    let mut raw = Raw::session(node.websocket(), "alice", "d")?;
    assert_eq!(say(&mut raw, "1", "badx")?["reason"], "the third saw it");
    bind_to(&node, "second", "profanity-filter", &stage(40, "***x", "mask"))?;
    assert_eq!(say(&mut raw, "2", "badx")?["reasonCode"], SUCCESS);
    assert_eq!(history(&node)?, ["***x"]);
    Ok(())
}

#[test]
fn a_filter_takes_part_where_its_selector_says() -> Result<()> {
    let binding = json!({
        "selector": { "channel_types": [GROUP], "uids": ["alice"] },
        "config": { "words": ["darn"] },
    });
    let node = with("profanity-filter", &binding)?;
    let mut bob = Client::sdk(node.websocket(), "bob", "any")?;
    let mut alice = Client::sdk(node.websocket(), "alice", "any")?;
    alice.send("bob", PERSON, "darn", "")?;
    assert_eq!(next_text(&mut bob)?, "darn");
    alice.send("room", GROUP, "darn", "")?;
    assert_eq!(next_text(&mut bob)?, "****");
    bob.send("room", GROUP, "darn too", "")?;
    assert_eq!(next_text(&mut alice)?, "darn too");

    assert_eq!(delete(node.http(), "/v1/bindings/profanity-filter")?.status, 200);
    alice.send("room", GROUP, "darn again", "")?;
    assert_eq!(next_text(&mut bob)?, "darn again");
    Ok(())
}

#[test]
fn a_failure_is_what_the_binding_says_and_an_earlier_rewrite_stays() -> Result<()> {
    let node = with(
        "profanity-filter",
        &json!({ "priority": 9, "config": { "words": ["darn"] } }),
    )?;
    deploy(&node, "scripted-filter", &component("scripted-filter")?)?;
    let mut raw = Raw::session(node.websocket(), "alice", "d")?;

    bind_to(
        &node,
        "scripted",
        "scripted-filter",
        &json!({ "on_error": "allow" }),
    )?;
    assert_eq!(say(&mut raw, "1", "darn trap")?["reasonCode"], SUCCESS);
    bind_to(
        &node,
        "scripted",
        "scripted-filter",
        &json!({ "on_error": "reject" }),
    )?;
    assert_ne!(say(&mut raw, "2", "darn trap")?["reasonCode"], SUCCESS);
    // By class: a guest that runs for too long is let pass, one that traps is not.
    let by_class = json!({ "on_error": { "timeout": "allow" }, "deadline_ms": 500 });
    bind_to(&node, "scripted", "scripted-filter", &by_class)?;
    assert_eq!(say(&mut raw, "3", "darn loop")?["reasonCode"], SUCCESS);
    assert_ne!(say(&mut raw, "4", "darn trap")?["reasonCode"], SUCCESS);
    // What failed was replaced.
    assert_eq!(say(&mut raw, "5", "darn allow")?["reasonCode"], SUCCESS);
    assert_eq!(history(&node)?, ["**** trap", "**** loop", "**** allow"]);
    Ok(())
}
