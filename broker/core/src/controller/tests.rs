use super::*;
use crate::replicated::{Applied, Halt, Overlay, Rejection, Reply, StateMachine};
use crate::rows::{Key, Miss, Row, Rows, Table, Write};
use crate::types::{Boots, DiskBoot, GroupId, NodeId, ProcessBoot, SlotId};
use bytes::Bytes;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Store(BTreeMap<Key, Row>);

impl Rows for Store {
    fn row(&self, key: &Key) -> Result<Option<Row>, Miss> {
        Ok(self.0.get(key).cloned())
    }
}

impl Store {
    fn apply(&mut self, command: &[u8]) -> Applied {
        self.try_apply(command).unwrap()
    }

    fn try_apply(&mut self, command: &[u8]) -> Result<Applied, Halt> {
        let (applied, writes) = {
            let mut rows = Overlay::new(&*self);
            let applied = Machine.apply(command, &mut rows)?;
            (applied, rows.into_writes())
        };
        for write in writes {
            match write {
                Write::Put { key, value } => self.0.insert(key, value),
                Write::Delete { key } => self.0.remove(&key),
                other => panic!("{other:?}"),
            };
        }
        Ok(applied)
    }

    fn view(&self) -> Option<View> {
        let rows: Vec<(Table, Bytes, Bytes)> = self
            .0
            .iter()
            .map(|(key, value)| match key {
                Key::Slot { table, key, .. } => (*table, key.clone(), value.clone()),
                other => panic!("{other:?}"),
            })
            .collect();
        View::from_rows(&rows).unwrap()
    }
}

fn nodes(count: u16) -> Vec<NodeId> {
    (1..=count).map(NodeId).collect()
}

fn boots(disk: u64) -> Boots {
    Boots {
        process: ProcessBoot(9),
        disk: DiskBoot(disk),
    }
}

fn started() -> Store {
    let mut store = Store::default();
    assert_eq!(store.view(), None);
    store.apply(&bootstrap(5, &nodes(3), 8, 3));
    store
}

fn rejected(applied: &Applied) -> Option<Rejection> {
    match applied.reply {
        Reply::Rejected(rejection) => Some(rejection),
        _ => None,
    }
}

#[test]
fn the_first_command_makes_what_every_node_computed_before() {
    let mut store = started();
    let view = store.view().unwrap();
    let first = View::first(&nodes(3), 8, 3);
    assert_eq!((&view.table, view.copies), (&first.table, first.copies));
    for (group, placement) in &view.placements {
        assert_eq!(placement.voters, first.placements[group].voters);
        assert_eq!(
            placement.preferred_leader,
            first.placements[group].preferred_leader
        );
    }
    let slots: usize = (1..=8).map(|group| view.slots_of(GroupId(group)).len()).sum();
    assert_eq!(slots, 256);
    assert_eq!(view.group_of(SlotId(0)), Some(GroupId(1)));
    assert_eq!(view.group_of(SlotId(256)), None);
    let before = store.clone();
    store.apply(&bootstrap(6, &nodes(5), 4, 1));
    assert_eq!(store, before);
}

#[test]
fn leaders_of_groups_are_spread_over_the_nodes() {
    let placement = first_placement(&nodes(3), 8, 2);
    let mut led = BTreeMap::<NodeId, usize>::new();
    for voters in placement.values() {
        assert_eq!(voters.len(), 2);
        *led.entry(voters[0]).or_default() += 1;
    }
    assert!(led.values().all(|count| *count == 3), "{led:?}");
}

#[test]
fn a_wiped_node_raises_the_config_epoch_of_its_groups_and_a_repeated_registration_changes_nothing() {
    let mut store = started();
    store.apply(&register_node(7, NodeId(2), boots(20), "n2:1", &[]));
    let known = store.view().unwrap();
    assert!(
        known
            .placements
            .values()
            .all(|placement| placement.config_epoch == 2)
    );
    let before = store.clone();
    store.apply(&register_node(8, NodeId(2), boots(20), "n2:1", &[]));
    assert_eq!(store, before);
    store.apply(&register_node(9, NodeId(2), boots(21), "n2:1", &[]));
    let wiped = store.view().unwrap();
    assert!(wiped.revision > known.revision);
    assert!(
        wiped
            .placements
            .values()
            .all(|placement| placement.config_epoch == 3)
    );
    let voters = &wiped.placements[&GroupId(1)].voters;
    assert!(
        voters
            .iter()
            .any(|voter| voter.node == NodeId(2) && voter.disk == DiskBoot(21))
    );
}

#[test]
fn a_node_leaves_only_when_it_votes_nowhere_and_never_comes_back() {
    let mut store = started();
    store.apply(&register_node(7, NodeId(4), boots(40), "n4:1", &[]));
    let step = |store: &mut Store, state| rejected(&store.apply(&set_lifecycle(8, NodeId(4), state)));
    assert_eq!(step(&mut store, Lifecycle::Draining), Some(Rejection::Rule));
    assert_eq!(step(&mut store, Lifecycle::Active), None);
    let placement = store.view().unwrap().placements[&GroupId(1)].clone();
    let mut wanted = placement.clone();
    wanted.voters[0] = crate::types::Replica {
        node: NodeId(4),
        disk: DiskBoot(40),
    };
    wanted.preferred_leader = None;
    let command = set_placement(9, placement.config_epoch, GroupId(1), &wanted);
    assert_eq!(rejected(&store.apply(&command)), None);
    assert_eq!(rejected(&store.apply(&command)), Some(Rejection::Conflict));
    assert_eq!(step(&mut store, Lifecycle::Draining), None);
    assert_eq!(step(&mut store, Lifecycle::Leaving), Some(Rejection::Rule));
    let epoch = placement.config_epoch + 1;
    store.apply(&set_placement(10, epoch, GroupId(1), &placement));
    assert_eq!(step(&mut store, Lifecycle::Leaving), None);
    assert_eq!(step(&mut store, Lifecycle::Removed), None);
    let back = register_node(11, NodeId(4), boots(41), "n4:1", &[]);
    assert_eq!(rejected(&store.apply(&back)), Some(Rejection::Rule));
}

#[test]
fn the_slot_table_changes_by_version_and_only_to_groups_that_are_placed() {
    let mut store = started();
    let mut table = store.view().unwrap().table;
    table[7] = GroupId(9);
    assert_eq!(
        rejected(&store.apply(&set_slot_table(9, 1, &table))),
        Some(Rejection::Rule)
    );
    table[7] = GroupId(3);
    assert_eq!(rejected(&store.apply(&set_slot_table(9, 1, &table))), None);
    assert_eq!(
        rejected(&store.apply(&set_slot_table(9, 1, &table))),
        Some(Rejection::Conflict)
    );
    assert_eq!(store.view().unwrap().group_of(SlotId(7)), Some(GroupId(3)));
}

proptest! {
    #[test]
    fn any_bytes_are_applied_alike_everywhere(commands in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 1..20)) {
        let (mut left, mut right) = (started(), started());
        for body in commands {
            // Version and time are right, so that the bytes reach the body.
            let mut command = vec![0x08, 0x01, 0x10, 0x05];
            command.extend(body);
            prop_assert_eq!(left.try_apply(&command), right.try_apply(&command));
        }
        prop_assert_eq!(left, right);
    }
}
