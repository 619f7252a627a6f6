//! The before-send pipeline of a shard: ordered stages, each with a deadline and a policy for its failures.

use crate::message::Draft;
use crate::types::{ChannelKey, Now, Reason, Token};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What a pipeline is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The stages from now on. Batches that are under way keep the ones they started with.
    Registry(Registry),
    /// Drafts of one batch, to be judged.
    BeforeSend {
        /// Echoed with the channel; unique per channel only.
        token: Token,
        /// The channel.
        channel: ChannelKey,
        /// The drafts, in order.
        drafts: Vec<Draft>,
    },
    /// A stage that runs elsewhere has answered a [`Output::Call`]. Late or unknown answers are dropped.
    Returned {
        /// Echo.
        token: Token,
        /// One verdict per draft of the call in their order, or how the stage failed.
        result: Result<Vec<Verdict>, Failure>,
    },
}

/// What a pipeline wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Run a stage elsewhere; answered by [`Input::Returned`].
    Call {
        /// Names the call.
        token: Token,
        /// The stage.
        stage: Arc<str>,
        /// The channel.
        channel: ChannelKey,
        /// What the stage shall judge: the batch without the drafts that were refused before it.
        drafts: Vec<Draft>,
        /// After this time an answer is not waited for any more.
        within: Duration,
    },
    /// All stages are done.
    Done {
        /// Echo.
        token: Token,
        /// Echo.
        channel: ChannelKey,
        /// The draft as the stages left it, or why it is refused; one per draft in their order.
        verdicts: Vec<Result<Draft, Reason>>,
    },
}

/// What a stage says of one draft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it is.
    Allow,
    /// Not at all.
    Reject(Reason),
    /// Changed. Nothing else of a draft can be changed by a stage.
    Rewrite(Rewrite),
}

/// What a stage may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite {
    /// Payload.
    pub payload: Bytes,
    /// Expiry, s.
    pub expire_s: u32,
    /// Topic.
    pub topic: Arc<str>,
}

/// How a stage failed. Bounded set: a metrics label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    /// No answer within the deadline.
    Timeout,
    /// It stopped in the middle.
    Trap,
    /// It went over its memory.
    Memory,
    /// Its answer is not one: undecodable, or not one verdict per draft.
    BadOutput,
    /// No capacity to run it now.
    Busy,
    /// It is not loaded here.
    NotReady,
    /// What it needed of the host failed.
    Host,
}

/// What happens to the drafts of a call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// They are refused, worth a retry. The safe choice.
    Reject,
    /// They are accepted as they are now, with earlier rewrites, and no later stage is asked.
    Allow,
    /// The stage is left out; later stages judge them, with earlier rewrites.
    Skip,
}

/// One stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Unique name.
    pub name: Arc<str>,
    /// Stages run from the highest priority down; equal ones by name.
    pub priority: i32,
    /// What it does.
    pub kind: Kind,
    /// How long an answer is waited for.
    pub deadline: Duration,
    /// What a failure means.
    pub on_failure: Policy,
}

impl Stage {
    /// The built-in guard of payload sizes, before every other stage; a failure is impossible.
    #[must_use]
    pub fn payload_guard(bytes_max: usize) -> Stage {
        Stage::built_in("payload-guard", Kind::PayloadGuard { bytes_max })
    }

    /// The built-in bound of expiries.
    #[must_use]
    pub fn expire_guard(expire_max_s: u32, always: bool) -> Stage {
        Stage::built_in("expire-guard", Kind::ExpireGuard { expire_max_s, always })
    }

    fn built_in(name: &str, kind: Kind) -> Stage {
        Stage {
            name: Arc::from(name),
            priority: i32::MAX,
            kind,
            deadline: Duration::ZERO,
            on_failure: Policy::Reject,
        }
    }
}

/// What a stage does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Built in: refuses (9) a payload that is empty or longer than this.
    PayloadGuard {
        /// Longest payload, bytes.
        bytes_max: usize,
    },
    /// Built in: lowers an expiry to this; a message without one gets it when `always` is set.
    ExpireGuard {
        /// Longest expiry, s.
        expire_max_s: u32,
        /// Whether a message that would never expire gets the longest expiry.
        always: bool,
    },
    /// Runs elsewhere and answers later by token.
    Elsewhere,
}

/// The stages in the order in which they run. Cheap to clone: a batch keeps the one that it started with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registry(Arc<[Stage]>);

impl Registry {
    /// Puts stages in order: priority from high to low, then name.
    #[must_use]
    pub fn new(mut stages: Vec<Stage>) -> Registry {
        stages.sort_by(|left, right| {
            right
                .priority
                .cmp(&left.priority)
                .then_with(|| left.name.cmp(&right.name))
        });
        Registry(stages.into())
    }

    /// The stages in order.
    #[must_use]
    pub fn stages(&self) -> &[Stage] {
        &self.0
    }
}

/// The before-send pipeline.
#[derive(Debug)]
pub struct Pipeline {
    registry: Registry,
    running: BTreeMap<Token, Run>,
    deadlines: BTreeMap<(Duration, Token), ()>,
    next_token: Token,
}

/// A batch that waits for a stage elsewhere.
#[derive(Debug)]
struct Run {
    token: Token,
    channel: ChannelKey,
    registry: Registry,
    /// Position of the stage that is running.
    stage: usize,
    deadline: Duration,
    drafts: Vec<Result<Draft, Reason>>,
    /// Drafts that a failed stage has let through for good.
    accepted: Vec<bool>,
}

impl Pipeline {
    /// A pipeline with these stages. Continuation tokens count up from `first_token`.
    #[must_use]
    pub fn new(registry: Registry, first_token: Token) -> Pipeline {
        Pipeline {
            registry,
            running: BTreeMap::new(),
            deadlines: BTreeMap::new(),
            next_token: first_token,
        }
    }

    /// Takes one input.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Registry(registry) => self.registry = registry,
            Input::BeforeSend {
                token,
                channel,
                drafts,
            } => {
                let run = Run {
                    token,
                    channel,
                    registry: self.registry.clone(),
                    stage: 0,
                    deadline: Duration::ZERO,
                    accepted: vec![false; drafts.len()],
                    drafts: drafts.into_iter().map(Ok).collect(),
                };
                self.go_on(now, run, out);
            }
            Input::Returned { token, result } => {
                if let Some(run) = self.take(token) {
                    self.returned(now, run, result, out);
                }
            }
        }
    }

    /// When the next call is given up.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        self.deadlines.keys().next().map(|(deadline, _)| *deadline)
    }

    /// Gives up on calls whose deadline has passed.
    pub fn expire(&mut self, now: Now, out: &mut Vec<Output>) {
        while let Some((deadline, token)) = self.deadlines.keys().next().copied() {
            if deadline > now.monotonic {
                break;
            }
            if let Some(run) = self.take(token) {
                self.returned(now, run, Err(Failure::Timeout), out);
            }
        }
    }

    /// Batches that wait for a stage elsewhere.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    fn take(&mut self, token: Token) -> Option<Run> {
        let run = self.running.remove(&token)?;
        self.deadlines.remove(&(run.deadline, token));
        Some(run)
    }

    fn returned(
        &mut self,
        now: Now,
        mut run: Run,
        result: Result<Vec<Verdict>, Failure>,
        out: &mut Vec<Output>,
    ) {
        let asked = run.open().count();
        match result {
            Ok(verdicts) if verdicts.len() == asked => run.apply(verdicts),
            Ok(_) => run.fail(Failure::BadOutput),
            Err(failure) => run.fail(failure),
        }
        run.stage += 1;
        self.go_on(now, run, out);
    }

    /// Runs stages until one runs elsewhere or none is left.
    fn go_on(&mut self, now: Now, mut run: Run, out: &mut Vec<Output>) {
        while run.open().next().is_some() && run.stage < run.registry.stages().len() {
            let stage = &run.registry.stages()[run.stage];
            let kind = stage.kind;
            if kind == Kind::Elsewhere {
                self.call(now, run, out);
                return;
            }
            let verdicts = run.open().map(|draft| judge(kind, draft)).collect();
            run.apply(verdicts);
            run.stage += 1;
        }
        out.push(Output::Done {
            token: run.token,
            channel: run.channel,
            verdicts: run.drafts,
        });
    }

    fn call(&mut self, now: Now, mut run: Run, out: &mut Vec<Output>) {
        let token = self.next_token;
        self.next_token = Token(token.0 + 1);
        let stage = &run.registry.stages()[run.stage];
        out.push(Output::Call {
            token,
            stage: Arc::clone(&stage.name),
            channel: run.channel.clone(),
            drafts: run.open().cloned().collect(),
            within: stage.deadline,
        });
        run.deadline = now.after(stage.deadline);
        self.deadlines.insert((run.deadline, token), ());
        self.running.insert(token, run);
    }
}

impl Run {
    /// The drafts that later stages still judge.
    fn open(&self) -> impl Iterator<Item = &Draft> {
        self.drafts
            .iter()
            .zip(&self.accepted)
            .filter(|(_, accepted)| !**accepted)
            .filter_map(|(draft, _)| draft.as_ref().ok())
    }

    /// The positions of those drafts.
    fn open_positions(&self) -> Vec<usize> {
        (0..self.drafts.len())
            .filter(|position| self.drafts[*position].is_ok() && !self.accepted[*position])
            .collect()
    }

    fn apply(&mut self, verdicts: Vec<Verdict>) {
        for (position, verdict) in self.open_positions().into_iter().zip(verdicts) {
            match verdict {
                Verdict::Allow => {}
                Verdict::Reject(reason) => self.drafts[position] = Err(refusal(reason)),
                Verdict::Rewrite(rewrite) => {
                    if let Ok(draft) = &mut self.drafts[position] {
                        draft.payload = rewrite.payload;
                        draft.expire_s = rewrite.expire_s;
                        draft.topic = rewrite.topic;
                    }
                }
            }
        }
    }

    fn fail(&mut self, failure: Failure) {
        let policy = self.registry.stages()[self.stage].on_failure;
        let reason = if failure == Failure::Busy {
            Reason::RATE_LIMITED
        } else {
            Reason::NODE_NOT_MATCH
        };
        for position in self.open_positions() {
            match policy {
                Policy::Reject => self.drafts[position] = Err(reason),
                Policy::Allow => self.accepted[position] = true,
                Policy::Skip => {}
            }
        }
    }
}

/// A stage cannot refuse with the code of success.
fn refusal(reason: Reason) -> Reason {
    if reason.is_success() {
        Reason::NOT_ALLOWED
    } else {
        reason
    }
}

fn judge(kind: Kind, draft: &Draft) -> Verdict {
    match kind {
        Kind::PayloadGuard { bytes_max } if draft.payload.is_empty() || draft.payload.len() > bytes_max => {
            Verdict::Reject(Reason::PAYLOAD_DECODE)
        }
        Kind::ExpireGuard { expire_max_s, always }
            if draft.expire_s > expire_max_s || (always && draft.expire_s == 0) =>
        {
            Verdict::Rewrite(Rewrite {
                payload: draft.payload.clone(),
                expire_s: expire_max_s,
                topic: Arc::clone(&draft.topic),
            })
        }
        Kind::PayloadGuard { .. } | Kind::ExpireGuard { .. } | Kind::Elsewhere => Verdict::Allow,
    }
}

#[cfg(test)]
#[path = "pipeline_tests.rs"]
mod tests;
