//! `cargo xtask plugins`: every plugin of the repository, from its source to a component.
//!
//! Plugins are linked for `wasm32-unknown-unknown`. A Rust of rustup has the standard library for it when the target was
//! added; Debian packages one only in source, and its compiler builds it on the way. Which of the two is here
//! ([`Toolchain::find`]) makes no difference to whoever asks for a plugin.

use crate::machine;
use crate::process::{cargo, output, program, root, succeed, target_folder};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// What plugins are compiled for.
pub(crate) const TARGET: &str = "wasm32-unknown-unknown";
/// The workspace of the plugins, from the root of the repository.
const MANIFEST: &str = "plugins/Cargo.toml";
/// How deep below `plugins/` a plugin may stand.
const DEPTH_MAX: usize = 3;
/// Longest time for setting the machine up and for building everything.
const BUILD_LIMIT: Duration = Duration::from_secs(3_600);

/// Where Debian puts its own Rust, which a Rust of rustup hides in the path.
const DEBIAN_CARGO: &str = "/usr/bin/cargo";
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";

/// A Rust that can compile plugins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Toolchain {
    /// The one that runs this program: the target was added to it.
    Here,
    /// Debian's, which compiles the standard library from source and links with this program.
    Debian { linker: String },
}

impl Toolchain {
    /// The one to use, when there is one.
    pub(crate) fn find() -> Option<Self> {
        if library(&sysroot("rustc")?, &format!("{TARGET}/lib")) {
            return Some(Self::Here);
        }
        let linker = linker(&output(program(DEBIAN_RUSTC, &["-vV"])).ok()?)?;
        let can_build =
            library(&sysroot(DEBIAN_RUSTC)?, "src/rust/library") && Path::new(DEBIAN_CARGO).is_file();
        (can_build && crate::process::exists(&linker)).then_some(Self::Debian { linker })
    }

    /// `cargo build` for plugins.
    fn build(&self) -> Command {
        let fixed = [
            "build",
            "--manifest-path",
            MANIFEST,
            "--release",
            "--locked",
            "--target",
            TARGET,
        ];
        match self {
            Self::Here => cargo(&fixed),
            Self::Debian { linker } => {
                let mut command = program(DEBIAN_CARGO, &fixed);
                command
                    .args(["-Z", "build-std=std,panic_abort"])
                    .env("RUSTC", DEBIAN_RUSTC)
                    // Building the standard library is for nightly compilers, unless a stable one is told to be one.
                    .env("RUSTC_BOOTSTRAP", "1")
                    .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker)
                    .env_remove("CARGO");
                command
            }
        }
    }
}

/// The linker of the LLVM that this compiler was made with: one of another version does not know its objects.
fn linker(verbose_version: &str) -> Option<String> {
    let version = verbose_version
        .lines()
        .find_map(|line| line.strip_prefix("LLVM version: "))?;
    Some(format!("wasm-ld-{}", version.split('.').next()?))
}

fn sysroot(rustc: &str) -> Option<PathBuf> {
    let path = output(program(rustc, &["--print", "sysroot"])).ok()?;
    Some(PathBuf::from(path.trim()))
}

fn library(sysroot: &Path, below: &str) -> bool {
    sysroot.join("lib/rustlib").join(below).is_dir()
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
    let toolchain = Toolchain::find().ok_or("no Rust here can compile plugins: run `cargo xtask plugins`")?;
    let mut plugins = Vec::new();
    find(&root().join("plugins"), 0, &mut plugins)?;
    let mut compile = toolchain.build();
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
    fn the_linker_is_of_the_compilers_llvm() {
        let version = "rustc 1.96.0\nhost: x86_64-unknown-linux-gnu\nLLVM version: 22.1.3\n";
        assert_eq!(linker(version), Some("wasm-ld-22".to_owned()));
        assert_eq!(linker("rustc 1.96.0\n"), None);
    }

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
