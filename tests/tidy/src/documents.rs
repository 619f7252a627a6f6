//! Documents point only at what exists, and the root of the repository stays tidy.

use crate::tree::Tree;

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

/// Files of a plugin's own folder, wherever its author keeps it.
const OF_A_PLUGIN: &[&str] = &["binding.toml", "build.toml", "plugin.toml"];

/// Complains about links and file names that lead nowhere.
pub fn check(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        // A bare name belongs to one of the folders that were named before it in the same paragraph, item or row.
        let mut named: Vec<String> = Vec::new();
        for (index, line) in file.text.lines().enumerate() {
            if starts_paragraph(line) {
                named.clear();
            }
            for target in links(line) {
                let path = target.split('#').next().unwrap_or_default();
                if !path.is_empty() && resolve(tree, folder(&file.path), path).is_none() {
                    complaints.push(format!(
                        "{}:{}: the link {target} leads nowhere",
                        file.path,
                        index + 1
                    ));
                }
            }
            for name in file_names(line)
                .into_iter()
                .filter(|name| !OF_A_PLUGIN.contains(name))
            {
                let bases = ["", folder(&file.path)].into_iter().chain(BASES.iter().copied());
                let found = bases
                    .chain(named.iter().map(String::as_str))
                    .find_map(|base| resolve(tree, base, name));
                match found {
                    Some(path) if name.contains('/') => {
                        named.push(if name.ends_with('/') {
                            path
                        } else {
                            folder(&path).to_owned()
                        });
                    }
                    Some(_) => {}
                    None => complaints.push(format!("{}:{}: there is no {name}", file.path, index + 1)),
                }
            }
        }
    }
    complaints
}

/// Blank lines, list items, headings and table rows begin something new.
fn starts_paragraph(line: &str) -> bool {
    let line = line.trim_start();
    let numbered = line
        .split_once(". ")
        .is_some_and(|(number, _)| number.parse::<u32>().is_ok());
    line.is_empty() || line.starts_with(['-', '#', '|']) || numbered
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

fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
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

/// Words in backticks that are a path of this repository: with a source file's ending, below a folder of the root, or a
/// folder by its last character.
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
                || word.ends_with('/')
                || ENDINGS
                    .iter()
                    .any(|ending| word.ends_with(ending) && word.len() > ending.len())
        })
        .collect()
}

/// The path from the root that this path from a folder leads to, if there is such a file or folder.
fn resolve(tree: &Tree, base: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = base.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    let whole = parts.join("/");
    (whole.is_empty() || tree.paths.contains(&whole)).then_some(whole)
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
    fn a_bare_name_belongs_to_a_folder_of_its_paragraph() {
        let page = "`core/src/slot/` has `group.rs`,\nand `log.rs`\n\n`group.rs` of nothing\n";
        let tree = Tree::of(&[
            ("broker/ARCHITECTURE.md", page),
            ("broker/core/src/slot/group.rs", ""),
            ("broker/core/src/channel/log.rs", ""),
        ]);
        let complaints = check(&tree);
        assert_eq!(complaints.len(), 2, "{complaints:?}");
        assert!(complaints[0].ends_with(":2: there is no log.rs"));
        assert!(complaints[1].ends_with(":4: there is no group.rs"));
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
