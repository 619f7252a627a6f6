//! The words after `penstock plugin`.

mod known;
mod usage;

pub use usage::USAGE;

use known::COMMANDS;
use std::path::PathBuf;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Print the usage.
    Help,
    /// Make a plugin's folder.
    New,
    /// Build the component.
    Build,
    /// Say whether a broker would take it.
    Check,
    /// Run it on fixtures.
    Test,
    /// Say what its calls cost.
    Bench,
    /// Build, test and deploy at every change.
    Dev,
    /// Bring it to a broker.
    Deploy,
    /// Take the open rollout to all channels.
    Promote,
    /// Go back to what ran before.
    Rollback,
    /// Let quarantined versions run again.
    Release,
    /// Forget the plugin.
    Remove,
    /// Make or change a binding.
    Bind,
    /// Remove a binding.
    Unbind,
    /// Have a binding go on.
    Enable,
    /// Stop it.
    Disable,
    /// Run what failed or was committed here, or have a webhook deliver messages once more.
    Replay,
    /// Say what runs.
    Status,
    /// Show what it logged.
    Logs,
    /// Look after messages that it could not do.
    Letters,
    /// Look after its keys.
    Keys,
    /// Look after the inputs of calls that failed.
    Captures,
}

/// Where a node in development mode has its API.
pub(crate) const SERVER: &str = "http://127.0.0.1:5001";

/// What was said besides the command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The word after the command: a name, an id, or what is to be done.
    pub word: Option<String>,
    /// The words after that one: ids.
    pub more: Vec<String>,
    /// The plugin's folder.
    pub folder: Option<PathBuf>,
    /// The component, instead of the folder's.
    pub component: Option<PathBuf>,
    /// The HTTP API of the broker.
    pub server: Option<String>,
    /// Its key.
    pub api_key: Option<String>,
    /// The language of a new plugin.
    pub language: Option<String>,
    /// The hook of a new plugin.
    pub hook: Option<String>,
    /// The API that a component is compared with.
    pub against: Option<String>,
    /// Id of a binding to all messages.
    pub bind: Option<String>,
    /// Whether the binding of the folder is left as it is.
    pub no_bind: bool,
    /// Share of the channels, per cent.
    pub canary: Option<u8>,
    /// The version that is released.
    pub digest: Option<String>,
    /// Whether the answer is JSON.
    pub json: bool,
    /// Whether new lines are waited for.
    pub follow: bool,
    /// Whether all are meant.
    pub all: bool,
    /// Calls that are measured.
    pub calls: Option<u32>,
    /// A channel.
    pub channel: Option<String>,
    /// The kind of it.
    pub kind: Option<u8>,
    /// The first of a range of positions.
    pub from: Option<u64>,
    /// The last one.
    pub to: Option<u64>,
    /// The plugin, if not that of the folder.
    pub plugin: Option<String>,
    /// Life time of a value, ms.
    pub ttl_ms: Option<u64>,
    /// The capture that is replayed.
    pub capture: Option<String>,
    /// The fixture that it becomes.
    pub save: Option<String>,
    /// Whether messages are replayed here, and not delivered.
    pub local: bool,
    /// The member who reads them.
    pub reader: Option<String>,
}

/// What was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// What is to be done.
    pub action: Action,
    /// With what.
    pub options: Options,
}

/// Why the words are refused, and what to do about it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// No such command.
    #[error("there is no `plugin {0}`; `penstock plugin help` lists the commands")]
    Unknown(String),
    /// An option that this command does not have.
    #[error("`plugin {command}` has no option `{option}`; it has {has}")]
    Option {
        /// The command.
        command: &'static str,
        /// What was given.
        option: String,
        /// What it has.
        has: String,
    },
    /// An option without its value.
    #[error("`{0}` needs a value")]
    MissingValue(String),
    /// A value for a switch.
    #[error("`{0}` takes no value")]
    NoValue(String),
    /// One word too many.
    #[error("nothing may follow `plugin {command}` here, but there is `{word}`")]
    Trailing {
        /// The command.
        command: &'static str,
        /// What was given.
        word: String,
    },
    /// Not a share.
    #[error("--canary {0}: a whole number from 0 to 100, per cent of the channels")]
    Canary(String),
    /// Not a number.
    #[error("{0} {1}: a whole number")]
    Number(String, String),
    /// Not a time.
    #[error("--ttl-ms {0}: a whole number of milliseconds from 1")]
    Ttl(String),
    /// Not a number of calls.
    #[error("--calls {0}: a whole number from 1")]
    Calls(String),
}

impl Command {
    fn help() -> Command {
        Command {
            action: Action::Help,
            options: Options::default(),
        }
    }

    /// Parses the words after `penstock plugin`.
    ///
    /// # Errors
    /// Names the word that is not understood.
    pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Command, Error> {
        let mut words = words.into_iter();
        let first = words.next();
        let known = match first.as_deref() {
            None | Some("help" | "--help" | "-h") => {
                return Ok(Command::help());
            }
            Some(name) => COMMANDS.iter().find(|known| known.name == name),
        };
        let known = known.ok_or_else(|| Error::Unknown(first.unwrap_or_default()))?;
        let mut options = Options::default();
        while let Some(word) = words.next() {
            if matches!(word.as_str(), "--help" | "-h") {
                return Ok(Command::help());
            }
            if !word.starts_with("--") {
                if usize::from(options.word.is_some()) + options.more.len() >= known.words {
                    return Err(Error::Trailing {
                        command: known.name,
                        word,
                    });
                }
                match options.word {
                    None => options.word = Some(word),
                    Some(_) => options.more.push(word),
                }
                continue;
            }
            let (name, inline) = match word.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (word, None),
            };
            if !known.options.contains(&name.as_str()) {
                return Err(Error::Option {
                    command: known.name,
                    option: name,
                    has: known.options.join(", "),
                });
            }
            options.set(&name, inline, &mut words)?;
        }
        Ok(Command {
            action: known.action,
            options,
        })
    }
}

fn number<N: std::str::FromStr>(name: &str, value: String) -> Result<N, Error> {
    value.parse().map_err(|_| Error::Number(name.to_owned(), value))
}

impl Options {
    fn set(
        &mut self,
        name: &str,
        inline: Option<String>,
        words: &mut impl Iterator<Item = String>,
    ) -> Result<(), Error> {
        let switch = match name {
            "--no-bind" => Some(&mut self.no_bind),
            "--json" => Some(&mut self.json),
            "--follow" => Some(&mut self.follow),
            "--all" => Some(&mut self.all),
            "--local" => Some(&mut self.local),
            _ => None,
        };
        if let Some(switch) = switch {
            *switch = true;
            return inline.map_or(Ok(()), |_| Err(Error::NoValue(name.to_owned())));
        }
        let value = inline
            .or_else(|| words.next())
            .ok_or_else(|| Error::MissingValue(name.to_owned()))?;
        match name {
            "--dir" => self.folder = Some(PathBuf::from(value)),
            "--component" => self.component = Some(PathBuf::from(value)),
            "--server" => self.server = Some(value),
            "--api-key" => self.api_key = Some(value),
            "--lang" => self.language = Some(value),
            "--hook" => self.hook = Some(value),
            "--against" => self.against = Some(value),
            "--bind" => self.bind = Some(value),
            "--calls" => {
                let calls = value.parse().ok().filter(|calls| *calls > 0);
                self.calls = Some(calls.ok_or(Error::Calls(value))?);
            }
            "--channel" => self.channel = Some(value),
            "--type" => self.kind = Some(number(name, value)?),
            "--from" => self.from = Some(number(name, value)?),
            "--to" => self.to = Some(number(name, value)?),
            "--digest" => self.digest = Some(value),
            "--plugin" => self.plugin = Some(value),
            "--capture" => self.capture = Some(value),
            "--save" => self.save = Some(value),
            "--as" => self.reader = Some(value),
            "--ttl-ms" => {
                let ttl = value.parse().ok().filter(|ttl| *ttl > 0);
                self.ttl_ms = Some(ttl.ok_or(Error::Ttl(value))?);
            }
            // The only one that is left.
            _ => {
                let percent = value.parse().ok().filter(|percent| *percent <= 100);
                self.canary = Some(percent.ok_or(Error::Canary(value))?);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, Error> {
        Command::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn words_and_options_are_taken_in_any_order_and_both_forms() {
        let wanted = Command {
            action: Action::New,
            options: Options {
                word: Some("shout".to_owned()),
                language: Some("rust".to_owned()),
                hook: Some("before-send".to_owned()),
                ..Options::default()
            },
        };
        assert_eq!(
            parse("new shout --lang rust --hook=before-send"),
            Ok(wanted.clone())
        );
        assert_eq!(parse("new --hook before-send --lang=rust shout"), Ok(wanted));
        let deploy =
            parse("deploy --canary 5 --bind all --server http://h:1 --api-key k").expect("a command");
        assert_eq!(deploy.options.canary, Some(5));
        assert_eq!(deploy.options.bind.as_deref(), Some("all"));
        for help in ["", "help", "new --help", "dlq list -h"] {
            assert_eq!(parse(help).expect("a command").action, Action::Help);
        }
        let replay = parse("dlq replay 1-2-3 --bind all 1-2-4")
            .expect("a command")
            .options;
        assert_eq!(
            (replay.word.as_deref(), replay.more.join(" ")),
            (Some("replay"), "1-2-3 1-2-4".to_owned())
        );
    }

    #[test]
    fn what_is_not_understood_is_named() {
        assert_eq!(parse("publish"), Err(Error::Unknown("publish".to_owned())));
        assert!(
            matches!(parse("build --json"), Err(Error::Option { command: "build", option, .. }) if option == "--json")
        );
        assert!(matches!(parse("build now"), Err(Error::Trailing { word, .. }) if word == "now"));
        assert!(matches!(parse("new a b"), Err(Error::Trailing { word, .. }) if word == "b"));
        assert_eq!(
            parse("new a --lang"),
            Err(Error::MissingValue("--lang".to_owned()))
        );
        assert_eq!(
            parse("status --json=no"),
            Err(Error::NoValue("--json".to_owned()))
        );
        assert_eq!(parse("bench --calls 0"), Err(Error::Calls("0".to_owned())));
        for share in ["101", "-1", "half"] {
            assert_eq!(
                parse(&format!("deploy --canary {share}")),
                Err(Error::Canary(share.to_owned()))
            );
        }
    }

    #[test]
    fn every_command_and_option_stands_in_the_usage() {
        for known in COMMANDS {
            assert!(USAGE.contains(known.name), "{}", known.name);
            for option in known.options {
                assert!(USAGE.contains(option), "{option}");
            }
        }
    }
}
