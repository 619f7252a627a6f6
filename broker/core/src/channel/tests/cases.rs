//! Cases that are told step by step.

use super::disk::INCARNATION;
use super::slot::{Slot, first_boots};
use super::world::{Packet, World};
use crate::channel::{Body, EpochTable, Faults, Input, Message, Output, Progress, RoleView};
use crate::types::{LeaderEpoch, NodeId, Seq};
use std::time::Duration;

fn world(nodes: u16, voters: u16, min_isr: u8) -> World {
    let mut world = World::new(1, Slot::new(nodes, voters, min_isr), Faults::default());
    world.tell_all();
    world.settle();
    world
}

const ONE: NodeId = NodeId(1);
const TWO: NodeId = NodeId(2);
const THREE: NodeId = NodeId(3);

#[test]
fn one_voter_alone_takes_the_same_way() {
    let mut world = world(1, 1, 1);
    assert_eq!(world.leader(), Some(ONE));
    world.append(ONE, 3);
    assert_eq!(
        world.checker.committed_end(),
        Seq(0),
        "nothing is committed before it is stored"
    );
    world.settle();
    assert_eq!(world.checker.committed_end(), Seq(3));
    let view = world.replica(ONE).expect("active").view();
    assert_eq!(
        (view.promised_durable, view.accepted_durable),
        (LeaderEpoch(1), LeaderEpoch(1))
    );
}

#[test]
fn a_quiet_channel_commits_with_one_round_trip_and_one_sync() {
    let mut world = world(3, 3, 2);
    world.append(ONE, 1);
    // The records are on their way before the leader has synced (M-3).
    let packets = std::mem::take(&mut world.network);
    assert_eq!(packets.len(), 2);
    for packet in packets {
        world.deliver(packet);
    }
    world.sync(TWO, 9);
    let answers = std::mem::take(&mut world.network);
    assert_eq!(answers.len(), 1);
    for packet in answers {
        world.deliver(packet);
    }
    assert_eq!(
        world.checker.committed_end(),
        Seq(0),
        "the own match counts when it is stored"
    );
    world.sync(ONE, 9);
    assert_eq!(world.checker.committed_end(), Seq(1));
}

#[test]
fn a_leader_in_another_process_begins_a_new_epoch() {
    let mut world = world(3, 3, 2);
    world.append(ONE, 2);
    world.settle();
    world.crash(ONE);
    world.start(ONE);
    world.tell(ONE);
    world.settle();
    assert_eq!(world.leader(), None, "the old grant names the old process");
    world.register(ONE);
    world.slot.grant(ONE);
    world.tell_all();
    world.settle();
    assert_eq!(world.leader(), Some(ONE));
    assert_eq!(world.checker.committed_end(), Seq(2));
}

#[test]
fn a_new_leader_copies_what_only_another_has() {
    let mut world = world(3, 3, 2);
    // Records reach one and two only; then one is gone and three is granted.
    world.append(ONE, 4);
    world
        .network
        .retain(|packet| matches!(packet, Packet::Peer { to, .. } if *to == TWO));
    world.settle();
    assert_eq!(world.checker.committed_end(), Seq(4));
    world.crash(ONE);
    world.slot.grant(THREE);
    world.tell_all();
    world.settle();
    assert_eq!(world.leader(), Some(THREE));
    assert_eq!(world.node(THREE).disk.durable.log_end(), Seq(5));
}

#[test]
fn a_deposed_leader_says_so_and_cuts_what_nobody_has() {
    let mut world = world(3, 3, 2);
    world.append(ONE, 2);
    world.settle();
    world.append(ONE, 3);
    world.network.clear();
    world.sync(ONE, 9);
    world.slot.grant(TWO);
    world.tell(TWO);
    world
        .network
        .retain(|packet| matches!(packet, Packet::Meta { .. }));
    // The promise that it is asked for ends the old leadership in the same step (CH-4).
    world.settle();
    world.tell_all();
    world.settle();
    for _ in 0..10 {
        world.pass(Duration::from_secs(1));
        world.settle();
    }
    let lost = world
        .told
        .iter()
        .any(|(node, output)| *node == ONE && matches!(output, Output::LostLeadership { .. }));
    assert!(lost);
    assert_eq!(world.leader(), Some(TWO));
    world.append(TWO, 1);
    world.settle();
    let ends: Vec<Seq> = [ONE, TWO, THREE]
        .iter()
        .map(|node| world.node(*node).disk.durable.log_end())
        .collect();
    assert_eq!(ends[0], ends[1]);
    assert_eq!(ends[1], ends[2]);
    assert_eq!(world.checker.violation, None);
}

/// The first exchange is lost and nobody appends or grants anew: does the leader come to lead?
pub(super) fn leads_though_the_first_exchange_is_lost(faults: Faults) -> bool {
    let mut world = World::new(1, Slot::new(3, 3, 2), faults);
    world.tell_all();
    let lost = |packet: &Packet| {
        matches!(packet, Packet::Peer { message, .. }
            if matches!(message.body, Body::Replicate(_) | Body::Progress(_)))
    };
    for _ in 0..20 {
        for _ in 0..40 {
            world.network.retain(|packet| !lost(packet));
            for node in [ONE, TWO, THREE] {
                while world.reads(node) > 0 {
                    world.read(node, 0);
                }
                world.sync(node, 9);
            }
            if world.network.is_empty() {
                break;
            }
            let packet = world.network.remove(0);
            if !lost(&packet) {
                world.deliver(packet);
            }
        }
        world.pass(Duration::from_secs(1));
    }
    world.network.retain(|packet| !lost(packet));
    for _ in 0..40 {
        world.settle();
        world.pass(Duration::from_secs(1));
    }
    world.leader() == Some(ONE)
}

#[test]
fn a_follower_assigned_before_the_first_append_keeps_trying() {
    assert!(leads_though_the_first_exchange_is_lost(Faults::default()));
}

#[test]
fn a_minority_leader_proves_nothing_and_reads_nothing_new() {
    let mut world = world(3, 3, 2);
    world.append(ONE, 2);
    world.settle();
    world.isolated = Some(ONE);
    world.slot.grant(TWO);
    world.tell_all();
    world.settle();
    assert_eq!(world.leader(), Some(TWO));
    world.append(TWO, 1);
    world.settle();
    assert_eq!(world.checker.committed_end(), Seq(3));
    world.prove(ONE);
    for _ in 0..60 {
        world.settle();
        world.pass(Duration::from_secs(1));
    }
    let refused = world
        .told
        .iter()
        .any(|(node, output)| *node == ONE && matches!(output, Output::NotProven { .. }));
    assert!(refused && world.coverage.barriers == 0);
    world.prove(TWO);
    world.settle();
    assert_eq!(
        (world.coverage.barriers, world.checker.violation.take()),
        (1, None)
    );
}

#[test]
fn below_the_write_quorum_nothing_is_acknowledged() {
    let mut world = world(3, 3, 2);
    world.crash(TWO);
    world.crash(THREE);
    world.append(ONE, 1);
    world.settle();
    for _ in 0..20 {
        world.pass(Duration::from_secs(5));
        world.settle();
    }
    assert_eq!(world.checker.committed_end(), Seq(0));
    world.start(THREE);
    for _ in 0..20 {
        world.pass(Duration::from_secs(5));
        world.settle();
    }
    assert_eq!(
        world.checker.committed_end(),
        Seq(1),
        "a follower assigned before the first append is found (CH-12)"
    );
}

#[test]
fn a_wiped_voter_gives_no_evidence() {
    let mut world = world(3, 3, 2);
    world.append(ONE, 2);
    world
        .network
        .retain(|packet| matches!(packet, Packet::Peer { to, .. } if *to == TWO));
    world.settle();
    // Two, which has the records, loses its disk; one is down: nobody may lead.
    world.wipe(TWO);
    world.start(TWO);
    world.register(TWO);
    world.crash(ONE);
    world.slot.grant(THREE);
    world.tell_all();
    for _ in 0..10 {
        world.settle();
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(world.leader(), None);
    // One returns with its disk: its evidence is enough, and two is filled again.
    world.start(ONE);
    for _ in 0..40 {
        world.settle();
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(world.leader(), Some(THREE));
    assert_eq!(world.node(TWO).disk.durable.log_end(), Seq(3));
    assert!(!world.replica(TWO).expect("active").view().withholds);
}

#[test]
fn an_idle_leader_comes_back_in_its_epoch_only_in_the_same_process() {
    let mut world = world(3, 3, 2);
    world.append(ONE, 2);
    for _ in 0..20 {
        world.settle();
        world.pass(Duration::from_secs(1));
    }
    world.settle();
    for node in [ONE, TWO, THREE] {
        world.evict(node);
        assert!(world.replica(node).is_none(), "{node} is idle and was told so");
    }
    world.activate(ONE);
    world.settle();
    assert_eq!(world.leader(), Some(ONE));
    assert_eq!(world.slot.meta.leader_epoch, LeaderEpoch(1));
    world.append(ONE, 1);
    world.settle();
    assert_eq!(world.checker.committed_end(), Seq(3));
}

#[test]
fn an_idle_channel_wants_no_timer_once_it_may_go() {
    let mut world = world(3, 3, 2);
    world.append(ONE, 2);
    for _ in 0..20 {
        world.settle();
        world.pass(Duration::from_secs(1));
    }
    for node in [ONE, TWO, THREE] {
        assert_eq!(
            world.replica(node).expect("active").next_deadline(),
            None,
            "{node}"
        );
    }
}

/// The pauses of both sides grow to the same length: a follower that asks just before it would be served is served all the same.
#[test]
fn a_follower_that_asks_as_often_as_it_is_waited_for_is_served() {
    let mut world = world(3, 3, 2);
    for _ in 0..4 {
        world.append(ONE, 3);
        world.settle();
    }
    world.isolated = Some(THREE);
    world.slot.grant(ONE);
    world.tell_all();
    world.settle();
    assert_eq!(world.leader(), Some(ONE));
    let asks = Message {
        incarnation: INCARNATION,
        leader_epoch: world.slot.meta.leader_epoch,
        boots: first_boots(),
        body: Body::Progress(Progress {
            accepted: LeaderEpoch(1),
            log_end: Seq(12),
            log_start: Seq(1),
            last_epoch: LeaderEpoch(1),
            conflict: EpochTable::of(vec![(LeaderEpoch(1), Seq(1))]),
            cursor_mark: 0,
        }),
    };
    let records = |packet: &Packet| {
        matches!(packet, Packet::Peer { to: THREE, message, .. }
            if matches!(&message.body, Body::Replicate(replicate) if !replicate.records.is_empty()))
    };
    let mut served = 0;
    for round in 0..20 {
        let message = asks.clone();
        world.feed(ONE, Input::Peer { from: THREE, message });
        world.settle();
        // Some come at once, so that the pause is long.
        let until = world.now.monotonic + Duration::from_millis(if round < 8 { 0 } else { 3_900 });
        while world.now.monotonic < until {
            world.pass(until - world.now.monotonic);
            served += world.network.iter().filter(|packet| records(packet)).count();
            world.settle();
        }
    }
    assert!(served >= 4, "{served}");
}

fn asks_for_epoch(world: &World, node: NodeId) -> bool {
    let asks = Output::NeedEpoch {
        epoch: world.slot.meta.leader_epoch.next(),
    };
    world.told.contains(&(node, asks))
}

/// The epoch stays with a leader that cannot use it any more: nobody but itself can know that.
#[test]
fn a_damaged_leader_asks_for_a_new_epoch_until_one_is_granted() {
    let mut world = world(3, 3, 2);
    for _ in 0..4 {
        world.append(ONE, 3);
        world.settle();
    }
    world.damage(ONE, Seq(3));
    world.read_as_client(ONE, Seq(2));
    world.settle();
    assert_eq!(world.leader(), None);
    for _ in 0..3 {
        assert!(asks_for_epoch(&world, ONE));
        world.told.clear();
        world.pass(Duration::from_secs(5));
        world.settle();
    }
    world.slot.grant(TWO);
    world.tell_all();
    for _ in 0..10 {
        world.settle();
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(world.leader(), Some(TWO));
    world.told.clear();
    world.check_end();
    assert_eq!(world.checker.violation, None);
    assert!(!asks_for_epoch(&world, ONE));
}

#[test]
fn damaged_records_are_fetched_again_under_a_new_epoch() {
    let mut world = world(3, 3, 2);
    for _ in 0..4 {
        world.append(ONE, 3);
        world.settle();
    }
    world.damage(TWO, Seq(3));
    world.read_as_client(TWO, Seq(2));
    world.settle();
    let damaged = world
        .told
        .iter()
        .any(|(node, output)| *node == TWO && matches!(output, Output::Damaged { .. }));
    assert!(damaged);
    assert!(asks_for_epoch(&world, TWO));
    assert!(world.replica(TWO).expect("active").view().withholds);
    world.append(ONE, 1);
    world.settle();
    assert_eq!(world.checker.committed_end(), Seq(13), "the others go on");
    world.slot.grant(ONE);
    world.tell_all();
    for _ in 0..10 {
        world.settle();
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(world.leader(), Some(ONE));
    world.check_end();
    assert_eq!(world.checker.violation, None);
    assert!(!world.replica(TWO).expect("active").view().withholds);
}

fn asks_for_meta(world: &World, node: NodeId) -> bool {
    let told = &mut world.told.iter();
    told.any(|(from, output)| *from == node && matches!(output, Output::NeedMeta { .. }))
}

#[test]
fn a_leader_has_a_voters_new_disk_registered() {
    let mut world = world(3, 3, 2);
    world.append(ONE, 2);
    world.settle();
    world.wipe(THREE);
    world.start(THREE);
    world.tell(THREE);
    world.settle();
    world.told.clear();
    world.append(ONE, 1);
    for _ in 0..6 {
        world.settle();
        world.pass(Duration::from_secs(1));
    }
    assert!(asks_for_meta(&world, ONE), "nobody else would");
}

#[test]
fn a_leader_asks_whether_a_silent_voter_is_lost() {
    let mut world = world(3, 3, 2);
    world.append(ONE, 2);
    world.settle();
    world.crash(THREE);
    world.told.clear();
    world.append(ONE, 1);
    for _ in 0..200 {
        world.settle();
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(world.leader(), Some(ONE));
    assert!(asks_for_meta(&world, ONE));
}

#[test]
fn cursors_reach_every_replica_and_survive_a_failover() {
    let mut world = world(3, 3, 2);
    world.append(ONE, 2);
    world.settle();
    world.cursor(ONE, 2);
    world.cursor(ONE, 1);
    for _ in 0..6 {
        world.settle();
        world.pass(Duration::from_secs(1));
    }
    for node in [ONE, TWO, THREE] {
        let value = world.replica(node).expect("active").cursor(b"delivery").cloned();
        assert_eq!(value.as_deref(), Some(&2u64.to_be_bytes()[..]), "{node}");
    }
    world.crash(ONE);
    world.slot.grant(TWO);
    world.tell_all();
    world.settle();
    assert_eq!(world.leader(), Some(TWO));
    let view = world.replica(TWO).expect("active").role_view();
    assert_eq!(view, RoleView::Leading(LeaderEpoch(2)));
}

/// A position that must not be lost counts as held when a quorum has it on disk, and not before.
#[test]
fn a_fixed_cursor_is_on_the_disks_of_a_quorum() {
    let mut world = world(3, 3, 2);
    world.fix(ONE);
    world.sync(ONE, 9);
    let asked = std::mem::take(&mut world.network);
    assert_eq!(asked.len(), 2, "both followers are told at once");
    let to_two = asked
        .into_iter()
        .find(|packet| matches!(packet, Packet::Peer { to: TWO, .. }));
    world.deliver(to_two.expect("one of them"));
    assert!(world.network.is_empty(), "no answer before it is durable");
    world.sync(TWO, 9);
    for packet in std::mem::take(&mut world.network) {
        assert!(world.checker.fixed.is_empty());
        world.deliver(packet);
    }
    assert_eq!(world.checker.fixed.len(), 1);
    // What is held is settled at once, and what is lost on the way is asked again.
    world.fix(ONE);
    world.network.clear();
    for _ in 0..20 {
        world.settle();
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(world.checker.fixed.len(), 2);
}
