//! `cargo xtask test`: every check of the project, one after another, with a table of times at the end.

use crate::machine;
use crate::mutants::{self, Mutant};
use crate::plugins;
use crate::process::{built, cargo, output, program, run as run_command, succeed};
use crate::table::{self, Outcome, Row};
use std::process::Command;
use std::time::{Duration, Instant};

/// The whole run fails itself at this age (M-22).
const RUN_LIMIT: Duration = Duration::from_secs(75 * 60);

/// The simulator's seeds are through within this time once it is built: nearly twice what they take on two quiet cores (M-22 means
/// five minutes; what follows the channels has doubled that).
const SEEDS_LIMIT: Duration = Duration::from_secs(25 * 60);

/// Cluster size and number of seeds, 2,000 in all (M-22). A thousand at three nodes are what the coverage gate looks at (M-21).
const SEEDS: &[(&str, &str)] = &[("1", "700"), ("3", "1000"), ("5", "300")];

/// Base walks of the replication model; about ten seconds.
const MODEL_WALKS: &str = "200000";

/// The tests that stand beside the crates, and with them the binaries.
const INTEGRATION_TESTS: &[&str] = &[
    "test",
    "--workspace",
    "--exclude",
    "penstock-e2e",
    "--test",
    "*",
    "--locked",
];

/// The exit code with which the simulator says that it found a violation, as against one of any other failure.
const VIOLATION_EXIT: i32 = 1;

/// The stages in the order in which they run.
pub(crate) const NAMES: &[&str] = &[
    "preflight",
    "fmt",
    "clippy",
    "plugins",
    "test",
    "doc",
    "model",
    "sim",
    "mutants",
    "e2e",
];

/// Runs the stages named in `only`, or all when it is empty. A failed stage does not hold up the others, except that
/// nothing runs on a machine that is not ready.
pub(crate) fn run(only: &[String]) -> Result<(), String> {
    let started = Instant::now();
    let deadline = started + RUN_LIMIT;
    let mut rows: Vec<Row> = Vec::new();
    for &stage in NAMES {
        let stage_started = Instant::now();
        let outcome = if !only.is_empty() && !only.iter().any(|name| name == stage) {
            Outcome::LeftOut
        } else if stage_started >= deadline {
            Outcome::NotRun(format!(
                "the run's limit of {} minutes is over",
                RUN_LIMIT.as_secs() / 60
            ))
        } else if rows
            .iter()
            .any(|row| row.stage == "preflight" && matches!(row.outcome, Outcome::Failed(_)))
        {
            Outcome::NotRun("the machine is not ready".to_owned())
        } else {
            perform(stage, deadline)
        };
        rows.push(Row {
            stage,
            elapsed: stage_started.elapsed(),
            outcome,
        });
    }
    print!("{}", table::render(&rows, started.elapsed()));
    match table::failed(&rows) {
        0 => Ok(()),
        failed => Err(format!("{failed} of {} stages did not pass", NAMES.len())),
    }
}

fn perform(stage: &str, deadline: Instant) -> Outcome {
    println!("\n==> {stage}");
    let result = match stage {
        "preflight" => machine::ready_to_test(deadline),
        "fmt" => succeed(cargo(&["fmt", "--all", "--check"]), deadline),
        "clippy" => clippy(deadline),
        "plugins" => plugins::stage(deadline),
        "test" => unit_tests(deadline),
        "doc" => documentation(deadline),
        "model" => model(deadline),
        "sim" => seeds(deadline),
        "mutants" => planted_bugs(deadline),
        "e2e" => end_to_end(deadline),
        other => Err(format!("no stage is called '{other}'")),
    };
    match result {
        Ok(()) => Outcome::Passed,
        Err(why) => {
            println!("stage {stage} failed: {why}");
            Outcome::Failed(why)
        }
    }
}

fn clippy(deadline: Instant) -> Result<(), String> {
    let arguments = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "-D",
        "warnings",
    ];
    succeed(cargo(&arguments), deadline)
}

/// Unit, conformance and tidy tests. The end-to-end tests have their own stage, because they need the binary and the
/// JavaScript packages.
///
/// Here and below the whole workspace is selected, whatever is built of it: dependencies have the features that the selected
/// packages ask for, and with others they, and all that stands on them, would be compiled once more.
fn unit_tests(deadline: Instant) -> Result<(), String> {
    let arguments = [
        "test",
        "--workspace",
        "--lib",
        "--bins",
        "--locked",
        "--no-fail-fast",
    ];
    let units = succeed(cargo(&arguments), deadline);
    let arguments = [INTEGRATION_TESTS, &["--no-fail-fast"]].concat();
    succeed(cargo(&arguments), deadline).and(units)
}

fn documentation(deadline: Instant) -> Result<(), String> {
    succeed(
        cargo(&[
            "test",
            "--workspace",
            "--exclude",
            "penstock-e2e",
            "--doc",
            "--locked",
        ]),
        deadline,
    )?;
    let mut pages = cargo(&["doc", "--workspace", "--no-deps", "--locked"]);
    pages.env("RUSTDOCFLAGS", "-D warnings");
    succeed(pages, deadline)
}

/// The replication model: base walks without a violation, then every planted fault caught within its budget.
fn model(deadline: Instant) -> Result<(), String> {
    let arguments = [
        "run",
        "--quiet",
        "--locked",
        "-p",
        "penstock-model",
        "--bin",
        "model",
        "--",
        "--walks",
        MODEL_WALKS,
    ];
    succeed(cargo(&arguments), deadline)?;
    let arguments = [
        "run",
        "--quiet",
        "--locked",
        "-p",
        "penstock-model",
        "--bin",
        "model",
        "--",
        "--all-mutants",
    ];
    succeed(cargo(&arguments), deadline)
}

fn seeds(deadline: Instant) -> Result<(), String> {
    build_simulator(deadline)?;
    let limit = deadline.min(Instant::now() + SEEDS_LIMIT);
    for (nodes, seeds) in SEEDS {
        succeed(
            simulator(&["--nodes", nodes, "--seeds", seeds, "--tolerate-open"]),
            limit,
        )?;
    }
    Ok(())
}

fn build_simulator(deadline: Instant) -> Result<(), String> {
    succeed(
        cargo(&["build", "--locked", "--workspace", "--bin", "sim"]),
        deadline,
    )
}

/// The simulator that was built.
fn simulator(arguments: &[&str]) -> Command {
    program(&built("sim"), arguments)
}

/// Each planted bug whose turn it is must be found within its own budget of seeds.
fn planted_bugs(deadline: Instant) -> Result<(), String> {
    build_simulator(deadline)?;
    let all = mutants::parse(&output(simulator(&["--list-mutants"]))?)?;
    let commit = output(program("git", &["rev-parse", "HEAD"]))?;
    let chosen = mutants::choose(&all, commit.trim());
    println!(
        "    {} of {} planted bugs have their turn at {}",
        chosen.len(),
        all.len(),
        commit.trim()
    );
    let mut missed = Vec::new();
    for mutant in &chosen {
        if let Err(why) = plant(mutant, deadline) {
            println!("    {why}");
            missed.push(why);
        }
    }
    if missed.is_empty() {
        Ok(())
    } else {
        Err(missed.join("; "))
    }
}

fn plant(mutant: &Mutant, deadline: Instant) -> Result<(), String> {
    let (nodes, budget) = (mutant.nodes.to_string(), mutant.seed_budget.to_string());
    let arguments = ["--mutant", &mutant.name, "--nodes", &nodes, "--seeds", &budget];
    let status = run_command(simulator(&arguments), deadline)?;
    match status.code() {
        Some(VIOLATION_EXIT) => Ok(()),
        Some(0) => Err(format!(
            "planted bug {} was not caught in {budget} seeds",
            mutant.name
        )),
        _ => Err(format!(
            "planted bug {}: the simulator ended with {status}, not with a violation",
            mutant.name
        )),
    }
}

/// Builds the node, as the tests beside the crates have it: after the stage `test` nothing is left to do.
pub(crate) fn build_node(deadline: Instant) -> Result<(), String> {
    succeed(cargo(&[INTEGRATION_TESTS, &["--no-run"]].concat()), deadline)
}

/// The real binary with the real client and real plugins: packages exactly as locked, then the tests one after another, because each
/// starts a cluster of its own.
fn end_to_end(deadline: Instant) -> Result<(), String> {
    build_node(deadline)?;
    plugins::build(deadline)?;
    if !machine::has_lock_file() {
        return Err(
            "tests/e2e/package-lock.json is missing: the JavaScript packages must be locked".to_owned(),
        );
    }
    succeed(
        program("npm", &["ci", "--prefix", "tests/e2e", "--no-audit", "--no-fund"]),
        deadline,
    )?;
    succeed(
        cargo(&[
            "test",
            "--locked",
            "--workspace",
            "--test",
            "all",
            "--",
            "--test-threads",
            "1",
        ]),
        deadline,
    )
}
