//! `penstock plugin status` and `logs`.

use crate::api::{Api, check_name};
use crate::arguments::Options;
use crate::operate::{name_here, with};
use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write;
use std::thread;
use std::time::Duration;

/// How often new lines are asked for.
const FOLLOW: Duration = Duration::from_millis(500);
/// Digits of a digest that are shown where it stands among others.
const DIGITS: usize = 12;

/// What runs, what is bound, what it costs.
pub(crate) fn status(options: &Options, out: &mut dyn Write) -> Result<()> {
    let name = match &options.word {
        Some(name) => Some(check_name(name)?.to_owned()),
        None => name_here(options)?,
    };
    let api = Api::of(options)?;
    let all = api.get("/v1/plugins")?;
    let all = match &name {
        Some(name) => {
            let only = only(&all, name);
            if only["plugins"].as_array().is_none_or(Vec::is_empty) {
                bail!(
                    "{} has no plugin {name}: `penstock plugin deploy` brings it there",
                    api.url()
                );
            }
            only
        }
        None => all,
    };
    if options.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
    } else {
        write!(out, "{}", text(&all))?;
    }
    Ok(())
}

/// The part that is about this plugin.
fn only(all: &Value, name: &str) -> Value {
    let plugins: Vec<&Value> = with(&all["plugins"], "name", name).collect();
    let bindings: Vec<&Value> = with(&all["bindings"], "plugin", name).collect();
    let ids: BTreeSet<&str> = bindings
        .iter()
        .filter_map(|binding| binding["id"].as_str())
        .collect();
    let here: Vec<&Value> = all["here"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|state| state["binding"].as_str().is_some_and(|id| ids.contains(id)))
        .collect();
    json!({
        "revision": all["revision"], "plugins": plugins, "bindings": bindings, "here": here, "following": all["following"],
    })
}

fn text(all: &Value) -> String {
    let mut text = String::new();
    for plugin in all["plugins"].as_array().into_iter().flatten() {
        let name = plugin["name"].as_str().unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{name}: {} runs, {} ran before",
            artifact(&plugin["active"]),
            artifact(&plugin["previous"])
        );
        quarantined(plugin, &mut text);
        rollout(&plugin["rollout"], &mut text);
        for binding in with(&all["bindings"], "plugin", name) {
            bound(binding, &all["here"], &mut text);
            behind(binding, &all["following"], &mut text);
        }
    }
    if text.is_empty() {
        text.push_str("there are no plugins\n");
    }
    text
}

fn short(digest: &Value) -> &str {
    let digest = digest.as_str().unwrap_or_default();
    digest.get(..DIGITS).unwrap_or(digest)
}

fn artifact(artifact: &Value) -> String {
    if artifact.is_null() {
        return "nothing".to_owned();
    }
    format!(
        "{} ({})",
        artifact["version"].as_str().unwrap_or("?"),
        short(&artifact["digest"])
    )
}

fn quarantined(plugin: &Value, text: &mut String) {
    if plugin["disabled"] == true {
        let _ = writeln!(
            text,
            "  disabled: what runs is quarantined, and its bindings answer as if it were not loaded"
        );
    }
    for quarantine in plugin["quarantined"].as_array().into_iter().flatten() {
        let _ = writeln!(
            text,
            "  quarantined since {}, {}: {}: {}",
            moment(quarantine["since_ms"].as_u64().unwrap_or_default()),
            quarantine["consequence"].as_str().unwrap_or_default(),
            short(&quarantine["digest"]),
            quarantine["reason"].as_str().unwrap_or_default()
        );
    }
    for trip in plugin["given_up"].as_array().into_iter().flatten() {
        let _ = writeln!(
            text,
            "  given up by node {} because of {}: {}",
            trip["node"],
            trip["cause"].as_str().unwrap_or_default(),
            short(&trip["digest"])
        );
    }
}

fn rollout(rollout: &Value, text: &mut String) {
    if rollout.is_null() {
        return;
    }
    let ready = if rollout["ready"] == true {
        "ready"
    } else {
        "not ready"
    };
    let _ = writeln!(
        text,
        "  rollout of {}: {ready}, in {} % of the channels",
        artifact(&rollout["candidate"]),
        rollout["canary_percent"]
    );
    for report in rollout["reports"].as_array().into_iter().flatten() {
        let why = report["text"].as_str().unwrap_or_default();
        let _ = writeln!(
            text,
            "    node {}: {}{}{why}",
            report["node"],
            report["state"].as_str().unwrap_or_default(),
            if why.is_empty() { "" } else { ": " }
        );
    }
}

fn bound(binding: &Value, here: &Value, text: &mut String) {
    let id = binding["id"].as_str().unwrap_or_default();
    let selector = &binding["selector"];
    let parts: Vec<String> = ["channel_types", "channel_ids", "uids"]
        .into_iter()
        .filter(|part| selector[*part].as_array().is_some_and(|list| !list.is_empty()))
        .map(|part| format!("{part} {}", selector[part]))
        .collect();
    let what = if parts.is_empty() {
        "all messages".to_owned()
    } else {
        parts.join(", ")
    };
    let _ = writeln!(
        text,
        "  binding {id}: {}, {what}, priority {}, at most {} ms",
        binding["hook"].as_str().unwrap_or_default(),
        binding["priority"],
        binding["deadline_ms"]
    );
    if let Some(by) = binding["disabled"]["by"].as_str() {
        let since = moment(binding["disabled"]["since_ms"].as_u64().unwrap_or_default());
        let why = match by {
            "gone" => "its endpoint answered 410 Gone",
            _ => "by an operator",
        };
        let _ = writeln!(
            text,
            "    disabled since {since}: {why}; `penstock plugin enable {id}` has it go on where it stopped"
        );
    }
    for state in with(here, "binding", id) {
        let _ = writeln!(text, "    {}", version(state));
        endpoint(&state["endpoint"], text);
    }
}

/// What a binding that follows channels has not done on the node that was asked.
fn behind(binding: &Value, following: &Value, text: &mut String) {
    let id = binding["id"].as_str().unwrap_or_default();
    let Some(lag) = following.get(id) else { return };
    let number = |name: &str| lag[name].as_u64().unwrap_or_default();
    if number("messages") > 0 {
        let _ = write!(
            text,
            "    behind by {} messages in {} channels",
            number("messages"),
            number("channels")
        );
        let seconds = number("oldest_age_ms") / 1_000;
        let _ = match seconds {
            0 => writeln!(text),
            _ => writeln!(text, ", the oldest is {seconds} s old"),
        };
    }
    if number("dead_letters") > 0 {
        let _ = writeln!(
            text,
            "    {} dead letters: see `penstock plugin dlq list --bind {id}`",
            number("dead_letters")
        );
    }
}

/// Where a webhook delivers to, and how that goes.
fn endpoint(endpoint: &Value, text: &mut String) {
    if endpoint.is_null() {
        return;
    }
    if let Some(why) = endpoint["unusable"].as_str() {
        let _ = writeln!(text, "    endpoint: nothing is delivered: {why}");
        return;
    }
    let number = |name: &str| endpoint[name].as_u64().unwrap_or_default();
    let _ = writeln!(
        text,
        "    endpoint {}: breaker {}, {} requests taken, {} not, {} deliveries under way{}",
        endpoint["place"].as_str().unwrap_or_default(),
        endpoint["breaker"].as_str().unwrap_or_default(),
        number("taken"),
        number("not_taken"),
        number("waiting"),
        endpoint["last_failure"]
            .as_str()
            .map_or_else(String::new, |why| format!("; last: {why}"))
    );
}

/// One version on the node that was asked.
fn version(state: &Value) -> String {
    let mut said = format!(
        "{}, generation {}: {}",
        short(&state["digest"]),
        state["generation"],
        state["state"].as_str().unwrap_or_default()
    );
    if let Some(reason) = state["reason"].as_str() {
        let _ = write!(said, ": {reason}");
        return said;
    }
    if let Some(breaker) = state["breaker"].as_str().filter(|state| *state != "closed") {
        let _ = write!(said, ", breaker {breaker}");
    }
    let number = |name: &str| state[name].as_u64().unwrap_or_default();
    let calls = number("calls");
    let _ = write!(said, ", {calls} calls, {} messages", number("messages"));
    if calls > 0 {
        let each = |name: &str| state[name].as_f64().unwrap_or_default() * 1e6 / calls as f64;
        let _ = write!(
            said,
            ", {:.1} µs a call and {:.1} µs of waiting",
            each("guest_seconds"),
            each("queue_seconds")
        );
    }
    let failures = state["failures"].as_object();
    for (class, count) in failures.into_iter().flatten() {
        let _ = write!(said, ", {count} failed by {class}");
    }
    let requests = state["http_requests"].as_object();
    let outcomes: Vec<String> = requests
        .into_iter()
        .flatten()
        .map(|(outcome, count)| format!("{count} {outcome}"))
        .collect();
    if !outcomes.is_empty() {
        let _ = write!(said, ", requests: {}", outcomes.join(" "));
    }
    if number("secrets_revealed") > 0 {
        let _ = write!(said, ", {} secrets revealed", number("secrets_revealed"));
    }
    let _ = write!(said, ", {} KiB at most", number("memory_high_bytes") / 1_024);
    if number("log_lines_dropped") > 0 {
        let _ = write!(said, ", {} log lines dropped", number("log_lines_dropped"));
    }
    said
}

/// What the versions of a binding logged; with `--follow` also what they will.
pub(crate) fn logs(options: &Options, out: &mut dyn Write) -> Result<()> {
    let api = Api::of(options)?;
    let ids = match &options.word {
        Some(id) => vec![check_name(id)?.to_owned()],
        None => {
            let name = name_here(options)?.context(
                "name a binding: `penstock plugin logs BINDING`; `penstock plugin status` lists them",
            )?;
            let all = api.get("/v1/plugins")?;
            let ids = with(&all["bindings"], "plugin", &name).filter_map(|binding| binding["id"].as_str());
            let ids: Vec<String> = ids.map(str::to_owned).collect();
            if ids.is_empty() {
                bail!(
                    "{name} is bound nowhere at {}, so it logs nothing: `penstock plugin deploy` binds it",
                    api.url()
                );
            }
            ids
        }
    };
    let mut seen = BTreeSet::new();
    loop {
        let mut lines = Vec::new();
        for id in &ids {
            check_name(id)?;
            let answer = api.get(&format!("/v1/bindings/{id}/logs"))?;
            lines.extend(fresh(&answer, id, &mut seen));
        }
        lines.sort();
        for (_, _, line) in lines {
            writeln!(out, "{line}")?;
        }
        if !options.follow {
            return Ok(());
        }
        out.flush()?;
        thread::sleep(FOLLOW);
    }
}

/// Time, number and text of the lines that were not seen before. What is seen is forgotten when the broker has forgotten it.
fn fresh(answer: &Value, id: &str, seen: &mut BTreeSet<(String, String, u64)>) -> Vec<(u64, u64, String)> {
    let mut present = BTreeSet::new();
    let mut lines = Vec::new();
    for line in answer.as_array().into_iter().flatten() {
        let number = line["number"].as_u64().unwrap_or_default();
        let digest = line["digest"].as_str().unwrap_or_default();
        let key = (id.to_owned(), digest.to_owned(), number);
        if !seen.contains(&key) {
            let at_ms = line["at_ms"].as_u64().unwrap_or_default();
            let said = format!(
                "{} {id} {} {:<5} {}",
                moment(at_ms),
                short(&line["digest"]),
                line["level"].as_str().unwrap_or_default(),
                line["text"].as_str().unwrap_or_default()
            );
            lines.push((at_ms, number, said));
        }
        present.insert(key);
    }
    seen.retain(|(of, _, _)| of != id);
    seen.extend(present);
    lines
}

/// Milliseconds since 1970 as date and time in UTC. Days are counted from March, so that a leap day is the last of its year
/// (Hinnant: chrono-compatible low-level date algorithms).
pub(crate) fn moment(ms: u64) -> String {
    let (days, of_day) = (ms / 86_400_000, ms % 86_400_000);
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let seconds = of_day / 1_000;
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        seconds / 3_600,
        seconds / 60 % 60,
        seconds % 60,
        of_day % 1_000
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Value {
        json!({
            "revision": 9,
            "plugins": [
                {
                    "name": "shout", "active": { "digest": "aaaaaaaaaaaaaaaa", "version": "0.1.0" }, "previous": null,
                    "rollout": {
                        "candidate": { "digest": "bbbbbbbbbbbbbbbb", "version": "0.2.0" }, "ready": false, "canary_percent": 5,
                        "reports": [{ "node": 1, "state": "failed", "text": "no words" }],
                    },
                },
                {
                    "name": "other", "active": null, "previous": null, "rollout": null, "disabled": true,
                    "quarantined": [{
                        "digest": "eeeeeeeeeeeeeeee", "since_ms": 951_782_400_000_u64, "consequence": "disabled",
                        "reason": "it kept failing",
                    }],
                    "given_up": [{ "digest": "eeeeeeeeeeeeeeee", "node": 2, "cause": "trap", "since_ms": 5 }],
                },
            ],
            "bindings": [
                {
                    "id": "all", "plugin": "shout", "hook": "before-send", "priority": 3, "deadline_ms": 20,
                    "selector": { "channel_types": [2], "channel_ids": [], "uids": [] },
                },
                { "id": "theirs", "plugin": "other", "hook": "before-send", "selector": {} },
            ],
            "here": [
                {
                    "binding": "all", "digest": "aaaaaaaaaaaaaaaa", "generation": 1, "state": "ready", "calls": 10, "messages": 12,
                    "guest_seconds": 0.000_05, "queue_seconds": 0.0, "failures": { "trap": 2 }, "memory_high_bytes": 2_048,
                    "http_requests": { "2xx": 3, "timeout": 1 }, "secrets_revealed": 4,
                },
                { "binding": "theirs", "digest": "c", "generation": 1, "state": "failed", "reason": "not there" },
            ],
            "following": {
                "theirs": { "messages": 7, "channels": 2, "oldest_age_ms": 12_345, "dead_letters": 3 },
            },
        })
    }

    #[test]
    fn the_status_names_versions_rollout_bindings_and_cost() {
        let text = text(&only(&all(), "shout"));
        let wanted = "\
shout: 0.1.0 (aaaaaaaaaaaa) runs, nothing ran before
  rollout of 0.2.0 (bbbbbbbbbbbb): not ready, in 5 % of the channels
    node 1: failed: no words
  binding all: before-send, channel_types [2], priority 3, at most 20 ms
    aaaaaaaaaaaa, generation 1: ready, 10 calls, 12 messages, 5.0 µs a call and 0.0 µs of waiting, 2 failed by trap, requests: 3 2xx 1 timeout, 4 secrets revealed, 2 KiB at most
";
        assert_eq!(text, wanted);
        let everything = super::text(&all());
        assert!(
            everything.contains("other: nothing runs") && everything.contains("failed: not there"),
            "{everything}"
        );
        let behind = "    behind by 7 messages in 2 channels, the oldest is 12 s old
    3 dead letters: see `penstock plugin dlq list --bind theirs`
";
        assert!(everything.contains(behind), "{everything}");
        let quarantined = "
  disabled: what runs is quarantined, and its bindings answer as if it were not loaded
  quarantined since 2000-02-29T00:00:00.000Z, disabled: eeeeeeeeeeee: it kept failing
  given up by node 2 because of trap: eeeeeeeeeeee
";
        assert!(everything.contains(quarantined), "{everything}");
        let mut suspended = all();
        suspended["here"][0]["breaker"] = json!("open");
        let suspended = super::text(&suspended);
        assert!(
            suspended.contains("generation 1: ready, breaker open, 10 calls"),
            "{suspended}"
        );
        assert_eq!(super::text(&json!({})), "there are no plugins\n");
    }

    #[test]
    fn a_line_is_shown_once() {
        let line = |number: u64| json!({ "digest": "d", "number": number, "at_ms": 1, "level": "warn", "text": "a" });
        let mut seen = BTreeSet::new();
        assert_eq!(fresh(&json!([line(0), line(1)]), "all", &mut seen).len(), 2);
        assert_eq!(fresh(&json!([line(0)]), "other", &mut seen).len(), 1);
        let lines = fresh(&json!([line(1), line(2)]), "all", &mut seen);
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0].2, "1970-01-01T00:00:00.001Z all d warn  a");
        assert_eq!(seen.len(), 3, "what the broker forgot is forgotten");
    }

    #[test]
    fn times_are_dates() {
        assert_eq!(moment(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(moment(1_700_000_000_123), "2023-11-14T22:13:20.123Z");
    }
}
