//! What the documents promise of the outer surface, the code has, and the other way round: HTTP routes and configuration keys.

use crate::tree::{File, Tree};
use std::collections::BTreeSet;

const ROUTER: &str = "broker/net/src/http/mod.rs";
const CONTRACT: &str = "broker/docs/client-contract.md";
const KEYS: &str = "broker/server/src/config/keys.rs";
const CONFIGURATION: &str = "broker/server/src/config/";

/// Complains about routes that stand only in the router or only in section 7 of the client contract.
pub fn routes(tree: &Tree) -> Vec<String> {
    let (Some(router), Some(contract)) = (tree.file(ROUTER), tree.file(CONTRACT)) else {
        return vec![format!("{ROUTER} or {CONTRACT} is missing")];
    };
    let served = literals(router, |before| before.trim_end().ends_with(".route("));
    let section = contract.text.split("\n## 7 ").nth(1).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    // A route stands in the first column of a table, or behind its method.
    let promised: BTreeSet<String> = section
        .lines()
        .filter(|line| {
            ["| POST", "| GET", "| PUT"]
                .iter()
                .any(|start| line.starts_with(start))
                || line.contains("GET /")
        })
        .flat_map(|line| line.trim_start_matches("| ").split(" | ").next())
        .flat_map(|column| column.split([' ', ',', ';', '.', '(']))
        .filter(|word| word.starts_with('/'))
        .map(str::to_owned)
        .collect();
    let only = |these: &BTreeSet<String>, those: &BTreeSet<String>, what: &str| -> Vec<String> {
        let missing = these.difference(those);
        missing.map(|route| format!("{route} {what}")).collect()
    };
    let mut complaints = only(
        &served,
        &promised,
        "is served, but section 7 of the client contract lacks it",
    );
    complaints.extend(only(
        &promised,
        &served,
        "is promised by the client contract, but not served",
    ));
    complaints
}

/// Complains about configuration keys that stand in the table and are read nowhere.
pub fn keys(tree: &Tree) -> Vec<String> {
    let Some(table) = tree.file(KEYS) else {
        return vec![format!("{KEYS} is missing")];
    };
    let readers: Vec<&File> = tree
        .rust(CONFIGURATION)
        .filter(|file| file.path != KEYS)
        .collect();
    let unread = |key: &String| {
        let quoted = format!("\"{key}\"");
        !readers.iter().any(|file| file.text.contains(&quoted))
    };
    let keys = literals(table, |before| before.trim_end().ends_with(" key("));
    if keys.is_empty() {
        return vec![format!(
            "{KEYS} has no key: this check looks for `key(` and a name"
        )];
    }
    keys.iter()
        .filter(|key| unread(key))
        .map(|key| format!("{key} is documented, but nothing under {CONFIGURATION} reads it"))
        .collect()
}

/// Complains about environment variables that the program reads: the reference page says that there are none. A build script
/// is not the program, and cargo tells it by variables where to write.
pub fn environment(tree: &Tree) -> Vec<String> {
    let reads = |line: &str| line.contains(concat!("env::", "var"));
    tree.rust("broker/")
        .filter(|file| !file.path.ends_with("/build.rs"))
        .filter(|file| file.code_lines().iter().any(|(_, line)| reads(line)))
        .map(|file| {
            format!(
                "{} reads an environment variable: a setting belongs in {KEYS}",
                file.path
            )
        })
        .collect()
}

/// The string literals whose preceding text meets a condition; it may stand on the line before.
fn literals(file: &File, wanted: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut rest = file.text.as_str();
    let mut before = String::new();
    while let Some(start) = rest.find('"') {
        before.push_str(&rest[..start]);
        let Some(length) = rest[start + 1..].find('"') else {
            break;
        };
        if wanted(&before) {
            found.insert(rest[start + 1..start + 1 + length].to_owned());
        }
        before.clear();
        rest = &rest[start + 2 + length..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_on_one_side_only_is_found() {
        let router =
            "fn router() { Router::new()\n.route(\"/a\", get(a))\n.route(\n    \"/b\",\n    post(b)) }";
        let contract = "## 6 x\n\n## 7 HTTP\n\n| POST /b | /not_a_route |\n\nGET /c is for operators.\n\n## 8 y\n| GET /d | z |\n";
        let tree = Tree::of(&[(ROUTER, router), (CONTRACT, contract)]);
        let complaints = routes(&tree);
        assert_eq!(complaints.len(), 2, "{complaints:?}");
        assert!(complaints[0].starts_with("/a is served") && complaints[1].starts_with("/c is promised"));
    }

    #[test]
    fn a_key_that_nobody_reads_is_found() {
        let table = "static ALL: &[Key] = &[\n    key(\n        \"a.read\",\n        \"1\",\n        \"Text.\"),\n    key(\"a.idle\", \"2\", \"Text.\"),\n];";
        let reader = "fn parse() { values.integer(\"a.read\", 1..=2) }";
        let path = "broker/server/src/config/mod.rs";
        let complaints = keys(&Tree::of(&[(KEYS, table), (path, reader)]));
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        assert!(complaints[0].starts_with("a.idle"));
    }

    #[test]
    fn a_variable_of_the_environment_is_found() {
        let source = concat!("fn level() { std::env::", "var(\"LEVEL\") }\n");
        let tree = Tree::of(&[
            ("broker/net/src/a.rs", source),
            ("broker/net/src/b.rs", "fn b() {}\n"),
            ("broker/net/build.rs", source),
        ]);
        let complaints = environment(&tree);
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        assert!(complaints[0].starts_with("broker/net/src/a.rs reads"));
    }
}
