//! Flat, typed access to configuration values: file, then overrides, then defaults.

use super::keys::{KEYS, nearest};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;
use toml::Value;

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not TOML.
    #[error("the configuration is not valid TOML: {0}")]
    Syntax(#[from] toml::de::Error),
    /// A key that does not exist.
    #[error("unknown key `{found}`; did you mean `{nearest}`? `penstock config default` lists all keys")]
    UnknownKey {
        /// What was written.
        found: String,
        /// The nearest known key.
        nearest: &'static str,
    },
    /// A value outside a section.
    #[error("`{0}` stands outside a section; keys are written as `[section]` and `key = value`")]
    NoSection(String),
    /// An override without a value.
    #[error("`--set {0}` is not of the form section.key=value")]
    Override(String),
    /// A value of the wrong type or out of range.
    #[error("`{key}` must be {wanted}, but is {found}")]
    Value {
        /// The key.
        key: &'static str,
        /// What would be right.
        wanted: String,
        /// What was found.
        found: String,
    },
}

/// All values by full key name; every known key has one.
#[derive(Debug)]
pub(super) struct Values(BTreeMap<&'static str, Value>);

impl Values {
    pub(super) fn read(text: &str, overrides: &[String]) -> Result<Values, Error> {
        let mut values = BTreeMap::new();
        for info in KEYS {
            values.insert(info.name, literal(info.default).unwrap_or(Value::Boolean(false)));
        }
        let file: toml::Table = text.parse()?;
        for (section, content) in file {
            let Value::Table(content) = content else {
                return Err(Error::NoSection(section));
            };
            for (key, value) in content {
                set(&mut values, &format!("{section}.{key}"), value)?;
            }
        }
        for one in overrides {
            let (key, text) = one.split_once('=').ok_or_else(|| Error::Override(one.clone()))?;
            // A text without quotes is meant as a text: shells eat them.
            let value = literal(text).unwrap_or_else(|| Value::String(text.to_owned()));
            set(&mut values, key.trim(), value)?;
        }
        Ok(Values(values))
    }

    fn value(&self, key: &'static str) -> &Value {
        self.0.get(key).expect("every key that is read stands in KEYS")
    }

    pub(super) fn integer(&self, key: &'static str, range: RangeInclusive<u64>) -> Result<u64, Error> {
        let value = self.value(key);
        value
            .as_integer()
            .and_then(|number| u64::try_from(number).ok())
            .filter(|number| range.contains(number))
            .ok_or_else(|| {
                wrong(
                    key,
                    &format!("a whole number from {} to {}", range.start(), range.end()),
                    value,
                )
            })
    }

    pub(super) fn millis(&self, key: &'static str, range: RangeInclusive<u64>) -> Result<Duration, Error> {
        self.integer(key, range).map(Duration::from_millis)
    }

    pub(super) fn boolean(&self, key: &'static str) -> Result<bool, Error> {
        let value = self.value(key);
        value.as_bool().ok_or_else(|| wrong(key, "true or false", value))
    }

    pub(super) fn text(&self, key: &'static str) -> Result<String, Error> {
        let value = self.value(key);
        value
            .as_str()
            .map(str::to_owned)
            .ok_or_else(|| wrong(key, "a text in quotes", value))
    }

    pub(super) fn non_empty(&self, key: &'static str) -> Result<String, Error> {
        let text = self.text(key)?;
        if text.is_empty() {
            Err(wrong(key, "a text that is not empty", self.value(key)))
        } else {
            Ok(text)
        }
    }

    pub(super) fn optional(&self, key: &'static str) -> Result<Option<String>, Error> {
        Ok(Some(self.text(key)?).filter(|text| !text.is_empty()))
    }

    pub(super) fn address(&self, key: &'static str) -> Result<SocketAddr, Error> {
        let text = self.text(key)?;
        text.parse().map_err(|_| {
            wrong(
                key,
                "an address and port such as 127.0.0.1:5100 or [::]:5100",
                self.value(key),
            )
        })
    }

    /// Origins of web pages as a browser writes them: a scheme, a host and perhaps a port.
    pub(super) fn origins(&self, key: &'static str) -> Result<Vec<String>, Error> {
        let value = self.value(key);
        let origin = |one: &Value| {
            let text = one.as_str()?;
            let (scheme, host) = text.split_once("://")?;
            let is_whole =
                ["http", "https"].contains(&scheme) && !host.is_empty() && !host.contains(['/', '*']);
            is_whole.then(|| text.to_owned())
        };
        let listed: Option<Vec<String>> = value
            .as_array()
            .and_then(|listed| listed.iter().map(origin).collect());
        listed.ok_or_else(|| {
            wrong(
                key,
                "a list of origins such as [\"https://chat.example.org\"], without a path; empty for all",
                value,
            )
        })
    }

    pub(super) fn digest(&self, key: &'static str) -> Result<Option<[u8; 32]>, Error> {
        let text = self.text(key)?;
        if text.is_empty() {
            return Ok(None);
        }
        // The value is a digest of a secret, but a wrong one may be the secret itself: it is not echoed.
        let refused = || Error::Value {
            key,
            wanted: "64 hexadecimal digits (SHA-256 of the key)".to_owned(),
            found: format!("{} other characters", text.chars().count()),
        };
        let mut digest = [0_u8; 32];
        if text.len() != 64 || !text.is_ascii() {
            return Err(refused());
        }
        for (byte, pair) in digest.iter_mut().zip(text.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| refused())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| refused())?;
        }
        Ok(Some(digest))
    }
}

fn literal(text: &str) -> Option<Value> {
    let table: toml::Table = format!("value = {text}").parse().ok()?;
    table.get("value").cloned()
}

fn set(values: &mut BTreeMap<&'static str, Value>, name: &str, value: Value) -> Result<(), Error> {
    let Some(info) = KEYS.iter().find(|info| info.name == name) else {
        return Err(Error::UnknownKey {
            found: name.to_owned(),
            nearest: nearest(name),
        });
    };
    values.insert(info.name, value);
    Ok(())
}

fn wrong(key: &'static str, wanted: &str, found: &Value) -> Error {
    Error::Value {
        key,
        wanted: wanted.to_owned(),
        found: found.to_string(),
    }
}
