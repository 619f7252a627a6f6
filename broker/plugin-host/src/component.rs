//! Admission: what a component is, what it asks for, and whether this broker can run it.

use crate::manifest::{MANIFEST_SECTION, Manifest};
use crate::packages;
use crate::refused::Refused;
use penstock_core::hooks::call::Digest;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;
use wasmparser::{Parser, Payload};
use wit_component::{ComponentEncoder, DecodedWasm};
use wit_parser::{InterfaceId, Resolve, WorldItem, WorldKey};

/// Largest component, bytes.
pub const COMPONENT_BYTES_MAX: usize = 32 << 20;
/// The newest contract that this broker speaks, major, minor and patch.
pub const SUPPORTED_API: (u64, u64, u64) = (1, 0, 0);

/// What is said of an import of WASI.
pub(crate) const NO_WASI: &str = "but plugins have no files, sockets, environment or processes: build without WASI (Rust: target \
     wasm32-unknown-unknown; Python and JavaScript: --stub-wasi)";

const PACKAGE: (&str, &str) = ("penstock", "plugin");
/// Interfaces that every plugin gets, and the one that has types only.
const ALWAYS: [&str; 6] = ["clock", "config", "log", "metrics", "random", "types"];
/// The interface, and the capability, of the plugin's keys.
pub(crate) const KV: &str = "kv";
/// The same for reads out of a copy.
pub(crate) const KV_READ: &str = "kv-read";
/// The interface, and the capability, of requests over HTTP.
pub(crate) const HTTP: &str = "http";
/// The same for values that the operator keeps.
pub(crate) const SECRETS: &str = "secrets";
/// The same for reading messages.
pub(crate) const MESSAGES: &str = "messages";
/// The same for sending them.
pub(crate) const PUBLISH: &str = "publish";
/// Interfaces that a plugin gets by a capability of the same name.
const GRANTED: [&str; 6] = [HTTP, KV, KV_READ, MESSAGES, PUBLISH, SECRETS];

/// A hook that a component answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    /// `before-send`, with the flat frame.
    BeforeSend,
    /// `before-send-typed`.
    BeforeSendTyped,
    /// `persist-after`.
    PersistAfter,
    /// `webhook`.
    Webhook,
    /// `session`.
    Connect,
    /// `route`.
    Route,
    /// `offline`.
    Offline,
}

impl Hook {
    /// The hooks that this broker calls.
    pub const ALL: [Hook; 7] = [
        Hook::BeforeSend,
        Hook::BeforeSendTyped,
        Hook::PersistAfter,
        Hook::Webhook,
        Hook::Connect,
        Hook::Route,
        Hook::Offline,
    ];

    /// The interface that the component exports.
    #[must_use]
    pub const fn interface(self) -> &'static str {
        match self {
            Hook::BeforeSend => "before-send",
            Hook::BeforeSendTyped => "before-send-typed",
            Hook::PersistAfter => "persist-after",
            Hook::Webhook => "webhook",
            Hook::Connect => "session",
            Hook::Route => "route",
            Hook::Offline => "offline",
        }
    }

    /// Its name in a manifest and a binding.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Hook::BeforeSend | Hook::BeforeSendTyped => "before-send",
            Hook::PersistAfter => "persist-after",
            Hook::Webhook => "webhook",
            Hook::Connect => "connect",
            Hook::Route => "route",
            Hook::Offline => "offline",
        }
    }
}

/// A component that could run here.
#[derive(Clone, Debug)]
pub struct Inspected {
    /// SHA-256 of the component: what it is called from now on.
    pub digest: Digest,
    /// The component; for a core module, what was made of it.
    pub component: Vec<u8>,
    /// What it says of itself.
    pub manifest: Manifest,
    /// The hooks that it answers.
    pub hooks: BTreeSet<Hook>,
    /// The interfaces that it imports, with their versions.
    pub imports: BTreeSet<String>,
}

/// Whether a component imports nothing that could make its caller wait.
pub(crate) fn never_waits(imports: &BTreeSet<String>) -> bool {
    let always = |import: &String| interface_of(import).is_some_and(|name| ALWAYS.contains(&name));
    imports.iter().all(always)
}

/// The interface's own name in one with package and version.
fn interface_of(import: &str) -> Option<&str> {
    let (_, interface) = import.split_once('/')?;
    let (interface, _) = interface.split_once('@')?;
    Some(interface)
}

/// What is imported by a capability must be asked for, so that an operator sees it.
fn check_capabilities(imports: &BTreeSet<String>, manifest: &Manifest) -> Result<(), Refused> {
    for import in imports {
        let name = interface_of(import).filter(|name| GRANTED.contains(name));
        if let Some(name) = name.filter(|name| !manifest.capabilities.contains(*name)) {
            return Err(Refused::Manifest(format!(
                "capabilities: the component imports `{import}`, so the manifest must ask for `{name}`"
            )));
        }
    }
    Ok(())
}

/// The digest of these bytes.
#[must_use]
pub(crate) fn digest(bytes: &[u8]) -> Digest {
    Digest(Sha256::digest(bytes).into())
}

/// Says what a component is. A core module that carries the metadata of a component becomes one.
///
/// # Errors
/// When this broker could not run it, and why.
pub fn inspect(bytes: &[u8]) -> Result<Inspected, Refused> {
    if bytes.len() <= COMPONENT_BYTES_MAX && (Parser::is_component(bytes) || Parser::is_core_wasm(bytes)) {
        packages::check(bytes)?;
    }
    let component = component(bytes)?;
    if component.len() > COMPONENT_BYTES_MAX {
        return Err(Refused::TooLarge {
            found: component.len(),
            max: COMPONENT_BYTES_MAX,
        });
    }
    let manifest = manifest(&component)?;
    let decoded =
        wit_component::decode(&component).map_err(|error| Refused::NotWasm(format!("{error:#}")))?;
    let DecodedWasm::Component(resolve, world) = decoded else {
        return Err(Refused::NotWasm(
            "a package of interfaces, not a component".to_owned(),
        ));
    };
    let world = &resolve.worlds[world];
    let mut imports = BTreeSet::new();
    for (key, item) in &world.imports {
        imports.insert(import(&resolve, key, item)?);
    }
    let mut hooks = BTreeSet::new();
    for item in world.exports.values() {
        hooks.extend(export(&resolve, item)?);
    }
    check_hooks(&hooks, &manifest)?;
    check_capabilities(&imports, &manifest)?;
    Ok(Inspected {
        digest: digest(&component),
        component,
        manifest,
        hooks,
        imports,
    })
}

fn component(bytes: &[u8]) -> Result<Vec<u8>, Refused> {
    if bytes.len() > COMPONENT_BYTES_MAX {
        return Err(Refused::TooLarge {
            found: bytes.len(),
            max: COMPONENT_BYTES_MAX,
        });
    }
    if Parser::is_component(bytes) {
        wasmparser::Validator::new()
            .validate_all(bytes)
            .map_err(|error| Refused::NotWasm(error.to_string()))?;
        return Ok(bytes.to_vec());
    }
    if !Parser::is_core_wasm(bytes) {
        let why = if bytes.is_empty() {
            "empty"
        } else {
            "it does not begin with the magic number"
        };
        return Err(Refused::NotWasm(why.to_owned()));
    }
    let mut has_metadata = false;
    for section in custom_sections(bytes) {
        has_metadata |= section?.0.starts_with("component-type");
    }
    if !has_metadata {
        return Err(Refused::CoreModule("no `component-type` section".to_owned()));
    }
    ComponentEncoder::default()
        .validate(true)
        .module(bytes)
        .and_then(|mut encoder| encoder.encode())
        .map_err(|error| Refused::CoreModule(format!("{error:#}")))
}

/// Name and data of each custom section, one after the other: millions of tiny ones fit into a component.
fn custom_sections(bytes: &[u8]) -> impl Iterator<Item = Result<(&str, &[u8]), Refused>> {
    Parser::new(0)
        .parse_all(bytes)
        .filter_map(|payload| match payload {
            Ok(Payload::CustomSection(section)) => Some(Ok((section.name(), section.data()))),
            Ok(_) => None,
            Err(error) => Some(Err(Refused::NotWasm(error.to_string()))),
        })
}

/// The manifest: a custom section of the component, or of the module inside that its toolchain wrapped.
fn manifest(component: &[u8]) -> Result<Manifest, Refused> {
    let mut found = None;
    for section in custom_sections(component) {
        let (name, data) = section?;
        if name == MANIFEST_SECTION && found.replace(data).is_some() {
            return Err(Refused::Manifest(
                "there are two: only one plugin fits into a component".to_owned(),
            ));
        }
    }
    let section = found.ok_or_else(|| {
        Refused::Manifest(
            "missing. `penstock plugin build` embeds the plugin.toml beside the sources".to_owned(),
        )
    })?;
    Manifest::parse(section).map_err(Refused::Manifest)
}

/// Package, interface and version of an interface that has a name.
struct Name<'a> {
    namespace: &'a str,
    package: &'a str,
    interface: &'a str,
    version: Option<(u64, u64, u64)>,
    whole: String,
}

fn name<'a>(resolve: &'a Resolve, id: InterfaceId) -> Option<Name<'a>> {
    let interface = &resolve.interfaces[id];
    let package = &resolve.packages[interface.package?].name;
    Some(Name {
        namespace: &package.namespace,
        package: &package.name,
        interface: interface.name.as_deref()?,
        version: package
            .version
            .as_ref()
            .map(|version| (version.major, version.minor, version.patch)),
        whole: resolve.id_of(id)?,
    })
}

fn label(key: &WorldKey) -> String {
    match key {
        WorldKey::Name(name) => name.clone(),
        WorldKey::Interface(_) => "an interface without a name".to_owned(),
    }
}

fn import(resolve: &Resolve, key: &WorldKey, item: &WorldItem) -> Result<String, Refused> {
    let refused = |import: String, reason: &str| {
        Err(Refused::Import {
            import,
            reason: reason.to_owned(),
        })
    };
    let WorldItem::Interface { id, .. } = item else {
        return refused(
            label(key),
            "which stands outside of any interface: plugins import the named interfaces of `penstock:plugin` only",
        );
    };
    let Some(name) = name(resolve, *id) else {
        return refused(
            label(key),
            "an interface without a name: plugins import the named interfaces of `penstock:plugin` only",
        );
    };
    if name.namespace == "wasi" {
        return refused(name.whole, NO_WASI);
    }
    if (name.namespace, name.package) != PACKAGE {
        return refused(name.whole, "which this broker does not offer");
    }
    check_version(&name)?;
    if ALWAYS.contains(&name.interface) || GRANTED.contains(&name.interface) {
        return Ok(name.whole);
    }
    refused(
        name.whole,
        "which is not in the contract: look at `GET /v1/plugins/api`",
    )
}

/// A later minor version may hold functions that do not exist here.
fn check_version(name: &Name<'_>) -> Result<(), Refused> {
    let (major, minor, _) = SUPPORTED_API;
    let refused = |reason: String| {
        Err(Refused::Import {
            import: name.whole.clone(),
            reason,
        })
    };
    match name.version {
        Some((found, _, _)) if found != major => refused(format!(
            "of another major version; this broker speaks {major}.{minor}: build with an SDK of that version"
        )),
        Some((_, found, _)) if found > minor => refused(format!(
            "newer than this broker, which speaks {major}.{minor}: update the broker, or build with an older SDK"
        )),
        Some(_) => Ok(()),
        None => refused(format!("without a version; this broker speaks {major}.{minor}")),
    }
}

fn export(resolve: &Resolve, item: &WorldItem) -> Result<Option<Hook>, Refused> {
    // Some toolchains export functions of their own beside the interfaces: nobody calls them.
    let WorldItem::Interface { id, .. } = item else {
        return Ok(None);
    };
    let Some(name) = name(resolve, *id) else {
        return Ok(None);
    };
    if (name.namespace, name.package) != PACKAGE {
        return Ok(None);
    }
    check_version(&name)?;
    let hook = Hook::ALL
        .into_iter()
        .find(|hook| hook.interface() == name.interface);
    if hook.is_none() && !["lifecycle", "types"].contains(&name.interface) {
        return Err(Refused::Export {
            export: name.whole,
            reason: "this version of the broker does not call it yet".to_owned(),
        });
    }
    Ok(hook)
}

fn check_hooks(hooks: &BTreeSet<Hook>, manifest: &Manifest) -> Result<(), Refused> {
    if hooks.contains(&Hook::BeforeSend) && hooks.contains(&Hook::BeforeSendTyped) {
        return Err(Refused::Export {
            export: "before-send-typed".to_owned(),
            reason: "and before-send: export one of the two".to_owned(),
        });
    }
    let exported: BTreeSet<String> = hooks.iter().map(|hook| hook.name().to_owned()).collect();
    if exported == manifest.hooks {
        return Ok(());
    }
    let list = |names: &BTreeSet<String>| {
        if names.is_empty() {
            "none".to_owned()
        } else {
            names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
        }
    };
    Err(Refused::Manifest(format!(
        "hooks: it names {}, the component exports {}",
        list(&manifest.hooks),
        list(&exported)
    )))
}
