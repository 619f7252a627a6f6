//! Why the write-ahead log is not recovered in RocksDB's default mode (M-8): after one flipped bit that mode opens without
//! a word, and synced records are gone. Ours says so.

use bytes::Bytes;
use penstock_core::message::Record;
use penstock_core::rows::{Instance, Page, ReadRequest, Write};
use penstock_core::types::{DiskBoot, Incarnation, LeaderEpoch, MessageId, NodeId, Seq};
use penstock_store::{Options, Recovered, Store, keys};
use std::fs;
use std::path::{Path, PathBuf};

const RECORDS: u64 = 1_000;

fn options(disk: u64) -> Options {
    let mut options = Options::new("test", NodeId(1), DiskBoot(disk));
    options.reserve_bytes = 0;
    options
}

fn append(seq: u64) -> Vec<Write> {
    let record = Record {
        seq: Seq(seq),
        leader_epoch: LeaderEpoch(1),
        stamp_ms: 1,
        id: MessageId(1),
        key: None,
        body: Bytes::from_static(&[7; 100]),
        crc: 0,
    };
    vec![Write::AppendRecords {
        incarnation: Incarnation(4),
        records: vec![record.sealed()],
    }]
}

/// A closed directory with synced records, and one flipped bit in the middle of their log.
fn damaged() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let (store, _) = Store::open(directory.path(), options(1)).expect("opened");
    for seq in 1..=RECORDS {
        store.write(Instance::Data, &append(seq)).expect("written");
    }
    store.sync(Instance::Data).expect("synced");
    drop(store);
    let log = log_of(&directory.path().join("data"));
    let mut bytes = fs::read(&log).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&log, bytes).expect("written");
    directory
}

fn log_of(data: &Path) -> PathBuf {
    fs::read_dir(data)
        .expect("read")
        .map(|entry| entry.expect("read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .max_by_key(|path| fs::metadata(path).expect("read").len())
        .expect("a log")
}

#[test]
fn the_default_mode_loses_synced_records_without_a_word() {
    let directory = damaged();
    let data = directory.path().join("data");
    let defaults = rocksdb::Options::default();
    let names = rocksdb::DB::list_cf(&defaults, &data).expect("families");
    let db =
        rocksdb::DB::open_cf(&defaults, &data, names).expect("the default mode opens as if all were well");
    let records = db.cf_handle("records").expect("the family");
    let kept = (1..=RECORDS)
        .filter(|seq| {
            let key = keys::records(Incarnation(4), Seq(*seq));
            db.get_cf(records, key).expect("read").is_some()
        })
        .count();
    assert!(
        (300..700).contains(&kept),
        "about half of {RECORDS} synced records are left: {kept}"
    );
}

#[test]
fn ours_does_not() {
    let directory = damaged();
    let (store, recovered) = Store::open(directory.path(), options(2)).expect("opened");
    let Recovered::Amnesiac { disk, what } = recovered else {
        panic!("the loss was not noticed: {recovered:?}");
    };
    assert_eq!(disk, DiskBoot(2), "{what}");
    let tail = store.read(&ReadRequest::LogTail {
        incarnation: Incarnation(4),
    });
    assert_eq!(
        tail,
        Page::Records(vec![]),
        "it starts empty and refills from the other replicas"
    );

    let directory = damaged();
    let mut single = options(2);
    single.single_copy = true;
    let refused = Store::open(directory.path(), single).expect_err("the single copy does not start");
    assert!(refused.to_string().contains("may be lost"), "{refused}");
}
