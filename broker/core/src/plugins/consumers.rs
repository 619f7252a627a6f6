//! The bindings that follow channels after the commit, as consumers with cursors.

use super::{Bound, Hook, RUN_MAX, Registry, StartAt, WEBHOOK_RUN_MAX};
use crate::hooks::cursors;
use crate::limits::Limits;
use crate::types::{ChannelKey, Seq};
use penstock_wire::channel_id;
use std::sync::Arc;

impl Bound {
    /// Whether the messages of a channel are for it at all: nobody is told that somebody missed a command.
    fn concerns(&self, channel: &ChannelKey) -> bool {
        self.binding.hook != Hook::Offline || !channel_id::is_command(&channel.id)
    }

    /// The consumer of a post-commit binding: its cursor is named by binding and creation, never by digest.
    #[must_use]
    pub fn consumer(&self, limits: &Limits) -> cursors::Consumer {
        let is_webhook = self.binding.hook == Hook::Webhook;
        let is_offline = self.binding.hook == Hook::Offline;
        cursors::Consumer {
            name: consumer_name(&self.binding.id, self.incarnation),
            start: match self.binding.start {
                None | Some(StartAt::Earliest) => cursors::Start::Earliest,
                Some(StartAt::Seq(seq)) => cursors::Start::At(Seq(seq)),
                Some(StartAt::Time(ms)) => cursors::Start::Since(ms),
            },
            exact: is_webhook || (self.binding.exact && !is_offline),
            first_only: false,
            attempts_max: (self.binding.attempts_max > 0).then_some(self.binding.attempts_max),
            run_max: match self.binding.hook {
                Hook::Webhook => WEBHOOK_RUN_MAX,
                Hook::Offline => 1,
                Hook::BeforeSend | Hook::PersistAfter | Hook::Connect => RUN_MAX,
            },
            patience: is_webhook.then_some(cursors::Patience {
                first: limits.webhook_pause_first,
                longest: limits.webhook_pause_max,
                total: self.binding.patience,
            }),
        }
    }
}

/// The name of a binding's consumer: part of its cursor's key.
fn consumer_name(id: &str, incarnation: u64) -> Arc<str> {
    Arc::from(format!("binding/{incarnation}/{id}"))
}

impl Registry {
    /// The consumers that follow this channel.
    #[must_use]
    pub fn consumers(&self, channel: &ChannelKey, limits: &Limits) -> Vec<cursors::Consumer> {
        self.following()
            .filter(|bound| bound.version(channel).is_some() && bound.concerns(channel))
            .map(|bound| bound.consumer(limits))
            .collect()
    }

    /// The bindings that follow channels after the commit.
    pub fn following(&self) -> impl Iterator<Item = &Arc<Bound>> {
        let follows = |bound: &&Arc<Bound>| bound.binding.hook.follows() && bound.disabled.is_none();
        self.bindings.iter().filter(follows)
    }

    /// The binding whose consumer has this name.
    #[must_use]
    pub fn consumed_by(&self, consumer: &str) -> Option<&Arc<Bound>> {
        let (incarnation, id) = consumer.strip_prefix("binding/")?.split_once('/')?;
        let incarnation: u64 = incarnation.parse().ok()?;
        self.binding(id).filter(|bound| bound.incarnation == incarnation)
    }
}
