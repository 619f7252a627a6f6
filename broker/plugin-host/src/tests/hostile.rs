//! What guests must not be able to do. Each fails with the class that operators look for, and others go on.

use super::guests::{ALLOW, FROM_DATA, consumer, filter};
use super::{Bench, before_send, persist_after};
use penstock_core::hooks::call::{Failed, Work};
use penstock_core::hooks::pipeline::Failure;
use std::time::Duration;

/// Short for the guest, which loops until then; nothing is asserted of the time.
const SHORT: Duration = Duration::from_millis(50);

fn fails(module: &[u8], work: &dyn Fn() -> Work, wanted: Failure) {
    let bench = Bench::new();
    let good = bench.load("good", &filter("", ALLOW, &[])).expect("loads");
    let hostile = bench.load("hostile", module).expect("loads");
    for _ in 0..3 {
        let within = if wanted == Failure::Timeout {
            SHORT
        } else {
            super::WITHIN
        };
        assert_eq!(bench.ask(&hostile, within, work()), Err(Failed::Call(wanted)));
        bench.judge(&good, &["a"]).expect("others go on");
    }
    let (_, status) = &bench
        .host
        .status()
        .into_iter()
        .find(|(version, _)| *version == hostile)
        .expect("it is still loaded");
    assert_eq!(status.failures.get(&wanted), Some(&3));
}

const LOOP: &str = "(loop $ever (br $ever)) unreachable";
const GROW: &str =
    "(loop $more (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable";

fn filter_fails(handle: &str, words: &[u32], wanted: Failure) {
    fails(&filter("", handle, words), &|| before_send(&["a"]), wanted);
}

#[test]
fn a_trap() {
    filter_fails("unreachable", &[], Failure::Trap);
    fails(&consumer("unreachable"), &|| persist_after(&["a"]), Failure::Trap);
}

#[test]
fn an_endless_loop() {
    filter_fails(LOOP, &[], Failure::Timeout);
    fails(&consumer(LOOP), &|| persist_after(&["a"]), Failure::Timeout);
}

#[test]
fn endless_recursion() {
    filter_fails("(call $deep) unreachable", &[], Failure::Trap);
}

#[test]
fn a_memory_bomb() {
    filter_fails(GROW, &[], Failure::Memory);
    fails(&consumer(GROW), &|| persist_after(&["a"]), Failure::Memory);
}

#[test]
fn a_result_of_two_gibibytes() {
    let giant = "(call $answer (i32.const 0) (i32.const 0x7fffffff) (i32.const 1024) (i32.const 0))";
    filter_fails(giant, &[], Failure::BadOutput);
}

#[test]
fn a_result_that_is_in_memory_and_too_large() {
    // 4 MiB are below the limit of memory, and above what may cross.
    let large = "(drop (memory.grow (i32.const 80)))
        (call $answer (i32.const 0) (i32.const 0x400000) (i32.const 1024) (i32.const 0))";
    filter_fails(large, &[], Failure::BadOutput);
}

#[test]
fn a_line_of_two_gibibytes() {
    let line = "(call $log (i32.const 3) (i32.const 0) (i32.const 0x7fffffff) (i32.const 0) (i32.const 0))";
    filter_fails(&format!("{line} {ALLOW}"), &[], Failure::BadOutput);
}

#[test]
fn a_level_that_does_not_exist() {
    let line = "(call $log (i32.const 77) (i32.const 3072) (i32.const 5) (i32.const 0) (i32.const 0))";
    filter_fails(&format!("{line} {ALLOW}"), &[], Failure::BadOutput);
}

#[test]
fn frames_that_are_none() {
    let entry = |entry: [u32; 10]| [&[1, 4, 10, 1][..], &entry[..]].concat();
    let cases = [
        vec![2, 4, 10, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        vec![1, 3, 10, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        vec![1, 4, 9, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        vec![1, 4, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        vec![1, 4, 10, u32::MAX, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        vec![1, u32::MAX, 10, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        vec![1, 4, u32::MAX, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        entry([3, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        entry([1, 256, 0, 0, 0, 0, 0, 0, 0, 0]),
        entry([1, 0, 3, 3, 0, 0, 0, 0, 0, 0]),
        entry([1, 0, u32::MAX, u32::MAX, 0, 0, 0, 0, 0, 0]),
        entry([2, 0, 0, 0, 8, 0, 0, 0, 0, 0]),
        entry([2, 0, 0, 0, 1, 6, 1, 0, 0, 0]),
        entry([2, 0, 0, 0, 2, 0, 0, 0, 6, 0]),
    ];
    for words in cases {
        filter_fails(FROM_DATA, &words, Failure::BadOutput);
    }
}

#[test]
fn more_done_than_there_was() {
    fails(
        &consumer("(call $done (i32.const 2))"),
        &|| persist_after(&["a"]),
        Failure::BadOutput,
    );
}
