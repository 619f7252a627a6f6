//! Crates, built for WebAssembly with what the machine has.

use super::is_there;
use super::toolchain::{DEBIAN_PACKAGES, TARGET, Toolchain};
use crate::cache;
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Builds the crate in this folder and gives the path of its module.
pub(super) fn build(folder: &Path) -> Result<PathBuf> {
    let toolchain = toolchain(folder)?;
    let mut cargo = toolchain.cargo(Command::new("cargo"));
    // The standard library takes minutes to compile: once on a machine is enough. Who set CARGO_TARGET_DIR has the last word.
    if toolchain != Toolchain::Usual
        && let Some(shared) = cache::folder("rust")
    {
        let shared = toml::Value::String(shared.to_string_lossy().into_owned());
        cargo.arg("--config").arg(format!("build.target-dir={shared}"));
    }
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

fn toolchain(folder: &Path) -> Result<Toolchain> {
    if let Some(toolchain) = Toolchain::find(folder) {
        return Ok(toolchain);
    }
    let how = if is_there("rustup") {
        format!("rustup target add {TARGET}")
    } else if is_there("apt-get") {
        format!("sudo apt-get install {}", DEBIAN_PACKAGES.join(" "))
    } else {
        format!("install Rust from https://rustup.rs, then: rustup target add {TARGET}")
    };
    bail!("Rust cannot build for WebAssembly here. Install what it lacks: {how}")
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
