//! `binding.toml`: where the plugin takes part, as `PUT /v1/bindings/{id}` takes it.

use crate::api::check_name;
use crate::arguments::Options;
use crate::folder;
use crate::operate::manifest;
use anyhow::{Context as _, Result, bail, ensure};
use penstock_plugin_host::Manifest;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

/// The file.
pub(crate) const BINDING: &str = "binding.toml";
/// How long a call may take when neither binding nor manifest says so: what the broker gives it.
const DEADLINE: Duration = Duration::from_millis(200);

/// Attempts before a message is given up when the binding does not say so: what the broker makes.
const ATTEMPTS_MAX: u32 = 10;

/// The same for webhooks.
const WEBHOOK_DEADLINE: Duration = Duration::from_secs(15);
const WEBHOOK_ATTEMPTS_MAX: u32 = 0;

/// The same for requests over HTTP.
const ROUTE_DEADLINE: Duration = Duration::from_secs(5);

/// A binding.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Binding {
    /// Its id.
    pub(crate) id: String,
    /// What is sent: plugin, hook, selector and the rest.
    pub(crate) body: Map<String, Value>,
}

impl Binding {
    /// The binding of the folder; with an id that was named, that one, and to all messages when the folder has none.
    pub(crate) fn of(options: &Options, manifest: &Manifest, id: Option<&str>) -> Result<Option<Binding>> {
        let path = folder::path(options).join(BINDING);
        if !path.exists() {
            return Ok(id.map(|id| Binding::to_all(id, manifest)));
        }
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let mut binding = Binding::parse(&text, manifest).with_context(|| path.display().to_string())?;
        if let Some(id) = id {
            id.clone_into(&mut binding.id);
        }
        Ok(Some(binding))
    }

    /// The first hook of the plugin, every message, all that the manifest asks for.
    fn to_all(id: &str, manifest: &Manifest) -> Binding {
        let mut body = Map::new();
        body.insert("grants".to_owned(), json!(manifest.capabilities));
        Binding {
            id: id.to_owned(),
            body,
        }
        .completed(manifest)
    }

    fn parse(text: &str, manifest: &Manifest) -> Result<Binding> {
        let table: toml::Table = toml::from_str(text)?;
        let Value::Object(mut body) = serde_json::to_value(table)? else {
            bail!("it is not a table");
        };
        let id = match body.remove("id") {
            None => manifest.name.clone(),
            Some(Value::String(id)) => id,
            Some(other) => bail!("id = {other}: a text"),
        };
        ensure!(
            body.get("plugin")
                .is_none_or(|plugin| plugin == &json!(manifest.name)),
            "plugin: the folder is that of {}; leave the line out",
            manifest.name
        );
        Ok(Binding { id, body }.completed(manifest))
    }

    /// With what the manifest says where the file says nothing.
    fn completed(mut self, manifest: &Manifest) -> Binding {
        self.body.insert("plugin".to_owned(), json!(manifest.name));
        if let Some(hook) = manifest.hooks.first() {
            self.body.entry("hook").or_insert_with(|| json!(hook));
        }
        if let Some(deadline) = manifest.limits.deadline_ms {
            self.body.entry("deadline_ms").or_insert_with(|| json!(deadline));
        }
        self
    }

    /// Whether a binding that the broker shows is this one. What is not said here is what it is unless it is said; a field that
    /// neither this command nor the file knows is not compared.
    pub(crate) fn is(&self, shown: &Value) -> bool {
        let (deadline, attempts_max) = match self.hook() {
            Some("webhook") => (WEBHOOK_DEADLINE, WEBHOOK_ATTEMPTS_MAX),
            Some("route") => (ROUTE_DEADLINE, ATTEMPTS_MAX),
            _ => (DEADLINE, ATTEMPTS_MAX),
        };
        let usual = [
            ("attempts_max", json!(attempts_max)),
            ("capture", json!("headers")),
            ("config", json!({})),
            ("deadline_ms", json!(deadline.as_millis() as u64)),
            ("grants", json!([])),
            ("on_error", json!("reject")),
            ("own_messages", json!(false)),
            ("priority", json!(0)),
            ("selector", json!({})),
        ];
        let unsaid = usual
            .iter()
            .filter(|(name, _)| !self.body.contains_key(*name) && shown.get(name).is_some());
        let wanted = self.body.iter().map(|(name, value)| (name.as_str(), value));
        wanted
            .chain(unsaid.map(|(name, value)| (*name, value)))
            .all(|(name, value)| match (name, value) {
                // Where it begins is history once it is there.
                ("start" | "revision", _) => true,
                ("on_error", Value::String(policy)) => is_all(&shown["on_error"], policy),
                ("on_error", Value::Object(classes)) => classes
                    .iter()
                    .all(|(class, policy)| &shown["on_error"][class] == policy),
                ("selector", Value::Object(parts)) => is_selector(parts, &shown["selector"]),
                ("grants", Value::Array(grants)) => is_same_set(grants, &shown["grants"]),
                _ => &shown[name] == value,
            })
    }

    /// The hook that it names.
    pub(crate) fn hook(&self) -> Option<&str> {
        self.body.get("hook")?.as_str()
    }

    /// Its configuration.
    pub(crate) fn config(&self) -> Map<String, Value> {
        match self.body.get("config") {
            Some(Value::Object(config)) => config.clone(),
            _ => Map::new(),
        }
    }

    /// What it grants.
    pub(crate) fn grants(&self) -> BTreeSet<String> {
        let grants = self.body.get("grants").and_then(Value::as_array);
        let texts = grants.into_iter().flatten().filter_map(Value::as_str);
        texts.map(str::to_owned).collect()
    }
}

/// The id of the binding that `--bind` names, or of that of the folder.
pub(crate) fn named(options: &Options) -> Result<String> {
    let id = match &options.bind {
        Some(id) => id.clone(),
        None => {
            let manifest = manifest(options).context("name the binding with --bind ID")?;
            Binding::of(options, &manifest, None)?.map_or(manifest.name, |binding| binding.id)
        }
    };
    Ok(check_name(&id)?.to_owned())
}

/// How long a call may take.
pub(crate) fn deadline(binding: Option<&Binding>, manifest: &Manifest) -> Duration {
    let bound = binding.and_then(|binding| binding.body.get("deadline_ms")?.as_u64());
    bound
        .map(Duration::from_millis)
        .or_else(|| manifest.deadline())
        .unwrap_or(DEADLINE)
}

fn is_all(shown: &Value, policy: &str) -> bool {
    shown
        .as_object()
        .is_some_and(|classes| classes.values().all(|shown| shown == policy))
}

/// A part that is not said takes everything.
fn is_selector(wanted: &Map<String, Value>, shown: &Value) -> bool {
    let shown = shown.as_object();
    let nothing = Vec::new();
    ["channel_types", "channel_ids", "uids"].iter().all(|part| {
        let wanted = wanted.get(*part).and_then(Value::as_array).unwrap_or(&nothing);
        let shown = shown.and_then(|shown| shown.get(*part));
        is_same_set(wanted, shown.unwrap_or(&json!([])))
    })
}

fn is_same_set(wanted: &[Value], shown: &Value) -> bool {
    let texts = |values: &[Value]| values.iter().map(Value::to_string).collect::<BTreeSet<_>>();
    shown
        .as_array()
        .is_some_and(|shown| texts(shown) == texts(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let text = "name = \"shout\"\nversion = \"1\"\napi = \"1\"\nhooks = [\"before-send\"]\n[limits]\ndeadline_ms = 20\n";
        Manifest::parse(text.as_bytes()).expect("a manifest")
    }

    fn shown() -> Value {
        json!({
            "id": "shout", "plugin": "shout", "hook": "before-send", "priority": 0, "deadline_ms": 20,
            "selector": { "channel_types": [2], "channel_ids": [], "uids": [] },
            "on_error": { "timeout": "allow", "trap": "allow" }, "grants": [], "config": { "words": ["a"] },
            "start": "latest",
        })
    }

    const TEXT: &str = "on_error = \"allow\"\nstart = \"earliest\"\n[selector]\nchannel_types = [2]\n[config]\nwords = [\"a\"]\n";

    #[test]
    fn the_manifest_says_what_the_file_does_not() -> Result<()> {
        let binding = Binding::parse(TEXT, &manifest())?;
        assert_eq!(binding.id, "shout");
        assert_eq!(binding.body["hook"], "before-send");
        assert_eq!(deadline(Some(&binding), &manifest()), Duration::from_millis(20));
        assert_eq!(
            deadline(
                Some(&Binding::parse("deadline_ms = 7", &manifest())?),
                &manifest()
            ),
            Duration::from_millis(7)
        );
        assert_eq!(
            binding.config(),
            *json!({ "words": ["a"] }).as_object().expect("a table")
        );
        assert!(Binding::parse("plugin = \"other\"", &manifest()).is_err());
        assert!(Binding::parse("id = 1", &manifest()).is_err());
        Ok(())
    }

    #[test]
    fn a_binding_is_recognised_and_a_changed_one_is_not() -> Result<()> {
        let same = Binding::parse(TEXT, &manifest())?;
        assert!(same.is(&shown()));
        for change in [
            ("words = [\"a\"]", "words = []"),
            ("channel_types = [2]", "channel_types = [1, 2]"),
            ("on_error = \"allow\"", "on_error = \"skip\""),
            ("on_error = \"allow\"", "grants = [\"http\"]"),
            ("on_error = \"allow\"", "priority = 3"),
            // Taken out: the broker would refuse.
            ("on_error = \"allow\"", ""),
        ] {
            let text = TEXT.replace(change.0, change.1);
            assert!(!Binding::parse(&text, &manifest())?.is(&shown()), "{text}");
        }
        assert!(
            !Binding::parse("", &manifest())?.is(&shown()),
            "it selects and configures nothing"
        );
        Ok(())
    }
}
