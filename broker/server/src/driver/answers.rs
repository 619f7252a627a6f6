//! Callers that wait for the answer to an `Ask`.

use penstock_core::admin::Answer;
use penstock_core::types::Token;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// The waiting callers, by token. Bounded by the mailboxes' room for admissions and by the callers' own deadline.
#[derive(Debug, Default)]
pub struct Answers {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    waiting: HashMap<Token, oneshot::Sender<Answer>>,
}

impl Answers {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new token and the place where its answer arrives.
    pub fn register(&self) -> (Token, oneshot::Receiver<Answer>) {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.lock();
        state.next += 1;
        let token = Token(state.next);
        state.waiting.insert(token, sender);
        (token, receiver)
    }

    /// Gives the answer to its caller; a caller that has left is not missed.
    pub fn resolve(&self, token: Token, answer: Answer) {
        let caller = self.lock().waiting.remove(&token);
        if let Some(caller) = caller {
            let _ = caller.send(answer);
        }
    }

    /// Forgets a caller that has left.
    pub fn forget(&self, token: Token) {
        self.lock().waiting.remove(&token);
    }
}
