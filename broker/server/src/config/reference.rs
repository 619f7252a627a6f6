//! What people read about the configuration, made from the table of keys.

use super::keys::{KEYS, KeyInfo};
use super::kind::Kind;
use crate::arguments::Arguments;

/// The default configuration as a commented TOML file.
#[must_use]
pub fn default_toml() -> String {
    let mut text = String::from("# Penstock configuration. Every key is optional; these are the defaults.\n");
    for (section, keys) in sections() {
        text.push_str(&format!("\n[{section}]\n"));
        for (name, info) in keys {
            text.push_str(&format!(
                "# {}\n# Takes {}.\n{name} = {}\n",
                info.doc, info.kind, info.default
            ));
        }
    }
    text
}

/// The reference page, `broker/docs/config.md`.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from(INTRODUCTION);
    text.push_str(&format!("```text\n{}\n```\n", Arguments::USAGE));
    text.push_str(ENVIRONMENT);
    for (section, keys) in sections() {
        text.push_str(&format!(
            "\n## {section}\n\n| key | value | default | what it does | when to change it |\n|---|---|---|---|---|\n"
        ));
        for (_, info) in keys {
            text.push_str(&format!(
                "| `{}` | {} | `{}` | {} | {} |\n",
                info.name,
                value(info.kind),
                info.default,
                info.doc,
                info.change
            ));
        }
    }
    text
}

const INTRODUCTION: &str = "\
# Configuration

This page is generated from the table that the program itself reads (`broker/server/src/config/keys.rs`), and a test holds it
to that. To make it anew: `cargo run -q -p penstock -- config markdown > broker/docs/config.md`.

A node reads one TOML file, `penstock serve --config FILE`; every key is optional. `--set section.key=value` stands above the
file and may be repeated. Unknown keys and sections, values of another type and values out of bounds are refused at the
start, with the nearest known key or what would be right. `penstock config check` only checks, `penstock config default` prints a
file with all defaults. Changes take effect at the next start.

## Command line

";

const ENVIRONMENT: &str = "
## Environment

Penstock reads no environment variable of its own. Three that libraries read have an effect: `NO_COLOR=1` takes the colours out of the
log, `TOKIO_WORKER_THREADS` sets the number of network threads (otherwise one for each core), and `RUST_BACKTRACE=1` adds the
calls to the message of a crash.
";

/// A type with its bounds, for a cell of the table.
fn value(kind: Kind) -> String {
    match kind {
        Kind::Number { from, to, unit: "" } => format!("whole number, {from} to {to}"),
        Kind::Number { from, to, unit } => format!("whole number of {unit}, {from} to {to}"),
        Kind::Switch => "`true` or `false`".to_owned(),
        other => other.to_string(),
    }
}

/// The keys by section, each with its name in the section.
fn sections() -> Vec<(&'static str, Vec<(&'static str, &'static KeyInfo)>)> {
    let mut sections: Vec<(&str, Vec<(&str, &KeyInfo)>)> = Vec::new();
    for info in KEYS {
        let (section, name) = info.name.split_once('.').unwrap_or(("", info.name));
        match sections.last_mut() {
            Some((last, keys)) if *last == section => keys.push((name, info)),
            _ => sections.push((section, vec![(name, info)])),
        }
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::super::Settings;
    use super::*;

    #[test]
    fn default_file_is_accepted_and_equals_the_defaults() {
        let written = Settings::parse(&default_toml(), &[]).expect("the default file is valid");
        let empty = Settings::parse("", &[]).expect("an empty file is valid");
        assert_eq!(format!("{written:?}"), format!("{empty:?}"));
    }

    #[test]
    fn the_reference_page_is_what_the_code_generates() {
        let page = include_str!("../../../docs/config.md");
        assert!(
            page == markdown(),
            "broker/docs/config.md is not what the table of keys says; run: cargo run -q -p penstock -- config markdown > \
             broker/docs/config.md"
        );
    }

    #[test]
    fn every_cell_of_the_page_stays_in_its_column() {
        for info in KEYS {
            let texts = [info.doc, info.change, info.default, &value(info.kind)];
            assert!(texts.iter().all(|text| !text.contains('|')), "{}", info.name);
            assert!(
                info.doc.ends_with('.') && info.change.ends_with('.'),
                "{}",
                info.name
            );
        }
    }
}
