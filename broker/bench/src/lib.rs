//! The load generator behind `penstock bench`: it drives any WKProto server as its clients do and verifies what it
//! delivers.
//!
//! What it contains: the cast of a run (`plan`), connections (`session`, `link`, `traffic`), their pace (`pace`, `crew`), the
//! account of what must come (`verify`), what is counted (`meter`), the modes (`drive`), reports (`report`, `page`) and the
//! limits of the machine (`floor`).
//!
//! What it lacks: any knowledge of Penstock's core. It speaks the wire formats, so it drives other servers too.

mod api;
mod chart;
mod crew;
mod drive;
mod floor;
mod link;
mod machine;
mod meter;
pub mod options;
mod pace;
mod page;
mod payload;
mod plan;
mod report;
mod session;
mod traffic;
mod verify;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::floor::Floor;
use crate::options::{Command, FloorOptions, Options, USAGE};

/// Does what was asked and gives the text for standard output; progress goes to standard error.
///
/// # Errors
/// When a run cannot be made, a report cannot be written, or something was wrong with what the server did. The reports of
/// a run that was made are written in any case.
pub fn run(command: Command) -> Result<String> {
    match command {
        Command::Help => Ok(USAGE.to_owned()),
        Command::Floor(options) => measure_floor(&options),
        Command::Drive(options) => drive_server(&options),
    }
}

fn runtime(threads: usize) -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .context("no threads for the connections")
}

fn measure_floor(options: &FloorOptions) -> Result<String> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let directory = options.directory.clone().unwrap_or_else(|| PathBuf::from("."));
    let floor = runtime(threads)?.block_on(floor::measure(&directory))?;
    if let Some(path) = &options.json {
        write(path, &serde_json::to_string_pretty(&floor)?)?;
    }
    Ok(floor.summary())
}

fn drive_server(options: &Options) -> Result<String> {
    let floor = match &options.outputs.floor {
        Some(path) => Some(read_floor(path)?),
        None => None,
    };
    let report = runtime(options.threads)?.block_on(drive::drive(options))?;
    if let Some(path) = &options.outputs.json {
        write(path, &serde_json::to_string_pretty(&report)?)?;
    }
    if let Some(path) = &options.outputs.html {
        write(path, &page::page(&report, floor.as_ref()))?;
    }
    match report.failure() {
        None => Ok(report.summary()),
        Some(_) => bail!("{}", report.summary()),
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))
}

fn read_floor(path: &Path) -> Result<Floor> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    serde_json::from_str(&text).with_context(|| {
        format!(
            "{} was not written by `penstock bench floor --json`",
            path.display()
        )
    })
}
