//! `cargo xtask plugins`: every plugin of the repository, from its source to a component.
//!
//! [`Toolchain`] finds a Rust that compiles them. They are made components of by a small program of their own workspace: the
//! node, which does the same for what is uploaded, is compiled much later.

use crate::machine;
use crate::process::{cargo, root, succeed, target_folder};
use crate::toolchain::{TARGET, Toolchain};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The workspace of the plugins, from the root of the repository.
const MANIFEST: &str = "plugins/Cargo.toml";
/// How deep below `plugins/` a plugin may stand.
const DEPTH_MAX: usize = 3;
/// Longest time for setting the machine up and for building everything.
const BUILD_LIMIT: Duration = Duration::from_secs(3_600);

/// `cargo build` for plugins.
fn compile(toolchain: &Toolchain) -> Command {
    // Its own settings, and nothing of the cargo that runs this program, where it is another one.
    let usual = cargo(&[]);
    let mut command = toolchain.cargo(usual);
    command
        .current_dir(root())
        .env("CARGO_TARGET_DIR", target_folder())
        .args([
            "build",
            "--manifest-path",
            MANIFEST,
            "--release",
            "--locked",
            "--target",
            TARGET,
        ]);
    command
}

/// A plugin of this repository.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Plugin {
    /// Its name, as in its `plugin.toml`.
    name: String,
    /// The package of Rust.
    package: String,
}

impl Plugin {
    /// The core module that the compiler leaves.
    fn module(&self) -> PathBuf {
        let file = format!("{}.wasm", self.package.replace('-', "_"));
        target_folder().join(TARGET).join("release").join(file)
    }

    /// The component that is made of it.
    fn component(&self) -> PathBuf {
        target_folder()
            .join("plugins")
            .join(format!("{}.wasm", self.name))
    }
}

/// `cargo xtask plugins`: sets the machine up and builds them.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    if let Some(argument) = arguments.first() {
        return Err(format!(
            "cargo xtask plugins takes no arguments, not even {argument}"
        ));
    }
    let deadline = Instant::now() + BUILD_LIMIT;
    machine::ready_for_plugins(deadline)?;
    for component in build(deadline)? {
        println!("{}", component.display());
    }
    Ok(())
}

/// The stage of `cargo xtask test`: what the root workspace's stages check there, and the components.
pub(crate) fn stage(deadline: Instant) -> Result<(), String> {
    succeed(
        cargo(&["fmt", "--manifest-path", MANIFEST, "--all", "--check"]),
        deadline,
    )?;
    let fixed = ["--manifest-path", MANIFEST, "--workspace", "--locked"];
    let lints = ["--all-targets", "--", "-D", "warnings"];
    succeed(cargo(&[&["clippy"], &fixed[..], &lints].concat()), deadline)?;
    succeed(
        cargo(&[&["test"], &fixed[..], &["--no-fail-fast"]].concat()),
        deadline,
    )?;
    build(deadline).map(|_| ())
}

/// Builds every plugin and returns their components. Only what has changed is compiled and written again.
pub(crate) fn build(deadline: Instant) -> Result<Vec<PathBuf>, String> {
    let toolchain =
        Toolchain::find(&root()).ok_or("no Rust here can compile plugins: run `cargo xtask plugins`")?;
    let mut plugins = Vec::new();
    find(&root().join("plugins"), 0, &mut plugins)?;
    let mut compile = compile(&toolchain);
    for plugin in &plugins {
        compile.args(["-p", &plugin.package]);
    }
    succeed(compile, deadline)?;
    let folder = target_folder().join("plugins");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut encode = cargo(&["run", "--quiet", "--manifest-path", MANIFEST, "--locked"]);
    encode.args(["-p", "penstock-plugin-encode", "--"]);
    for plugin in &plugins {
        encode.arg(plugin.module()).arg(plugin.component());
    }
    succeed(encode, deadline)?;
    Ok(plugins.iter().map(Plugin::component).collect())
}

/// Finds the folders that hold a plugin in Rust. Templates are none yet: their names are still to be filled in.
fn find(folder: &Path, depth: usize, plugins: &mut Vec<Plugin>) -> Result<(), String> {
    let (cargo, plugin) = (folder.join("Cargo.toml"), folder.join("plugin.toml"));
    if cargo.is_file() && plugin.is_file() {
        plugins.push(Plugin {
            name: named(&plugin)?,
            package: named(&cargo)?,
        });
    } else if depth < DEPTH_MAX {
        let mut folders: Vec<PathBuf> = machine::entries(folder)
            .into_iter()
            .filter(|path| path.is_dir() && !path.ends_with("templates"))
            .collect();
        folders.sort();
        for inner in folders {
            find(&inner, depth + 1, plugins)?;
        }
    }
    Ok(())
}

fn named(file: &Path) -> Result<String, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    name(&text).ok_or_else(|| format!("{}: no line `name = \"...\"`", file.display()))
}

/// The first `name = "..."` of a manifest.
fn name(manifest: &str) -> Option<String> {
    let line = manifest.lines().find_map(|line| line.strip_prefix("name = \""))?;
    line.strip_suffix('"').map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_and_nothing_like_one() {
        assert_eq!(
            name("[package]\nname = \"penstock-one\"\nname = \"two\"\n"),
            Some("penstock-one".to_owned())
        );
        assert_eq!(name("version = \"1\"\nname.workspace = true\n"), None);
    }

    #[test]
    fn finds_the_plugins_of_the_repository() {
        let mut plugins = Vec::new();
        find(&root().join("plugins"), 0, &mut plugins).unwrap();
        let wanted = Plugin {
            name: "profanity-filter".to_owned(),
            package: "penstock-profanity-filter".to_owned(),
        };
        assert!(plugins.contains(&wanted), "{plugins:?}");
        assert!(wanted.component().ends_with("plugins/profanity-filter.wasm"));
        assert!(
            wanted
                .module()
                .ends_with("release/penstock_profanity_filter.wasm")
        );
    }
}
