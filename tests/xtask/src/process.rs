//! Running other programs under a deadline that holds for their children too.

use std::env;
use std::ffi::OsString;
use std::io::{IsTerminal, stdin};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How often a running child is looked at.
const POLL: Duration = Duration::from_millis(50);

/// The root of the repository: this crate stands two folders below it.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .map_or_else(PathBuf::new, Path::to_path_buf)
}

/// `cargo` with these arguments, in the root of the repository. It is the very cargo that started this program.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    command(&cargo, arguments)
}

/// Any other program with these arguments, in the root of the repository.
pub(crate) fn program(name: &str, arguments: &[&str]) -> Command {
    command(&OsString::from(name), arguments)
}

fn command(name: &OsString, arguments: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.args(arguments).current_dir(root());
    // The plugins are a workspace of their own, which would get a folder of its own.
    command.env("CARGO_TARGET_DIR", target_folder());
    command
}

/// Where cargo puts what it builds.
pub(crate) fn target_folder() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root().join(folder),
        None => root().join("target"),
    }
}

/// A binary that cargo has built.
pub(crate) fn built(name: &str) -> String {
    target_folder().join("debug").join(name).display().to_string()
}

/// Runs the command and demands exit code 0 before the deadline.
pub(crate) fn succeed(command: Command, deadline: Instant) -> Result<(), String> {
    let shown = show(&command);
    let status = run(command, deadline)?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{shown}: {status}"))
    }
}

/// Runs the command before the deadline and returns how it ended. At the deadline the command and all of its children
/// are killed, and that is an error.
pub(crate) fn run(mut command: Command, deadline: Instant) -> Result<ExitStatus, String> {
    let shown = show(&command);
    println!("    $ {shown}");
    let own_group = isolate(&mut command);
    let mut child = command.spawn().map_err(|error| format!("{shown}: {error}"))?;
    loop {
        if let Some(status) = child.try_wait().map_err(|error| format!("{shown}: {error}"))? {
            return Ok(status);
        }
        if Instant::now() >= deadline {
            kill(&mut child, own_group);
            return Err(format!("{shown}: killed at the time limit"));
        }
        thread::sleep(POLL);
    }
}

/// What the command prints on standard output, when it succeeds.
pub(crate) fn output(mut command: Command) -> Result<String, String> {
    let shown = show(&command);
    let output = command.output().map_err(|error| format!("{shown}: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "{shown}: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a program of this name can be found on the path.
pub(crate) fn exists(name: &str) -> bool {
    let Some(path) = env::var_os("PATH") else {
        return false;
    };
    env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

fn show(command: &Command) -> String {
    let mut shown = Path::new(command.get_program())
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    for argument in command.get_args() {
        shown.push(' ');
        shown.push_str(&argument.to_string_lossy());
    }
    shown
}

/// Puts the command into a process group of its own, so that its children can be killed with it. On a terminal it stays
/// in ours, so that an interrupt from the keyboard reaches it.
fn isolate(command: &mut Command) -> bool {
    if stdin().is_terminal() {
        return false;
    }
    command.stdin(Stdio::null());
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    cfg!(unix)
}

fn kill(child: &mut Child, own_group: bool) {
    if own_group {
        // The shell's own `kill` is used: a slim machine has no program of that name.
        let group = format!("kill -KILL -{}", child.id());
        let _ended_already = Command::new("sh")
            .args(["-c", &group])
            .stderr(Stdio::null())
            .status();
    }
    let _ended_already = child.kill();
    let _reaped = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn the_time_limit_ends_a_command_and_its_children() {
        // The pipe ends only when the last process that holds it has ended, the inner shell's `sleep` included.
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let mut command = program("sh", &["-c", "sh -c 'echo started; sleep 60; true'; true"]);
        command.stdout(writer);
        let started = Instant::now();
        let outcome = run(command, started + Duration::from_millis(500));
        assert!(outcome.is_err_and(|message| message.contains("time limit")));
        if !stdin().is_terminal() {
            let mut said = String::new();
            std::io::Read::read_to_string(&mut reader, &mut said).expect("the pipe can be read");
            assert_eq!(said, "started\n");
            assert!(
                started.elapsed() < Duration::from_secs(30),
                "the inner shell outlived the time limit"
            );
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_failure_is_reported_with_the_command_line() {
        let deadline = Instant::now() + Duration::from_secs(60);
        let outcome = succeed(program("sh", &["-c", "exit 3"]), deadline);
        assert!(outcome.is_err_and(|message| message.contains("sh -c exit 3") && message.contains('3')));
    }

    #[test]
    fn the_root_holds_the_workspace() {
        assert!(root().join("Cargo.toml").is_file());
        assert!(root().join("tests/xtask/Cargo.toml").is_file());
    }
}
