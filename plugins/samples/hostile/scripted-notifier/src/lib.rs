//! A notifier that does what a message tells it to, for tests of the broker. A word anywhere in the payload says what; a page of a
//! message without one is done.
//!
//! | word | what it does |
//! |---|---|
//! | `trap`, `panic`, `loop`, `grow`, `recurse` | as it says |
//! | `flood` | writes 100,000 lines to the log first |
//! | `retry`, `retry:ms` | to be tried again, after so many ms |
//! | `poison`, `busy` | the message can never be done, or there is no time for it |
//! | `half` | says that the first half of the page is done, and at least one uid |
//! | `nothing` | says that no uid is done |
//! | `overdone` | says that one uid more than the page has is done |
//!
//! Every page that it is asked about is a line of the log: the outcome, the position, how many uids, the first and the last of them,
//! and the payload.
//!
//! The configuration `{"init": "fail"}` makes the instance fail to start, `{"calm": true}` makes it do every page without a word
//! about it.

use penstock_harm::{harm, has};
use penstock_plugin_sdk::{Failure, FailureKind, Message, Notifier, host};

/// The notifier.
#[derive(Default)]
pub struct Scripted {
    /// No word is obeyed.
    calm: bool,
}

impl Notifier for Scripted {
    fn new(config: &str) -> Result<Self, String> {
        if config.contains("\"fail\"") {
            return Err("scripted to fail".to_owned());
        }
        Ok(Self {
            calm: config.contains("\"calm\""),
        })
    }

    fn offline(&mut self, message: Message<'_>, uids: &[String]) -> Result<usize, Failure> {
        let words = if self.calm { &[] } else { message.payload() };
        harm(words);
        let failure = failure(words);
        let outcome = failure
            .as_ref()
            .map_or("done", |failure| failure.message.as_str());
        let (first, last) = (uids.first(), uids.last());
        host::info(&format!(
            "{outcome} {} {} {} {} {}",
            message.position(),
            uids.len(),
            first.map_or("", String::as_str),
            last.map_or("", String::as_str),
            String::from_utf8_lossy(message.payload())
        ));
        if let Some(failure) = failure {
            return Err(failure);
        }
        Ok(if has(words, "overdone") {
            uids.len() + 1
        } else if has(words, "nothing") {
            0
        } else if has(words, "half") {
            uids.len().div_ceil(2)
        } else {
            uids.len()
        })
    }
}

penstock_plugin_sdk::notifier!(Scripted);

/// What a message wants in place of being done.
fn failure(payload: &[u8]) -> Option<Failure> {
    let (word, kind) = [
        ("retry", FailureKind::Retry),
        ("poison", FailureKind::Poison),
        ("busy", FailureKind::Busy),
    ]
    .into_iter()
    .find(|(word, _)| has(payload, word))?;
    let text = String::from_utf8_lossy(payload);
    let after = text.split_once(&format!("{word}:")).map(|(_, rest)| rest);
    let digits = after.and_then(|rest| rest.split(|letter: char| !letter.is_ascii_digit()).next());
    Some(Failure {
        kind,
        after_ms: digits.and_then(|digits| digits.parse().ok()).unwrap_or(0),
        message: word.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_says_what_to_answer() {
        assert!(failure(b"hello").is_none());
        let wanted = failure(b"a retry:250 please").expect("a failure");
        assert_eq!((wanted.kind, wanted.after_ms), (FailureKind::Retry, 250));
        assert_eq!(failure(b"poison").expect("a failure").kind, FailureKind::Poison);
        assert!(Scripted::new("{\"init\":\"fail\"}").is_err());
    }
}
