//! Components that were built against published versions of the contract still run.

use super::{Bench, WITHIN, before_send, persist_after};
use crate::component::inspect;
use bytes::Bytes;
use penstock_core::hooks::call::Answer;
use penstock_core::hooks::pipeline::{Rewrite, Verdict};
use std::sync::Arc;

const FILTER: &[u8] = include_bytes!("../../../../wit/golden/filter-1.0.0.wasm");
const CONSUMER: &[u8] = include_bytes!("../../../../wit/golden/consumer-1.0.0.wasm");

#[test]
fn a_filter_of_the_first_version() {
    let bench = Bench::new();
    assert_eq!(inspect(FILTER).expect("taken").manifest.api, "1");
    let config = serde_json::json!({ "words": ["darn"] });
    let config = config.as_object().cloned().expect("an object");
    let version = bench.load_with("golden", FILTER, config).expect("loads");
    let rewritten = Verdict::Rewrite(Rewrite {
        payload: Bytes::from_static(b"oh ****"),
        expire_s: 60,
        topic: Arc::from("t"),
    });
    assert_eq!(
        bench.judge(&version, &["oh darn", "all is well"]),
        Ok(Answer::Verdicts(vec![rewritten, Verdict::Allow]))
    );
}

#[test]
fn a_consumer_of_the_first_version() {
    let bench = Bench::new();
    let version = bench.load("golden", CONSUMER).expect("loads");
    let done = Answer::Done {
        messages: 2,
        changes: Vec::new(),
    };
    assert_eq!(
        bench.ask(&version, WITHIN, persist_after(&["one", "two"])),
        Ok(done)
    );
    assert_eq!(bench.host.logs(&version, 0).lines.len(), 2);
    bench
        .ask(&version, WITHIN, before_send(&["one"]))
        .expect_err("it is no filter");
}
