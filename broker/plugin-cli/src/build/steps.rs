//! The steps of a `build.toml`, one program after the other, no shell between.

use super::is_there;
use super::tools::Tools;
use crate::folder::{Folder, Step, modified};
use anyhow::{Context as _, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Runs the steps and gives the path of what they leave.
pub(super) fn build(folder: &Folder) -> Result<PathBuf> {
    for step in &folder.recipe.step {
        if let Some(missing) = step.needs.iter().find(|program| !is_there(program)) {
            let how = step
                .install
                .as_deref()
                .map_or(String::new(), |line| format!(". Install it: {line}"));
            bail!("`{missing}` is needed to build, and not there{how}");
        }
    }
    let tools = Tools::of(folder)?;
    for step in &folder.recipe.step {
        if !is_done(&folder.path, step, &tools) {
            run(&folder.path, step, &tools)?;
        }
    }
    let component = folder
        .recipe
        .component
        .as_ref()
        .context("build.toml names no `component`")?;
    Ok(folder.path.join(component))
}

fn run(folder: &Path, step: &Step, tools: &Tools) -> Result<()> {
    let words: Vec<String> = step.run.iter().map(|word| tools.filled(word)).collect();
    let shown = words.join(" ");
    let (program, arguments) = words.split_first().context("a step runs nothing")?;
    // One with a path is the folder's own, wherever this command runs, unless it is one of the tools.
    let program = if program.contains('/') {
        folder.canonicalize()?.join(program)
    } else {
        PathBuf::from(program)
    };
    // A step that installs something may take minutes without a word.
    eprintln!("$ {shown}");
    // What a program says goes where errors go: standard output belongs to this command.
    let status = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::from(std::io::stderr()))
        .status()
        .with_context(|| format!("`{shown}` cannot be started"))?;
    ensure!(
        status.success(),
        "`{shown}` failed with {status}: what it said stands above"
    );
    Ok(())
}

/// Whether what a step makes is there, and newer than what it makes it of.
fn is_done(folder: &Path, step: &Step, tools: &Tools) -> bool {
    let Some(made) = step
        .unless
        .as_ref()
        .and_then(|path| modified(&folder.join(tools.filled(path))).ok())
    else {
        return false;
    };
    step.newer_than
        .iter()
        .all(|source| modified(&folder.join(source)).is_ok_and(|changed| changed <= made))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Options;
    use std::fs;

    fn folder(made: &Path, recipe: &str) -> Result<Folder> {
        let manifest = "name = \"a\"\nversion = \"1\"\napi = \"1\"\nhooks = [\"before-send\"]\n";
        fs::write(made.join("plugin.toml"), manifest)?;
        fs::write(made.join("build.toml"), recipe)?;
        Folder::open(&Options {
            folder: Some(made.to_owned()),
            ..Options::default()
        })
    }

    #[test]
    fn steps_run_in_order_and_are_left_out_when_done() -> Result<()> {
        let made = tempfile::tempdir()?;
        let recipe = "language = \"c\"\ncomponent = \"b\"\n\
            [[step]]\nrun = [\"cp\", \"a\", \"b\"]\nneeds = [\"cp\"]\nunless = \"b\"\nnewer_than = [\"a\"]\n";
        let folder = folder(made.path(), recipe)?;
        assert!(
            build(&folder)
                .expect_err("there is no a")
                .to_string()
                .contains("cp a b")
        );
        fs::write(made.path().join("a"), "1")?;
        let component = build(&folder)?;
        assert_eq!(fs::read_to_string(&component)?, "1");
        // The same moment: nothing is newer, whatever stands in it.
        let moment = modified(&component)?;
        fs::write(made.path().join("a"), "2")?;
        let source = fs::File::options().append(true).open(made.path().join("a"))?;
        source.set_modified(moment)?;
        build(&folder)?;
        assert_eq!(fs::read_to_string(&component)?, "1");
        source.set_modified(moment + std::time::Duration::from_secs(5))?;
        build(&folder)?;
        assert_eq!(fs::read_to_string(&component)?, "2");
        Ok(())
    }

    #[cfg(unix)]
    #[test]
    fn a_program_with_a_path_is_the_folders_own() -> Result<()> {
        use std::os::unix::fs::symlink;
        let made = tempfile::tempdir()?;
        fs::create_dir(made.path().join("tools"))?;
        symlink("/bin/sh", made.path().join("tools/shell"))?;
        let recipe = "language = \"c\"\ncomponent = \"b\"\n\
            [[step]]\nrun = [\"tools/shell\", \"-c\", \"echo made > b\"]\n";
        let component = build(&folder(made.path(), recipe)?)?;
        assert_eq!(fs::read_to_string(component)?, "made\n");
        Ok(())
    }

    #[test]
    fn a_missing_program_is_named_with_the_line_that_installs_it() -> Result<()> {
        let made = tempfile::tempdir()?;
        let recipe = "language = \"c\"\ncomponent = \"b\"\n\
            [[step]]\nrun = [\"touch\", \"b\"]\n\
            [[step]]\nrun = [\"true\"]\nneeds = [\"no-such-program\"]\ninstall = \"get it\"\n";
        let refused = build(&folder(made.path(), recipe)?)
            .expect_err("is missing")
            .to_string();
        assert!(
            refused.contains("`no-such-program`") && refused.ends_with("Install it: get it"),
            "{refused}"
        );
        assert!(
            !made.path().join("b").exists(),
            "nothing runs before all is there"
        );
        Ok(())
    }
}
