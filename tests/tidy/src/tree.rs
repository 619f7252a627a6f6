//! The text files of the repository, read once per test.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Names of folders that hold nothing of ours.
const NOT_OURS: &[&str] = &[".git", ".venv", "node_modules", "target"];

/// Endings of the files that are read as text.
const TEXT: &[&str] = &[
    "js", "json", "md", "mjs", "proto", "rs", "sh", "toml", "ts", "wit", "yml",
];

/// One text file.
#[derive(Clone, Debug)]
pub struct File {
    /// Its path from the root of the repository, with `/` between the parts.
    pub path: String,
    /// The whole text.
    pub text: String,
}

/// The tree: texts, and the names of everything else.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// The text files in the order of their paths.
    pub files: Vec<File>,
    /// Every file and folder, by path from the root.
    pub paths: BTreeSet<String>,
}

impl Tree {
    /// Reads the repository that this crate stands in, without what the root's `.gitignore` names.
    pub fn read() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(2)
            .expect("two folders below the root");
        let ignored: Vec<String> = fs::read_to_string(root.join(".gitignore"))
            .unwrap_or_default()
            .lines()
            .map(|line| line.trim().trim_matches('/').to_owned())
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .collect();
        let mut tree = Self::default();
        tree.walk(root, root, &ignored);
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        assert!(
            tree.files.len() > 10,
            "the repository was not found at {}",
            root.display()
        );
        tree
    }

    /// A tree of these texts, for the checks' own tests.
    pub fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        for (path, text) in files {
            tree.files.push(File {
                path: (*path).to_owned(),
                text: (*text).to_owned(),
            });
            for part in Path::new(path).ancestors() {
                tree.paths.insert(part.to_string_lossy().into_owned());
            }
        }
        tree
    }

    /// The text file at this path.
    pub fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// The Rust source files below this folder.
    pub fn rust<'a>(&'a self, below: &'a str) -> impl Iterator<Item = &'a File> {
        self.files
            .iter()
            .filter(move |file| file.path.starts_with(below) && file.path.ends_with(".rs"))
    }

    fn walk(&mut self, root: &Path, folder: &Path, ignored: &[String]) {
        for entry in fs::read_dir(folder).expect("a folder of the repository can be listed") {
            let path: PathBuf = entry.expect("an entry can be read").path();
            let name = path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default();
            if NOT_OURS.contains(&name.as_str()) || ignored.contains(&name) {
                continue;
            }
            let relative = path
                .strip_prefix(root)
                .expect("below the root")
                .to_string_lossy()
                .replace('\\', "/");
            self.paths.insert(relative.clone());
            if path.is_dir() {
                self.walk(root, &path, ignored);
            } else if is_text(&path)
                && let Ok(text) = fs::read_to_string(&path)
            {
                self.files.push(File { path: relative, text });
            }
        }
    }
}

/// Scripts without an ending, like the one of the gate, count as text too.
fn is_text(path: &Path) -> bool {
    match path.extension() {
        Some(ending) => TEXT.iter().any(|text| ending == *text),
        None => path
            .parent()
            .and_then(Path::file_name)
            .is_some_and(|folder| folder == ".ci"),
    }
}

impl File {
    /// Whether the whole file is test code, or code that a tool has written.
    pub fn is_test(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        let after_first = self.path.split_once('/').map_or("", |(_, rest)| rest);
        name == "tests.rs"
            || name.ends_with("_test.rs")
            || name.ends_with("_tests.rs")
            || format!("/{after_first}").contains("/tests/")
            || self.path.contains("/generated/")
    }

    /// The lines outside of test modules, with their numbers from 1.
    pub fn code_lines(&self) -> Vec<(usize, &str)> {
        if self.is_test() {
            return Vec::new();
        }
        let lines: Vec<&str> = self.text.lines().collect();
        let mut kept = Vec::new();
        let mut index = 0;
        while index < lines.len() {
            match test_item_end(&lines, index) {
                Some(end) => index = end + 1,
                None => {
                    kept.push((index + 1, lines[index]));
                    index += 1;
                }
            }
        }
        kept
    }
}

/// When `#[cfg(test)]` stands at this line, the last line of the item that it marks. The formatter puts the closing
/// brace in the same column.
fn test_item_end(lines: &[&str], start: usize) -> Option<usize> {
    let indent = lines[start].strip_suffix("#[cfg(test)]")?;
    let mut item = start + 1;
    while lines
        .get(item)
        .is_some_and(|line| line.trim_start().starts_with("#["))
    {
        item += 1;
    }
    if lines.get(item)?.trim_end().ends_with('{') {
        let closing = format!("{indent}}}");
        (item..lines.len()).find(|&line| lines[line] == closing)
    } else {
        Some(item)
    }
}

/// A line of Rust without its comment. What stands inside a string may be cut by mistake only after ` //`.
pub fn without_comment(line: &str) -> &str {
    if line.trim_start().starts_with("//") {
        return "";
    }
    line.find(" //").map_or(line, |end| &line[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_modules_are_left_out_of_the_code() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {\n    }\n}\n\
                    #[cfg(test)]\nmod more;\nfn c() {} // why\n";
        let tree = Tree::of(&[
            ("broker/core/src/x.rs", text),
            ("broker/core/src/x/tests.rs", "fn d() {}\n"),
        ]);
        let lines: Vec<&str> = tree.files[0]
            .code_lines()
            .into_iter()
            .map(|(_, line)| line)
            .collect();
        assert_eq!(lines, ["fn a() {}", "fn c() {} // why"]);
        assert!(tree.files[1].is_test());
        assert_eq!(without_comment(lines[1]), "fn c() {}");
    }

    #[test]
    fn a_test_crate_holds_code_and_its_tests_folder_tests() {
        let tree = Tree::of(&[("tests/sim/src/world.rs", ""), ("tests/e2e/tests/all.rs", "")]);
        assert!(!tree.files[0].is_test());
        assert!(tree.files[1].is_test());
    }
}
