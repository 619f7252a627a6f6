//! What a call of a warm plugin costs: `allow-all`, which looks at nothing, and `profanity-filter`, which reads every byte, as `cargo
//! xtask plugins` builds them, over messages that they allow. Beside them a search of the same bytes without a boundary.

mod bench;

use bench::{Bench, call, component};
use divan::{Bencher, counter::ItemsCount};
use penstock_core::hooks::call::{Call, Version};
use std::fmt;
use std::sync::mpsc;
use std::time::Duration;

const WORD: &str = "unspeakable";

/// What is called, with what.
#[derive(Clone, Copy)]
struct Case {
    plugin: &'static str,
    messages: usize,
    bytes: usize,
}

impl fmt::Display for Case {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case {
            plugin,
            messages,
            bytes,
        } = self;
        write!(formatter, "{plugin}, {messages} of {bytes} B")
    }
}

const fn case(plugin: &'static str, messages: usize, bytes: usize) -> Case {
    Case {
        plugin,
        messages,
        bytes,
    }
}

const ALLOW: &str = "allow-all";
const FILTER: &str = "profanity-filter";
const CASES: [Case; 10] = [
    case(ALLOW, 1, 100),
    case(ALLOW, 16, 100),
    case(ALLOW, 64, 100),
    case(ALLOW, 1, 1_024),
    case(ALLOW, 64, 1_024),
    case(FILTER, 1, 100),
    case(FILTER, 64, 100),
    case(FILTER, 1, 1_024),
    case(FILTER, 16, 1_024),
    case(FILTER, 64, 1_024),
];
/// Those that run on the thread of their caller.
const INLINE: [Case; 4] = [
    case(ALLOW, 1, 100),
    case(ALLOW, 16, 100),
    case(FILTER, 1, 100),
    case(FILTER, 4, 100),
];
const FRESH: [Case; 2] = [case(ALLOW, 1, 100), case(ALLOW, 1, 1_024)];

fn main() {
    divan::main();
}

/// The component with a fresh instance for each call: its manifest, the last place of the word, has room for that.
fn per_call(mut component: Vec<u8>) -> Vec<u8> {
    let (warm, fresh) = (b"policy = \"warm\"    ", b"policy = \"per-call\"");
    let at = component
        .windows(warm.len())
        .rposition(|window| window == warm)
        .expect("a manifest with room");
    component[at..][..fresh.len()].copy_from_slice(fresh);
    component
}

fn loaded(case: Case, change: impl FnOnce(Vec<u8>) -> Vec<u8>) -> (Bench, Version, Call) {
    let bench = Bench::new();
    let config = serde_json::json!({ "words": [WORD] });
    let version = bench.load("bench", change(component(case.plugin)), &config);
    let call = call(&version, case.messages, &vec![b'x'; case.bytes]);
    (bench, version, call)
}

#[divan::bench(args = [(1, 1_024), (64, 1_024)])]
fn native(bencher: Bencher<'_, '_>, (messages, bytes): (usize, usize)) {
    let payloads = vec![vec![b'x'; bytes]; messages];
    let finds = |payload: &&Vec<u8>| {
        payload
            .windows(WORD.len())
            .any(|window| window == WORD.as_bytes())
    };
    bencher
        .counter(ItemsCount::new(messages))
        .bench(|| payloads.iter().filter(finds).count());
}

#[divan::bench(args = CASES)]
fn on_this_thread(bencher: Bencher<'_, '_>, case: Case) {
    let (bench, _, call) = loaded(case, |component| component);
    bencher
        .counter(ItemsCount::new(case.messages))
        .bench_local(|| bench.host.call_here(&call).expect("an answer"));
}

#[divan::bench(args = INLINE)]
fn inline(bencher: Bencher<'_, '_>, case: Case) {
    let (bench, version, call) = loaded(case, |component| component);
    bench.earn(&version);
    bencher
        .counter(ItemsCount::new(case.messages))
        .with_inputs(|| Box::new(call.clone()))
        .bench_local_values(|call| {
            let mut patience = Duration::from_millis(1);
            // It is sent back while another instance is made, and when the machine is busy with something else.
            let called = bench.host.call_inline(call, &mut patience);
            called.unwrap_or_else(|call| bench.host.call_here(&call))
        });
}

#[divan::bench(args = FRESH)]
fn fresh_for_each_call(bencher: Bencher<'_, '_>, case: Case) {
    let (bench, _, call) = loaded(case, per_call);
    bencher
        .counter(ItemsCount::new(case.messages))
        .bench_local(|| bench.host.call_here(&call).expect("an answer"));
}

#[divan::bench(args = CASES)]
fn over_a_thread(bencher: Bencher<'_, '_>, case: Case) {
    let (bench, _, call) = loaded(case, |component| component);
    let (sender, receiver) = mpsc::channel();
    bencher.counter(ItemsCount::new(case.messages)).bench_local(|| {
        let sender = sender.clone();
        bench.host.call(call.clone(), move |returned| {
            // The receiver lives as long as the bench.
            let _ = sender.send(returned);
        });
        receiver.recv().expect("an answer").expect("verdicts")
    });
}
