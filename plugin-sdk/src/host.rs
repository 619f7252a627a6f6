//! What the broker offers. Every plugin has the functions that stand here; the modules below are for plugins that `wit/v1` gives
//! them and whose binding grants them. Outside of the broker, as in a unit test, lines go to standard error and the rest panics.

use crate::bindings::offers::penstock::plugin as imports;

pub use imports::log::Level;
pub use imports::{kv, kv_read};

/// Reads of committed messages: the capability `messages`. What [`read`](messages::read) gives is parsed with
/// [`Batch::parse`](crate::Batch::parse).
pub use imports::messages;

/// Messages of the plugin's own: the capability `publish`. [`send`](publish::send) waits until the message is committed. What is handed
/// out again and sends again sends once.
pub use imports::publish;

/// Requests over HTTP, to where grants of the binding such as `http:GET https://api.example.org/v1` let them go. The plugin waits for the
/// answer, at most five seconds and never longer than its deadline, which is 200 ms unless the binding says otherwise.
pub mod http {
    use super::imports;
    use crate::guest::{Header, HttpRequest, HttpResponse};

    pub use imports::http::HttpError;

    /// Makes a request. A header whose value is `secret://NAME`, or one word and that, as in `Bearer secret://NAME`, carries the value that
    /// the operator keeps under this name, if the binding grants `secret:NAME`: the plugin does not see it. A redirect is an answer
    /// like others.
    ///
    /// # Errors
    /// When there is no answer; the log of the binding has the reason in words. After `timeout` and `failed` the request may have been
    /// taken.
    pub fn send(request: &HttpRequest) -> Result<HttpResponse, HttpError> {
        imports::http::send(request)
    }

    /// Gets what is at a URL, with these headers.
    ///
    /// # Errors
    /// As for [`send`].
    pub fn get(url: &str, headers: &[(&str, &str)]) -> Result<HttpResponse, HttpError> {
        let header = |(name, value): &(&str, &str)| Header {
            name: (*name).to_owned(),
            value: (*value).to_owned(),
        };
        send(&HttpRequest {
            method: "GET".to_owned(),
            url: url.to_owned(),
            headers: headers.iter().map(header).collect(),
            body: Vec::new(),
        })
    }

    /// The first value of a header of an answer, whose names are in small letters.
    #[must_use]
    pub fn header<'a>(response: &'a HttpResponse, name: &str) -> Option<&'a str> {
        let found = response.headers.iter().find(|header| header.name == name);
        found.map(|header| header.value.as_str())
    }
}

/// Values that the operator keeps for plugins.
pub mod secrets {
    use super::imports;

    /// The value of this name, if the binding grants `reveal:NAME`; the log of the binding says that it was asked for. To send one in a
    /// header, do without: see [`send`](super::http::send).
    #[must_use]
    pub fn reveal(name: &str) -> Option<Vec<u8>> {
        imports::secrets::reveal(name)
    }
}

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
