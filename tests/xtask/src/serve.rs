//! `cargo xtask run`: from a clean machine to a node that answers.

use crate::machine;
use crate::process::{cargo, root, succeed};
use std::process::Command;
use std::time::{Duration, Instant};

/// Where the development node keeps its data, below the root of the repository.
const DATA_FOLDER: &str = "penstock-data";

/// Longest time for setting up and building; a first build compiles RocksDB.
const BUILD_LIMIT: Duration = Duration::from_secs(3 * 3_600);

/// Sets the machine up, builds the broker and runs it in this terminal until it is interrupted. Arguments after `--`
/// go to `penstock serve`.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let arguments = match arguments {
        [] => arguments,
        [dashes, rest @ ..] if dashes == "--" => rest,
        [other, ..] => {
            return Err(format!(
                "put arguments of the node after `--`: cargo xtask run -- {other}"
            ));
        }
    };
    let deadline = Instant::now() + BUILD_LIMIT;
    machine::ready_to_build(deadline)?;
    succeed(cargo(&["build", "-p", "penstock"]), deadline)?;
    let mut node = cargo(&[
        "run",
        "--quiet",
        "-p",
        "penstock",
        "--",
        "serve",
        "--dev",
        "--data-dir",
        DATA_FOLDER,
    ]);
    node.args(arguments);
    println!(
        "starting a development node; its data is kept in {}",
        root().join(DATA_FOLDER).display()
    );
    become_node(node)
}

/// Replaces this program by the node, so that signals and the exit code are the node's own.
#[cfg(unix)]
fn become_node(mut node: Command) -> Result<(), String> {
    let error = std::os::unix::process::CommandExt::exec(&mut node);
    Err(format!("the node could not be started: {error}"))
}

#[cfg(not(unix))]
fn become_node(mut node: Command) -> Result<(), String> {
    let status = node
        .status()
        .map_err(|error| format!("the node could not be started: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("the node ended with {status}"))
    }
}
