//! What a call of a warm plugin costs, beside a search of the same bytes without a boundary: `profanity-filter` as
//! `cargo xtask plugins` builds it, over messages of 1 KiB that it allows.

use bytes::Bytes;
use divan::{Bencher, counter::ItemsCount};
use penstock_core::hooks::call::{Call, Version, Work};
use penstock_core::message::{Draft, MessageFlags};
use penstock_core::types::{ChannelKey, ChannelKind, Uid};
use penstock_plugin_host::{Host, HostConfig, LoadRequest, inspect};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;

const BATCHES: [usize; 3] = [1, 16, 64];
const WORD: &str = "unspeakable";

fn main() {
    divan::main();
}

/// Beside the folder that this program was built into.
fn component() -> Vec<u8> {
    let this = std::env::current_exe().expect("the path of this program");
    let target: PathBuf = this.ancestors().nth(3).expect("the target folder").into();
    std::fs::read(target.join("plugins").join("profanity-filter.wasm"))
        .expect("cargo xtask plugins builds it")
}

struct Bench {
    host: Host,
    version: Version,
    // Removed when the host is gone.
    _cache: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let cache = tempfile::tempdir().expect("a folder");
        let host = Host::start(HostConfig {
            cache: cache.path().to_path_buf(),
            compiler: None,
            threads: 2,
        })
        .expect("a host");
        let component = component();
        let version = Version {
            binding: Arc::from("bench"),
            digest: inspect(&component).expect("a plugin").digest,
            generation: 1,
        };
        let config = serde_json::json!({ "words": [WORD] });
        host.load(LoadRequest {
            version: version.clone(),
            component,
            config: config.as_object().cloned().unwrap_or_default(),
            grants: BTreeSet::new(),
            hook: "before-send".to_owned(),
        })
        .expect("it loads");
        Bench {
            host,
            version,
            _cache: cache,
        }
    }

    fn call(&self, messages: usize) -> Call {
        Call {
            version: self.version.clone(),
            channel: ChannelKey::new("room", ChannelKind::GROUP),
            within: Duration::from_secs(1),
            work: Work::BeforeSend {
                drafts: drafts(messages),
                wall_ms: 1,
            },
        }
    }
}

fn drafts(count: usize) -> Vec<Draft> {
    let draft = Draft {
        from_uid: Uid::new("alice"),
        client_msg_no: Arc::from("one"),
        flags: MessageFlags::default(),
        setting: 0,
        expire_s: 0,
        topic: Arc::from(""),
        payload: Bytes::from(vec![b'x'; 1_024]),
        origin: None,
        subscribers: Arc::from([]),
    };
    vec![draft; count]
}

#[divan::bench(args = BATCHES)]
fn native(bencher: Bencher<'_, '_>, messages: usize) {
    let drafts = drafts(messages);
    let finder = |payload: &[u8]| {
        payload
            .windows(WORD.len())
            .any(|window| window == WORD.as_bytes())
    };
    bencher
        .counter(ItemsCount::new(messages))
        .bench(|| drafts.iter().filter(|draft| finder(&draft.payload)).count());
}

#[divan::bench(args = BATCHES)]
fn on_this_thread(bencher: Bencher<'_, '_>, messages: usize) {
    let bench = Bench::new();
    let call = bench.call(messages);
    bencher
        .counter(ItemsCount::new(messages))
        .bench(|| bench.host.call_here(&call).expect("an answer"));
}

#[divan::bench(args = BATCHES)]
fn over_a_thread(bencher: Bencher<'_, '_>, messages: usize) {
    let bench = Bench::new();
    let call = bench.call(messages);
    let (sender, receiver) = mpsc::channel();
    bencher.counter(ItemsCount::new(messages)).bench_local(|| {
        let sender = sender.clone();
        bench.host.call(call.clone(), move |returned| {
            // The receiver lives as long as the bench.
            let _ = sender.send(returned);
        });
        receiver.recv().expect("an answer").expect("verdicts")
    });
}
