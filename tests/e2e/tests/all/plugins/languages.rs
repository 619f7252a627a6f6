//! Plugins in each language, from their template or as the samples have them, with the tools that their folders pin.

use super::desk::{Desk, rewritten};
use super::{next_text, say};
use crate::make_group;
use anyhow::{Context, Result, ensure};
use penstock_e2e::{Client, Node, Raw, target_folder};
use std::fs;
use std::path::{Path, PathBuf};

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

/// The plugins of the repository that are for use: the folders with a `plugin.toml`.
fn ready_ones() -> Result<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins");
    let mut ready = Vec::new();
    for entry in fs::read_dir(folder)? {
        let folder = entry?.path();
        if folder.join("plugin.toml").exists() {
            ready.push(folder);
        }
    }
    Ok(ready)
}

#[test]
fn the_plugins_that_are_for_use_do_what_their_fixtures_say() -> Result<()> {
    let desk = Desk::at("http://127.0.0.1:1")?;
    let ready = ready_ones()?;
    ensure!(ready.len() >= 5, "{ready:?}");
    for folder in ready {
        let name = folder
            .file_name()
            .context("a name")?
            .to_string_lossy()
            .into_owned();
        ensure!(folder.join("fixtures").is_dir(), "{name} has no fixtures");
        let built = target_folder()?.join("plugins").join(format!("{name}.wasm"));
        let (folder, built) = (folder.display().to_string(), built.display().to_string());
        let tried = desk.says(&["test", "--dir", &folder, "--component", &built])?;
        assert!(tried.contains(" 0 failed"), "{name}: {tried}");
    }
    Ok(())
}
