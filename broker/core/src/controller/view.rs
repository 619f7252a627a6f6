//! An immutable picture of the controller's state, swapped as a whole: one request resolves all its keys under one of them.

use super::first::{first_placement, first_table};
use super::rows;
use crate::codec::{Corrupt, decode};
use crate::rows::Table;
use crate::types::{Boots, DiskBoot, GroupId, NodeId, ProcessBoot, Replica, SlotId};
use bytes::Bytes;
use penstock_wire::storage::v1;
use std::collections::BTreeMap;

/// Where a node is in its life. The number is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lifecycle {
    /// Known, carries nothing yet.
    Joining = 1,
    /// In service.
    Active = 2,
    /// Gives away what it carries.
    Draining = 3,
    /// Carries nothing any more.
    Leaving = 4,
    /// A tombstone: the id is never used again (CO-3).
    Removed = 5,
}

impl Lifecycle {
    /// The state with this number.
    #[must_use]
    pub fn of(number: u32) -> Option<Lifecycle> {
        [
            Lifecycle::Joining,
            Lifecycle::Active,
            Lifecycle::Draining,
            Lifecycle::Leaving,
            Lifecycle::Removed,
        ]
        .into_iter()
        .find(|state| *state as u32 == number)
    }

    /// Whether a node may go from this state to `next`: forward one step, or back from draining.
    #[must_use]
    pub fn may_become(self, next: Lifecycle) -> bool {
        (self, next) == (Lifecycle::Draining, Lifecycle::Active) || self as u32 + 1 == next as u32
    }
}

/// A node as the cluster knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its boots at the last registration.
    pub boots: Boots,
    /// Where it is in its life.
    pub lifecycle: Lifecycle,
    /// Address of its node link.
    pub peer_address: String,
    /// Addresses for clients: TCP, WebSocket, HTTP.
    pub client_addresses: Vec<String>,
}

/// The desired members of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Desired voters, with the disks that the vote was given to.
    pub voters: Vec<Replica>,
    /// Rises at every change.
    pub config_epoch: u64,
    /// Who should lead, if anyone in particular (CO-2).
    pub preferred_leader: Option<NodeId>,
}

/// The controller's state at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Revision; heartbeats do not raise it.
    pub revision: u64,
    /// Copies of every channel.
    pub copies: u8,
    /// The nodes.
    pub nodes: BTreeMap<NodeId, Node>,
    /// Version of the slot table.
    pub table_version: u64,
    /// The group of each slot.
    pub table: Vec<GroupId>,
    /// The placement of each group, the controller's own under group 0.
    pub placements: BTreeMap<GroupId, Placement>,
}

impl View {
    /// The picture before anything is committed, from the configuration that all first nodes share: revision 0.
    #[must_use]
    pub fn first(nodes: &[NodeId], groups: u32, copies: u8) -> View {
        let placements = first_placement(nodes, groups, copies);
        View {
            revision: 0,
            copies,
            nodes: nodes
                .iter()
                .map(|node| {
                    let unknown = Node {
                        boots: Boots::default(),
                        lifecycle: Lifecycle::Active,
                        peer_address: String::new(),
                        client_addresses: Vec::new(),
                    };
                    (*node, unknown)
                })
                .collect(),
            table_version: 0,
            table: first_table(groups),
            placements: placements
                .into_iter()
                .map(|(group, voters)| {
                    let placement = Placement {
                        preferred_leader: voters.first().copied(),
                        voters: voters.into_iter().map(unknown_disk).collect(),
                        config_epoch: 0,
                    };
                    (group, placement)
                })
                .collect(),
        }
    }

    /// The picture in these rows, all of [`Table::Controller`]; none before the first command.
    ///
    /// # Errors
    /// [`Corrupt`] when a row does not decode.
    pub fn from_rows(stored: &[(Table, Bytes, Bytes)]) -> Result<Option<View>, Corrupt> {
        let mut view = View {
            revision: 0,
            copies: 1,
            nodes: BTreeMap::new(),
            table_version: 0,
            table: Vec::new(),
            placements: BTreeMap::new(),
        };
        for (_, key, value) in stored {
            match key.first() {
                Some(&rows::NODE) => {
                    let node: v1::Node = decode(value)?;
                    view.nodes.insert(node_id(node.id)?, read_node(node)?);
                }
                Some(&rows::GROUP) => {
                    let placement: v1::GroupPlacement = decode(value)?;
                    let group = GroupId(placement.group);
                    view.placements.insert(group, read_placement(&placement)?);
                }
                Some(&rows::TABLE) => {
                    let table: v1::SlotTable = decode(value)?;
                    view.table_version = table.version;
                    view.table = table.groups.into_iter().map(GroupId).collect();
                }
                Some(&rows::SETTINGS) => {
                    let settings: v1::Settings = decode(value)?;
                    view.revision = settings.revision;
                    view.copies = u8::try_from(settings.copies).map_err(|_| Corrupt)?;
                }
                Some(&(rows::PLUGIN | rows::BINDING | rows::REGISTRY)) => {}
                _ => return Err(Corrupt),
            }
        }
        Ok((view.revision > 0).then_some(view))
    }

    /// The group that owns a slot; none for a slot that does not exist.
    #[must_use]
    pub fn group_of(&self, slot: SlotId) -> Option<GroupId> {
        self.table.get(usize::from(slot.0)).copied()
    }

    /// The slots of a group, ascending.
    #[must_use]
    pub fn slots_of(&self, group: GroupId) -> Vec<SlotId> {
        (0..)
            .zip(&self.table)
            .filter(|(_, owner)| **owner == group)
            .map(|(slot, _)| SlotId(slot))
            .collect()
    }

    /// The groups that this node should vote in.
    #[must_use]
    pub fn groups_on(&self, node: NodeId) -> Vec<GroupId> {
        self.placements
            .iter()
            .filter(|(_, placement)| placement.voters.iter().any(|voter| voter.node == node))
            .map(|(group, _)| *group)
            .collect()
    }

    /// Nodes that may be given new channels.
    pub fn active_nodes(&self) -> impl Iterator<Item = NodeId> {
        self.nodes
            .iter()
            .filter(|(_, node)| node.lifecycle == Lifecycle::Active)
            .map(|(id, _)| *id)
    }
}

fn unknown_disk(node: NodeId) -> Replica {
    Replica {
        node,
        disk: DiskBoot(0),
    }
}

pub(super) fn node_id(number: u32) -> Result<NodeId, Corrupt> {
    match u16::try_from(number) {
        Ok(id) if (1..=1_023).contains(&id) => Ok(NodeId(id)),
        _ => Err(Corrupt),
    }
}

fn read_node(stored: v1::Node) -> Result<Node, Corrupt> {
    let boots = stored.boots.unwrap_or_default();
    Ok(Node {
        boots: Boots {
            process: ProcessBoot(boots.process),
            disk: DiskBoot(boots.disk),
        },
        lifecycle: Lifecycle::of(stored.lifecycle).ok_or(Corrupt)?,
        peer_address: stored.peer_address,
        client_addresses: stored.client_addresses,
    })
}

fn read_placement(stored: &v1::GroupPlacement) -> Result<Placement, Corrupt> {
    let preferred_leader = match stored.preferred_leader {
        0 => None,
        node => Some(node_id(node)?),
    };
    Ok(Placement {
        voters: stored
            .voters
            .iter()
            .map(|voter| {
                Ok(Replica {
                    node: node_id(voter.node)?,
                    disk: DiskBoot(voter.disk),
                })
            })
            .collect::<Result<_, Corrupt>>()?,
        config_epoch: stored.config_epoch,
        preferred_leader,
    })
}
