//! `penstock plugin captures`: inputs of calls that failed.

use crate::api::Api;
use crate::arguments::Options;
use crate::binding;
use crate::status::moment;
use anyhow::{Result, bail, ensure};
use serde_json::Value;
use std::io::Write;

/// Longest id of a capture, bytes: two numbers.
const ID_BYTES_MAX: usize = 41;

/// Lists, shows or forgets.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<()> {
    let api = Api::of(options)?;
    let binding = binding::named(options)?;
    match (options.word.as_deref(), options.more.as_slice()) {
        (None | Some("list"), []) => list(&api, &binding, options.json, out),
        (Some("get"), [id]) => show(&read(&api, &binding, id)?, options.json, out),
        (Some("clear"), []) => {
            let answer = api.delete(&format!("/v1/bindings/{binding}/captures"))?;
            let removed = answer["removed"].as_u64().unwrap_or_default();
            Ok(writeln!(out, "forgot     {} of {binding}", count(removed))?)
        }
        (word, _) => bail!(
            "`plugin captures {}`: list, get ID or clear",
            word.unwrap_or_default()
        ),
    }
}

/// A whole capture of a binding.
pub(crate) fn read(api: &Api, binding: &str, id: &str) -> Result<Value> {
    let plain = |byte: u8| byte.is_ascii_digit() || byte == b'-';
    ensure!(
        (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(plain),
        "`{}` is no id of a capture: `penstock plugin captures` shows them",
        id.escape_default()
    );
    api.get(&format!("/v1/bindings/{binding}/captures/{id}"))
}

fn list(api: &Api, binding: &str, is_json: bool, out: &mut dyn Write) -> Result<()> {
    let mut answer = api.get(&format!("/v1/bindings/{binding}/captures"))?;
    let captures = answer["captures"].take();
    if is_json {
        return Ok(writeln!(out, "{}", serde_json::to_string_pretty(&captures)?)?);
    }
    let captures = captures.as_array().map(Vec::as_slice).unwrap_or_default();
    for capture in captures {
        writeln!(out, "{}", line(capture))?;
    }
    writeln!(
        out,
        "{} of {binding} at {}",
        count(captures.len() as u64),
        api.url()
    )?;
    Ok(())
}

fn show(capture: &Value, is_json: bool, out: &mut dyn Write) -> Result<()> {
    if is_json {
        return Ok(writeln!(out, "{}", serde_json::to_string_pretty(capture)?)?);
    }
    writeln!(out, "{}", line(capture))?;
    error(capture, out)?;
    writeln!(out, "{}", serde_json::to_string_pretty(&capture["input"])?)?;
    Ok(())
}

/// What went wrong, with its backtrace.
pub(crate) fn error(capture: &Value, out: &mut dyn Write) -> Result<()> {
    for line in capture["error"].as_str().unwrap_or_default().lines() {
        writeln!(out, "           {line}")?;
    }
    Ok(())
}

/// One capture in a line.
pub(crate) fn line(capture: &Value) -> String {
    let text = |name: &str| capture[name].as_str().unwrap_or_default();
    let times = match capture["times"].as_u64().unwrap_or(1) {
        1 => String::new(),
        times => format!(", {times} times"),
    };
    format!(
        "{}  {} in {}, {}{times}, payloads {}",
        text("id"),
        text("class"),
        text("hook"),
        moment(capture["at_ms"].as_u64().unwrap_or_default()),
        text("payloads"),
    )
}

fn count(captures: u64) -> String {
    match captures {
        1 => "1 capture".to_owned(),
        more => format!("{more} captures"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_line_says_what_failed_how_and_when() {
        let mut capture = json!({
            "id": "5-1", "class": "trap", "hook": "connect", "at_ms": 1_700_000_000_000_u64, "times": 1,
            "payloads": "left-out", "error": "one\ntwo",
        });
        assert_eq!(
            line(&capture),
            "5-1  trap in connect, 2023-11-14T22:13:20.000Z, payloads left-out"
        );
        capture["times"] = json!(3);
        assert!(line(&capture).contains(", 3 times,"));
    }

    #[test]
    fn nothing_but_an_id_goes_into_a_path() -> Result<()> {
        let api = Api::new("http://127.0.0.1:1", None)?;
        for wrong in ["", "a", "1/2", "1?x=2"] {
            let refused = read(&api, "b", wrong).expect_err(wrong).to_string();
            assert!(refused.contains("no id of a capture"), "{refused}");
        }
        Ok(())
    }
}
