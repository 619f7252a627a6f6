//! `penstock plugin replay --capture`: the input of a call that failed in production, in the component of the folder.

use super::fixtures::{self, FOLDER, Fixture};
use super::{Bench, show, turns};
use crate::api::{Api, check_name};
use crate::arguments::Options;
use crate::binding;
use crate::build;
use crate::captures;
use crate::folder;
use crate::host::Local;
use anyhow::{Context as _, Result, ensure};
use penstock_core::hooks::call::{Failed, Returned};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Capabilities whose answers in production are in no capture.
const ANSWERS: [&str; 4] = ["kv", "kv-read", "http", "messages"];
/// What a backtrace has where a component lacks the names of its functions.
const NAMELESS: &str = "<wasm function ";

/// Reads the capture, runs it, and says whether the same comes of it.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<()> {
    let id = options.capture.as_deref().unwrap_or_default();
    let binding = binding::named(options)?;
    let capture = captures::read(&Api::of(options)?, &binding, id)?;
    let saved = options
        .save
        .as_deref()
        .map(|name| path(options, name))
        .transpose()?;
    let fixture = fixtures::parse(&capture["input"].to_string())
        .context("this version of the command cannot read the capture: use that of the broker")?;
    let component = build::component(options, out)?;
    let local = Local::start()?;
    let (mut bench, _) = Bench::of(options, &component, &local)?;
    if let Some(deadline) = capture["deadline_ms"].as_u64().filter(|ms| *ms > 0) {
        bench.within = Duration::from_millis(deadline);
    }
    writeln!(out, "capture    {}", captures::line(&capture))?;
    captures::error(&capture, out)?;
    write_circumstances(&bench, &capture, &fixture, out)?;
    replay(&mut bench, &capture, &fixture, out)?;
    match saved {
        Some(path) => save(&path, &capture["input"], &fixture, out),
        None => Ok(()),
    }
}

/// Where the fixture of this name belongs.
fn path(options: &Options, name: &str) -> Result<PathBuf> {
    let name = check_name(name)?;
    let path = folder::path(options).join(FOLDER).join(format!("{name}.json"));
    ensure!(
        !path.exists(),
        "{} is there already: choose another name for --save",
        path.display()
    );
    Ok(path)
}

/// What is not as it was in production.
fn write_circumstances(
    bench: &Bench<'_>,
    capture: &Value,
    fixture: &Fixture,
    out: &mut dyn Write,
) -> Result<()> {
    let here = bench.inspected.digest.to_string();
    let failed = capture["digest"].as_str().unwrap_or_default();
    if here == failed {
        writeln!(out, "component  {here}, the one that failed")?;
    } else {
        writeln!(out, "component  {here}, another one than {failed}, which failed")?;
    }
    if fixture.stands_in() {
        writeln!(
            out,
            "payloads   not kept: bytes of the same number stand in for them. `capture = \"payload\"` in binding.toml keeps them from now on"
        )?;
    }
    let capabilities = &bench.inspected.manifest.capabilities;
    let answers: Vec<&str> = ANSWERS
        .into_iter()
        .filter(|name| capabilities.contains(*name))
        .collect();
    if !answers.is_empty() {
        writeln!(
            out,
            "not in it  what {} answered in production: a fixture can say it, so save it and add that",
            answers.join(", ")
        )?;
    }
    Ok(())
}

fn replay(bench: &mut Bench<'_>, capture: &Value, fixture: &Fixture, out: &mut dyn Write) -> Result<()> {
    let hook = fixture.hook.clone().unwrap_or_default();
    bench.local.keys.begin(&BTreeMap::new());
    bench.local.places.begin(&[], &BTreeMap::new());
    bench.local.mail.begin(&fixture.messages, fixture.scene());
    let version = bench.load(&hook, &fixture.config)?;
    let failed = capture["class"].as_str().unwrap_or_default();
    for turn in turns::of_fixture(&hook, fixture) {
        let returned = bench.ask(&version, &turn);
        match class(&returned) {
            None => {
                writeln!(out, "answer     {}", show(&returned))?;
                writeln!(out, "other      it failed in production: {failed}")?;
            }
            Some(class) => {
                writeln!(out, "failure    {class}: {}", show(&returned))?;
                write_log(&bench.logged(&version), out)?;
                if class == failed {
                    writeln!(out, "same       as in production: {failed}")?;
                } else {
                    writeln!(out, "other      in production it was {failed}")?;
                }
            }
        }
    }
    for request in bench.local.places.differences() {
        writeln!(out, "asked      {request}")?;
    }
    Ok(())
}

/// What was logged, backtraces included.
pub(super) fn write_log(lines: &[String], out: &mut dyn Write) -> Result<()> {
    for line in lines.iter().flat_map(|text| text.lines()) {
        writeln!(out, "           {line}")?;
    }
    if lines.iter().any(|line| line.contains(NAMELESS)) {
        writeln!(
            out,
            "           the component has no names of its functions: build it without stripping them (`strip = \"debuginfo\"` keeps them)"
        )?;
    }
    Ok(())
}

/// The class of a failure, as captures have it; none of an answer.
pub(super) fn class(returned: &Returned) -> Option<&'static str> {
    match returned {
        Ok(_) => None,
        Err(Failed::Call(failure)) => Some(failure.name()),
        Err(Failed::Poison) => Some("poison"),
        Err(Failed::Retry { .. } | Failed::Busy { .. }) => Some("retry"),
        // Nothing is delivered here.
        Err(Failed::Undelivered { .. } | Failed::Later { .. } | Failed::Gone) => Some("undelivered"),
    }
}

/// Writes the fixture, and says what is to be filled in.
fn save(path: &std::path::Path, input: &Value, fixture: &Fixture, out: &mut dyn Write) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    fs::write(path, format!("{}\n", serde_json::to_string_pretty(input)?))
        .with_context(|| path.display().to_string())?;
    writeln!(
        out,
        "saved      {}: `penstock plugin test` passes it once the plugin answers. Say in `expect` what it must answer",
        path.display()
    )?;
    if fixture.stands_in() {
        writeln!(
            out,
            "fill in    `payload` in place of `payload_bytes`, or `body` of `body_bytes`: they were not kept"
        )?;
    }
    if !fixture.connects.is_empty() {
        writeln!(out, "fill in    `token`: it is never kept")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_core::hooks::pipeline::Failure;

    #[test]
    fn failures_have_the_classes_of_captures() {
        assert_eq!(class(&Err(Failed::Call(Failure::BadOutput))), Some("bad-output"));
        assert_eq!(class(&Err(Failed::Poison)), Some("poison"));
        let done = penstock_core::hooks::call::Answer::Verdicts(Vec::new());
        assert_eq!(class(&Ok(done)), None);
    }

    #[test]
    fn a_fixture_is_saved_under_a_new_name_in_the_folder() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let options = Options {
            folder: Some(folder.path().to_owned()),
            ..Options::default()
        };
        let file = path(&options, "crash")?;
        let input = serde_json::json!({
            "hook": "connect", "connects": [{ "uid": "ann", "token": "***" }], "time_ms": 5,
        });
        let fixture = fixtures::parse(&input.to_string())?;
        let mut said = Vec::new();
        save(&file, &input, &fixture, &mut said)?;
        let said = String::from_utf8(said)?;
        assert!(said.contains("crash.json") && said.contains("`token`"), "{said}");
        assert_eq!(fixtures::read(folder.path())?[0].0, "crash.json");
        assert!(
            path(&options, "crash")
                .expect_err("is there")
                .to_string()
                .contains("already")
        );
        assert!(path(&options, "../crash").is_err());
        Ok(())
    }
}
