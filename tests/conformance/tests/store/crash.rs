//! Crashes: of the machine at any byte of the unsynced log, of the process at any moment, and of the disk.

use crate::directory::copy;
use crate::make::*;
use crate::model::{Model, draw_batch};
use crate::subject::{Real, Simulated, Subject, options};
use penstock_core::rows::{GroupImage, Instance, Key, Page, ReadRequest, Row, Write};
use penstock_core::types::{DiskBoot, GroupId, Ticket};
use penstock_sim::disk::SimDisk;
use penstock_store::{Listener, Recovered, Store, Writer};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

/// Reads of an open store, for comparisons.
struct Reader<'a>(&'a Store);

impl Subject for Reader<'_> {
    fn write(&mut self, _: Instance, _: &[Write]) -> Result<(), String> {
        Err("read only".to_owned())
    }

    fn sync(&mut self, _: Instance) -> Result<(), String> {
        Err("read only".to_owned())
    }

    fn row(&self, key: &Key) -> Option<Row> {
        self.0.row(key).expect("read")
    }

    fn read(&self, request: &ReadRequest) -> Page {
        self.0.read(request)
    }

    fn groups(&self) -> Vec<GroupId> {
        self.0.groups().expect("read")
    }

    fn group_image(&self, group: GroupId) -> GroupImage {
        self.0.group_image(group).expect("read")
    }

    fn restart(&mut self) {
        panic!("read only");
    }
}

/// Random batches of one instance, each with its number, and the model after each of them.
fn numbered(seed: u64, instance: Instance, batches: usize) -> (Vec<Vec<Write>>, Vec<Model>) {
    let mut draw = Draw(seed);
    let mut model = Model::default();
    let (mut all, mut models) = (Vec::new(), vec![model.clone()]);
    while all.len() < batches {
        let (drawn, mut writes) = draw_batch(&mut draw, &model);
        if drawn != instance {
            continue;
        }
        writes.push(put(counter(instance), &(all.len() + 1).to_string()));
        model.apply(&writes);
        all.push(writes);
        models.push(model.clone());
    }
    (all, models)
}

fn counter(instance: Instance) -> Key {
    match instance {
        Instance::Meta => Key::Install { group: GroupId(0) },
        Instance::Data => node("counter"),
    }
}

fn counted(subject: &impl Subject, instance: Instance) -> usize {
    subject.row(&counter(instance)).map_or(0, |row| {
        let text = String::from_utf8(row.to_vec()).expect("text");
        text.parse().expect("a number")
    })
}

fn files_of(instance: Instance) -> (&'static str, &'static str) {
    match instance {
        Instance::Meta => ("meta", "mark-meta"),
        Instance::Data => ("data", "mark-data"),
    }
}

fn only_log(directory: &Path) -> PathBuf {
    let mut logs: Vec<PathBuf> = fs::read_dir(directory)
        .expect("read")
        .map(|entry| entry.expect("read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    assert_eq!(logs.len(), 1);
    logs.remove(0)
}

/// 200 crash points: the log is cut at any byte behind what was synced. What is left is exactly what some prefix of the
/// batches makes, with every synced batch in it.
#[test]
fn a_crash_at_any_byte_keeps_a_prefix_of_batches() {
    let mut kept_of_all = std::collections::BTreeSet::new();
    for (instance, points) in [(Instance::Meta, 100), (Instance::Data, 100)] {
        let (batches, models) = numbered(11, instance, 120);
        let (folder, mark) = files_of(instance);
        let directory = tempfile::tempdir().expect("a directory");
        let (store, _) = Store::open(directory.path(), options()).expect("opened");
        for writes in &batches[..60] {
            store.write(instance, writes).expect("written");
        }
        store.sync(instance).expect("synced");
        let log = only_log(&directory.path().join(folder));
        let synced_bytes = fs::metadata(&log).expect("read").len();
        let synced_mark = fs::read(directory.path().join(mark)).expect("read");
        for writes in &batches[60..] {
            store.write(instance, writes).expect("written");
        }
        store.sync(instance).expect("synced");
        let all_bytes = fs::metadata(&log).expect("read").len();
        let mut draw = Draw(3);
        for _ in 0..points {
            let crashed = tempfile::tempdir().expect("a directory");
            copy(directory.path(), crashed.path());
            fs::write(crashed.path().join(mark), &synced_mark).expect("written");
            let cut = synced_bytes + draw.below(all_bytes - synced_bytes + 1);
            let log = fs::OpenOptions::new()
                .write(true)
                .open(only_log(&crashed.path().join(folder)))
                .expect("opened");
            log.set_len(cut).expect("cut");
            let (store, recovered) = Store::open(crashed.path(), options()).expect("opened");
            assert_eq!(recovered, Recovered::Intact { disk: DiskBoot(1) });
            let reader = Reader(&store);
            let kept = counted(&reader, instance);
            assert!((60..=120).contains(&kept), "{kept} of 120, 60 were synced");
            models[kept].check(&reader);
            kept_of_all.insert(kept);
        }
    }
    assert!(kept_of_all.len() > 30, "the points differ: {kept_of_all:?}");
}

#[test]
fn a_crash_of_the_simulated_disk_keeps_a_prefix_of_batches() {
    for seed in 0..50 {
        let instance = if seed % 2 == 0 {
            Instance::Meta
        } else {
            Instance::Data
        };
        let (batches, models) = numbered(seed, instance, 60);
        let mut disk = SimDisk::new(DiskBoot(1));
        let mut draw = Draw(seed);
        let mut synced = 0;
        for (number, writes) in batches.iter().enumerate() {
            let shard = u16::try_from(draw.below(3)).expect("small");
            let ticket = Ticket(number as u64);
            disk.write(instance, shard, ticket, writes).expect("written");
            if draw.below(20) == 0 {
                disk.sync(instance).expect("synced");
                synced = number + 1;
            }
        }
        disk.crash(|_, unsynced| usize::try_from(draw.below(unsynced as u64 + 1)).expect("small"));
        let subject = Simulated::over(disk);
        let kept = counted(&subject, instance);
        assert!((synced..=60).contains(&kept));
        models[kept].check(&subject);
    }
}

/// A child of ours: writes until it is killed or its disk is full, and prints what it is told.
fn child(directory: &Path) -> Command {
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(r#"trap '' XFSZ; [ -z "$2" ] || ulimit -f "$2"; exec "$0" "$1""#)
        .arg(env!("CARGO_BIN_EXE_store-child"))
        .arg(directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

/// Newest ticket that the child was told of, per instance.
fn told(lines: &[String]) -> [u64; 2] {
    ["stored Meta ", "stored Data "].map(|prefix| {
        let tickets = lines.iter().filter_map(|line| line.strip_prefix(prefix));
        tickets
            .map(|ticket| ticket.parse().expect("a number"))
            .max()
            .unwrap_or(0)
    })
}

fn assert_told_is_there(directory: &Path, told: [u64; 2]) {
    let (store, recovered) = Store::open(directory, options()).expect("opened");
    assert!(matches!(recovered, Recovered::Intact { .. }), "{recovered:?}");
    let Page::Records(records) = store.read(&all_records(4)) else {
        panic!("the log is readable");
    };
    let entries = store.group_image(GroupId(1)).expect("an image").entries;
    let found = [entries.len() as u64, records.len() as u64];
    assert!(
        found[0] >= told[0] && found[1] >= told[1],
        "told {told:?}, found {found:?}"
    );
    assert_eq!(
        records.last().map(|record| record.seq.0),
        Some(found[1]),
        "without a hole"
    );
}

#[test]
fn what_was_reported_survives_a_kill() {
    for lines_before in [3, 40, 90, 200, 500] {
        let directory = tempfile::tempdir().expect("a directory");
        let mut process = child(directory.path()).spawn().expect("started");
        let output = BufReader::new(process.stdout.take().expect("piped"));
        let mut lines = output.lines().map(|line| line.expect("a line"));
        let mut seen: Vec<String> = lines.by_ref().take(lines_before).collect();
        process.kill().expect("killed");
        process.wait().expect("ended");
        seen.extend(lines);
        let told = told(&seen);
        assert!(told[0] + told[1] > 0, "{seen:?}");
        assert_told_is_there(directory.path(), told);
    }
}

#[test]
fn a_full_disk_stops_the_store_and_loses_nothing_reported() {
    let directory = tempfile::tempdir().expect("a directory");
    // No file may grow beyond 2,048 blocks of 512 or 1,024 bytes: writes fail, as on a full disk.
    let output = child(directory.path()).arg("2048").output().expect("ran");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let poisoned: Vec<usize> = (0..lines.len())
        .filter(|at| lines[*at].starts_with("poisoned "))
        .collect();
    assert_eq!(
        poisoned.len(),
        1,
        "told once: {:?}",
        &lines[lines.len().saturating_sub(5)..]
    );
    let after = &lines[poisoned[0] + 1..];
    assert!(after.iter().all(|line| !line.starts_with("stored ")), "{after:?}");
    assert!(
        after.contains(&"refused".to_owned()),
        "writes are refused: {after:?}"
    );
    let told = told(&lines);
    assert!(told[0] > 0 && told[1] > 0);
    assert_told_is_there(directory.path(), told);
}

#[derive(Default)]
struct Heard {
    stored: Mutex<Vec<(u16, Instance, Ticket)>>,
}

struct Ear(Arc<Heard>);

impl Listener for Ear {
    fn stored(&self, shard: u16, instance: Instance, through: Ticket) {
        self.0
            .stored
            .lock()
            .expect("not poisoned")
            .push((shard, instance, through));
    }

    fn poisoned(&self, error: &penstock_store::Error) {
        panic!("nothing fails here: {error}");
    }
}

#[test]
fn the_writer_reports_every_shard_in_order() {
    let directory = tempfile::tempdir().expect("a directory");
    let (store, _) = Store::open(directory.path(), options()).expect("opened");
    let store = Arc::new(store);
    let heard = Arc::new(Heard::default());
    let writer = Writer::start(Arc::clone(&store), Box::new(Ear(Arc::clone(&heard)))).expect("started");
    std::thread::scope(|scope| {
        for shard in 0..3_u16 {
            let writer = &writer;
            scope.spawn(move || {
                for ticket in 1..=200_u64 {
                    let incarnation = u64::from(shard) + 10;
                    let writes = [append(incarnation, ticket..=ticket, 1)];
                    writer
                        .submit(shard, Instance::Data, Ticket(ticket), &writes)
                        .expect("written");
                    let rows = [put(entry(u32::from(shard), ticket), "x")];
                    writer
                        .submit(shard, Instance::Meta, Ticket(ticket), &rows)
                        .expect("written");
                    writer.flush(ticket % 3 == 0);
                    if ticket % 50 == 0 {
                        let page = writer.store().read(&all_records(incarnation));
                        assert_eq!(
                            positions(&page).len() as u64,
                            ticket,
                            "visible before it is durable"
                        );
                    }
                }
            });
        }
    });
    drop(writer);
    let stored = heard.stored.lock().expect("not poisoned");
    for shard in 0..3 {
        for instance in [Instance::Meta, Instance::Data] {
            let of_one: Vec<u64> = stored
                .iter()
                .filter(|(of, on, _)| (*of, *on) == (shard, instance))
                .map(|(_, _, ticket)| ticket.0)
                .collect();
            assert!(of_one.windows(2).all(|pair| pair[0] < pair[1]), "{of_one:?}");
            assert_eq!(of_one.last(), Some(&200), "everything was reported in the end");
        }
    }
    let syncs = store
        .metrics()
        .data
        .syncs
        .load(std::sync::atomic::Ordering::Relaxed);
    assert!(syncs < 600, "many batches share a sync: {syncs}");
}

#[test]
fn cold_rows_are_a_miss_until_they_are_loaded() {
    use penstock_core::rows::{Miss, Rows};
    let mut subject = Real::new();
    let key = node("cold");
    subject
        .write(Instance::Data, &[put(key.clone(), "x")])
        .expect("written");
    assert_eq!(
        subject.store().rows(&[]).row(&key),
        Ok(Some(bytes("x"))),
        "in the memtable"
    );
    subject.restart();
    let store = subject.store();
    assert_eq!(
        store.rows(&[]).row(&key),
        Err(Miss(vec![key.clone()])),
        "on disk only"
    );
    assert_eq!(
        store.load(std::slice::from_ref(&key)),
        Ok(vec![(key.clone(), Some(bytes("x")))])
    );
    assert_eq!(store.rows(&[]).row(&key), Ok(Some(bytes("x"))), "in the cache");
}
