//! The world of a core module that does not say it: a compiler of C leaves one.

use crate::embedded::CONTRACT;
use anyhow::{Context as _, Result};
use wasmparser::{Parser, Payload};
use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::{Resolve, SourceMap};

/// Sections in which compilers say it.
const METADATA: &str = "component-type";

/// The same module with the metadata of this world of the contract, unless it carries some, or is a component already.
pub(super) fn with_world(mut bytes: Vec<u8>, world: &str) -> Result<Vec<u8>> {
    if !Parser::is_core_wasm(&bytes) || has_metadata(&bytes)? {
        return Ok(bytes);
    }
    let mut resolve = Resolve::default();
    let mut sources = SourceMap::default();
    for file in CONTRACT {
        sources.push_str(file.path, file.text);
    }
    let contract = sources
        .parse()
        .map_err(|(_, error)| anyhow::Error::from(error))
        .context("the contract")?;
    let package = resolve.push_group(contract).context("the contract")?;
    let world = resolve.select_world(&[package], Some(world)).with_context(|| {
        format!("build.toml: the contract has no world `{world}`; wit/v1 says which there are")
    })?;
    embed_component_metadata(&mut bytes, &resolve, world, StringEncoding::UTF8)?;
    Ok(bytes)
}

fn has_metadata(bytes: &[u8]) -> Result<bool> {
    for payload in Parser::new(0).parse_all(bytes) {
        if let Payload::CustomSection(section) = payload?
            && section.name().starts_with(METADATA)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_gets_the_world_that_it_lacks() -> Result<()> {
        let empty = b"\0asm\x01\0\0\0".to_vec();
        assert!(!has_metadata(&empty)?);
        let with = with_world(empty.clone(), "filter")?;
        assert!(has_metadata(&with)?);
        assert_eq!(
            with_world(with.clone(), "consumer")?,
            with,
            "it keeps the one that it has"
        );
        let refused = with_world(empty, "sieve").expect_err("no such world");
        assert!(refused.to_string().contains("`sieve`"), "{refused}");
        Ok(())
    }
}
