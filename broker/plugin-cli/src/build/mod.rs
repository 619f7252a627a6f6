//! `penstock plugin build`: from sources to the one file that travels.

mod rust;
mod section;
mod steps;
mod toolchain;
mod tools;
mod world;

use crate::arguments::Options;
use crate::folder::{Folder, Language};
use anyhow::{Context as _, Result};
use penstock_plugin_host::{Inspected, inspect};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

/// Builds the folder's component.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<()> {
    build(&Folder::open(options)?, out).map(|_| ())
}

/// The component that was named, or else the folder's, built when its sources are newer.
pub(crate) fn component(options: &Options, out: &mut dyn Write) -> Result<Vec<u8>> {
    let path = match &options.component {
        Some(path) => path.clone(),
        None => {
            let folder = Folder::open(options)?;
            if folder.is_stale()? {
                build(&folder, out)?;
            }
            folder.component_path()
        }
    };
    fs::read(&path).with_context(|| path.display().to_string())
}

fn build(folder: &Folder, out: &mut dyn Write) -> Result<Inspected> {
    let made = match folder.recipe.language {
        Language::Rust => rust::build(&folder.path)?,
        _ => steps::build(folder)?,
    };
    let bytes = fs::read(&made).with_context(|| format!("{}: the build did not leave it", made.display()))?;
    let bytes = match &folder.recipe.world {
        Some(world) => world::with_world(bytes, world).with_context(|| made.display().to_string())?,
        None => bytes,
    };
    let bytes =
        section::with_manifest(bytes, &folder.manifest_text).with_context(|| made.display().to_string())?;
    let inspected = inspect(&bytes).with_context(|| made.display().to_string())?;
    let component = folder.component_path();
    let partial = component.with_extension("partial");
    fs::write(&partial, &inspected.component)
        .and_then(|()| fs::rename(&partial, &component))
        .with_context(|| component.display().to_string())?;
    writeln!(out, "{}", component.display())?;
    describe(&inspected, out)?;
    Ok(inspected)
}

/// Size, digest, hooks and imports.
pub(crate) fn describe(inspected: &Inspected, out: &mut dyn Write) -> Result<()> {
    let list = |items: Vec<&str>| {
        if items.is_empty() {
            "none".to_owned()
        } else {
            items.join(", ")
        }
    };
    let hooks = list(inspected.hooks.iter().map(|hook| hook.interface()).collect());
    let imports = list(inspected.imports.iter().map(String::as_str).collect());
    writeln!(
        out,
        "  plugin   {} {}",
        inspected.manifest.name, inspected.manifest.version
    )?;
    writeln!(out, "  size     {} bytes", inspected.component.len())?;
    writeln!(out, "  digest   {}", inspected.digest)?;
    writeln!(out, "  hooks    {hooks}")?;
    writeln!(out, "  imports  {imports}")?;
    Ok(())
}

/// Whether a program can be started at all.
pub(crate) fn is_there(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
}
