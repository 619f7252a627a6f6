//! Words that may not stand anywhere: unfinished work, tests that are switched off, and paths of a machine.

use crate::tree::{Tree, without_comment};

/// Put together from two halves, so that this file does not contain them.
const ANYWHERE: &[(&str, &str)] = &[
    (
        concat!("TO", "DO"),
        "unfinished work belongs in the code or nowhere",
    ),
    (
        concat!("FIX", "ME"),
        "unfinished work belongs in the code or nowhere",
    ),
    (
        concat!("XX", "X"),
        "unfinished work belongs in the code or nowhere",
    ),
    (concat!("to", "do!"), "a stub is not a part"),
    (concat!("unimpl", "emented!"), "a stub is not a part"),
    (concat!("#[ig", "nore"), "a test that does not run proves nothing"),
    (concat!("/wo", "rk/"), "a path of one machine"),
    (concat!("/ho", "me/"), "a path of one machine"),
    (concat!("/ro", "ot/"), "a path of one machine"),
];

/// Where a failed unwrap would take a whole node down on input from outside.
const NO_UNWRAP: &[&str] = &["broker/core/src/", "broker/wire/src/"];

/// Complains about every line with a banned word.
pub fn check(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in &tree.files {
        if file.path.ends_with("package-lock.json") {
            continue;
        }
        for (index, line) in file.text.lines().enumerate() {
            for (word, why) in ANYWHERE {
                if contains_word(line, word) {
                    complaints.push(format!("{}:{}: {word}: {why}", file.path, index + 1));
                }
            }
        }
    }
    for folder in NO_UNWRAP {
        for file in tree.rust(folder) {
            for (number, line) in file.code_lines() {
                if without_comment(line).contains(concat!(".unwr", "ap()")) {
                    complaints.push(format!("{}:{number}: an unwrap outside of tests", file.path));
                }
            }
        }
    }
    complaints
}

/// The word, not as a part of a longer one.
fn contains_word(line: &str, word: &str) -> bool {
    let is_letter = |character: char| character.is_ascii_alphanumeric() || character == '_';
    line.match_indices(word).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + word.len()..].chars().next();
        let starts = !word.starts_with(is_letter) || !before.is_some_and(is_letter);
        let ends = !word.ends_with(is_letter) || !after.is_some_and(is_letter);
        starts && ends
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_words_but_not_parts_of_words() {
        let tree = Tree::of(&[
            ("README.md", concat!("TO", "DO later\nmasTO", "DOn\n")),
            (
                "broker/core/src/a.rs",
                concat!(
                    "fn a() { b().unwr",
                    "ap() }\n#[cfg(test)]\nmod t {\n    x.unwr",
                    "ap()\n}\n"
                ),
            ),
            (
                "broker/net/src/a.rs",
                concat!("fn a() { b().unwr", "ap() }\n// /wo", "rk/main\n"),
            ),
        ]);
        let complaints = check(&tree);
        assert_eq!(complaints.len(), 3, "{complaints:?}");
        assert!(complaints[0].starts_with("README.md:1:"));
        assert!(complaints[1].starts_with("broker/net/src/a.rs:2:"));
        assert!(complaints[2].starts_with("broker/core/src/a.rs:1:"));
    }
}
