//! The gates of a shard: what sessions ask them, and what they ask the plugin host.

use super::Shard;
use super::plugins::Waits;
use super::step::Step;
use super::turn::Turn;
use crate::hooks::call::{Answer, Call, Failed, Returned, Work};
use crate::hooks::gates::{Decision, Input, Output};
use crate::hooks::pipeline::Failure;
use crate::session;
use crate::types::Token;

impl Shard {
    /// Steps the gates of this shard.
    pub(super) fn gates_input(&mut self, turn: &mut Turn<'_>, input: Input) {
        let mut outputs = Vec::new();
        self.gates.handle(turn.now, input, &mut outputs);
        self.gates_outputs(turn, outputs);
    }

    /// Calls of gates whose deadline has passed.
    pub(super) fn expire_gates(&mut self, turn: &mut Turn<'_>) {
        let mut outputs = Vec::new();
        self.gates.expire(turn.now, &mut outputs);
        self.gates_outputs(turn, outputs);
    }

    /// The plugin answered for somebody who wants to connect.
    pub(super) fn gate_returned(&mut self, turn: &mut Turn<'_>, token: Token, returned: Returned) {
        let result = decision(returned);
        self.gates_input(turn, Input::Returned { token, result });
    }

    fn gates_outputs(&mut self, turn: &mut Turn<'_>, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Call {
                    token,
                    version,
                    request,
                    within,
                } => {
                    let wall_ms = turn.now.wall_ms;
                    let call = Call {
                        version,
                        channel: None,
                        within,
                        work: Work::Connect { request, wall_ms },
                    };
                    self.call_plugin(turn, call, Waits::Connect(token));
                }
                Output::Done { connection, result } => {
                    let input = session::Input::Entered { connection, result };
                    self.queue.push_back(Step::Sessions(input));
                }
            }
        }
    }
}

/// What an answer means for a gate: there is no trying again while a client waits.
fn decision(returned: Returned) -> Result<Decision, Failure> {
    match returned {
        Ok(Answer::Decision(decision)) => Ok(decision),
        Ok(Answer::Verdicts(_) | Answer::Done { .. } | Answer::Requests(_) | Answer::Response(_))
        | Err(Failed::Poison | Failed::Undelivered { .. } | Failed::Later { .. } | Failed::Gone) => {
            Err(Failure::BadOutput)
        }
        Err(Failed::Call(failure)) => Err(failure),
        Err(Failed::Retry { .. } | Failed::Busy { .. }) => Err(Failure::Busy),
    }
}
