//! Every rule id that is cited anywhere stands in `broker/docs/rules.md`, once.

use crate::tree::Tree;
use std::collections::BTreeSet;

/// The page that defines the rules.
pub const PAGE: &str = "broker/docs/rules.md";

/// Families whose ids are written with a hyphen, or with an underscore where they are Rust names.
const HYPHENATED: &[&str] = &["AP", "CH", "CL", "CO", "GA", "M", "PC", "PR", "RD", "SF", "SL"];

/// Families whose ids are a letter and a number. They are looked for in comments and documents only.
const BARE: &[&str] = &["F", "R", "S"];

/// Complains about ids that are cited and not defined, or defined twice.
pub fn check(tree: &Tree) -> Vec<String> {
    let Some(page) = tree.file(PAGE) else {
        return vec![format!("{PAGE} is missing")];
    };
    let mut defined = BTreeSet::new();
    let mut complaints = Vec::new();
    for line in page.text.lines() {
        let Some(id) = line
            .strip_prefix("- ")
            .and_then(|rest| cited(rest, true).into_iter().next())
        else {
            continue;
        };
        if line["- ".len()..].starts_with(&id) && !defined.insert(id.clone()) {
            complaints.push(format!("{PAGE}: {id} is defined twice"));
        }
    }
    for file in &tree.files {
        for (index, line) in file.text.lines().enumerate() {
            let prose = file.path.ends_with(".md") || line.trim_start().starts_with("//");
            for id in cited(line, prose) {
                if !defined.contains(&id) {
                    complaints.push(format!(
                        "{}:{}: {id} is not defined in {PAGE}",
                        file.path,
                        index + 1
                    ));
                }
            }
        }
    }
    complaints
}

/// The ids in a line, in the form in which the page defines them.
fn cited(line: &str, prose: bool) -> Vec<String> {
    let word = |character: char| character.is_ascii_alphanumeric() || character == '_' || character == '-';
    line.split(|character| !word(character))
        .filter_map(|token| id(token, prose))
        .collect()
}

fn id(token: &str, prose: bool) -> Option<String> {
    let letters = token.find(|character: char| !character.is_ascii_uppercase())?;
    let (family, rest) = token.split_at(letters);
    if HYPHENATED.contains(&family) {
        return Some(format!("{family}-{}", number(rest.strip_prefix(['-', '_'])?)?));
    }
    if prose && BARE.contains(&family) {
        return Some(format!("{family}{}", number(rest)?));
    }
    None
}

/// The number at the start, when the word ends with it or goes on after a hyphen.
fn number(text: &str) -> Option<&str> {
    let end = text
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    (!digits.is_empty() && digits.len() <= 2 && (rest.is_empty() || rest.starts_with('-'))).then_some(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_ids_in_code_comments_and_prose() {
        assert_eq!(
            cited("ensure!(CH_2, held, \"no\"); // see M-13, AP-3.", false),
            ["CH-2", "M-13", "AP-3"]
        );
        assert_eq!(
            cited("/// A pitfall (F5), and R25-like ones.", true),
            ["F5", "R25"]
        );
        let none: [&str; 0] = [];
        assert_eq!(cited("let F5 = 0xF5; SHA-256 UTF-8 CH_2B R100000", false), none);
    }

    #[test]
    fn complains_about_what_is_not_defined() {
        let tree = Tree::of(&[
            (PAGE, "- CH-2 One.\n- F5 Two.\n- CH-2 Again.\n"),
            (
                "broker/core/src/a.rs",
                concat!("// CH-2 and F5 hold, CH-", "99 does not.\nconst R31: u8 = 0;\n"),
            ),
        ]);
        let complaints = check(&tree);
        assert_eq!(complaints.len(), 2, "{complaints:?}");
        assert!(complaints[0].contains("CH-2 is defined twice"));
        assert!(complaints[1].starts_with(concat!("broker/core/src/a.rs:1: CH-", "99")));
    }
}
