//! The words after `penstock plugin`.

use std::path::PathBuf;

/// How to use the command.
pub const USAGE: &str = "\
penstock plugin: write a plugin, try it, and bring it to a broker. Run it within the plugin's folder.

  penstock plugin new NAME --lang rust|javascript|python|c [--hook before-send|persist-after|webhook|connect|offline|route]
      Makes the folder NAME with a plugin that works, fixtures for it, and a README. Other hooks than before-send are for Rust.
  penstock plugin build
      Builds NAME.wasm and says what it is.
  penstock plugin check [--against URL]
      Says whether a broker would take the component: this version, or with --against also the one at URL.
  penstock plugin test
      Runs the component on fixtures/*.json under the limits of production.
  penstock plugin bench [--calls N]
      Says what a call and a message cost, alone and in batches, what a start costs, and how memory grows.
  penstock plugin dev [--bind ID] [--no-bind]
      Builds, tests and deploys, and does so again whenever a file of the folder changes, until it is interrupted.
  penstock plugin deploy [--bind ID] [--no-bind] [--canary PERCENT]
      Uploads the component, waits until the broker is ready for it, binds it as binding.toml says (or as ID, to all messages),
      and promotes it: for all channels, or with --canary for a share of them.
  penstock plugin promote | rollback | remove [NAME]
      Takes the open rollout to all channels; goes back to what ran before; forgets the plugin.
  penstock plugin release [NAME] [--digest DIGEST]
      Lets the versions run again that the broker quarantined because they kept failing: all, or this one.
  penstock plugin bind [ID] | unbind [ID]
      Makes or changes the binding of binding.toml; removes a binding.
  penstock plugin enable [ID] | disable [ID]
      Has a binding that follows channels go on where it stopped; stops it, without losing its place.
  penstock plugin replay [ID] --channel CHANNEL --type KIND --from SEQ --to SEQ
      Has a webhook deliver committed messages once more.
  penstock plugin status [NAME] [--json]
      Says what runs, what is bound, and what it costs. Outside of a plugin's folder: of all plugins.
  penstock plugin logs [BINDING] [--follow]
      Shows what the plugin logged.
  penstock plugin dlq [list | replay ID... | drop ID...] [--bind ID] [--all] [--json]
      Lists the messages that the binding could not do, hands some or all of them out once more, or forgets them.
  penstock plugin keys [list | get KEY | set KEY VALUE | delete KEY...] [--plugin NAME] [--ttl-ms MS] [--all] [--json]
      Lists the keys of the plugin, or of the plugin NAME; shows, sets or deletes some, or deletes all of them.

check, test, bench and deploy build first when the sources are newer than the component. Options:
  --dir DIR          the plugin's folder, if not this one
  --component FILE   of check, test, bench, deploy: this component, as it is, instead of the folder's
  --server URL       the broker's HTTP API, http://127.0.0.1:5001 unless given
  --api-key KEY      its key; a node in development mode has none";

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
    /// Have a webhook deliver messages once more.
    Replay,
    /// Say what runs.
    Status,
    /// Show what it logged.
    Logs,
    /// Look after messages that it could not do.
    Letters,
    /// Look after its keys.
    Keys,
}

/// One command: its name, how many words may follow, and its own options.
struct Known {
    name: &'static str,
    action: Action,
    words: usize,
    options: &'static [&'static str],
}

const fn known(name: &'static str, action: Action, words: usize, options: &'static [&'static str]) -> Known {
    Known {
        name,
        action,
        words,
        options,
    }
}

const COMMANDS: &[Known] = &[
    known("new", Action::New, 1, &["--lang", "--hook", "--dir"]),
    known("build", Action::Build, 0, &["--dir"]),
    known(
        "check",
        Action::Check,
        0,
        &["--dir", "--component", "--against", "--api-key"],
    ),
    known("test", Action::Test, 0, &["--dir", "--component"]),
    known("bench", Action::Bench, 0, &["--dir", "--component", "--calls"]),
    known(
        "dev",
        Action::Dev,
        0,
        &["--dir", "--bind", "--no-bind", "--server", "--api-key"],
    ),
    known(
        "deploy",
        Action::Deploy,
        0,
        &[
            "--dir",
            "--component",
            "--bind",
            "--no-bind",
            "--canary",
            "--server",
            "--api-key",
        ],
    ),
    known("promote", Action::Promote, 1, OF_A_SERVER),
    known("rollback", Action::Rollback, 1, OF_A_SERVER),
    known(
        "release",
        Action::Release,
        1,
        &["--dir", "--server", "--api-key", "--digest"],
    ),
    known("remove", Action::Remove, 1, OF_A_SERVER),
    known("bind", Action::Bind, 1, OF_A_SERVER),
    known("unbind", Action::Unbind, 1, OF_A_SERVER),
    known("enable", Action::Enable, 1, OF_A_SERVER),
    known("disable", Action::Disable, 1, OF_A_SERVER),
    known(
        "replay",
        Action::Replay,
        1,
        &[
            "--dir",
            "--channel",
            "--type",
            "--from",
            "--to",
            "--server",
            "--api-key",
        ],
    ),
    known(
        "status",
        Action::Status,
        1,
        &["--dir", "--server", "--api-key", "--json"],
    ),
    known(
        "logs",
        Action::Logs,
        1,
        &["--dir", "--server", "--api-key", "--follow"],
    ),
    known(
        "dlq",
        Action::Letters,
        usize::MAX,
        &["--dir", "--bind", "--all", "--json", "--server", "--api-key"],
    ),
    known(
        "keys",
        Action::Keys,
        usize::MAX,
        &[
            "--dir",
            "--plugin",
            "--ttl-ms",
            "--all",
            "--json",
            "--server",
            "--api-key",
        ],
    ),
];

const OF_A_SERVER: &[&str] = &["--dir", "--server", "--api-key"];

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
