//! The mark of an instance (M-8): how far its write-ahead log was synced. It is overwritten in place after each sync and
//! never synced itself, so that it can only lag behind: whatever it says was once durable.

use crate::error::Error;
use penstock_core::rows::Instance;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const LENGTH: usize = 12;

/// An open mark file: the synced sequence u64 and its CRC-32, big-endian.
#[derive(Debug)]
pub(crate) struct Mark {
    path: PathBuf,
    file: File,
}

pub(crate) fn path(directory: &Path, instance: Instance) -> PathBuf {
    directory.join(match instance {
        Instance::Meta => "mark-meta",
        Instance::Data => "mark-data",
    })
}

fn encode(sequence: u64) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[..8].copy_from_slice(&sequence.to_be_bytes());
    bytes[8..].copy_from_slice(&crc32fast::hash(&sequence.to_be_bytes()).to_be_bytes());
    bytes
}

/// The sequence, or what is wrong with the bytes.
fn decode(bytes: &[u8]) -> Result<u64, String> {
    let sequence = bytes
        .first_chunk::<8>()
        .map(|sequence| u64::from_be_bytes(*sequence));
    match sequence {
        Some(sequence) if bytes == encode(sequence) => Ok(sequence),
        _ => Err("the mark of the synced sequence is damaged".to_owned()),
    }
}

impl Mark {
    /// Creates the mark, or resets it, durably. The caller syncs the directory.
    pub(crate) fn create(directory: &Path, instance: Instance, sequence: u64) -> Result<Mark, Error> {
        let path = path(directory, instance);
        let failed = |error: std::io::Error| Error::file("creating", &path, &error);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        file.write_all_at(&encode(sequence), 0).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        Ok(Mark { path, file })
    }

    /// Opens the mark and says what it holds; the inner error says why it cannot be trusted.
    pub(crate) fn open(directory: &Path, instance: Instance) -> Result<Result<(Mark, u64), String>, Error> {
        let path = path(directory, instance);
        let mut file = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Err("the mark of the synced sequence is missing".to_owned()));
            }
            Err(error) => return Err(Error::file("opening", path, &error)),
        };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)
            .map_err(|error| Error::file("reading", &path, &error))?;
        Ok(decode(&bytes).map(|sequence| (Mark { path, file }, sequence)))
    }

    /// Overwrites the sequence, without a sync.
    pub(crate) fn write(&self, sequence: u64) -> Result<(), Error> {
        self.file
            .write_all_at(&encode(sequence), 0)
            .map_err(|error| Error::file("writing", &self.path, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_of_a_mark_is_noticed() {
        let bytes = encode(0x0102_0304_0506_0708);
        assert_eq!(decode(&bytes), Ok(0x0102_0304_0506_0708));
        for bit in 0..LENGTH * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&flipped).is_err(), "bit {bit}");
        }
        assert!(decode(&bytes[..11]).is_err());
        assert!(decode(&[]).is_err());
    }

    #[test]
    fn a_missing_mark_is_not_taken_for_an_empty_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let open = || Mark::open(directory.path(), Instance::Meta).expect("readable");
        assert!(open().is_err());
        assert!(open().is_err(), "looking does not create it");
        let mark = Mark::create(directory.path(), Instance::Meta, 5).expect("created");
        assert_eq!(open().map(|(_, sequence)| sequence), Ok(5));
        mark.write(77).expect("written");
        assert_eq!(open().map(|(_, sequence)| sequence), Ok(77));
    }
}
