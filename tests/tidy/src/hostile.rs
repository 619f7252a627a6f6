//! The table of hostile inputs and the tests that stand for its rows agree.

use crate::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

const PAGE: &str = "broker/docs/hostile.md";
const TESTS: &str = "tests/e2e/tests/all/";

/// Complains about rows that are missing or repeated, rows that claim tests which do not exist, and tests without a row.
pub fn check(tree: &Tree) -> Vec<String> {
    let Some(page) = tree.file(PAGE) else {
        return vec![format!("{PAGE} is missing")];
    };
    let named = tests_of_rows(tree);
    let mut rows = BTreeMap::new();
    let mut complaints = Vec::new();
    for line in page.text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, row, _, state, place, _] = cells[..] else {
            continue;
        };
        if !is_row(row) {
            continue;
        }
        if rows.insert(row, state).is_some() {
            complaints.push(format!("{PAGE}: {row} stands there twice"));
        }
        let has_tests = named.contains(&row.to_ascii_lowercase());
        let claims: Vec<&str> = place.split('`').skip(1).step_by(2).collect();
        match state {
            "tested" if !has_tests => complaints.push(format!("{PAGE}: no test is named for {row}")),
            "covered" if claims.is_empty() => complaints.push(format!("{PAGE}: {row} names no test")),
            "covered" => complaints.extend(
                claims
                    .iter()
                    .filter(|name| !is_test(tree, name))
                    .map(|name| format!("{PAGE}: {row} names {name}, which is no test")),
            ),
            "open" if has_tests => complaints.push(format!("{PAGE}: {row} is open, but has tests")),
            "open" if place.is_empty() => complaints.push(format!("{PAGE}: {row} does not say what is left")),
            "tested" | "open" => {}
            _ => complaints.push(format!("{PAGE}: {row} has the unknown state {state}")),
        }
    }
    for wanted in all() {
        if !rows.contains_key(wanted.as_str()) {
            complaints.push(format!("{PAGE}: {wanted} is missing"));
        }
    }
    let known: BTreeSet<String> = rows.keys().map(|row| row.to_ascii_lowercase()).collect();
    complaints.extend(
        named
            .difference(&known)
            .map(|row| format!("{TESTS}: a test is named for {row}, which is no row of {PAGE}")),
    );
    complaints
}

/// Every row there is: the odd numbers of the reports, and all threats.
fn all() -> impl Iterator<Item = String> {
    let reports = (1..=81).step_by(2).map(|number| format!("B{number:02}"));
    reports.chain((1..=29).map(|number| format!("S{number}")))
}

fn is_row(text: &str) -> bool {
    let digits = text.strip_prefix(['B', 'S']).unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// The rows, in small letters, that names of end-to-end tests begin with.
fn tests_of_rows(tree: &Tree) -> BTreeSet<String> {
    let names = tree
        .rust(TESTS)
        .flat_map(|file| file.text.lines().filter_map(|line| line.strip_prefix("fn ")));
    names
        .filter_map(|name| name.split_once('_'))
        .map(|(first, _)| first.to_owned())
        .filter(|first| is_row(&first.to_ascii_uppercase()))
        .collect()
}

/// Whether a function of this name is marked as a test, whatever runs it.
fn is_test(tree: &Tree, name: &str) -> bool {
    tree.files
        .iter()
        .filter(|file| file.path.ends_with(".rs"))
        .any(|file| {
            let mut before = "";
            file.text.lines().map(str::trim).any(|line| {
                let is_marked = before.starts_with("#[") && before.ends_with("test]");
                before = line;
                let begins = line.trim_start_matches("async ").strip_prefix("fn ");
                let rest = begins.and_then(|line| line.strip_prefix(name));
                is_marked && rest.is_some_and(|rest| rest.starts_with('('))
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page that has every row, those that are given in their own way.
    fn page(given: &[(&str, &str, &str)]) -> String {
        all()
            .map(|row| {
                let found = given.iter().find(|(name, ..)| *name == row);
                let (_, state, place) = found.unwrap_or(&("", "open", "later"));
                format!("| {row} | x | {state} | {place} |\n")
            })
            .collect()
    }

    #[test]
    fn claims_without_tests_and_tests_without_rows_are_found() {
        let page = page(&[
            ("B01", "tested", ""),
            ("B03", "covered", "`a_real_one`, `async_one`, `helper`"),
            ("B05", "tested", ""),
            ("B07", "covered", "nothing"),
            ("B09", "open", ""),
            ("S1", "done", "x"),
        ]);
        let tests = "#[test]\nfn b01_x() {}\n#[test]\nfn b11_x() {}\n#[test]\nfn b99_x() {}\n#[test]\nfn sum_x() {}\n";
        let others = "#[test]\nfn a_real_one() {}\n#[tokio::test]\nasync fn async_one() {}\nfn helper() {}\n";
        let tree = Tree::of(&[
            (PAGE, &page),
            ("tests/e2e/tests/all/hostile/x.rs", tests),
            ("broker/net/src/x.rs", others),
        ]);
        let complaints = check(&tree);
        let about = [
            "B03 names helper",
            "for B05",
            "B07 names no",
            "B09 does not",
            "B11 is open",
            "S1 has",
            "for b99",
        ];
        assert_eq!(complaints.len(), about.len(), "{complaints:#?}");
        for part in about {
            assert!(
                complaints.iter().any(|one| one.contains(part)),
                "{part}: {complaints:#?}"
            );
        }
    }

    #[test]
    fn a_row_that_is_missing_or_stands_twice_is_found() {
        let whole = page(&[]);
        let line = "| S29 | x | open | later |\n";
        let without = Tree::of(&[(PAGE, &whole.replace(line, ""))]);
        assert_eq!(check(&without), [format!("{PAGE}: S29 is missing")]);
        let twice = Tree::of(&[(PAGE, &format!("{whole}{line}"))]);
        assert_eq!(check(&twice), [format!("{PAGE}: S29 stands there twice")]);
    }
}
