//! What a component may import and must export.

use std::collections::BTreeSet;
use wasmparser::{Parser, Payload};
use wit_component::DecodedWasm;
use wit_parser::{PackageId, Resolve, World, WorldItem};

/// The folder of the contract.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit/v1");
/// The custom section that holds the `plugin.toml`.
const MANIFEST_SECTION: &str = "penstock:manifest";
/// Every plugin imports the types, of which there is nothing to call, by way of the interfaces that use them.
const TYPES: &str = "penstock:plugin/types@1.0.0";

/// The contract of `wit/v1`.
pub(crate) struct Contract {
    resolve: Resolve,
    package: PackageId,
}

impl Contract {
    /// The contract of this repository.
    pub(crate) fn read() -> Self {
        let mut resolve = Resolve::default();
        let (package, _) = resolve
            .push_dir(FOLDER)
            .unwrap_or_else(|error| panic!("{FOLDER}: {error:#}"));
        Self { resolve, package }
    }

    /// Holds a component to the contract: it is one of its worlds or several together, at most without some
    /// imports, and has one manifest.
    pub(crate) fn check(&self, component: &[u8]) -> Result<(), String> {
        let decoded = wit_component::decode(component).map_err(|error| format!("{error:#}"))?;
        let DecodedWasm::Component(resolve, world) = decoded else {
            return Err("a package of interfaces, not a component".to_owned());
        };
        let world = &resolve.worlds[world];
        let exports = names(&resolve, world.exports.values());
        let imports = names(&resolve, world.imports.values());
        // A plugin with several hooks is several worlds at once.
        let of = |world: &&World| names(&self.resolve, world.exports.values()).is_subset(&exports);
        let worlds: Vec<&World> = self.worlds().filter(of).collect();
        let all = |part: fn(&World) -> Vec<&WorldItem>| -> BTreeSet<String> {
            let items = worlds.iter().flat_map(|world| part(world));
            names(&self.resolve, items)
        };
        if all(|world| world.exports.values().collect()) != exports {
            return Err(format!("no world of the contract exports {exports:?}"));
        }
        let mut offered = all(|world| world.imports.values().collect());
        offered.insert(TYPES.to_owned());
        if !imports.is_subset(&offered) {
            return Err(format!(
                "no world of the contract that exports {exports:?} imports {imports:?}"
            ));
        }
        match manifests(component)? {
            1 => Ok(()),
            count => Err(format!("{count} sections `{MANIFEST_SECTION}`, one is wanted")),
        }
    }

    fn worlds(&self) -> impl Iterator<Item = &World> {
        let package = &self.resolve.packages[self.package];
        package.worlds.values().map(|&world| &self.resolve.worlds[world])
    }
}

/// The ids of interfaces; what stands outside of an interface is named so.
fn names<'a>(resolve: &Resolve, items: impl Iterator<Item = &'a WorldItem>) -> BTreeSet<String> {
    items
        .map(|item| match item {
            WorldItem::Interface { id, .. } => resolve.id_of(*id),
            WorldItem::Function(_) | WorldItem::Type { .. } => None,
        })
        .map(|name| name.unwrap_or_else(|| "what has no name".to_owned()))
        .collect()
}

fn manifests(component: &[u8]) -> Result<usize, String> {
    let mut count = 0;
    for payload in Parser::new(0).parse_all(component) {
        if let Payload::CustomSection(section) = payload.map_err(|error| error.to_string())? {
            count += usize::from(section.name() == MANIFEST_SECTION);
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wit_component::{StringEncoding, dummy_module, embed_component_metadata};
    use wit_parser::{LiftLowerAbi, ManglingAndAbi, WorldId};

    /// A custom section of WebAssembly. Everything here is short enough for lengths of one byte.
    fn section(name: &str, data: &[u8]) -> Vec<u8> {
        let mut content = vec![u8::try_from(name.len()).unwrap()];
        content.extend_from_slice(name.as_bytes());
        content.extend_from_slice(data);
        assert!(content.len() < 128);
        [&[0, u8::try_from(content.len()).unwrap()], content.as_slice()].concat()
    }

    /// A component of this world that does nothing, with so many manifests.
    fn component(resolve: &Resolve, world: WorldId, manifests: usize) -> Vec<u8> {
        let mangling = ManglingAndAbi::Legacy(LiftLowerAbi::Sync);
        let mut module = dummy_module(resolve, world, mangling);
        embed_component_metadata(&mut module, resolve, world, StringEncoding::UTF8, false).unwrap();
        for _ in 0..manifests {
            module.extend(section(MANIFEST_SECTION, b"name = \"x\""));
        }
        crate::encode(&module).unwrap()
    }

    fn world(contract: &Contract, name: &str) -> WorldId {
        contract
            .resolve
            .select_world(&[contract.package], Some(name))
            .unwrap()
    }

    #[test]
    fn a_component_of_every_world_is_taken() {
        let contract = Contract::read();
        let names: Vec<&str> = contract.worlds().map(|world| world.name.as_str()).collect();
        assert!(names.contains(&"filter") && names.contains(&"consumer"));
        for name in names {
            let component = component(&contract.resolve, world(&contract, name), 1);
            assert_eq!(contract.check(&component), Ok(()), "{name}");
        }
    }

    #[test]
    fn a_manifest_is_wanted_and_only_one() {
        let contract = Contract::read();
        for count in [0, 2] {
            let component = component(&contract.resolve, world(&contract, "filter"), count);
            let error = contract.check(&component).unwrap_err();
            assert!(error.starts_with(&format!("{count} sections")), "{error}");
        }
    }

    #[test]
    fn what_is_no_world_of_the_contract_is_refused() {
        let contract = Contract::read();
        let mut resolve = contract.resolve.clone();
        let text = "package test:other;
            world greedy { include penstock:plugin/filter@1.0.0; import penstock:plugin/http@1.0.0; }
            world more { include penstock:plugin/filter@1.0.0; export exit: func(code: u32); }
            world two { include penstock:plugin/filter@1.0.0; export penstock:plugin/persist-after@1.0.0; }
            world loose { include penstock:plugin/filter@1.0.0; import exit: func(code: u32); }";
        let other = resolve.push_str("other.wit", text).unwrap();
        for (name, why) in [
            ("greedy", "penstock:plugin/http@1.0.0"),
            ("more", "no world of the contract exports"),
            ("loose", "what has no name"),
        ] {
            let world = resolve.select_world(&[other], Some(name)).unwrap();
            let error = contract.check(&component(&resolve, world, 1)).unwrap_err();
            assert!(error.contains(why), "{name}: {error}");
        }
        let both = resolve.select_world(&[other], Some("two")).unwrap();
        assert_eq!(
            contract.check(&component(&resolve, both, 1)),
            Ok(()),
            "two hooks of one plugin"
        );
        let error = contract.check(b"nothing").unwrap_err();
        assert!(!error.is_empty());
    }
}
