//! Reads that wait for a read index (SL-5): all that arrive while one question runs share the next one.

use crate::types::Token;
use bytes::Bytes;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
struct Waiting {
    token: Token,
    deadline: Duration,
}

#[derive(Debug)]
struct Question {
    context: Bytes,
    give_up: Duration,
    readers: Vec<Waiting>,
}

#[derive(Debug, Default)]
pub(super) struct Reads {
    fresh: Vec<Waiting>,
    question: Option<Question>,
    confirmed: Vec<(u64, Waiting)>,
    counter: u64,
}

impl Reads {
    pub(super) fn add(&mut self, token: Token, deadline: Duration) {
        self.fresh.push(Waiting { token, deadline });
    }

    pub(super) fn len(&self) -> usize {
        let asked = self
            .question
            .as_ref()
            .map_or(0, |question| question.readers.len());
        self.fresh.len() + asked + self.confirmed.len()
    }

    pub(super) fn is_asking(&self) -> bool {
        self.question.is_some()
    }

    /// The context to ask with, when nothing is being asked and somebody waits.
    pub(super) fn next_question(&mut self, give_up: Duration) -> Option<Bytes> {
        if self.question.is_some() || self.fresh.is_empty() {
            return None;
        }
        self.counter += 1;
        let context = Bytes::copy_from_slice(&self.counter.to_be_bytes());
        self.question = Some(Question {
            context: context.clone(),
            give_up,
            readers: std::mem::take(&mut self.fresh),
        });
        Some(context)
    }

    /// The answer to a question: everything up to `index` was committed before it was asked.
    pub(super) fn on_state(&mut self, context: &[u8], index: u64) {
        if let Some(question) = self.question.take_if(|question| question.context == context) {
            let readers = question.readers.into_iter();
            self.confirmed.extend(readers.map(|waiting| (index, waiting)));
        }
    }

    /// A question without an answer: its readers ask again.
    pub(super) fn give_up_question(&mut self, now: Duration) {
        if let Some(question) = self.question.take_if(|question| question.give_up <= now) {
            self.fresh.splice(0..0, question.readers);
        }
    }

    /// Readers whose index is applied.
    pub(super) fn ready(&mut self, applied: u64) -> Vec<Token> {
        let ready = self.confirmed.extract_if(.., |(index, _)| *index <= applied);
        ready.map(|(_, waiting)| waiting.token).collect()
    }

    /// Readers whose deadline has passed.
    pub(super) fn expired(&mut self, now: Duration) -> Vec<Token> {
        let late = |waiting: &mut Waiting| waiting.deadline <= now;
        let mut expired: Vec<Waiting> = self.fresh.extract_if(.., late).collect();
        if let Some(question) = &mut self.question {
            expired.extend(question.readers.extract_if(.., late));
        }
        let confirmed = self
            .confirmed
            .extract_if(.., |(_, waiting)| waiting.deadline <= now);
        expired.extend(confirmed.map(|(_, waiting)| waiting));
        expired.into_iter().map(|waiting| waiting.token).collect()
    }

    /// Everyone.
    pub(super) fn drain(&mut self) -> Vec<Token> {
        let mut all = std::mem::take(&mut self.fresh);
        all.extend(
            self.question
                .take()
                .into_iter()
                .flat_map(|question| question.readers),
        );
        all.extend(
            std::mem::take(&mut self.confirmed)
                .into_iter()
                .map(|(_, waiting)| waiting),
        );
        all.into_iter().map(|waiting| waiting.token).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_came_after_the_question_waits_for_the_next_one() {
        let second = Duration::from_secs(1);
        let mut reads = Reads::default();
        reads.add(Token(1), second);
        let first = reads.next_question(second).unwrap();
        reads.add(Token(2), second);
        assert_eq!(reads.next_question(second), None);
        reads.on_state(&first, 7);
        assert_eq!(reads.ready(6), Vec::new());
        assert_eq!(reads.ready(7), vec![Token(1)]);
        let next = reads.next_question(second).unwrap();
        assert_ne!(first, next);
        reads.give_up_question(second);
        assert_eq!(reads.expired(second), vec![Token(2)]);
        assert_eq!(reads.len(), 0);
    }
}
