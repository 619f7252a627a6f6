//! Where the tests' authors sit: the command `penstock plugin`, in a folder of its own.

use anyhow::{Context, Result, ensure};
use penstock_e2e::{Node, binary, target_folder};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// A folder in which plugins are written.
pub(super) struct Desk {
    pub(super) folder: tempfile::TempDir,
    pub(super) server: String,
}

impl Desk {
    /// One whose broker is this node.
    pub(super) fn of(node: &Node) -> Result<Desk> {
        Desk::at(&format!("http://{}", node.http()))
    }

    /// One whose broker is, or is not, at this address.
    pub(super) fn at(server: &str) -> Result<Desk> {
        Ok(Desk {
            folder: tempfile::tempdir()?,
            server: server.to_owned(),
        })
    }

    /// The command, to be run.
    pub(super) fn command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(binary()?);
        command
            .arg("plugin")
            .args(arguments)
            .env("CARGO_TARGET_DIR", target_folder()?)
            .current_dir(self.folder.path());
        Ok(command)
    }

    fn run(&self, arguments: &[&str]) -> Result<Output> {
        let mut command = self.command(arguments)?;
        command.output().context("the command cannot be started")
    }

    /// What the command says when it succeeds.
    pub(super) fn says(&self, arguments: &[&str]) -> Result<String> {
        let output = self.run(arguments)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "plugin {arguments:?}: {text}{complaint}");
        Ok(text)
    }

    /// What the command complains of when it fails.
    pub(super) fn complains(&self, arguments: &[&str]) -> Result<String> {
        let output = self.run(arguments)?;
        ensure!(!output.status.success(), "plugin {arguments:?} succeeded");
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// A command about the broker.
    pub(super) fn asks(&self, arguments: &[&str]) -> Result<String> {
        self.says(&[arguments, &["--dir", "shout", "--server", &self.server]].concat())
    }

    pub(super) fn status(&self) -> Result<Value> {
        Ok(serde_json::from_str(&self.asks(&["status", "--json"])?)?)
    }
}

/// A text that the template's own fixtures say is rewritten, and what of it becomes.
pub(super) fn rewritten(plugin: &Path) -> Result<(String, String)> {
    for entry in fs::read_dir(plugin.join("fixtures"))? {
        let fixture: Value = serde_json::from_str(&fs::read_to_string(entry?.path())?)?;
        let cases = fixture["messages"].as_array().into_iter().flatten();
        if !fixture["config"].is_null() {
            // The broker runs it with its defaults.
            continue;
        }
        for (message, expected) in cases.zip(fixture["expect"].as_array().into_iter().flatten()) {
            let before = message["payload"]["content"].as_str();
            let after = expected["rewrite"]["payload"]["content"].as_str();
            if let (Some(before), Some(after)) = (before, after) {
                return Ok((before.to_owned(), after.to_owned()));
            }
        }
    }
    anyhow::bail!("no fixture of the template rewrites a text")
}
