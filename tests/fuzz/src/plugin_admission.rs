//! `plugin_admission`: bytes that somebody uploads as a plugin, to admission; and texts to the reader of manifests.
//!
//! Most inputs are a plugin that is well but for what the input changes: its manifest, some bytes, a section more. What is
//! admitted keeps the promises that the rest of the broker relies on, and is admitted again as the same.

use crate::input::Input;
use penstock_plugin_host::{COMPONENT_BYTES_MAX, Inspected, MANIFEST_SECTION, Manifest, inspect};
use std::sync::OnceLock;
use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// A filter that allows everything, as toolchains leave one.
const MODULE: &str = r#"(module
  (memory (export "memory") 1)
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 4096))
  (func (export "penstock:plugin/lifecycle@1.0.0#init") (param i32 i32) (result i32)
    (i32.store8 (i32.const 1024) (i32.const 0)) (i32.const 1024))
  (func (export "penstock:plugin/before-send@1.0.0#handle") (param i32 i32 i32 i32) (result i32)
    (i32.store (i32.const 1024) (i32.const 2048)) (i32.store (i32.const 1028) (i32.const 0))
    (i32.store (i32.const 1032) (i32.const 2048)) (i32.store (i32.const 1036) (i32.const 0)) (i32.const 1024)))"#;

/// Its manifest.
const MANIFEST: &str = "name = \"filter\"\nversion = \"0.1.0\"\napi = \"1\"\nhooks = [\"before-send\"]\n";

/// Most bytes that one input changes.
const CHANGES_MAX: usize = 8;

/// Runs one input.
///
/// # Panics
/// When something does not hold.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    match input.below(4) {
        0 => admit(input.remaining()),
        1 => manifest(input.remaining()),
        2 => {
            let text = input.chunk().to_vec();
            admit(&changed(
                with_section(base().0.clone(), MANIFEST_SECTION, &text),
                &mut input,
            ));
        }
        _ => {
            let (module, component) = base();
            let bytes = if input.rarely(2) { component } else { module };
            let bytes = with_section(bytes.clone(), MANIFEST_SECTION, MANIFEST.as_bytes());
            admit(&changed(bytes, &mut input));
        }
    }
}

fn admit(bytes: &[u8]) {
    let admitted = match inspect(bytes) {
        Ok(admitted) => admitted,
        Err(refused) => return assert!(!refused.to_string().is_empty(), "a refusal says why"),
    };
    assert!(!admitted.hooks.is_empty() && admitted.component.len() <= COMPONENT_BYTES_MAX);
    let package = |import: &String| import.starts_with("penstock:plugin/");
    assert!(admitted.imports.iter().all(package), "{:?}", admitted.imports);
    is_plain(&admitted.manifest);
    let again = inspect(&admitted.component).expect("what was made of it is admitted");
    let facts = |it: &Inspected| {
        (
            it.digest,
            it.hooks.clone(),
            it.imports.clone(),
            it.manifest.clone(),
        )
    };
    assert_eq!(facts(&again), facts(&admitted));
    assert_eq!(again.component, admitted.component);
}

fn manifest(text: &[u8]) {
    match Manifest::parse(text) {
        Ok(manifest) => is_plain(&manifest),
        Err(why) => assert!(!why.is_empty(), "a refusal says why"),
    }
}

/// A name stands in paths and metrics, and the limits are within what a host gives.
fn is_plain(manifest: &Manifest) {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    assert!((1..=64).contains(&manifest.name.len()) && manifest.name.bytes().all(plain));
    assert!(!manifest.hooks.is_empty() && manifest.api == "1");
    let limits = manifest.limits();
    assert!((1 << 20..=128 << 20).contains(&limits.memory_bytes) && limits.calls_max > 0);
}

/// Changes some bytes, and puts a section behind the rest when there is one left to be said.
fn changed(mut bytes: Vec<u8>, input: &mut Input<'_>) -> Vec<u8> {
    for _ in 0..input.below(CHANGES_MAX) {
        let at = usize::from(input.u16()) % bytes.len();
        match input.below(4) {
            0 => bytes[at] = input.u8(),
            1 => bytes[at] ^= 1 << input.below(8),
            2 => bytes.insert(at, input.u8()),
            _ => {
                bytes.remove(at);
            }
        }
    }
    if input.is_empty() {
        return bytes;
    }
    let name = input.one_of(&[
        MANIFEST_SECTION,
        "component-type",
        "component-type:x",
        "name",
        "producers",
    ]);
    with_section(bytes, name, input.remaining())
}

/// The filter as a module with its metadata, and as the component that admission makes of it, both without a manifest.
fn base() -> &'static (Vec<u8>, Vec<u8>) {
    static BASE: OnceLock<(Vec<u8>, Vec<u8>)> = OnceLock::new();
    BASE.get_or_init(|| {
        let mut module = wat::parse_str(MODULE).expect("the text of a module");
        let mut resolve = Resolve::default();
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit/v1");
        let (package, _) = resolve.push_dir(folder).expect("the contract");
        let world = resolve.select_world(&[package], Some("filter")).expect("a world");
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).expect("metadata");
        let component = wit_component::ComponentEncoder::default()
            .module(&module)
            .and_then(|mut encoder| encoder.encode())
            .expect("a component");
        (module, component)
    })
}

/// Appends a custom section.
fn with_section(mut bytes: Vec<u8>, name: &str, data: &[u8]) -> Vec<u8> {
    let mut body = leb(name.len());
    body.extend_from_slice(name.as_bytes());
    body.extend_from_slice(data);
    bytes.push(0);
    bytes.extend(leb(body.len()));
    bytes.extend(body);
    bytes
}

/// An unsigned number in LEB128.
fn leb(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push(u8::try_from(number & 0x7f).unwrap_or_default() | 0x80);
        number >>= 7;
    }
    bytes.push(u8::try_from(number).unwrap_or_default());
    bytes
}

/// The plugin as it is, its manifest changed, and what is no plugin.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let text = |choice: u8, text: &str| [&[choice][..], text.as_bytes()].concat();
    let filled = |more: &str| {
        let manifest = format!("{MANIFEST}{more}");
        let length = u8::try_from(manifest.len()).unwrap_or_default();
        [&[2, length][..], manifest.as_bytes(), &[0]].concat()
    };
    let mut seeds = vec![
        text(1, MANIFEST),
        text(1, "name = \"a\"\n[limits]\nmemory_mib = 4096\n"),
        text(
            1,
            &format!("{MANIFEST}[limits]\nmemory_mib = 32\ncalls_max = 7\ndeadline_ms = 9\n"),
        ),
        text(
            1,
            &format!(
                "{MANIFEST}[instance]\npolicy = \"per-call\"\n[config]\na = [1, 2.5, {{ b = 1979-05-27 }}]\n"
            ),
        ),
        filled(""),
        filled("[limits]\nmemory_mib = 1\n"),
        filled("capabilities = [\"kv\"]\n"),
        // A module and a component as they are, and with two manifests.
        vec![3, 0, 0],
        vec![3, 1, 0],
        [&[3, 0, 0, 0][..], MANIFEST.as_bytes()].concat(),
        vec![3, 1, 1, 1, 0, 1, 3],
        text(0, "\0asm\x01\0\0\0"),
    ];
    seeds.push(
        [
            &[0][..],
            &with_section(base().0.clone(), MANIFEST_SECTION, MANIFEST.as_bytes()),
        ]
        .concat(),
    );
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugin_that_is_changed_is_admitted_as_it_is() {
        let (module, component) = base();
        for bytes in [module, component] {
            let whole = with_section(bytes.clone(), MANIFEST_SECTION, MANIFEST.as_bytes());
            let admitted = inspect(&whole).expect("admitted");
            assert_eq!(admitted.manifest.name, "filter");
        }
    }
}
