//! `store_recovery`: a data directory whose files were damaged while nobody had it open.
//!
//! A start says what it lost or refuses, and what can be read after it is what was written: the newest value where the start says
//! that everything is there, an older one or none where it says that something is lost, and an error where a block cannot be
//! read. A start that is refused for one of the small files that name and describe the rest removes nothing: with that file put back,
//! everything is there.

use crate::input::Input;
use crate::node::directory;
use bytes::Bytes;
use penstock_core::message::{DedupeKey, Record};
use penstock_core::rows::{Instance, Key, Page, ReadRequest, Row, Table, Write};
use penstock_core::types::{
    DiskBoot, GroupId, Incarnation, LeaderEpoch, MessageId, NodeId, RaftIndex, Seq, SlotId,
};
use penstock_store::{Error, Options, Recovered, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const OLD_DISK: DiskBoot = DiskBoot(1);
const NEW_DISK: DiskBoot = DiskBoot(2);

/// The channels' logs.
const INCARNATIONS: std::ops::RangeInclusive<u64> = 1..=3;

/// Records of each log.
const RECORDS: u64 = 40;

/// Batches of rows; each changes every row.
const ROUNDS: u64 = 6;

/// Runs one input.
///
/// # Panics
/// When something does not hold.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let whole = template();
    let place = directory().expect("a directory");
    let target = place.path();
    write_all(whole, target);
    let (single_copy, accept_loss) = [(true, false), (true, true), (false, false)][input.below(3)];
    let damaged_files = damage(&mut input, whole, target);
    let damaged = read_all(target);
    let options = Options {
        single_copy,
        accept_loss,
        ..options(NEW_DISK)
    };
    match Store::open(target, options) {
        Ok((store, recovered)) => {
            let expected = if accept_loss { "Reduced" } else { "Amnesiac" };
            match &recovered {
                Recovered::New { .. } => assert!(
                    is_empty_but_for_leftovers(&damaged),
                    "stored data was taken for none"
                ),
                Recovered::Intact { disk } => assert_eq!(*disk, OLD_DISK),
                Recovered::Amnesiac { disk, what } => {
                    assert!(
                        !single_copy && *disk == NEW_DISK && !what.is_empty(),
                        "{expected}: {recovered:?}"
                    );
                }
                Recovered::Reduced { disk, what } => {
                    assert!(
                        accept_loss && *disk == OLD_DISK && !what.is_empty(),
                        "{expected}: {recovered:?}"
                    );
                }
            }
            check(&store, &recovered);
        }
        Err(error) => {
            refused(&error);
            if damaged_files.iter().all(|path| is_small(path)) {
                undone(whole, &damaged_files, target);
            }
        }
    }
}

fn options(new_disk: DiskBoot) -> Options {
    Options {
        reserve_bytes: 0,
        meta_cache_bytes: 1 << 20,
        data_cache_bytes: 1 << 20,
        memtable_bytes: 1 << 20,
        low_space_bytes: 0,
        ..Options::new("fuzz", NodeId(1), new_disk)
    }
}

/// Files by their path below the data directory.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// The directory as a node leaves it that was started three times: tables with blobs, and a log with what came last.
fn template() -> &'static Files {
    static TEMPLATE: OnceLock<Files> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let place = directory().expect("a directory");
        for part in 0..3 {
            let (store, _) = Store::open(place.path(), options(OLD_DISK)).expect("opened");
            for round in part * 2..part * 2 + 2 {
                for (instance, writes) in batches(round) {
                    store.write(instance, &writes).expect("written");
                    store.sync(instance).expect("synced");
                }
            }
        }
        let mut files = read_all(place.path());
        // RocksDB's diary says nothing that is ever read.
        files.retain(|path, _| {
            !path
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("LOG"))
        });
        files
    })
}

fn read_all(root: &Path) -> Files {
    let mut files = Files::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let below = path.strip_prefix(root).expect("below the root").to_owned();
                files.insert(below, fs::read(&path).expect("a file"));
            }
        }
    }
    files
}

fn write_all(files: &Files, root: &Path) {
    for (path, bytes) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("below the root")).expect("a folder");
        fs::write(path, bytes).expect("written");
    }
}

/// Without identity, instances and marks there is nothing that could be taken for data.
fn is_empty_but_for_leftovers(files: &Files) -> bool {
    files
        .keys()
        .all(|path| path.components().count() == 1 && path != Path::new("identity"))
}

/// Damages one to four files: flipped and overwritten bytes, cuts, zeros, removal, doubled parts, a swap. Says which.
fn damage(input: &mut Input<'_>, whole: &Files, root: &Path) -> BTreeSet<PathBuf> {
    let mut damaged = BTreeSet::new();
    let paths: Vec<&PathBuf> = whole.keys().collect();
    for _ in 0..=input.below(4) {
        let name = paths[input.below(paths.len())];
        let path = root.join(name);
        damaged.insert(name.clone());
        let Ok(mut bytes) = fs::read(&path) else { continue };
        let length = bytes.len().max(1);
        // From the end as often as from the start: heads and feet matter most.
        let near = usize::from(input.u16()) % length;
        let at = match input.below(3) {
            0 => near,
            1 => length - 1 - near,
            _ => (near * 97) % length,
        };
        match input.below(8) {
            0 => {
                let _ = fs::remove_file(&path);
                continue;
            }
            1 => bytes.truncate(at),
            2 => bytes.extend_from_slice(input.bytes(16)),
            3 => {
                let end = (at + 1 + usize::from(input.u8()) * 8).min(bytes.len());
                bytes[at.min(end)..end].fill(0);
            }
            4 => {
                let other = root.join(paths[input.below(paths.len())]);
                let Ok(foreign) = fs::read(other) else { continue };
                bytes = foreign;
            }
            5 if !bytes.is_empty() => {
                let end = (at + 1 + usize::from(input.u8())).min(bytes.len());
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            6 if !bytes.is_empty() => bytes[at] = input.u8(),
            _ if !bytes.is_empty() => bytes[at] ^= 1 << input.below(8),
            _ => {}
        }
        fs::write(path, bytes).expect("written");
    }
    damaged
}

/// Whether a file only names or describes others: whose the directory is, what was synced, where to begin.
fn is_small(path: &Path) -> bool {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    ["CURRENT", "IDENTITY", "LOCK", "OPTIONS", "identity", "mark-"]
        .iter()
        .any(|start| name.starts_with(start))
}

fn refused(error: &Error) {
    assert!(!error.to_string().is_empty());
    assert!(
        !matches!(
            error,
            Error::ForeignCluster { .. }
                | Error::ForeignNode { .. }
                | Error::NewerFormat { .. }
                | Error::Locked { .. }
        ),
        "damage was taken for another's directory: {error}"
    );
}

/// With the damaged files put back, a directory that was refused holds everything again.
fn undone(whole: &Files, damaged: &BTreeSet<PathBuf>, root: &Path) {
    for path in damaged {
        fs::write(root.join(path), &whole[path]).expect("written");
    }
    let (store, recovered) = Store::open(root, options(NEW_DISK))
        .expect("a refused start removed nothing, so that it can be repaired");
    assert_eq!(recovered, Recovered::Intact { disk: OLD_DISK });
    check(&store, &recovered);
}

/// What the rounds wrote.
fn batches(round: u64) -> Vec<(Instance, Vec<Write>)> {
    let put = |key: &Key| Write::Put {
        key: key.clone(),
        value: value(key, round),
    };
    let of = |instance| {
        keys()
            .iter()
            .filter(|key| key.instance() == instance)
            .map(put)
            .collect::<Vec<_>>()
    };
    let mut data = of(Instance::Data);
    for incarnation in INCARNATIONS {
        let each = RECORDS / ROUNDS;
        let (first, last) = (
            1 + round * each,
            if round + 1 == ROUNDS {
                RECORDS
            } else {
                (round + 1) * each
            },
        );
        data.push(Write::AppendRecords {
            incarnation: Incarnation(incarnation),
            records: (first..=last).map(|seq| record(incarnation, seq)).collect(),
        });
    }
    vec![(Instance::Meta, of(Instance::Meta)), (Instance::Data, data)]
}

fn keys() -> Vec<Key> {
    let name = |number: u64| Bytes::from(format!("row {number}"));
    let mut keys = Vec::new();
    for number in 0..12_u64 {
        keys.push(Key::Slot {
            slot: SlotId(u16::try_from(number % 3).unwrap_or_default()),
            table: if number.is_multiple_of(2) {
                Table::User
            } else {
                Table::Channel
            },
            key: name(number),
        });
        keys.push(Key::RaftEntry {
            group: GroupId(1),
            index: RaftIndex(5 + number),
        });
        keys.push(Key::Node { name: name(number) });
        keys.push(Key::Dedupe {
            day: 9,
            incarnation: Incarnation(1),
            hash: number,
        });
    }
    keys.push(Key::RaftState { group: GroupId(1) });
    keys.push(Key::Applied { group: GroupId(1) });
    for incarnation in INCARNATIONS {
        let incarnation = Incarnation(incarnation);
        keys.push(Key::ChannelState { incarnation });
        keys.push(Key::Cursor {
            incarnation,
            consumer: Bytes::from_static(b"delivery"),
        });
    }
    keys
}

fn value(key: &Key, round: u64) -> Row {
    Bytes::from(format!("{key:?} in round {round}"))
}

/// A record whose content follows from its place; every tenth is so large that it stands in a blob.
fn record(incarnation: u64, seq: u64) -> Record {
    let times = if seq.is_multiple_of(10) { 400 } else { 1 };
    Record {
        seq: Seq(seq),
        leader_epoch: LeaderEpoch(1),
        stamp_ms: 1_700_000_000_000 + seq,
        id: MessageId((seq << 8).cast_signed()),
        key: seq.is_multiple_of(2).then_some(DedupeKey {
            hash: seq,
            digest: u128::from(seq) << 64,
        }),
        body: Bytes::from(format!("message {seq} of {incarnation} ").repeat(times)),
        crc: 0,
    }
    .sealed()
}

/// Reads everything there is and compares.
fn check(store: &Store, recovered: &Recovered) {
    let is_whole = matches!(recovered, Recovered::Intact { .. });
    let is_empty = matches!(recovered, Recovered::Amnesiac { .. } | Recovered::New { .. });
    for key in keys() {
        match store.row(&key) {
            Ok(None) => assert!(!is_whole, "{key:?} is gone without a word"),
            Ok(Some(row)) => {
                let rounds: Vec<Row> = (0..ROUNDS).map(|round| value(&key, round)).collect();
                let newest = rounds.last() == Some(&row);
                assert!(rounds.contains(&row), "{key:?} is what nobody wrote: {row:?}");
                assert!(
                    !is_empty && (newest || !is_whole),
                    "{key:?} is {row:?} after {recovered:?}"
                );
            }
            // From here on nothing is answered any more (R14).
            Err(error) => return assert!(!is_empty, "an empty store fails: {error}"),
        }
    }
    for incarnation in INCARNATIONS {
        records(store, incarnation, is_whole, is_empty);
    }
    groups(store, is_whole, is_empty);
}

fn records(store: &Store, incarnation: u64, is_whole: bool, is_empty: bool) {
    let page = store.read(&ReadRequest::Records {
        incarnation: Incarnation(incarnation),
        from: Seq(0),
        through: Seq(u64::MAX),
        records_max: u32::MAX,
        bytes_max: u32::MAX,
    });
    match page {
        Page::Records(records) => {
            let right = (1..).map(|seq| record(incarnation, seq));
            assert!(
                records.iter().cloned().eq(right.take(records.len())),
                "not what was written: {records:?}"
            );
            let whole = usize::try_from(RECORDS).unwrap_or_default();
            assert!(
                (!is_whole || records.len() == whole) && (!is_empty || records.is_empty()),
                "{}",
                records.len()
            );
        }
        Page::Corrupt { what, .. } => assert!(!is_empty && !what.is_empty(), "{what}"),
        other => panic!("no answer to the question: {other:?}"),
    }
    match store.read(&ReadRequest::LogTail {
        incarnation: Incarnation(incarnation),
    }) {
        Page::Records(tail) => {
            assert!(
                tail.iter().all(|last| *last == record(incarnation, last.seq.0)),
                "{tail:?}"
            );
            assert!(
                !is_whole || tail.len() == 1 && tail[0].seq == Seq(RECORDS),
                "{tail:?}"
            );
        }
        Page::Corrupt { what, .. } => assert!(!is_empty, "{what}"),
        other => panic!("no answer to the question: {other:?}"),
    }
}

fn groups(store: &Store, is_whole: bool, is_empty: bool) {
    let Ok(groups) = store.groups() else { return };
    let groups: BTreeSet<GroupId> = groups.into_iter().collect();
    assert!(groups.is_subset(&BTreeSet::from([GroupId(1)])), "{groups:?}");
    assert!(!is_whole || groups.len() == 1, "the group is gone without a word");
    assert!(!is_empty || groups.is_empty(), "an empty store has a group");
    let Ok(image) = store.group_image(GroupId(1)) else {
        return;
    };
    assert!(!is_whole || image.entries.len() == 12, "{image:?}");
}

/// Some kinds of damage to each file, and every kind of start.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let files = u8::try_from(template().len()).unwrap_or(u8::MAX);
    let mut seeds = Vec::new();
    for file in 0..files {
        for kind in [0, 1 + file % 7] {
            seeds.push(vec![(file + kind) % 3, 0, file, 0, 37, kind % 3, kind, 9, 8, 7]);
        }
    }
    seeds
}
