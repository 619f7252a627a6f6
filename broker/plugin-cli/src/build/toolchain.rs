//! A Rust that compiles plugins. Nothing but the standard library is used, because `cargo xtask` takes this very file.
//!
//! Plugins are linked for `wasm32-unknown-unknown`. A Rust of rustup has the standard library for it when the target was
//! added; Debian packages one only in source, and its compiler builds it on the way.

use std::path::Path;
use std::process::{Command, Stdio};

/// What plugins are compiled for: nothing of a system.
pub(crate) const TARGET: &str = "wasm32-unknown-unknown";
/// Debian's packages for the web: the compiler, the sources of the standard library, and a linker of the same LLVM.
pub(crate) const DEBIAN_PACKAGES: [&str; 4] = ["rustc-web", "cargo-web", "rust-web-src", "lld-22"];

/// Where Debian puts its own Rust, which a Rust of rustup hides in the path.
const DEBIAN_CARGO: &str = "/usr/bin/cargo";
const DEBIAN_COMPILER: &str = "/usr/bin/rustc";

/// A Rust that can compile plugins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Toolchain {
    /// The usual one: the target was added to it.
    Usual,
    /// Debian's, which compiles the standard library from source and links with this program.
    Debian { linker: String },
}

impl Toolchain {
    /// The one to use in this folder, when there is one.
    pub(crate) fn find(folder: &Path) -> Option<Toolchain> {
        if library("rustc", folder, &format!("{TARGET}/lib")) {
            return Some(Toolchain::Usual);
        }
        let linker = linker(&said(DEBIAN_COMPILER, folder, &["-vV"])?)?;
        let can_build = library(DEBIAN_COMPILER, folder, "src/rust/library")
            && Path::new(DEBIAN_CARGO).is_file()
            && starts(&linker);
        can_build.then_some(Toolchain::Debian { linker })
    }

    /// Its cargo, given the usual one.
    pub(crate) fn cargo(&self, usual: Command) -> Command {
        let Toolchain::Debian { linker } = self else {
            return usual;
        };
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

/// Whether a program can be started at all.
fn starts(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null());
    command.output().is_ok()
}

/// What a program answers, if it is there.
fn said(program: &str, folder: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    let output = command.args(arguments).current_dir(folder).output().ok()?;
    let text = output.status.success().then_some(output.stdout)?;
    String::from_utf8(text).ok()
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
}
