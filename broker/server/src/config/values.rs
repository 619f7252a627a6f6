//! Flat, typed access to configuration values: file, then overrides, then defaults. What a key may hold stands in its
//! declaration alone.

use super::keys::{self, KEYS};
use super::kind::Kind;
use super::log_filter;
use super::nearest::{nearest_key, nearest_section};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use toml::Value;

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not TOML: where, and why. The line itself is not shown, nor kept: it may hold a secret.
    #[error(
        "the configuration is not valid TOML: {0}; the line is not shown here, because it may hold a secret"
    )]
    Syntax(String),
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
    /// A section without any known key.
    #[error("unknown section `[{found}]`; did you mean `[{nearest}]`?")]
    UnknownSection {
        /// What was written.
        found: String,
        /// The section of the nearest known key.
        nearest: &'static str,
    },
    /// An override without a value: what of it may be a key.
    #[error("`--set {0}` is not of the form section.key=value")]
    Override(String),
    /// A log filter with a word that is neither a level nor a part.
    #[error("`{key}` must be {wanted}: `{word}` is neither; did you mean `{meant}`?")]
    LogFilter {
        /// The key.
        key: &'static str,
        /// What would be right.
        wanted: Kind,
        /// What is not understood.
        word: String,
        /// The nearest known word.
        meant: &'static str,
    },
    /// Two listeners on one address.
    #[error("`{key}` and `{other}` are both {address}: each needs a port of its own")]
    SameAddress {
        /// One key.
        key: &'static str,
        /// The other key.
        other: &'static str,
        /// The address of both.
        address: SocketAddr,
    },
    /// A file that a key names.
    #[error("`{key}`: {path}: {why}")]
    File {
        /// The key.
        key: &'static str,
        /// The file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// A secret that is none. It is not shown.
    #[error("`{key}`: `{name}`: {why}")]
    Secret {
        /// The key.
        key: &'static str,
        /// Its name.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// A value of the wrong type or out of range.
    #[error("`{key}` must be {wanted}, but is {found}")]
    Value {
        /// The key.
        key: &'static str,
        /// What would be right.
        wanted: Kind,
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
        let file = table(text).map_err(Error::Syntax)?;
        for (section, content) in file {
            let Value::Table(content) = content else {
                return Err(Error::NoSection(section));
            };
            if content.is_empty() && !keys::is_section(&section) {
                return Err(unknown_section(section));
            }
            for (key, value) in content {
                set(&mut values, &format!("{section}.{key}"), value)?;
            }
        }
        for one in overrides {
            let (key, text) = one.split_once('=').ok_or_else(|| no_override(one))?;
            // A text without quotes is meant as a text: shells eat them.
            let value = literal(text).unwrap_or_else(|| Value::String(text.to_owned()));
            set(&mut values, key.trim(), value)?;
        }
        Ok(Values(values))
    }

    pub(super) fn value(&self, key: &'static str) -> &Value {
        self.0.get(key).expect("every key that is read stands in KEYS")
    }

    pub(super) fn integer(&self, key: &'static str) -> Result<u64, Error> {
        let (value, kind) = (self.value(key), kind(key));
        let is_within = |number: &u64| match kind {
            Kind::Number { from, to, .. } => (from..=to).contains(number),
            Kind::OneOf(numbers) => numbers.contains(number),
            _ => false,
        };
        value
            .as_integer()
            .and_then(|number| u64::try_from(number).ok())
            .filter(is_within)
            .ok_or_else(|| wrong(key, value))
    }

    pub(super) fn millis(&self, key: &'static str) -> Result<Duration, Error> {
        self.integer(key).map(Duration::from_millis)
    }

    pub(super) fn boolean(&self, key: &'static str) -> Result<bool, Error> {
        let value = self.value(key);
        value.as_bool().ok_or_else(|| wrong(key, value))
    }

    pub(super) fn text(&self, key: &'static str) -> Result<&str, Error> {
        let value = self.value(key);
        value.as_str().ok_or_else(|| wrong(key, value))
    }

    pub(super) fn non_empty(&self, key: &'static str) -> Result<String, Error> {
        let text = self.text(key)?;
        if text.is_empty() {
            Err(wrong(key, self.value(key)))
        } else {
            Ok(text.to_owned())
        }
    }

    pub(super) fn address(&self, key: &'static str) -> Result<SocketAddr, Error> {
        self.text(key)?.parse().map_err(|_| wrong(key, self.value(key)))
    }

    /// What others are told: a host and a port, perhaps behind a scheme. Empty for none.
    pub(super) fn external(&self, key: &'static str) -> Result<Option<String>, Error> {
        let text = self.text(key)?;
        if text.is_empty() {
            return Ok(None);
        }
        let is_right = match kind(key) {
            Kind::WebSocketAddress => {
                let rest = text.strip_prefix("wss://").or_else(|| text.strip_prefix("ws://"));
                rest.is_some_and(|rest| !rest.is_empty())
            }
            _ => text.rsplit_once(':').is_some_and(|(host, port)| {
                !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok()
            }),
        };
        if is_right && !text.contains(char::is_whitespace) {
            Ok(Some(text.to_owned()))
        } else {
            Err(wrong(key, self.value(key)))
        }
    }

    /// Origins of web pages as a browser writes them: a scheme, a host and perhaps a port.
    pub(super) fn origins(&self, key: &'static str) -> Result<Vec<String>, Error> {
        let value = self.value(key);
        let origin = |one: &Value| {
            let text = one.as_str()?;
            let (scheme, host) = text.split_once("://")?;
            // A browser leaves the usual port out, so that one that is written would never be met.
            let usual = match scheme {
                "http" => ":80",
                "https" => ":443",
                _ => return None,
            };
            let is_whole = !host.is_empty()
                && !host.ends_with(usual)
                && !host.contains(['/', '*', '@', '?', '#'])
                && !host.contains(char::is_whitespace);
            is_whole.then(|| text.to_owned())
        };
        let listed: Option<Vec<String>> = value
            .as_array()
            .and_then(|listed| listed.iter().map(origin).collect());
        listed.ok_or_else(|| wrong(key, value))
    }

    pub(super) fn log_filter(&self, key: &'static str) -> Result<String, Error> {
        let filter = self.text(key)?;
        match log_filter::check(filter) {
            Ok(()) => Ok(filter.to_owned()),
            Err((word, meant)) => Err(Error::LogFilter {
                key,
                wanted: kind(key),
                word,
                meant,
            }),
        }
    }

    pub(super) fn digest(&self, key: &'static str) -> Result<Option<[u8; 32]>, Error> {
        let text = self.text(key)?;
        if text.is_empty() {
            return Ok(None);
        }
        // The value is a digest of a secret, but a wrong one may be the secret itself: it is not echoed.
        let refused = || Error::Value {
            key,
            wanted: kind(key),
            found: format!("{} other characters", text.chars().count()),
        };
        let mut digest = [0_u8; 32];
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(refused());
        }
        for (byte, pair) in digest.iter_mut().zip(text.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| refused())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| refused())?;
        }
        Ok(Some(digest))
    }
}

/// A text as TOML; or where it is none and why, without any part of it.
pub(super) fn table(text: &str) -> Result<toml::Table, String> {
    text.parse().map_err(|error: toml::de::Error| {
        let span = error.span();
        let Some(before) = span.and_then(|span| text.get(..span.start)) else {
            return error.message().to_owned();
        };
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|&letter| letter != '\n').count() + 1;
        format!("line {line}, column {column}: {}", error.message())
    })
}

/// What stands behind the key may be meant as a value, and a secret.
fn no_override(text: &str) -> Error {
    let is_of_key = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.');
    let key: String = text.chars().take_while(|&letter| is_of_key(letter)).collect();
    Error::Override(if key.len() < text.len() {
        format!("{key}…")
    } else {
        key
    })
}

fn literal(text: &str) -> Option<Value> {
    let table: toml::Table = format!("value = {text}").parse().ok()?;
    table.get("value").cloned()
}

fn set(values: &mut BTreeMap<&'static str, Value>, name: &str, value: Value) -> Result<(), Error> {
    let Some(info) = keys::find(name) else {
        return Err(Error::UnknownKey {
            found: name.to_owned(),
            nearest: nearest_key(name),
        });
    };
    values.insert(info.name, value);
    Ok(())
}

fn unknown_section(found: String) -> Error {
    let nearest = nearest_section(&found);
    Error::UnknownSection { found, nearest }
}

fn kind(key: &'static str) -> Kind {
    keys::find(key)
        .expect("every key that is read stands in KEYS")
        .kind
}

fn wrong(key: &'static str, found: &Value) -> Error {
    Error::Value {
        key,
        wanted: kind(key),
        found: found.to_string(),
    }
}
