//! Things that wait for an answer, each with a deadline.

use crate::types::{Now, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Waiting things by token.
#[derive(Debug)]
pub(crate) struct Pending<T> {
    waiting: BTreeMap<Token, (Duration, T)>,
    deadlines: BTreeSet<(Duration, Token)>,
}

impl<T> Default for Pending<T> {
    fn default() -> Pending<T> {
        Pending {
            waiting: BTreeMap::new(),
            deadlines: BTreeSet::new(),
        }
    }
}

impl<T> Pending<T> {
    /// Something waits until `deadline`.
    pub(crate) fn insert(&mut self, token: Token, deadline: Duration, waiting: T) {
        self.deadlines.insert((deadline, token));
        self.waiting.insert(token, (deadline, waiting));
    }

    /// What waits.
    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        self.waiting.get_mut(&token).map(|(_, waiting)| waiting)
    }

    /// It waits no longer.
    pub(crate) fn remove(&mut self, token: Token) -> Option<T> {
        let (deadline, waiting) = self.waiting.remove(&token)?;
        self.deadlines.remove(&(deadline, token));
        Some(waiting)
    }

    /// The first whose deadline has passed.
    pub(crate) fn pop_due(&mut self, now: Now) -> Option<(Token, T)> {
        let (deadline, token) = self.deadlines.first().copied()?;
        if deadline > now.monotonic {
            return None;
        }
        self.remove(token).map(|waiting| (token, waiting))
    }

    /// The next deadline.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}
