//! A browser with tabs: a Node.js process that drives Chromium.

use crate::PATIENCE;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

/// A browser. It is closed when it is dropped.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    /// Gone once it was told to end.
    input: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Browser {
    /// Starts it without a tab.
    ///
    /// # Errors
    /// When Node.js is missing. A missing browser shows at the first command.
    pub fn start() -> Result<Self> {
        let mut child = Command::new("node")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("browser.mjs"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("node cannot be started")?;
        let input = child.stdin.take();
        let output = child.stdout.take().context("standard output")?;
        let (sender, answers) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::io::Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            child,
            input,
            answers,
        })
    }

    /// Opens an address in a new tab of this name.
    ///
    /// # Errors
    /// When the page does not load.
    pub fn open(&mut self, tab: &str, address: &str) -> Result<()> {
        self.command("open", &[tab, address]).map(drop)
    }

    /// Loads the page of a tab again.
    ///
    /// # Errors
    /// When the page does not load.
    pub fn reload(&mut self, tab: &str) -> Result<()> {
        self.command("reload", &[tab]).map(drop)
    }

    /// Closes a tab.
    ///
    /// # Errors
    /// When there is no such tab.
    pub fn close(&mut self, tab: &str) -> Result<()> {
        self.command("close", &[tab]).map(drop)
    }

    /// Clicks on what a selector finds.
    ///
    /// # Errors
    /// When it cannot be clicked in time.
    pub fn click(&mut self, tab: &str, selector: &str) -> Result<()> {
        self.command("click", &[tab, selector]).map(drop)
    }

    /// Puts a text into a field.
    ///
    /// # Errors
    /// When there is no such field in time.
    pub fn fill(&mut self, tab: &str, selector: &str, text: &str) -> Result<()> {
        self.command("fill", &[tab, selector, text]).map(drop)
    }

    /// Presses a key in a field.
    ///
    /// # Errors
    /// When there is no such field in time.
    pub fn press(&mut self, tab: &str, selector: &str, key: &str) -> Result<()> {
        self.command("press", &[tab, selector, key]).map(drop)
    }

    /// Waits until something visible has this text in it.
    ///
    /// # Errors
    /// When nothing has in time.
    pub fn wait(&mut self, tab: &str, selector: &str, text: &str) -> Result<()> {
        self.command("wait", &[tab, selector, text]).map(drop)
    }

    /// The texts of everything that a selector finds, in the order of the page.
    ///
    /// # Errors
    /// When there is no such tab.
    pub fn texts(&mut self, tab: &str, selector: &str) -> Result<Vec<String>> {
        self.list("texts", &[tab, selector])
    }

    /// The value of an expression in the page.
    ///
    /// # Errors
    /// When it throws.
    pub fn evaluate(&mut self, tab: &str, expression: &str) -> Result<Value> {
        self.command("evaluate", &[tab, expression])
    }

    /// What the page has sent over WebSockets.
    ///
    /// # Errors
    /// When there is no such tab, or something that is not JSON was sent.
    pub fn sent(&mut self, tab: &str) -> Result<Vec<Value>> {
        let texts = self.list("sent", &[tab])?;
        let parsed = texts.iter().map(|text| serde_json::from_str(text));
        parsed
            .collect::<Result<_, _>>()
            .context("the page sent something else than JSON")
    }

    /// Errors of scripts, and what the security policy refused.
    ///
    /// # Errors
    /// When there is no such tab.
    pub fn complaints(&mut self, tab: &str) -> Result<Vec<String>> {
        self.list("complaints", &[tab])
    }

    fn list(&mut self, name: &str, words: &[&str]) -> Result<Vec<String>> {
        let value = self.command(name, words)?;
        serde_json::from_value(value).context("not a list of texts")
    }

    fn command(&mut self, name: &str, words: &[&str]) -> Result<Value> {
        let input = self.input.as_mut().context("the browser was told to end")?;
        writeln!(input, "{}", json!({ name: words })).context("the browser has ended")?;
        // The browser gives up first and says why.
        let line = self.answers.recv_timeout(PATIENCE * 2);
        let line = line.with_context(|| format!("no answer to {name} {words:?}"))?;
        let mut answer: Value = serde_json::from_str(&line).context("an answer that is not JSON")?;
        match answer["error"].as_str() {
            Some(error) => bail!("{error}"),
            None => Ok(answer["value"].take()),
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The end of its input makes it close Chromium, whose processes would outlive a killed parent.
        drop(self.input.take());
        let _reaped = self.child.wait();
    }
}
