//! Crates, built for WebAssembly with what the machine has.

use super::is_there;
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What plugins are built for: nothing of a system.
const TARGET: &str = "wasm32-unknown-unknown";

/// Where Debian puts its own Rust, which a Rust of rustup hides in the path.
const DEBIAN_CARGO: &str = "/usr/bin/cargo";
const DEBIAN_COMPILER: &str = "/usr/bin/rustc";
/// Its packages for the web: the compiler, the sources of the standard library, and a linker of the same LLVM.
const DEBIAN_PACKAGES: &str = "rustc-web cargo-web rust-web-src lld-22";

/// A Rust that can compile plugins.
#[derive(Debug, PartialEq, Eq)]
enum Toolchain {
    /// The usual one: the target was added to it.
    Installed,
    /// Debian's, which compiles the standard library from source and links with this program.
    Debian { linker: String },
}

/// Builds the crate in this folder and gives the path of its module.
pub(super) fn build(folder: &Path) -> Result<PathBuf> {
    let toolchain = toolchain(folder)?;
    let mut cargo = command(&toolchain);
    cargo
        .args([
            "build",
            "--release",
            "--target",
            TARGET,
            "--message-format=json-render-diagnostics",
        ])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let output = cargo
        .output()
        .context("cargo cannot be started: install Rust from https://rustup.rs")?;
    ensure!(
        output.status.success(),
        "cargo failed with {}: what it said stands above",
        output.status
    );
    module(&String::from_utf8_lossy(&output.stdout))
}

fn command(toolchain: &Toolchain) -> Command {
    match toolchain {
        Toolchain::Installed => Command::new("cargo"),
        Toolchain::Debian { linker } => {
            let mut cargo = Command::new(DEBIAN_CARGO);
            cargo
                .args(["-Z", "build-std=std,panic_abort"])
                .env("RUSTC", DEBIAN_COMPILER)
                // Building the standard library is for nightly compilers, unless a stable one is told to be one.
                .env("RUSTC_BOOTSTRAP", "1")
                .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker)
                .env_remove("CARGO")
                .env_remove("RUSTUP_TOOLCHAIN");
            cargo
        }
    }
}

fn toolchain(folder: &Path) -> Result<Toolchain> {
    if library("rustc", folder, &format!("{TARGET}/lib")) {
        return Ok(Toolchain::Installed);
    }
    let linker = said(DEBIAN_COMPILER, folder, &["-vV"]).and_then(|version| linker(&version));
    if let Some(linker) = linker
        && library(DEBIAN_COMPILER, folder, "src/rust/library")
        && Path::new(DEBIAN_CARGO).is_file()
        && is_there(&linker)
    {
        return Ok(Toolchain::Debian { linker });
    }
    let how = if is_there("rustup") {
        format!("rustup target add {TARGET}")
    } else if is_there("apt-get") {
        format!("sudo apt-get install {DEBIAN_PACKAGES}")
    } else {
        format!("install Rust from https://rustup.rs, then: rustup target add {TARGET}")
    };
    bail!("Rust cannot build for WebAssembly here. Install what it lacks: {how}")
}

/// Whether a compiler has this part below the libraries of its toolchain.
fn library(compiler: &str, folder: &Path, below: &str) -> bool {
    let sysroot = said(compiler, folder, &["--print", "sysroot"]);
    sysroot.is_some_and(|sysroot| Path::new(sysroot.trim()).join("lib/rustlib").join(below).is_dir())
}

/// The linker of the LLVM that a compiler was made with: one of another version does not know its objects.
fn linker(verbose_version: &str) -> Option<String> {
    let version = verbose_version
        .lines()
        .find_map(|line| line.strip_prefix("LLVM version: "))?;
    Some(format!("wasm-ld-{}", version.split('.').next()?))
}

/// What a program answers, if it is there.
fn said(program: &str, folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .output()
        .ok()?;
    let text = output.status.success().then_some(output.stdout)?;
    String::from_utf8(text).ok()
}

/// The module among the messages of cargo: what the last crate left, which is the one of the folder.
fn module(messages: &str) -> Result<PathBuf> {
    let mut modules = messages.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let files = message["filenames"].as_array()?;
        let mut names = files.iter().filter_map(Value::as_str);
        names.find(|name| name.ends_with(".wasm")).map(PathBuf::from)
    });
    modules
        .next_back()
        .context("cargo built no module: Cargo.toml must say [lib] crate-type = [\"cdylib\"]")
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
    fn the_module_is_the_last_that_cargo_names() -> Result<()> {
        let messages = r#"{"reason":"compiler-artifact","filenames":["/t/libserde.rlib"]}
warning: not JSON
{"reason":"compiler-artifact","filenames":["/t/other.wasm"]}
{"reason":"compiler-artifact","filenames":["/t/libshout.rlib","/t/shout.wasm"]}
{"reason":"build-finished","success":true}"#;
        assert_eq!(module(messages)?, PathBuf::from("/t/shout.wasm"));
        let refused = module("{\"reason\":\"build-finished\"}").expect_err("there is none");
        assert!(refused.to_string().contains("cdylib"));
        Ok(())
    }
}
