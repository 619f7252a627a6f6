//! The `penstock` binary.

use anyhow::Context;
use penstock::arguments::{Arguments, Command, Error, ServeArguments};
use penstock::config::{Settings, default_toml, markdown};
use std::process::ExitCode;

/// Threads of the network and of the shards allocate and free for each other all the time; the system's allocator takes about a
/// fifth of the processor time for that.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            match error {
                // It says itself where its options are listed.
                Error::Bench(_) | Error::Plugin(_) => eprintln!("penstock: {error}"),
                _ => eprintln!("penstock: {error}\n\n{}", Arguments::USAGE),
            }
            return ExitCode::from(2);
        }
    };
    match run(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("penstock: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Help => out(Arguments::USAGE),
        Command::Version => out(&format!("penstock {}", env!("CARGO_PKG_VERSION"))),
        Command::ConfigDefault => out(default_toml().trim_end()),
        Command::ConfigMarkdown => out(markdown().trim_end()),
        Command::ConfigCheck(arguments) => {
            settings(&arguments)?;
            out("the configuration is valid")
        }
        Command::Key => {
            let (key, digest) = penstock::keys::new_api_key().context("the system gives no random bytes")?;
            let secret = penstock::keys::new_webhook_secret().context("the system gives no random bytes")?;
            out(&format!(
                "API key, for your back end: {key}\nFor the configuration:\n\n[auth]\napi_key_sha256 = \"{digest}\"\n\n\
                 If you need one, a secret that webhooks are signed with, for the configuration and for who receives them:\n\n\
                 [webhooks.secrets]\nNAME = [\"{secret}\"]"
            ))
        }
        Command::PluginCompile { source, code } => {
            penstock_plugin_host::compile_child(&source, &code).map_err(anyhow::Error::msg)
        }
        Command::PluginInspect => penstock_plugin_host::inspect_child().map_err(anyhow::Error::msg),
        Command::Plugin(command) => penstock_plugin_cli::run(&command, &mut std::io::stdout()),
        Command::Bench(command) => out(&penstock_bench::run(command)?),
        Command::Serve(arguments) => {
            let settings = settings(&arguments)?;
            penstock::serve::run(settings, arguments.dev)
        }
    }
}

fn settings(arguments: &ServeArguments) -> anyhow::Result<Settings> {
    let text = match &arguments.config {
        Some(path) => std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the configuration {}", path.display()))?,
        None => String::new(),
    };
    let mut overrides = arguments.overrides.clone();
    if let Some(directory) = &arguments.data_dir {
        overrides.push(format!(
            "node.data_dir={}",
            toml::Value::String(directory.clone())
        ));
    }
    Ok(Settings::parse(&text, &overrides)?)
}

/// Standard output belongs to the answers of commands and to the ready line; logs go to standard error.
fn out(text: &str) -> anyhow::Result<()> {
    use std::io::Write;
    writeln!(std::io::stdout(), "{text}").context("cannot write to standard output")
}
