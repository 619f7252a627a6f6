//! Opening a data directory: what survived, and what to do when not everything did (M-8).

use crate::directory::{Claimed, Directory};
use crate::engine::{Engine, Recovery};
use crate::error::Error;
use crate::mark::Mark;
use crate::options::Options;
use crate::store::{Part, Store};
use penstock_core::rows::Instance;
use penstock_core::types::DiskBoot;
use std::path::Path;

/// What a start found in the data directory. The node registers with the disk boot it names (M-4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// A new directory.
    New {
        /// Its disk boot.
        disk: DiskBoot,
    },
    /// Everything that was ever reported as stored is there.
    Intact {
        /// Its disk boot.
        disk: DiskBoot,
    },
    /// Stored data was missing or corrupt: the store is empty under a new disk boot, and the node refills from the others.
    /// The old files stand in `set-aside/`.
    Amnesiac {
        /// The new disk boot.
        disk: DiskBoot,
        /// What was found.
        what: String,
    },
    /// Stored data was missing or corrupt on the single copy, and the operator accepted the loss: what can be read is kept,
    /// under the old disk boot.
    Reduced {
        /// The old disk boot.
        disk: DiskBoot,
        /// What was found.
        what: String,
    },
}

impl Recovered {
    /// The disk boot that the node registers.
    #[must_use]
    pub fn disk(&self) -> DiskBoot {
        match self {
            Recovered::New { disk }
            | Recovered::Intact { disk }
            | Recovered::Amnesiac { disk, .. }
            | Recovered::Reduced { disk, .. } => *disk,
        }
    }
}

/// Why an instance cannot be used as it is.
enum Trouble {
    /// Data is missing or corrupt.
    Damage(String),
    /// Something else; the data may be whole.
    Failure(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Failure(error)
    }
}

impl Store {
    /// Opens the data directory, or creates it. Blocks while the write-ahead logs are replayed.
    pub fn open(directory: &Path, options: Options) -> Result<(Store, Recovered), Error> {
        let (claimed, kind) = Directory::claim(directory, &options)?;
        let damage = match open_both(&claimed, &options) {
            Ok(parts) => {
                let recovered = match kind {
                    Claimed::New => Recovered::New {
                        disk: options.new_disk,
                    },
                    Claimed::Known(disk) => Recovered::Intact { disk },
                };
                return Ok((Store::assemble(claimed, options, parts)?, recovered));
            }
            Err(Trouble::Failure(error)) => return Err(error),
            Err(Trouble::Damage(what)) => what,
        };
        let disk = match kind {
            Claimed::New => options.new_disk,
            Claimed::Known(disk) => disk,
        };
        match (options.single_copy, options.accept_loss) {
            (false, _) => Store::start_empty(claimed, options, damage),
            (true, true) => Store::keep_readable(claimed, options, disk, damage),
            (true, false) => Err(Error::Damaged {
                directory: directory.to_owned(),
                what: damage,
            }),
        }
    }

    /// The new identity is durable before anything moves: whatever a crash leaves, the old disk boot is gone.
    fn start_empty(
        directory: Directory,
        options: Options,
        what: String,
    ) -> Result<(Store, Recovered), Error> {
        tracing::error!(%what, "stored data was lost: this node starts empty and refills from the other replicas");
        directory.write_identity(&options)?;
        directory.set_aside()?;
        let disk = options.new_disk;
        let parts = fresh_marks_and_engines(&directory, &options, Recovery::Strict)?;
        let store = Store::assemble(directory, options, parts)?;
        Ok((store, Recovered::Amnesiac { disk, what }))
    }

    fn keep_readable(
        directory: Directory,
        options: Options,
        disk: DiskBoot,
        what: String,
    ) -> Result<(Store, Recovered), Error> {
        tracing::error!(%what, "stored data was lost, as the operator accepted: what can be read is kept");
        let parts = fresh_marks_and_engines(&directory, &options, Recovery::KeepReadable)?;
        let store = Store::assemble(directory, options, parts)?;
        Ok((store, Recovered::Reduced { disk, what }))
    }
}

fn open_both(directory: &Directory, options: &Options) -> Result<[Part; 2], Trouble> {
    Ok([
        open_one(directory, Instance::Meta, options)?,
        open_one(directory, Instance::Data, options)?,
    ])
}

fn open_one(directory: &Directory, instance: Instance, options: &Options) -> Result<Part, Trouble> {
    let name = directory.instance(instance);
    let damage = |what: String| Trouble::Damage(format!("{}: {what}", name.display()));
    let (mark, marked) = Mark::open(&directory.path, instance)?.map_err(damage)?;
    let engine = open_engine(directory, instance, options, Recovery::Strict)?;
    let recovered = engine.db.latest_sequence_number();
    if recovered < marked {
        return Err(damage(format!(
            "writes up to {marked} were synced, only those up to {recovered} are left"
        )));
    }
    Ok(Part::new(engine, mark))
}

fn open_engine(
    directory: &Directory,
    instance: Instance,
    options: &Options,
    recovery: Recovery,
) -> Result<Engine, Trouble> {
    let path = directory.instance(instance);
    if has_lost_its_head(&path) {
        let what = format!("{}: the file CURRENT is missing", path.display());
        return Err(Trouble::Damage(what));
    }
    Engine::open(&path, instance, options, recovery).map_err(|error| {
        let what = error.to_string();
        // A missing file of an instance is damage as much as a wrong byte in it.
        let is_damage = error.kind() == rocksdb::ErrorKind::Corruption || what.contains("No such file");
        if is_damage {
            Trouble::Damage(format!("{}: {what}", path.display()))
        } else {
            Trouble::Failure(Error::Open { path, what })
        }
    })
}

/// Without this file RocksDB begins a new database, unless a log is left, at which it stops in words that name another cause. A
/// directory that is new has neither log nor table: its first log is made after this file.
fn has_lost_its_head(instance: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(instance) else {
        return false;
    };
    let is_content = |path: &Path| {
        path.extension()
            .is_some_and(|ending| ["log", "sst", "blob"].iter().any(|known| ending == *known))
    };
    !instance.join("CURRENT").exists()
        && entries
            .filter_map(Result::ok)
            .any(|entry| is_content(&entry.path()))
}

fn fresh_marks_and_engines(
    directory: &Directory,
    options: &Options,
    recovery: Recovery,
) -> Result<[Part; 2], Error> {
    let open = |instance| {
        let engine =
            open_engine(directory, instance, options, recovery).map_err(|trouble| match trouble {
                Trouble::Damage(what) => Error::Open {
                    path: directory.instance(instance),
                    what,
                },
                Trouble::Failure(error) => error,
            })?;
        let sequence = engine.db.latest_sequence_number();
        let mark = Mark::create(&directory.path, instance, sequence)?;
        Ok(Part::new(engine, mark))
    };
    let parts = [open(Instance::Meta)?, open(Instance::Data)?];
    directory.sync()?;
    Ok(parts)
}
