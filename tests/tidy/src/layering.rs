//! Imports run one way: wire, core, then the crates that each link one heavy dependency, then the server.

use crate::tree::{File, Tree, without_comment};
use std::collections::BTreeSet;

/// Each crate's folder, and the crates of ours that it may depend on.
const CRATES: &[(&str, &[&str])] = &[
    ("broker/wire", &[]),
    ("broker/core", &["penstock-wire"]),
    ("broker/store", &["penstock-core", "penstock-wire"]),
    ("broker/egress", &[]),
    ("broker/net", &["penstock-core", "penstock-wire"]),
    ("broker/plugin-host", &["penstock-core", "penstock-wire"]),
    ("broker/plugin-cli", &["penstock-core", "penstock-plugin-host"]),
    ("broker/bench", &["penstock-wire"]),
    (
        "broker/server",
        &[
            "penstock-bench",
            "penstock-core",
            "penstock-egress",
            "penstock-net",
            "penstock-plugin-cli",
            "penstock-plugin-host",
            "penstock-store",
            "penstock-wire",
        ],
    ),
    ("tests/sim", &["penstock-core", "penstock-wire"]),
    (
        "tests/conformance",
        &["penstock-core", "penstock-sim", "penstock-store", "penstock-wire"],
    ),
    ("tests/e2e", &["penstock-wire"]),
    (
        "tests/fuzz",
        &[
            "penstock",
            "penstock-core",
            "penstock-plugin-host",
            "penstock-sim",
            "penstock-store",
            "penstock-wire",
        ],
    ),
    ("tests/model", &[]),
    ("tests/tidy", &[]),
    ("tests/xtask", &[]),
    ("plugin-sdk", &[]),
];

/// What the tests and benchmarks of a crate may use besides.
const DEVELOPMENT: &[(&str, &[&str])] = &[("broker/bench", &["penstock-core", "penstock-store"])];

/// Dependencies that only these folders may have.
const HEAVY: &[(&str, &[&str])] = &[
    ("axum", &["broker/net"]),
    ("quinn", &["broker/net"]),
    ("raft", &["broker/core"]),
    ("rocksdb", &["broker/store"]),
    ("rustls", &["broker/egress"]),
    (
        "tokio",
        &[
            "broker/egress",
            "broker/net",
            "broker/plugin-host",
            "broker/bench",
            "broker/server",
            "tests/e2e",
            "tests/fuzz",
        ],
    ),
    ("tokio-tungstenite", &["broker/net", "broker/bench", "tests/e2e"]),
    ("wasmtime", &["broker/plugin-host"]),
];

/// The machines of the core: none may import another.
const MACHINES: &[&str] = &[
    "append",
    "channel",
    "controller",
    "conversation",
    "delivery",
    "hooks",
    "permission",
    "presence",
    "routing",
    "session",
    "slot",
];

/// What only the composing module may import.
const COMPOSING: &[&str] = &["effect", "shard"];

/// Complains about dependencies that run against the layers, in manifests and in sources.
pub fn crates(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for manifest in tree
        .files
        .iter()
        .filter(|file| file.path.ends_with("/Cargo.toml"))
    {
        let folder = manifest.path.trim_end_matches("/Cargo.toml");
        let known = CRATES.iter().find(|(name, _)| *name == folder);
        let Some(allowed) = known.map(|(_, allowed)| *allowed).or_else(|| of_a_plugin(folder)) else {
            complaints.push(format!(
                "{}: this crate has no place in the layers yet",
                manifest.path
            ));
            continue;
        };
        let besides = DEVELOPMENT.iter().find(|(name, _)| *name == folder);
        for (dependency, is_development) in dependencies(manifest) {
            let ours = dependency == "penstock" || dependency.starts_with("penstock-");
            let is_besides = besides.is_some_and(|(_, names)| names.contains(&dependency.as_str()));
            let is_allowed = allowed.contains(&dependency.as_str()) || is_development && is_besides;
            if ours && !is_allowed {
                complaints.push(format!("{}: may not depend on {dependency}", manifest.path));
            }
            let heavy = HEAVY.iter().find(|(name, _)| *name == dependency);
            if heavy.is_some_and(|(_, folders)| !folders.contains(&folder)) {
                complaints.push(format!("{}: may not link {dependency}", manifest.path));
            }
        }
    }
    complaints
}

/// Plugins stand on the SDK alone; the scripted ones share the harm that they do.
fn of_a_plugin(folder: &str) -> Option<&'static [&'static str]> {
    let scripted = folder == "plugins" || folder.starts_with("plugins/samples/hostile/scripted-");
    if scripted {
        return Some(&["penstock-harm", "penstock-plugin-sdk"]);
    }
    folder.starts_with("plugins/").then_some(&["penstock-plugin-sdk"])
}

/// The names in every table of dependencies of a manifest, and whether it is one of tests and benchmarks alone.
fn dependencies(manifest: &File) -> BTreeSet<(String, bool)> {
    let mut inside = false;
    let mut is_development = false;
    let mut names = BTreeSet::new();
    for line in manifest.text.lines() {
        let line = line.trim();
        if line.starts_with('[') {
            inside = line.trim_end_matches(']').ends_with("dependencies");
            is_development = line.contains("dev-dependencies");
        } else if inside && let Some(end) = line.find(['.', ' ', '=']) {
            names.insert((line[..end].to_owned(), is_development));
        }
    }
    names
}

/// Complains when a machine of the core imports another one or what composes them, and when anything but the two
/// machines that hold Raft groups imports `raft`.
pub fn machines(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in tree.rust("broker/core/src/") {
        let inner = &file.path["broker/core/src/".len()..];
        let first = inner
            .split('/')
            .next()
            .unwrap_or_default()
            .trim_end_matches(".rs");
        let code: String = file
            .code_lines()
            .into_iter()
            .map(|(_, line)| without_comment(line).to_owned() + "\n")
            .collect();
        if !["slot", "controller"].contains(&first) && paths(&code, "raft::").next().is_some() {
            complaints.push(format!(
                "{}: only the slot and controller machines know raft",
                file.path
            ));
        }
        if !MACHINES.contains(&first) {
            continue;
        }
        let has_module = |name: &str| {
            tree.paths.contains(&format!("broker/core/src/{first}/{name}.rs"))
                || tree.paths.contains(&format!("broker/core/src/{first}/{name}"))
        };
        let from_root = paths(&code, "crate::");
        let from_parent = paths(&code, "super::").filter(|name| !has_module(name));
        for name in from_root.chain(from_parent).collect::<BTreeSet<_>>() {
            let other_machine = MACHINES.contains(&name.as_str()) && name != first;
            if other_machine || COMPOSING.contains(&name.as_str()) {
                complaints.push(format!("{}: a machine may not import {name}", file.path));
            }
        }
    }
    complaints
}

/// Complains about a machine whose `mod.rs` does not open by saying what it owns, keeps, passes through and leaves out.
pub fn headings(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for machine in MACHINES {
        let path = format!("broker/core/src/{machine}/mod.rs");
        let Some(file) = tree.file(&path) else { continue };
        let opening: Vec<&str> = file
            .text
            .lines()
            .take_while(|line| line.starts_with("//!"))
            .collect();
        for heading in ["Owns", "Invariants", "States", "Absent"] {
            let marked = [format!("//! # {heading}"), format!("//! *{heading}*")];
            if !opening
                .iter()
                .any(|line| marked.iter().any(|mark| line.starts_with(mark)))
            {
                complaints.push(format!("{path}: does not say *{heading}*"));
            }
        }
    }
    complaints
}

/// The first names after every use of this prefix; `crate::{a::B, c}` yields `a` and `c`.
fn paths<'a>(code: &'a str, prefix: &'a str) -> impl Iterator<Item = String> + 'a {
    code.match_indices(prefix)
        .filter(|(start, _)| {
            !code[..*start].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':')
        })
        .flat_map(|(start, _)| first_names(&code[start + prefix.len()..]))
}

fn first_names(rest: &str) -> Vec<String> {
    let Some(group) = rest.strip_prefix('{') else {
        return vec![leading_name(rest)];
    };
    let mut depth = 0_usize;
    let mut names = vec![leading_name(group)];
    for (index, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.push(leading_name(&group[index + 1..])),
            _ => {}
        }
    }
    names
}

fn leading_name(text: &str) -> String {
    text.trim_start()
        .chars()
        .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_against_the_layers_is_found() {
        let tree = Tree::of(&[
            (
                "broker/core/Cargo.toml",
                "[dependencies]\nbytes.workspace = true\npenstock-store.workspace = true\n",
            ),
            (
                "tests/sim/Cargo.toml",
                "[dependencies]\npenstock-core.workspace = true\n[dev-dependencies]\ntokio = \"1\"\n",
            ),
            ("broker/new/Cargo.toml", "[package]\n"),
            (
                "broker/bench/Cargo.toml",
                "[dependencies]\npenstock-store.workspace = true\n[dev-dependencies]\npenstock-core.workspace = true\n",
            ),
        ]);
        let complaints = crates(&tree);
        assert_eq!(complaints.len(), 4, "{complaints:?}");
        assert!(complaints[0].contains("penstock-store"));
        assert!(complaints[1].contains("link tokio"));
        assert!(complaints[2].contains("no place"));
        assert!(
            complaints[3].contains("penstock-store"),
            "only its benchmarks may"
        );
    }

    #[test]
    fn a_machine_that_does_not_introduce_itself_is_found() {
        let tree = Tree::of(&[
            (
                "broker/core/src/slot/mod.rs",
                "//! A group.\n//!\n//! *Owns*: a\n//! # Invariants\n//! *Absent*: b\nmod a;\n",
            ),
            ("broker/core/src/shard/mod.rs", "//! Composes.\n"),
        ]);
        assert_eq!(
            headings(&tree),
            ["broker/core/src/slot/mod.rs: does not say *States*"]
        );
    }

    #[test]
    fn a_machine_that_imports_another_is_found() {
        let tree = Tree::of(&[
            (
                "broker/core/src/append/mod.rs",
                "use crate::{\n    limits,\n    channel::{Replica, Other},\n    types::Seq,\n};\n",
            ),
            (
                "broker/core/src/channel/mod.rs",
                "use crate::types::Seq;\nuse crate::channel::leader;\nuse super::effect::E;\n",
            ),
            (
                "broker/core/src/session/mod.rs",
                "// crate::append is another machine\nuse crate::types::Uid;\n",
            ),
            (
                "broker/core/src/shard/mod.rs",
                "use crate::append;\nuse raft::RawNode;\n",
            ),
            (
                "broker/core/src/slot/group.rs",
                "use raft::RawNode;\nuse super::rows;\n",
            ),
        ]);
        let complaints = machines(&tree);
        assert_eq!(complaints.len(), 3, "{complaints:?}");
        assert!(complaints[0].contains("append/mod.rs: a machine may not import channel"));
        assert!(complaints[1].contains("channel/mod.rs: a machine may not import effect"));
        assert!(complaints[2].contains("shard/mod.rs: only the slot and controller"));
    }
}
