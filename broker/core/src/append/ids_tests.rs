//! Message ids against clocks, restarts and slow disks.

use super::super::tests::{MemoryRows, now};
use super::*;

fn start(node: u16, shard: u16, rows: &mut MemoryRows, at: u64) -> Generator {
    let mut generator = Generator::new(NodeId(node), shard);
    let mut out = Vec::new();
    generator
        .handle(now(at), Input::Start, rows, &mut out)
        .expect("in memory");
    assert!(
        generator.next(now(at)).is_none(),
        "nothing before the first lease is durable"
    );
    store(&mut generator, rows, at, out);
    generator
}

/// Makes leases durable.
fn store(generator: &mut Generator, rows: &mut MemoryRows, at: u64, out: Vec<Output>) {
    for Output::Store { token, writes } in out {
        for write in writes {
            let Write::Put { key, value } = write else {
                panic!("not a put")
            };
            rows.rows.insert(key, value);
        }
        generator
            .handle(now(at), Input::Stored { token }, rows, &mut Vec::new())
            .expect("in memory");
    }
}

fn renew(generator: &mut Generator, rows: &mut MemoryRows, at: u64) {
    let mut out = Vec::new();
    generator.expire(now(at), &mut out);
    store(generator, rows, at, out);
}

#[test]
fn an_id_is_made_of_time_node_shard_and_step() {
    let mut rows = MemoryRows::default();
    let mut generator = start(5, 3, &mut rows, 0);
    let time = now(0).wall_ms - EPOCH_MS;
    for step in 0..3 {
        let id = u64::try_from(generator.next(now(0)).expect("a lease").0).expect("positive");
        assert_eq!(
            (id >> 22, id >> 12 & 0x3ff, id >> 9 & 0x7, id & 0x1ff),
            (time, 5, 3, step)
        );
    }
}

#[test]
fn ids_rise_through_restarts_and_clock_jumps() {
    let mut rows = MemoryRows::default();
    let mut last = MessageId(0);
    // Each restart comes at an earlier time than the one before.
    for at in [60_000, 30_000, 29_999, 0] {
        let mut generator = start(1, 0, &mut rows, at);
        for jump in [0, 5_000, 1, 90_000_000, 2] {
            for _ in 0..2_000 {
                let id = generator.next(now(at + jump)).expect("a lease far ahead");
                assert!(id > last, "{id} after {last}");
                last = id;
            }
            renew(&mut generator, &mut rows, at + jump);
        }
    }
}

#[test]
fn ids_stop_at_the_lease_and_go_on_with_the_next() {
    let mut rows = MemoryRows::default();
    let mut generator = start(1, 0, &mut rows, 0);
    let given = (0..).take_while(|_| generator.next(now(0)).is_some()).count();
    // 512 ids for each millisecond of the lease, the current one included.
    assert_eq!(given, 512 * 10_001);
    assert_eq!(generator.next_deadline(), Some(Duration::ZERO));
    renew(&mut generator, &mut rows, 0);
    assert_eq!(generator.next_deadline(), None);
    assert!(generator.next(now(0)).is_some());
}

#[test]
fn after_a_long_pause_ids_are_there_at_once() {
    let mut rows = MemoryRows::default();
    let mut generator = start(1, 0, &mut rows, 0);
    generator.next(now(0)).expect("a lease");
    for _ in 0..10_000 {
        generator.next(now(3_600_000)).expect("the rest of the lease");
    }
    renew(&mut generator, &mut rows, 3_600_000);
    let id = generator.next(now(3_600_000)).expect("a lease").0;
    let time = now(3_600_000).wall_ms - EPOCH_MS;
    assert_eq!(
        u64::try_from(id).expect("positive") >> 22,
        time,
        "back at the clock"
    );
}

#[test]
fn a_cold_row_is_asked_for_and_an_unknown_token_is_ignored() {
    let mut rows = MemoryRows {
        all_cold: true,
        ..MemoryRows::default()
    };
    let mut generator = Generator::new(NodeId(1), 0);
    let mut out = Vec::new();
    assert!(generator.handle(now(0), Input::Start, &rows, &mut out).is_err() && out.is_empty());
    rows.all_cold = false;
    generator
        .handle(now(0), Input::Start, &rows, &mut out)
        .expect("in memory");
    let unknown = Input::Stored { token: Token(77) };
    generator
        .handle(now(0), unknown, &rows, &mut out)
        .expect("in memory");
    assert!(generator.next(now(0)).is_none());
}

#[test]
fn first_id_after_a_long_idle_time_is_not_older_than_the_lease() {
    let mut rows = MemoryRows::default();
    let mut generator = start(1, 0, &mut rows, 5_000);
    let id = generator
        .next(now(3_600_000))
        .expect("the lease still covers its own time");
    let time = u64::try_from(id.0).expect("positive") >> 22;
    assert_eq!(time, now(5_000).wall_ms - EPOCH_MS);
}
