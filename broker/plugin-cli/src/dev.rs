//! `penstock plugin dev`: builds, tests and deploys whenever a file of the folder changes.

use crate::arguments::Options;
use crate::folder::Folder;
use crate::{build, deploy, trial};
use anyhow::Result;
use std::io::Write;
use std::thread;
use std::time::Duration;

/// How often the folder is looked at.
const POLL: Duration = Duration::from_millis(300);

/// Goes on until the process is interrupted. What fails is said, and tried again with the next change.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<()> {
    // Whatever becomes of the folder later, it must be one now.
    let mut known = crate::folder::print(&Folder::open(options)?.path)?;
    loop {
        match round(options, out) {
            Ok(()) => writeln!(out, "waiting    for a change in {}", shown(options))?,
            Err(why) => writeln!(
                out,
                "failed     {why:#}\nwaiting    for a change in {}",
                shown(options)
            )?,
        }
        out.flush()?;
        known = changed(options, known);
        writeln!(out, "changed")?;
    }
}

fn shown(options: &Options) -> String {
    crate::folder::path(options).display().to_string()
}

fn round(options: &Options, out: &mut dyn Write) -> Result<()> {
    // Always: a file that was written while the last build ran is older than what that build left.
    build::run(options, out)?;
    trial::run(options, out)?;
    deploy::run(options, out)
}

/// Waits until the folder's files are others, and stay so from one look to the next: editors write in several steps.
fn changed(options: &Options, known: u64) -> u64 {
    let mut last = known;
    loop {
        thread::sleep(POLL);
        // A manifest that is being written, or is wrong for now, is no reason to end.
        let Ok(now) = crate::folder::print(&crate::folder::path(options)) else {
            continue;
        };
        if now != known && now == last {
            return now;
        }
        last = now;
    }
}
