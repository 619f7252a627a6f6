//! Guests of the tests, written as text.

use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

pub(super) const FILTER: &str = r#"name = "filter"
version = "0.1.0"
api = "1"
hooks = ["before-send"]
"#;

pub(super) const CONSUMER: &str = r#"name = "consumer"
version = "0.1.0"
api = "1"
hooks = ["persist-after"]
"#;

pub(super) const GATE: &str = r#"name = "gate"
version = "0.1.0"
api = "1"
hooks = ["connect"]
"#;

pub(super) const ROUTER: &str = r#"name = "router"
version = "0.1.0"
api = "1"
hooks = ["route"]
"#;

/// Answers of `before-send`: where the arena and the index begin and how long they are.
pub(super) const ALLOW: &str = "(call $answer (i32.const 1024) (i32.const 0) (i32.const 1024) (i32.const 0))";

/// The answer lies in the data of the guest: words at 2048, text at 3072.
pub(super) const FROM_DATA: &str =
    "(call $answer (i32.const 3072) (i32.const 5) (i32.const 2048) (i32.const 14))";

/// A core module with the metadata of a world and a manifest, as toolchains make them.
pub(super) fn module(world: &str, manifest: &str, text: &str) -> Vec<u8> {
    let mut module = wat::parse_str(text).expect("the text of a test");
    let mut resolve = Resolve::default();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit/v1");
    let (package, _) = resolve.push_dir(folder).expect("the contract");
    let world = resolve.select_world(&[package], Some(world)).expect("a world");
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).expect("metadata");
    with_section(module, "penstock:manifest", manifest.as_bytes())
}

/// Appends a custom section.
pub(super) fn with_section(mut module: Vec<u8>, name: &str, data: &[u8]) -> Vec<u8> {
    let mut body = leb(name.len());
    body.extend_from_slice(name.as_bytes());
    body.extend_from_slice(data);
    module.push(0);
    module.extend(leb(body.len()));
    module.extend(body);
    module
}

fn leb(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(number & 0x7f).expect("seven bits");
        number >>= 7;
        if number == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

/// A filter whose `handle` and `init` have these bodies, and whose words at 2048 are these.
pub(super) fn filter(init: &str, handle: &str, words: &[u32]) -> Vec<u8> {
    let text = format!(
        r#"(module
  (import "penstock:plugin/log@1.0.0" "write" (func $log (param i32 i32 i32 i32 i32)))
  {COMMON}
  (data (i32.const 2048) "{}")
  (func (export "penstock:plugin/lifecycle@1.0.0#init") (param i32 i32) (result i32)
    (i32.store8 (i32.const 1024) (i32.const 0)) {init} (i32.const 1024))
  (func $answer (param i32 i32 i32 i32) (result i32)
    (i32.store (i32.const 1024) (local.get 0)) (i32.store (i32.const 1028) (local.get 1))
    (i32.store (i32.const 1032) (local.get 2)) (i32.store (i32.const 1036) (local.get 3))
    (i32.const 1024))
  (func $deep (call $deep))
  (func (export "penstock:plugin/before-send@1.0.0#handle") (param $arena i32) (param i32) (param $index i32) (param i32)
    (result i32) {handle})
  (func (export "cabi_post_penstock:plugin/before-send@1.0.0#handle") (param i32)
    (global.set $heap (i32.const 8192))))"#,
        data(words)
    );
    module("filter", FILTER, &text)
}

/// A consumer whose `handle` has this body; it returns with `$done` or `$failed`.
pub(super) fn consumer(handle: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
  {COMMON}
  (func (export "penstock:plugin/lifecycle@1.0.0#init") (param i32 i32) (result i32)
    (i32.store8 (i32.const 1024) (i32.const 0)) (i32.const 1024))
  (func $done (param i32) (result i32)
    (i32.store (i32.const 1024) (i32.const 0)) (i32.store (i32.const 1028) (local.get 0))
    (i32.store (i32.const 1032) (i32.const 1024)) (i32.store (i32.const 1036) (i32.const 0)) (i32.const 1024))
  (func $failed (param i32) (param i32) (result i32)
    (i32.store (i32.const 1024) (i32.const 1)) (i32.store (i32.const 1028) (local.get 0))
    (i32.store (i32.const 1032) (local.get 1))
    (i32.store (i32.const 1036) (i32.const 3072)) (i32.store (i32.const 1040) (i32.const 5)) (i32.const 1024))
  (func (export "penstock:plugin/persist-after@1.0.0#handle") (param i32 i32 i32 i32) (result i32) {handle})
  (func (export "cabi_post_penstock:plugin/persist-after@1.0.0#handle") (param i32)
    (global.set $heap (i32.const 8192))))"#
    );
    module("consumer", CONSUMER, &text)
}

/// A gate whose `connect` has this body; it returns with `$accept`, whose attributes are the words at 2048, or `$deny`.
pub(super) fn gate(connect: &str, attributes: &[u32]) -> Vec<u8> {
    let text = format!(
        r#"(module
  {COMMON}
  (data (i32.const 2048) "{}")
  (func (export "penstock:plugin/lifecycle@1.0.0#init") (param i32 i32) (result i32)
    (i32.store8 (i32.const 1024) (i32.const 0)) (i32.const 1024))
  (func $accept (param i32) (param i32) (param i32) (param i32) (result i32)
    (i32.store (i32.const 1024) (i32.const 0))
    (i32.store (i32.const 1028) (local.get 0)) (i32.store (i32.const 1032) (local.get 1))
    (i32.store8 (i32.const 1036) (local.get 2))
    (i32.store (i32.const 1040) (i32.const 2048)) (i32.store (i32.const 1044) (local.get 3)) (i32.const 1024))
  (func $deny (param i32) (param i32) (result i32)
    (i32.store (i32.const 1024) (i32.const 1)) (i32.store8 (i32.const 1028) (local.get 0))
    (i32.store (i32.const 1032) (i32.const 3072)) (i32.store (i32.const 1036) (local.get 1)) (i32.const 1024))
  (func $deep (call $deep))
  (func (export "penstock:plugin/session@1.0.0#connect") (param $uid i32) (param $uid-length i32)
    (param $token i32) (param $token-length i32) (param i32) (param i32) (param $flag i32)
    (param $address i32) (param $address-length i32) (result i32) {connect})
  (func (export "cabi_post_penstock:plugin/session@1.0.0#connect") (param i32)
    (global.set $heap (i32.const 8192))))"#,
        data(attributes)
    );
    module("gate", GATE, &text)
}

/// A router whose `handle` has this body; it returns with `$respond`: status, headers among the words at 2048, where the body begins
/// and how long it is.
pub(super) fn router(handle: &str, headers: &[u32]) -> Vec<u8> {
    let text = format!(
        r#"(module
  {COMMON}
  (data (i32.const 2048) "{}")
  (func (export "penstock:plugin/lifecycle@1.0.0#init") (param i32 i32) (result i32)
    (i32.store8 (i32.const 1024) (i32.const 0)) (i32.const 1024))
  (func $respond (param i32) (param i32) (param i32) (param i32) (result i32)
    (i32.store16 (i32.const 1024) (local.get 0))
    (i32.store (i32.const 1028) (i32.const 2048)) (i32.store (i32.const 1032) (local.get 1))
    (i32.store (i32.const 1036) (local.get 2)) (i32.store (i32.const 1040) (local.get 3)) (i32.const 1024))
  (func $deep (call $deep))
  (func (export "penstock:plugin/route@1.0.0#handle") (param i32) (param i32) (param $url i32) (param $url-length i32)
    (param i32) (param $header-count i32) (param $body i32) (param $body-length i32) (result i32) {handle})
  (func (export "cabi_post_penstock:plugin/route@1.0.0#handle") (param i32)
    (global.set $heap (i32.const 8192))))"#,
        data(headers)
    );
    module("router", ROUTER, &text)
}

/// Memory, an allocator that is reset after each call, and the text `spam!` at 3072.
pub(super) const COMMON: &str = r#"(memory (export "memory") 1)
  (data (i32.const 3072) "spam!")
  (global $heap (mut i32) (i32.const 8192))
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
    (global.set $heap (i32.add (local.get $at) (local.get 3)))
    (block $room (loop $grow
      (br_if $room (i32.le_u (global.get $heap) (i32.mul (memory.size) (i32.const 65536))))
      (if (i32.eq (memory.grow (i32.const 1)) (i32.const -1)) (then unreachable))
      (br $grow)))
    (local.get $at))"#;

pub(super) fn data(words: &[u32]) -> String {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    bytes.map(|byte| format!("\\{byte:02x}")).collect()
}
