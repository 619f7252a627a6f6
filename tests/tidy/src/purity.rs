//! Core and wire are pure: no IO, clock, thread, entropy or map without an order is even named there. Their public items
//! are documented, because the lint that demands it is on and stays on.

use crate::tree::{Tree, without_comment};

const PURE: &[&str] = &["broker/core/src/", "broker/wire/src/"];

const FORBIDDEN: &[&str] = &[
    "std::fs",
    "std::net",
    "std::env",
    "std::thread",
    "std::process",
    "std::io::stdin",
    "tokio",
    "SystemTime::now",
    "Instant::now",
    "HashMap",
    "HashSet",
    "thread_rng",
    "getrandom",
];

/// Complains about every forbidden name, and about the same names in a group such as `use std::{fs, …}`.
pub fn check(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in PURE.iter().flat_map(|folder| tree.rust(folder)) {
        // The core's own tests are as repeatable as it is; those of wire may measure.
        let whole = file.path.starts_with("broker/core/");
        let lines: Vec<(usize, &str)> = if whole {
            (1..).zip(file.text.lines()).collect()
        } else {
            file.code_lines()
        };
        for (number, line) in lines {
            let code = without_comment(line);
            let grouped = code.trim_start().strip_prefix("use std::{").unwrap_or_default();
            let by_group = ["fs", "net", "env", "thread", "process"]
                .into_iter()
                .find(|name| grouped.split([',', '}', ' ', ':']).any(|part| part == *name));
            if let Some(name) = FORBIDDEN
                .iter()
                .copied()
                .find(|name| code.contains(name))
                .or(by_group)
            {
                complaints.push(format!(
                    "{}:{number}: {name} has no place in a pure crate",
                    file.path
                ));
            }
        }
    }
    complaints
}

/// Complains when the lint that demands documentation is not on for a crate of the broker.
pub fn documented(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    let root = tree.file("Cargo.toml").map_or("", |file| &file.text);
    if !root.lines().any(|line| line.trim() == "missing_docs = \"deny\"") {
        complaints.push("Cargo.toml: the workspace does not deny missing_docs".to_owned());
    }
    for file in tree
        .files
        .iter()
        .filter(|file| file.path.ends_with("/Cargo.toml"))
    {
        let is_crate = file.text.contains("[package]");
        if is_crate && !file.text.contains("[lints]\nworkspace = true") {
            complaints.push(format!("{}: does not inherit the workspace's lints", file.path));
        }
    }
    // A file of its own may explain why it needs none; a crate or a module with others below it may not.
    let roots = ["/lib.rs", "/main.rs", "/mod.rs"];
    for file in tree
        .rust("broker/")
        .filter(|file| roots.iter().any(|name| file.path.ends_with(name)))
    {
        let mut of_whole_file = false;
        for (index, line) in file.text.lines().enumerate() {
            let code = without_comment(line).trim_start();
            if code.starts_with('#') {
                of_whole_file = code.starts_with("#![");
            }
            if of_whole_file && code.contains("missing_docs") && !file.text.contains("OUT_DIR") {
                complaints.push(format!(
                    "{}:{}: a whole module may not lack documentation",
                    file.path,
                    index + 1
                ));
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_reaches_outside() {
        let tree = Tree::of(&[
            (
                "broker/core/src/a.rs",
                "use std::collections::HashMap;\n// std::fs is not used\nuse std::{env, fmt};\n",
            ),
            ("broker/net/src/a.rs", "use std::net::TcpStream;\n"),
            (
                "broker/wire/src/a.rs",
                "use std::fmt;\nlet now = Instant::now();\n",
            ),
        ]);
        let complaints = check(&tree);
        assert_eq!(complaints.len(), 3, "{complaints:?}");
        assert!(complaints[1].starts_with("broker/core/src/a.rs:3: env"));
        assert!(complaints[2].starts_with("broker/wire/src/a.rs:2: Instant::now"));
    }

    #[test]
    fn the_lint_for_documentation_cannot_be_switched_off() {
        let tree = Tree::of(&[
            ("Cargo.toml", "[workspace.lints.rust]\nmissing_docs = \"deny\"\n"),
            ("broker/core/Cargo.toml", "[package]\n[lints]\nworkspace = true\n"),
            (
                "broker/core/src/lib.rs",
                "#![allow(missing_docs, reason = \"none\")]\n",
            ),
            ("broker/net/Cargo.toml", "[package]\n"),
            (
                "broker/wire/src/lib.rs",
                "#[allow(missing_docs)] mod p { include!(concat!(env!(\"OUT_DIR\"), \"p.rs\")); }",
            ),
        ]);
        let complaints = documented(&tree);
        assert_eq!(complaints.len(), 2, "{complaints:?}");
    }
}
