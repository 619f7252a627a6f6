//! Calls of plugins that are told of offline recipients.

use super::World;
use super::phases::Phase;
use crate::clients::Link;
use crate::plugins::Fate;
use penstock_core::effect::{Effect, Event};
use penstock_core::hooks::call::{self, Failed, Version};
use penstock_core::hooks::pipeline::Failure;
use penstock_core::message::{Committed, Message, Record};
use penstock_core::plugins::{Bound, Hook};
use penstock_core::shard::Peer;
use penstock_core::types::{ChannelKey, ChannelKind, Incarnation, Uid};
use std::time::Duration;

/// A channel, its creation, a message of it and a page of uids.
type Page<'a> = (&'a ChannelKey, Incarnation, &'a Message, &'a [Uid]);

impl World {
    /// What the checkers know of an event before a shard handles it.
    pub(super) fn take_note_of(&mut self, place: (usize, u16), event: &Event) {
        match event {
            Event::PluginReturned { token, returned } => {
                let ended = (*token, returned);
                let local = self.nodes[place.0].clock.read(self.now).monotonic;
                self.oracle.suspended.returned(local, place, ended);
            }
            Event::Peer {
                message: Peer::PresenceNotice { notices, .. },
                ..
            } => {
                for notice in notices {
                    self.oracle.notified.hears(self.now, place, notice);
                }
            }
            _ => {}
        }
    }

    /// What they know of an effect of a shard.
    pub(super) fn take_note_of_question(&mut self, place: (usize, u16), effect: &Effect) {
        if let Effect::Send {
            message: Peer::Presence { requests, .. },
            ..
        } = effect
        {
            for request in requests {
                self.oracle.notified.asks(place, request);
            }
        }
    }

    /// A binding is told of a page. What it has done it has done, whether its answer arrives or not.
    pub(super) fn notify(
        &mut self,
        place: (usize, u16),
        fate: Fate,
        version: &Version,
        (channel, incarnation, message, uids): Page<'_>,
    ) -> (Duration, call::Returned) {
        self.handed.push(Committed {
            channel: channel.clone(),
            incarnation,
            message: message.clone(),
        });
        self.oracle.saw(channel, message, &version.binding);
        let (acts, bound) = self.bound_of(place, version);
        let Some(bound) = bound else {
            let detail = format!("{version:?} is called, and registry {acts:?} has no such binding");
            self.oracle.violate("M-19", detail);
            return (Duration::ZERO, Err(Failed::Call(Failure::NotReady)));
        };
        let given_up = self.oracle.followed.done_by(&bound, incarnation);
        let of = (&*bound, incarnation, given_up);
        let handed = self.oracle.notified.handed(self.now, place, of, (message, uids));
        if let Err(detail) = handed {
            let detail = format!("{} in {channel}: {detail}", version.binding);
            self.oracle.violate("PR-4", detail);
        }
        self.check_at_peace(channel, uids);
        self.coverage.fault("told of offline recipients", 1);
        let failed = |failure| Err(Failed::Call(failure));
        match fate {
            Fate::Trap(after) => (after, failed(Failure::Trap)),
            Fate::Stall(after) => (after, failed(Failure::Timeout)),
            Fate::Lost => (Duration::ZERO, failed(Failure::Timeout)),
            Fate::Answer(after) => match self.noted(&bound, version, message, uids.len()) {
                Err(why) => (after, Err(why)),
                Ok(count) => {
                    let (seq, done) = (message.seq.0, &uids[..count]);
                    self.oracle.notified.done(&bound, incarnation, seq, done);
                    let answer = call::Answer::Done {
                        messages: u32::try_from(count).unwrap_or(u32::MAX),
                        changes: Vec::new(),
                    };
                    (after, Ok(answer))
                }
            },
        }
    }

    /// How many of so many recipients are done; of a webhook all or none.
    fn noted(
        &mut self,
        bound: &Bound,
        version: &Version,
        message: &Message,
        uids: usize,
    ) -> Result<usize, Failed> {
        if bound.binding.hook == Hook::Webhook {
            let delivered = self.plugins.delivered(version, std::slice::from_ref(message));
            return delivered.map(|()| uids);
        }
        self.plugins.noted(version, message, uids)
    }

    /// Somebody who never connects and is not told of for a message of a group of users.
    pub(super) fn not_told(
        &self,
        bound: &Bound,
        key: &ChannelKey,
        (incarnation, records): (Incarnation, &[Record]),
    ) -> Option<String> {
        if key.kind != ChannelKind::GROUP {
            return None;
        }
        let given_up = self.oracle.followed.done_by(bound, incarnation);
        let missing = self
            .oracle
            .notified
            .missing(bound, incarnation, (records, given_up))?;
        let id = &bound.binding.id;
        Some(format!("{id} is not told of {missing} of {key}"))
    }

    /// Once everything is repaired and announced, nobody is told of who has been connected for long.
    fn check_at_peace(&mut self, channel: &ChannelKey, uids: &[Uid]) {
        if self.phase != Phase::Converging {
            return;
        }
        for uid in uids {
            let user = self.clients.users.iter().find(|user| *user.uid == *uid.as_str());
            if let Some(Link::Up { connection }) = user.map(|user| user.link)
                && self.oracle.notified.peaceful.contains(&connection)
            {
                let detail = format!("{uid} is told of in {channel}, and is connected by {connection}");
                self.oracle.violate("PR-4", detail);
            }
        }
    }
}
