//! The commands, and what may follow each.

use super::Action;

/// One command: its name, how many words may follow, and its own options.
pub(super) struct Known {
    pub(super) name: &'static str,
    pub(super) action: Action,
    pub(super) words: usize,
    pub(super) options: &'static [&'static str],
}

const fn known(name: &'static str, action: Action, words: usize, options: &'static [&'static str]) -> Known {
    Known {
        name,
        action,
        words,
        options,
    }
}

/// All of them.
pub(super) const COMMANDS: &[Known] = &[
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
            "--local",
            "--as",
            "--capture",
            "--bind",
            "--save",
            "--component",
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
        "captures",
        Action::Captures,
        2,
        &["--dir", "--bind", "--json", "--server", "--api-key"],
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
