//! The log filter: a level, or levels by part of the program. The subscriber itself would take any misspelt word for the
//! name of a part, and then log nothing.

use super::nearest::nearest;

/// The levels, from nothing to everything.
const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];

/// The parts whose lines can be chosen: our crates that log, and below the gateway the WebSocket library.
const PARTS: &[&str] = &[
    "penstock",
    "penstock_net",
    "penstock_plugin_host",
    "penstock_store",
    "tungstenite",
];

/// Checks a filter such as `info` or `penstock_net::gateway=debug,info`.
///
/// # Errors
/// The word that is not understood, and the known one that is nearest.
pub(super) fn check(filter: &str) -> Result<(), (String, &'static str)> {
    for directive in filter.split(',') {
        let (part, level) = match directive.split_once('=') {
            Some((part, level)) => (Some(part), level),
            None => (None, directive),
        };
        if let Some(part) = part {
            let first = part.split("::").next().unwrap_or_default();
            known(first, PARTS)?;
        }
        known(level, LEVELS)?;
    }
    Ok(())
}

fn known(word: &str, words: &'static [&'static str]) -> Result<(), (String, &'static str)> {
    if words.contains(&word.to_ascii_lowercase().as_str()) {
        return Ok(());
    }
    let meant = nearest(word, words.iter().copied()).unwrap_or("info");
    Err((word.to_owned(), meant))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_levels_by_part_are_taken() {
        for filter in [
            "info",
            "WARN",
            "off",
            "penstock_net=debug,info",
            "penstock_store::store=trace,error",
        ] {
            assert_eq!(check(filter), Ok(()), "{filter}");
            assert!(tracing_subscriber::EnvFilter::try_new(filter).is_ok(), "{filter}");
        }
    }

    #[test]
    fn a_misspelt_word_is_refused_with_the_nearest_known_one() {
        for (filter, word, meant) in [
            ("inof", "inof", "info"),
            ("debgu", "debgu", "debug"),
            ("penstock_net=debug,wran", "wran", "warn"),
            ("penstok_net=debug", "penstok_net", "penstock_net"),
        ] {
            assert_eq!(check(filter), Err((word.to_owned(), meant)), "{filter}");
        }
        // A part alone has no level, and an empty word is none.
        for filter in ["penstock_net", "info,", "", "penstock_net="] {
            assert!(check(filter).is_err(), "{filter}");
        }
    }

    /// Every crate of ours that writes log lines can be chosen, and only such.
    #[test]
    fn the_parts_are_those_that_log() {
        let broker = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut logging = Vec::new();
        for entry in std::fs::read_dir(broker).expect("the crates") {
            let manifest = entry.expect("a crate").path().join("Cargo.toml");
            let Ok(text) = std::fs::read_to_string(manifest) else {
                continue;
            };
            let name = text.lines().find_map(|line| line.strip_prefix("name = "));
            if text.lines().any(|line| line.starts_with("tracing.")) {
                logging.push(name.expect("a name").trim_matches('"').replace('-', "_"));
            }
        }
        logging.sort();
        let ours: Vec<&str> = PARTS
            .iter()
            .copied()
            .filter(|part| part.starts_with("penstock"))
            .collect();
        assert_eq!(logging, ours);
    }
}
