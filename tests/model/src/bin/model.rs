//! Walks the replication model from the command line.
//!
//! `model --walks N` exits with 1 when a walk violates a rule; `--mutant NAME` plants a fault first; `--all-mutants`
//! exits with 1 when a planted fault is not found within its budget; `--list` names the faults; `--trace SEED` tells one
//! walk step by step.

#![expect(
    clippy::print_stdout,
    reason = "a command line program answers on standard output"
)]

use penstock_model::{MUTANTS, Mutant, Planted, search, trace};
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "model --walks N [--mutant NAME] | --all-mutants | --list | --trace SEED [--mutant NAME]";

/// The exit code for a command line that makes no sense, as against 1 for a violation.
const USAGE_EXIT: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let named = |name: &str| MUTANTS.iter().find(|planted| planted.name == name);
    match words.as_slice() {
        ["--list"] => list(),
        ["--all-mutants"] => all_mutants(),
        [flag @ ("--walks" | "--trace"), number, rest @ ..] => {
            let mutant = match rest {
                [] => Some(Mutant::None),
                ["--mutant", name] => named(name).map(|planted| planted.mutant),
                _ => None,
            };
            match (number.parse(), mutant, *flag) {
                (Ok(walks), Some(mutant), "--walks") => walk(mutant, walks),
                (Ok(seed), Some(mutant), _) => tell(mutant, seed),
                _ => usage(),
            }
        }
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(USAGE_EXIT)
}

fn list() -> ExitCode {
    for Planted {
        name,
        budget,
        sentence,
        ..
    } in MUTANTS
    {
        println!("{name} {budget} {sentence}");
    }
    ExitCode::SUCCESS
}

fn tell(mutant: Mutant, seed: u64) -> ExitCode {
    for line in trace(mutant, seed) {
        println!("{line}");
    }
    ExitCode::SUCCESS
}

fn walk(mutant: Mutant, walks: u64) -> ExitCode {
    let started = Instant::now();
    let found = search(mutant, walks);
    let seconds = started.elapsed().as_secs_f64();
    println!("{} walks in {seconds:.1} s: {:?}", found.walks, found.coverage);
    match found.violation {
        None => ExitCode::SUCCESS,
        Some(violation) => {
            println!("walk {}: {violation}", found.walks);
            ExitCode::FAILURE
        }
    }
}

fn all_mutants() -> ExitCode {
    let mut missed = 0;
    for planted in MUTANTS {
        let started = Instant::now();
        let found = search(planted.mutant, planted.budget);
        let seconds = started.elapsed().as_secs_f64();
        let result = match found.violation {
            Some(violation) => format!("found at walk {} of {}: {violation}", found.walks, planted.budget),
            None => {
                missed += 1;
                format!("NOT FOUND in {} walks", planted.budget)
            }
        };
        println!("{:<30} {seconds:>6.1} s  {result}", planted.name);
    }
    println!("{} planted faults, {missed} missed", MUTANTS.len());
    if missed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
