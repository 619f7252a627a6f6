//! Calls of plugins, and who deploys them.

mod echo;
mod follow;
mod status;

use super::{Happening, State, World};
use crate::census;
use crate::clients::Purpose;
use crate::invariants::pc_1;
use crate::oracle;
use crate::plugins::{Echo, Fate, changed_by, is_answer};
use penstock_core::admin::{Answer, Ask, KeysAsk, LettersAsk};
use penstock_core::effect::{Effect, Event};
use penstock_core::hooks::call::{self, Call, Failed, Version, Work};
use penstock_core::hooks::pipeline::{Failure, Verdict};
use penstock_core::message::{Draft, Message};
use penstock_core::plugins::{Bound, Change, DeadLetter, Hook, KeyOperation};
use penstock_core::types::{ChannelKey, Incarnation, Token};
use std::sync::Arc;
use std::time::Duration;

/// A channel, its creation, and messages of it.
type HandedOut<'a> = (&'a ChannelKey, Incarnation, &'a [Message]);

impl World {
    /// The plugin host of a node is asked.
    pub(super) fn call_plugin(&mut self, node: usize, shard: u16, token: Token, call: Call) {
        let local = self.nodes[node].clock.read(self.now).monotonic;
        let place = (node, shard);
        if let Err(detail) = self.oracle.suspended.called(local, place, (token, &call)) {
            self.oracle.violate("S16", detail);
        }
        let fate = self.plugins.fate(self.now, &call.version, call.within);
        if fate == Fate::Lost {
            self.oracle.suspended.lost(place, &call.version);
        }
        let (after, returned) = match call.work {
            // Nobody asks over HTTP here.
            Work::Route { .. } => (Duration::ZERO, Err(Failed::Call(Failure::NotReady))),
            Work::Connect { request, .. } => self.ask_gate(fate, &call.version, &request),
            Work::BeforeSend { drafts, .. } => {
                let channel = call.channel.expect("drafts are of a channel");
                self.asked(&channel, &call.version, &drafts);
                self.judge(fate, &call.version, &drafts)
            }
            Work::PersistAfter {
                incarnation,
                messages,
                ..
            } => {
                let channel = call.channel.expect("messages are of a channel");
                let run = (&channel, incarnation, &messages[..]);
                self.follow(place, fate, &call.version, (run, None))
            }
            Work::Offline {
                incarnation,
                message,
                uids,
            } => {
                let channel = call.channel.expect("messages are of a channel");
                self.notify(
                    place,
                    fate,
                    &call.version,
                    (&channel, incarnation, &message, &uids),
                )
            }
            Work::Webhook {
                window,
                messages,
                uids,
            } if !uids.is_empty() => {
                let channel = call.channel.expect("messages are of a channel");
                let page = (&channel, window.incarnation, &messages[0], &uids[..]);
                self.notify(place, fate, &call.version, page)
            }
            Work::Webhook { window, messages, .. } => {
                let channel = call.channel.expect("messages are of a channel");
                let run = (&channel, window.incarnation, &messages[..]);
                self.follow(place, fate, &call.version, (run, Some(window)))
            }
            Work::OnlineStatus(batch) => self.tell_status(place, fate, &call.version, &batch),
        };
        if fate != Fate::Lost {
            let at = self.now + after;
            self.arrive_at(at, node, shard, Event::PluginReturned { token, returned });
        }
    }

    /// What the checkers know before a shard's effects are done: the registry that it acts on, and its breakers.
    pub(super) fn take_note(&mut self, place: (usize, u16), acts: Option<u64>, effects: &[Effect]) {
        self.oracle.entries.acts(self.now, place, acts);
        for effect in effects {
            self.take_note_of_question(place, effect);
            if let Effect::Registry(registry) = effect {
                self.oracle.judged.learned(registry);
                if let Err(detail) = self.oracle.suspended.learned(registry, self.nodes.len()) {
                    self.oracle.violate("S16", detail);
                }
            }
            if let Some(kind) = self.oracle.suspended.said(place, effect) {
                self.coverage.meet(kind);
            }
        }
        let registry = acts.and_then(|revision| self.oracle.judged.registry(revision));
        self.oracle.suspended.acts(place, registry);
    }

    fn asked(&mut self, channel: &ChannelKey, version: &Version, drafts: &[Draft]) {
        for draft in drafts {
            let Some(operation) = oracle::index(&draft.client_msg_no) else {
                continue;
            };
            let asked = self
                .oracle
                .judged
                .asked((operation, &draft.payload), channel, version);
            if let Err(detail) = asked {
                self.oracle.violate("M-19", detail);
            }
        }
    }

    /// What is answered when, and with what each draft may be left: an answer may come too late for its shard.
    fn judge(&mut self, fate: Fate, version: &Version, drafts: &[Draft]) -> (Duration, call::Returned) {
        let (after, failure) = match fate {
            Fate::Answer(after) => (after, Failure::Timeout),
            Fate::Trap(after) => (after, Failure::Trap),
            Fate::Stall(after) => (after, Failure::Timeout),
            Fate::Lost => (Duration::ZERO, Failure::Timeout),
        };
        let judged = &mut self.oracle.judged;
        let late = judged.is_open(version, Failure::Timeout);
        let open = judged.is_open(version, failure);
        let mut verdicts = Vec::new();
        for draft in drafts {
            if is_answer(&draft.from_uid) {
                verdicts.push(Verdict::Allow);
                continue;
            }
            let Some(operation) = oracle::index(&draft.client_msg_no) else {
                continue;
            };
            if open || late {
                judged.left(operation, draft.payload.clone());
            }
            if let Fate::Answer(_) = fate {
                let verdict = self.plugins.verdict(version, draft);
                match &verdict {
                    Verdict::Allow => judged.left(operation, draft.payload.clone()),
                    Verdict::Rewrite(rewrite) => judged.left(operation, rewrite.payload.clone()),
                    Verdict::Reject(_) => {}
                }
                verdicts.push(verdict);
            }
        }
        let returned = match fate {
            Fate::Answer(_) => Ok(call::Answer::Verdicts(verdicts)),
            _ => Err(Failed::Call(failure)),
        };
        self.coverage.fault(
            match fate {
                Fate::Answer(_) => "plugin answer",
                Fate::Trap(_) => "plugin trap",
                Fate::Stall(_) => "plugin stall",
                Fate::Lost => "plugin call lost",
            },
            1,
        );
        (after, returned)
    }

    /// A committed message that a binding has neither done nor given up.
    pub(super) fn behind(&self) -> Option<String> {
        let registry = self.oracle.judged.newest()?;
        for channel in &self.oracle.channels {
            let key = &channel.key;
            let Some((incarnation, meta)) = self.invariants.incarnation(key) else {
                continue;
            };
            let mut follows = registry
                .following()
                .filter(|bound| bound.version(key).is_some())
                .peekable();
            if follows.peek().is_none() {
                continue;
            }
            let records = census::records_of(&self.nodes, incarnation, meta);
            for bound in follows {
                if bound.binding.events.message_offline {
                    if let Some(missing) = self.not_told(bound, key, (incarnation, &records)) {
                        return Some(missing);
                    }
                    continue;
                }
                if let Some(seq) = self.oracle.followed.missing(bound, incarnation, &records) {
                    let id = &bound.binding.id;
                    return Some(format!("{id} has neither done {seq} of {key} nor given it up"));
                }
            }
        }
        None
    }

    /// A key that does not count the messages of a channel, each once, for a binding that has done all of them.
    pub(super) fn miscounted(&self) -> Option<String> {
        let registry = self.oracle.judged.newest()?;
        for channel in &self.oracle.channels {
            let key = &channel.key;
            let Some((incarnation, meta)) = self.invariants.incarnation(key) else {
                continue;
            };
            let exact = |bound: &&Arc<Bound>| {
                bound.binding.exact
                    && bound.version(key).is_some()
                    && !self.oracle.followed.gave_up(bound, incarnation)
            };
            let mut counting = registry.of(Hook::PersistAfter).filter(exact).peekable();
            if counting.peek().is_none() {
                continue;
            }
            let records = census::records_of(&self.nodes, incarnation, meta);
            for bound in counting {
                let seqs = pc_1::taken(bound, &records);
                let (Ok(wrong) | Err(wrong)) = self
                    .oracle
                    .counted
                    .check(
                        bound,
                        incarnation,
                        (&seqs, self.oracle.followed.done_by(bound, incarnation)),
                    )
                    .map(|missing| missing.unwrap_or_default());
                if !wrong.is_empty() {
                    return Some(format!("{wrong} of {key}"));
                }
            }
        }
        None
    }

    /// Somebody deploys, and the nodes say how far they are.
    pub(super) fn deploy(&mut self) {
        if let Some(room) = self.plugins.echo.as_ref().and_then(Echo::wanted_room) {
            self.call(0, room, Purpose::EchoRoom);
        }
        let Some(deployer) = &mut self.plugins.deployer else {
            return;
        };
        let next = self.now + deployer.pause();
        self.agenda.put(next, Happening::Deploy);
        if self.phase != super::phases::Phase::Chaos {
            return self.repair();
        }
        let Some(registry) = self.oracle.judged.newest().cloned() else {
            return;
        };
        let mut asks: Vec<(usize, Change)> = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            if node.state == State::Running {
                let reports = deployer.reports(&registry, node.id);
                asks.extend(reports.into_iter().map(|report| (index, report)));
            }
        }
        if let Some(change) = deployer.next(&registry) {
            asks.push((deployer.index(self.nodes.len()), change));
        }
        let gates = self.plugins.gatekeeper.as_mut();
        asks.extend(gates.and_then(|keeper| keeper.next(&registry, self.nodes.len())));
        let notifier = self.plugins.notifier.as_mut();
        asks.extend(notifier.and_then(|notifier| notifier.next(&registry, self.nodes.len())));
        let echo = self.plugins.echo.as_mut();
        asks.extend(echo.and_then(|echo| Some((0, echo.next(&registry)?))));
        if deployer.index(5) == 0 {
            let node = deployer.index(self.nodes.len());
            let list = LettersAsk::List {
                binding: Arc::from("audit"),
                after: None,
                limit: 3,
            };
            self.call(node, Ask::DeadLetters(list), Purpose::Deploy);
        }
        self.ask_changes(asks);
        self.look_at_keys();
    }

    /// Somebody looks at the keys of a plugin, and changes one that nothing depends on.
    fn look_at_keys(&mut self) {
        let Some(deployer) = &mut self.plugins.deployer else {
            return;
        };
        let plugin: Arc<str> = Arc::from("alpha");
        let ask = match deployer.index(12) {
            0 => KeysAsk::List {
                plugin,
                after: None,
                limit: 3,
            },
            1 => KeysAsk::Change {
                plugin,
                key: Arc::from("by-hand"),
                operation: KeyOperation::Increment(1),
            },
            2 => KeysAsk::Get {
                plugin,
                key: Arc::from("by-hand"),
            },
            _ => return,
        };
        let node = deployer.index(self.nodes.len());
        self.coverage.fault("keys asked for", 1);
        self.call(node, Ask::Keys(ask), Purpose::Deploy);
    }

    fn ask_changes(&mut self, asks: Vec<(usize, Change)>) {
        for (node, change) in asks {
            if let Change::Release { plugin, .. } = &change {
                self.oracle.suspended.released(plugin);
            }
            self.coverage.fault(kind(&change), 1);
            self.call(node, Ask::ChangeRegistry(Box::new(change)), Purpose::Deploy);
        }
    }

    /// The plugins are good now: somebody releases what is quarantined, and configures anew what is not called.
    fn repair(&mut self) {
        let Some(registry) = self.oracle.judged.newest().cloned() else {
            return;
        };
        let suspended = self.oracle.suspended.one().map(|(_, version)| version.clone());
        let Some(deployer) = &mut self.plugins.deployer else {
            return;
        };
        let node = deployer.index(self.nodes.len());
        let mut repairs = deployer.repairs(&registry, suspended.as_ref());
        let gates = self.plugins.gatekeeper.as_mut().zip(suspended.as_ref());
        repairs.extend(gates.and_then(|(keeper, version)| keeper.repair(&registry, version)));
        let notifier = self.plugins.notifier.as_mut().zip(suspended.as_ref());
        repairs.extend(notifier.and_then(|(notifier, version)| notifier.repair(&registry, &version.binding)));
        let echo = self.plugins.echo.as_mut().zip(suspended.as_ref());
        repairs.extend(echo.and_then(|(echo, version)| echo.repair(&registry, version)));
        self.ask_changes(repairs.into_iter().map(|change| (node, change)).collect());
    }

    /// A change was answered.
    pub(super) fn deployed(&mut self, answer: Option<&Answer>) {
        if let (Some(deployer), Some(revision)) = (&mut self.plugins.deployer, changed_by(answer)) {
            deployer.told = deployer.told.max(revision);
            self.coverage.fault("registry changed", 1);
        }
        if let Some(Answer::DeadLetters { letters, .. }) = answer {
            self.work_off(letters);
        }
    }

    /// Somebody has a dead letter replayed, or drops it.
    fn work_off(&mut self, letters: &[DeadLetter]) {
        let Some(deployer) = &mut self.plugins.deployer else {
            return;
        };
        let Some(letter) = letters.first().cloned() else {
            return;
        };
        let node = deployer.index(self.nodes.len());
        let (binding, name) = (letter.binding, letter.name);
        let (kind, wanted) = if deployer.index(3) == 0 {
            let names = vec![name];
            ("dead letter dropped", LettersAsk::Drop { binding, names })
        } else {
            let channel = letter.channel;
            let replay = LettersAsk::Replay {
                binding,
                channel,
                name,
            };
            ("dead letter replayed", replay)
        };
        self.coverage.fault(kind, 1);
        self.call(node, Ask::DeadLetters(wanted), Purpose::Deploy);
    }

    /// A shard that acts on an older registry than was told, or calls and batches that nothing ends.
    pub(super) fn plugins_astray(&self) -> Option<String> {
        let told = self.plugins.deployer.as_ref().map_or(0, |deployer| deployer.told);
        let newest = self
            .oracle
            .judged
            .newest()
            .map_or(0, |registry| registry.revision);
        for (index, node) in self.nodes.iter().enumerate() {
            for (shard, host) in node.hosts.iter().enumerate() {
                let seen = host.shard.summary();
                let acts = seen.registry.unwrap_or(0);
                if acts < told.max(newest) || seen.plugin_calls + seen.judging + seen.entering > 0 {
                    return Some(format!(
                        "node {} shard {shard} acts on registry {acts} of {newest} (told {told}), with {} calls of plugins, \
                         {} batches and {} connections open",
                        index + 1,
                        seen.plugin_calls,
                        seen.judging,
                        seen.entering
                    ));
                }
            }
        }
        None
    }
}

/// How a delivery ended that was not taken.
fn ending(why: &Failed) -> &'static str {
    match why {
        Failed::Undelivered { .. } => "webhook not taken",
        Failed::Later { .. } => "endpoint left alone",
        Failed::Gone => "endpoint gone",
        Failed::Call(_) | Failed::Retry { .. } | Failed::Busy { .. } | Failed::Poison => {
            "webhook not rendered"
        }
    }
}

fn kind(change: &Change) -> &'static str {
    match change {
        Change::Propose(_) => "version proposed",
        Change::Report(_) => "node reports",
        Change::Canary { .. } => "canary",
        Change::Promote { .. } => "promotion",
        Change::Rollback { .. } => "rollback",
        Change::Trip(_) => "version given up",
        Change::Release { .. } => "version released",
        Change::Remove { .. } => "plugin removed",
        Change::Bind { .. } => "bind",
        Change::Unbind { .. } => "unbind",
        Change::Disable { .. } => "binding disabled",
        Change::Enable { .. } => "binding enabled",
    }
}
