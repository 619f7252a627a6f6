//! `plugin.toml`: what a plugin says of itself.

use crate::limits::{Limits, MEMORY_MIB};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::time::Duration;

/// The custom section of a component that holds its `plugin.toml`.
pub const MANIFEST_SECTION: &str = "penstock:manifest";
/// Longest manifest, bytes.
const MANIFEST_BYTES_MAX: usize = 64 << 10;
/// Longest name, bytes.
const NAME_BYTES_MAX: usize = 64;
/// Longest version, bytes.
const VERSION_BYTES_MAX: usize = 64;

/// What a plugin says of itself.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Its name: lower-case letters, digits and `-`, beginning with a letter.
    pub name: String,
    /// Its version, for people; the digest is what counts.
    pub version: String,
    /// Major version of the contract that it was built against.
    pub api: String,
    /// The hooks that it answers.
    pub hooks: BTreeSet<String>,
    /// What it wants of the broker besides log, config, clock, random and metrics.
    #[serde(default)]
    pub capabilities: BTreeSet<String>,
    /// What it needs.
    #[serde(default)]
    pub limits: WantedLimits,
    /// How its instances live.
    #[serde(default)]
    pub instance: Instance,
    /// Defaults of its configuration.
    #[serde(default)]
    pub config: toml::Table,
}

/// What a plugin needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WantedLimits {
    /// Memory of one instance, MiB, 1 to 128; 16 when not given.
    pub memory_mib: Option<u32>,
    /// How long one call may take, ms; the binding has the last word.
    pub deadline_ms: Option<u32>,
    /// Calls after which an instance is replaced.
    pub calls_max: Option<u32>,
}

/// How instances live.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instance {
    /// Whether they are kept.
    #[serde(default)]
    pub policy: InstancePolicy,
}

/// Whether an instance is kept between calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InstancePolicy {
    /// Kept: its globals live on until it is replaced.
    #[default]
    Warm,
    /// A fresh one for each call.
    PerCall,
}

impl Manifest {
    /// The manifest of this text.
    ///
    /// # Errors
    /// What is wrong with it, in words for its author.
    pub fn parse(bytes: &[u8]) -> Result<Manifest, String> {
        if bytes.len() > MANIFEST_BYTES_MAX {
            return Err(format!(
                "{} bytes; at most {MANIFEST_BYTES_MAX} are read",
                bytes.len()
            ));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned())?;
        let manifest: Manifest = toml::from_str(text).map_err(|error| error.to_string())?;
        manifest.check()?;
        Ok(manifest)
    }

    fn check(&self) -> Result<(), String> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let name = self.name.as_bytes();
        if !name.first().is_some_and(u8::is_ascii_lowercase)
            || name.len() > NAME_BYTES_MAX
            || !name.iter().all(|&byte| plain(byte))
        {
            return Err(format!(
                "name `{}`: lower-case letters, digits and `-`, beginning with a letter, at most {NAME_BYTES_MAX} bytes",
                self.name.escape_default()
            ));
        }
        if self.version.is_empty() || self.version.len() > VERSION_BYTES_MAX {
            return Err(format!("version: 1 to {VERSION_BYTES_MAX} bytes"));
        }
        if self.api != "1" {
            return Err(format!(
                "api = \"{}\": this broker speaks \"1\"",
                self.api.escape_default()
            ));
        }
        if self.hooks.is_empty() {
            return Err("hooks: at least one".to_owned());
        }
        if let Some(memory) = self.limits.memory_mib.filter(|mib| !MEMORY_MIB.contains(mib)) {
            return Err(format!(
                "limits.memory_mib = {memory}: from {} to {}",
                MEMORY_MIB.start(),
                MEMORY_MIB.end()
            ));
        }
        if self.limits.calls_max == Some(0) {
            return Err("limits.calls_max = 0: at least 1".to_owned());
        }
        Ok(())
    }

    /// The limits of its instances.
    #[must_use]
    pub fn limits(&self) -> Limits {
        let limits = Limits::default();
        Limits {
            memory_bytes: self
                .limits
                .memory_mib
                .map_or(limits.memory_bytes, |mib| (mib as usize) << 20),
            calls_max: self.limits.calls_max.unwrap_or(limits.calls_max),
            ..limits
        }
    }

    /// How long one call may take, when it says so.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        self.limits
            .deadline_ms
            .map(|ms| Duration::from_millis(u64::from(ms)))
    }
}
