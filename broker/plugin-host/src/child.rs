//! Work on hostile bytes in a process of its own, which may die of them in place of the broker.

use crate::component::inspect;
use crate::refused::Refused;
use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Processor time and address space of a child.
const CPU_S: u64 = 120;
const ADDRESS_BYTES: u64 = 8 << 30;
/// What is kept of a child's words, bytes.
const SAID_BYTES_MAX: u64 = 4_096;
/// Longest time for looking at a component of the greatest size.
const INSPECT_WITHIN: Duration = Duration::from_secs(30);
/// Stack that the child looks at a component with. Less than any thread of the broker has: what is read here is read there.
const INSPECT_STACK_BYTES: usize = 1 << 20;

/// Runs a command, gives it bytes to read, and ends it when it takes too long.
///
/// # Errors
/// How it ended, and what it said.
pub(crate) fn run(
    command: &[OsString],
    arguments: &[&Path],
    input: &[u8],
    within: Duration,
) -> Result<(), String> {
    let [program, own @ ..] = command else {
        return Err("no command is set".to_owned());
    };
    let mut child = Command::new(program)
        .args(own)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // What the operator keeps in the environment is no business of a process that reads hostile bytes.
        .env_clear()
        .spawn()
        .map_err(|error| error.to_string())?;
    let said = said(&mut child);
    if let Some(mut stdin) = child.stdin.take() {
        // One that has ended takes no more; how it ended says why.
        let _ = stdin.write_all(input);
    }
    let status = wait(&mut child, within)?;
    if status.success() {
        return Ok(());
    }
    let said = said.and_then(|thread| thread.join().ok()).unwrap_or_default();
    Err(format!("{status}: {}", said.trim()))
}

/// Waits for a child, and ends it when it takes too long.
fn wait(child: &mut Child, within: Duration) -> Result<ExitStatus, String> {
    let deadline = Instant::now() + within;
    loop {
        let ended = child.try_wait().map_err(|error| error.to_string())?;
        if let Some(status) = ended {
            return Ok(status);
        }
        if Instant::now() > deadline {
            // It may have ended by itself in this moment.
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("it took longer than {} s", within.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Reads what a child says of its failure, all the time: a pipe that nobody reads would hold the child up.
fn said(child: &mut Child) -> Option<JoinHandle<String>> {
    let mut stderr = child.stderr.take()?;
    let thread = std::thread::Builder::new().name("plugin-child".to_owned());
    let reading = thread.spawn(move || {
        let mut said = Vec::new();
        // What cannot be read is missing from an error's text, and nothing else.
        let _ = io::Read::read_to_end(&mut io::Read::take(&mut stderr, SAID_BYTES_MAX), &mut said);
        let _ = io::copy(&mut stderr, &mut io::sink());
        String::from_utf8_lossy(&said).into_owned()
    });
    reading.ok()
}

/// Has a child process look at a component as [`inspect`] does. The parsers of components follow some of what is in them as deep as it goes:
/// what kills a child of that would kill the broker.
///
/// # Errors
/// When the child did not come to an end. What it would refuse is no error: [`inspect`] says that better.
pub fn rehearse(command: &[OsString], bytes: &[u8]) -> Result<(), Refused> {
    run(command, &[], bytes, INSPECT_WITHIN).map_err(|why| {
        Refused::NotWasm(format!(
            "a process that looked at it did not live ({})",
            why.lines()
                .next()
                .unwrap_or_default()
                .trim_end_matches([':', ' '])
        ))
    })
}

/// What that process does: reads a component from standard input and looks at it.
///
/// # Errors
/// When nothing can be read, or no thread be started.
pub fn inspect_child() -> Result<(), String> {
    bound_this_process();
    let mut bytes = Vec::new();
    let read = io::stdin().lock().read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    let thread = std::thread::Builder::new().stack_size(INSPECT_STACK_BYTES);
    // What it refuses, the broker will refuse, and say why.
    let looking = thread.spawn(move || drop(inspect(&bytes)));
    let looked = looking.map_err(|error| error.to_string())?.join();
    looked.map_err(|_| "it panicked".to_owned())
}

/// Less of the processor, and no more of it and of memory than a component needs. Where the system refuses, the parent's clock is left.
pub(crate) fn bound_this_process() {
    use rustix::process::{Resource, Rlimit, nice, setrlimit};
    let bounded = |most: u64| Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    let _ = nice(10);
    let _ = setrlimit(Resource::Cpu, bounded(CPU_S));
    let _ = setrlimit(Resource::As, bounded(ADDRESS_BYTES));
}
