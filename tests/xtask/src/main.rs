//! The commands of the project: `cargo xtask run`, `test`, `fuzz`, `hostile` and `plugins`.
//!
//! All look first at what the machine lacks ([`machine`]), install it where they may, and say in one line how to
//! install it where they may not. Only the standard library is used, so that this program compiles in seconds on a
//! clean machine before anything else does.

#![expect(
    clippy::print_stdout,
    reason = "a command line program answers on standard output"
)]

mod fuzz;
mod hostile;
mod machine;
mod mutants;
mod plugins;
mod process;
mod serve;
mod stages;
mod table;
/// As the command `penstock plugin build` finds it.
#[path = "../../../broker/plugin-cli/src/build/toolchain.rs"]
mod toolchain;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask run [-- ARGS...]        set the machine up, build, and start a development node
cargo xtask test [--only A[,B...]]  set the machine up and run every check; --only is for local use
cargo xtask fuzz [TARGET...] [--minutes N] [--keep] [-- ARGS...]
                                    search for inputs that break something, one minute each unless N is given;
                                    --keep takes what earlier searches reached into the corpus of the repository
cargo xtask plugins                 set the machine up and build every plugin from its source to
                                    <target folder>/plugins/<name>.wasm
cargo xtask hostile [b27] [b53] [plugins] [--percent N]
                                    the attacks that the tests make small, at the size of their rows: on a quiet machine,
                                    a minute for b27, a quarter of an hour for b53; and what a hostile plugin does to the
                                    channels that it is not bound to, two minutes
";

fn main() -> ExitCode {
    if fuzz::is_compiler() {
        return end(fuzz::compile());
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.first().map(String::as_str) {
        Some("run") => serve::run(&arguments[1..]),
        Some("hostile") => hostile::run(&arguments[1..]),
        Some("fuzz") => fuzz::run(&arguments[1..]),
        Some("plugins") => plugins::run(&arguments[1..]),
        Some("test") => only_argument(&arguments[1..]).and_then(|only| stages::run(&only)),
        _ => Err(USAGE.to_owned()),
    };
    end(outcome)
}

fn end(outcome: Result<(), String>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{}", message.trim_end());
            ExitCode::FAILURE
        }
    }
}

/// The stage names of `--only`; empty when the flag is absent, which means all stages.
fn only_argument(arguments: &[String]) -> Result<Vec<String>, String> {
    let list = match arguments {
        [] => return Ok(Vec::new()),
        [flag, list] if flag == "--only" => list.as_str(),
        [both] if both.starts_with("--only=") => &both["--only=".len()..],
        _ => return Err(USAGE.to_owned()),
    };
    let names: Vec<String> = list.split(',').map(str::to_owned).collect();
    match names.iter().find(|name| !stages::NAMES.contains(&name.as_str())) {
        None => Ok(names),
        Some(unknown) => Err(format!(
            "no stage is called '{unknown}'; the stages are {}",
            stages::NAMES.join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn only_takes_known_stages_and_refuses_the_rest() {
        assert_eq!(only_argument(&[]), Ok(Vec::new()));
        assert_eq!(
            only_argument(&strings(&["--only", "fmt,sim"])),
            Ok(strings(&["fmt", "sim"]))
        );
        assert_eq!(only_argument(&strings(&["--only=doc"])), Ok(strings(&["doc"])));
        assert!(only_argument(&strings(&["--only", "fmt,nothing"])).is_err());
        assert!(only_argument(&strings(&["--skip", "fmt"])).is_err());
        assert!(only_argument(&strings(&["--only"])).is_err());
    }
}
