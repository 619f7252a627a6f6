//! The commands around a plugin: at every change, what it costs, a hook after the commit, and what it could not do.

use super::consumers::{NAME, follow, followed, lines_until, say_all};
use super::desk::Desk;
use super::{next_text, say, with};
use crate::make_group;
use anyhow::{Context, Result, ensure};
use penstock_e2e::{Client, Node, PATIENCE, Raw, post};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Instant;

/// `penstock plugin dev`, and the lines that it says.
struct Watch {
    child: Child,
    lines: Receiver<String>,
}

impl Watch {
    fn start(desk: &Desk) -> Result<Watch> {
        let mut command = desk.command(&["dev", "--dir", "shout", "--server", &desk.server])?;
        let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn()?;
        let said = child.stdout.take().context("its output")?;
        let (line, lines) = channel();
        thread::spawn(move || {
            for text in BufReader::new(said).lines().map_while(Result::ok) {
                if line.send(text).is_err() {
                    return;
                }
            }
        });
        Ok(Watch { child, lines })
    }

    /// What it said until it waits for a change.
    fn until_it_waits(&self) -> Result<String> {
        let deadline = Instant::now() + PATIENCE;
        let mut said = String::new();
        while !said.contains("waiting ") {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).with_context(|| said.clone())?;
            said.push_str(&line);
            said.push('\n');
        }
        Ok(said)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _reaped = self.child.wait();
    }
}

#[test]
fn a_plugin_is_built_tested_and_deployed_at_every_change() -> Result<()> {
    let node = Node::start(&[])?;
    let desk = Desk::of(&node)?;
    desk.says(&["new", "shout", "--lang", "c"])?;
    let binding = desk.folder.path().join("shout/binding.toml");
    let bound = fs::read_to_string(&binding)?.replace("priority = 0\n", "priority = 0\ndeadline_ms = 5000\n");
    fs::write(&binding, &bound)?;
    let watch = Watch::start(&desk)?;
    let said = watch.until_it_waits()?;
    assert!(
        said.contains("promoted") && !said.contains("failed     "),
        "{said}"
    );
    make_group(&node, &["alice", "bob"])?;
    let mut bob = Client::sdk(node.websocket(), "bob", "any")?;
    let mut raw = Raw::session(node.websocket(), "alice", "d")?;
    say(&mut raw, "1", "a colour")?;
    assert_eq!(next_text(&mut bob)?, "a color");

    // One that does not compile changes nothing, and does not end the command.
    let source = desk.folder.path().join("shout/src/plugin.c");
    let text = fs::read_to_string(&source)?;
    fs::write(&source, format!("{text}\nthis is not C\n"))?;
    let said = watch.until_it_waits()?;
    assert!(said.contains("failed     "), "{said}");
    fs::write(&source, text)?;
    watch.until_it_waits()?;
    // A binding is a change too.
    fs::write(&binding, format!("{bound}\nby = \"hue\"\n"))?;
    let said = watch.until_it_waits()?;
    assert!(said.contains("bound"), "{said}");
    say(&mut raw, "2", "a colour")?;
    assert_eq!(next_text(&mut bob)?, "a hue");
    Ok(())
}

#[test]
fn what_a_plugin_costs_is_said_by_call_and_message() -> Result<()> {
    let desk = Desk::at("http://127.0.0.1:1")?;
    desk.says(&["new", "shout", "--lang", "c"])?;
    let said = desk.says(&["bench", "--dir", "shout", "--calls", "50"])?;
    for row in ["start ", "batch 1 ", "batch 8 ", "batch 64 ", "memory "] {
        assert!(said.contains(row), "no `{row}`: {said}");
    }
    let alone = desk.says(&["bench", "--component", "shout/shout.wasm", "--calls", "5"])?;
    assert!(alone.contains("(5 calls)"), "{alone}");
    Ok(())
}

#[test]
fn a_new_consumer_is_told_of_stored_messages() -> Result<()> {
    let node = Node::start(&[])?;
    let desk = Desk::of(&node)?;
    desk.says(&["new", "shout", "--lang", "rust", "--hook", "persist-after"])?;
    let refused = desk.complains(&["new", "other", "--lang", "c", "--hook", "persist-after"])?;
    assert!(refused.contains("--lang rust"), "{refused}");
    let tried = desk.says(&["test", "--dir", "shout"])?;
    assert!(tried.contains(" 0 failed"), "{tried}");
    desk.asks(&["deploy"])?;
    make_group(&node, &["alice", "bob"])?;
    let mut raw = Raw::session(node.websocket(), "alice", "d")?;
    assert_eq!(
        say(&mut raw, "1", "hello #penstock and #plugins")?["reasonCode"],
        1
    );
    let deadline = Instant::now() + PATIENCE;
    loop {
        let logged = desk.asks(&["logs"])?;
        if logged.contains("#penstock #plugins") {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "it was not told: {logged}");
        thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn a_new_notifier_is_told_who_is_offline() -> Result<()> {
    let node = Node::start(&[])?;
    let desk = Desk::of(&node)?;
    desk.says(&["new", "shout", "--lang", "rust", "--hook", "offline"])?;
    let tried = desk.says(&["test", "--dir", "shout"])?;
    assert!(tried.contains(" 0 failed"), "{tried}");
    let row = desk.says(&["bench", "--dir", "shout", "--calls", "50"])?;
    assert!(row.contains("a message (50 calls)"), "{row}");
    desk.asks(&["deploy"])?;
    make_group(&node, &["alice", "bob"])?;
    let mut raw = Raw::session(node.websocket(), "alice", "d")?;
    assert_eq!(say(&mut raw, "1", "hello")?["reasonCode"], 1);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let logged = desk.asks(&["logs"])?;
        if logged.contains("to bob: alice writes hello") {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "it was not told: {logged}");
        thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn a_new_gate_keeps_out_who_is_banned() -> Result<()> {
    let node = Node::start(&[])?;
    let desk = Desk::of(&node)?;
    desk.says(&["new", "shout", "--lang", "rust", "--hook", "connect"])?;
    let tried = desk.says(&["test", "--dir", "shout"])?;
    assert!(tried.contains(" 0 failed"), "{tried}");
    let row = desk.says(&["bench", "--dir", "shout", "--calls", "50"])?;
    assert!(row.contains("a connection (50 calls)"), "{row}");
    let binding = desk.folder.path().join("shout/binding.toml");
    let text = fs::read_to_string(&binding)?.replace("# banned =", "banned =");
    fs::write(&binding, text)?;
    desk.asks(&["deploy"])?;
    let told = |uid: &str| -> Result<Value> {
        let (_, answer) = Raw::asking(node.websocket(), (uid, "d"), "any")?;
        Ok(answer["result"].clone())
    };
    assert_eq!(told("mallory")?["reason"], "you are banned");
    assert_eq!(told("ann")?["reasonCode"], 1);
    let shown = desk.asks(&["status"])?;
    assert!(shown.contains("connect"), "{shown}");
    Ok(())
}

#[test]
fn a_new_router_counts_votes() -> Result<()> {
    let node = Node::start(&[])?;
    let desk = Desk::of(&node)?;
    desk.says(&["new", "shout", "--lang", "rust", "--hook", "route"])?;
    let tried = desk.says(&["test", "--dir", "shout"])?;
    assert!(tried.contains(" 0 failed"), "{tried}");
    let row = desk.says(&["bench", "--dir", "shout", "--calls", "50"])?;
    assert!(row.contains("a request (50 calls)"), "{row}");
    desk.asks(&["deploy"])?;
    let vote = || post(node.http(), "/plugins/shout/votes/tea", &json!({}));
    assert_eq!(vote()?.body, json!({ "choice": "tea", "votes": 1 }));
    assert_eq!(vote()?.body["votes"], 2);
    let shown = desk.asks(&["status"])?;
    assert!(shown.contains("route"), "{shown}");
    Ok(())
}

#[test]
fn dead_letters_are_listed_replayed_and_dropped_by_the_command() -> Result<()> {
    let node = followed(&json!({ "attempts_max": 2 }))?;
    say_all(&node, &["first retry:1", "second poison", "third"])?;
    lines_until(&node, "done 3 third")?;
    let desk = Desk::of(&node)?;
    let of_it = ["--bind", NAME, "--server", &desk.server];
    let letters = |words: &[&str]| desk.says(&[&["dlq"][..], words, &of_it].concat());
    let listed = letters(&["list"])?;
    assert!(
        listed.contains(&format!("2 dead letters of {NAME}")) && listed.contains("retry after 2 attempts"),
        "{listed}"
    );
    let shown: Value = serde_json::from_str(&letters(&["list", "--json"])?)?;
    let first = shown[0]["id"].as_str().context("an id")?.to_owned();
    let fails = |words: &[&str]| desk.complains(&[&["dlq"][..], words, &of_it].concat());
    // It fails as before, and stays.
    assert!(fails(&["replay", &first])?.contains("could not be done again"));
    assert!(fails(&["replay"])?.contains("--all"));
    assert!(fails(&["drop", "1-2-3"])?.contains("no letter 1-2-3"));
    follow(&node, &json!({ "attempts_max": 2, "config": { "calm": true } }))?;
    assert!(letters(&["replay", &first])?.contains(&format!("done       {first}")));
    lines_until(&node, "done 1 first")?;
    assert!(letters(&["drop", "--all"])?.contains("dropped    1 dead letter"));
    assert!(letters(&[])?.contains("0 dead letters"));
    Ok(())
}

#[test]
fn a_sender_that_sends_too_much_waits_and_others_do_not() -> Result<()> {
    let config = json!({ "config": { "messages": 1, "seconds": 3_600, "text": "wait a little" } });
    let node = with("rate-guard", &config)?;
    let mut alice = Raw::session(node.websocket(), "alice", "d")?;
    let mut answers = Vec::new();
    // Each instance has counts of its own, and there are a few.
    for number in 0..20 {
        answers.push(say(&mut alice, &number.to_string(), "hello")?);
    }
    assert_eq!(answers[0]["reasonCode"], 1);
    assert_eq!(answers[19]["reason"], "wait a little", "{}", answers[19]);
    let mut bob = Raw::session(node.websocket(), "bob", "d")?;
    assert_eq!(say(&mut bob, "b", "hello")?["reasonCode"], 1);
    Ok(())
}
