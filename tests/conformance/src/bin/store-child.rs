//! A process that writes to a store until it is killed or the store stops, and prints what it is told. Started by the
//! tests of crashes.

use bytes::Bytes;
use penstock_core::message::Record;
use penstock_core::rows::{Instance, Key, Write as Change};
use penstock_core::types::{
    DiskBoot, GroupId, Incarnation, LeaderEpoch, MessageId, NodeId, RaftIndex, Seq, Ticket,
};
use penstock_store::{Error, Listener, Options, Store, Writer};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

struct Printer;

impl Listener for Printer {
    fn stored(&self, _: u16, instance: Instance, through: Ticket) {
        print(&format!("stored {instance:?} {through}"));
    }

    fn poisoned(&self, error: &Error) {
        print(&format!("poisoned {error}"));
    }
}

/// One whole line at once. Whoever read it may be gone: then there is nobody to tell.
fn print(line: &str) {
    let mut output = std::io::stdout().lock();
    let _ = output.write_all(format!("{line}\n").as_bytes());
    let _ = output.flush();
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = PathBuf::from(std::env::args_os().nth(1).ok_or("no directory")?);
    let mut options = Options::new("test", NodeId(1), DiskBoot(1));
    options.reserve_bytes = 0;
    options.low_space_bytes = 0;
    let (store, _) = Store::open(&directory, options)?;
    let writer = Writer::start(Arc::new(store), Box::new(Printer))?;
    let mut number = 0;
    let mut refusals = 0;
    while refusals < 3 {
        number += 1;
        for (instance, writes) in effects(number) {
            if writer.submit(0, instance, Ticket(number), &writes).is_err() {
                print("refused");
                refusals += 1;
            }
        }
        writer.flush(number % 2 == 0);
    }
    Ok(())
}

fn effects(number: u64) -> [(Instance, Vec<Change>); 2] {
    let entry = Change::Put {
        key: Key::RaftEntry {
            group: GroupId(1),
            index: RaftIndex(number),
        },
        value: Bytes::from_static(&[7; 100]),
    };
    let record = Record {
        seq: Seq(number),
        leader_epoch: LeaderEpoch(1),
        stamp_ms: 1,
        id: MessageId(1),
        key: None,
        body: Bytes::from_static(&[9; 500]),
        crc: 0,
    };
    let append = Change::AppendRecords {
        incarnation: Incarnation(4),
        records: vec![record.sealed()],
    };
    [(Instance::Meta, vec![entry]), (Instance::Data, vec![append])]
}
