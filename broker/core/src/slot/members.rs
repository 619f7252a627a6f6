//! The applied state of a group: how far, and who belongs to it. It is part of the state machine, so that a snapshot always
//! carries the membership that fits its rows (F5).

use super::group::{BEGINNING, Group, node_of};
use super::interface::{MemberChange, Output, ProposeError};
use super::rows::{decode, encode, read_node};
use crate::codec::Corrupt;
use crate::rows::Row;
use crate::types::{DiskBoot, NodeId, Now, Replica, Token};
use penstock_wire::storage::v1;
use prost_raft::Message as _;
use raft::eraftpb::{ConfChange, ConfChangeType, ConfState, Entry};
use std::collections::BTreeMap;

/// How far a group is applied, and its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Applied {
    pub(super) index: u64,
    pub(super) term: u64,
    pub(super) voters: Vec<u64>,
    pub(super) learners: Vec<u64>,
    pub(super) members: BTreeMap<NodeId, DiskBoot>,
}

impl Applied {
    /// The beginning of a group with these voters; nothing at all for a node that joins later.
    pub(super) fn first(voters: &[Replica]) -> Applied {
        let (index, term) = if voters.is_empty() { (0, 0) } else { BEGINNING };
        let mut ids: Vec<u64> = voters.iter().map(|voter| u64::from(voter.node.0)).collect();
        ids.sort_unstable();
        Applied {
            index,
            term,
            voters: ids,
            learners: Vec::new(),
            members: voters.iter().map(|voter| (voter.node, voter.disk)).collect(),
        }
    }

    pub(super) fn stored(&self) -> v1::Applied {
        v1::Applied {
            index: self.index,
            term: self.term,
            voters: self.voters.clone(),
            learners: self.learners.clone(),
            members: self
                .members
                .iter()
                .map(|(node, disk)| v1::Replica {
                    node: u32::from(node.0),
                    disk: disk.0,
                })
                .collect(),
        }
    }

    pub(super) fn from_stored(stored: v1::Applied) -> Result<Applied, Corrupt> {
        let members = stored
            .members
            .iter()
            .map(|member| Ok((read_node(member.node)?, DiskBoot(member.disk))))
            .collect::<Result<_, Corrupt>>()?;
        Ok(Applied {
            index: stored.index,
            term: stored.term,
            voters: stored.voters,
            learners: stored.learners,
            members,
        })
    }

    pub(super) fn encode(&self) -> Row {
        encode(&self.stored())
    }

    pub(super) fn decode(row: &[u8]) -> Result<Applied, Corrupt> {
        Applied::from_stored(decode(row)?)
    }

    pub(super) fn conf_state(&self) -> ConfState {
        ConfState {
            voters: self.voters.clone(),
            learners: self.learners.clone(),
            ..ConfState::default()
        }
    }

    /// Takes over what Raft made of an applied change.
    pub(super) fn take_conf_state(&mut self, mut state: ConfState) {
        state.voters.sort_unstable();
        state.learners.sort_unstable();
        self.voters = state.voters;
        self.learners = state.learners;
    }
}

/// The change that an entry stands for, with the member that it names.
pub(super) fn read_change(entry: &Entry) -> Option<(ConfChange, NodeId, DiskBoot)> {
    let change = ConfChange::decode(entry.data.as_slice()).ok()?;
    let named: v1::MemberChange = decode(&change.context).ok()?;
    let member = named.member?;
    let node = read_node(member.node).ok()?;
    (u64::from(node.0) == change.node_id).then_some((change, node, DiskBoot(member.disk)))
}

fn conf_change(kind: ConfChangeType, member: Replica) -> ConfChange {
    let mut change = ConfChange {
        node_id: u64::from(member.node.0),
        context: encode(&v1::MemberChange {
            member: Some(super::rows::replica(&member)),
        })
        .to_vec(),
        ..ConfChange::default()
    };
    change.set_change_type(kind);
    change
}

impl Group {
    /// F6: one change at a time, a vote only for a learner that has the log, and never the last voter away.
    pub(super) fn change_member(
        &mut self,
        now: Now,
        token: Token,
        change: MemberChange,
        out: &mut Vec<Output>,
    ) {
        let refusal = if !self.is_raft_leader() {
            Some(self.not_leader())
        } else if self.handover.is_some() {
            Some(ProposeError::Refused)
        } else {
            None
        };
        let change = self.allowed(change).ok_or(ProposeError::Refused);
        let result = match refusal {
            Some(refusal) => Err(refusal),
            None => change.and_then(|change| self.propose_change(now, token, change)),
        };
        if let Err(error) = result {
            out.push(Output::Proposed {
                token,
                result: Err(error),
            });
        }
    }

    fn allowed(&self, change: MemberChange) -> Option<ConfChange> {
        if self.raft.raft.has_pending_conf() {
            return None;
        }
        let id = |node: NodeId| u64::from(node.0);
        match change {
            MemberChange::AddLearner(member) => (!self.applied.members.contains_key(&member.node))
                .then(|| conf_change(ConfChangeType::AddLearnerNode, member)),
            MemberChange::Promote(node) => {
                let disk = *self.applied.members.get(&node)?;
                let progress = self.raft.raft.prs().get(id(node))?;
                let caught_up =
                    progress.recent_active && progress.matched >= self.raft.raft.raft_log.committed;
                (self.applied.learners.contains(&id(node)) && caught_up)
                    .then(|| conf_change(ConfChangeType::AddNode, Replica { node, disk }))
            }
            MemberChange::Remove(node) => {
                let disk = *self.applied.members.get(&node)?;
                let last = self.applied.voters == [id(node)];
                (node != self.config.node && !last)
                    .then(|| conf_change(ConfChangeType::RemoveNode, Replica { node, disk }))
            }
        }
    }

    fn propose_change(&mut self, now: Now, token: Token, change: ConfChange) -> Result<(), ProposeError> {
        let context = self.proposals.next_context();
        self.raft
            .propose_conf_change(context.to_vec(), change)
            .map_err(|_| ProposeError::Refused)?;
        let index = self.raft.raft.raft_log.last_index();
        let deadline = now.after(self.config.limits.request_timeout);
        self.proposals.appended_one(token, context, deadline, index);
        Ok(())
    }

    /// The first voters are named before anybody knows their disks. The leader learns each disk from what the node itself
    /// says and puts it into the configuration, one at a time; from then on a wiped node of that name is not listened to.
    pub(super) fn bind_disks(&mut self) {
        if !self.leads() || self.raft.raft.has_pending_conf() || self.handover.is_some() {
            return;
        }
        let disk_of = |node: &NodeId| {
            if *node == self.config.node {
                Some(self.config.boots.disk)
            } else {
                self.seen_disks.get(node).copied()
            }
        };
        let unbound = self.applied.members.iter().find_map(|(node, disk)| {
            let seen = disk_of(node).filter(|seen| seen.0 != 0)?;
            (disk.0 == 0).then_some(Replica {
                node: *node,
                disk: seen,
            })
        });
        let Some(member) = unbound else { return };
        let kind = if self.applied.learners.contains(&u64::from(member.node.0)) {
            ConfChangeType::AddLearnerNode
        } else {
            ConfChangeType::AddNode
        };
        // Nobody waits for it: should it be refused or lost, a later tick proposes it again.
        let _ = self
            .raft
            .propose_conf_change(Vec::new(), conf_change(kind, member));
    }

    /// CO-5 without anybody's help: a placed node that came back with another disk is removed under the old one, learns under
    /// the new one, and votes again once it has caught up. One step a tick at most, each a change of members of its own.
    pub(super) fn heal_members(&mut self) {
        if !self.leads() || self.raft.raft.has_pending_conf() || self.handover.is_some() {
            return;
        }
        if let Some(change) = self.next_healing().and_then(|change| self.allowed(change)) {
            // Nobody waits for it: should it be refused or lost, a later tick proposes it again.
            let _ = self.raft.propose_conf_change(Vec::new(), change);
        }
    }

    fn next_healing(&self) -> Option<MemberChange> {
        let placed = |node: NodeId| self.config.first_voters.iter().any(|voter| voter.node == node);
        let lost = self
            .strangers
            .iter()
            .find(|node| placed(**node) && self.applied.members.contains_key(node) && self.only_lost(**node));
        if let Some(node) = lost {
            return Some(MemberChange::Remove(*node));
        }
        let known = &self.applied.members;
        let back = self
            .seen_disks
            .iter()
            .find(|(node, disk)| placed(**node) && disk.0 != 0 && !known.contains_key(node));
        if let Some((node, disk)) = back {
            return Some(MemberChange::AddLearner(Replica {
                node: *node,
                disk: *disk,
            }));
        }
        let learners = self.applied.learners.iter().filter_map(|id| node_of(*id));
        let caught_up = |node: &NodeId| placed(*node) && self.allowed(MemberChange::Promote(*node)).is_some();
        learners.into_iter().find(caught_up).map(MemberChange::Promote)
    }

    /// The member is silent under the disk that it votes with, and every other voter is alive (F6).
    fn only_lost(&self, node: NodeId) -> bool {
        let active = |id: u64| {
            let progress = self.raft.raft.prs().get(id);
            id == u64::from(self.config.node.0) || progress.is_some_and(|progress| progress.recent_active)
        };
        let lost = u64::from(node.0);
        !active(lost) && self.applied.voters.iter().all(|id| *id == lost || active(*id))
    }

    /// Whether a message of this node under this disk is listened to (CO-5).
    pub(super) fn knows(&mut self, from: NodeId, disk: DiskBoot) -> bool {
        let bound = self.applied.members.get(&from).copied().unwrap_or_default();
        if bound.0 != 0 && bound != disk {
            self.strangers.insert(from);
            return false;
        }
        self.strangers.remove(&from);
        self.seen_disks.insert(from, disk);
        true
    }
}
