//! The options of one command line, taken one by one.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::{Error, Mode, OPTIONS, contradiction};

/// The options that were given and are not taken yet.
pub(super) struct Given {
    values: BTreeMap<&'static str, String>,
    names: Vec<&'static str>,
}

impl Given {
    pub(super) fn read(
        mut words: impl Iterator<Item = String>,
        known: impl Iterator<Item = &'static str> + Clone,
    ) -> Result<Self, Error> {
        let mut values = BTreeMap::new();
        while let Some(word) = words.next() {
            let (name, inline) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (word.as_str(), None),
            };
            let Some(name) = known.clone().find(|option| *option == name) else {
                return Err(Error::Unknown(name.to_owned()));
            };
            let value = match inline {
                Some(value) => value,
                None => words
                    .next()
                    .filter(|value| !value.starts_with("--"))
                    .ok_or(Error::MissingValue(name))?,
            };
            if values.insert(name, value).is_some() {
                return Err(Error::Twice(name));
            }
        }
        Ok(Self {
            names: values.keys().copied().collect(),
            values,
        })
    }

    pub(super) fn was(&self, name: &str) -> bool {
        self.names.contains(&name)
    }

    /// Every given option must belong to the mode.
    pub(super) fn belong_to(&self, mode: Mode) -> Result<(), Error> {
        let stray = OPTIONS
            .iter()
            .find(|(name, modes)| self.was(name) && !modes.contains(&mode));
        match stray {
            None => Ok(()),
            Some((name, modes)) => {
                let modes: Vec<&str> = modes.iter().map(|mode| mode.name()).collect();
                contradiction(&format!(
                    "`{name}` has no meaning in {} mode (only in: {}): leave it out",
                    mode.name(),
                    modes.join(", ")
                ))
            }
        }
    }

    pub(super) fn take(&mut self, name: &'static str) -> Option<String> {
        self.values.remove(name)
    }

    pub(super) fn needed(&mut self, option: &'static str, why: &'static str) -> Result<String, Error> {
        self.take(option).ok_or(Error::Needed { option, why })
    }

    pub(super) fn optional<T: FromStr + PartialOrd + fmt::Display>(
        &mut self,
        option: &'static str,
        range: std::ops::RangeInclusive<T>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.take(option) else {
            return Ok(None);
        };
        match value.parse() {
            Ok(number) if range.contains(&number) => Ok(Some(number)),
            _ => Err(Error::Value {
                option,
                value,
                wanted: format!("a number from {} to {}", range.start(), range.end()),
            }),
        }
    }

    pub(super) fn number<T: FromStr + PartialOrd + fmt::Display>(
        &mut self,
        option: &'static str,
        default: T,
        range: std::ops::RangeInclusive<T>,
    ) -> Result<T, Error> {
        Ok(self.optional(option, range)?.unwrap_or(default))
    }

    pub(super) fn time(&mut self, option: &'static str, default_ms: u64) -> Result<Duration, Error> {
        let Some(value) = self.take(option) else {
            return Ok(Duration::from_millis(default_ms));
        };
        let units = [("ms", 1), ("s", 1_000), ("m", 60_000)];
        let parsed = units.into_iter().find_map(|(unit, milliseconds)| {
            let count: u64 = value.strip_suffix(unit)?.parse().ok()?;
            count.checked_mul(milliseconds)
        });
        match parsed {
            Some(milliseconds) if milliseconds <= 86_400_000 => Ok(Duration::from_millis(milliseconds)),
            _ => Err(Error::Value {
                option,
                value,
                wanted: "a time such as 500ms, 15s or 2m, at most a day".to_owned(),
            }),
        }
    }
}
