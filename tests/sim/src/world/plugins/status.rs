//! Webhooks are told who came and went.

use super::super::{State, World};
use crate::plugins::Fate;
use penstock_core::hooks::call::{self, Failed, StatusBatch, Version};
use penstock_core::hooks::pipeline::Failure;
use penstock_core::plugins::{Hook, Registry};
use penstock_core::slot::{keys, rows};
use penstock_core::types::Uid;
use penstock_wire::storage::v1;
use std::sync::Arc;
use std::time::Duration;

impl World {
    /// A batch is handed to a binding. What its endpoint has taken it has taken, whether the answer arrives or not.
    pub(in crate::world) fn tell_status(
        &mut self,
        (node, shard): (usize, u16),
        fate: Fate,
        version: &Version,
        batch: &StatusBatch,
    ) -> (Duration, call::Returned) {
        let host = &self.nodes[node].hosts[usize::from(shard)];
        let acts = host.shard.registry_revision();
        let registry = acts
            .and_then(|revision| self.oracle.judged.registry(revision))
            .cloned();
        let bound = registry
            .as_ref()
            .and_then(|registry| registry.binding(&version.binding));
        let Some(bound) = bound else {
            let detail = format!("{version:?} is called, and registry {acts:?} has no such binding");
            self.oracle.violate("M-19", detail);
            return (Duration::ZERO, Err(Failed::Call(Failure::NotReady)));
        };
        if let Err(detail) = self.oracle.online_status.handed(bound, batch) {
            let detail = format!("{} in {:?}: {detail}", version.binding, batch.slot);
            self.oracle.violate("PR-6", detail);
        }
        let failed = |failure| Err(Failed::Call(failure));
        match fate {
            Fate::Trap(after) => (after, failed(Failure::Trap)),
            Fate::Stall(after) => (after, failed(Failure::Timeout)),
            Fate::Lost => (Duration::ZERO, failed(Failure::Timeout)),
            Fate::Answer(after) => match self.plugins.status_delivered() {
                Err(why) => (after, Err(why)),
                Ok(()) => {
                    self.oracle.online_status.took(bound, batch);
                    let done = call::Answer::Done {
                        messages: u32::try_from(batch.statuses.len()).unwrap_or(u32::MAX),
                        changes: Vec::new(),
                    };
                    (after, Ok(done))
                }
            },
        }
    }

    fn user_names(&self) -> Vec<Uid> {
        self.oracle.users.iter().map(|uid| Uid::new(uid)).collect()
    }

    /// The live sessions of a user, as the newest leader of the user's slot knows them, and whether it knows that somebody wants to be told.
    fn live_sessions(&self, uid: &Uid) -> Option<(Vec<u64>, bool)> {
        let running = self.nodes.iter().filter(|node| node.state == State::Running);
        let hosts = running.flat_map(|node| &node.hosts);
        let known = hosts.filter_map(|host| Some((host, host.shard.sessions_of(uid)?)));
        let (host, (_, sessions)) = known.max_by_key(|(_, (term, _))| *term)?;
        Some((sessions, self.is_aware(host.shard.registry_revision())))
    }

    /// Whether a webhook wants to be told by this revision of the registry. One that has not read it since its start does not know.
    fn is_aware(&self, revision: Option<u64>) -> bool {
        let registry = revision.and_then(|revision| self.oracle.judged.registry(revision));
        let wants = |registry: &Arc<Registry>| {
            registry
                .of(Hook::Webhook)
                .any(|bound| bound.binding.events.user_online_status)
        };
        registry.is_some_and(wants)
    }

    fn queue_of(&self, uid: &Uid) -> Vec<v1::OnlineQueue> {
        let key = keys::online_queue(uid.slot());
        let stored = self.nodes.iter().filter_map(|node| node.disk.durable_row(&key));
        stored.filter_map(|row| rows::decode(&row).ok()).collect()
    }

    /// The checker looks at who is online, and at who is to be told.
    pub(in crate::world) fn note_online(&mut self) {
        for uid in self.user_names() {
            for queue in self.queue_of(&uid) {
                self.oracle.online_status.stored(self.now, uid.slot(), &queue);
            }
            if let Some((sessions, true)) = self.live_sessions(&uid) {
                self.oracle.online_status.live(self.now, &uid, &sessions);
            }
        }
    }

    /// What a binding was not told and nobody has given up.
    pub(in crate::world) fn untold(&self) -> Option<String> {
        let registry = self.oracle.judged.newest()?;
        let wants = registry
            .of(Hook::Webhook)
            .filter(|bound| bound.binding.events.user_online_status && bound.disabled.is_none());
        for bound in wants {
            for uid in self.user_names() {
                let dropped = self.queue_of(&uid).iter().any(|queue| queue.dropped > 0);
                // Without a version that runs there nobody can be told yet.
                if dropped || bound.version_of_slot(uid.slot()).is_none() {
                    continue;
                }
                let Some((live, _)) = self.live_sessions(&uid) else {
                    return Some(format!("nobody knows whether {uid} is online"));
                };
                if let Some(untold) = self.oracle.online_status.untold(bound, &uid, &live) {
                    return Some(format!("{} is not told of {untold}", bound.binding.id));
                }
            }
        }
        None
    }
}
