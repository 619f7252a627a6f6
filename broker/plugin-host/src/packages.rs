//! The packages that a component, or the metadata of a module, names.
//!
//! The parser of interfaces follows packages that refer to each other for ever, until the stack ends and the process with it. There is one
//! package that plugins may have to do with, so a second one is refused before that parser sees it.

use crate::refused::Refused;
use wasmparser::{
    ComponentType, ComponentTypeDeclaration, ComponentTypeRef, InstanceTypeDeclaration, Parser, Payload,
};

/// The package of the contract, whatever its version.
const CONTRACT: &str = "penstock:plugin";
/// Sections of a module that hold a component of types.
const METADATA: &str = "component-type";

/// Names of interfaces, as they come.
struct Names(Vec<String>);

/// Refuses what names interfaces of more than one package.
pub(crate) fn check(bytes: &[u8]) -> Result<(), Refused> {
    let mut names = Names(Vec::new());
    for section in names.read(bytes)? {
        // What lies deeper is metadata of nothing.
        names.read(section)?;
    }
    let package = |name: &str| {
        let (path, version) = name.split_once('@').unwrap_or((name, ""));
        let path = path.split_once('/').map_or(path, |(package, _)| package);
        (path.to_owned(), version.to_owned())
    };
    let Some(first) = names.0.first().map(|name| package(name)) else {
        return Ok(());
    };
    if names.0.iter().all(|name| package(name) == first) {
        return Ok(());
    }
    let refused = |import: &String, reason: &str| {
        Err(Refused::Import {
            import: import.clone(),
            reason: reason.to_owned(),
        })
    };
    if let Some(name) = names.0.iter().find(|name| name.starts_with("wasi:")) {
        return refused(name, crate::component::NO_WASI);
    }
    match names.0.iter().find(|name| package(name).0 != CONTRACT) {
        Some(name) => refused(name, "which this broker does not offer"),
        None => refused(
            &names.0[0],
            "beside another version of the contract: build with one SDK",
        ),
    }
}

impl Names {
    /// Takes the names, and gives the sections of metadata.
    fn read<'a>(&mut self, bytes: &'a [u8]) -> Result<Vec<&'a [u8]>, Refused> {
        let mut metadata = Vec::new();
        // Components and modules within it, as runtimes bring them, are not seen from outside.
        let mut depth = 0_u32;
        let wrong = |error: wasmparser::BinaryReaderError| Refused::NotWasm(error.to_string());
        for payload in Parser::new(0).parse_all(bytes) {
            match payload.map_err(wrong)? {
                Payload::ComponentSection { .. } | Payload::ModuleSection { .. } => depth += 1,
                Payload::End(_) => depth = depth.saturating_sub(1),
                _ if depth > 0 => {}
                Payload::CustomSection(section) if section.name().starts_with(METADATA) => {
                    metadata.push(section.data());
                }
                Payload::ComponentTypeSection(types) => {
                    for each in types {
                        self.component_type(&each.map_err(wrong)?);
                    }
                }
                Payload::ComponentImportSection(imports) => {
                    for import in imports {
                        let import = import.map_err(wrong)?;
                        self.name(import.name.name, import.ty);
                    }
                }
                Payload::ComponentExportSection(exports) => {
                    for export in exports {
                        self.interface(export.map_err(wrong)?.name.name);
                    }
                }
                _ => {}
            }
        }
        Ok(metadata)
    }

    fn component_type(&mut self, each: &ComponentType<'_>) {
        match each {
            ComponentType::Component(declared) => {
                for declaration in declared.iter() {
                    match declaration {
                        ComponentTypeDeclaration::Type(inner) => self.component_type(inner),
                        ComponentTypeDeclaration::Import(import) => self.name(import.name.name, import.ty),
                        ComponentTypeDeclaration::Export { name, ty } => self.name(name.name, *ty),
                        _ => {}
                    }
                }
            }
            ComponentType::Instance(declared) => {
                for declaration in declared.iter() {
                    match declaration {
                        InstanceTypeDeclaration::Type(inner) => self.component_type(inner),
                        InstanceTypeDeclaration::Export { name, ty } => self.name(name.name, *ty),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    /// The world itself may be of the author's own package: it is a component.
    fn name(&mut self, name: &str, ty: ComponentTypeRef) {
        if !matches!(ty, ComponentTypeRef::Component(_)) {
            self.interface(name);
        }
    }

    fn interface(&mut self, name: &str) {
        if name.contains(':') && name.contains('/') {
            self.0.push(name.to_owned());
        }
    }
}
