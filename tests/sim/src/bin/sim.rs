//! `cargo sim`: runs seeds of the simulated cluster. Exit status 0: all is well; 1: a rule is broken; 2: wrong usage;
//! 3: the run did not meet what it has to meet.

use penstock_sim::mutants::{self, Mutant};
use penstock_sim::runner::{Plan, Report, run};
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str =
    "usage: cargo sim --nodes N --seeds COUNT | FROM..TO [--mutant NAME] [--trace | --trace-from SECONDS] [--check-determinism] \
                     [--failures COUNT] [--tolerate-open]
       cargo sim --list-mutants";

const BROKEN: u8 = 1;
const WRONG_USAGE: u8 = 2;
const LACKING: u8 = 3;

fn main() -> ExitCode {
    match arguments(std::env::args().skip(1)) {
        Ok(None) => list_mutants(),
        Ok(Some(plan)) => simulate(&plan),
        Err(why) => {
            eprintln!("{why}\n{USAGE}");
            ExitCode::from(WRONG_USAGE)
        }
    }
}

fn arguments(mut words: impl Iterator<Item = String>) -> Result<Option<Plan>, String> {
    let mut plan = Plan {
        nodes: 3,
        from: 0,
        to: 100,
        mutant: None,
        trace: None,
        failures_max: 5,
        twice: false,
        tolerate_open: false,
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--list-mutants" => return Ok(None),
            "--nodes" => plan.nodes = number(&value()?)?,
            "--seeds" => (plan.from, plan.to) = range(&value()?)?,
            "--mutant" => {
                let name = value()?;
                let mutant: Option<&'static Mutant> = mutants::ALL.iter().find(|mutant| mutant.name == name);
                plan.mutant = Some(mutant.ok_or_else(|| format!("no planted bug is called {name}"))?);
                plan.failures_max = 1;
            }
            "--failures" => plan.failures_max = number(&value()?)?,
            "--trace" => plan.trace = Some(Duration::ZERO),
            "--trace-from" => plan.trace = Some(Duration::from_secs(number(&value()?)?)),
            "--check-determinism" => plan.twice = true,
            "--tolerate-open" => plan.tolerate_open = true,
            _ => return Err(format!("unknown word {word}")),
        }
    }
    if ![1, 3, 5].contains(&plan.nodes) || plan.from >= plan.to {
        return Err("a cluster has 1, 3 or 5 nodes, and a run at least one seed".to_owned());
    }
    Ok(Some(plan))
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text} is not a number"))
}

fn range(text: &str) -> Result<(u64, u64), String> {
    match text.split_once("..") {
        Some((from, to)) => Ok((number(from)?, number(to)?)),
        None => Ok((0, number(text)?)),
    }
}

fn list_mutants() -> ExitCode {
    let mut text = String::new();
    for mutant in mutants::ALL {
        text += &format!(
            "{} {} {} {}\n",
            mutant.name, mutant.nodes, mutant.seed_budget, mutant.sentence
        );
    }
    print(&text)
}

fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(WRONG_USAGE),
    }
}

fn simulate(plan: &Plan) -> ExitCode {
    let mut told = Instant::now();
    let total = plan.to - plan.from;
    let report = run(plan, |report| {
        if told.elapsed() >= Duration::from_secs(10) {
            told = Instant::now();
            let (done, failed) = (report.seeds, report.failures.len());
            eprintln!("{done} of {total} seeds, {failed} failed, {:.0?}", report.elapsed);
        }
    });
    let wrote = print(&summary(plan, &report));
    if !report.failures.is_empty() {
        return ExitCode::from(BROKEN);
    }
    if plan.mutant.is_none() && !report.lacks(plan.nodes).is_empty() {
        return ExitCode::from(LACKING);
    }
    wrote
}

fn summary(plan: &Plan, report: &Report) -> String {
    let mut text = String::new();
    for failure in &report.failures {
        for violation in &failure.violations {
            text += &format!("seed {}: {violation}\n", failure.seed);
        }
        let mutant = plan
            .mutant
            .map_or_else(String::new, |mutant| format!(" --mutant {}", mutant.name));
        let (from, to) = (failure.seed, failure.seed + 1);
        text += &format!(
            "  replay: cargo sim --nodes {} --seeds {from}..{to}{mutant}\n",
            plan.nodes
        );
    }
    if !report.open.is_empty() {
        text += &format!(
            "known to be open: {} seeds: {:?}\n",
            report.open.len(),
            report.open
        );
    }
    for lack in report.lacks(plan.nodes) {
        text += &format!("the run lacks something: {lack}\n");
    }
    let (time, acknowledged) = report.medians();
    let hours = report.coverage.virtual_time.as_secs_f64() / 3_600.0;
    text += &report.coverage.render();
    text += &format!(
        "\n{} nodes, {} seeds, {} failed, {hours:.1} virtual hours (median seed {time:.0?}), {} messages acknowledged \
         (median seed {acknowledged}), {} events, {:.1} s\n",
        plan.nodes,
        report.seeds,
        report.failures.len(),
        report.coverage.acknowledged,
        report.coverage.events,
        report.elapsed.as_secs_f64(),
    );
    text
}
