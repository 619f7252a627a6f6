//! What kind of value a key takes, in words.

use std::fmt;

/// Type, bounds and unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number within bounds, both included, of a unit; the unit may be empty.
    Number {
        /// The smallest.
        from: u64,
        /// The largest.
        to: u64,
        /// What it counts.
        unit: &'static str,
    },
    /// One of a few whole numbers.
    OneOf(&'static [u64]),
    /// True or false.
    Switch,
    /// A text that is not empty.
    Text,
    /// An address to listen on.
    Address,
    /// A host and a port for others, or empty.
    HostAndPort,
    /// A WebSocket address for others, or empty.
    WebSocketAddress,
    /// A list of origins of web pages.
    Origins,
    /// A SHA-256 in hex, or empty.
    Digest,
    /// A level, or levels by part.
    LogFilter,
    /// Secrets by name.
    Secrets,
    /// Values for plugins by name.
    Credentials,
    /// The path of a file, or empty.
    File,
}

impl Kind {
    /// A time in milliseconds.
    pub(super) const fn millis(from: u64, to: u64) -> Kind {
        Kind::Number { from, to, unit: "ms" }
    }
}

/// What is wanted: "`key` must be …".
impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Number { from, to, unit } => {
                write!(formatter, "a whole number from {from} to {to}")?;
                if unit.is_empty() {
                    Ok(())
                } else {
                    write!(formatter, " ({unit})")
                }
            }
            Kind::OneOf(numbers) => {
                let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
                write!(formatter, "one of {}", words.join(", "))
            }
            Kind::Switch => formatter.write_str("true or false"),
            Kind::Text => formatter.write_str("a text in quotes that is not empty"),
            Kind::Address => formatter.write_str("an IP address and port such as 127.0.0.1:5100 or [::]:5100"),
            Kind::HostAndPort => {
                formatter.write_str("a host and port such as chat.example.org:5100, or empty")
            }
            Kind::WebSocketAddress => {
                formatter.write_str("an address such as wss://chat.example.org or ws://10.0.0.5:5200, or empty")
            }
            Kind::Origins => formatter.write_str(
                "a list of origins such as [\"https://chat.example.org\"], without a path and without the port 80 of http or \
                 443 of https; empty for all",
            ),
            Kind::Secrets => formatter.write_str(
                "a table of lists by name such as { chat = [\"whsec_…\"] }, each with one to four secrets of 24 to 64 bytes in base64",
            ),
            Kind::Credentials => formatter.write_str(
                "a table of texts by name such as { github = \"…\" }, each of 1 to 4096 bytes",
            ),
            Kind::File => formatter.write_str("the path of a file, or empty"),
            Kind::Digest => formatter.write_str("64 hexadecimal digits (SHA-256 of the key), or empty"),
            Kind::LogFilter => formatter.write_str(
                "off, error, warn, info, debug or trace, or parts with a level such as penstock_net=debug,info",
            ),
        }
    }
}
