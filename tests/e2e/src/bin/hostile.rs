//! The attacks that the tests make small, at their full size: `cargo xtask hostile`.

#![expect(
    clippy::print_stdout,
    reason = "a command line program answers on standard output"
)]

use anyhow::{Context as _, Result, bail, ensure};
use penstock_e2e::garbage::{self, Flood};
use penstock_e2e::{Node, mutations, neighbours};
use std::fs;
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "hostile [b27] [b53] [plugins] [--percent N]   at full size, or at so much of it; the two rows unless named";

/// Descriptors that this program needs, and the node as many.
const DESCRIPTORS: u64 = 4_096;

/// What the command line asks for.
struct Wanted {
    rows: Vec<String>,
    percent: u32,
}

fn main() -> ExitCode {
    match attack() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn attack() -> Result<()> {
    let wanted = parse(std::env::args().skip(1))?;
    let limit = descriptors_max()?;
    ensure!(
        limit >= DESCRIPTORS,
        "only {limit} files may be open; run this first: ulimit -n {DESCRIPTORS}"
    );
    for row in &wanted.rows {
        let begin = Instant::now();
        let say = |line: &str| println!("{row} {:6.1} s: {line}", begin.elapsed().as_secs_f64());
        if row == "plugins" {
            neighbours::run(wanted.percent, &say)?;
            continue;
        }
        let node = Node::start_logged(None, &[])?;
        let outcome = if row == "b27" {
            let full = Flood::FULL;
            let flood = Flood {
                seconds: (full.seconds * wanted.percent).div_ceil(100),
                ..full
            };
            garbage::run(&node, &flood, &say).map(drop)
        } else {
            let size = (mutations::FULL * u64::from(wanted.percent)).div_ceil(100);
            mutations::run(&node, size, &say).map(drop)
        };
        if outcome.is_err() {
            print!("{}", node.log()?);
        }
        outcome.with_context(|| format!("{row} failed"))?;
        say("passed");
    }
    Ok(())
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Wanted> {
    let mut wanted = Wanted {
        rows: Vec::new(),
        percent: 100,
    };
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "b27" | "b53" | "plugins" => wanted.rows.push(argument),
            "--percent" => {
                let percent = arguments.next().and_then(|number| number.parse().ok());
                wanted.percent = percent
                    .filter(|percent| (1..=1_000).contains(percent))
                    .context(USAGE)?;
            }
            _ => bail!(USAGE),
        }
    }
    if wanted.rows.is_empty() {
        wanted.rows = ["b27", "b53"].map(str::to_owned).to_vec();
    }
    Ok(wanted)
}

/// How many files this process may have open.
fn descriptors_max() -> Result<u64> {
    let limits = fs::read_to_string("/proc/self/limits")?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|rest| rest.split_whitespace().next());
    // `unlimited` is no number.
    Ok(soft
        .context("no limit of open files")?
        .parse()
        .unwrap_or(u64::MAX))
}
