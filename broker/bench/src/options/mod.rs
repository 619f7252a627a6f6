//! The command line of `penstock bench`: words in, one checked [`Command`] out.

mod given;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use self::given::Given;
use crate::payload::STAMP_BYTES;

/// What was asked.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// Drive a server.
    Drive(Box<Options>),
    /// Measure the limits of this machine.
    Floor(FloorOptions),
    /// Print how to use it.
    Help,
}

/// What kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Pairs of users who write to each other.
    Person,
    /// Groups in which every member writes.
    Group,
    /// One sender, all others receive.
    Fanout,
    /// Connections that do nothing.
    Idle,
    /// A storm of logins.
    Login,
}

/// What carries the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Frames back to back.
    Tcp,
    /// One frame per binary message.
    WebSocket,
}

/// Where the server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What carries the frames.
    pub transport: Transport,
    /// Host and port.
    pub address: String,
    /// The whole URL, as it was given.
    pub url: String,
}

/// One run against a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The server.
    pub target: Target,
    /// The kind of load.
    pub mode: Mode,
    /// Connections, one user each.
    pub connections: usize,
    /// Bytes of a message before encryption.
    pub payload: usize,
    /// How long to measure; in idle mode, how long to hold the connections.
    pub duration: Duration,
    /// Traffic before the measurement.
    pub warm_up: Duration,
    /// How long to wait for what is still owed after the last send.
    pub drain: Duration,
    /// Messages per second of all senders together; without it, the loop is closed.
    pub rate: Option<u64>,
    /// Sends without an answer per connection in the closed loop.
    pub window: u32,
    /// Connections opened per second.
    pub connect_rate: u64,
    /// Groups.
    pub groups: usize,
    /// Members of each group.
    pub members: usize,
    /// Connections with person traffic beside a storm of logins.
    pub background: usize,
    /// The HTTP API that creates groups, `http://host:port`.
    pub api: Option<String>,
    /// Its key.
    pub api_key: Option<String>,
    /// Who connects.
    pub users: Users,
    /// The protocol version that CONNECT announces.
    pub protocol: u8,
    /// The process whose memory and processor time are read.
    pub pid: Option<u32>,
    /// Threads that drive the connections.
    pub threads: usize,
    /// Where the report goes.
    pub outputs: Outputs,
}

/// Who connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Users {
    /// New users of this run, all with this token.
    New(String),
    /// The users of a file with `uid token` in each line.
    File(PathBuf),
}

/// Where a report goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outputs {
    /// JSON.
    pub json: Option<PathBuf>,
    /// A page with charts.
    pub html: Option<PathBuf>,
    /// What `penstock bench floor --json` wrote, to stand beside the charts.
    pub floor: Option<PathBuf>,
}

/// A measurement of the machine.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FloorOptions {
    /// Where the report goes.
    pub json: Option<PathBuf>,
    /// The folder whose disk is measured.
    pub directory: Option<PathBuf>,
}

/// Why the command line is refused, and what to do about it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// Not an option.
    #[error("bench has no option `{0}`; `penstock bench --help` lists them")]
    Unknown(String),
    /// An option without its value.
    #[error("`{0}` needs a value")]
    MissingValue(&'static str),
    /// An option given twice.
    #[error("`{0}` is given twice; keep one")]
    Twice(&'static str),
    /// A value that does not fit.
    #[error("`{option} {value}` does not fit: {wanted}")]
    Value {
        /// The option.
        option: &'static str,
        /// Its value.
        value: String,
        /// What would fit.
        wanted: String,
    },
    /// An option that must be given.
    #[error("`{option}` is needed: {why}")]
    Needed {
        /// The option.
        option: &'static str,
        /// What for.
        why: &'static str,
    },
    /// Options that contradict each other.
    #[error("{0}")]
    Contradiction(String),
}

const TRAFFIC: &[Mode] = &[Mode::Person, Mode::Group, Mode::Fanout];
const MESSAGES: &[Mode] = &[Mode::Person, Mode::Group, Mode::Fanout, Mode::Login];
const CHANNELS: &[Mode] = &[Mode::Group, Mode::Fanout];
const ANY: &[Mode] = &[Mode::Person, Mode::Group, Mode::Fanout, Mode::Idle, Mode::Login];

/// Every option with the modes that it belongs to.
const OPTIONS: &[(&str, &[Mode])] = &[
    ("--target", ANY),
    ("--mode", ANY),
    ("--connections", ANY),
    ("--payload", MESSAGES),
    ("--duration", ANY),
    ("--warm-up", MESSAGES),
    ("--drain", MESSAGES),
    ("--rate", MESSAGES),
    ("--window", TRAFFIC),
    ("--connect-rate", ANY),
    ("--groups", &[Mode::Group]),
    ("--members", &[Mode::Group]),
    ("--background", &[Mode::Login]),
    ("--api", CHANNELS),
    ("--api-key", CHANNELS),
    ("--token", ANY),
    ("--tokens", ANY),
    ("--protocol", ANY),
    ("--json", ANY),
    ("--html", ANY),
    ("--floor", ANY),
    ("--pid", ANY),
    ("--threads", ANY),
];

/// The rate of the traffic beside a storm, in messages per second, unless said otherwise.
const BACKGROUND_RATE: u64 = 1_000;

const FLOOR_OPTIONS: &[&str] = &["--json", "--directory"];

/// How to use `penstock bench`.
pub const USAGE: &str = "\
penstock bench --target URL --mode person|group|fanout|idle|login [OPTION VALUE …]
  Drives a WKProto server and verifies what it delivers. URL: wkproto://HOST:PORT or tcp://HOST:PORT, ws://HOST:PORT.
  --connections N    200; one user each (group: as many as there are places; fanout: one sends, the others receive)
  --payload BYTES    100; before encryption
  --duration TIME    15s; 500ms, 15s and 2m are times (idle: how long the connections are held)
  --warm-up TIME     3s of traffic that does not count
  --drain TIME       10s at most for what is owed after the last send
  --rate N           messages per second of all senders together, latency from when each was due; without it, closed loop
  --window N         8; sends without an answer per connection in the closed loop
  --connect-rate N   1000 connections per second
  --groups N         1     --members N   10; of each group
  --api URL          http://HOST:PORT of the API that creates the groups     --api-key KEY
  --background N     login: 0 connections with person traffic beside the storm, at --rate (1000)
  --token TOKEN      of every user, `any`     --tokens FILE   users instead, `uid token` in each line
  --protocol N       6; the version that CONNECT announces
  --json FILE        the report     --html FILE   as a page     --floor FILE   with the limits of the machine beside it
  --pid N            memory and processor time of this process
  --threads N        half of the processors; threads that drive the connections
penstock bench floor [--json FILE] [--directory DIR]
  Measures what the machine can do: synced appends on the disk of DIR, echoes over loopback.";

impl Command {
    /// Parses the words after `bench`.
    ///
    /// # Errors
    /// Says which word does not fit and what to do.
    pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Self, Error> {
        let mut words = words.into_iter().peekable();
        match words.peek().map(String::as_str) {
            None | Some("--help" | "-h" | "help") => Ok(Self::Help),
            Some("floor") => {
                words.next();
                floor(Given::read(words, FLOOR_OPTIONS.iter().copied())?)
            }
            Some(_) => {
                let given = Given::read(words, OPTIONS.iter().map(|(name, _)| *name))?;
                Ok(Self::Drive(Box::new(drive(given)?)))
            }
        }
    }
}

fn floor(mut given: Given) -> Result<Command, Error> {
    Ok(Command::Floor(FloorOptions {
        json: given.take("--json").map(PathBuf::from),
        directory: given.take("--directory").map(PathBuf::from),
    }))
}

fn drive(mut given: Given) -> Result<Options, Error> {
    let target = given.needed("--target", "where the server listens")?;
    let mode = given.needed("--mode", "person, group, fanout, idle or login")?;
    let target = Target::parse(target)?;
    let mode = Mode::parse(mode)?;
    given.belong_to(mode)?;
    let groups = given.number("--groups", 1, 1..=100_000)?;
    let members = given.number("--members", 10, 2..=100_000)?;
    let connections = if mode == Mode::Group {
        groups * members
    } else {
        200
    };
    let background = given.number("--background", 0, 0..=100_000)?;
    let rate = given.optional("--rate", 1..=10_000_000)?;
    let beside_a_storm = (background > 0).then_some(BACKGROUND_RATE);
    let options = Options {
        connections: given.number("--connections", connections, 1..=1_000_000)?,
        payload: given.number("--payload", 100, STAMP_BYTES..=1_000_000)?,
        duration: given.time("--duration", 15_000)?,
        warm_up: given.time("--warm-up", 3_000)?,
        drain: given.time("--drain", 10_000)?,
        rate: rate.or(beside_a_storm),
        window: given.number("--window", 8, 1..=100_000)?,
        connect_rate: given.number("--connect-rate", 1_000, 1..=1_000_000)?,
        groups,
        members,
        background,
        api: given.take("--api"),
        api_key: given.take("--api-key"),
        users: match (given.take("--tokens"), given.take("--token")) {
            (Some(_), Some(_)) => {
                return contradiction("`--tokens` has a token for each user: leave out `--token`");
            }
            (Some(file), None) => Users::File(PathBuf::from(file)),
            (None, token) => Users::New(token.unwrap_or_else(|| "any".to_owned())),
        },
        protocol: given.number("--protocol", 6, 1..=6)?,
        pid: given.optional("--pid", 1..=u32::MAX)?,
        threads: given.number("--threads", default_threads(), 1..=256)?,
        outputs: Outputs {
            json: given.take("--json").map(PathBuf::from),
            html: given.take("--html").map(PathBuf::from),
            floor: given.take("--floor").map(PathBuf::from),
        },
        target,
        mode,
    };
    options.fits(&given)?;
    Ok(options)
}

fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |count| (count.get() / 2).max(1))
}

fn contradiction<T>(text: &str) -> Result<T, Error> {
    Err(Error::Contradiction(text.to_owned()))
}

impl Options {
    /// Looks for options that contradict each other.
    fn fits(&self, given: &Given) -> Result<(), Error> {
        if self.rate.is_some() && given.was("--window") {
            return contradiction(
                "`--window` belongs to the closed loop and `--rate` to the open one: leave one out",
            );
        }
        if self.outputs.floor.is_some() && self.outputs.html.is_none() {
            return contradiction("`--floor` stands beside the charts of a page: add `--html FILE`");
        }
        if self.api_key.is_some() && self.api.is_none() {
            return contradiction("`--api-key` is the key of an API: add `--api URL`");
        }
        if self.background == 0 && self.mode == Mode::Login {
            let idle = ["--rate", "--payload", "--warm-up", "--duration", "--drain"];
            if let Some(name) = idle.into_iter().find(|name| given.was(name)) {
                return contradiction(&format!(
                    "in login mode `{name}` is about the traffic beside the storm: add `--background N` or leave it out"
                ));
            }
        }
        match self.mode {
            Mode::Person if !self.connections.is_multiple_of(2) => {
                contradiction("person mode needs pairs: make `--connections` even")
            }
            Mode::Login if !self.background.is_multiple_of(2) => {
                contradiction("the traffic beside the storm needs pairs: make `--background` even")
            }
            Mode::Fanout if self.connections < 2 => {
                contradiction("fanout needs a receiver: `--connections` of 2 or more")
            }
            Mode::Group if self.members > self.connections => contradiction(&format!(
                "a group of {} members needs as many `--connections`",
                self.members
            )),
            Mode::Group if self.connections > self.groups * self.members => contradiction(&format!(
                "{} connections find only {} places in the groups: raise `--groups` or `--members`",
                self.connections,
                self.groups * self.members
            )),
            Mode::Group | Mode::Fanout => match &self.api {
                None => Err(Error::Needed {
                    option: "--api",
                    why: "groups are created through POST /channel of the HTTP API",
                }),
                Some(api) if api.strip_prefix("http://").is_none_or(str::is_empty) => Err(Error::Value {
                    option: "--api",
                    value: api.clone(),
                    wanted: "http://HOST:PORT".to_owned(),
                }),
                Some(_) => Ok(()),
            },
            Mode::Person | Mode::Idle | Mode::Login => Ok(()),
        }
    }
}

impl Mode {
    const NAMES: &[(&str, Self)] = &[
        ("person", Self::Person),
        ("group", Self::Group),
        ("fanout", Self::Fanout),
        ("idle", Self::Idle),
        ("login", Self::Login),
    ];

    /// Its name on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES
            .iter()
            .find(|(_, mode)| *mode == self)
            .map_or("", |(name, _)| name)
    }

    fn parse(value: String) -> Result<Self, Error> {
        match Self::NAMES.iter().find(|(name, _)| *name == value) {
            Some((_, mode)) => Ok(*mode),
            None => Err(Error::Value {
                option: "--mode",
                value,
                wanted: "person, group, fanout, idle or login".to_owned(),
            }),
        }
    }
}

impl Target {
    fn parse(url: String) -> Result<Self, Error> {
        let schemes = [
            ("wkproto://", Transport::Tcp),
            ("tcp://", Transport::Tcp),
            ("ws://", Transport::WebSocket),
        ];
        let found = schemes
            .into_iter()
            .find_map(|(scheme, transport)| Some((transport, url.strip_prefix(scheme)?)));
        if let Some((transport, rest)) = found {
            let address = rest.split('/').next().unwrap_or_default();
            let has_port = address
                .rsplit_once(':')
                .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
            if has_port {
                return Ok(Self {
                    transport,
                    address: address.to_owned(),
                    url,
                });
            }
        }
        Err(Error::Value {
            option: "--target",
            value: url,
            wanted: "wkproto://HOST:PORT, tcp://HOST:PORT or ws://HOST:PORT".to_owned(),
        })
    }
}
