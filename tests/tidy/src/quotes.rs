//! The troubleshooting page quotes the program truly: every text that it shows as the program's own stands in the sources.

use crate::tree::Tree;

const PAGE: &str = "broker/docs/troubleshooting.md";
/// Where the program's texts stand.
const SOURCES: &[&str] = &["broker/", "tests/xtask/src/"];
/// Endings of files whose texts people see.
const ENDINGS: &[&str] = &[".rs", ".js"];
/// Series are put together from parts; the end-to-end tests look for them in what a node says.
const SERIES: &str = "penstock_";

/// Complains about quoted texts that no source has.
pub fn check(tree: &Tree) -> Vec<String> {
    let Some(page) = tree.file(PAGE) else {
        return vec![format!("{PAGE} is missing")];
    };
    let sources: Vec<String> = tree
        .files
        .iter()
        .filter(|file| SOURCES.iter().any(|folder| file.path.starts_with(folder)))
        .filter(|file| ENDINGS.iter().any(|ending| file.path.ends_with(ending)))
        .map(|file| as_said(&file.text))
        .collect();
    let mut complaints = Vec::new();
    for (index, line) in page.text.lines().enumerate() {
        for quoted in quotes(line) {
            if !sources.iter().any(|text| text.contains(quoted)) {
                complaints.push(format!("{PAGE}:{}: no source has the text {quoted:?}", index + 1));
            }
        }
    }
    complaints
}

/// Texts in backticks, but for series, commands and requests: of a request what counts is its path, of a setting its key.
fn quotes(line: &str) -> Vec<&str> {
    let spans = line.split('`').skip(1).step_by(2);
    spans
        .filter(|span| !span.starts_with(SERIES))
        .filter(|span| !span.starts_with("cargo ") && !span.starts_with("penstock "))
        .map(|span| {
            let path = span.strip_prefix("POST ").or_else(|| span.strip_prefix("GET "));
            let setting = span
                .strip_prefix("--set ")
                .map(|set| set.split('=').next().unwrap_or(set));
            path.or(setting).unwrap_or(span)
        })
        .collect()
}

/// A source with its literals as they are printed: without line breaks and escapes.
fn as_said(text: &str) -> String {
    let mut said = String::with_capacity(text.len());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let mut whole = line;
        // A line that ends in a backslash goes on at the first letter of the next one.
        while let Some(begun) = whole.strip_suffix('\\') {
            said.push_str(begun);
            whole = lines.next().unwrap_or_default().trim_start();
        }
        said.push_str(whole);
        said.push('\n');
    }
    said.replace("\\\"", "\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_the_program_does_not_say_is_found() {
        let page = "| `it is \"full\" now` | `penstock_full` is 1: `--set store.size=1`, `POST /empty`, `penstock key` |\n\
                    | `it is empty` | `POST /fill` | `--set store.age=1` |\n";
        let source = "fn f() { bail!(\"it is \\\"full\\\" \\\n        now\"); key(\"store.size\"); route(\"/empty\") }\n";
        let tree = Tree::of(&[(PAGE, page), ("broker/net/src/a.rs", source)]);
        let complaints = check(&tree);
        assert_eq!(complaints.len(), 3, "{complaints:#?}");
        for (complaint, text) in complaints.iter().zip(["it is empty", "/fill", "store.age"]) {
            assert!(complaint.contains(&format!("{PAGE}:2:")) && complaint.contains(text));
        }
    }
}
