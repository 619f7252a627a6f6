//! The bindings that follow channels after the commit, as consumers with cursors.

use super::{Bound, Hook, RUN_MAX, Registry, StartAt, WEBHOOK_RUN_MAX};
use crate::hooks::cursors;
use crate::limits::Limits;
use crate::types::{ChannelKey, Seq};
use penstock_wire::channel_id;
use std::sync::Arc;

/// Begins the names of consumers that a binding has for its messages, or for offline recipients when it is bound to those.
const BINDING: &str = "binding";
/// Begins those of consumers that a webhook has for `msg.offline`.
const OFFLINE: &str = "offline";

/// What a consumer of a binding is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Committed messages.
    Messages,
    /// Offline recipients of committed messages.
    Offline,
}

impl Bound {
    /// The consumers of a post-commit binding: their cursors are named by binding and creation, never by digest.
    pub fn consumers(&self, limits: &Limits) -> impl Iterator<Item = cursors::Consumer> {
        let events = self.binding.events;
        let told: &[Told] = match self.binding.hook {
            Hook::Offline => &[Told::Offline],
            Hook::Webhook => match (events.message_notify, events.message_offline) {
                (true, true) => &[Told::Messages, Told::Offline],
                (true, false) => &[Told::Messages],
                (false, true) => &[Told::Offline],
                (false, false) => &[],
            },
            Hook::BeforeSend | Hook::PersistAfter | Hook::Connect | Hook::Route => &[Told::Messages],
        };
        told.iter().map(|&told| self.consumer(told, limits))
    }

    /// The consumer of a post-commit binding that is told of this.
    #[must_use]
    pub fn consumer(&self, told: Told, limits: &Limits) -> cursors::Consumer {
        let is_webhook = self.binding.hook == Hook::Webhook;
        cursors::Consumer {
            name: self.consumer_name(told),
            start: match self.binding.start {
                None | Some(StartAt::Earliest) => cursors::Start::Earliest,
                Some(StartAt::Seq(seq)) => cursors::Start::At(Seq(seq)),
                Some(StartAt::Time(ms)) => cursors::Start::Since(ms),
            },
            exact: told == Told::Messages && (self.binding.exact || is_webhook),
            first_only: false,
            attempts_max: (self.binding.attempts_max > 0).then_some(self.binding.attempts_max),
            run_max: match told {
                Told::Offline => 1,
                Told::Messages if is_webhook => WEBHOOK_RUN_MAX,
                Told::Messages => RUN_MAX,
            },
            patience: is_webhook.then_some(cursors::Patience {
                first: limits.webhook_pause_first,
                longest: limits.webhook_pause_max,
                total: self.binding.patience,
            }),
        }
    }

    /// The name of a consumer: part of its cursor's key.
    fn consumer_name(&self, told: Told) -> Arc<str> {
        let begin = match (told, self.binding.hook) {
            (Told::Offline, Hook::Webhook) => OFFLINE,
            _ => BINDING,
        };
        Arc::from(format!("{begin}/{}/{}", self.incarnation, self.binding.id))
    }
}

impl Registry {
    /// The consumers that follow this channel. Nobody is told that somebody missed a command.
    #[must_use]
    pub fn consumers(&self, channel: &ChannelKey, limits: &Limits) -> Vec<cursors::Consumer> {
        let concerns = |consumer: &cursors::Consumer| {
            let told = self.consumed_by(&consumer.name).map(|(_, told)| told);
            told != Some(Told::Offline) || !channel_id::is_command(&channel.id)
        };
        self.following()
            .filter(|bound| bound.version(channel).is_some())
            .flat_map(|bound| bound.consumers(limits))
            .filter(concerns)
            .collect()
    }

    /// The bindings that follow channels after the commit.
    pub fn following(&self) -> impl Iterator<Item = &Arc<Bound>> {
        let follows = |bound: &&Arc<Bound>| bound.binding.hook.follows() && bound.disabled.is_none();
        self.bindings.iter().filter(follows)
    }

    /// The binding whose consumer has this name, and what the consumer is told of.
    #[must_use]
    pub fn consumed_by(&self, consumer: &str) -> Option<(&Arc<Bound>, Told)> {
        let (begin, rest) = consumer.split_once('/')?;
        let (incarnation, id) = rest.split_once('/')?;
        let incarnation: u64 = incarnation.parse().ok()?;
        let bound = self
            .binding(id)
            .filter(|bound| bound.incarnation == incarnation)?;
        match (begin, bound.binding.hook) {
            (OFFLINE, Hook::Webhook) | (BINDING, Hook::Offline) => Some((bound, Told::Offline)),
            (BINDING, _) => Some((bound, Told::Messages)),
            _ => None,
        }
    }
}
