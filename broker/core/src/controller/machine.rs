//! The state machine of the controller's group.

use super::first::{first_placement, first_table};
use super::rows;
use super::view::{Lifecycle, Placement, node_id};
use super::{COPIES_MAX, GROUPS_MAX, NODES_MAX, plugins};
use crate::codec::{COMMAND_VERSION, Corrupt, decode, encode, encode_command};
use crate::replicated::{Applied, Halt, Notice, Overlay, Rejection, Reply, StateMachine};
use crate::rows::Key;
use crate::types::{Boots, GroupId, NodeId, SLOT_COUNT};
use bytes::Bytes;
use penstock_wire::storage::v1::{self, command::Body};
use prost::Message as _;
use std::collections::{BTreeMap, BTreeSet};

/// Longest address, bytes.
const ADDRESS_BYTES_MAX: usize = 256;

/// Most client addresses of a node.
const ADDRESSES_MAX: usize = 8;

/// The first command: nodes, groups 1..=`groups` and copies. Proposed by whoever leads an empty controller; again, it changes
/// nothing.
#[must_use]
pub fn bootstrap(wall_ms: u64, nodes: &[NodeId], groups: u32, copies: u8) -> Bytes {
    let node = |id: &NodeId| v1::Node {
        id: u32::from(id.0),
        ..v1::Node::default()
    };
    encode_command(
        wall_ms,
        Body::Bootstrap(v1::Bootstrap {
            nodes: nodes.iter().map(node).collect(),
            groups,
            copies: u32::from(copies),
        }),
    )
}

/// A node announces its boots and addresses. One that nobody knows is taken in as joining.
#[must_use]
pub fn register_node(
    wall_ms: u64,
    id: NodeId,
    boots: Boots,
    peer_address: &str,
    client_addresses: &[String],
) -> Bytes {
    encode_command(
        wall_ms,
        Body::RegisterNode(v1::RegisterNode {
            node: Some(v1::Node {
                id: u32::from(id.0),
                boots: Some(v1::Boots {
                    process: boots.process.0,
                    disk: boots.disk.0,
                }),
                peer_address: peer_address.to_owned(),
                client_addresses: client_addresses.to_vec(),
                ..v1::Node::default()
            }),
        }),
    )
}

/// Moves a node to its next state.
#[must_use]
pub fn set_lifecycle(wall_ms: u64, node: NodeId, lifecycle: Lifecycle) -> Bytes {
    encode_command(
        wall_ms,
        Body::SetLifecycle(v1::SetLifecycle {
            node: u32::from(node.0),
            lifecycle: lifecycle as u32,
        }),
    )
}

/// Replaces the slot table, if its version is still the expected one.
#[must_use]
pub fn set_slot_table(wall_ms: u64, expected_version: u64, table: &[GroupId]) -> Bytes {
    encode_command(
        wall_ms,
        Body::SetSlotTable(v1::SetSlotTable {
            expected_version,
            groups: table.iter().map(|group| group.0).collect(),
        }),
    )
}

/// Replaces a group's placement, if its config epoch is still the expected one; 0 makes a new group. The placement's own
/// epoch is computed by apply.
#[must_use]
pub fn set_placement(wall_ms: u64, expected_epoch: u64, group: GroupId, placement: &Placement) -> Bytes {
    let voter = |replica: &crate::types::Replica| v1::Replica {
        node: u32::from(replica.node.0),
        disk: replica.disk.0,
    };
    encode_command(
        wall_ms,
        Body::SetPlacement(v1::SetPlacement {
            expected_config_epoch: expected_epoch,
            placement: Some(v1::GroupPlacement {
                group: group.0,
                voters: placement.voters.iter().map(voter).collect(),
                config_epoch: 0,
                preferred_leader: placement.preferred_leader.map_or(0, |node| u32::from(node.0)),
            }),
        }),
    )
}

/// Changes the number of copies.
#[must_use]
pub fn set_settings(wall_ms: u64, copies: u8) -> Bytes {
    encode_command(
        wall_ms,
        Body::SetSettings(v1::SetSettings {
            copies: u32::from(copies),
        }),
    )
}

/// The state machine of the controller's group.
#[derive(Clone, Copy, Debug, Default)]
pub struct Machine;

pub(super) enum Refused {
    Rejected(Rejection),
    Halt(Halt),
}

pub(super) const MALFORMED: Refused = Refused::Rejected(Rejection::Malformed);

impl From<crate::rows::Miss> for Refused {
    fn from(miss: crate::rows::Miss) -> Refused {
        Refused::Halt(Halt::Miss(miss))
    }
}

impl From<Rejection> for Refused {
    fn from(rejection: Rejection) -> Refused {
        Refused::Rejected(rejection)
    }
}

impl From<Corrupt> for Refused {
    fn from(_: Corrupt) -> Refused {
        MALFORMED
    }
}

impl StateMachine for Machine {
    fn keys(&self, _command: &[u8]) -> Vec<Key> {
        vec![rows::settings(), rows::table()]
    }

    fn apply(&self, command: &[u8], rows: &mut Overlay<'_>) -> Result<Applied, Halt> {
        let Ok(command) = v1::Command::decode(command) else {
            return Ok(Applied::rejected(Rejection::Malformed));
        };
        if command.version != COMMAND_VERSION {
            return Err(Halt::Stop(format!(
                "command version {} is not known to this build",
                command.version
            )));
        }
        match run(&command, rows) {
            Ok(applied) => {
                rows.keep();
                Ok(applied)
            }
            Err(Refused::Rejected(rejection)) => {
                rows.drop_command();
                Ok(Applied::rejected(rejection))
            }
            Err(Refused::Halt(halt)) => {
                rows.drop_command();
                Err(halt)
            }
        }
    }
}

fn run(command: &v1::Command, rows: &mut Overlay<'_>) -> Result<Applied, Refused> {
    if let Some(revision) = plugins::run(command, rows)? {
        return Ok(Applied {
            reply: Reply::Revision(revision),
            notices: vec![Notice::Registry],
        });
    }
    run_placement(command, rows)?;
    Ok(Applied {
        reply: Reply::Done,
        notices: vec![Notice::Controller],
    })
}

fn run_placement(command: &v1::Command, rows: &mut Overlay<'_>) -> Result<(), Refused> {
    match command.body.as_ref().ok_or(MALFORMED)? {
        Body::Bootstrap(first) => start(command.wall_ms, first, rows),
        Body::RegisterNode(register) => {
            let node = register.node.as_ref().ok_or(MALFORMED)?;
            take_in(command.wall_ms, node, rows)
        }
        Body::SetLifecycle(set) => move_on(set, rows),
        Body::SetSlotTable(set) => replace_table(set, rows),
        Body::SetPlacement(set) => place(set, rows),
        Body::SetSettings(set) => {
            let mut settings = read::<v1::Settings>(rows, &rows::settings())?.ok_or(Rejection::Missing)?;
            if set.copies == 0 || set.copies > u32::from(COPIES_MAX) {
                return Err(MALFORMED);
            }
            settings.copies = set.copies;
            rows.put(rows::settings(), encode(&settings));
            revise(rows)
        }
        _ => Err(MALFORMED),
    }
}

pub(super) fn read<M: prost::Message + Default>(
    rows: &mut Overlay<'_>,
    key: &Key,
) -> Result<Option<M>, Refused> {
    let Some(row) = rows.row(key)? else {
        return Ok(None);
    };
    decode(&row)
        .map(Some)
        .map_err(|Corrupt| Refused::Halt(Halt::Stop(format!("the stored row {key:?} does not decode"))))
}

/// The revision rises with every change of intent.
fn revise(rows: &mut Overlay<'_>) -> Result<(), Refused> {
    let mut settings = read::<v1::Settings>(rows, &rows::settings())?.ok_or(Rejection::Missing)?;
    settings.revision = settings.revision.checked_add(1).ok_or(Rejection::Exhausted)?;
    rows.put(rows::settings(), encode(&settings));
    Ok(())
}

fn start(wall_ms: u64, first: &v1::Bootstrap, rows: &mut Overlay<'_>) -> Result<(), Refused> {
    if rows.row(&rows::settings())?.is_some() {
        return Ok(());
    }
    let nodes: BTreeSet<NodeId> = first
        .nodes
        .iter()
        .map(|node| node_id(node.id))
        .collect::<Result<_, _>>()?;
    let copies = u8::try_from(first.copies).map_err(|_| MALFORMED)?;
    let sized = (1..=NODES_MAX).contains(&nodes.len())
        && (1..=GROUPS_MAX).contains(&first.groups)
        && (1..=COPIES_MAX).contains(&copies);
    if !sized {
        return Err(MALFORMED);
    }
    for id in &nodes {
        let row = v1::Node {
            id: u32::from(id.0),
            boots: Some(v1::Boots::default()),
            lifecycle: Lifecycle::Active as u32,
            registered_ms: wall_ms,
            ..v1::Node::default()
        };
        rows.put(rows::node(*id), encode(&row));
    }
    let nodes: Vec<NodeId> = nodes.into_iter().collect();
    let placement = first_placement(&nodes, first.groups, copies);
    for (group, voters) in placement {
        let voter = |node: &NodeId| v1::Replica {
            node: u32::from(node.0),
            disk: 0,
        };
        let row = v1::GroupPlacement {
            group: group.0,
            voters: voters.iter().map(voter).collect(),
            config_epoch: 1,
            preferred_leader: voters.first().map_or(0, |node| u32::from(node.0)),
        };
        rows.put(rows::group(group), encode(&row));
    }
    let table = v1::SlotTable {
        version: 1,
        groups: first_table(first.groups).iter().map(|group| group.0).collect(),
    };
    rows.put(rows::table(), encode(&table));
    let settings = v1::Settings {
        copies: first.copies,
        revision: 1,
    };
    rows.put(rows::settings(), encode(&settings));
    Ok(())
}

/// A registration: a new disk gets the node's votes only through a new config epoch of each group (CO-5).
fn take_in(wall_ms: u64, node: &v1::Node, rows: &mut Overlay<'_>) -> Result<(), Refused> {
    let id = node_id(node.id)?;
    let addressed = node.peer_address.len() <= ADDRESS_BYTES_MAX
        && node.client_addresses.len() <= ADDRESSES_MAX
        && node
            .client_addresses
            .iter()
            .all(|address| address.len() <= ADDRESS_BYTES_MAX);
    let boots = node.boots.filter(|boots| boots.process != 0 && boots.disk != 0);
    let boots = boots.filter(|_| addressed).ok_or(MALFORMED)?;
    let present = read::<v1::Node>(rows, &rows::node(id))?;
    if present
        .as_ref()
        .is_some_and(|present| present.lifecycle == Lifecycle::Removed as u32)
    {
        return Err(Rejection::Rule.into());
    }
    let next = v1::Node {
        boots: Some(boots),
        lifecycle: present
            .as_ref()
            .map_or(Lifecycle::Joining as u32, |present| present.lifecycle),
        registered_ms: present.as_ref().map_or(wall_ms, |present| present.registered_ms),
        ..node.clone()
    };
    if present.as_ref() == Some(&next) {
        return Ok(());
    }
    rows.put(rows::node(id), encode(&next));
    rename_disk(id, boots.disk, rows)?;
    revise(rows)
}

fn rename_disk(node: NodeId, disk: u64, rows: &mut Overlay<'_>) -> Result<(), Refused> {
    for group in known_groups(rows)? {
        let Some(mut placement) = read::<v1::GroupPlacement>(rows, &rows::group(group))? else {
            continue;
        };
        let mut changed = false;
        for voter in &mut placement.voters {
            if voter.node == u32::from(node.0) && voter.disk != disk {
                voter.disk = disk;
                changed = true;
            }
        }
        if changed {
            placement.config_epoch += 1;
            rows.put(rows::group(group), encode(&placement));
        }
    }
    Ok(())
}

/// The controller's group and every group that owns a slot.
fn known_groups(rows: &mut Overlay<'_>) -> Result<BTreeSet<GroupId>, Refused> {
    let table = read::<v1::SlotTable>(rows, &rows::table())?.unwrap_or_default();
    let owners = table.groups.into_iter().map(GroupId);
    Ok(owners.chain([GroupId::CONTROLLER]).collect())
}

fn move_on(set: &v1::SetLifecycle, rows: &mut Overlay<'_>) -> Result<(), Refused> {
    let id = node_id(set.node)?;
    let next = Lifecycle::of(set.lifecycle).ok_or(MALFORMED)?;
    let mut node = read::<v1::Node>(rows, &rows::node(id))?.ok_or(Rejection::Missing)?;
    let present = Lifecycle::of(node.lifecycle).ok_or(MALFORMED)?;
    if present == next {
        return Ok(());
    }
    if !present.may_become(next) {
        return Err(Rejection::Rule.into());
    }
    // CO-3: a node that still votes anywhere does not go.
    if next >= Lifecycle::Leaving {
        for group in known_groups(rows)? {
            let placement = read::<v1::GroupPlacement>(rows, &rows::group(group))?.unwrap_or_default();
            if placement.voters.iter().any(|voter| voter.node == set.node) {
                return Err(Rejection::Rule.into());
            }
        }
    }
    node.lifecycle = set.lifecycle;
    rows.put(rows::node(id), encode(&node));
    revise(rows)
}

fn replace_table(set: &v1::SetSlotTable, rows: &mut Overlay<'_>) -> Result<(), Refused> {
    let present = read::<v1::SlotTable>(rows, &rows::table())?.ok_or(Rejection::Missing)?;
    if present.version != set.expected_version {
        return Err(Rejection::Conflict.into());
    }
    if set.groups.len() != usize::from(SLOT_COUNT) {
        return Err(MALFORMED);
    }
    for group in set.groups.iter().collect::<BTreeSet<_>>() {
        if *group == 0 || rows.row(&rows::group(GroupId(*group)))?.is_none() {
            return Err(Rejection::Rule.into());
        }
    }
    let table = v1::SlotTable {
        version: present.version.checked_add(1).ok_or(Rejection::Exhausted)?,
        groups: set.groups.clone(),
    };
    rows.put(rows::table(), encode(&table));
    revise(rows)
}

fn place(set: &v1::SetPlacement, rows: &mut Overlay<'_>) -> Result<(), Refused> {
    let wanted = set.placement.as_ref().ok_or(MALFORMED)?;
    if wanted.group > GROUPS_MAX || !(1..=usize::from(COPIES_MAX)).contains(&wanted.voters.len()) {
        return Err(MALFORMED);
    }
    let key = rows::group(GroupId(wanted.group));
    let present = read::<v1::GroupPlacement>(rows, &key)?;
    let epoch = present.map_or(0, |present| present.config_epoch);
    if epoch != set.expected_config_epoch {
        return Err(Rejection::Conflict.into());
    }
    let mut voters = BTreeMap::new();
    for voter in &wanted.voters {
        let node = read::<v1::Node>(rows, &rows::node(node_id(voter.node)?))?.ok_or(Rejection::Missing)?;
        let serves = matches!(
            Lifecycle::of(node.lifecycle),
            Some(Lifecycle::Active | Lifecycle::Draining)
        );
        if !serves || voters.insert(voter.node, voter.disk).is_some() {
            return Err(Rejection::Rule.into());
        }
    }
    if wanted.preferred_leader != 0 && !voters.contains_key(&wanted.preferred_leader) {
        return Err(Rejection::Rule.into());
    }
    let placement = v1::GroupPlacement {
        config_epoch: epoch.checked_add(1).ok_or(Rejection::Exhausted)?,
        ..wanted.clone()
    };
    rows.put(key, encode(&placement));
    revise(rows)
}
