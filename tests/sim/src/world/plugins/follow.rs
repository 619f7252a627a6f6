//! Bindings that work on committed messages.

use super::{HandedOut, ending};
use crate::plugins::{ECHO, Fate, is_answer};
use crate::world::World;
use penstock_core::hooks::call::{self, Failed, Version, Window};
use penstock_core::hooks::pipeline::Failure;
use penstock_core::message::{Committed, Message};
use penstock_core::plugins::{Bound, Hook};
use penstock_core::types::Incarnation;
use std::sync::Arc;
use std::time::Duration;

impl World {
    /// A binding works on committed messages. What it has done it has done, whether its answer arrives or not.
    pub(super) fn follow(
        &mut self,
        place: (usize, u16),
        fate: Fate,
        version: &Version,
        ((channel, incarnation, messages), window): (HandedOut<'_>, Option<Window>),
    ) -> (Duration, call::Returned) {
        for message in messages {
            let committed = Committed {
                channel: channel.clone(),
                incarnation,
                message: message.clone(),
            };
            self.handed.push(committed);
            if !is_answer(&message.draft.from_uid) {
                self.oracle.saw(channel, message, &version.binding);
            }
        }
        let (acts, bound) = self.bound_of(place, version);
        let Some(bound) = &bound else {
            let detail = format!("{version:?} is called, and registry {acts:?} has no such binding");
            self.oracle.violate("M-19", detail);
            return (Duration::ZERO, Err(Failed::Call(Failure::NotReady)));
        };
        if let Err(detail) = self.oracle.followed.handed(bound, incarnation, messages) {
            let detail = format!("{} in {channel}: {detail}", version.binding);
            self.oracle.violate("PC-1", detail);
        }
        if let Some(window) = window
            && let Err(detail) = self.oracle.followed.window(window)
        {
            self.oracle
                .violate("S22", format!("{} in {channel}: {detail}", version.binding));
        }
        let failed = |failure| Err(Failed::Call(failure));
        match fate {
            Fate::Trap(after) => (after, failed(Failure::Trap)),
            Fate::Stall(after) => (after, failed(Failure::Timeout)),
            Fate::Lost => (Duration::ZERO, failed(Failure::Timeout)),
            Fate::Answer(after) => {
                let run = (channel, incarnation, messages);
                (
                    after,
                    self.work_off_run(place.0, (bound, version), (run, window.is_some())),
                )
            }
        }
    }

    /// The binding of a call, under the registry that its shard acts on: under that one it was made.
    pub(in crate::world) fn bound_of(
        &self,
        (node, shard): (usize, u16),
        version: &Version,
    ) -> (Option<u64>, Option<Arc<Bound>>) {
        let acts = self.nodes[node].hosts[usize::from(shard)]
            .shard
            .registry_revision();
        let registry = acts.and_then(|revision| self.oracle.judged.registry(revision));
        let bound = registry.and_then(|registry| registry.binding(&version.binding));
        (acts, bound.cloned())
    }

    /// The code works on a run, or delivers it.
    fn work_off_run(
        &mut self,
        node: usize,
        (bound, version): (&Bound, &Version),
        (run, delivers): (HandedOut<'_>, bool),
    ) -> call::Returned {
        let (_, incarnation, messages) = run;
        let done = if delivers {
            let delivered = self.plugins.delivered(version, messages);
            delivered.map(|()| messages.len())
        } else if &*version.binding == ECHO {
            self.echo(node, bound, run)
        } else {
            self.plugins.done(version, messages)
        };
        if let (true, Err(why)) = (delivers, &done) {
            self.coverage.fault(ending(why), 1);
        }
        let count = done?;
        Ok(self.all_done(bound, incarnation, &messages[..count]))
    }

    /// These messages are done.
    pub(super) fn all_done(
        &mut self,
        bound: &Bound,
        incarnation: Incarnation,
        messages: &[Message],
    ) -> call::Answer {
        for message in messages {
            self.oracle.followed.done(bound, incarnation, message.seq.0);
        }
        let counts = bound.binding.exact && bound.binding.hook == Hook::PersistAfter;
        call::Answer::Done {
            messages: u32::try_from(messages.len()).unwrap_or(u32::MAX),
            changes: if counts {
                self.oracle.counted.changes(bound, incarnation, messages)
            } else {
                Vec::new()
            },
        }
    }
}
