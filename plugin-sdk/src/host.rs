//! What the broker offers. Every plugin has the functions that stand here; the modules below are for plugins that `wit/v1` gives
//! them and whose binding grants them. Outside of the broker, as in a unit test, lines go to standard error and the rest panics.

use crate::bindings::offers::penstock::plugin as imports;

pub use imports::log::Level;
pub use imports::{http, kv, kv_read, messages, publish, secrets};

/// Writes a line for the operator, with named values.
pub fn log(level: Level, text: &str, fields: &[(String, String)]) {
    if cfg!(target_family = "wasm") {
        imports::log::write(level, text, fields);
    } else {
        eprintln!("{level:?}: {text} {fields:?}");
    }
}

/// Writes a line at level info.
pub fn info(text: &str) {
    log(Level::Info, text, &[]);
}

/// Writes a line at level warn.
pub fn warn(text: &str) {
    log(Level::Warn, text, &[]);
}

/// Writes a line at level error.
pub fn error(text: &str) {
    log(Level::Error, text, &[]);
}

/// The value at this top-level key of the configuration, as JSON text.
#[must_use]
pub fn config(key: &str) -> Option<String> {
    imports::config::get(key)
}

/// The time of the event that is handled, milliseconds since 1970: a replay sees the same.
#[must_use]
pub fn now_ms() -> u64 {
    imports::clock::now()
}

/// A number that depends on the message that is handled: a replay sees the same. Not for secrets.
#[must_use]
pub fn random() -> u64 {
    imports::random::get()
}

/// Adds to a counter of the plugin's own; at most 32 names of at most 64 bytes.
pub fn count(name: &str, value: u64) {
    imports::metrics::add(name, value);
}
