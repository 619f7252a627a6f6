//! `penstock plugin promote`, `rollback`, `release`, `remove`, `bind`, `unbind`, `enable`, `disable` and `replay`.

use crate::api::{Api, check_name};
use crate::arguments::Options;
use crate::binding::Binding;
use crate::deploy::{named, put};
use crate::folder::{self, MANIFEST};
use anyhow::{Context as _, Result, bail};
use penstock_plugin_host::Manifest;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;

/// Takes the open rollout to all channels.
pub(crate) fn promote(options: &Options, out: &mut dyn Write) -> Result<()> {
    let (api, name) = plugin(options)?;
    api.post(&format!("/v1/plugins/{name}/promote"), &json!({}))?;
    writeln!(out, "promoted   {}", shown(&api, &name)?)?;
    Ok(())
}

/// Drops the open rollout, or goes back to what ran before.
pub(crate) fn rollback(options: &Options, out: &mut dyn Write) -> Result<()> {
    let (api, name) = plugin(options)?;
    api.post(&format!("/v1/plugins/{name}/rollback"), &json!({}))?;
    writeln!(out, "rolled back: {}", shown(&api, &name)?)?;
    Ok(())
}

/// Lets quarantined versions run again.
pub(crate) fn release(options: &Options, out: &mut dyn Write) -> Result<()> {
    let (api, name) = plugin(options)?;
    let wish = match &options.digest {
        Some(digest) => json!({ "digest": digest }),
        None => json!({}),
    };
    api.post(&format!("/v1/plugins/{name}/release"), &wish)?;
    writeln!(out, "released   {}", shown(&api, &name)?)?;
    Ok(())
}

/// What runs now, in words.
fn shown(api: &Api, name: &str) -> Result<String> {
    let all = api.get("/v1/plugins")?;
    let active = named(&all["plugins"], name)
        .map(|plugin| plugin["active"].clone())
        .unwrap_or_default();
    let disabled = named(&all["plugins"], name).is_some_and(|plugin| plugin["disabled"] == true);
    Ok(match active["digest"].as_str() {
        Some(digest) if disabled => format!("{name} is disabled: {digest} is quarantined"),
        Some(digest) => format!(
            "{name} {} runs, {digest}",
            active["version"].as_str().unwrap_or_default()
        ),
        None => format!("no version of {name} runs"),
    })
}

/// Forgets a plugin that nothing is bound to.
pub(crate) fn remove(options: &Options, out: &mut dyn Write) -> Result<()> {
    let (api, name) = plugin(options)?;
    let all = api.get("/v1/bindings")?;
    let bound: Vec<&str> = all["bindings"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|binding| binding["plugin"] == name.as_str())
        .filter_map(|binding| binding["id"].as_str())
        .collect();
    if !bound.is_empty() {
        bail!(
            "{name} is bound as {}: remove that first with `penstock plugin unbind {}`",
            bound.join(", "),
            bound[0]
        );
    }
    api.post(&format!("/v1/plugins/{name}/remove"), &json!({}))?;
    writeln!(out, "removed    {name}")?;
    Ok(())
}

/// Makes or changes the binding of the folder, or makes one to all messages.
pub(crate) fn bind(options: &Options, out: &mut dyn Write) -> Result<()> {
    let manifest = manifest(options)?;
    let id = options.word.as_deref().map(check_name).transpose()?;
    let binding = Binding::of(options, &manifest, id)?.with_context(|| {
        format!(
            "there is no binding.toml: write one, or `penstock plugin bind {}` for all messages",
            manifest.name
        )
    })?;
    put(&Api::of(options)?, &binding, out)
}

/// Removes a binding: the one that was named, or that of the folder.
pub(crate) fn unbind(options: &Options, out: &mut dyn Write) -> Result<()> {
    let id = binding(options)?;
    Api::of(options)?.delete(&format!("/v1/bindings/{id}"))?;
    writeln!(out, "unbound    {id}")?;
    Ok(())
}

/// Has a binding go on where it stopped.
pub(crate) fn enable(options: &Options, out: &mut dyn Write) -> Result<()> {
    let id = binding(options)?;
    Api::of(options)?.post(&format!("/v1/bindings/{id}/enable"), &json!({}))?;
    writeln!(out, "enabled    {id}")?;
    Ok(())
}

/// Stops it.
pub(crate) fn disable(options: &Options, out: &mut dyn Write) -> Result<()> {
    let id = binding(options)?;
    Api::of(options)?.post(&format!("/v1/bindings/{id}/disable"), &json!({}))?;
    writeln!(out, "disabled   {id}")?;
    Ok(())
}

/// Has a webhook deliver a range of messages once more, one delivery after the other.
pub(crate) fn replay(options: &Options, out: &mut dyn Write) -> Result<()> {
    let id = binding(options)?;
    let api = Api::of(options)?;
    let channel = options
        .channel
        .as_deref()
        .context("--channel CHANNEL: whose messages")?;
    let kind = options
        .kind
        .context("--type KIND: 1 for two persons, 2 for a group")?;
    let mut from = options.from.context("--from SEQ: the first position")?;
    let to = options.to.context("--to SEQ: the last position")?;
    loop {
        let range = json!({ "channel_id": channel, "channel_type": kind, "from": from, "to": to });
        let answer = api.post(&format!("/v1/bindings/{id}/replay"), &range)?;
        let through = answer["through"]
            .as_u64()
            .context("the answer names no position")?;
        writeln!(out, "delivered  {from} to {through}")?;
        if through >= to || through < from {
            return Ok(());
        }
        from = through + 1;
    }
}

/// The binding that was named, or that of the folder.
fn binding(options: &Options) -> Result<String> {
    let id = match &options.word {
        Some(id) => id.clone(),
        None => {
            let manifest = manifest(options)?;
            Binding::of(options, &manifest, None)?.map_or(manifest.name, |binding| binding.id)
        }
    };
    Ok(check_name(&id)?.to_owned())
}

/// The broker, and the plugin that was named or whose folder this is.
fn plugin(options: &Options) -> Result<(Api, String)> {
    let name = match &options.word {
        Some(name) => name.clone(),
        None => manifest(options)?.name,
    };
    check_name(&name)?;
    Ok((Api::of(options)?, name))
}

/// The manifest of the folder.
pub(crate) fn manifest(options: &Options) -> Result<Manifest> {
    let path = folder::path(options).join(MANIFEST);
    let text = fs::read(&path).with_context(|| {
        format!(
            "{}: run this in a plugin's folder, or name what you mean",
            path.display()
        )
    })?;
    Manifest::parse(&text).map_err(|why| anyhow::anyhow!("{}: {why}", path.display()))
}

/// The name of the folder's plugin; none outside of such a folder.
pub(crate) fn name_here(options: &Options) -> Result<Option<String>> {
    if folder::path(options).join(MANIFEST).exists() {
        manifest(options).map(|manifest| Some(manifest.name))
    } else {
        Ok(None)
    }
}

/// The entries of a list whose field has this text.
pub(crate) fn with<'a>(list: &'a Value, field: &'a str, text: &'a str) -> impl Iterator<Item = &'a Value> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter(move |entry| entry[field] == text)
}
