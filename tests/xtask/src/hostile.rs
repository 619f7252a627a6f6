//! `cargo xtask hostile`: the attacks of the end-to-end tests at their full size, against the binary.

use crate::machine;
use crate::process::{built, cargo, program, succeed};
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
    succeed(
        cargo(&["build", "--locked", "--workspace", "--bin", "hostile"]),
        deadline,
    )?;
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    succeed(program(&built("hostile"), &words), Instant::now() + RUN_LIMIT)
}
