use super::*;
use crate::floor::{Disk, Floor};
use crate::meter::{Batch, Meter};
use crate::options::Command;
use crate::page::page;

fn report(line: &str) -> Report {
    let line = format!("--target ws://h:1 {line}");
    let Ok(Command::Drive(options)) = Command::parse(line.split(' ').map(str::to_owned)) else {
        panic!("{line}")
    };
    let mut report = Report::new(&options, Machine::here());
    let meter = Meter::new(1);
    let mut tally = Tally::default();
    for (second, measured) in [(1, false), (2, true), (3, true)] {
        let mut batch = Batch {
            sent: 10 * second,
            acknowledged: 10 * second - 1,
            owed: 10 * second - 1,
            delivered: 10 * second - 1,
            refused: vec![22],
            sendack_ns: vec![2_000_000; 100],
            recv_ns: vec![3_000_000; 100],
            ..Batch::default()
        };
        meter.take(0, &mut batch);
        let at = Duration::from_secs(second);
        tally.interval(&meter.collect(), at, Duration::from_secs(1), measured);
    }
    report.duration_s = tally.measured().as_secs_f64();
    report.traffic = Some(tally.report(Verdict::default(), 0, None));
    report
}

#[test]
fn only_what_was_measured_makes_the_rates() {
    let report = report("--mode person --connections 4");
    let json = serde_json::to_value(&report).expect("JSON");
    assert_eq!(json["acked_per_s"], 24.0);
    assert_eq!(json["sent_per_s"], 25.0);
    assert_eq!(json["duration_s"], 2.0);
    assert_eq!(json["totals"]["sent"], 60);
    assert_eq!(json["refused"], serde_json::json!({ "rate_limited": 3 }));
    assert_eq!(json["window"], 8);
    assert!(json["rate"].is_null() && json["schedule_lag_ms"].is_null());
    assert_eq!(json["series"].as_array().map(Vec::len), Some(3));
    assert_eq!(json["series"][0]["measured"], false);
    let p99 = json["sendack_ms"]["p99"].as_f64().expect("a number");
    assert!((1.99..2.01).contains(&p99), "{p99}");
    for part in ["missing", "duplicated", "reordered"] {
        assert_eq!(json["verify"][part], 0);
    }
    assert!(json["machine"]["cpus"].as_u64() > Some(0));
}

#[test]
fn what_is_wrong_makes_a_run_fail_and_is_named() {
    let mut report = report("--mode person --connections 4");
    assert_eq!(report.failure(), None);
    assert!(report.summary().contains("clean: nothing missing"));
    if let Some(traffic) = &mut report.traffic {
        traffic.verify.missing = 2;
        traffic.totals.unanswered = 1;
    }
    report.connect.lost.insert("kicked".to_owned(), 3);
    let failure = report.failure().expect("a failure");
    assert_eq!(
        failure,
        "3 connections ended early: kicked; 2 messages missing; 1 messages never answered"
    );
    assert!(report.summary().contains("NOT CLEAN"));
    assert!(page(&report, None).contains("Not clean: 3 connections"));
}

#[test]
fn a_page_stands_alone_and_shows_the_limits_beside_the_run() {
    let floor = Floor {
        record_bytes: 150,
        disk: vec![Disk {
            batch: 64,
            records_per_s: 40.0,
            append_ms: Percentiles::default(),
        }],
        ..Floor::default()
    };
    let report = report("--mode person --connections 4");
    let with = page(&report, Some(&floor));
    assert!(with.contains("40 synced records/s in batches of 64"), "{with}");
    assert!(with.contains("Limits of the machine"));
    assert_eq!(with.matches("<svg").count(), 2);
    let without = page(&report, None);
    assert!(!without.contains("class=\"limit\"") && !without.contains("Limits of the machine"));
    for outside in ["src=", "href=", "url(", "<script"] {
        assert!(!with.contains(outside), "{outside}");
    }
    assert!(with.contains("prefers-color-scheme:dark"));
}

#[test]
fn memory_for_each_connection_is_told_only_where_nothing_else_grows() {
    let usage = |rss_bytes, cpu_s| Usage { rss_bytes, cpu_s };
    let (before, after) = (usage(10_240, 1.0), usage(30_720, 3.5));
    assert_eq!(
        Process::new(before, after, Some(10)).words(),
        "10 KiB before, 30 KiB at the end, 2048 bytes a connection, 2.5 s of processor time"
    );
    let busy = Process::new(before, after, None);
    assert_eq!(busy.rss_per_connection_bytes, None);
}

#[test]
fn a_rate_over_no_time_is_nothing() {
    assert_eq!(per_second(5, Duration::ZERO), 0.0);
    assert_eq!(per_second(5, Duration::from_secs(2)), 2.5);
}
