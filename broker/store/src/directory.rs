//! The data directory: who may open it, whose it is, and how it changes without a moment at which a crash would leave
//! neither the old state nor the new one.

use crate::error::Error;
use crate::mark::{self, Mark};
use crate::options::Options;
use penstock_core::rows::Instance;
use penstock_core::types::{DiskBoot, NodeId};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The newest format of a data directory.
pub(crate) const FORMAT: u32 = 1;

const IDENTITY: &str = "identity";
const LOCK: &str = "LOCK";
const SET_ASIDE: &str = "set-aside";

/// Whose data a directory holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) cluster: String,
    pub(crate) node: NodeId,
    pub(crate) disk: DiskBoot,
}

impl Identity {
    fn encode(&self) -> String {
        let body = format!(
            "format {FORMAT}\ncluster {}\nnode {}\ndisk {:016x}\n",
            self.cluster.escape_default(),
            self.node,
            self.disk.0
        );
        format!("{body}crc {:08x}\n", crc32fast::hash(body.as_bytes()))
    }

    /// Reads the file; `Ok(None)` when there is none.
    fn read(directory: &Path) -> Result<Option<Identity>, Error> {
        let path = directory.join(IDENTITY);
        let text = match fs::read(&path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::file("reading", path, &error)),
        };
        let damaged = |what: &str| Error::Identity {
            path: path.clone(),
            what: what.to_owned(),
        };
        let (body, crc) = text.rsplit_once("crc ").ok_or_else(|| damaged("it is cut off"))?;
        if crc.trim_end() != format!("{:08x}", crc32fast::hash(body.as_bytes())) {
            return Err(damaged("its checksum does not match"));
        }
        let field = |name: &str| {
            body.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
                .ok_or_else(|| damaged("a field is missing"))
        };
        let number = |text: &str| text.parse::<u32>().map_err(|_| damaged("a number is not one"));
        let found = number(field("format")?)?;
        if found > FORMAT {
            return Err(Error::NewerFormat {
                directory: directory.to_owned(),
                found,
                known: FORMAT,
            });
        }
        let node = u16::try_from(number(field("node")?)?).map_err(|_| damaged("a number is not one"))?;
        let disk = u64::from_str_radix(field("disk")?, 16).map_err(|_| damaged("a number is not one"))?;
        Ok(Some(Identity {
            cluster: field("cluster")?.to_owned(),
            node: NodeId(node),
            disk: DiskBoot(disk),
        }))
    }

    fn check(&self, directory: &Path, options: &Options) -> Result<(), Error> {
        let expected = options.cluster.escape_default().to_string();
        if self.cluster != expected {
            return Err(Error::ForeignCluster {
                directory: directory.to_owned(),
                expected,
                found: self.cluster.clone(),
            });
        }
        if self.node != options.node {
            return Err(Error::ForeignNode {
                directory: directory.to_owned(),
                expected: options.node.0,
                found: self.node.0,
            });
        }
        Ok(())
    }
}

/// A locked data directory.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
    /// Held until the store is dropped; the lock goes with it.
    _lock: File,
}

/// What a directory was when it was claimed.
#[derive(Debug)]
pub(crate) enum Claimed {
    /// Empty before.
    New,
    /// Known, with this disk boot.
    Known(DiskBoot),
}

impl Directory {
    /// Locks the directory, creates what is missing, and checks whose it is.
    pub(crate) fn claim(path: &Path, options: &Options) -> Result<(Directory, Claimed), Error> {
        fs::create_dir_all(path).map_err(|error| Error::file("creating", path, &error))?;
        let lock = lock(path)?;
        let directory = Directory {
            path: path.to_owned(),
            _lock: lock,
        };
        if let Some(identity) = Identity::read(path)? {
            identity.check(path, options)?;
            return Ok((directory, Claimed::Known(identity.disk)));
        }
        directory.refuse_strangers()?;
        // The identity comes last: a directory without one was never opened as a store.
        for instance in [Instance::Meta, Instance::Data] {
            Mark::create(path, instance, 0)?;
        }
        directory.write_identity(options)?;
        Ok((directory, Claimed::New))
    }

    fn refuse_strangers(&self) -> Result<(), Error> {
        let own: Vec<PathBuf> = [Instance::Meta, Instance::Data]
            .map(|instance| mark::path(&self.path, instance))
            .into_iter()
            .chain([LOCK, "identity.new", "reserve", "lost+found"].map(|name| self.path.join(name)))
            .collect();
        let entries = fs::read_dir(&self.path).map_err(|error| Error::file("reading", &self.path, &error))?;
        for entry in entries {
            let entry = entry.map_err(|error| Error::file("reading", &self.path, &error))?;
            if !own.contains(&entry.path()) {
                return Err(Error::NotADataDirectory {
                    directory: self.path.clone(),
                });
            }
        }
        Ok(())
    }

    /// Writes the identity with the options' new disk boot: whole or not at all, durable on return.
    pub(crate) fn write_identity(&self, options: &Options) -> Result<(), Error> {
        let identity = Identity {
            cluster: options.cluster.clone(),
            node: options.node,
            disk: options.new_disk,
        };
        let path = self.path.join(IDENTITY);
        let next = self.path.join("identity.new");
        let failed = |error: std::io::Error| Error::file("writing", &path, &error);
        let mut file = File::create(&next).map_err(failed)?;
        file.write_all(identity.encode().as_bytes()).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        fs::rename(&next, &path).map_err(failed)?;
        self.sync()
    }

    /// Makes names in the directory durable.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        sync_directory(&self.path)
    }

    /// The directory of an instance.
    pub(crate) fn instance(&self, instance: Instance) -> PathBuf {
        self.path.join(match instance {
            Instance::Meta => "meta",
            Instance::Data => "data",
        })
    }

    /// Moves both instances out of the way, so that an empty store can start in their place. What an earlier amnesiac start
    /// set aside is removed: a disk does not hold three copies. Can be repeated after a crash at any point.
    pub(crate) fn set_aside(&self) -> Result<(), Error> {
        let aside = self.path.join(SET_ASIDE);
        fs::create_dir_all(&aside).map_err(|error| Error::file("creating", &aside, &error))?;
        for instance in [Instance::Meta, Instance::Data] {
            let from = self.instance(instance);
            if !from.exists() {
                continue;
            }
            let to = aside.join(from.file_name().unwrap_or_default());
            if to.exists() {
                fs::remove_dir_all(&to).map_err(|error| Error::file("removing", &to, &error))?;
            }
            fs::rename(&from, &to).map_err(|error| Error::file("moving", &from, &error))?;
        }
        sync_directory(&aside)?;
        self.sync()
    }
}

fn sync_directory(path: &Path) -> Result<(), Error> {
    File::open(path)
        .and_then(|directory| directory.sync_all())
        .map_err(|error| Error::file("syncing", path, &error))
}

fn lock(directory: &Path) -> Result<File, Error> {
    let path = directory.join(LOCK);
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(|error| Error::file("opening", &path, &error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Locked { path }),
        Err(TryLockError::Error(error)) => Err(Error::file("locking", path, &error)),
    }
}
