//! The before-send pipeline of a shard: ordered stages, each with a deadline and a policy for its failures.

use super::call::Version;
use super::faults::Faults;
use crate::message::{Draft, Refusal};
use crate::pending::Pending;
use crate::plugins::{Bound, Hook, Registry};
pub use crate::plugins::{Failure, OnError, Policy};
use crate::types::{ChannelKey, Now, Reason, Token};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// What a pipeline is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// The stages from now on. Batches that are under way keep the ones they started with.
    Stages(Stages),
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
        /// What runs.
        version: Version,
        /// The channel.
        channel: ChannelKey,
        /// What the stage shall judge: the batch without the drafts that were refused before it or are not selected.
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
        verdicts: Vec<Result<Draft, Refusal>>,
    },
}

/// What a stage says of one draft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it is.
    Allow,
    /// Not at all.
    Reject(Refusal),
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

/// One stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Unique name.
    pub name: Arc<str>,
    /// Stages run from the highest priority down; equal ones by name.
    pub priority: i32,
    /// What it does.
    pub kind: Kind,
}

impl Stage {
    /// The stage of a before-send binding.
    #[must_use]
    pub fn bound(bound: &Arc<Bound>) -> Stage {
        Stage {
            name: Arc::clone(&bound.binding.plugin),
            priority: bound.binding.priority,
            kind: Kind::Plugin(Arc::clone(bound)),
        }
    }

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
        }
    }
}

/// What a stage does.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// A plugin: runs elsewhere and answers later by token.
    Plugin(Arc<Bound>),
}

/// The stages in the order in which they run. Cheap to clone: a batch keeps the one that it started with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stages(Arc<[Stage]>);

impl Stages {
    /// Puts stages in order: built-in ones, then priority from high to low, then name; equal ones stay as they come.
    #[must_use]
    pub fn new(mut stages: Vec<Stage>) -> Stages {
        stages.sort_by(|left, right| {
            let built_in = |stage: &Stage| !matches!(stage.kind, Kind::Plugin(_));
            built_in(right)
                .cmp(&built_in(left))
                .then_with(|| right.priority.cmp(&left.priority))
                .then_with(|| left.name.cmp(&right.name))
        });
        Stages(stages.into())
    }

    /// The payload guard, then the before-send bindings of a registry.
    #[must_use]
    pub fn of(registry: &Registry, payload_bytes_max: usize) -> Stages {
        let guard = Stage::payload_guard(payload_bytes_max);
        let bound = registry.of(Hook::BeforeSend).map(Stage::bound);
        Stages::new(std::iter::once(guard).chain(bound).collect())
    }

    /// The stages in order.
    #[must_use]
    pub fn list(&self) -> &[Stage] {
        &self.0
    }
}

/// The before-send pipeline.
#[derive(Debug)]
pub struct Pipeline {
    stages: Stages,
    running: Pending<Run>,
    next_token: Token,
    faults: Faults,
}

/// A batch that waits for a stage elsewhere.
#[derive(Debug)]
struct Run {
    token: Token,
    channel: ChannelKey,
    stages: Stages,
    /// Position of the stage that is running.
    stage: usize,
    /// The drafts that the running stage was asked about.
    asked: Vec<usize>,
    /// Whether anything was rewritten: then the guards look again.
    rewritten: bool,
    drafts: Vec<Result<Draft, Refusal>>,
    /// The drafts as they came, for a planted fault only.
    first: Vec<Draft>,
    /// Drafts that a failed stage has let through for good.
    accepted: Vec<bool>,
}

impl Pipeline {
    /// A pipeline with these stages. Continuation tokens count up from `first_token`.
    #[must_use]
    pub fn new(stages: Stages, faults: Faults, first_token: Token) -> Pipeline {
        Pipeline {
            stages,
            running: Pending::default(),
            next_token: first_token,
            faults,
        }
    }

    /// Takes one input.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Stages(stages) => self.stages = stages,
            Input::BeforeSend {
                token,
                channel,
                drafts,
            } => {
                let run = Run {
                    token,
                    channel,
                    stages: self.stages.clone(),
                    stage: 0,
                    asked: Vec::new(),
                    rewritten: false,
                    first: if self.faults.fail_open_drops_rewrites() {
                        drafts.clone()
                    } else {
                        Vec::new()
                    },
                    accepted: vec![false; drafts.len()],
                    drafts: drafts.into_iter().map(Ok).collect(),
                };
                self.go_on(now, run, out);
            }
            Input::Returned { token, result } => {
                if let Some(run) = self.running.remove(token) {
                    self.returned(now, run, result, out);
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
        while let Some((_, run)) = self.running.pop_due(now) {
            self.returned(now, run, Err(Failure::Timeout), out);
        }
    }

    /// Batches that wait for a stage elsewhere.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    fn returned(
        &mut self,
        now: Now,
        mut run: Run,
        result: Result<Vec<Verdict>, Failure>,
        out: &mut Vec<Output>,
    ) {
        let asked = std::mem::take(&mut run.asked);
        match result {
            Ok(verdicts) if verdicts.len() == asked.len() => run.apply(&asked, verdicts),
            Ok(_) => run.fail(&asked, Failure::BadOutput),
            Err(Failure::Suspended) if self.faults.open_breaker_allows() => {}
            Err(failure) => run.fail(&asked, failure),
        }
        run.stage += 1;
        if self.faults.swap_within_batch() {
            run.stages = self.stages.clone();
        }
        self.go_on(now, run, out);
    }

    /// Runs stages until one runs elsewhere or none is left.
    fn go_on(&mut self, now: Now, mut run: Run, out: &mut Vec<Output>) {
        while run.open().next().is_some() && run.stage < run.stages.list().len() {
            let kind = run.stages.list()[run.stage].kind.clone();
            if let Kind::Plugin(bound) = &kind {
                if let Some(version) = bound.version(&run.channel) {
                    let version = version.clone();
                    run.asked = run.selected(bound);
                    if !run.asked.is_empty() {
                        self.call(now, run, (bound, version), out);
                        return;
                    }
                }
            } else {
                run.guard(&kind);
            }
            run.stage += 1;
        }
        if run.rewritten {
            let built_in = |kind: &&Kind| !matches!(kind, Kind::Plugin(_));
            let kinds = run.stages.list().iter().map(|stage| &stage.kind);
            let guards: Vec<Kind> = kinds.filter(built_in).cloned().collect();
            for guard in guards {
                run.guard(&guard);
            }
        }
        // They were for the stages, and are not stored.
        for draft in run.drafts.iter_mut().flatten() {
            draft.attributes = None;
        }
        out.push(Output::Done {
            token: run.token,
            channel: run.channel,
            verdicts: run.drafts,
        });
    }

    fn call(&mut self, now: Now, run: Run, (bound, version): (&Bound, Version), out: &mut Vec<Output>) {
        let token = self.next_token;
        self.next_token = Token(token.0 + 1);
        let within = bound.binding.deadline;
        let drafts = run
            .asked
            .iter()
            .filter_map(|&position| run.drafts[position].as_ref().ok());
        out.push(Output::Call {
            token,
            version,
            channel: run.channel.clone(),
            drafts: drafts.cloned().collect(),
            within,
        });
        self.running.insert(token, now.after(within), run);
    }
}

impl Run {
    /// Positions of the drafts that later stages still judge.
    fn open(&self) -> impl Iterator<Item = usize> {
        (0..self.drafts.len()).filter(|&position| self.drafts[position].is_ok() && !self.accepted[position])
    }

    /// Those that a binding is for.
    fn selected(&self, bound: &Bound) -> Vec<usize> {
        let takes = |position: &usize| {
            self.drafts[*position]
                .as_ref()
                .is_ok_and(|draft| bound.binding.takes_sender(&draft.from_uid))
        };
        self.open().filter(takes).collect()
    }

    /// Runs a built-in stage over everything that is not refused, accepted or not.
    fn guard(&mut self, kind: &Kind) {
        let whole: Vec<usize> = (0..self.drafts.len())
            .filter(|&position| self.drafts[position].is_ok())
            .collect();
        let verdicts = whole
            .iter()
            .filter_map(|&position| self.drafts[position].as_ref().ok())
            .map(|draft| judge(kind, draft))
            .collect();
        self.apply(&whole, verdicts);
    }

    fn apply(&mut self, asked: &[usize], verdicts: Vec<Verdict>) {
        for (&position, verdict) in asked.iter().zip(verdicts) {
            match verdict {
                Verdict::Allow => {}
                Verdict::Reject(why) => self.drafts[position] = Err(refusal(why)),
                Verdict::Rewrite(rewrite) => {
                    self.rewritten = true;
                    if let Ok(draft) = &mut self.drafts[position] {
                        draft.payload = rewrite.payload;
                        draft.expire_s = rewrite.expire_s;
                        draft.topic = rewrite.topic;
                    }
                }
            }
        }
    }

    fn fail(&mut self, asked: &[usize], failure: Failure) {
        let Kind::Plugin(bound) = &self.stages.list()[self.stage].kind else {
            return;
        };
        let policy = bound.binding.on_error.of(failure);
        let reason = if failure == Failure::Busy {
            Reason::RATE_LIMITED
        } else {
            Reason::NODE_NOT_MATCH
        };
        for &position in asked {
            if let Some(first) = self.first.get(position)
                && policy != Policy::Reject
            {
                self.drafts[position] = Ok(first.clone());
            }
            match policy {
                Policy::Reject => self.drafts[position] = Err(reason.into()),
                Policy::Allow => self.accepted[position] = true,
                Policy::Skip => {}
            }
        }
    }
}

/// A stage cannot refuse with the code of success, nor with a long text.
fn refusal(mut refusal: Refusal) -> Refusal {
    if refusal.reason.is_success() {
        refusal.reason = Reason::NOT_ALLOWED;
    }
    refusal.bounded()
}

fn judge(kind: &Kind, draft: &Draft) -> Verdict {
    match *kind {
        Kind::PayloadGuard { bytes_max } if draft.payload.is_empty() || draft.payload.len() > bytes_max => {
            Verdict::Reject(Reason::PAYLOAD_DECODE.into())
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
        Kind::PayloadGuard { .. } | Kind::ExpireGuard { .. } | Kind::Plugin(_) => Verdict::Allow,
    }
}

#[cfg(test)]
#[path = "pipeline_tests.rs"]
mod tests;
