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

    /// Changes it. Whoever is in service must be ready for a candidate.
    pub(super) fn ask_change(&mut self, turn: &mut Turn<'_>, ask: Token, change: &Change) {
        let nodes: Vec<NodeId> = self.liveness.nodes().map(|(node, ..)| node).collect();
        self.keep_ask(turn, ask, Job::Change);
        let request = Request::Propose {
            group: GroupId::CONTROLLER,
            lane: Lane::Ordinary,
            command: controller::change_registry(turn.now.wall_ms, change, &nodes),
        };
        self.call(turn, request, Then::Ask { ask });
    }
}

pub(super) fn answer_registry(turn: &mut Turn<'_>, ask: Token, reply: &Reply) {
    let answered = match registry_of(reply) {
        Some(registry) => Answer::Registry(Arc::new(registry)),
        None => Answer::Failed(Failure::Unavailable(
            "the registry of plugins cannot be read".to_owned(),
        )),
    };
    answer(turn, ask, answered);
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
        | Refused::NothingBefore => Failure::Conflict(why.to_string()),
        Refused::SameDigest
        | Refused::StillBound
        | Refused::NoHook
        | Refused::Fixed
        | Refused::TooManyPlugins
        | Refused::TooManyBindings
        | Refused::TooLarge => Failure::Invalid(why.to_string()),
    }
}
