//! Files and functions stay short enough to be read at once.

use crate::tree::{File, Tree, without_comment};

/// Longest file, in lines outside of test modules.
pub const FILE_LINES_MAX: usize = 500;

/// Longest function, in lines that are neither blank nor comment.
pub const FUNCTION_LINES_MAX: usize = 70;

/// Complains about every file and function that is too long.
pub fn check(tree: &Tree) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in tree.rust("") {
        let lines = file.code_lines().len();
        if lines > FILE_LINES_MAX {
            complaints.push(format!(
                "{}: {lines} lines, more than {FILE_LINES_MAX}",
                file.path
            ));
        }
        complaints.extend(long_functions(file));
    }
    complaints
}

fn long_functions(file: &File) -> Vec<String> {
    let lines = file.code_lines();
    let mut complaints = Vec::new();
    for (index, &(number, line)) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let indent = &line[..line.len() - line.trim_start().len()];
        let closing = format!("{indent}}}");
        // A signature without a body, as in a trait, is followed by another item before any closing brace.
        let body = lines[index..]
            .iter()
            .position(|(_, line)| *line == closing)
            .map_or(0, |end| {
                lines[index + 1..index + end]
                    .iter()
                    .filter(|(_, line)| !without_comment(line).trim().is_empty())
                    .count()
            });
        let has_body = lines[index..]
            .iter()
            .find(|(_, line)| line.ends_with('{') || line.ends_with(';'));
        if body > FUNCTION_LINES_MAX && has_body.is_some_and(|(_, line)| line.ends_with('{')) {
            complaints.push(format!(
                "{}:{number}: {name} has {body} lines, more than {FUNCTION_LINES_MAX}",
                file.path
            ));
        }
    }
    complaints
}

fn function_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    for prefix in [
        "pub ",
        "pub(crate) ",
        "pub(super) ",
        "const ",
        "async ",
        "unsafe ",
    ] {
        rest = rest.strip_prefix(prefix).unwrap_or(rest);
    }
    let name = rest.strip_prefix("fn ")?;
    Some(&name[..name.find(['(', '<']).unwrap_or(name.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(statements: usize) -> String {
        let body: String = (0..statements)
            .map(|index| format!("    call({index});\n    // why\n\n"))
            .collect();
        format!("fn short(&self);\n\npub(crate) fn long(\n    a: u8,\n) {{\n{body}}}\n")
    }

    #[test]
    fn counts_the_lines_of_a_function_without_blanks_and_comments() {
        let tree = |statements| Tree::of(&[("broker/core/src/a.rs", &source(statements))]);
        assert_eq!(check(&tree(60)), Vec::<String>::new());
        let complaints = check(&tree(71));
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        assert!(complaints[0].contains(":3: long has"), "{complaints:?}");
    }

    #[test]
    fn counts_the_lines_of_a_file_without_its_tests() {
        let code = "const A: u8 = 0;\n".repeat(FILE_LINES_MAX);
        let with_tests = format!("{code}#[cfg(test)]\nmod tests {{\n    fn a() {{}}\n}}\n");
        assert!(check(&Tree::of(&[("broker/core/src/a.rs", &with_tests)])).is_empty());
        let longer = format!("{code}const B: u8 = 0;\n");
        assert_eq!(check(&Tree::of(&[("broker/core/src/a.rs", &longer)])).len(), 1);
    }
}
