//! The command line.

use std::path::PathBuf;

/// What was asked on the command line.
#[derive(Debug, PartialEq, Eq)]
pub struct Arguments {
    /// The command.
    pub command: Command,
}

/// A command.
#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// Run a node.
    Serve(ServeArguments),
    /// Check a configuration.
    ConfigCheck(ServeArguments),
    /// Print the default configuration.
    ConfigDefault,
    /// Print the reference page of the configuration.
    ConfigMarkdown,
    /// Make an API key.
    Key,
    /// Put load on a server, or measure the machine.
    Bench(penstock_bench::options::Command),
    /// Make, try and deploy plugins.
    Plugin(Box<penstock_plugin_cli::Command>),
    /// Compile a component: what the plugin host runs as its child.
    PluginCompile {
        /// The component.
        source: PathBuf,
        /// Where its code goes.
        code: PathBuf,
    },
    /// Look at a component that comes over standard input: what the plugin host runs as its child.
    PluginInspect,
    /// Print the version.
    Version,
    /// Print the usage.
    Help,
}

/// Where the configuration comes from.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ServeArguments {
    /// Configuration file.
    pub config: Option<PathBuf>,
    /// Development mode.
    pub dev: bool,
    /// Data directory, over the configuration.
    pub data_dir: Option<String>,
    /// `section.key=value`, over the configuration.
    pub overrides: Vec<String>,
}

/// Why the command line is refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// Not a command.
    #[error("unknown command `{0}`")]
    UnknownCommand(String),
    /// Not an option of this command.
    #[error("unknown option `{0}`")]
    UnknownOption(String),
    /// A word behind a command that takes none.
    #[error("nothing may follow here, but there is `{0}`")]
    Trailing(String),
    /// An option without its value.
    #[error("`{0}` needs a value")]
    MissingValue(String),
    /// What is wrong with the words after `bench`.
    #[error(transparent)]
    Bench(#[from] penstock_bench::options::Error),
    /// What is wrong with the words after `plugin`.
    #[error(transparent)]
    Plugin(#[from] penstock_plugin_cli::Error),
}

impl Arguments {
    /// How to use the binary.
    pub const USAGE: &str = "\
penstock: a message broker for chat, notifications, live rooms and events

  penstock serve [--config FILE] [--dev] [--data-dir DIR] [--set section.key=value …]
      Runs a node. When it is ready it prints one JSON line on standard output; logs go to standard error.
      --dev accepts any token, needs no API key, serves the demo page and listens on loopback addresses only.
  penstock config check [--config FILE] [--set section.key=value …]
  penstock config default | markdown
      Prints every key with its default and meaning: as a configuration file, or as the reference page.
  penstock key
      Makes an API key and the hash of it for the configuration, and a secret for webhooks.
  penstock bench --target URL --mode person|group|fanout|idle|login [OPTION VALUE …]
  penstock bench floor | --help
      Drives a WKProto server and verifies what it delivers; measures the limits of this machine; lists the options.
  penstock plugin help | COMMAND …
      Makes a plugin, tries it under the limits of production, brings it to a broker and looks after it; help lists the commands.
  penstock version | help";

    /// Parses the words after the program name.
    ///
    /// # Errors
    /// Names the word that is not understood.
    pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Arguments, Error> {
        let mut words = words.into_iter();
        let command = match words.next().as_deref() {
            None | Some("help" | "--help" | "-h") => Command::Help,
            Some("version" | "--version" | "-V") => alone(Command::Version, words)?,
            Some("serve") => Command::Serve(options(words)?),
            Some("key") => alone(Command::Key, words)?,
            Some("bench") => Command::Bench(penstock_bench::options::Command::parse(words)?),
            Some("plugin") => Command::Plugin(Box::new(penstock_plugin_cli::Command::parse(words)?)),
            Some("config") => match words.next().as_deref() {
                Some("check") => Command::ConfigCheck(options(words)?),
                Some("default") => alone(Command::ConfigDefault, words)?,
                Some("markdown") => alone(Command::ConfigMarkdown, words)?,
                other => return Err(Error::UnknownCommand(format!("config {}", other.unwrap_or("")))),
            },
            Some(crate::plugins::INSPECT_COMMAND) => alone(Command::PluginInspect, words)?,
            Some(crate::plugins::COMPILE_COMMAND) => {
                let mut path = |name: &str| {
                    words
                        .next()
                        .map(PathBuf::from)
                        .ok_or_else(|| Error::MissingValue(name.to_owned()))
                };
                Command::PluginCompile {
                    source: path("SOURCE")?,
                    code: path("CODE")?,
                }
            }
            Some(other) => return Err(Error::UnknownCommand(other.to_owned())),
        };
        Ok(Arguments { command })
    }
}

/// A command that takes no further words.
fn alone(command: Command, mut words: impl Iterator<Item = String>) -> Result<Command, Error> {
    match words.next() {
        None => Ok(command),
        Some(word) => Err(Error::Trailing(word)),
    }
}

fn options(mut words: impl Iterator<Item = String>) -> Result<ServeArguments, Error> {
    let mut arguments = ServeArguments::default();
    while let Some(word) = words.next() {
        let (name, inline) = match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name.to_owned(), Some(value.to_owned())),
            _ => (word, None),
        };
        let mut value = || {
            inline
                .clone()
                .or_else(|| words.next())
                .ok_or_else(|| Error::MissingValue(name.clone()))
        };
        match name.as_str() {
            "--config" => arguments.config = Some(PathBuf::from(value()?)),
            "--data-dir" => arguments.data_dir = Some(value()?),
            "--set" => arguments.overrides.push(value()?),
            "--dev" => arguments.dev = true,
            _ => return Err(Error::UnknownOption(name)),
        }
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, Error> {
        Arguments::parse(line.split_whitespace().map(str::to_owned)).map(|arguments| arguments.command)
    }

    #[test]
    fn options_are_taken_in_both_forms() {
        let wanted = ServeArguments {
            config: Some(PathBuf::from("a.toml")),
            dev: true,
            data_dir: Some("d".to_owned()),
            overrides: vec!["node.id=2".to_owned(), "log.level=debug".to_owned()],
        };
        let line = "serve --config a.toml --dev --data-dir=d --set node.id=2 --set=log.level=debug";
        assert_eq!(parse(line), Ok(Command::Serve(wanted)));
    }

    #[test]
    fn the_words_after_bench_and_plugin_are_their_own() {
        let help = Command::Bench(penstock_bench::options::Command::Help);
        assert_eq!(parse("bench --help"), Ok(help));
        let help = penstock_plugin_cli::Command::parse([]).expect("the usage");
        assert_eq!(parse("plugin --help"), Ok(Command::Plugin(Box::new(help))));
    }

    #[test]
    fn unknown_words_are_named() {
        assert_eq!(parse("serv"), Err(Error::UnknownCommand("serv".to_owned())));
        assert_eq!(
            parse("serve --conf x"),
            Err(Error::UnknownOption("--conf".to_owned()))
        );
        assert!(matches!(parse("bench --mode x"), Err(Error::Bench(_))));
        assert!(matches!(parse("plugin publish"), Err(Error::Plugin(_))));
        for line in ["version --json", "key --json", "config default --json"] {
            assert_eq!(parse(line), Err(Error::Trailing("--json".to_owned())), "{line}");
        }
        assert_eq!(
            parse("serve --config"),
            Err(Error::MissingValue("--config".to_owned()))
        );
    }
}
