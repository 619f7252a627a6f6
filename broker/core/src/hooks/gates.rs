//! The gates of a shard: ordered plugins that say who may connect, and as whom.
//!
//! # Owns
//! The connections whose token was checked and that wait for a gate.
//!
//! # Invariants
//! - Until the gates are known, everybody waits: nobody passes by a gate because a process has just started.
//! - One connection sees one registry snapshot; what a gate accepts is what the next one is asked about.
//! - A connection that is gone is forgotten: the answer of its gate means nothing.
//! - An answer with a uid that is none, or with too many attributes, is a failure of its gate.
//!
//! # States
//! early (the gates are not known) → at one gate, until its deadline → let in | refused.
//!
//! # Absent
//! The deadline of the connection as a whole (its session's), and what comes before (the token) and after (presence).

use super::call::Version;
use super::faults::Faults;
use crate::entrance::{ATTRIBUTES_BYTES_MAX, attributes_bytes};
pub use crate::entrance::{Acceptance, Admitted, Decision, Request};
use crate::message::Refusal;
use crate::pending::Pending;
use crate::plugins::{Bound, Failure, Hook, Policy, Registry};
use crate::types::{ConnectionId, DeviceLevel, Now, Reason, Token};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What the gates are told.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The gates from now on. Connections that are under way keep the ones they started with.
    Gates(List),
    /// Somebody wants to connect whose token is good, as a device of this level.
    Ask {
        /// The connection: it asks once.
        connection: ConnectionId,
        /// Who it is.
        request: Box<Request>,
        /// The level of its token.
        level: DeviceLevel,
    },
    /// A gate has answered a [`Output::Call`]. Late or unknown answers are dropped.
    Returned {
        /// Echo.
        token: Token,
        /// The decision, or how the gate failed.
        result: Result<Decision, Failure>,
    },
    /// A connection is gone, or is not waited for any more.
    Left {
        /// Which.
        connection: ConnectionId,
    },
}

/// What the gates want done.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Ask a gate; answered by [`Input::Returned`].
    Call {
        /// Names the call.
        token: Token,
        /// What runs.
        version: Version,
        /// Who wants to connect.
        request: Box<Request>,
        /// After this time an answer is not waited for any more.
        within: Duration,
    },
    /// All gates are passed, or one is not.
    Done {
        /// Whose question it was.
        connection: ConnectionId,
        /// As whom it is let in, or why it is not.
        result: Result<Admitted, Refusal>,
    },
}

/// The gates in the order in which they are asked. Cheap to clone: a connection keeps the ones that it started with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List(Arc<[Arc<Bound>]>);

impl List {
    /// The connect bindings of a registry.
    #[must_use]
    pub fn of(registry: &Registry) -> List {
        List(registry.of(Hook::Connect).cloned().collect())
    }
}

/// The gates of a shard.
#[derive(Debug)]
pub struct Gates {
    /// None before the registry was read for the first time.
    list: Option<List>,
    early: BTreeMap<ConnectionId, Passage>,
    running: Pending<Passage>,
    calls: BTreeMap<ConnectionId, Token>,
    next_token: Token,
    faults: Faults,
}

/// A connection on its way through the gates.
#[derive(Debug)]
struct Passage {
    connection: ConnectionId,
    request: Box<Request>,
    level: DeviceLevel,
    attributes: Vec<(Arc<str>, Arc<str>)>,
    gates: List,
    /// Position of the gate that is asked.
    at: usize,
}

impl Gates {
    /// Nothing is known yet. Names of calls count up from `first_token`.
    #[must_use]
    pub fn new(faults: Faults, first_token: Token) -> Gates {
        Gates {
            list: None,
            early: BTreeMap::new(),
            running: Pending::default(),
            calls: BTreeMap::new(),
            next_token: first_token,
            faults,
        }
    }

    /// Takes one input.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Gates(list) => {
                self.list = Some(list.clone());
                for (_, mut passage) in std::mem::take(&mut self.early) {
                    passage.gates = list.clone();
                    self.go_on(now, passage, out);
                }
            }
            Input::Ask {
                connection,
                request,
                level,
            } => self.ask(now, Passage::new(connection, request, level), out),
            Input::Returned { token, result } => {
                if let Some(passage) = self.take(token) {
                    self.returned(now, passage, result, out);
                }
            }
            Input::Left { connection } => {
                self.early.remove(&connection);
                if let Some(token) = self.calls.get(&connection).copied() {
                    self.take(token);
                }
            }
        }
    }

    /// When the next call is given up.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        self.running.next_deadline()
    }

    /// Gives up on calls whose deadline has passed.
    pub fn expire(&mut self, now: Now, out: &mut Vec<Output>) {
        while let Some((_, passage)) = self.running.pop_due(now) {
            self.calls.remove(&passage.connection);
            self.returned(now, passage, Err(Failure::Timeout), out);
        }
    }

    /// Connections that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.early.len() + self.running.len()
    }

    fn ask(&mut self, now: Now, mut passage: Passage, out: &mut Vec<Output>) {
        match &self.list {
            Some(list) => {
                passage.gates = list.clone();
                self.go_on(now, passage, out);
            }
            None if self.faults.early_connects_pass() => out.push(passage.admitted()),
            None => drop(self.early.insert(passage.connection, passage)),
        }
    }

    fn take(&mut self, token: Token) -> Option<Passage> {
        let passage = self.running.remove(token)?;
        self.calls.remove(&passage.connection);
        Some(passage)
    }

    fn returned(
        &mut self,
        now: Now,
        mut passage: Passage,
        result: Result<Decision, Failure>,
        out: &mut Vec<Output>,
    ) {
        let accepted = match result {
            Ok(Ok(acceptance)) => passage.accept(acceptance),
            Ok(Err(why)) => return out.push(passage.refused(denial(why))),
            Err(failure) => Err(failure),
        };
        if let Err(failure) = accepted {
            let policy = passage.gates.0[passage.at].binding.on_error.of(failure);
            match policy {
                _ if self.faults.failed_gate_lets_pass() => {}
                Policy::Reject => return out.push(passage.refused(Reason::SYSTEM_ERROR.into())),
                Policy::Allow => return out.push(passage.admitted()),
                Policy::Skip => {}
            }
        }
        passage.at += 1;
        self.go_on(now, passage, out);
    }

    /// Asks the next gate that is for this user, or lets in who has passed all.
    fn go_on(&mut self, now: Now, mut passage: Passage, out: &mut Vec<Output>) {
        while let Some(bound) = passage.gates.0.get(passage.at) {
            if let Some(version) = bound.version_of_user(&passage.request.uid) {
                let (version, within) = (version.clone(), bound.binding.deadline);
                return self.call(now, passage, (version, within), out);
            }
            passage.at += 1;
        }
        out.push(passage.admitted());
    }

    fn call(
        &mut self,
        now: Now,
        passage: Passage,
        (version, within): (Version, Duration),
        out: &mut Vec<Output>,
    ) {
        let token = self.next_token;
        self.next_token = Token(token.0 + 1);
        out.push(Output::Call {
            token,
            version,
            request: passage.request.clone(),
            within,
        });
        self.calls.insert(passage.connection, token);
        self.running.insert(token, now.after(within), passage);
    }
}

impl Passage {
    fn new(connection: ConnectionId, request: Box<Request>, level: DeviceLevel) -> Passage {
        Passage {
            connection,
            request,
            level,
            attributes: Vec::new(),
            gates: List::default(),
            at: 0,
        }
    }

    /// Takes what a gate says. An attribute of the same name as an earlier gate's replaces it.
    fn accept(&mut self, acceptance: Acceptance) -> Result<(), Failure> {
        if acceptance.flaw().is_some() {
            return Err(Failure::BadOutput);
        }
        let mut attributes = self.attributes.clone();
        attributes.retain(|(name, _)| acceptance.attributes.iter().all(|(other, _)| other != name));
        attributes.extend(acceptance.attributes);
        if attributes_bytes(&attributes) > ATTRIBUTES_BYTES_MAX {
            return Err(Failure::BadOutput);
        }
        self.attributes = attributes;
        self.request.uid = acceptance.uid;
        self.level = acceptance.level;
        Ok(())
    }

    fn admitted(self) -> Output {
        Output::Done {
            connection: self.connection,
            result: Ok(Admitted {
                uid: self.request.uid,
                level: self.level,
                attributes: (!self.attributes.is_empty()).then(|| self.attributes.into()),
            }),
        }
    }

    fn refused(self, why: Refusal) -> Output {
        Output::Done {
            connection: self.connection,
            result: Err(why),
        }
    }
}

/// A gate cannot deny with the code of success, nor with a long text.
fn denial(mut why: Refusal) -> Refusal {
    if why.reason.is_success() {
        why.reason = Reason::AUTH_FAIL;
    }
    why.bounded()
}

#[cfg(test)]
#[path = "gates_tests.rs"]
mod tests;
