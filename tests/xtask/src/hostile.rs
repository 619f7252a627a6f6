//! `cargo xtask hostile`: the attacks of the end-to-end tests at their full size, against the binary.

use crate::machine;
use crate::process::{cargo, succeed};
use crate::stages;
use std::time::{Duration, Instant};

/// Longest time for building.
const BUILD_LIMIT: Duration = Duration::from_secs(3_600);

/// Longest time for the attacks, on a slow machine.
const RUN_LIMIT: Duration = Duration::from_secs(4 * 3_600);

/// Builds the broker and the program that attacks it, which knows the arguments.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let deadline = Instant::now() + BUILD_LIMIT;
    machine::ready_to_build(deadline)?;
    stages::build_node(deadline)?;
    let attack = [
        "run",
        "--quiet",
        "--locked",
        "-p",
        "penstock-e2e",
        "--bin",
        "hostile",
        "--",
    ];
    let words = attack.into_iter().chain(arguments.iter().map(String::as_str));
    let words: Vec<&str> = words.collect();
    succeed(cargo(&words), Instant::now() + RUN_LIMIT)
}
