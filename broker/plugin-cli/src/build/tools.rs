//! Tools that a build installs for itself: once on a machine, for all plugins that pin the same ones.

use crate::cache;
use crate::folder::Folder;
use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// What stands for the folder of the tools in a step.
const PLACE: &str = "{tools}";
/// Bytes of the digest that stand in the name of their folder.
const NAME_BYTES: usize = 8;

/// The folder of a build's tools. As long as this lives, no other build installs into it.
pub(super) struct Tools {
    folder: Option<PathBuf>,
    _held: Option<File>,
}

impl Tools {
    /// The folder for what the recipe pins, with the files that pin it.
    pub(super) fn of(folder: &Folder) -> Result<Tools> {
        let files = &folder.recipe.tools;
        if files.is_empty() {
            return Ok(Tools {
                folder: None,
                _held: None,
            });
        }
        let all = cache::folder("tools").context("there is no home folder to install tools into")?;
        Tools::within(&all, folder)
    }

    fn within(all: &Path, folder: &Folder) -> Result<Tools> {
        let mut pinned = Vec::new();
        let mut digest = Sha256::new();
        for file in &folder.recipe.tools {
            let path = folder.path.join(file);
            let bytes = fs::read(&path).with_context(|| format!("{}: it pins the tools", path.display()))?;
            let name = file.file_name().context("tools: files, not folders")?.to_owned();
            digest.update(name.as_encoded_bytes());
            digest.update((bytes.len() as u64).to_be_bytes());
            digest.update(&bytes);
            pinned.push((name, bytes));
        }
        let digest: String = digest.finalize()[..NAME_BYTES]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let own = all.join(format!("{}-{digest}", folder.recipe.language.name()));
        let written = || -> std::io::Result<File> {
            fs::create_dir_all(&own)?;
            let held = File::create(own.with_extension("lock"))?;
            held.lock()?;
            for (name, bytes) in &pinned {
                let path = own.join(name);
                if !path.exists() {
                    fs::write(path, bytes)?;
                }
            }
            Ok(held)
        };
        let held = written().with_context(|| own.display().to_string())?;
        Ok(Tools {
            folder: Some(own),
            _held: Some(held),
        })
    }

    /// The text with the folder in its place.
    pub(super) fn filled(&self, text: &str) -> String {
        match &self.folder {
            Some(folder) => text.replace(PLACE, &folder.to_string_lossy()),
            None => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Options;

    const RECIPE: &str =
        "language = \"c\"\ncomponent = \"a\"\ntools = [\"pins\"]\n[[step]]\nrun = [\"true\"]\n";

    fn plugin(pins: &str) -> Result<(tempfile::TempDir, Folder)> {
        let made = tempfile::tempdir()?;
        let manifest = "name = \"a\"\nversion = \"1\"\napi = \"1\"\nhooks = [\"before-send\"]\n";
        fs::write(made.path().join("plugin.toml"), manifest)?;
        fs::write(made.path().join("build.toml"), RECIPE)?;
        fs::write(made.path().join("pins"), pins)?;
        let folder = Folder::open(&Options {
            folder: Some(made.path().to_owned()),
            ..Options::default()
        })?;
        Ok((made, folder))
    }

    #[test]
    fn plugins_that_pin_the_same_share_their_tools_and_others_do_not() -> Result<()> {
        let all = tempfile::tempdir()?;
        let ((_one, one), (_two, two), (_other, other)) = (plugin("1")?, plugin("1")?, plugin("2")?);
        let place = |folder: &Folder| -> Result<String> {
            Ok(Tools::within(all.path(), folder)?.filled("{tools}/bin"))
        };
        assert_eq!(place(&one)?, place(&two)?);
        assert_ne!(place(&one)?, place(&other)?);
        let shared = PathBuf::from(place(&one)?);
        assert_eq!(fs::read_to_string(shared.with_file_name("pins"))?, "1");
        fs::remove_file(one.path.join("pins"))?;
        let refused = Tools::within(all.path(), &one).err().context("is refused")?;
        assert!(refused.to_string().contains("it pins the tools"), "{refused}");
        Ok(())
    }

    #[test]
    fn one_build_at_a_time_installs() -> Result<()> {
        let all = tempfile::tempdir()?;
        let (_made, folder) = plugin("1")?;
        let tools = Tools::within(all.path(), &folder)?;
        let lock = PathBuf::from(tools.filled("{tools}.lock"));
        assert!(File::open(&lock)?.try_lock().is_err());
        drop(tools);
        // Another test may start a program just now, which holds what this one had open until it runs: then it is free a moment later.
        let lock = File::open(&lock)?;
        let is_free = (0..200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            lock.try_lock().is_ok()
        });
        assert!(is_free, "nobody builds any more");
        Ok(())
    }
}
