//! The command `penstock plugin`: makes, builds, tries, deploys and watches plugins, from within a plugin's folder.
//!
//! # Owns
//! The words of the command, what a plugin's folder looks like, how its component is built, fixtures, and the client of the
//! HTTP API's part about plugins.
//!
//! # Absent
//! What a component may be and how it runs: the plugin host decides, and is asked in this process, so that `check` and `test`
//! say what a broker of the same version would say.

mod api;
mod arguments;
mod binding;
mod build;
mod cache;
mod captures;
mod check;
mod create;
mod deploy;
mod dev;
mod embedded;
mod folder;
mod host;
mod keys;
mod letters;
mod operate;
mod replay;
mod status;
mod trial;

pub use arguments::{Action, Command, Error, Options, USAGE};

use anyhow::Result;
use std::io::Write;

/// Does what the command says, and writes what it has to say line by line.
///
/// # Errors
/// What went wrong, and what to do about it.
pub fn run(command: &Command, out: &mut dyn Write) -> Result<()> {
    let options = &command.options;
    match command.action {
        Action::Help => Ok(writeln!(out, "{USAGE}")?),
        Action::New => create::run(options, out),
        Action::Build => build::run(options, out),
        Action::Check => check::run(options, out),
        Action::Test => trial::run(options, out),
        Action::Bench => trial::bench(options, out),
        Action::Dev => dev::run(options, out),
        Action::Deploy => deploy::run(options, out),
        Action::Promote => operate::promote(options, out),
        Action::Rollback => operate::rollback(options, out),
        Action::Release => operate::release(options, out),
        Action::Remove => operate::remove(options, out),
        Action::Bind => operate::bind(options, out),
        Action::Unbind => operate::unbind(options, out),
        Action::Enable => operate::enable(options, out),
        Action::Disable => operate::disable(options, out),
        Action::Replay => replay::run(options, out),
        Action::Status => status::status(options, out),
        Action::Logs => status::logs(options, out),
        Action::Letters => letters::run(options, out),
        Action::Keys => keys::run(options, out),
        Action::Captures => captures::run(options, out),
    }
}
