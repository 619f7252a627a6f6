//! `penstock plugin keys`: what a plugin keeps.

use crate::api::{Api, check_name};
use crate::arguments::Options;
use crate::operate::manifest;
use crate::status::moment;
use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use std::io::Write;

/// Lists, shows, sets or deletes.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<()> {
    let api = Api::of(options)?;
    let plugin = plugin(options)?;
    match (options.word.as_deref(), options.more.as_slice(), options.all) {
        (None | Some("list"), [], false) => list(&api, &plugin, options.json, out),
        (Some("get"), [key], false) => get(&api, &plugin, key, options.json, out),
        (Some("set"), [key, value], false) => {
            let ttl_ms = options.ttl_ms.unwrap_or(0);
            api.put(&path(&plugin, key), &json!({ "value": value, "ttl_ms": ttl_ms }))?;
            Ok(writeln!(out, "set        {key} of {plugin}")?)
        }
        (Some("delete"), [], true) => {
            let keys = all(&api, &plugin)?;
            let names = keys.iter().filter_map(|key| key["key"].as_str());
            delete(&api, &plugin, names, out)
        }
        (Some("delete"), keys @ [_, ..], false) => {
            delete(&api, &plugin, keys.iter().map(String::as_str), out)
        }
        (word, _, _) => bail!(
            "`plugin keys {}`: list, get KEY, set KEY VALUE, delete KEY... or delete --all",
            word.unwrap_or_default()
        ),
    }
}

/// The plugin that was named, or that of the folder.
fn plugin(options: &Options) -> Result<String> {
    let name = match &options.plugin {
        Some(name) => name.clone(),
        None => {
            manifest(options)
                .context("name the plugin with --plugin NAME")?
                .name
        }
    };
    Ok(check_name(&name)?.to_owned())
}

fn path(plugin: &str, key: &str) -> String {
    format!("/v1/plugins/{plugin}/keys/{}", escaped(key))
}

/// A key as a part of an address.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    text.bytes()
        .map(|byte| {
            if plain(byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

/// Every key of a plugin, page by page.
fn all(api: &Api, plugin: &str) -> Result<Vec<Value>> {
    let mut keys: Vec<Value> = Vec::new();
    let mut after = String::new();
    loop {
        let mut page = api.get(&format!("/v1/plugins/{plugin}/keys?limit=1000{after}"))?;
        if let Some(found) = page["keys"].as_array_mut() {
            keys.append(found);
        }
        match page["next"].as_str() {
            Some(next) => after = format!("&after={}", escaped(next)),
            None => return Ok(keys),
        }
    }
}

fn list(api: &Api, plugin: &str, is_json: bool, out: &mut dyn Write) -> Result<()> {
    let keys = all(api, plugin)?;
    if is_json {
        return Ok(writeln!(out, "{}", serde_json::to_string_pretty(&keys)?)?);
    }
    for key in &keys {
        writeln!(out, "{}", line(key))?;
    }
    Ok(writeln!(out, "{} of {plugin}", count(keys.len()))?)
}

fn line(key: &Value) -> String {
    let name = key["key"].as_str().unwrap_or_default();
    let until = match key["expires_ms"].as_u64() {
        None | Some(0) => String::new(),
        Some(at_ms) => format!(", until {}", moment(at_ms)),
    };
    format!("{name}  {} bytes{until}", key["bytes"])
}

fn count(keys: usize) -> String {
    match keys {
        1 => "1 key".to_owned(),
        more => format!("{more} keys"),
    }
}

fn get(api: &Api, plugin: &str, key: &str, is_json: bool, out: &mut dyn Write) -> Result<()> {
    let found = api.get(&path(plugin, key))?;
    if is_json {
        return Ok(writeln!(out, "{}", serde_json::to_string_pretty(&found)?)?);
    }
    match found["value"].as_str() {
        Some(text) => writeln!(out, "{text}")?,
        None => writeln!(
            out,
            "base64 {}",
            found["value_base64"].as_str().unwrap_or_default()
        )?,
    }
    Ok(())
}

fn delete<'a>(
    api: &Api,
    plugin: &str,
    keys: impl Iterator<Item = &'a str>,
    out: &mut dyn Write,
) -> Result<()> {
    let mut deleted = 0;
    for key in keys {
        api.delete(&path(plugin, key))?;
        deleted += 1;
    }
    Ok(writeln!(out, "deleted    {} of {plugin}", count(deleted))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_stands_in_an_address() {
        assert_eq!(path("tally", "a/b c?"), "/v1/plugins/tally/keys/a%2Fb%20c%3F");
        assert_eq!(escaped("3:ä"), "3%3A%C3%A4");
    }

    #[test]
    fn a_line_says_how_large_it_is() {
        let key = json!({ "key": "seen/ann", "bytes": 3, "expires_ms": 0 });
        assert_eq!(line(&key), "seen/ann  3 bytes");
    }
}
