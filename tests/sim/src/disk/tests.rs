use super::*;
use bytes::Bytes;
use penstock_core::message::Record;
use penstock_core::types::{Incarnation, LeaderEpoch, MessageId, Seq};

fn put(name: &'static str, value: &'static str) -> Vec<Write> {
    vec![Write::Put {
        key: node(name),
        value: Bytes::from_static(value.as_bytes()),
    }]
}

fn node(name: &'static str) -> Key {
    Key::Node {
        name: Bytes::from_static(name.as_bytes()),
    }
}

fn value(disk: &SimDisk, name: &'static str) -> Option<Bytes> {
    disk.rows(Misses::default()).row(&node(name)).expect("no misses")
}

#[test]
fn a_crash_keeps_a_prefix_over_all_shards() {
    let mut disk = SimDisk::new(DiskBoot(1));
    for (number, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
        let shard = u16::try_from(number % 2).expect("small");
        let written = disk.write(Instance::Data, shard, Ticket(number as u64), &put(name, "x"));
        assert_eq!(written, Ok(()));
    }
    assert_eq!(disk.unsynced(Instance::Data), 4);
    disk.crash(|instance, unsynced| match instance {
        Instance::Data => unsynced - 1,
        Instance::Meta => 0,
    });
    let kept: Vec<bool> = ["a", "b", "c", "d"]
        .into_iter()
        .map(|name| value(&disk, name).is_some())
        .collect();
    assert_eq!(kept, [true, true, true, false]);
    disk.crash(|_, _| 0);
    assert!(value(&disk, "c").is_some(), "what a crash kept is durable");
}

#[test]
fn a_sync_covers_what_was_written_before_it_began() {
    let mut disk = SimDisk::new(DiskBoot(1));
    disk.write(Instance::Data, 0, Ticket(1), &put("a", "1"))
        .expect("written");
    disk.write(Instance::Data, 1, Ticket(7), &put("b", "1"))
        .expect("written");
    let sync = disk.begin_sync(Instance::Data).expect("something to sync");
    disk.write(Instance::Data, 0, Ticket(2), &put("c", "1"))
        .expect("written");
    assert_eq!(disk.finish_sync(sync), Ok(vec![(0, Ticket(1)), (1, Ticket(7))]));
    disk.crash(|_, _| 0);
    assert!(value(&disk, "a").is_some() && value(&disk, "b").is_some());
    assert_eq!(value(&disk, "c"), None);
    assert_eq!(disk.finish_sync(sync), Ok(vec![]), "a sync from before the crash");
}

#[test]
fn a_failed_sync_poisons_until_the_restart() {
    let mut disk = SimDisk::new(DiskBoot(1));
    disk.fail_sync(Instance::Data, 2);
    disk.write(Instance::Data, 0, Ticket(1), &put("a", "1"))
        .expect("written");
    assert_eq!(disk.sync(Instance::Data), Ok(vec![(0, Ticket(1))]));
    disk.write(Instance::Data, 0, Ticket(2), &put("b", "1"))
        .expect("written");
    assert_eq!(disk.sync(Instance::Data), Err(DiskError::Io));
    assert_eq!(disk.sync(Instance::Data), Err(DiskError::Poisoned));
    let refused = disk.write(Instance::Data, 0, Ticket(3), &put("c", "1"));
    assert_eq!(refused, Err(DiskError::Poisoned));
    assert!(disk.poisoned());
    assert!(disk.sync(Instance::Meta).is_err(), "both instances stop");
    disk.crash(|_, _| 0);
    assert!(!disk.poisoned());
    assert!(value(&disk, "a").is_some() && value(&disk, "b").is_none());
    disk.set_full(true);
    let refused = disk.write(Instance::Data, 0, Ticket(1), &put("c", "1"));
    assert_eq!(refused, Err(DiskError::Full));
}

#[test]
fn misses_are_drawn_but_never_for_pinned_keys() {
    let mut disk = SimDisk::new(DiskBoot(1));
    disk.write(Instance::Data, 0, Ticket(1), &put("a", "1"))
        .expect("written");
    let count = |pinned: &[Key]| {
        let misses = Misses {
            seed: 5,
            per_mille: 300,
            pinned,
        };
        let rows = disk.rows(misses);
        (0..1_000).for_each(|_| drop(rows.row(&node("a"))));
        rows.missed()
    };
    assert!((200..400).contains(&count(&[])));
    assert_eq!(count(&[]), count(&[]));
    assert_eq!(count(&[node("a")]), 0);
}

fn record(seq: u64) -> Record {
    Record {
        seq: Seq(seq),
        leader_epoch: LeaderEpoch(1),
        stamp_ms: 1,
        id: MessageId(1),
        key: None,
        body: Bytes::from_static(b"0123456789"),
        crc: 0,
    }
    .sealed()
}

/// R30: a damaged value cannot be cut; the cut stops nothing, and whoever reads is told where the damage begins.
#[test]
fn a_cut_into_a_damaged_value_leaves_it_to_be_found() {
    let incarnation = Incarnation(4);
    let read = |disk: &SimDisk, from: u64| {
        disk.read(&ReadRequest::Records {
            incarnation,
            from: Seq(from),
            through: Seq(9),
            records_max: 100,
            bytes_max: 1 << 20,
        })
    };
    let mut disk = SimDisk::new(DiskBoot(1));
    let append = |seqs: std::ops::RangeInclusive<u64>| Write::AppendRecords {
        incarnation,
        records: seqs.map(record).collect(),
    };
    let write = |disk: &mut SimDisk, writes: &[Write]| {
        disk.write(Instance::Data, 0, Ticket(1), writes).expect("written");
        disk.sync(Instance::Data).expect("synced");
    };
    write(&mut disk, &[append(1..=4)]);
    assert!(disk.flip_record_bit(77));
    let from = Seq(3);
    write(
        &mut disk,
        &[Write::TruncateRecords { incarnation, from }, append(3..=5)],
    );
    for asked in [1, 2] {
        let page = read(&disk, asked);
        assert!(
            matches!(
                page,
                Page::Corrupt {
                    first: Some(Seq(1)),
                    ..
                }
            ),
            "{page:?}"
        );
    }
    let from = Seq(1);
    write(
        &mut disk,
        &[Write::TruncateRecords { incarnation, from }, append(1..=2)],
    );
    assert!(matches!(read(&disk, 1), Page::Records(records) if records.len() == 2));
}
