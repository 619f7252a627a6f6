//! What is not taken, and what is said of it.

use super::guests::{ALLOW, CONSUMER, FILTER, filter, with_section};
use super::{Bench, WITHIN};
use crate::cache::Cache;
use crate::component::{COMPONENT_BYTES_MAX, inspect};
use crate::refused::Refused;
use penstock_core::hooks::call::Digest;

fn refused(bytes: &[u8]) -> Refused {
    inspect(bytes).expect_err("refused")
}

fn says(refused: &Refused, words: &str) {
    let text = refused.to_string();
    assert!(text.contains(words), "{text}");
}

#[test]
fn what_is_no_component() {
    says(&refused(b""), "empty");
    says(&refused(b"hello"), "magic number");
    says(&refused(b"\0asm\x01\0\0\0"), "component metadata");
    says(&refused(b"\0asm\x0d\0\x01\0\xff"), "not WebAssembly");
    says(&refused(&vec![0; COMPONENT_BYTES_MAX + 1]), "at most");
}

#[test]
fn what_imports_something_else() {
    let with = |import: &str| {
        let text = format!(r#"(component (import "{import}" (instance (export "f" (func)))))"#);
        let component = wat::parse_str(text).expect("text");
        refused(&with_section(component, "penstock:manifest", FILTER.as_bytes()))
    };
    says(&with("wasi:filesystem/types@0.2.0"), "without WASI");
    says(&with("wasi:sockets/tcp@0.2.0"), "without WASI");
    says(&with("acme:things/thing@1.0.0"), "does not offer");
    says(&with("penstock:plugin/log@1.1.0"), "newer than this broker");
    says(&with("penstock:plugin/log@2.0.0"), "another major version");
    says(&with("penstock:plugin/nothing@1.0.0"), "not in the contract");
}

#[test]
fn what_exports_another_type() {
    let bench = Bench::new();
    let text = r#"(component
      (core module $m (func (export "f")))
      (core instance $i (instantiate $m))
      (func $f (canon lift (core func $i "f")))
      (instance $before (export "handle" (func $f)))
      (export "penstock:plugin/before-send@1.0.0" (instance $before)))"#;
    let component = with_section(
        wat::parse_str(text).expect("text"),
        "penstock:manifest",
        FILTER.as_bytes(),
    );
    says(
        &bench.load("wrong", &component).expect_err("refused"),
        "not of the type that the contract has",
    );
}

#[test]
fn manifests() {
    let with = |manifest: &str| refused(&with_manifest(manifest));
    says(&with(&FILTER.replace("0.1.0", "")), "version");
    says(&with(&FILTER.replace("\"filter\"", "\"Filter\"")), "lower-case");
    says(
        &with(&FILTER.replace("api = \"1\"", "api = \"2\"")),
        "speaks \"1\"",
    );
    says(&with(&FILTER.replace("\"before-send\"", "")), "at least one");
    says(
        &with(CONSUMER),
        "it names persist-after, the component exports before-send",
    );
    says(&with(&format!("{FILTER}colour = 1\n")), "colour");
    says(
        &with(&format!("{FILTER}[limits]\nmemory_mib = 999\n")),
        "from 1 to 128",
    );
    let no_manifest = wat::parse_str("(component)").expect("text");
    says(&refused(&no_manifest), "missing");
}

fn with_manifest(manifest: &str) -> Vec<u8> {
    let text = r#"(component
      (core module $m (func (export "f")))
      (core instance $i (instantiate $m))
      (func $f (canon lift (core func $i "f")))
      (instance $before (export "handle" (func $f)))
      (export "penstock:plugin/before-send@1.0.0" (instance $before)))"#;
    with_section(
        wat::parse_str(text).expect("text"),
        "penstock:manifest",
        manifest.as_bytes(),
    )
}

#[test]
fn more_than_was_granted() {
    let bench = Bench::new();
    let manifest = format!("{FILTER}\ncapabilities = [\"kv\"]\n");
    let manifest = manifest.replace("\n\n", "\n");
    let error = bench
        .load("greedy", &with_manifest(&manifest))
        .expect_err("refused");
    says(&error, "asks for `kv`");
}

#[test]
fn starts_that_fail_trap_or_hang() {
    let bench = Bench::new();
    let start = |name: &str, init: &str| bench.load(name, &filter(init, ALLOW, &[])).expect_err("refused");
    says(&start("traps", "unreachable"), "unreachable");
    says(&start("hangs", "(loop $ever (br $ever))"), "longer than it may");
    let refuses = "(i32.store8 (i32.const 1024) (i32.const 1)) (i32.store (i32.const 1028) (i32.const 3072))
        (i32.store (i32.const 1032) (i32.const 5))";
    says(&start("refuses", refuses), "refused the configuration: spam!");
    // A host that met all this still runs what is good.
    let good = bench.load("good", &filter("", ALLOW, &[])).expect("loads");
    bench
        .ask(&good, WITHIN, super::before_send(&["a"]))
        .expect("answers");
}

#[test]
fn another_digest() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = Cache::new(folder.path().to_path_buf(), None);
    let engine = crate::engine::start().expect("an engine");
    let error = cache
        .load(&engine, Digest([7; 32]), b"other")
        .expect_err("refused");
    says(&error, "was asked for");
}

#[test]
fn a_module_with_metadata_becomes_a_component() {
    let core = filter("", ALLOW, &[]);
    let inspected = inspect(&core).expect("taken");
    assert_ne!(inspected.component, core);
    let again = inspect(&inspected.component).expect("taken");
    assert_eq!(again.digest, inspected.digest);
    assert_eq!(again.manifest.name, "filter");
    assert!(again.imports.contains("penstock:plugin/log@1.0.0"));
}
