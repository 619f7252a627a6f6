//! `penstock plugin test`: the component on fixtures, in the host and under the limits of production.

mod bench;
mod channels;
mod compare;
mod connects;
mod content;
mod fixtures;
mod given;
mod keys;
mod places;
mod range;
mod replay;
mod routes;
#[cfg(test)]
mod tests;
mod turns;

pub(crate) use bench::run as bench;
pub(crate) use channels::Mail;
pub(crate) use keys::Table;
pub(crate) use places::Places;
pub(crate) use range::run as replay_range;
pub(crate) use replay::run as replay_capture;

use crate::arguments::Options;
use crate::binding::{Binding, deadline};
use crate::build;
use crate::folder;
use crate::host::Local;
use anyhow::{Context as _, Result, bail};
use channels::ExpectedPublish;
use fixtures::{Expected, Fixture};
use given::{Given, Scene};
use penstock_core::hooks::call::{Answer, Call, Failed, Returned, Version};
use penstock_core::hooks::pipeline::Failure;
use penstock_plugin_host::{Inspected, LoadRequest, inspect};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use turns::{CONNECT, ROUTE, Turn};

/// How often a case that passed is repeated for its time.
const REPEATS: u32 = 20;
/// How long a call may wait for its turn on a busy machine, and how often one that took too long is tried again.
const BUSY_WITHIN: Duration = Duration::from_secs(10);
const LATE_MAX: u32 = 2;
/// Largest payload that a broker takes unless it is configured otherwise, bytes.
const PAYLOAD_BYTES: usize = 32_767;

/// Runs every fixture, then the cases that every plugin must survive.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<()> {
    let fixtures = fixtures::read(&folder::path(options))?;
    let component = build::component(options, out)?;
    let local = Local::start()?;
    let (mut bench, binding) = Bench::of(options, &component, &local)?;
    let mut failed = 0;
    let mut report = |name: &str, case: Result<Outcome>| -> Result<()> {
        let outcome = case.unwrap_or_else(|error| Outcome::failed(format!("{error:#}")));
        failed += u32::from(!outcome.differences.is_empty());
        write_outcome(name, &outcome, out)
    };
    for (name, fixture) in &fixtures {
        report(name, bench.fixture(fixture))?;
    }
    let config = binding.as_ref().map(Binding::config).unwrap_or_default();
    let hook = bench.hook();
    for (name, given) in generated(&hook) {
        report(&name, bench.survives(&config, &given))?;
    }
    let passed = bench.cases - failed;
    writeln!(
        out,
        "{passed} passed, {failed} failed; a call may take {} ms",
        bench.within.as_millis()
    )?;
    if failed > 0 {
        bail!("{failed} of {} cases failed", bench.cases);
    }
    Ok(())
}

/// Names of the fixtures in a plugin's folder.
#[cfg(test)]
pub(crate) fn fixtures(folder: &std::path::Path) -> Result<Vec<String>> {
    Ok(fixtures::read(folder)?
        .into_iter()
        .map(|(name, _)| name)
        .collect())
}

fn write_outcome(name: &str, outcome: &Outcome, out: &mut dyn Write) -> Result<()> {
    if outcome.differences.is_empty() {
        writeln!(
            out,
            "ok    {name}: {:.1} µs a call",
            outcome.call.as_secs_f64() * 1e6
        )?;
    } else {
        writeln!(out, "FAIL  {name}")?;
    }
    for line in outcome.differences.iter().chain(&outcome.notes) {
        writeln!(out, "      {line}")?;
    }
    Ok(())
}

/// Payloads, tokens or bodies that come sooner or later.
fn generated(hook: &str) -> [(String, Given); 3] {
    let what = match hook {
        CONNECT => "token",
        ROUTE => "body",
        _ => "payload",
    };
    [
        (format!("an empty {what}"), Given::of("")),
        (
            format!("a {what} that is no JSON"),
            Given::of("{\"type\":1,\"content\":\"\u{1f600}"),
        ),
        (
            format!("the largest {what}"),
            Given::of(&"0123456789abcdef".repeat(1 + PAYLOAD_BYTES / 16)[..PAYLOAD_BYTES]),
        ),
    ]
}

/// How a case ended.
struct Outcome {
    /// What was not as expected, in words.
    differences: Vec<String>,
    /// What the plugin logged when it was not; otherwise what it answered where nothing in particular is expected.
    notes: Vec<String>,
    /// Time in the guest, of one call.
    call: Duration,
}

impl Outcome {
    fn failed(why: String) -> Outcome {
        Outcome {
            differences: vec![why],
            notes: Vec::new(),
            call: Duration::ZERO,
        }
    }
}

/// A host with the component that is tried.
struct Bench<'a> {
    local: &'a Local,
    inspected: Inspected,
    /// What its capabilities are granted, and what the binding says.
    grants: BTreeSet<String>,
    within: Duration,
    cases: u32,
}

/// What a case must leave behind. What is none is not compared.
#[derive(Clone, Copy, Default)]
struct Left<'a> {
    keys: Option<&'a BTreeMap<String, String>>,
    published: Option<&'a [ExpectedPublish]>,
}

/// What one call found, in words.
type Compare<'a> = &'a dyn Fn(usize, &Returned) -> Vec<String>;

impl<'a> Bench<'a> {
    /// One for this component under the binding of the options or the folder, if there is one.
    fn of(options: &Options, component: &[u8], local: &'a Local) -> Result<(Bench<'a>, Option<Binding>)> {
        let inspected = inspect(component).context("no broker of this version takes it")?;
        let binding = Binding::of(options, &inspected.manifest, None)?;
        let bench = Bench {
            grants: grants(&inspected, binding.as_ref()),
            within: deadline(binding.as_ref(), &inspected.manifest),
            local,
            inspected,
            cases: 0,
        };
        Ok((bench, binding))
    }

    fn fixture(&mut self, fixture: &Fixture) -> Result<Outcome> {
        let hook = match &fixture.hook {
            Some(hook) => hook.clone(),
            None => self.hook(),
        };
        self.local.keys.begin(&fixture.keys);
        self.local.places.begin(&fixture.http, &fixture.secrets);
        self.local.mail.begin(&fixture.messages, fixture.scene());
        let mut outcome = self.case(
            &hook,
            &fixture.config,
            &turns::of_fixture(&hook, fixture),
            &|at, returned| match &fixture.expect {
                Some(expected) => differences(expected, at, returned),
                None => survived(returned),
            },
            &Left {
                keys: fixture.expect_keys.as_ref(),
                published: fixture.expect_published.as_deref(),
            },
        )?;
        outcome.differences.extend(self.local.places.differences());
        if fixture.expect.is_none() && outcome.differences.is_empty() {
            let with = match fixture.stands_in() {
                true => ", with bytes that stand in for what was not kept",
                false => "",
            };
            let note = format!("no `expect` says what must come: it answered{with}");
            outcome.notes.push(note);
        }
        Ok(outcome)
    }

    /// Whatever it answers, it must answer.
    fn survives(&mut self, config: &Map<String, Value>, given: &Given) -> Result<Outcome> {
        let hook = self.hook();
        self.local.keys.begin(&BTreeMap::new());
        self.local.places.begin(&[], &BTreeMap::new());
        let scene = Scene::default();
        self.local.mail.begin(&[], scene);
        self.case(
            &hook,
            config,
            &turns::of_messages(&hook, std::slice::from_ref(given), scene),
            &|_, returned| match returned {
                Err(failed @ Failed::Call(_)) => vec![compare::failure(failed)],
                _ => Vec::new(),
            },
            &Left::default(),
        )
    }

    fn hook(&self) -> String {
        self.inspected.manifest.hooks.first().cloned().unwrap_or_default()
    }

    /// Loads the component as a version of its own.
    fn load(&mut self, hook: &str, config: &Map<String, Value>) -> Result<Version> {
        self.cases += 1;
        let version = Version {
            binding: Arc::from("test"),
            digest: self.inspected.digest,
            generation: u64::from(self.cases),
        };
        self.local.host.load(LoadRequest {
            version: version.clone(),
            component: self.inspected.component.clone(),
            config: config.clone(),
            grants: self.grants.clone(),
            hook: hook.to_owned(),
        })?;
        Ok(version)
    }

    /// Loads the component anew, so that no case sees what another one left, and asks it.
    fn case(
        &mut self,
        hook: &str,
        config: &Map<String, Value>,
        turns: &[Turn],
        compare: Compare<'_>,
        left: &Left<'_>,
    ) -> Result<Outcome> {
        let version = self.load(hook, config)?;
        let outcome = self.asked(&version, turns, (compare, left));
        self.local.host.unload(&version);
        Ok(outcome)
    }

    fn asked(&self, version: &Version, turns: &[Turn], (compare, left): (Compare<'_>, &Left<'_>)) -> Outcome {
        let mut differences = Vec::new();
        for turn in turns {
            let returned = self.ask(version, turn);
            differences.extend(compare(turn.at, &returned));
            if let Ok(Answer::Done { changes, .. }) = &returned
                && let Err(error) = self.local.keys.change_all(changes)
            {
                differences.push(format!("its changes of keys cannot be made: {}", error.name()));
            }
        }
        let found = self.local.keys.shown();
        if let Some(expected) = left.keys.filter(|expected| **expected != found) {
            differences.push(format!("expected the keys {expected:?}, got {found:?}"));
        }
        differences.extend(
            left.published
                .and_then(|expected| self.local.mail.difference(expected)),
        );
        if !differences.is_empty() {
            return Outcome {
                differences,
                notes: self.logged(version),
                call: Duration::ZERO,
            };
        }
        for _ in 0..REPEATS {
            for turn in turns {
                let _ = self.ask(version, turn);
            }
        }
        Outcome {
            differences,
            notes: Vec::new(),
            call: self.call_time(version),
        }
    }

    /// Asks, and asks again when that was no fault of the plugin: it got no turn on a busy machine, or its turn was cut short
    /// by others, which does not happen every time.
    fn ask(&self, version: &Version, turn: &Turn) -> Returned {
        let mut late = 0;
        let began = Instant::now();
        loop {
            let returned = self.ask_once(self.call_of(version, turn));
            match returned {
                Err(Failed::Call(Failure::Busy)) if began.elapsed() < BUSY_WITHIN => {}
                Err(Failed::Call(Failure::Timeout)) if late < LATE_MAX => late += 1,
                returned => return returned,
            }
        }
    }

    fn call_of(&self, version: &Version, turn: &Turn) -> Call {
        Call {
            version: version.clone(),
            channel: turn.channel.clone(),
            within: self.within,
            work: turn.work.clone(),
        }
    }

    fn ask_once(&self, call: Call) -> Returned {
        let (reply, returned) = mpsc::channel();
        self.local.host.call(call, move |result| {
            let _ = reply.send(result);
        });
        // The host answers every call; were it gone, nothing would.
        returned.recv().unwrap_or(Err(Failed::Call(Failure::NotReady)))
    }

    /// Mean time of a call within the guest.
    fn call_time(&self, version: &Version) -> Duration {
        let status = self.local.host.status();
        let found = status.iter().find(|(loaded, _)| loaded == version);
        found.map_or(Duration::ZERO, |(_, status)| {
            Duration::from_secs_f64(status.guest_s / status.calls.max(1) as f64)
        })
    }

    fn logged(&self, version: &Version) -> Vec<String> {
        let (lines, _) = self.logged_from(version, 0);
        lines
    }

    /// The lines from this number on, and the number of the next one.
    fn logged_from(&self, version: &Version, from: u64) -> (Vec<String>, u64) {
        let lines = self.local.host.logs(version, from).lines;
        let next = lines.last().map_or(from, |line| line.number + 1);
        let lines = lines.iter().map(|line| format!("{} {}", line.level, line.text));
        (lines.collect(), next)
    }
}

/// Any answer will do, but poison, which gives the message up.
fn survived(returned: &Returned) -> Vec<String> {
    match returned {
        Err(failed @ (Failed::Call(_) | Failed::Poison)) => vec![compare::failure(failed)],
        _ => Vec::new(),
    }
}

/// How what one call found differs from what was expected, the first part of which has this place.
fn differences(expected: &Expected, at: usize, returned: &Returned) -> Vec<String> {
    let place = at + 1;
    let said = |what: &str, difference: Option<String>| -> Vec<String> {
        let said = difference.map(|text| format!("{what} {place}: {text}"));
        said.into_iter().collect()
    };
    let other = |what: &str, wanted: &str| {
        let found = show(returned);
        vec![format!("{what} {place}: expected {wanted}, got {found}")]
    };
    match (expected, returned) {
        (Expected::Outcome(expected), returned) => compare::outcome(expected, returned).into_iter().collect(),
        (Expected::Decisions(expected), Ok(Answer::Decision(found))) => {
            said("connect", connects::difference(&expected[at], found))
        }
        (Expected::Decisions(_), _) => other("connect", "a decision"),
        (Expected::Answers(expected), Ok(Answer::Response(found))) => {
            said("request", routes::difference(&expected[at], found))
        }
        (Expected::Answers(_), _) => other("request", "a response"),
        (Expected::Verdicts(expected), Ok(Answer::Verdicts(verdicts))) => verdicts
            .iter()
            .zip(&expected[at..])
            .enumerate()
            .filter_map(|(number, (found, expected))| {
                let difference = compare::verdict(expected, found)?;
                Some(format!("message {}: {difference}", place + number))
            })
            .collect(),
        (Expected::Verdicts(_), _) => other("message", "verdicts"),
    }
}

/// What the manifest asks for; which channels, the binding says, or all of them without one.
fn grants(inspected: &Inspected, binding: Option<&Binding>) -> BTreeSet<String> {
    let mut grants = inspected.manifest.capabilities.clone();
    match binding {
        Some(binding) => grants.extend(binding.grants()),
        None => grants.extend(["publish:*/*", "messages:*/*"].map(str::to_owned)),
    }
    grants
}

fn show(returned: &Returned) -> String {
    match returned {
        Ok(Answer::Verdicts(verdicts)) => verdicts.iter().map(compare::show).collect::<Vec<_>>().join("; "),
        Ok(Answer::Decision(decision)) => connects::show(decision),
        Ok(Answer::Response(response)) => routes::show(response),
        Ok(Answer::Done { messages, .. }) => format!("{messages} done"),
        Ok(Answer::Requests(requests)) => format!("{} requests", requests.len()),
        Err(failed) => compare::failure(failed),
    }
}
