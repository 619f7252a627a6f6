//! Documents point only at what exists, and the root of the repository stays tidy.

use crate::tree::{File, Tree};

/// Folders that may stand visibly in the root.
const ROOT_FOLDERS: &[&str] = &["broker", "plugin-sdk", "plugins", "proto", "tests", "wit"];

/// Files that may stand visibly in the root.
const ROOT_FILES: &[&str] = &[
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "clippy.toml",
    "deny.toml",
    "rust-toolchain.toml",
    "rustfmt.toml",
];

/// Endings by which a word in backticks is taken for a file of ours.
const ENDINGS: &[&str] = &[
    ".js", ".md", ".mjs", ".proto", ".rs", ".sh", ".toml", ".ts", ".wit",
];

/// Folders that a path in backticks may be given from, besides the root and the document's own.
const BASES: &[&str] = &["broker", "broker/core/src"];

/// Complains about links and file names that lead nowhere.
pub fn check(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        for (index, line) in file.text.lines().enumerate() {
            for target in links(line) {
                let path = target.split('#').next().unwrap_or_default();
                if !path.is_empty() && !exists(tree, folder(file), path) {
                    complaints.push(format!(
                        "{}:{}: the link {target} leads nowhere",
                        file.path,
                        index + 1
                    ));
                }
            }
            for name in file_names(line) {
                let known = ["", folder(file)]
                    .iter()
                    .chain(BASES)
                    .any(|base| exists(tree, base, name));
                if !known {
                    complaints.push(format!("{}:{}: there is no {name}", file.path, index + 1));
                }
            }
        }
    }
    complaints
}

/// Complains about a folder or file in the root that does not belong there.
pub fn root(tree: &Tree) -> Vec<String> {
    tree.paths
        .iter()
        .filter(|path| !path.contains('/') && !path.is_empty() && !path.starts_with('.'))
        .filter(|path| !ROOT_FOLDERS.contains(&path.as_str()) && !ROOT_FILES.contains(&path.as_str()))
        .map(|path| format!("{path} does not belong in the root"))
        .collect()
}

fn folder(file: &File) -> &str {
    file.path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Targets of Markdown links within the repository.
fn links(line: &str) -> Vec<&str> {
    line.match_indices("](")
        .filter_map(|(start, _)| line[start + 2..].split_once(')').map(|(target, _)| target))
        .filter(|target| {
            !target.contains("://") && !target.starts_with('#') && !target.starts_with("mailto:")
        })
        .collect()
}

/// Words in backticks that are a path of this repository: with a source file's ending, or below a folder of the root.
fn file_names(line: &str) -> Vec<&str> {
    line.split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| {
            !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || "<>*{}$|=:()".contains(c))
        })
        .filter(|word| !word.starts_with(['/', '.', '-']))
        .filter(|word| {
            let below_root = ROOT_FOLDERS
                .iter()
                .any(|folder| word.starts_with(&format!("{folder}/")));
            below_root
                || ENDINGS
                    .iter()
                    .any(|ending| word.ends_with(ending) && word.len() > ending.len())
        })
        .collect()
}

fn exists(tree: &Tree, base: &str, path: &str) -> bool {
    let mut parts: Vec<&str> = base.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                if parts.pop().is_none() {
                    return false;
                }
            }
            name => parts.push(name),
        }
    }
    parts.is_empty() || tree.paths.contains(&parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_or_name_that_leads_nowhere_is_found() {
        let page = "[up](../README.md) [out](https://example.org) [here](#part) [gone](gone.md#part)\n\
                    `core/src/lib.rs`, `lib.rs`, `broker/core/`, `cargo run`, `missing.rs`, `tests/none`, `a.b`\n";
        let tree = Tree::of(&[
            ("broker/ARCHITECTURE.md", page),
            ("README.md", ""),
            ("broker/core/src/lib.rs", ""),
        ]);
        let complaints = check(&tree);
        assert_eq!(complaints.len(), 3, "{complaints:?}");
        assert!(complaints[0].contains("gone.md#part"));
        assert!(complaints[1].contains("missing.rs"));
        assert!(complaints[2].contains("tests/none"));
    }

    #[test]
    fn a_stray_folder_in_the_root_is_found() {
        let tree = Tree::of(&[
            ("scripts/a.sh", ""),
            ("broker/core/src/lib.rs", ""),
            (".ci/run", ""),
            ("notes.md", ""),
        ]);
        assert_eq!(
            root(&tree),
            [
                "notes.md does not belong in the root",
                "scripts does not belong in the root"
            ]
        );
    }
}
