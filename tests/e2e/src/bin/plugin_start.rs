//! What plugins cost a node at its start: `cargo run --bin plugin_start`, after the node and the plugins were built.

#![expect(
    clippy::print_stdout,
    reason = "a command line program answers on standard output"
)]

use anyhow::{Context as _, Result};
use penstock_e2e::{MIB, Node, bind, component, deploy};
use serde_json::json;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const NAME: &str = "profanity-filter";
/// Plugins that are installed, and how many of them are bound.
const INSTALLED: usize = 100;
const BOUND: usize = 10;
/// Starts that are measured.
const STARTS: usize = 10;

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<()> {
    let mut node = Node::start(&[])?;
    show(&mut node, "no plugin")?;
    let component = component(NAME)?;
    for number in 0..INSTALLED {
        let name = format!("profanity-fil{number:03}");
        deploy(&node, &name, &renamed(&component, &name)?)?;
    }
    show(&mut node, &format!("{INSTALLED} plugins, none of them bound"))?;
    for number in 0..BOUND {
        let name = format!("profanity-fil{number:03}");
        let binding = json!({ "plugin": name, "hook": "before-send", "config": { "words": ["darn"] } });
        bind(&node, &name, &binding)?;
    }
    show(&mut node, &format!("{INSTALLED} plugins, {BOUND} of them bound"))
}

/// The component under another name, which is as long. Its manifest is the last place of the line.
fn renamed(component: &[u8], name: &str) -> Result<Vec<u8>> {
    let mut renamed = component.to_vec();
    let line = format!("name = \"{NAME}\"");
    let at = component
        .windows(line.len())
        .rposition(|window| window == line.as_bytes())
        .context("a manifest")?;
    let line = format!("name = \"{name}\"");
    renamed[at..][..line.len()].copy_from_slice(line.as_bytes());
    Ok(renamed)
}

/// Starts the node again and again; a start is over when it is ready.
fn show(node: &mut Node, what: &str) -> Result<()> {
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..STARTS {
        node.kill()?;
        let begin = Instant::now();
        node.restart()?;
        times.push(begin.elapsed());
    }
    times.sort_unstable();
    println!(
        "{what}: ready after {:.2?} (median), {:.2?} at most; {:.1} MiB",
        times[STARTS / 2],
        times[STARTS - 1],
        node.resident_bytes()? as f64 / MIB as f64
    );
    Ok(())
}
