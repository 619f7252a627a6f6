//! README from top to bottom: every block of commands is run as it stands, in its order, and says what the page shows. Only
//! ports differ, and numbers that no two runs share.

use anyhow::{Context, Result, bail, ensure};
use penstock_e2e::{Node, binary, first_line, target_folder};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How the page calls the binary that is being tested.
const BINARY: &str = "cargo run -q -p penstock --";
/// The commands that build and then do what this test does: they are not run within it.
const TO_BUILD: [&str; 2] = ["cargo xtask run", "cargo xtask test"];
/// Addresses of a development node as the page has them.
const HTTP: &str = "127.0.0.1:5001";
const WEBSOCKET: &str = "127.0.0.1:5200";

/// A fenced block.
struct Block {
    /// Where it begins, from 1.
    line: usize,
    language: String,
    text: String,
}

fn readme() -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_inside = false;
    for (index, line) in page.lines().enumerate() {
        match (line.strip_prefix("```"), blocks.last_mut()) {
            (Some(_), _) if is_inside => is_inside = false,
            (Some(language), _) => {
                is_inside = true;
                blocks.push(Block {
                    line: index + 1,
                    language: language.to_owned(),
                    text: String::new(),
                });
            }
            (None, Some(block)) if is_inside => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, _) => {}
        }
    }
    blocks
}

/// The line with `#` for every long number: ids, times, keys and their hashes differ from run to run.
fn without_numbers(line: &str) -> String {
    let mut out = String::new();
    let mut run = String::new();
    for character in line.chars().chain(['\n']) {
        if character.is_ascii_hexdigit() {
            run.push(character);
            continue;
        }
        let is_number = run.len() >= 9 && run.contains(|digit: char| digit.is_ascii_digit());
        out.push_str(if is_number { "#" } else { &run });
        out.push(character);
        run.clear();
    }
    out.trim_end().to_owned()
}

/// Whether all lines that are shown were said, in this order.
fn holds(shown: &str, said: &str) -> bool {
    let mut said = said.lines().map(without_numbers);
    let mut lines = shown.lines().filter(|line| !line.is_empty());
    lines.all(|line| said.any(|found| found == without_numbers(line)))
}

/// The reader's terminal: a folder, and the addresses of the node.
struct Terminal {
    top: PathBuf,
    folder: PathBuf,
    http: String,
    websocket: String,
}

impl Terminal {
    fn new(top: &Path, node: &Node) -> Self {
        Self {
            top: top.to_owned(),
            folder: top.to_owned(),
            http: node.http().to_owned(),
            websocket: node.websocket().trim_start_matches("ws://").to_owned(),
        }
    }

    fn here(&self, text: &str) -> Result<String> {
        let binary = binary()?;
        Ok(text
            .replace(HTTP, &self.http)
            .replace(WEBSOCKET, &self.websocket)
            .replace(BINARY, &format!("'{}'", binary.display())))
    }

    /// Saves a script under the name in its first line.
    fn paste(&self, block: &Block) -> Result<()> {
        let name = block
            .text
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("// "));
        let name = name.with_context(|| format!("line {}: a script without a name", block.line))?;
        fs::write(self.folder.join(name), self.here(&block.text)?)?;
        Ok(())
    }

    /// Runs commands as one shell would that stays open, and returns what they print.
    fn run(&mut self, block: &Block) -> Result<String> {
        let place = self.top.join("place");
        let script = format!("{}\npwd >'{}'", self.here(&block.text)?, place.display());
        let output = Command::new("sh")
            .args(["-ec", &script])
            .current_dir(&self.folder)
            .env("CARGO_TARGET_DIR", target_folder()?)
            .stdin(Stdio::null())
            .output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            output.status.success(),
            "README.md:{}: {}\n{said}{}",
            block.line,
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        self.folder = PathBuf::from(fs::read_to_string(place)?.trim());
        Ok(said)
    }
}

#[test]
fn every_block_of_the_readme_does_what_the_page_shows() -> Result<()> {
    let page = readme()?;
    let node = Node::start(&[])?;
    let folder = tempfile::tempdir()?;
    let mut terminal = Terminal::new(folder.path(), &node);
    let mut said = format!("{}\n", node.ready_line());
    let mut served = false;
    for block in blocks(&page) {
        match block.language.as_str() {
            "sh" if block.text.starts_with("cargo xtask ") => {
                let mut lines = block.text.lines();
                ensure!(
                    lines.all(|line| TO_BUILD.iter().any(|known| line.starts_with(known))),
                    "README.md:{}: not every command is run here",
                    block.line
                );
            }
            "sh" if block.text.contains(" serve ") => {
                set_hash(&terminal.folder.join("penstock.toml"), &said)?;
                serve(&terminal, &block)?;
                served = true;
            }
            "sh" => said = terminal.run(&block)?,
            "js" => terminal.paste(&block)?,
            "json" | "text" => {
                let shown = block.text.replace("127.0.0.1:5100", node.tcp());
                let shown = terminal.here(&shown)?;
                ensure!(
                    holds(&shown, &said),
                    "README.md:{} shows\n{shown}\nbut this was said:\n{said}",
                    block.line
                );
            }
            other => bail!("README.md:{}: nobody runs a block of {other:?}", block.line),
        }
    }
    assert!(served, "the page starts a node without --dev");
    Ok(())
}

/// What the reader does by hand: the hash that `penstock key` said goes into the file. Free ports besides.
fn set_hash(file: &Path, said: &str) -> Result<()> {
    let hash = said
        .lines()
        .find(|line| line.starts_with("api_key_sha256 = "))
        .context("no hash was said")?;
    let text = fs::read_to_string(file)?.replace("api_key_sha256 = \"\"", hash);
    let text = ["5001", "5100", "5200"].iter().fold(text, |text, port| {
        text.replace(&format!("127.0.0.1:{port}\""), "127.0.0.1:0\"")
    });
    fs::write(file, text)?;
    Ok(())
}

/// Starts a node as the block says and waits for its ready line.
fn serve(terminal: &Terminal, block: &Block) -> Result<()> {
    let mut child = Command::new("sh")
        .args(["-ec", &format!("exec {}", terminal.here(&block.text)?)])
        .current_dir(&terminal.folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let line = first_line(&mut child);
    child.kill()?;
    child.wait()?;
    let line = line?;
    ensure!(line.contains("\"ready\":true"), "not a ready line: {line}");
    Ok(())
}

#[test]
fn what_is_shown_must_have_been_said_in_order() {
    let said = "noise\nmessage 1, id 2127206597703766528\nmore\nmessage 2, id 1\n";
    assert!(holds("message 1, id 2127206597703766999\nmessage 2, id 1", said));
    assert!(!holds("message 2, id 1\nmessage 1, id 2127206597703766528", said));
    assert!(!holds("message 3, id 1", said));
    assert!(!holds("message 2, id 2127206597703766528", said));
}
