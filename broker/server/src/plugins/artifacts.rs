//! Components by digest, in a folder of this node.

use super::facts;
use penstock_core::hooks::call::Digest;
use penstock_core::hooks::registry::{Artifact, Hook};
use penstock_plugin_host::{Inspected, Refused, inspect, rehearse};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Most bytes of all components together; what is not named by the registry may be removed by hand.
const FOLDER_BYTES_MAX: u64 = 4 << 30;

/// Components by digest.
#[derive(Debug)]
pub struct Artifacts {
    folder: PathBuf,
    /// The command that looks at a component before this process does; without one this process does so at once.
    inspector: Option<Vec<OsString>>,
    /// One writer at a time: two uploads of one component would write the same file.
    turn: Mutex<()>,
}

impl Artifacts {
    /// In this folder, which is made when there is something to keep.
    pub(super) fn new(folder: PathBuf, inspector: Option<Vec<OsString>>) -> Artifacts {
        Artifacts {
            folder,
            inspector,
            turn: Mutex::new(()),
        }
    }

    fn path(&self, digest: Digest) -> PathBuf {
        self.folder.join(format!("{digest}.wasm"))
    }

    /// Keeps a component durably. The same again changes nothing.
    pub(super) fn keep(&self, bytes: &[u8]) -> Result<Artifact, Refused> {
        if let Some(inspector) = &self.inspector {
            rehearse(inspector, bytes)?;
        }
        let inspected = inspect(bytes)?;
        let path = self.path(inspected.digest);
        // It guards files, and what a writer that died left is replaced.
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if !path.exists() {
            fs::create_dir_all(&self.folder).map_err(|error| failed(&self.folder, &error))?;
            self.check_room(inspected.component.len())?;
            let partial = path.with_extension("partial");
            let written = File::create(&partial).and_then(|mut file| {
                file.write_all(&inspected.component)?;
                file.sync_all()?;
                fs::rename(&partial, &path)?;
                File::open(&self.folder)?.sync_all()
            });
            written.map_err(|error| failed(&path, &error))?;
        }
        Ok(artifact(&inspected))
    }

    fn check_room(&self, bytes: usize) -> Result<(), Refused> {
        let listing = fs::read_dir(&self.folder).map_err(|error| failed(&self.folder, &error))?;
        let used: u64 = listing
            .filter_map(|entry| entry.ok()?.metadata().ok())
            .map(|metadata| metadata.len())
            .sum();
        if used + bytes as u64 > FOLDER_BYTES_MAX {
            return Err(Refused::Io(format!(
                "the components of this node take {used} bytes already, at most {FOLDER_BYTES_MAX} are kept: remove some from {}",
                self.folder.display()
            )));
        }
        Ok(())
    }

    /// The bytes of a component; none when it was not uploaded here.
    pub(super) fn read(&self, digest: Digest) -> Result<Option<Vec<u8>>, Refused> {
        let path = self.path(digest);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&path, &error)),
        }
    }

    pub(super) fn describe(&self, digest: Digest) -> Result<Option<Artifact>, Refused> {
        let Some(bytes) = self.read(digest)? else {
            return Ok(None);
        };
        inspect(&bytes).map(|inspected| Some(artifact(&inspected)))
    }
}

fn artifact(inspected: &Inspected) -> Artifact {
    let names = inspected.hooks.iter().map(|hook| hook.name());
    Artifact {
        digest: inspected.digest,
        hooks: names.filter_map(Hook::named).collect(),
        facts: facts(inspected),
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Refused {
    Refused::Io(format!("{}: {error}", path.display()))
}
