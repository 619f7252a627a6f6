//! An operator at work: compare-and-sets on the metadata of channels, through the log of their slot group, as an administration
//! call makes them. He moves leaderships while nothing is wrong, changes voters and quorums, asks for two things at once where only
//! one can come true, and floods groups with proposals that may wait.

use super::{State, World};
use crate::invariants::sl_9;
use penstock_core::admin::List;
use penstock_core::effect::Event;
use penstock_core::replicated;
use penstock_core::shard::{Peer, Reply, Request, group_shard};
use penstock_core::slot::Lane;
use penstock_core::slot::command::{ListEdit, MetaPut, change_list, put_metas, stored_put};
use penstock_core::types::{
    ChannelKey, ChannelKind, ChannelMeta, GroupId, Leader, Replica, Seq, SlotId, Token, Uid,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// Tokens between these are the operator's: shards count up from the number of their process, which is hardly ever so small.
const FIRST_TOKEN: u64 = 0x6f70_6572 << 32;
const LAST_TOKEN: u64 = FIRST_TOKEN | 0xffff_ffff;
/// Entries of one flood.
const FLOOD: u64 = 400;
/// Stamp of his commands, ms: it decides nothing in them.
const WALL_MS: u64 = 1_900_000_000_000;

/// What the operator waits for.
#[derive(Debug, Default)]
pub(super) struct Operator {
    asked: u64,
    /// Token → the compare-and-set that it names.
    calls: BTreeMap<u64, (ChannelKey, u64)>,
    /// (channel, version that was expected) → the row that came of it.
    won: BTreeMap<(ChannelKey, u64), ChannelMeta>,
}

impl World {
    /// A channel's newest metadata that anyone acts on, and its group.
    fn some_channel(&mut self) -> Option<(GroupId, ChannelKey, ChannelMeta)> {
        let index = self.faults.rng.index(self.oracle.channels.len());
        let key = self.oracle.channels[index].key.clone();
        let meta = self.invariants.incarnation(&key)?.1.clone();
        let group = self.group_of(key.slot())?;
        Some((group, key, meta))
    }

    fn group_of(&self, slot: SlotId) -> Option<GroupId> {
        let node = self.nodes.iter().find(|node| node.state != State::Down)?;
        let mut groups = node.disk.groups().into_iter();
        groups.find(|&group| group != GroupId::CONTROLLER && node.slots_of(group).contains(&slot))
    }

    fn leader(&self, meta: &ChannelMeta, voter: Replica) -> Option<Leader> {
        let node = &self.nodes[usize::from(voter.node.0) - 1];
        let present = meta.leader.is_some_and(|leader| leader.node == voter.node);
        (node.state != State::Down && !present).then_some(Leader {
            node: voter.node,
            process: node.process,
        })
    }

    /// Two operators move the same leadership to different nodes at the same time: one of them wins.
    pub(super) fn move_leader(&mut self) {
        let Some((group, channel, meta)) = self.some_channel() else {
            return;
        };
        let voters = meta.voters.isr.iter();
        let mut leaders: Vec<Leader> = voters.filter_map(|voter| self.leader(&meta, *voter)).collect();
        if self.faults.rng.permille(300) {
            leaders.truncate(1);
        }
        for leader in leaders {
            let leader = Some(leader);
            let wanted = ChannelMeta {
                leader,
                ..meta.clone()
            };
            self.compare_and_set(group, &channel, &meta, wanted);
            self.coverage.fault("leader moved", 1);
        }
    }

    /// The operator wants another quorum, one voter more or one less.
    pub(super) fn change_voters(&mut self) {
        let Some((group, channel, meta)) = self.some_channel() else {
            return;
        };
        let count = meta.voters.isr.len();
        let majority = u8::try_from(count / 2 + 1).unwrap_or(u8::MAX);
        let mut wanted = meta.clone();
        let outside = (0..self.nodes.len())
            .map(|index| &self.nodes[index])
            .find(|node| {
                let id = node.id;
                node.state != State::Down && meta.replicas().iter().all(|replica| replica.node != id)
            });
        match outside {
            Some(node) if meta.learners.is_empty() && count < 4 && self.faults.rng.permille(600) => {
                wanted.learners.push(Replica {
                    node: node.id,
                    disk: node.disk.boot(),
                });
                self.coverage.fault("learner added", 1);
            }
            _ if count > 3 => {
                let at = meta
                    .voters
                    .isr
                    .iter()
                    .position(|voter| meta.leader.is_none_or(|leader| leader.node != voter.node));
                wanted.voters.isr.remove(at.unwrap_or(0));
                wanted.voters.min_isr = majority - 1 + u8::try_from(count % 2).unwrap_or(0);
                self.coverage.fault("voter removed", 1);
            }
            // Every voter must hold every record, or a majority: never fewer, or one lost disk would lose records.
            _ if count > 2 => {
                let all = u8::try_from(count).unwrap_or(u8::MAX);
                wanted.voters.min_isr = if meta.voters.min_isr == all { majority } else { all };
                self.coverage.fault("quorum changed", 1);
            }
            _ => return,
        }
        self.compare_and_set(group, &channel, &meta, wanted);
    }

    fn compare_and_set(
        &mut self,
        group: GroupId,
        channel: &ChannelKey,
        meta: &ChannelMeta,
        wanted: ChannelMeta,
    ) {
        let put = MetaPut {
            channel: channel.clone(),
            expected_version: meta.version,
            meta: wanted,
        };
        let command = put_metas(WALL_MS, vec![stored_put(&put)]);
        let token = self.operator.asked + FIRST_TOKEN;
        self.operator.asked += 1;
        self.operator.calls.insert(token, (channel.clone(), meta.version));
        let request = Request::Propose {
            group,
            lane: Lane::Reserved,
            command,
        };
        // Who leads the group is for them to know: the others refuse.
        for node in 0..self.nodes.len() {
            self.request(node, group, token, request.clone(), Duration::ZERO);
        }
    }

    fn request(&mut self, node: usize, group: GroupId, token: u64, request: Request, after: Duration) {
        let from = self.nodes[(node + 1) % self.nodes.len()].id;
        let message = Peer::Request {
            reply_to: 0,
            token: Token(token),
            request,
        };
        let at = self.now + Duration::from_micros(200) + after;
        let shard = group_shard(group, self.settings.shards);
        self.arrive_at(at, node, shard, Event::Peer { from, message });
    }

    /// Takes an answer that is for the operator: of several changes of one version one comes true (CH-9).
    pub(super) fn operator_answered(&mut self, message: &Peer) -> bool {
        let Peer::Reply { token, reply, .. } = message else {
            return false;
        };
        if !(FIRST_TOKEN..=LAST_TOKEN).contains(&token.0) {
            return false;
        }
        let Some((channel, expected)) = self.operator.calls.get(&token.0).cloned() else {
            return true;
        };
        let Reply::Proposed(Ok(replicated::Reply::Metas(answers))) = reply else {
            return true;
        };
        for answer in answers {
            let Some(current) = answer.current.as_ref().filter(|_| answer.result.is_ok()) else {
                continue;
            };
            if current.version == expected {
                // It was so already.
                continue;
            }
            let won = self.operator.won.entry((channel.clone(), expected));
            let won = won.or_insert_with(|| current.clone());
            if current.version != expected + 1 || won != current {
                let detail = format!(
                    "{channel}: a change of version {expected} was made, which had been changed before: {current:?}"
                );
                return {
                    self.oracle.violate("CH-9", detail);
                    true
                };
            }
        }
        true
    }

    /// Many proposals that may wait, and one right after them that may not (SL-9).
    pub(super) fn flood(&mut self) {
        let up = self
            .nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| node.state == State::Running);
        let mut led = Vec::new();
        for (index, node) in up {
            for host in &node.hosts {
                let groups = host.shard.view().groups.into_iter();
                let leads = groups.filter(|view| view.status.is_leader && view.group != GroupId::CONTROLLER);
                led.extend(leads.map(|view| (index, view.group)));
            }
        }
        let Some((_, _, meta)) = self.some_channel().filter(|_| !led.is_empty()) else {
            return;
        };
        let (node, group) = self.faults.rng.pick(&led);
        let slots = self.nodes[node].slots_of(group);
        let named = |number: u32| ChannelKey::new(&format!("{}{number}", sl_9::MARK), ChannelKind::GROUP);
        let Some(channel) = (0..10_000)
            .map(named)
            .find(|channel| slots.contains(&channel.slot()))
        else {
            return;
        };
        self.coverage.fault("flood", 1);
        // Where a mailbox is small, what comes faster than it is taken is refused at the door.
        let step = if self.settings.mailbox < 100 {
            self.settings.handling * 8
        } else {
            Duration::ZERO
        };
        for number in 0..FLOOD {
            let command = change_list(WALL_MS, &edit(&channel));
            let request = Request::Propose {
                group,
                lane: Lane::Background,
                command,
            };
            let after = step * u32::try_from(number).unwrap_or(0);
            self.request(node, group, LAST_TOKEN, request, after);
        }
        let token = self.operator.asked + FIRST_TOKEN;
        self.operator.asked += 1;
        // No row has this version: the grant itself changes nothing.
        let put = MetaPut {
            channel,
            expected_version: u64::MAX,
            meta,
        };
        let request = Request::Propose {
            group,
            lane: Lane::Reserved,
            command: put_metas(WALL_MS, vec![stored_put(&put)]),
        };
        let after = step * u32::try_from(FLOOD).unwrap_or(0) + Duration::from_micros(1);
        self.invariants
            .flooded(node, self.nodes[node].life, group, Token(token));
        self.request(node, group, token, request, after);
    }
}

/// The same every time: what is flooded is the log, not the memory for rows.
fn edit(channel: &ChannelKey) -> ListEdit {
    ListEdit {
        channel: channel.clone(),
        list: List::Deny,
        remove: Vec::new(),
        add: vec![Uid::new("nobody")],
        join_seq: Seq(0),
        expected_revision: None,
    }
}
