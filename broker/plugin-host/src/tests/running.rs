//! What guests can do.

use super::guests::{ALLOW, FROM_DATA, consumer, filter};
use super::{Bench, WITHIN, persist_after};
use penstock_core::hooks::call::{Answer, Failed};
use penstock_core::hooks::pipeline::Verdict;
use penstock_core::types::Reason;
use std::time::Duration;

#[test]
fn allows_rejects_and_rewrites() {
    let bench = Bench::new();
    let allow = bench.load("allow", &filter("", ALLOW, &[])).expect("loads");
    let allowed = bench.judge(&allow, &["a", "b"]).expect("answers");
    assert_eq!(allowed, Answer::Verdicts(vec![Verdict::Allow, Verdict::Allow]));

    let words = [1, 4, 10, 1, /* entry */ 1, 13, 0, 5, 0, 0, 0, 0, 0, 0];
    let reject = bench
        .load("reject", &filter("", FROM_DATA, &words))
        .expect("loads");
    let Ok(Answer::Verdicts(verdicts)) = bench.judge(&reject, &["a"]) else {
        panic!("no verdicts")
    };
    let [Verdict::Reject(refusal)] = verdicts.as_slice() else {
        panic!("{verdicts:?}")
    };
    assert_eq!(refusal.reason, Reason(13));
    assert_eq!(refusal.text.as_deref(), Some("spam!"));

    let words = [1, 4, 10, 1, /* entry */ 2, 0, 0, 0, 5, 1, 3, 0, 0, 9];
    let rewrite = bench
        .load("rewrite", &filter("", FROM_DATA, &words))
        .expect("loads");
    let Ok(Answer::Verdicts(verdicts)) = bench.judge(&rewrite, &["a"]) else {
        panic!("no verdicts")
    };
    let [Verdict::Rewrite(rewrite)] = verdicts.as_slice() else {
        panic!("{verdicts:?}")
    };
    assert_eq!(
        (&rewrite.payload[..], rewrite.expire_s, &*rewrite.topic),
        (&b"pam"[..], 9, "t")
    );
}

#[test]
fn what_crosses_and_how_memory_grows_is_counted() {
    let bench = Bench::new();
    let status = |name: &str, handle: &str, words: &[u32]| {
        let version = bench.load(name, &filter("", handle, words)).expect("loads");
        bench.judge(&version, &["a payload"]).expect("answers");
        let mut all = bench.host.status().into_iter();
        all.find(|(loaded, _)| *loaded == version)
            .expect("it is loaded")
            .1
    };
    let quiet = status("quiet", ALLOW, &[]);
    assert!(quiet.bytes_in > 9, "{quiet:?}");
    assert_eq!((quiet.bytes_out, quiet.memory_grown), (0, 0));
    assert_eq!((quiet.created, quiet.ended), (1, 0));
    let words = [1, 4, 10, 1, /* entry */ 1, 13, 0, 5, 0, 0, 0, 0, 0, 0];
    assert!(status("loud", FROM_DATA, &words).bytes_out > 5);
    let grows = format!("(drop (memory.grow (i32.const 2))) {ALLOW}");
    assert_eq!(status("grows", &grows, &[]).memory_grown, 2 << 16);
}

#[test]
fn a_consumer_is_done_with_some_fails_or_calls_poison() {
    let bench = Bench::new();
    let ask = |binding: &str, handle: &str| {
        let version = bench.load(binding, &consumer(handle)).expect("loads");
        bench.ask(&version, WITHIN, persist_after(&["a", "b"]))
    };
    assert_eq!(
        ask("done", "(call $done (i32.const 2))"),
        Ok(Answer::Done {
            messages: 2,
            changes: Vec::new()
        })
    );
    let after = Some(Duration::from_millis(250));
    assert_eq!(
        ask("retry", "(call $failed (i32.const 0) (i32.const 250))"),
        Err(Failed::Retry { after })
    );
    assert_eq!(
        ask("busy", "(call $failed (i32.const 2) (i32.const 250))"),
        Err(Failed::Busy { after })
    );
    assert_eq!(
        ask("poison", "(call $failed (i32.const 1) (i32.const 0))"),
        Err(Failed::Poison)
    );
}

#[test]
fn what_is_logged_is_kept_and_a_flood_is_counted() {
    let bench = Bench::new();
    let line = "(call $log (i32.const 3) (i32.const 3072) (i32.const 5) (i32.const 0) (i32.const 0))";
    let flood = format!(
        "(local $left i32) (local.set $left (i32.const 10000))
         (loop $more {line} (local.set $left (i32.sub (local.get $left) (i32.const 1)))
           (br_if $more (local.get $left))) {ALLOW}"
    );
    let version = bench.load("flood", &filter("", &flood, &[])).expect("loads");
    bench.judge(&version, &["a"]).expect("answers");
    let logs = bench.host.logs(&version, 0);
    assert_eq!((logs.lines[0].level, &*logs.lines[0].text), ("warn", "spam!"));
    let kept = u64::try_from(logs.lines.len()).expect("few");
    assert!(kept >= 100 && logs.dropped > 0);
    assert_eq!(kept + logs.dropped, 10_000);
}

#[test]
fn compiled_code_is_kept_and_a_damaged_file_is_made_anew() {
    let bench = Bench::new();
    let module = filter("", ALLOW, &[]);
    let version = bench.load("first", &module).expect("loads");
    let code = std::fs::read_dir(bench.folder.path())
        .expect("the cache")
        .map(|entry| entry.expect("an entry").path())
        .find(|path| path.extension().is_some_and(|extension| extension == "cwasm"))
        .expect("compiled code");
    assert!(code.to_string_lossy().contains(&version.digest.to_string()));
    bench.host.unload(&version);
    let whole = std::fs::read(&code).expect("code");
    std::fs::remove_file(&code).expect("removed");
    std::fs::write(&code, &whole[..whole.len() / 2]).expect("torn");
    let version = bench.load("second", &module).expect("loads again");
    bench.judge(&version, &["a"]).expect("answers");
    assert_eq!(std::fs::read(&code).expect("code").len(), whole.len());
}

#[test]
fn calls_wait_for_a_version_that_is_being_loaded_and_are_answered_when_it_goes() {
    let bench = Bench::new();
    let module = filter("", ALLOW, &[]);
    let version = bench.load("known", &module).expect("loads");
    bench.host.unload(&version);
    assert_eq!(
        bench.judge(&version, &["a"]),
        Err(Failed::Call(penstock_core::hooks::pipeline::Failure::NotReady))
    );
    bench.host.expect(&version);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| bench.judge(&version, &["a"]));
        bench.load("known", &module).expect("loads");
        assert!(waiting.join().expect("no panic").is_ok());
    });
}
