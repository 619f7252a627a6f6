//! Online status of users: which bindings are told, and the wiring of the machine of each group.

use super::Shard;
use super::continuation::Reading;
use super::groups::Proposer;
use super::plugins::Waits;
use super::step::Step;
use super::turn::Turn;
use super::webhooks;
use crate::effect::Effect;
use crate::hooks::call::{Call, Returned, StatusBatch, Work};
use crate::hooks::cursors;
use crate::patience::Patience;
use crate::plugins::{Bound, Hook};
use crate::rows::Miss;
use crate::slot::online::{Delivery, Input, Outcome, Output, Reader, Readers, SessionChange, session_of};
use crate::slot::{self, Lane};
use crate::types::{GroupId, Route, SlotId, Token, Uid};
use std::sync::Arc;

/// A batch that is being delivered.
#[derive(Clone, Debug)]
pub(super) struct Told {
    group: GroupId,
    slot: SlotId,
    token: Token,
    /// Its events.
    asked: usize,
    binding: webhooks::Configured,
}

impl Shard {
    /// The bindings that are told, as of the registry that is acted on.
    fn online_readers(&self) -> Readers {
        let Some(registry) = self.plugins.registry() else {
            return Readers::default();
        };
        let limits = &self.config.limits;
        let wants = |bound: &&Arc<Bound>| bound.binding.events.user_online_status;
        let reader = |bound: &Arc<Bound>| Reader {
            binding: Arc::clone(&bound.binding.id),
            incarnation: bound.incarnation,
            uids: bound.binding.selector.uids.clone(),
            enabled: bound.disabled.is_none(),
            patience: Patience {
                first: limits.webhook_pause_first,
                longest: limits.webhook_pause_max,
                total: bound.binding.patience,
            },
            attempts_max: bound.binding.attempts_max,
        };
        Readers {
            revision: registry.revision,
            all: registry.of(Hook::Webhook).filter(wants).map(reader).collect(),
        }
    }

    /// Another registry is acted on: the groups hear who is to be told.
    pub(super) fn tell_online_readers(&mut self, turn: &mut Turn<'_>) {
        let readers = self.online_readers();
        let groups: Vec<GroupId> = self.groups.keys().copied().collect();
        for group in groups.into_iter().filter(|group| *group != GroupId::CONTROLLER) {
            self.queue.push_back(Step::OnlineStatus {
                group,
                input: Input::Readers(readers.clone()),
            });
            let mut outputs = Vec::new();
            if let Some(host) = self.groups.get_mut(&group) {
                // Those who come in place of all others hear of the sessions that are open, as the first ones did.
                if host.online_status.makes_way(&readers) {
                    host.presence.watch(false, &mut outputs);
                }
                host.presence.watch(!readers.all.is_empty(), &mut outputs);
            }
            self.presence_outputs(turn, group, outputs);
        }
    }

    /// The authority saw a session begin or end.
    pub(super) fn session_changed(&mut self, group: GroupId, slot: SlotId, route: &Route, online: bool) {
        let change = SessionChange::of(route, online);
        self.queue.push_back(Step::OnlineStatus {
            group,
            input: Input::Changed { slot, change },
        });
    }

    /// Steps the machine of a group.
    pub(super) fn online_status_input(
        &mut self,
        turn: &mut Turn<'_>,
        group: GroupId,
        input: Input,
    ) -> Result<(), Miss> {
        let Some(host) = self.groups.get_mut(&group) else {
            return Ok(());
        };
        let mut outputs = Vec::new();
        host.online_status
            .handle(turn.now, input, &turn.rows, &mut outputs)?;
        for output in outputs {
            self.online_status_output(turn, group, output);
        }
        Ok(())
    }

    /// Time has passed for the machine of a group.
    pub(super) fn expire_online_status(&mut self, turn: &Turn<'_>, group: GroupId) {
        let host = self.groups.get(&group);
        let due = host.and_then(|host| host.online_status.next_deadline());
        if due.is_some_and(|at| at <= turn.now.monotonic) {
            self.work_on_online_status(group);
        }
    }

    fn work_on_online_status(&mut self, group: GroupId) {
        self.queue.push_back(Step::OnlineStatus {
            group,
            input: Input::Work,
        });
    }

    fn online_status_output(&mut self, turn: &mut Turn<'_>, group: GroupId, output: Output) {
        match output {
            Output::Propose { token, command } => {
                let name = self.next_token();
                if let Some(host) = self.groups.get_mut(&group) {
                    host.proposals.insert(name, Proposer::OnlineStatus(token));
                }
                let input = slot::Input::Propose {
                    token: name,
                    lane: Lane::Background,
                    command,
                };
                self.queue.push_back(Step::Group { group, input });
            }
            Output::Read { token, request } => {
                let read = self.reading(Reading::OnlineStatus { group, token });
                turn.out.push(Effect::Read { token: read, request });
            }
            Output::WhoIsOnline { slot, uids } => self.who_is_online(group, slot, &uids),
            Output::Deliver(delivery) => self.tell_online_status(turn, group, delivery),
            Output::Dropped(events) => self.counters.online_status_dropped += events,
            Output::Work => self.work_on_online_status(group),
        }
    }

    fn who_is_online(&mut self, group: GroupId, slot: SlotId, uids: &[Uid]) {
        let host = self.groups.get(&group);
        let routes = host.and_then(|host| host.presence.sessions(slot, uids));
        let sessions = routes.map(|routes| routes.iter().map(session_of).collect());
        self.queue.push_back(Step::OnlineStatus {
            group,
            input: Input::Online { slot, sessions },
        });
    }

    /// Has the plugin of a binding render a batch, and its endpoint take it.
    fn tell_online_status(&mut self, turn: &mut Turn<'_>, group: GroupId, delivery: Delivery) {
        let registry = self.plugins.registry().cloned();
        let bound = registry
            .as_ref()
            .and_then(|registry| registry.binding(&delivery.binding))
            .filter(|bound| bound.incarnation == delivery.incarnation);
        let version = bound.and_then(|bound| Some((bound, bound.version_of_slot(delivery.slot)?)));
        let (slot, token) = (delivery.slot, delivery.token);
        let Some((bound, version)) = version else {
            return self.online_status_ended(group, slot, token, Outcome::Untried);
        };
        let told = Told {
            group,
            slot,
            token,
            asked: delivery.statuses.len(),
            binding: webhooks::Configured::of(bound),
        };
        let call = Call {
            version: version.clone(),
            channel: None,
            within: bound.binding.deadline,
            work: Work::OnlineStatus(StatusBatch {
                binding_incarnation: delivery.incarnation,
                slot,
                number: delivery.number,
                wall_ms: delivery.wall_ms,
                statuses: delivery.statuses,
            }),
        };
        self.call_plugin(turn, call, Waits::OnlineStatus(told));
    }

    /// A delivery ended.
    pub(super) fn online_status_returned(&mut self, turn: &mut Turn<'_>, told: &Told, returned: Returned) {
        self.note_endpoint(turn, &told.binding, &returned);
        let outcome = match webhooks::failure_of(returned, told.asked) {
            None => Outcome::Done,
            Some(cursors::Failure::Retry { after, .. }) => Outcome::Failed { after },
            Some(cursors::Failure::Busy { after }) => Outcome::Later {
                after: after.unwrap_or(self.config.limits.webhook_pause_first),
            },
            Some(cursors::Failure::Poison) => Outcome::Poison,
            Some(cursors::Failure::Later { after }) => Outcome::Later { after },
            Some(cursors::Failure::Untried) => Outcome::Untried,
        };
        self.online_status_ended(told.group, told.slot, told.token, outcome);
    }

    fn online_status_ended(&mut self, group: GroupId, slot: SlotId, token: Token, outcome: Outcome) {
        self.queue.push_back(Step::OnlineStatus {
            group,
            input: Input::Returned { slot, token, outcome },
        });
    }
}
