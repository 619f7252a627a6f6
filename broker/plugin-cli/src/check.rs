//! `penstock plugin check`: would a broker take the component?

use crate::api::Api;
use crate::arguments::Options;
use crate::binding::Binding;
use crate::build;
use crate::host::Local;
use anyhow::{Context as _, Result, bail};
use penstock_core::hooks::call::Version;
use penstock_plugin_host::{Inspected, LoadRequest, inspect};
use serde_json::Value;
use std::io::Write;
use std::sync::Arc;

/// The package of the contract.
const PACKAGE: &str = "penstock:plugin";

/// Inspects the component as admission does, starts it, and compares it with another broker when one is named.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<()> {
    let component = build::component(options, out)?;
    let inspected = inspect(&component).context("no broker of this version takes it")?;
    build::describe(&inspected, out)?;
    let binding = Binding::of(options, &inspected.manifest, None)?;
    starts(&inspected, binding.as_ref())?;
    writeln!(out, "a broker of this version takes it, and it starts")?;
    if let Some(url) = &options.against {
        let api = Api::new(url, options.api_key.as_deref())?;
        let offered = api.get("/v1/plugins/api")?;
        let missing = missing(&inspected, &offered);
        if !missing.is_empty() {
            bail!("the broker at {url} does not take it: {}", missing.join("; "));
        }
        writeln!(out, "the broker at {} offers all that it needs", api.url())?;
    }
    Ok(())
}

/// Starts the component as it would be bound, `init` with its configuration included.
pub(crate) fn starts(inspected: &Inspected, binding: Option<&Binding>) -> Result<()> {
    let manifest = &inspected.manifest;
    let first = manifest.hooks.first().map(String::as_str);
    let hook = binding.and_then(Binding::hook).or(first);
    let request = LoadRequest {
        version: Version {
            binding: Arc::from(binding.map_or("check", |binding| &binding.id)),
            digest: inspected.digest,
            generation: 0,
        },
        component: inspected.component.clone(),
        config: binding.map(Binding::config).unwrap_or_default(),
        grants: binding.map_or_else(|| manifest.capabilities.clone(), Binding::grants),
        hook: hook.unwrap_or_default().to_owned(),
    };
    let local = Local::start()?;
    local.host.try_out(request).context("it does not start")?;
    Ok(())
}

/// What a broker that says this of itself lacks.
fn missing(inspected: &Inspected, offered: &Value) -> Vec<String> {
    let texts = |name: &str| -> Vec<&str> {
        let listed = offered[name].as_array();
        listed.into_iter().flatten().filter_map(Value::as_str).collect()
    };
    let packages = texts("packages");
    let interfaces = texts("imports");
    let mut missing = Vec::new();
    for import in &inspected.imports {
        let (interface, wanted) = import.split_once('@').unwrap_or((import, ""));
        let speaks = packages.iter().any(|package| serves(package, wanted));
        // A broker that lists no interfaces offers all of its package.
        let offers = interfaces.is_empty() || interfaces.contains(&interface);
        if !speaks || !offers {
            missing.push(format!(
                "it does not offer `{import}`; it speaks {}",
                packages.join(", ")
            ));
        }
    }
    let hooks = texts("hooks");
    for hook in inspected.hooks.iter().map(|hook| hook.interface()) {
        if !hooks.contains(&hook) {
            missing.push(format!(
                "it does not call `{hook}`; it calls {}",
                hooks.join(", ")
            ));
        }
    }
    let bytes = inspected.component.len();
    if let Some(max) = offered["component_bytes_max"].as_u64()
        && bytes as u64 > max
    {
        missing.push(format!(
            "it takes at most {max} bytes, and the component has {bytes}"
        ));
    }
    missing
}

/// Whether this package has all of the wanted version: the same major, and no older a minor.
fn serves(package: &str, wanted: &str) -> bool {
    let numbers = |version: &str| -> Option<(u64, u64)> {
        let mut parts = version.split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    };
    let offered = package
        .strip_prefix(PACKAGE)
        .and_then(|rest| numbers(rest.strip_prefix('@')?));
    match (offered, numbers(wanted)) {
        (Some((major, minor)), Some((wanted_major, wanted_minor))) => {
            major == wanted_major && minor >= wanted_minor
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_plugin_host::{Hook, Manifest};
    use serde_json::json;

    fn inspected() -> Inspected {
        let manifest = "name = \"a\"\nversion = \"1\"\napi = \"1\"\nhooks = [\"before-send\"]\n";
        Inspected {
            digest: penstock_core::hooks::call::Digest([0; 32]),
            component: vec![0; 100],
            manifest: Manifest::parse(manifest.as_bytes()).expect("a manifest"),
            hooks: [Hook::BeforeSend].into(),
            imports: ["penstock:plugin/log@1.0.0".to_owned()].into(),
        }
    }

    #[test]
    fn a_broker_that_lacks_something_is_told_from_one_that_does_not() {
        let offers = json!({
            "packages": ["penstock:plugin@1.2.0"], "imports": ["penstock:plugin/log"],
            "hooks": ["before-send"], "component_bytes_max": 100,
        });
        assert_eq!(missing(&inspected(), &offers), Vec::<String>::new());
        for (name, value, said) in [
            (
                "packages",
                json!(["penstock:plugin@2.0.0"]),
                "penstock:plugin@2.0.0",
            ),
            ("imports", json!(["penstock:plugin/clock"]), "log@1.0.0"),
            (
                "hooks",
                json!(["persist-after"]),
                "it does not call `before-send`",
            ),
            ("component_bytes_max", json!(99), "at most 99"),
        ] {
            let mut less = offers.clone();
            less[name] = value;
            let found = missing(&inspected(), &less);
            assert!(found.len() == 1 && found[0].contains(said), "{name}: {found:?}");
        }
        let mut newer = inspected();
        newer.imports = ["penstock:plugin/log@1.3.0".to_owned()].into();
        assert_eq!(missing(&newer, &offers).len(), 1);
        assert_eq!(missing(&inspected(), &json!({})).len(), 2);
    }
}
