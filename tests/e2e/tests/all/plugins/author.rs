//! The way of an author: from `penstock plugin new` to messages that arrive as the plugin left them, and back.

use super::desk::{Desk, rewritten};
use super::{next_text, say};
use crate::make_group;
use anyhow::{Context, Result};
use penstock_e2e::{Client, Node, Raw};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

#[test]
fn a_new_plugin_is_tried_deployed_replaced_and_taken_back() -> Result<()> {
    let node = Node::start(&[])?;
    let desk = Desk::of(&node)?;
    let plugin = desk.folder.path().join("shout");
    desk.says(&["new", "shout", "--lang", "rust"])?;
    assert!(
        desk.complains(&["new", "shout", "--lang", "rust"])?
            .contains("is there already")
    );

    let tried = desk.says(&["test", "--dir", "shout"])?;
    assert!(tried.contains(" 0 failed"), "{tried}");
    assert!(plugin.join("shout.wasm").is_file());
    let checked = desk.says(&["check", "--dir", "shout", "--against", &desk.server])?;
    assert!(checked.contains("offers all that it needs"), "{checked}");

    let deployed = desk.asks(&["deploy"])?;
    assert!(
        deployed.contains("promoted") && deployed.contains("bound"),
        "{deployed}"
    );
    make_group(&node, &["alice", "bob"])?;
    let mut bob = Client::sdk(node.websocket(), "bob", "any")?;
    let mut raw = Raw::session(node.websocket(), "alice", "d")?;
    let (before, after) = rewritten(&plugin)?;
    assert_eq!(say(&mut raw, "1", &before)?["reasonCode"], 1);
    assert_eq!(next_text(&mut bob)?, after);
    assert!(desk.asks(&["deploy"])?.contains("runs already"));

    misconfigured(&desk, &plugin)?;
    replaced(&desk, &plugin)?;
    // What was taken back works as before.
    assert_eq!(say(&mut raw, "2", &before)?["reasonCode"], 1);
    assert_eq!(next_text(&mut bob)?, after);
    taken_away(&desk)?;
    assert_eq!(say(&mut raw, "3", &before)?["reasonCode"], 1);
    assert_eq!(next_text(&mut bob)?, before);
    Ok(())
}

/// A configuration that the plugin refuses never comes to the broker.
fn misconfigured(desk: &Desk, plugin: &Path) -> Result<()> {
    let file = plugin.join("binding.toml");
    let text = fs::read_to_string(&file)?;
    let (binding, _) = text.split_once("[config]").context("the template configures")?;
    fs::write(&file, format!("{binding}[config]\nno_such_key = 1\n"))?;
    let refused = desk.complains(&["deploy", "--dir", "shout", "--server", &desk.server])?;
    assert!(refused.contains("no_such_key"), "{refused}");
    assert_eq!(desk.status()?["bindings"][0]["config"], json!({}));
    fs::write(&file, text)?;
    Ok(())
}

/// Another version: a canary that is dropped, one that is promoted, and back to the first.
fn replaced(desk: &Desk, plugin: &Path) -> Result<()> {
    let manifest = plugin.join("plugin.toml");
    let text = fs::read_to_string(&manifest)?;
    fs::write(
        &manifest,
        text.replace("version = \"0.1.0\"", "version = \"0.2.0\""),
    )?;
    let active = |status: &Value| status["plugins"][0]["active"]["version"].clone();
    let binding = plugin.join("binding.toml");
    let bound = fs::read_to_string(&binding)?;
    fs::write(&binding, bound.replace("priority = 0", "priority = 7"))?;
    let canary = desk.asks(&["deploy", "--canary", "50"])?;
    assert!(
        canary.contains("50 %") && canary.contains("kept       the binding shout as it is"),
        "{canary}"
    );
    assert_eq!(desk.status()?["bindings"][0]["priority"], 0);
    let status = desk.status()?;
    assert_eq!(active(&status), "0.1.0");
    assert_eq!(status["plugins"][0]["rollout"]["canary_percent"], 50);
    assert!(desk.asks(&["status"])?.contains("rollout of 0.2.0"));
    assert!(desk.asks(&["rollback"])?.contains("0.1.0"));
    assert!(desk.status()?["plugins"][0]["rollout"].is_null());

    desk.asks(&["deploy", "--canary", "0"])?;
    assert!(desk.asks(&["promote"])?.contains("0.2.0"));
    assert_eq!(active(&desk.status()?), "0.2.0");
    desk.asks(&["bind"])?;
    assert_eq!(desk.status()?["bindings"][0]["priority"], 7);
    // A line that was taken out is what it is without one.
    fs::write(&binding, bound.replace("priority = 0\n", ""))?;
    desk.asks(&["deploy"])?;
    assert_eq!(desk.status()?["bindings"][0]["priority"], 0);
    assert!(desk.asks(&["rollback"])?.contains("0.1.0"));
    assert_eq!(active(&desk.status()?), "0.1.0");
    desk.asks(&["logs"])?;
    Ok(())
}

fn taken_away(desk: &Desk) -> Result<()> {
    let bound = desk.complains(&["remove", "--dir", "shout", "--server", &desk.server])?;
    assert!(bound.contains("penstock plugin unbind"), "{bound}");
    desk.asks(&["unbind"])?;
    desk.asks(&["remove"])?;
    let status: Value = serde_json::from_str(&desk.says(&["status", "--json", "--server", &desk.server])?)?;
    assert_eq!(status["plugins"], json!([]));
    Ok(())
}

#[test]
fn what_cannot_be_done_is_said_with_what_to_do() -> Result<()> {
    // Nobody listens where privileges would be needed.
    let desk = Desk::at("http://127.0.0.1:1")?;
    assert!(desk.complains(&["build"])?.contains("penstock plugin new"));
    assert!(
        desk.complains(&["status", "--server", &desk.server])?
            .contains("penstock serve --dev")
    );
    assert!(
        desk.complains(&["status", "--server", "https://example.org"])?
            .contains("no TLS")
    );
    fs::write(desk.folder.path().join("text.wasm"), "not WebAssembly")?;
    assert!(
        desk.complains(&["check", "--component", "text.wasm"])?
            .contains("not WebAssembly")
    );
    assert!(desk.complains(&["publish"])?.contains("penstock plugin help"));
    Ok(())
}
