//! Figures that are no averages: how soon a guest without an end is stopped, what an idle plugin keeps in memory, and what loading
//! costs when the code is compiled already.

#![expect(
    clippy::print_stdout,
    reason = "a command line program answers on standard output"
)]

mod bench;

use bench::{Bench, call, component};
use penstock_core::hooks::call::Failed;
use penstock_core::hooks::pipeline::Failure;
use penstock_plugin_host::inspect;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Guests that are stopped, of each kind.
const STOPPED: usize = 200;
/// Plugins that are loaded and idle.
const IDLE: u32 = 100;
/// The deadline of a guest that has none of its own.
const WITHIN: Duration = Duration::from_millis(10);

fn main() {
    stopped_at_the_deadline();
    stopped_on_the_callers_thread();
    for name in ["allow-all", "profanity-filter"] {
        idle(name);
    }
}

/// Prints median, p99 and the longest of these.
fn show(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |of_hundred: usize| times[(times.len() * of_hundred).div_ceil(100).max(1) - 1];
    println!(
        "{what}: p50 {:.2?}, p99 {:.2?}, longest {:.2?}",
        at(50),
        at(99),
        at(100)
    );
}

fn stopped_at_the_deadline() {
    let bench = Bench::new();
    let version = bench.load("loop", component("scripted-filter"), &serde_json::json!({}));
    let mut call = call(&version, 1, b"loop");
    call.within = WITHIN;
    let times = (0..STOPPED).filter_map(|_| {
        let (sender, receiver) = mpsc::channel();
        let begin = Instant::now();
        bench.host.call(call.clone(), move |returned| {
            // The receiver waits.
            let _ = sender.send(returned);
        });
        let returned = receiver.recv().expect("an answer");
        // On a busy machine it may have had no turn at all.
        (returned == Err(Failed::Call(Failure::Timeout))).then(|| begin.elapsed().saturating_sub(WITHIN))
    });
    let times: Vec<Duration> = times.collect();
    show(
        &format!("a guest without an end, stopped so long after its deadline of {WITHIN:?}"),
        times,
    );
}

/// A version that was stopped there has to wait before it may run there again: each has a name of its own.
fn stopped_on_the_callers_thread() {
    let bench = Bench::new();
    let component = component("scripted-filter");
    let mut times = Vec::new();
    for number in 0..STOPPED {
        let version = bench.load(
            &format!("loop {number}"),
            component.clone(),
            &serde_json::json!({}),
        );
        bench.earn(&version);
        let call = Box::new(call(&version, 1, b"loop"));
        let begin = Instant::now();
        let returned = bench.host.call_inline(call, &mut Duration::from_millis(1));
        times.push(begin.elapsed());
        assert!(returned.is_err(), "it is to be done elsewhere");
        bench.host.unload(&version);
    }
    show("a guest without an end holds the thread of its caller", times);
}

fn idle(name: &str) {
    let bench = Bench::new();
    let component = component(name);
    let load = |number: u32| {
        let begin = Instant::now();
        bench.load(
            &format!("{name} {number}"),
            component.clone(),
            &serde_json::json!({}),
        );
        begin.elapsed()
    };
    let first = load(0);
    let before = resident_bytes();
    let times: Vec<Duration> = (1..=IDLE).map(load).collect();
    let each = resident_bytes().saturating_sub(before) / u64::from(IDLE);
    println!(
        "{name}: compiled and loaded in {first:.2?}; idle, each keeps {} KiB",
        each >> 10
    );
    show(
        &format!("{name}: looked at twice and loaded from the cache"),
        times,
    );
    let times = (0..IDLE).map(|_| {
        let begin = Instant::now();
        inspect(&component).expect("a plugin");
        begin.elapsed()
    });
    show(&format!("{name}: looked at"), times.collect());
}

/// What this process has in memory.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a system that says so");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.expect("a number") << 10
}
