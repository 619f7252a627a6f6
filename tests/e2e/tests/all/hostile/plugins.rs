//! Plugins that trap, loop, allocate, recurse, flood the log and answer too much, while other channels go on.

use crate::hostile::{make_room, still_serves, until};
use anyhow::{Context, Result, ensure};
use penstock_e2e::{Node, Raw, bind, component, deploy, get};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Messages that are sent elsewhere at least, for each bomb.
const ELSEWHERE: u32 = 20;
const SUCCESS: u8 = 1;

/// A node on which the plugin takes part in one of two groups.
fn bombed(name: &str) -> Result<Node> {
    let node = Node::start(&[])?;
    deploy(&node, name, &component(name)?)?;
    // Nobody who listens is in both: what is offered there would have to be acknowledged.
    for (group, other) in [("bombed", "alice"), ("calm", "carol")] {
        make_room(&node, group, &[other.to_owned(), "bob".to_owned()])?;
    }
    Ok(node)
}

/// Binds it to its group, as another version each time: each bomb finds it called.
fn bind_again(node: &Node, name: &str, hook: &str, (round, bomb): (usize, &str)) -> Result<()> {
    // Who never returns holds a thread until the deadline; the others have room enough for a busy machine.
    let deadline_ms = if bomb == "loop" { 500 } else { 5_000 };
    let binding = json!({
        "plugin": name, "hook": hook, "deadline_ms": deadline_ms, "attempts_max": 1, "config": { "round": round },
        "selector": { "channel_ids": ["bombed"] },
    });
    bind(node, name, &binding)
}

fn send(raw: &mut Raw, group: &str, id: &str, text: &str) -> Result<Value> {
    let payload = json!({ "type": 1, "content": text });
    let params = json!({ "channelId": group, "channelType": 2, "clientMsgNo": id, "payload": payload });
    raw.call(id, "send", &params)?;
    Ok(raw.answer(id)?["result"]["reasonCode"].clone())
}

/// Does something while another sender says things in the other group: all of that is acknowledged.
fn beside(node: &Node, name: &str, act: impl FnOnce() -> Result<()>) -> Result<()> {
    let over = AtomicBool::new(false);
    let sent = thread::scope(|scope| -> Result<u32> {
        let calm = scope.spawn(|| -> Result<u32> {
            let mut raw = Raw::session(node.websocket(), "bob", "d")?;
            let mut sent = 0;
            while sent < ELSEWHERE || !over.load(Ordering::SeqCst) {
                let code = send(&mut raw, "calm", &format!("{name}{sent}"), "hello")?;
                ensure!(code == SUCCESS, "the {sent}th message beside {name}: {code}");
                sent += 1;
            }
            Ok(sent)
        });
        let acted = act();
        over.store(true, Ordering::SeqCst);
        let sent = calm.join().expect("the sender");
        acted?;
        sent
    })?;
    assert!(sent >= ELSEWHERE);
    Ok(())
}

/// Failures of the plugin on this node, over all classes.
fn failures(node: &Node, name: &str) -> Result<u64> {
    let here = get(node.http(), "/v1/plugins")?.body["here"].clone();
    let versions = here.as_array().context("versions")?.iter();
    let its = versions.filter(|version| version["binding"] == name);
    let counts = its.flat_map(|version| version["failures"].as_object().into_iter().flatten());
    Ok(counts.map(|(_, count)| count.as_u64().unwrap_or_default()).sum())
}

#[test]
fn b73_bombs_before_a_message_is_stored() -> Result<()> {
    const NAME: &str = "scripted-filter";
    let node = bombed(NAME)?;
    let process = node.process();
    let mut raw = Raw::session(node.websocket(), "alice", "d")?;
    let bombs = [
        "trap",
        "panic",
        "grow",
        "loop",
        "recurse",
        "huge",
        "badframe-huge",
        "flood",
    ];
    for (round, word) in bombs.into_iter().enumerate() {
        bind_again(&node, NAME, "before-send", (round, word))?;
        beside(&node, word, || {
            for number in 0..3 {
                let code = send(&mut raw, "bombed", &format!("{word}{number}"), word)?;
                // A flood of lines is cut short, and harms nothing.
                ensure!((code == SUCCESS) == (word == "flood"), "{word}: {code}");
            }
            Ok(())
        })?;
        assert_eq!(
            send(&mut raw, "bombed", &format!("after {word}"), "fine")?,
            SUCCESS
        );
    }
    still_serves(&node, process, "bombs in a filter")
}

#[test]
fn b73_bombs_after_a_message_is_stored() -> Result<()> {
    const NAME: &str = "scripted-consumer";
    let node = bombed(NAME)?;
    let process = node.process();
    let mut raw = Raw::session(node.websocket(), "alice", "d")?;
    let bombs = ["trap", "panic", "grow", "loop", "recurse", "huge", "flood"];
    for (round, word) in bombs.into_iter().enumerate() {
        bind_again(&node, NAME, "persist-after", (round, word))?;
        beside(&node, word, || {
            // Their own channel goes on as well: what follows it does not hold it up.
            ensure!(send(&mut raw, "bombed", &format!("{word} bomb"), word)? == SUCCESS);
            if word != "flood" {
                until("the plugin fails", || Ok(failures(&node, NAME)? > 0))?;
            }
            ensure!(send(&mut raw, "bombed", &format!("{word} after"), "fine")? == SUCCESS);
            Ok(())
        })?;
    }
    still_serves(&node, process, "bombs in a consumer")
}

#[test]
fn b73_bombs_for_who_is_offline() -> Result<()> {
    const NAME: &str = "scripted-notifier";
    let node = bombed(NAME)?;
    let process = node.process();
    // Of the two members one is the sender, and the other one has no session in the beginning.
    let mut raw = Raw::session(node.websocket(), "alice", "d")?;
    let bombs = ["trap", "panic", "grow", "loop", "recurse", "overdone", "flood"];
    for (round, word) in bombs.into_iter().enumerate() {
        bind_again(&node, NAME, "offline", (round, word))?;
        ensure!(send(&mut raw, "bombed", &format!("{word} bomb"), word)? == SUCCESS);
        if word != "flood" {
            until("the plugin fails", || Ok(failures(&node, NAME)? > 0))?;
        }
        beside(&node, word, || {
            ensure!(send(&mut raw, "bombed", &format!("{word} after"), "fine")? == SUCCESS);
            Ok(())
        })?;
    }
    still_serves(&node, process, "bombs in a notifier")
}

#[test]
fn b73_bombs_while_somebody_connects() -> Result<()> {
    const NAME: &str = "scripted-gate";
    let node = bombed(NAME)?;
    let process = node.process();
    let bombs = ["trap", "panic", "grow", "loop", "recurse", "huge", "flood"];
    for (round, word) in bombs.into_iter().enumerate() {
        let deadline_ms = if word == "loop" { 500 } else { 5_000 };
        let binding = json!({
            "plugin": NAME, "hook": "connect", "deadline_ms": deadline_ms, "config": { "round": round },
            "selector": { "uids": ["mallory"] },
        });
        bind(&node, NAME, &binding)?;
        let code = |token: &str| -> Result<Value> {
            let (_, answer) = Raw::asking(node.websocket(), ("mallory", "d"), token)?;
            Ok(answer["result"]["reasonCode"].clone())
        };
        beside(&node, word, || {
            for _ in 0..3 {
                let code = code(word)?;
                // A flood of lines is cut short, and harms nothing.
                ensure!((code == SUCCESS) == (word == "flood"), "{word}: {code}");
            }
            Ok(())
        })?;
        assert_eq!(code("any")?, SUCCESS, "after {word}");
    }
    still_serves(&node, process, "bombs in a gate")
}

#[test]
fn b73_bombs_while_somebody_asks_over_http() -> Result<()> {
    const NAME: &str = "scripted-router";
    let node = bombed(NAME)?;
    let process = node.process();
    let bombs = ["trap", "panic", "grow", "loop", "recurse", "huge", "flood"];
    for (round, word) in bombs.into_iter().enumerate() {
        let deadline_ms = if word == "loop" { 500 } else { 5_000 };
        let binding = json!({
            "plugin": NAME, "hook": "route", "deadline_ms": deadline_ms, "grants": ["kv"], "config": { "round": round },
        });
        bind(&node, NAME, &binding)?;
        let status =
            |word: &str| Ok::<_, anyhow::Error>(get(node.http(), &format!("/plugins/{NAME}/{word}"))?.status);
        beside(&node, word, || {
            for _ in 0..3 {
                let status = status(word)?;
                let wanted = match word {
                    // A flood of lines is cut short, and harms nothing.
                    "flood" => 200,
                    "huge" => 502,
                    _ => 503,
                };
                ensure!(status == wanted, "{word}: {status}");
            }
            Ok(())
        })?;
        assert_eq!(status("tag")?, 200, "after {word}");
    }
    still_serves(&node, process, "bombs in a router")
}

#[test]
fn s16_a_plugin_that_keeps_failing_is_switched_off() -> Result<()> {
    const NAME: &str = "scripted-filter";
    let node = bombed(NAME)?;
    bind_again(&node, NAME, "before-send", (0, "trap"))?;
    let mut raw = Raw::session(node.websocket(), "alice", "d")?;
    let mut sent = 0;
    beside(&node, "switched off", || {
        until("it is switched off", || {
            sent += 1;
            let code = send(&mut raw, "bombed", &format!("trap{sent}"), "trap")?;
            ensure!(code != SUCCESS, "a trap lets nothing pass");
            Ok(get(node.http(), "/v1/plugins")?.body["plugins"][0]["disabled"] == true)
        })
    })?;
    assert_ne!(send(&mut raw, "bombed", "after", "fine")?, SUCCESS);
    Ok(())
}
