//! The links of a shard, one per lane: only those that hold something are looked at.

use super::Shard;
use super::peer::Peer;
use super::turn::Turn;
use crate::channel::{Exchange, Link, Message};
use crate::effect::Effect;
use crate::limits::Limits;
use crate::types::{ChannelKey, NodeId, Now, ProcessBoot};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// One link per lane of the shard: the counters of a lane are kept by one shard on either side.
pub(super) struct Links {
    lanes: BTreeMap<u16, Link>,
    /// Lanes whose link may hold something.
    busy: BTreeSet<u16>,
}

impl Links {
    /// Links of this process.
    pub(super) fn new(lanes: impl Iterator<Item = u16>, session: ProcessBoot, limits: &Arc<Limits>) -> Links {
        Links {
            lanes: lanes
                .map(|lane| (lane, Link::new(session, Arc::clone(limits))))
                .collect(),
            busy: BTreeSet::new(),
        }
    }

    /// Takes a message for a node.
    pub(super) fn push(&mut self, now: Now, lane: u16, to: NodeId, message: (ChannelKey, Message)) {
        if let Some(link) = self.lanes.get_mut(&lane) {
            link.push(now, to, message.0, message.1);
            self.busy.insert(lane);
        }
    }

    /// Takes an exchange and hands out its messages.
    pub(super) fn receive(
        &mut self,
        now: Now,
        lane: u16,
        from: NodeId,
        exchange: Exchange,
    ) -> Vec<(ChannelKey, Message)> {
        let Some(link) = self.lanes.get_mut(&lane) else {
            return Vec::new();
        };
        self.busy.insert(lane);
        link.receive(now, from, exchange)
    }

    /// When [`Shard::flush_links`] is wanted at the latest.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.busy
            .iter()
            .filter_map(|lane| self.lanes.get(lane)?.next_deadline())
            .min()
    }
}

impl Shard {
    /// Sends what the links hold and may send.
    pub(super) fn flush_links(&mut self, turn: &mut Turn<'_>) {
        let lanes = &mut self.links.lanes;
        self.links.busy.retain(|lane| {
            let Some(link) = lanes.get_mut(lane) else {
                return false;
            };
            let mut exchanges = Vec::new();
            link.release(turn.now, &mut exchanges);
            for (to, exchange) in exchanges {
                turn.out.push(Effect::Send {
                    to,
                    message: Peer::Exchange {
                        lane: *lane,
                        exchange,
                    },
                });
            }
            !link.is_idle()
        });
    }
}
