//! Plugins in each language, from their template or as the samples have them, with the tools that their folders pin.

use super::desk::{Desk, rewritten};
use super::{next_text, say};
use crate::make_group;
use anyhow::{Result, ensure};
use penstock_e2e::{Client, Node, Raw};
use std::fs;
use std::path::Path;

/// A new plugin is tried and deployed; it refuses one message with its text, and rewrites another.
fn judges(language: &str) -> Result<()> {
    let node = Node::start(&[])?;
    let desk = Desk::of(&node)?;
    let plugin = desk.folder.path().join("shout");
    desk.says(&["new", "shout", "--lang", language])?;
    // Room enough for a busy machine.
    let binding = plugin.join("binding.toml");
    let text = fs::read_to_string(&binding)?;
    ensure!(text.contains("priority = 0\n"), "{text}");
    fs::write(
        &binding,
        text.replace("priority = 0\n", "priority = 0\ndeadline_ms = 5000\n"),
    )?;
    let tried = desk.says(&["test", "--dir", "shout"])?;
    assert!(tried.contains(" 0 failed"), "{tried}");
    desk.asks(&["deploy"])?;
    make_group(&node, &["alice", "bob"])?;
    let mut bob = Client::sdk(node.websocket(), "bob", "any")?;
    let mut raw = Raw::session(node.websocket(), "alice", "d")?;
    let refused = say(&mut raw, "1", "my password")?;
    assert_eq!(refused["reason"], "passwords are not sent here", "{refused}");
    let (before, after) = rewritten(&plugin)?;
    assert_eq!(say(&mut raw, "2", &before)?["reasonCode"], 1);
    assert_eq!(next_text(&mut bob)?, after);
    // What `init` says of a wrong configuration comes to its author.
    fs::write(&binding, format!("{text}replace = 1\n"))?;
    let refused = desk.complains(&["deploy", "--dir", "shout", "--server", &desk.server])?;
    assert!(refused.contains("replace"), "{refused}");
    Ok(())
}

#[test]
fn a_plugin_in_c_judges_messages() -> Result<()> {
    judges("c")
}

#[test]
fn a_plugin_in_javascript_judges_messages() -> Result<()> {
    judges("javascript")
}

#[test]
fn a_plugin_in_python_judges_messages() -> Result<()> {
    judges("python")
}

#[test]
fn the_samples_do_what_their_fixtures_say() -> Result<()> {
    let desk = Desk::at("http://127.0.0.1:1")?;
    // The one in Python is built by the tools that its template is built by, and takes a minute.
    for sample in ["c", "javascript"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/samples");
        let folder = folder.join(sample).display().to_string();
        let tried = desk.says(&["test", "--dir", &folder])?;
        assert!(tried.contains(" 0 failed"), "{sample}: {tried}");
    }
    Ok(())
}
