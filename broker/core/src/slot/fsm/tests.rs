use super::*;
use crate::admin::{ChannelFlags, List};
use crate::plugins::{Cause, DeadLetter, LetterName};
use crate::rows::{Miss, Row, Rows, Table, Write};
use crate::slot::command::{self, ListEdit, MembershipChange, MetaPut};
use crate::slot::{keys, rows};
use crate::types::{
    ChannelKey, ChannelKind, ChannelMeta, DeviceFlag, DeviceLevel, DiskBoot, Incarnation, Leader,
    LeaderEpoch, NodeId, ProcessBoot, Replica, Seq, VoterSet,
};
use bytes::Bytes;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Store(pub(super) BTreeMap<Key, Row>);

impl Rows for Store {
    fn row(&self, key: &Key) -> Result<Option<Row>, Miss> {
        Ok(self.0.get(key).cloned())
    }
}

pub(super) fn all() -> Machine {
    Machine::new((0..256).map(SlotId))
}

impl Store {
    pub(super) fn try_apply(&mut self, machine: &Machine, command: &[u8]) -> Result<Applied, Halt> {
        let (applied, writes) = {
            let mut overlay = Overlay::new(&*self);
            overlay.prefetch(machine.keys(command)).unwrap();
            let applied = machine.apply(command, &mut overlay)?;
            (applied, overlay.into_writes())
        };
        for write in writes {
            match write {
                Write::Put { key, value } => self.0.insert(key, value),
                Write::Delete { key } => self.0.remove(&key),
                other => panic!("apply never makes {other:?}"),
            };
        }
        Ok(applied)
    }

    pub(super) fn apply(&mut self, command: &[u8]) -> Reply {
        self.try_apply(&all(), command).unwrap().reply
    }

    pub(super) fn value<M: prost::Message + Default>(&self, key: &Key) -> Option<M> {
        self.0.get(key).map(|row| rows::decode(row).unwrap())
    }

    pub(super) fn count(&self, wanted: Table) -> usize {
        let of = |key: &&Key| matches!(key, Key::Slot { table, .. } if *table == wanted);
        self.0.keys().filter(of).count()
    }
}

fn letter(seq: u64) -> DeadLetter {
    DeadLetter {
        binding: "audit".into(),
        name: LetterName {
            binding_incarnation: 3,
            incarnation: Incarnation(9),
            seq: Seq(seq),
        },
        channel: room(),
        attempts: 5,
        cause: Cause::Poison,
        wall_ms: 77,
    }
}

#[test]
fn dead_letters_are_counted_bounded_and_dropped() {
    let mut store = Store::default();
    let counted = |store: &Store| store.value::<v1::Counter>(&keys::letters_counter("audit"));
    let put = |seq| command::put_dead_letter(77, &letter(seq));
    assert_eq!(store.apply(&put(1)), Reply::Done);
    assert_eq!(
        store.apply(&put(1)),
        Reply::Done,
        "its consumer did not hear of it"
    );
    assert_eq!(store.apply(&put(2)), Reply::Done);
    assert_eq!(counted(&store), Some(v1::Counter { value: 2 }));
    let key = keys::letter("audit", letter(2).name);
    let stored = store.value::<v1::DeadLetter>(&key).unwrap();
    assert_eq!(rows::read_letter(&stored), Ok(letter(2)));

    let full = v1::Counter {
        value: crate::plugins::LETTERS_MAX,
    };
    store
        .0
        .insert(keys::letters_counter("audit"), rows::encode(&full));
    let refused = Reply::Rejected(Rejection::TooMany);
    assert_eq!(
        store.apply(&put(3)),
        refused,
        "nothing is given up beyond the bound"
    );
    assert_eq!(store.apply(&put(1)), Reply::Done, "what is kept is kept");
    let two = v1::Counter { value: 2 };
    store.0.insert(keys::letters_counter("audit"), rows::encode(&two));

    let drop = |seqs: &[u64]| {
        let names: Vec<LetterName> = seqs.iter().map(|&seq| letter(seq).name).collect();
        command::drop_dead_letters(78, "audit", &names)
    };
    assert_eq!(store.apply(&drop(&[2, 4])), Reply::Done);
    assert_eq!(counted(&store), Some(v1::Counter { value: 1 }));
    assert_eq!(store.apply(&drop(&[1])), Reply::Done);
    assert_eq!((counted(&store), store.count(Table::DeadLetter)), (None, 0));
    let far = Machine::new([SlotId((crate::plugins::letters_slot("audit").0 + 1) % 256)]);
    let foreign = store.try_apply(&far, &put(1)).unwrap().reply;
    assert_eq!(foreign, Reply::Rejected(Rejection::WrongSlot));
}

fn room() -> ChannelKey {
    ChannelKey::new("room", ChannelKind::GROUP)
}

fn uid(number: u32) -> Uid {
    Uid::new(&format!("u{number}"))
}

fn edit(list: List, remove: &[u32], add: &[u32], expected_revision: Option<u64>) -> Bytes {
    let edit = ListEdit {
        channel: room(),
        list,
        remove: remove.iter().copied().map(uid).collect(),
        add: add.iter().copied().map(uid).collect(),
        join_seq: Seq(7),
        expected_revision,
    };
    command::change_list(5, &edit)
}

fn replica(node: u16) -> Replica {
    Replica {
        node: NodeId(node),
        disk: DiskBoot(u64::from(node)),
    }
}

fn leader(node: u16) -> Leader {
    Leader {
        node: NodeId(node),
        process: ProcessBoot(u64::from(node) + 100),
    }
}

fn wanted(voters: &[u16], min_isr: u8, led_by: u16) -> ChannelMeta {
    ChannelMeta {
        incarnation: Incarnation(0),
        leader: Some(leader(led_by)),
        leader_epoch: LeaderEpoch(0),
        voters: VoterSet {
            isr: voters.iter().copied().map(replica).collect(),
            min_isr,
        },
        previous: None,
        learners: Vec::new(),
        reborn: Vec::new(),
        epoch: 0,
        version: 0,
        fence: None,
        retention_through: Seq(0),
    }
}

fn put(channel: &ChannelKey, expected_version: u64, meta: &ChannelMeta) -> Bytes {
    let put = MetaPut {
        channel: channel.clone(),
        expected_version,
        meta: meta.clone(),
    };
    command::put_metas(5, vec![command::stored_put(&put)])
}

fn only(reply: Reply) -> (Result<(), Rejection>, Option<ChannelMeta>) {
    match reply {
        Reply::Metas(mut answers) if answers.len() == 1 => {
            let answer = answers.remove(0);
            (answer.result, answer.current)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_token_creates_its_user_once_and_is_cleared_only_where_it_is() {
    let mut store = Store::default();
    let token = |wall_ms, byte| {
        command::put_user_token(wall_ms, &uid(1), DeviceFlag(1), [byte; 32], DeviceLevel::Master)
    };
    assert_eq!(store.apply(&token(5, 1)), Reply::Done);
    assert_eq!(store.apply(&token(9, 2)), Reply::Done);
    assert_eq!(
        store.value::<v1::User>(&keys::user(&uid(1))).unwrap().created_ms,
        5
    );
    let device = |store: &Store| {
        store
            .value::<v1::Device>(&keys::device(&uid(1), DeviceFlag(1)))
            .unwrap()
    };
    assert_eq!((device(&store).token_sha256[0], device(&store).level), (2, 1));
    let flags = [DeviceFlag(0), DeviceFlag(1)];
    assert_eq!(
        store.apply(&command::clear_token(10, &uid(1), &flags)),
        Reply::Done
    );
    assert!(device(&store).token_sha256.is_empty());
    assert_eq!(store.count(Table::Device), 1);
}

#[test]
fn lists_keep_counts_revision_and_outbox_in_step_with_their_rows() {
    let mut store = Store::default();
    assert_eq!(
        store.apply(&edit(List::Subscribers, &[], &[1, 2, 2, 3], None)),
        Reply::Revision(1)
    );
    assert_eq!(
        store.apply(&edit(List::Subscribers, &[], &[3], None)),
        Reply::Revision(1)
    );
    assert_eq!(
        store.apply(&edit(List::Subscribers, &[1, 9], &[4], Some(1))),
        Reply::Revision(2)
    );
    let stale = store.apply(&edit(List::Subscribers, &[2], &[], Some(1)));
    assert_eq!(stale, Reply::Rejected(Rejection::Conflict));
    assert_eq!(
        store.apply(&edit(List::Deny, &[], &[1], None)),
        Reply::Revision(3)
    );
    let stats: v1::ChannelStats = store.value(&keys::stats(&room())).unwrap();
    assert_eq!(
        (stats.subscribers, stats.denied, stats.allowed, stats.revision),
        (3, 1, 0, 3)
    );
    assert_eq!(store.count(Table::Subscriber), 3);
    let outbox = |number| {
        store
            .value::<v1::Outbox>(&keys::outbox(&room(), &uid(number)))
            .unwrap()
    };
    assert_eq!((outbox(1).joined, outbox(1).revision), (false, 2));
    assert_eq!((outbox(4).joined, outbox(4).join_seq), (true, 7));
}

#[test]
fn a_whole_new_list_is_one_command() {
    let mut store = Store::default();
    store.apply(&edit(List::Subscribers, &[], &[1, 2, 3], None));
    // What is removed and added at once stays, with its first join position.
    assert_eq!(
        store.apply(&edit(List::Subscribers, &[1, 2, 3], &[3, 4], Some(1))),
        Reply::Revision(2)
    );
    let stats: v1::ChannelStats = store.value(&keys::stats(&room())).unwrap();
    assert_eq!((stats.subscribers, store.count(Table::Subscriber)), (2, 2));
}

#[test]
fn an_outbox_row_goes_only_under_its_own_revision() {
    let mut store = Store::default();
    store.apply(&edit(List::Subscribers, &[], &[1], None));
    store.apply(&edit(List::Subscribers, &[1], &[], None));
    store.apply(&command::clear_outbox(5, &room(), &[(uid(1), 1)]));
    assert_eq!(store.count(Table::MembershipOutbox), 1);
    store.apply(&command::clear_outbox(5, &room(), &[(uid(1), 2)]));
    assert_eq!(store.count(Table::MembershipOutbox), 0);
}

#[test]
fn a_membership_follows_the_newest_revision_and_its_cursors_only_rise() {
    let mut store = Store::default();
    let mut change = |change| store.apply(&command::change_membership(50, &uid(1), &room(), change));
    let state = |joined, revision| MembershipChange::State {
        joined,
        join_seq: Seq(revision * 10),
        revision,
    };
    let read = |seq| MembershipChange::Read {
        read_seq: Seq(seq),
        flag: Some(DeviceFlag(1)),
    };
    assert_eq!(change(read(1)), Reply::Rejected(Rejection::Missing));
    assert_eq!(change(state(true, 2)), Reply::Done);
    assert_eq!(change(state(false, 1)), Reply::Done);
    assert_eq!(change(read(9)), Reply::Done);
    assert_eq!(change(read(4)), Reply::Done);
    assert_eq!(change(MembershipChange::Delete { through: Seq(3) }), Reply::Done);
    assert_eq!(change(MembershipChange::Activate { at_ms: 70 }), Reply::Done);
    assert_eq!(change(state(false, 3)), Reply::Done);
    assert_eq!(change(read(20)), Reply::Rejected(Rejection::Missing));
    let row: v1::Membership = store.value(&keys::membership(&uid(1), &room())).unwrap();
    assert_eq!((row.join_seq, row.read_seq, row.devices[0].read_seq), (20, 9, 9));
    assert_eq!(
        (row.deleted_to_seq, row.activated_ms, row.tombstone),
        (3, 70, true)
    );
}

#[test]
fn a_disbanded_channel_stays_so() {
    let mut store = Store::default();
    let flags = ChannelFlags {
        ban: true,
        ..ChannelFlags::default()
    };
    assert_eq!(
        store.apply(&command::disband(1, &room())),
        Reply::Rejected(Rejection::Missing)
    );
    assert_eq!(store.apply(&command::put_channel(1, &room(), flags)), Reply::Done);
    assert_eq!(store.apply(&command::disband(2, &room())), Reply::Done);
    let disbanded = Reply::Rejected(Rejection::Disbanded);
    assert_eq!(store.apply(&command::put_channel(3, &room(), flags)), disbanded);
    assert_eq!(store.apply(&edit(List::Allow, &[], &[1], None)), disbanded);
    let row: v1::Channel = store.value(&keys::definition(&room())).unwrap();
    assert!(row.disband && row.ban && row.created_ms == 1);
}

#[test]
fn system_uids_live_in_their_own_slot() {
    let mut store = Store::default();
    store.apply(&command::change_system_uids(1, &[uid(1), uid(2)], true));
    store.apply(&command::change_system_uids(2, &[uid(1), uid(3)], false));
    assert_eq!(store.count(Table::SystemUid), 1);
    assert!(store.0.contains_key(&keys::system_uid(&uid(2))));
}

/// SL-2.
#[test]
fn a_command_for_a_foreign_slot_changes_nothing() {
    let mut store = Store::default();
    let other = Machine::new((0..256).map(SlotId).filter(|slot| *slot != room().slot()));
    for command in [
        edit(List::Subscribers, &[], &[1], None),
        put(&room(), 0, &wanted(&[1], 1, 1)),
        command::put_channel(1, &room(), ChannelFlags::default()),
    ] {
        let applied = store.try_apply(&other, &command).unwrap();
        assert_eq!(applied, Applied::rejected(Rejection::WrongSlot));
    }
    assert_eq!(store, Store::default());
}

#[test]
fn grants_are_compare_and_set_and_incarnations_come_from_the_slot() {
    let mut store = Store::default();
    let (result, made) = only(store.apply(&put(&room(), 0, &wanted(&[1, 2, 3], 2, 1))));
    let made = made.unwrap();
    assert_eq!(result, Ok(()));
    assert_eq!(made.incarnation.0, u64::from(room().slot().0) << 48 | 1);
    assert_eq!(
        (made.leader_epoch, made.epoch, made.version),
        (LeaderEpoch(1), 1, 1)
    );
    let (result, current) = only(store.apply(&put(&room(), 0, &wanted(&[1], 1, 1))));
    assert_eq!(
        (result, current.as_ref()),
        (Err(Rejection::Conflict), Some(&made))
    );
    let moved = ChannelMeta {
        leader: Some(leader(2)),
        ..made
    };
    let (result, granted) = only(store.apply(&put(&room(), 1, &moved)));
    assert_eq!(
        (result, granted.as_ref().unwrap().leader_epoch),
        (Ok(()), LeaderEpoch(2))
    );
    let (result, _) = only(store.apply(&put(&room(), 1, &moved)));
    assert_eq!(result, Err(Rejection::Conflict));
    let twin = (0_u32..).map(|n| ChannelKey::new(&format!("t{n}"), ChannelKind::GROUP));
    let twin = twin.into_iter().find(|key| key.slot() == room().slot()).unwrap();
    let (_, second) = only(store.apply(&put(&twin, 0, &wanted(&[1], 1, 1))));
    assert_eq!(second.unwrap().incarnation.0 & 0xffff, 2);
    let led = |node| {
        store
            .0
            .contains_key(&keys::index(Table::LeaderIndex, NodeId(node), &room()))
    };
    assert_eq!((led(1), led(2)), (false, true));
    assert_eq!(store.count(Table::ReplicaIndex), 4);
}

#[test]
fn one_failed_compare_and_set_leaves_the_others_of_its_batch_alone() {
    let mut store = Store::default();
    let stored = |id: &str, version| {
        command::stored_put(&MetaPut {
            channel: ChannelKey::new(id, ChannelKind::GROUP),
            expected_version: version,
            meta: wanted(&[1, 2], 2, 1),
        })
    };
    let batch = command::put_metas(5, vec![stored("a", 0), stored("b", 3), stored("c", 0)]);
    let Reply::Metas(answers) = store.apply(&batch) else {
        panic!("metas")
    };
    let results: Vec<bool> = answers.iter().map(|answer| answer.result.is_ok()).collect();
    assert_eq!(results, vec![true, false, true]);
    assert_eq!(store.count(Table::ChannelMeta), 2);
}

#[test]
fn a_fence_stops_grants_until_its_own_task_lifts_it() {
    let mut store = Store::default();
    store.apply(&put(&room(), 0, &wanted(&[1, 2], 2, 1)));
    let (result, fenced) = only(store.apply(&command::fence(5, &room(), 1, 77)));
    let fenced = fenced.unwrap();
    assert_eq!(
        (result, fenced.leader, fenced.leader_epoch),
        (Ok(()), None, LeaderEpoch(2))
    );
    assert_eq!(store.count(Table::LeaderIndex), 0);
    assert_eq!(
        only(store.apply(&put(&room(), 2, &wanted(&[1, 2], 2, 2)))).0,
        Err(Rejection::Fenced)
    );
    assert_eq!(
        only(store.apply(&command::fence(5, &room(), 2, 78))).0,
        Err(Rejection::Fenced)
    );
    let lift = |task, next| command::clear_fence(5, &room(), 2, task, Some(leader(next)));
    assert_eq!(only(store.apply(&lift(78, 2))).0, Err(Rejection::Fenced));
    assert_eq!(only(store.apply(&lift(77, 3))).0, Err(Rejection::Rule));
    let (result, lifted) = only(store.apply(&lift(77, 2)));
    assert_eq!((result, lifted.unwrap().leader_epoch), (Ok(()), LeaderEpoch(3)));
}

#[test]
fn retention_only_rises() {
    let mut store = Store::default();
    assert_eq!(
        store.apply(&command::set_retention(5, &room(), Seq(3))),
        Reply::Rejected(Rejection::Missing)
    );
    store.apply(&put(&room(), 0, &wanted(&[1], 1, 1)));
    store.apply(&command::set_retention(5, &room(), Seq(9)));
    let (_, meta) = only(store.apply(&command::set_retention(5, &room(), Seq(4))));
    assert_eq!(meta.unwrap().retention_through, Seq(9));
}

fn any_meta() -> impl Strategy<Value = ChannelMeta> {
    let nodes = proptest::collection::vec(1_u16..6, 0..5);
    let disks = proptest::collection::vec(0_u64..2, 6);
    (
        nodes,
        0_u8..4,
        0_u16..6,
        proptest::collection::vec(1_u16..6, 0..2),
        disks,
    )
        .prop_map(|(voters, min_isr, led_by, learners, disks)| {
            let mut meta = wanted(&voters, min_isr, led_by);
            meta.leader = meta.leader.filter(|_| led_by > 0);
            meta.learners = learners.into_iter().map(replica).collect();
            for replica in meta.voters.isr.iter_mut().chain(&mut meta.learners) {
                replica.disk.0 += 100 * disks[usize::from(replica.node.0)];
            }
            meta
        })
}

proptest! {
    /// CH-2, CH-4, CH-7: whatever is asked for, in whatever order.
    #[test]
    fn no_row_of_grants_breaks_the_rules(
        steps in proptest::collection::vec((any_meta(), 0_u8..5), 1..60),
    ) {
        let mut store = Store::default();
        let mut present: Option<ChannelMeta> = None;
        for (meta, kind) in steps {
            let version = present.as_ref().map_or(0, |meta| meta.version);
            let epoch = present.as_ref().map_or(LeaderEpoch(0), |meta| meta.leader_epoch);
            let command = match kind {
                0 => command::clear_previous(5, &room(), version, epoch),
                1 => command::fence(5, &room(), version, 7),
                2 => command::clear_fence(5, &room(), version, 7, meta.leader),
                _ => put(&room(), version, &meta),
            };
            store.apply(&command);
            let next: Option<ChannelMeta> = store.0.get(&keys::meta(&room())).map(|row| rows::decode_meta(row).unwrap());
            if let Some(next) = &next {
                prop_assert!((1..=next.voters.isr.len()).contains(&usize::from(next.voters.min_isr)));
                prop_assert!(next.leader.is_none_or(|leader| next.voters.contains(leader.node)));
                prop_assert!(next.learners.iter().all(|learner| !next.voters.contains(learner.node)));
            }
            if let (Some(old), Some(new)) = (&present, &next) {
                prop_assert_eq!(old.incarnation, new.incarnation);
                let bumped = new.leader_epoch.0 - old.leader_epoch.0;
                prop_assert!(bumped <= 1);
                if old.leader != new.leader || old.voters != new.voters {
                    prop_assert_eq!(bumped, 1);
                }
                prop_assert_eq!(new.version - old.version, u64::from(old != new));
                let nodes = |set: &VoterSet| set.isr.iter().map(|replica| replica.node).collect::<BTreeSet<_>>();
                let (before, after) = (nodes(&old.voters), nodes(&new.voters));
                prop_assert!(after.difference(&before).count() <= 1 && before.difference(&after).count() <= 1);
                if before != after || old.voters.min_isr != new.voters.min_isr {
                    prop_assert!(old.previous.is_none());
                    prop_assert_eq!(nodes(new.previous.as_ref().unwrap()), before);
                }
                for replica in new.replicas() {
                    if old.replicas().iter().any(|known| known.node == replica.node && known.disk != replica.disk) {
                        prop_assert!(new.reborn.contains(&(replica.node, new.leader_epoch)));
                    }
                }
                let indexed = new.replicas().len();
                prop_assert_eq!(store.count(Table::ReplicaIndex), indexed);
            }
            present = next;
        }
    }

    /// F12, F13: any committed bytes, on two replicas.
    #[test]
    fn any_bytes_are_applied_alike_everywhere(
        commands in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..120), 1..20),
        cut in any::<prop::sample::Index>(),
        flip in any::<(prop::sample::Index, u8)>(),
    ) {
        let (mut left, mut right) = (Store::default(), Store::default());
        let whole = edit(List::Subscribers, &[1], &[2, 3], None);
        let mut damaged = whole.to_vec();
        let at = flip.0.index(damaged.len());
        damaged[at] ^= flip.1;
        let shortened = whole[..cut.index(whole.len())].to_vec();
        let framed = commands.into_iter().map(|body| {
            let mut command = vec![0x08, 0x01, 0x10, 0x05];
            command.extend(body);
            command
        });
        for command in framed.chain([whole.to_vec(), damaged, shortened]) {
            prop_assert_eq!(left.try_apply(&all(), &command), right.try_apply(&all(), &command));
        }
        prop_assert_eq!(left, right);
    }
}
