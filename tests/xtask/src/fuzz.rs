//! `cargo xtask fuzz`: the targets of `tests/fuzz` under LLVM's fuzzer, on a stable compiler.
//!
//! The fuzzer sees coverage in what was compiled with counters. Only the crates of this workspace are: cargo asks this very
//! program to compile them, by `RUSTC_WORKSPACE_WRAPPER`, and everything else, RocksDB above all, stays as the tests have it.

use crate::machine;
use crate::process::{built, cargo, program, root, succeed, target_folder};
use std::ffi::OsString;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

/// Set for the compiler: this program then adds the flags instead of reading a command line.
const INSTRUMENT: &str = "PENSTOCK_FUZZ_INSTRUMENT";

/// The names that `penstock_fuzz::TARGETS` has.
const TARGETS: &[&str] = &[
    "fsm_apply",
    "http_body",
    "json_rpc",
    "plugin_admission",
    "plugin_frame",
    "store_recovery",
    "websocket",
    "wkproto",
];

/// Counters on every edge, and the operands of comparisons. These flags are stable; only sanitizers are not.
const FLAGS: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// Longest time for building.
const BUILD_LIMIT: Duration = Duration::from_secs(3_600);

/// How long the fuzzer may take beyond its time, to end.
const END_LIMIT: Duration = Duration::from_secs(300);

/// Longest input, in bytes.
const INPUT_BYTES_MAX: u32 = 4_096;

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    targets: Vec<String>,
    minutes: u64,
    /// Take what earlier runs found into the repository, instead of searching.
    keep: bool,
    /// Handed to the fuzzer.
    more: Vec<String>,
}

/// Whether this process was started in place of the compiler.
pub(crate) fn is_compiler() -> bool {
    std::env::var_os(INSTRUMENT).is_some()
}

/// Compiles as it is told, with counters where there are to be any.
pub(crate) fn compile() -> Result<(), String> {
    let mut arguments = std::env::args_os().skip(1);
    let compiler = arguments.next().ok_or("no compiler is named")?;
    let arguments: Vec<OsString> = arguments.collect();
    let mut command = Command::new(&compiler);
    if is_instrumented(&arguments) {
        command.args(FLAGS);
    }
    let status = command.args(arguments).status();
    let status = status.map_err(|error| format!("{}: {error}", compiler.display()))?;
    std::process::exit(status.code().unwrap_or(1));
}

/// A build script runs on its own, without the fuzzer that would count.
fn is_instrumented(arguments: &[OsString]) -> bool {
    let name = arguments
        .iter()
        .position(|argument| argument == "--crate-name")
        .and_then(|at| arguments.get(at + 1))
        .and_then(|name| name.to_str());
    name.is_some_and(|name| !name.starts_with("build_script_"))
}

/// Builds the targets and runs each of those that are wanted for its time.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let wanted = parse(arguments)?;
    let deadline = Instant::now() + BUILD_LIMIT;
    machine::ready_to_build(deadline)?;
    build(deadline)?;
    let mut failed = Vec::new();
    for target in &wanted.targets {
        println!("\n==> {target}");
        if let Err(why) = fuzz(target, &wanted) {
            println!("{target}: {why}");
            failed.push(target.as_str());
        }
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "something was found by {}: the input is named above",
            failed.join(", ")
        ))
    }
}

fn parse(arguments: &[String]) -> Result<Wanted, String> {
    let mut wanted = Wanted {
        targets: Vec::new(),
        minutes: 1,
        keep: false,
        more: Vec::new(),
    };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--" => wanted.more.extend(rest.by_ref().cloned()),
            "--minutes" => {
                let minutes = rest.next().and_then(|minutes| minutes.parse().ok());
                wanted.minutes = minutes.ok_or("--minutes needs a whole number")?;
            }
            "--keep" => wanted.keep = true,
            name if TARGETS.contains(&name) => wanted.targets.push(name.to_owned()),
            other => {
                return Err(format!(
                    "'{other}' is no target; there are {}",
                    TARGETS.join(", ")
                ));
            }
        }
    }
    if wanted.targets.is_empty() {
        wanted.targets = TARGETS.iter().map(|&name| name.to_owned()).collect();
    }
    Ok(wanted)
}

fn build(deadline: Instant) -> Result<(), String> {
    let this = std::env::current_exe().map_err(|error| format!("this program has no path: {error}"))?;
    // Of the whole workspace, so that dependencies have the features with which the tests have built them.
    let mut command = cargo(&[
        "build",
        "--locked",
        "--workspace",
        "--features",
        "penstock-fuzz/libfuzzer",
        "--bin",
        "penstock-libfuzzer",
    ]);
    command.env("RUSTC_WORKSPACE_WRAPPER", this).env(INSTRUMENT, "1");
    succeed(command, deadline)
}

/// Runs one target. What it finds new is kept beside the build, from one run to the next.
fn fuzz(target: &str, wanted: &Wanted) -> Result<(), String> {
    let place = target_folder().join("fuzz").join(target);
    let (found, seeds) = (place.join("corpus"), place.join("seeds"));
    for folder in [&found, &seeds] {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let seconds = wanted.minutes.saturating_mul(60);
    let mut command = program(&built("penstock-libfuzzer"), &[]);
    command
        .env("PENSTOCK_FUZZ_TARGET", target)
        .env("PENSTOCK_FUZZ_SEEDS", &seeds)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={INPUT_BYTES_MAX}"))
        .arg(format!("-artifact_prefix={}/", place.display()))
        .args(["-timeout=120", "-rss_limit_mb=4096", "-print_final_stats=1"])
        .args(&wanted.more);
    let corpus = root().join("tests/fuzz/corpus").join(target);
    if wanted.keep {
        command.arg("-merge=1").args([&corpus, &found]);
    } else {
        command.args([&found, &seeds, &corpus]);
    }
    succeed(command, Instant::now() + Duration::from_secs(seconds) + END_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn reads_targets_minutes_and_what_is_for_the_fuzzer() {
        let wanted = parse(&words(&["wkproto", "--minutes", "3", "--", "-seed=1"])).expect("good");
        assert_eq!((wanted.targets, wanted.minutes), (words(&["wkproto"]), 3));
        assert_eq!(wanted.more, ["-seed=1"]);
        assert!(parse(&words(&["--keep"])).expect("good").keep);
        assert_eq!(parse(&[]).expect("all").targets, TARGETS);
        for wrong in [&["nothing"][..], &["--minutes"], &["--minutes", "x"]] {
            assert!(parse(&words(wrong)).is_err());
        }
    }

    #[test]
    fn build_scripts_have_no_counters() {
        let of = |name: &str| is_instrumented(&["--crate-name", name].map(OsString::from));
        assert!(of("penstock_wire") && !of("build_script_build"));
        assert!(!is_instrumented(&[OsString::from("-vV")]));
    }

    #[test]
    fn every_target_has_a_corpus() {
        let listing = fs::read_dir(root().join("tests/fuzz/corpus")).expect("the corpora");
        let mut names: Vec<String> = listing
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        names.sort();
        assert_eq!(names, TARGETS);
    }
}
