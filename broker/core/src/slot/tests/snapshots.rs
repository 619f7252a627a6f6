//! Snapshots between replicas, with a crash at every step.

use super::super::faults::Faults;
use super::super::{Input, Lane};
use super::world::{World, limits};
use super::{join, leave};
use crate::rows::Key;
use crate::types::NodeId;

/// A world in which one follower has missed more than the log keeps.
fn behind(seed: u64) -> (World, NodeId, NodeId) {
    behind_with(seed, Faults::default())
}

fn behind_with(seed: u64, faults: Faults) -> (World, NodeId, NodeId) {
    let mut world = World::new(seed, 3, limits(), faults);
    let leader = world.elect();
    let away = *world.nodes.keys().find(|node| **node != leader).unwrap();
    world.commit(join(0));
    world.crash(away, 1_000_000);
    for number in 1..=400 {
        world.commit(join(number));
    }
    let status = world.nodes[&leader].group.as_ref().unwrap().status();
    assert!(status.truncated.0 > 100, "the log is compacted: {status:?}");
    (world, leader, away)
}

#[test]
fn a_follower_below_the_log_is_brought_back_by_a_snapshot() {
    let (mut world, _, away) = behind(5);
    world.start(away);
    world.converge();
    assert_eq!(world.replaced, 1);
}

/// The receiver dies after each number of its steps: what it had staged is used again or thrown away, never half of it.
#[test]
fn the_receiver_may_crash_at_every_step_of_an_install() {
    let mut installed_late = 0;
    for steps in (1..90).step_by(4) {
        let (mut world, _, away) = behind(6);
        world.start(away);
        world.run(steps);
        world.crash(away, 5);
        world.run(20);
        world.crash(away, 0);
        world.converge();
        installed_late += world.replaced;
    }
    assert!(installed_late > 10, "{installed_late}");
}

#[test]
fn the_sender_may_crash_at_every_step_of_an_install() {
    for steps in (1..90).step_by(8) {
        let (mut world, leader, away) = behind(7);
        world.start(away);
        world.run(steps);
        world.crash(leader, 50);
        world.converge();
    }
}

/// A new leader can commit nothing before its only live follower has the snapshot: it must not wait for that to send it.
#[test]
fn a_new_leader_sends_the_snapshot_that_its_first_commit_waits_for() {
    let (mut world, leader, away) = behind(8);
    let third = *world
        .nodes
        .keys()
        .find(|node| ![leader, away].contains(node))
        .unwrap();
    world.crash(third, 1_000_000);
    world.crash(leader, 0);
    world.start(away);
    assert_eq!(world.elect(), leader);
    world.start(third);
    world.converge();
}

/// A receiver that goes away in the middle is given up, so that another one gets its snapshot.
#[test]
fn a_receiver_that_is_gone_keeps_nobody_waiting() {
    let mut world = World::new(12, 5, limits(), Faults::default());
    let leader = world.elect();
    let others = world.nodes.keys().copied().filter(|node| *node != leader);
    let away: Vec<NodeId> = others.take(2).collect();
    world.commit(join(0));
    for node in &away {
        world.crash(*node, 1_000_000);
    }
    for number in 1..=400 {
        world.commit(join(number));
    }
    for node in &away {
        world.start(*node);
    }
    let staging = |world: &World, node: &NodeId| {
        let rows = world.nodes[node].disk.visible.keys();
        rows.filter(|key| matches!(key, Key::Staged { .. })).count() > 0
    };
    let gone = loop {
        world.advance();
        if let Some(node) = away.iter().find(|node| staging(&world, node)) {
            break *node;
        }
    };
    world.crash(gone, 2_000);
    world.run(1_900);
    assert_eq!(world.replaced, 1, "the other one has its snapshot");
    world.converge();
}

/// Rows change and members come and go while the pages are read: the snapshot is the state of one index all the same.
#[test]
fn writes_during_a_snapshot_travel_with_it() {
    for seed in 0..6 {
        let (mut world, _, away) = behind(20 + seed);
        world.lossy = true;
        world.start(away);
        for number in 401..800 {
            if let Some(leader) = world.leader() {
                world.propose(leader, Lane::Ordinary, join(number % 450));
            }
            world.advance();
        }
        world.lossy = false;
        world.converge();
        assert!(world.replaced >= 1);
    }
}

#[test]
fn chunks_of_an_older_transfer_are_refused() {
    use super::super::{ChunkAnswer, Message, Transfer};
    use crate::types::Term;
    let (mut world, leader, away) = behind(9);
    world.start(away);
    world.run(3);
    let transfer = Transfer {
        term: Term(1),
        sender: leader,
        number: 1,
    };
    let body = bytes::Bytes::new();
    let message = Message::Chunk {
        transfer,
        number: 3,
        crc: crc32fast::hash(&body),
        body,
    };
    let before = world.nodes[&away].disk.visible.clone();
    world.input(
        away,
        Input::Peer {
            from: leader,
            message,
        },
    );
    assert_eq!(before, world.nodes[&away].disk.visible);
    // An answer that fits no transfer changes nothing at the leader either.
    let answer = Message::ChunkAck {
        transfer,
        answer: ChunkAnswer::Refused,
    };
    world.input(
        leader,
        Input::Peer {
            from: away,
            message: answer,
        },
    );
    world.converge();
}

/// An install that was begun and never ended leaves nothing in the one that follows.
pub(super) fn interrupted_install(faults: Faults) {
    let (mut world, leader, away) = behind_with(11, faults);
    world.start(away);
    let staged = |world: &World| {
        let rows = world.nodes[&away].disk.durable.keys();
        rows.filter(|key| matches!(key, Key::Staged { .. })).count()
    };
    while staged(&world) < 20 {
        world.advance();
    }
    assert_eq!(world.replaced, 0);
    world.crash(away, 1_000_000);
    world.crash(leader, 200);
    for number in 1..=400 {
        world.commit(leave(number));
    }
    world.start(away);
    world.converge();
    assert!(world.replaced >= 1);
}

#[test]
fn rows_of_an_interrupted_install_do_not_come_back() {
    interrupted_install(Faults::default());
}
