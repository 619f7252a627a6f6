//! How many records a second become durable, by the size of a group commit: each batch of 150-byte records over 5,000
//! channels, one idempotency row each, is one sync. `cargo run --release -p penstock-store --example sync_floor [directory]`

use bytes::Bytes;
use penstock_core::message::Record;
use penstock_core::rows::{Instance, Key, Write as Change};
use penstock_core::types::{DiskBoot, Incarnation, LeaderEpoch, MessageId, NodeId, Seq};
use penstock_store::{Options, Store};
use std::io::Write;
use std::time::{Duration, Instant};

const CHANNELS: u64 = 5_000;
const TIME_PER_SIZE: Duration = Duration::from_secs(3);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let parent = std::env::args_os()
        .nth(1)
        .map_or_else(std::env::temp_dir, Into::into);
    let directory = tempfile::tempdir_in(parent)?;
    let (store, _) = Store::open(directory.path(), Options::new("bench", NodeId(1), DiskBoot(1)))?;
    let mut output = std::io::stdout().lock();
    writeln!(output, "batch  records/s   p50 us   p99 us")?;
    let mut number = 0;
    for size in [1, 16, 64, 1_024] {
        let mut took = Vec::new();
        let start = Instant::now();
        while start.elapsed() < TIME_PER_SIZE {
            let begun = Instant::now();
            for _ in 0..size {
                store.write(Instance::Data, &effect(number))?;
                number += 1;
            }
            store.sync(Instance::Data)?;
            took.push(begun.elapsed());
        }
        let records = took.len() as u64 * size;
        let per_second = u128::from(records) * 1_000_000 / start.elapsed().as_micros();
        took.sort_unstable();
        let at = |percent: usize| took[(took.len() - 1) * percent / 100].as_micros();
        writeln!(output, "{size:5} {per_second:10} {:8} {:8}", at(50), at(99))?;
    }
    Ok(())
}

/// What a leader stores for one message.
fn effect(number: u64) -> Vec<Change> {
    let incarnation = Incarnation(number % CHANNELS + 1);
    let record = Record {
        seq: Seq(number / CHANNELS + 1),
        leader_epoch: LeaderEpoch(1),
        stamp_ms: 1_700_000_000_000,
        id: MessageId(1),
        key: None,
        body: Bytes::from_static(&[7; 150]),
        crc: 0,
    };
    let dedupe = Key::Dedupe {
        day: 19_675,
        incarnation,
        hash: number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
    };
    vec![
        Change::AppendRecords {
            incarnation,
            records: vec![record.sealed()],
        },
        Change::Put {
            key: dedupe,
            value: Bytes::from_static(&[1; 24]),
        },
    ]
}
