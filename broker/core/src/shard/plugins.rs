//! Plugins as a shard sees them: which registry it acts on, and the calls that are under way.
//!
//! Shard 0 reads the controller's rows when it starts, when they change where it can see it, and when another node acts on a
//! newer revision; then all shards of the node take the new registry, each in one step.

use super::Shard;
use super::breakers::{GivenUp, Made};
use super::continuation::Then;
use super::peer::{Peer, Reply, Request};
use super::turn::Turn;
use crate::controller;
use crate::effect::Effect;
use crate::hooks::breaker::Breakers;
use crate::hooks::call::{Answer, Call, Failed, Returned, Version};
use crate::hooks::faults::Faults;
use crate::hooks::gates;
use crate::hooks::pipeline::{self, Failure, Stages, Verdict};
use crate::pending::Pending;
use crate::plugins::Registry;
use crate::rows::{CONTROLLER_SLOT, Table};
use crate::types::{GroupId, Seq, Token};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// All rows of the controller fit one page: nodes, groups, plugins and bindings are bounded.
const ROWS_MAX: u32 = 4_096;
/// Calls that one shard has under way; beyond, a call fails as busy.
const CALLS_MAX: usize = 4_096;
/// Those of them that follow channels: they leave room for what clients wait for (PC-4).
const RUNS_MAX: usize = CALLS_MAX / 2;
/// Those of them that are questions to gates: a flood of connections leaves room for what open sessions wait for.
const CONNECTS_MAX: usize = CALLS_MAX / 4;
/// Those of them that answer requests over HTTP, each with bodies of up to 1 MiB.
pub(super) const ROUTES_MAX: usize = CALLS_MAX / 32;
/// An answer of the plugin host is waited for so much longer than the guest may take: it stops the guest itself.
const HOST_PATIENCE: Duration = Duration::from_secs(2);

/// What waits for a plugin's answer.
#[derive(Clone, Debug)]
pub(super) enum Waits {
    /// The pipeline, under its own name for the call.
    BeforeSend(Token),
    /// The gates, under their own name for the call.
    Connect(Token),
    /// Whoever asks over HTTP, under the name of the question.
    Route(Token),
    /// A consumer of a channel.
    Run(super::followers::Run),
    /// A webhook that delivers to an endpoint.
    Webhook(super::webhooks::Delivery),
    /// A page of offline recipients.
    Offline(super::offline::Handed),
    /// A batch of online status that a webhook delivers.
    OnlineStatus(super::online_status::Told),
    /// Whoever replays the message of a dead letter, which stands here; with the plugin whose keys it may change.
    Redelivery(super::groups::ReplyTo, Seq, Option<Arc<str>>),
}

impl Waits {
    /// Whether it follows a channel: no client waits for it.
    fn is_run(&self) -> bool {
        match self {
            Waits::Run(_)
            | Waits::Webhook(_)
            | Waits::Offline(_)
            | Waits::OnlineStatus(_)
            | Waits::Redelivery(..) => true,
            Waits::BeforeSend(_) | Waits::Connect(_) | Waits::Route(_) => false,
        }
    }

    fn is_connect(&self) -> bool {
        matches!(self, Waits::Connect(_))
    }

    fn is_route(&self) -> bool {
        matches!(self, Waits::Route(_))
    }
}

/// What a shard knows of plugins.
#[derive(Debug)]
pub(super) struct Plugins {
    /// What it acts on; none before it was read for the first time.
    registry: Option<Arc<Registry>>,
    /// Drafts that came before that.
    early: Vec<pipeline::Input>,
    /// A newer revision than this one is known, or it changed since the question was asked.
    stale: bool,
    asked: bool,
    calls: Pending<Made>,
    /// Calls that follow channels.
    runs: usize,
    /// Calls that are questions to gates.
    connects: usize,
    /// Calls that answer requests over HTTP.
    routes: usize,
    /// Which versions are left alone for a while.
    pub(super) breakers: Breakers,
    /// Which are never called.
    pub(super) quarantined: BTreeSet<Version>,
    /// What the shards of this node have given up.
    pub(super) given_up: GivenUp,
}

impl Plugins {
    /// Nothing is known yet.
    pub(super) fn new(faults: Faults) -> Plugins {
        Plugins {
            registry: None,
            early: Vec::new(),
            stale: false,
            asked: false,
            calls: Pending::default(),
            runs: 0,
            connects: 0,
            routes: 0,
            breakers: Breakers::new(faults),
            quarantined: BTreeSet::new(),
            given_up: GivenUp::default(),
        }
    }

    /// The revision that is acted on; 0 before the first.
    pub(super) fn revision(&self) -> u64 {
        self.registry.as_ref().map_or(0, |registry| registry.revision)
    }

    /// Whether it was read since the start.
    pub(super) fn is_known(&self) -> bool {
        self.registry.is_some()
    }

    /// What is acted on; none before it was read for the first time.
    pub(super) fn registry(&self) -> Option<&Arc<Registry>> {
        self.registry.as_ref()
    }

    /// Whether there is no room for another call like this.
    fn is_full(&self, waits: &Waits) -> bool {
        self.calls.len() >= CALLS_MAX
            || (waits.is_run() && self.runs >= RUNS_MAX)
            || (waits.is_connect() && self.connects >= CONNECTS_MAX)
            || (waits.is_route() && self.routes >= ROUTES_MAX)
    }

    /// Calls that are not answered.
    pub(super) fn under_way(&self) -> usize {
        self.calls.len()
    }

    /// When a call is given up.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.calls.next_deadline()
    }
}

/// The request for all rows of the controller, as of one moment.
pub(super) fn registry_rows() -> Request {
    Request::Page {
        group: GroupId::CONTROLLER,
        slot: CONTROLLER_SLOT,
        table: Table::Controller,
        prefix: Bytes::new(),
        after: None,
        rows_max: ROWS_MAX,
    }
}

/// The registry in an answer to [`registry_rows`].
pub(super) fn registry_of(reply: &Reply) -> Option<Registry> {
    match reply {
        Reply::Page { rows, more: false } => controller::read_registry(rows).ok(),
        _ => None,
    }
}

impl Shard {
    /// Revision of the registry of plugins that is acted on; none before it was read since the start.
    #[must_use]
    pub fn registry_revision(&self) -> Option<u64> {
        self.plugins.registry.as_ref().map(|registry| registry.revision)
    }

    /// Whether the registry was read since the start.
    pub(super) fn knows_plugins(&self) -> bool {
        self.plugins.is_known()
    }

    /// Asks for the registry if a newer one is known of, or none at all yet.
    pub(super) fn read_registry(&mut self, turn: &mut Turn<'_>) {
        let due = self.plugins.stale || self.plugins.registry.is_none();
        if self.config.shard != 0 || self.plugins.asked || !due {
            return;
        }
        self.plugins.asked = true;
        self.plugins.stale = false;
        self.call(turn, registry_rows(), Then::Registry);
    }

    /// Another node acts on this revision.
    pub(super) fn hear_of_registry(&mut self, turn: &mut Turn<'_>, revision: u64) {
        if revision > self.plugins.revision() && !self.plugins.asked {
            self.plugins.stale = true;
            self.read_registry(turn);
        }
    }

    /// The controller's replica on this shard applied a change.
    pub(super) fn registry_changed(&mut self, turn: &mut Turn<'_>) {
        self.plugins.stale = true;
        self.read_registry(turn);
    }

    /// The registry was read, or could not be: then the next beat asks again.
    pub(super) fn on_registry(&mut self, turn: &mut Turn<'_>, reply: Option<Reply>) {
        self.plugins.asked = false;
        let Some(registry) = reply.as_ref().and_then(registry_of) else {
            self.plugins.stale = true;
            return;
        };
        let known = self.plugins.registry.as_ref();
        if known.is_none_or(|known| known.revision < registry.revision) {
            let registry = Arc::new(registry);
            for shard in 1..self.config.shards {
                let message = Peer::Registry {
                    shard,
                    registry: Arc::clone(&registry),
                };
                turn.out.push(Effect::Send {
                    to: self.config.node,
                    message,
                });
            }
            turn.out.push(Effect::Registry(Arc::clone(&registry)));
            self.take_registry(turn, registry);
        }
        if self.plugins.stale {
            self.read_registry(turn);
        }
    }

    /// From now on this registry holds: for every batch that has not begun.
    pub(super) fn take_registry(&mut self, turn: &mut Turn<'_>, registry: Arc<Registry>) {
        let stages = Stages::of(&registry, self.config.limits.payload_bytes_max);
        let list = gates::List::of(&registry);
        let followers = super::followers::differ(self.plugins.registry.as_ref(), &registry);
        self.keep_breakers(turn, &registry);
        let first = self.plugins.registry.replace(registry).is_none();
        self.tell_online_readers(turn);
        if followers {
            self.follow_all();
        }
        if first || followers {
            self.resume_all(turn);
        }
        self.pipeline_input(turn, pipeline::Input::Stages(stages));
        self.gates_input(turn, gates::Input::Gates(list));
        for input in std::mem::take(&mut self.plugins.early) {
            self.pipeline_input(turn, input);
        }
    }

    /// Drafts go to the before-send stages. Before the registry is known they wait: nothing may pass by a filter because a
    /// process has just started. Their authority's deadline bounds the wait.
    pub(super) fn judge_drafts(&mut self, turn: &mut Turn<'_>, input: pipeline::Input) {
        if self.plugins.is_known() {
            self.pipeline_input(turn, input);
        } else {
            self.plugins.early.push(input);
        }
    }

    /// Has a plugin called, within the bound on calls, unless its breaker is open.
    pub(super) fn call_plugin(&mut self, turn: &mut Turn<'_>, call: Call, waits: Waits) {
        if self.plugins.is_full(&waits) {
            return self.plugin_answered(turn, waits, Err(Failed::Call(Failure::Busy)));
        }
        let probe = match self.admit_call(turn, &call.version) {
            Ok(probe) => probe,
            Err(failure) => return self.plugin_answered(turn, waits, Err(Failed::Call(failure))),
        };
        let token = self.next_token();
        let deadline = turn.now.after(call.within + HOST_PATIENCE);
        self.plugins.runs += usize::from(waits.is_run());
        self.plugins.connects += usize::from(waits.is_connect());
        self.plugins.routes += usize::from(waits.is_route());
        let made = Made::new(waits, &call, probe);
        self.plugins.calls.insert(token, deadline, made);
        turn.out.push(Effect::CallPlugin {
            token,
            call: Box::new(call),
        });
    }

    /// A plugin answered. An answer that nobody waits for any more is dropped.
    pub(super) fn on_plugin_returned(&mut self, turn: &mut Turn<'_>, token: Token, returned: Returned) {
        if let Some(made) = self.plugins.calls.remove(token) {
            self.plugin_ended(turn, made, returned);
        }
    }

    /// Calls that the plugin host has not answered within its time.
    pub(super) fn expire_plugin_calls(&mut self, turn: &mut Turn<'_>) {
        while let Some((_, made)) = self.plugins.calls.pop_due(turn.now) {
            self.plugin_ended(turn, made, Err(Failed::Call(Failure::Timeout)));
        }
    }

    fn plugin_ended(&mut self, turn: &mut Turn<'_>, made: Made, returned: Returned) {
        self.plugins.runs -= usize::from(made.waits.is_run());
        self.plugins.connects -= usize::from(made.waits.is_connect());
        self.plugins.routes -= usize::from(made.waits.is_route());
        self.call_ended(turn, &made, &returned);
        self.plugin_answered(turn, made.waits, returned);
    }

    fn plugin_answered(&mut self, turn: &mut Turn<'_>, waits: Waits, returned: Returned) {
        match waits {
            Waits::BeforeSend(token) => {
                let result = verdicts(returned);
                self.pipeline_input(turn, pipeline::Input::Returned { token, result });
            }
            Waits::Connect(token) => self.gate_returned(turn, token, returned),
            Waits::Route(ask) => super::asks::answer_route(turn, ask, returned),
            Waits::Run(run) => self.run_returned(&run, returned),
            Waits::Webhook(delivery) => self.webhook_returned(turn, delivery, returned),
            Waits::Offline(handed) => self.uids_returned(&handed, returned),
            Waits::OnlineStatus(told) => self.online_status_returned(turn, &told, returned),
            Waits::Redelivery(reply_to, seq, plugin) => {
                self.redelivery_returned(turn, (reply_to, seq, plugin), returned)
            }
        }
    }
}

/// What an answer means for a before-send stage: there is no trying again while a sender waits.
fn verdicts(returned: Returned) -> Result<Vec<Verdict>, Failure> {
    match returned {
        Ok(Answer::Verdicts(verdicts)) => Ok(verdicts),
        Ok(Answer::Done { .. } | Answer::Requests(_) | Answer::Decision(_) | Answer::Response(_))
        | Err(Failed::Poison | Failed::Undelivered { .. } | Failed::Later { .. } | Failed::Gone) => {
            Err(Failure::BadOutput)
        }
        Err(Failed::Call(failure)) => Err(failure),
        Err(Failed::Retry { .. } | Failed::Busy { .. }) => Err(Failure::Busy),
    }
}
