//! `penstock plugin bench`: what a call and a message cost, in the host of production, on the calling thread.

use super::fixtures;
use super::given::{Given, Scene};
use super::turns::{self, CONNECT, OFFLINE, ROUTE, Turn};
use super::{Bench, show};
use crate::arguments::Options;
use crate::binding::Binding;
use crate::build;
use crate::folder;
use crate::host::Local;
use anyhow::{Context as _, Result, bail};
use penstock_core::hooks::call::{self, Version};
use serde_json::{Map, Value};
use std::io::Write;
use std::time::{Duration, Instant};

/// Messages of a call: one that came alone, and what a busy channel brings together.
const BATCHES: [usize; 3] = [1, 8, 64];
/// Calls that are measured unless it is said how many.
const CALLS: u32 = 1_000;
/// Calls after which memory is looked at again.
const MEMORY_CALLS: u32 = 10_000;
/// Starts of which the quickest counts.
const STARTS: u32 = 5;
/// Longest time for one row: a slow plugin is measured with fewer calls.
const ROW_LIMIT: Duration = Duration::from_secs(20);

/// Measures starts, batches of each size, and memory.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<()> {
    let local = Local::start()?;
    let (name, given, config) = sample(options, &local)?;
    let component = build::component(options, out)?;
    let (mut bench, binding) = Bench::of(options, &component, &local)?;
    let hook = bench.hook();
    let config = config
        .or_else(|| binding.as_ref().map(Binding::config))
        .unwrap_or_default();
    writeln!(out, "{} of {name}, {hook}, on one thread", given.noun())?;

    let start = bench.start(&hook, &config, &given)?;
    writeln!(
        out,
        "start      {}: from compiled code to the first answer",
        shown(start)
    )?;
    let version = bench.load(&hook, &config)?;
    for &batch in batches(&hook) {
        let row = bench.row(
            &version,
            &given.turn(&hook, batch),
            options.calls.unwrap_or(CALLS),
        )?;
        writeln!(
            out,
            "batch {batch:<4} {} a call, {} {} ({} calls)",
            shown(row.call),
            shown(row.call / u32::try_from(batch).unwrap_or(u32::MAX)),
            match hook.as_str() {
                CONNECT => "a connection",
                ROUTE => "a request",
                _ => "a message",
            },
            row.calls
        )?;
    }
    let (before, _) = bench.memory(&version);
    let row = bench.row(&version, &given.turn(&hook, 1), MEMORY_CALLS)?;
    let (most, made) = bench.memory(&version);
    writeln!(
        out,
        "memory     {} KiB at most, {} KiB more after {} calls; {made} instances were made",
        most / 1_024,
        (most - before) / 1_024,
        row.calls
    )?;
    Ok(())
}

/// Calls of one size each; connections, requests, and messages with offline recipients come one at a time.
fn batches(hook: &str) -> &'static [usize] {
    if [CONNECT, OFFLINE, ROUTE].contains(&hook) {
        &[1]
    } else {
        &BATCHES
    }
}

/// What is called with.
enum Work {
    /// Messages of one channel.
    Messages(Vec<Given>),
    /// Somebody who connects, or asks over HTTP: what this is called, and the call.
    Alone(&'static str, Box<call::Work>),
}

impl Work {
    const fn noun(&self) -> &'static str {
        match self {
            Work::Messages(_) => "messages",
            Work::Alone(noun, _) => noun,
        }
    }

    /// A call of so many.
    fn turn(&self, hook: &str, batch: usize) -> Turn {
        match self {
            Work::Messages(given) => {
                let messages: Vec<Given> = given.iter().cycle().take(batch).cloned().collect();
                turns::of_messages(hook, &messages, Scene::default()).remove(0)
            }
            Work::Alone(_, work) => Turn::alone((0, (**work).clone())),
        }
    }
}

/// What is called with: what it is called, and the configuration of a fixture.
type Sample = (String, Work, Option<Map<String, Value>>);

/// The messages of the first fixture with their configuration, keys and answers; of a component without a folder, a text of 1 KiB.
fn sample(options: &Options, local: &Local) -> Result<Sample> {
    if options.component.is_some() && options.folder.is_none() {
        let text = "a text without anything in it, ".repeat(33);
        let payload = format!("{{\"type\":1,\"content\":\"{text}\"}}");
        return Ok((
            format!("{} bytes", payload.len()),
            Work::Messages(vec![Given::of(&payload)]),
            None,
        ));
    }
    let all = fixtures::read(&folder::path(options))?;
    // One without it may be there because it fails.
    let (name, fixture) = all
        .into_iter()
        .find(|(_, fixture)| fixture.expect.is_some())
        .context("fixtures: there is none with `expect`")?;
    let scene = fixture.scene();
    local.keys.begin(&fixture.keys);
    local.places.begin(&fixture.http, &fixture.secrets);
    let connects = fixture.connects.first();
    let requests = fixture.requests.first();
    let alone = connects
        .map(|connecting| Work::Alone("connections", Box::new(connecting.work(scene))))
        .or_else(|| requests.map(|asking| Work::Alone("requests", Box::new(asking.work(scene)))));
    if let Some(work) = alone {
        return Ok((name, work, Some(fixture.config)));
    }
    let first = fixture.messages.first();
    let channel = first
        .with_context(|| format!("{name}: it has no messages; another file must come first"))?
        .channel()
        .clone();
    // One call is of one channel.
    let messages = fixture
        .messages
        .into_iter()
        .filter(|given| *given.channel() == channel)
        .collect();
    Ok((name, Work::Messages(messages), Some(fixture.config)))
}

/// What a batch of one size costs.
struct Row {
    calls: u32,
    call: Duration,
}

impl Bench<'_> {
    /// The quickest of some starts, the first call included; the first of all compiles, and does not count.
    fn start(&mut self, hook: &str, config: &Map<String, Value>, given: &Work) -> Result<Duration> {
        let first = self.load(hook, config)?;
        self.local.host.unload(&first);
        let mut least = Duration::MAX;
        for _ in 0..STARTS {
            let began = Instant::now();
            let version = self.load(hook, config)?;
            self.measured(&version, &given.turn(hook, 1))?;
            least = least.min(began.elapsed());
            self.local.host.unload(&version);
        }
        Ok(least)
    }

    fn row(&self, version: &Version, turn: &Turn, calls: u32) -> Result<Row> {
        // Warms caches and, in a guest that has one, its compiler.
        for _ in 0..calls.div_ceil(10) {
            self.measured(version, turn)?;
        }
        let began = Instant::now();
        let mut done = 0;
        let mut spent = Duration::ZERO;
        while done < calls && began.elapsed() < ROW_LIMIT {
            spent += self.measured(version, turn)?;
            done += 1;
        }
        Ok(Row {
            calls: done,
            call: spent / done.max(1),
        })
    }

    /// One call, and how long it took. A failed one is nothing to measure.
    fn measured(&self, version: &Version, turn: &Turn) -> Result<Duration> {
        let call = self.call_of(version, turn);
        let began = Instant::now();
        let returned = self.local.host.call_here(&call);
        let spent = began.elapsed();
        if returned.is_err() {
            for line in self.logged(version) {
                eprintln!("      {line}");
            }
            bail!("a call failed: {}", show(&returned));
        }
        Ok(spent)
    }

    /// Highest memory of an instance, bytes, and instances that were made.
    fn memory(&self, version: &Version) -> (u64, u64) {
        let status = self.local.host.status();
        let found = status.iter().find(|(loaded, _)| loaded == version);
        found.map_or((0, 0), |(_, status)| (status.memory_high, status.created))
    }
}

/// A time with three digits that count.
fn shown(time: Duration) -> String {
    let ns = time.as_nanos();
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        _ => format!("{:.1} ms", ns as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_that_fit() {
        assert_eq!(shown(Duration::from_nanos(812)), "812 ns");
        assert_eq!(shown(Duration::from_micros(12)), "12.0 µs");
        assert_eq!(shown(Duration::from_millis(17)), "17.0 ms");
    }
}
