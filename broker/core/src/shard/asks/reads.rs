//! Questions over HTTP: history, outcomes, who is online, readiness.

use super::{Job, answer};
use crate::admin::{Answer, Failure, HistoryQuery, MessagesAsk, Readiness};
use crate::presence::Presence;
use crate::shard::Shard;
use crate::shard::continuation::{Lookup, Then};
use crate::shard::ingress::{Purpose, Source};
use crate::shard::peer::{HistoryRange, Request};
use crate::shard::turn::Turn;
use crate::types::{ChannelKind, GroupId, Incarnation, LeaderEpoch, Seq, SlotId, Token, Uid};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Shard {
    pub(in crate::shard) fn ask_outcome(
        &mut self,
        turn: &mut Turn<'_>,
        ask: Token,
        channel_id: &str,
        kind: ChannelKind,
        (from_uid, client_msg_no): (Uid, Arc<str>),
    ) {
        if client_msg_no.is_empty() {
            let text = "`client_msg_no` is empty: only numbered sends can be looked up".to_owned();
            return answer(turn, ask, Answer::Failed(Failure::Invalid(text)));
        }
        let Some(channel) = crate::shard::ingress::channel_for(&from_uid, channel_id, kind) else {
            return answer(
                turn,
                ask,
                Answer::Failed(Failure::Invalid("invalid channel id".to_owned())),
            );
        };
        self.keep_ask(turn, ask, Job::SendOutcome);
        let request = Request::SendOutcome {
            channel,
            incarnation: Incarnation(0),
            leader_epoch: LeaderEpoch(0),
            from_uid,
            client_msg_no,
        };
        self.call(turn, request, Then::Ask { ask });
    }

    pub(in crate::shard) fn ask_history(&mut self, turn: &mut Turn<'_>, ask: Token, query: HistoryQuery) {
        if !(1..=10_000).contains(&query.limit) {
            let text = "`limit` must be from 1 to 10000".to_owned();
            return answer(turn, ask, Answer::Failed(Failure::Invalid(text)));
        }
        self.keep_ask(turn, ask, Job::History);
        self.ingress(turn, Source::Ask(ask), Purpose::Read(query));
    }

    /// Messages from a position on, for a plugin.
    pub(in crate::shard) fn ask_messages(&mut self, turn: &mut Turn<'_>, ask: Token, wanted: MessagesAsk) {
        self.keep_ask(turn, ask, Job::History);
        let query = HistoryRange {
            start: wanted.from,
            end: Seq(0),
            limit: wanted.limit,
            newer: true,
            visible_from: Seq(1),
        };
        let request = Request::History {
            channel: wanted.channel,
            incarnation: Incarnation(0),
            leader_epoch: LeaderEpoch(0),
            query,
        };
        self.call(turn, request, Then::Ask { ask });
    }

    pub(in crate::shard) fn ask_online(&mut self, turn: &mut Turn<'_>, ask: Token, uids: Vec<Uid>) {
        if uids.is_empty() {
            return answer(turn, ask, Answer::Online(Vec::new()));
        }
        let mut slots: BTreeMap<SlotId, Vec<Uid>> = BTreeMap::new();
        for uid in uids {
            slots.entry(uid.slot()).or_default().push(uid);
        }
        self.online_parts.insert(ask, slots.len());
        self.keep_ask(turn, ask, Job::Online(Vec::new()));
        self.lookup(turn, slots.into_iter().collect(), Lookup::Online { ask });
    }

    /// Some slots of an online question are answered. Unknown users are left out, as the contract has no word for them.
    pub(in crate::shard) fn on_online_part(
        &mut self,
        turn: &mut Turn<'_>,
        ask: Token,
        slots: Vec<(SlotId, Presence)>,
    ) {
        let Some(Job::Online(found)) = self.asks.get_mut(ask) else {
            return;
        };
        let answered = slots.len();
        for (_, presence) in slots {
            if let Presence::Known { users, .. } = presence {
                found.extend(
                    users
                        .iter()
                        .flat_map(|(_, routes)| routes)
                        .map(|route| (route.uid.clone(), route.flag)),
                );
            }
        }
        let left = self
            .online_parts
            .get(&ask)
            .copied()
            .unwrap_or(0)
            .saturating_sub(answered);
        if left > 0 {
            self.online_parts.insert(ask, left);
            return;
        }
        self.online_parts.remove(&ask);
        if let Some(Job::Online(mut found)) = self.asks.remove(ask) {
            found.sort();
            answer(turn, ask, Answer::Online(found));
        }
    }

    /// Whether this node can keep its promises now (GA-12).
    pub(in crate::shard) fn readiness(&self) -> Readiness {
        let hosted: Vec<GroupId> = self
            .directory
            .groups()
            .filter(|(_, route)| route.hosted)
            .map(|(group, _)| group)
            .collect();
        let leaderless = hosted
            .iter()
            .filter(|group| {
                self.directory
                    .group(**group)
                    .is_none_or(|route| route.leader.is_none())
            })
            .count();
        let alive = self.liveness.nodes().filter(|(_, state, _)| state.alive).count();
        let copies = usize::from(self.config.copies).min(self.config.nodes.len());
        let reason = if leaderless > 0 {
            format!(
                "{leaderless} of {} metadata groups have no leader yet",
                hosted.len()
            )
        } else if let Some((group, why)) = self.stopped_groups.first_key_value() {
            format!("metadata group {group} has stopped: {why}")
        } else if alive < copies / 2 + 1 {
            format!(
                "{alive} of {} nodes are heard of, too few for {copies} copies",
                self.config.nodes.len()
            )
        } else if !self.knows_plugins() {
            "the registry of plugins is not read yet".to_owned()
        } else {
            String::new()
        };
        Readiness {
            ready: reason.is_empty(),
            reason,
            copies: u8::try_from(copies).unwrap_or(u8::MAX),
            groups_without_leader: u32::try_from(leaderless).unwrap_or(u32::MAX),
            space_low: self.space_low,
        }
    }
}
