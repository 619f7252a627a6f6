//! Plugins and bindings: asked of the controller's leader, changed by its log.

use super::{Job, answer};
use crate::admin::{Answer, Failure};
use crate::controller;
use crate::plugins::{Change, Refused};
use crate::replicated;
use crate::shard::Shard;
use crate::shard::continuation::Then;
use crate::shard::peer::{Reply, Request};
use crate::shard::plugins::registry_of;
use crate::shard::turn::Turn;
use crate::slot::Lane;
use crate::types::{GroupId, NodeId, Token};
use std::sync::Arc;

impl Shard {
    /// Reads all of it.
    pub(super) fn ask_registry(&mut self, turn: &mut Turn<'_>, ask: Token) {
        self.keep_ask(turn, ask, Job::Registry);
        self.call(turn, super::super::plugins::registry_rows(), Then::Ask { ask });
    }

    /// Changes it. Whoever is in service must be ready for a candidate; who is down gets it when it is back.
    pub(super) fn ask_change(&mut self, turn: &mut Turn<'_>, ask: Token, change: &Change) {
        let all: Vec<NodeId> = self.liveness.nodes().map(|(node, ..)| node).collect();
        let nodes = controller::Nodes {
            all: &all,
            down: &self.nodes_down(turn),
        };
        self.keep_ask(turn, ask, Job::Change);
        let request = Request::Propose {
            group: GroupId::CONTROLLER,
            lane: Lane::Ordinary,
            command: controller::change_registry(turn.now.wall_ms, change, nodes),
        };
        self.call(turn, request, Then::Ask { ask });
    }

    /// It was read, or not. A candidate is shown as waiting for those alone that are not down.
    pub(super) fn answer_registry(&self, turn: &mut Turn<'_>, ask: Token, reply: &Reply) {
        let down = self.nodes_down(turn);
        let answered = match registry_of(reply) {
            Some(mut registry) => {
                let plugins = registry.plugins.values_mut();
                for rollout in plugins.filter_map(|plugin| plugin.rollout.as_mut()) {
                    rollout.wanted.retain(|node| !down.contains(node));
                }
                Answer::Registry(Arc::new(registry))
            }
            None => Answer::Failed(Failure::Unavailable(
                "the registry of plugins cannot be read".to_owned(),
            )),
        };
        answer(turn, ask, answered);
    }

    /// Nodes that were not heard of for so long that they count as dead.
    fn nodes_down(&self, turn: &Turn<'_>) -> Vec<NodeId> {
        // A process that has just started has not heard of anybody yet.
        let dead_after = self.config.limits.node_dead_after;
        self.liveness
            .nodes()
            .filter(|(_, state, since)| !state.alive && turn.now.monotonic > *since + dead_after)
            .map(|(node, ..)| node)
            .collect()
    }
}

pub(super) fn answer_change(turn: &mut Turn<'_>, ask: Token, reply: &Reply) {
    let answered = match reply {
        Reply::Proposed(Ok(replicated::Reply::Revision(revision))) => Answer::Changed { revision: *revision },
        _ => Answer::Failed(Failure::Unavailable("no answer of the controller".to_owned())),
    };
    answer(turn, ask, answered);
}

/// What a refused change of the registry means for the caller.
pub(super) fn failure_of(why: Refused) -> Failure {
    match why {
        Refused::NoPlugin | Refused::NoBinding => Failure::NotFound(why.to_string()),
        Refused::Changed
        | Refused::RolloutOpen
        | Refused::NoRollout
        | Refused::NotReady
        | Refused::Quarantined
        | Refused::NotQuarantined
        | Refused::TooManyQuarantined
        | Refused::Known
        | Refused::NotDisabled
        | Refused::NothingBefore => Failure::Conflict(why.to_string()),
        Refused::SameDigest
        | Refused::StillBound
        | Refused::NoHook
        | Refused::NotFollowing
        | Refused::RouteBound
        | Refused::Fixed
        | Refused::TooManyPlugins
        | Refused::TooManyBindings
        | Refused::TooLarge => Failure::Invalid(why.to_string()),
    }
}
