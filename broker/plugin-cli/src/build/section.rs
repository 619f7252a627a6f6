//! The manifest within the component.

use anyhow::{Result, bail, ensure};
use penstock_plugin_host::MANIFEST_SECTION;
use wasmparser::{Parser, Payload};

/// The same bytes with the manifest as a custom section at their end, unless they carry it already: as the SDK for Rust puts it
/// into the module.
pub(super) fn with_manifest(mut bytes: Vec<u8>, manifest: &[u8]) -> Result<Vec<u8>> {
    let mut found = None;
    for payload in Parser::new(0).parse_all(&bytes) {
        if let Payload::CustomSection(section) = payload?
            && section.name() == MANIFEST_SECTION
        {
            ensure!(
                found.is_none(),
                "it holds two manifests: a component is one plugin"
            );
            found = Some(section.data().to_vec());
        }
    }
    match found {
        Some(found) if found == manifest => {}
        Some(_) => bail!(
            "the plugin.toml in it is not the one in the folder: the build did not take the change; clean it and build again"
        ),
        None => {
            let mut section = Vec::new();
            put_number(&mut section, MANIFEST_SECTION.len());
            section.extend_from_slice(MANIFEST_SECTION.as_bytes());
            section.extend_from_slice(manifest);
            bytes.push(0);
            put_number(&mut bytes, section.len());
            bytes.extend(section);
        }
    }
    Ok(bytes)
}

/// An unsigned number in LEB128, as WebAssembly writes lengths.
fn put_number(bytes: &mut Vec<u8>, mut number: usize) {
    loop {
        let low = (number & 0x7f) as u8;
        number >>= 7;
        if number == 0 {
            bytes.push(low);
            return;
        }
        bytes.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The magic number and version of a core module: the smallest one there is.
    const EMPTY: &[u8] = b"\0asm\x01\0\0\0";

    #[test]
    fn a_manifest_is_added_once_and_a_stale_one_is_found() -> Result<()> {
        let manifest = "name = \"a\"\n".repeat(30);
        let with = with_manifest(EMPTY.to_vec(), manifest.as_bytes())?;
        let sections = Parser::new(0)
            .parse_all(&with)
            .filter_map(|payload| match payload {
                Ok(Payload::CustomSection(section)) => Some((section.name(), section.data())),
                _ => None,
            });
        let sections: Vec<_> = sections.collect();
        assert_eq!(sections, [(MANIFEST_SECTION, manifest.as_bytes())]);
        assert_eq!(with_manifest(with.clone(), manifest.as_bytes())?, with);
        let stale = with_manifest(with.clone(), b"other").expect_err("is stale");
        assert!(stale.to_string().contains("not the one in the folder"));
        let mut two = with;
        two.extend_from_slice(&with_manifest(EMPTY.to_vec(), b"other")?[EMPTY.len()..]);
        assert!(with_manifest(two, manifest.as_bytes()).is_err());
        assert!(with_manifest(b"text".to_vec(), b"").is_err());
        Ok(())
    }
}
