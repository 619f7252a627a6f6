//! Whose directory it is, and what a start says when synced bytes are missing or wrong (M-8).

use crate::make::*;
use crate::subject::options;
use penstock_core::rows::{Instance, Page};
use penstock_core::types::{DiskBoot, NodeId};
use penstock_store::{Error, Options, Recovered, Store};
use std::fs;
use std::path::{Path, PathBuf};

fn reopen() -> Options {
    let mut options = options();
    options.new_disk = DiskBoot(2);
    options
}

fn open_error(directory: &Path, options: Options) -> Error {
    Store::open(directory, options)
        .map(|(_, recovered)| recovered)
        .expect_err("refused")
}

#[test]
fn a_second_process_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let (store, _) = Store::open(directory.path(), options()).expect("opened");
    let error = open_error(directory.path(), options());
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    assert!(error.to_string().contains("stop it first"));
    drop(store);
    Store::open(directory.path(), options()).expect("the lock is free again");
}

#[test]
fn a_foreign_directory_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    drop(Store::open(directory.path(), options()).expect("opened"));
    let mut other = options();
    other.cluster = "elsewhere".to_owned();
    let error = open_error(directory.path(), other);
    assert!(
        matches!(&error, Error::ForeignCluster { found, .. } if found == "test"),
        "{error}"
    );
    let mut other = options();
    other.node = NodeId(2);
    let error = open_error(directory.path(), other);
    assert!(
        matches!(
            error,
            Error::ForeignNode {
                found: 1,
                expected: 2,
                ..
            }
        ),
        "{error}"
    );

    let stranger = tempfile::tempdir().expect("a directory");
    fs::write(stranger.path().join("photo.png"), "x").expect("written");
    let error = open_error(stranger.path(), options());
    assert!(matches!(error, Error::NotADataDirectory { .. }), "{error}");
    assert!(!stranger.path().join("meta").exists(), "nothing was put there");
}

#[test]
fn a_newer_format_and_a_damaged_identity_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    drop(Store::open(directory.path(), options()).expect("opened"));
    let path = directory.path().join("identity");
    let text = fs::read_to_string(&path).expect("read");
    fs::write(&path, text.replace("node 1", "node 3")).expect("written");
    let error = open_error(directory.path(), options());
    assert!(
        matches!(error, Error::Identity { .. }),
        "a change without its checksum: {error}"
    );
    let newer = text.replace("format 1", "format 2");
    let body = &newer[..newer.find("crc ").expect("a checksum")];
    let crc = crc32(body.as_bytes());
    fs::write(&path, format!("{body}crc {crc:08x}\n")).expect("written");
    let error = open_error(directory.path(), options());
    assert!(
        matches!(
            error,
            Error::NewerFormat {
                found: 2,
                known: 1,
                ..
            }
        ),
        "{error}"
    );
    fs::write(&path, text).expect("written");
    Store::open(directory.path(), options()).expect("as it was");
}

/// CRC-32 (IEEE), bit by bit: independent of the code under test.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & 0_u32.wrapping_sub(crc & 1))
        })
    })
}

const RECORDS: u64 = 300;

/// A directory with so many synced appends, closed.
fn filled() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let (store, _) = Store::open(directory.path(), options()).expect("opened");
    for seq in 1..=RECORDS {
        store
            .write(Instance::Data, &[append(4, seq..=seq, 1)])
            .expect("written");
        if seq % 10 == 0 {
            store.sync(Instance::Data).expect("synced");
        }
    }
    drop(store);
    directory
}

/// The write-ahead log that holds the appends: the largest.
fn log_of(directory: &Path) -> PathBuf {
    let logs = fs::read_dir(directory.join("data")).expect("read");
    logs.map(|entry| entry.expect("read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .max_by_key(|path| fs::metadata(path).expect("read").len())
        .expect("a log")
}

pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("created");
    for entry in fs::read_dir(from).expect("read") {
        let entry = entry.expect("read");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("read").is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("copied");
        }
    }
}

fn flip(path: &Path, byte: usize) {
    let mut bytes = fs::read(path).expect("read");
    bytes[byte] ^= 0x10;
    fs::write(path, bytes).expect("written");
}

fn count(store: &Store) -> usize {
    match store.read(&all_records(4)) {
        Page::Records(records) => records.len(),
        other => panic!("not a page of records: {other:?}"),
    }
}

#[test]
fn a_flipped_bit_in_the_log_is_never_taken_for_its_end() {
    let original = filled();
    let length = fs::metadata(log_of(original.path())).expect("read").len();
    let length = usize::try_from(length).expect("small");
    let mut noticed = 0;
    for step in 0..20 {
        let directory = tempfile::tempdir().expect("a directory");
        copy(original.path(), directory.path());
        flip(&log_of(directory.path()), length * step / 20 + 3);
        let (store, recovered) = Store::open(directory.path(), reopen()).expect("opened");
        match recovered {
            Recovered::Amnesiac { disk, what } => {
                noticed += 1;
                assert_eq!((disk, count(&store)), (DiskBoot(2), 0), "{what}");
                assert!(
                    directory.path().join("set-aside/data").exists(),
                    "the evidence is kept"
                );
            }
            Recovered::Intact { .. } => assert_eq!(count(&store), 300, "nothing may be missing"),
            other => panic!("{other:?}"),
        }
    }
    assert!(
        noticed >= 18,
        "almost every byte of a log matters, noticed {noticed}"
    );
}

#[test]
fn a_lost_synced_tail_makes_an_amnesiac_once() {
    let directory = filled();
    let log = log_of(directory.path());
    let length = fs::metadata(&log).expect("read").len();
    let file = fs::OpenOptions::new().write(true).open(&log).expect("opened");
    file.set_len(length / 2).expect("cut");
    drop(file);
    let (store, recovered) = Store::open(directory.path(), reopen()).expect("opened");
    assert!(
        matches!(
            recovered,
            Recovered::Amnesiac {
                disk: DiskBoot(2),
                ..
            }
        ),
        "{recovered:?}"
    );
    store
        .write(Instance::Data, &[append(4, 1..=5, 2)])
        .expect("written");
    store.sync(Instance::Data).expect("synced");
    drop(store);
    let (store, recovered) = Store::open(directory.path(), options()).expect("opened");
    assert_eq!(recovered, Recovered::Intact { disk: DiskBoot(2) });
    assert_eq!(count(&store), 5);
}

#[test]
fn a_removed_instance_and_a_removed_mark_are_losses() {
    for victim in ["data", "mark-data"] {
        let directory = filled();
        let path = directory.path().join(victim);
        if path.is_dir() {
            fs::remove_dir_all(path).expect("removed");
        } else {
            fs::remove_file(path).expect("removed");
        }
        let (_, recovered) = Store::open(directory.path(), reopen()).expect("opened");
        assert!(
            matches!(recovered, Recovered::Amnesiac { .. }),
            "{victim}: {recovered:?}"
        );
    }
}

#[test]
fn a_lost_name_of_the_newest_state_costs_nothing_once_it_is_back() {
    let directory = filled();
    drop(Store::open(directory.path(), options()).expect("opened again, so that there are tables"));
    let current = directory.path().join("data/CURRENT");
    let text = fs::read(&current).expect("read");
    fs::remove_file(&current).expect("removed");
    for accept_loss in [false, true] {
        let alone = Options {
            single_copy: true,
            accept_loss,
            ..reopen()
        };
        let error = open_error(directory.path(), alone);
        assert!(error.to_string().contains("CURRENT"), "{error}");
    }
    fs::write(&current, text).expect("written");
    let (store, recovered) = Store::open(directory.path(), reopen()).expect("opened");
    assert_eq!(recovered, Recovered::Intact { disk: DiskBoot(1) });
    assert_eq!(count(&store), 300);
}

#[test]
fn the_single_copy_refuses_until_the_loss_is_accepted() {
    let directory = filled();
    let log = log_of(directory.path());
    let length = usize::try_from(fs::metadata(&log).expect("read").len()).expect("small");
    flip(&log, length / 2);
    let mut single = reopen();
    single.single_copy = true;
    for _ in 0..2 {
        let error = open_error(directory.path(), single.clone());
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
        assert!(error.to_string().contains("may be lost"));
    }
    single.accept_loss = true;
    let (store, recovered) = Store::open(directory.path(), single.clone()).expect("opened");
    assert!(
        matches!(
            recovered,
            Recovered::Reduced {
                disk: DiskBoot(1),
                ..
            }
        ),
        "{recovered:?}"
    );
    let kept = count(&store);
    assert!(
        (100..200).contains(&kept),
        "what stands before the damage: {kept}"
    );
    drop(store);
    single.accept_loss = false;
    let (store, recovered) = Store::open(directory.path(), single).expect("opened");
    assert_eq!(recovered, Recovered::Intact { disk: DiskBoot(1) });
    assert_eq!(count(&store), kept);
}

#[test]
fn old_idempotency_rows_are_dropped_by_day() {
    use penstock_core::rows::{Key, ReadRequest};
    use penstock_core::types::Incarnation;
    let directory = tempfile::tempdir().expect("a directory");
    let (store, _) = Store::open(directory.path(), options()).expect("opened");
    let key = |day| Key::Dedupe {
        day,
        incarnation: Incarnation(u64::MAX - 1),
        hash: 3,
    };
    for day in [10, 11, 12] {
        store
            .write(Instance::Data, &[put(key(day), "x")])
            .expect("written");
    }
    store.drop_dedupe_before(12).expect("dropped");
    let left = [10, 11, 12].map(|day| store.row(&key(day)).expect("read").is_some());
    assert_eq!(left, [false, false, true]);
    let page = store.read(&ReadRequest::Dedupe {
        incarnation: Incarnation(u64::MAX - 1),
        day: 11,
        after: None,
        rows_max: 9,
    });
    assert_eq!(
        page,
        Page::Dedupe {
            rows: vec![],
            more: false
        }
    );
}

#[test]
fn a_flipped_bit_at_rest_is_a_corrupt_page_and_counted() {
    let directory = filled();
    // The first start moves what the log held into a table.
    drop(Store::open(directory.path(), options()).expect("opened"));
    let table = fs::read_dir(directory.path().join("data"))
        .expect("read")
        .map(|entry| entry.expect("read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "sst"))
        .max_by_key(|path| fs::metadata(path).expect("read").len())
        .expect("a table");
    flip(&table, 100);
    let (store, recovered) = Store::open(directory.path(), options()).expect("opened");
    assert!(matches!(recovered, Recovered::Intact { .. }), "{recovered:?}");
    assert!(
        matches!(store.read(&all_records(4)), Page::Corrupt { .. }),
        "never a shorter log (R30)"
    );
    let corrupt = store.metrics().corrupt.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(corrupt, 1);
    assert!(
        store.poisoned().is_none(),
        "the channel withdraws, the others go on"
    );
}
