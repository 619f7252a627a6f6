//! A group without faults around it: proposals, reads, transfers, members, stopping.

use super::super::command::put_channel;
use super::super::faults::Faults;
use super::super::{Input, Lane, MemberChange, ProposeError};
use super::world::{World, limits};
use super::{channel, join, member_key};
use crate::admin::ChannelFlags;
use crate::limits::Limits;
use crate::replicated::{Rejection, Reply};
use crate::types::{DiskBoot, NodeId, Replica, Token};
use bytes::Bytes;
use penstock_wire::storage::v1;
use prost::Message as _;

fn three() -> World {
    World::new(1, 3, limits(), Faults::default())
}

fn other_than(world: &World, leader: NodeId) -> NodeId {
    *world.nodes.keys().find(|node| **node != leader).unwrap()
}

fn answer(world: &mut World, token: Token) -> Result<Reply, ProposeError> {
    for _ in 0..600 {
        if let Some(answer) = world.answers.remove(&token) {
            return answer;
        }
        world.advance();
    }
    panic!("no answer within 6 s");
}

#[test]
fn a_command_is_committed_and_a_refused_one_changes_nothing() {
    let mut world = three();
    assert_eq!(
        world.commit(put_channel(1, &channel(), ChannelFlags::default())),
        Reply::Done
    );
    assert_eq!(world.commit(join(1)), Reply::Revision(1));
    assert_eq!(world.commit(join(1)), Reply::Revision(1));
    assert_eq!(
        world.commit(Bytes::from_static(b"\xff")),
        Reply::Rejected(Rejection::Malformed)
    );
    world.converge();
}

#[test]
fn a_sole_voter_leads_at_its_first_tick() {
    let mut world = World::new(1, 1, limits(), Faults::default());
    let alone = NodeId(1);
    world.run(20);
    assert_eq!(world.leader(), Some(alone));
    assert_eq!(world.commit(join(1)), Reply::Revision(1));
    world.crash(alone, 5);
    world.run(30);
    assert_eq!(world.leader(), Some(alone));
}

#[test]
fn a_follower_refuses_with_a_hint() {
    let mut world = three();
    let leader = world.elect();
    let follower = other_than(&world, leader);
    world.run(50);
    let token = world.propose(follower, Lane::Ordinary, join(1));
    let hint = Some(leader);
    assert_eq!(answer(&mut world, token), Err(ProposeError::NotLeader { hint }));
}

#[test]
fn every_proposal_of_a_leader_that_is_cut_off_gets_an_outcome_within_its_deadline() {
    let mut world = three();
    let leader = world.elect();
    for node in world
        .nodes
        .keys()
        .copied()
        .filter(|node| *node != leader)
        .collect::<Vec<_>>()
    {
        world.cut.insert((leader, node));
        world.cut.insert((node, leader));
    }
    let tokens: Vec<Token> = (0..300)
        .map(|number| world.propose(leader, Lane::Ordinary, join(number)))
        .collect();
    world.run(310);
    for token in &tokens {
        let answer = world.answers.get(token);
        assert!(
            matches!(
                answer,
                Some(Err(ProposeError::Unknown
                    | ProposeError::NotLeader { .. }
                    | ProposeError::Full))
            ),
            "{answer:?}"
        );
    }
    world.cut.clear();
    world.converge();
}

#[test]
fn a_read_index_never_confirms_an_old_leader() {
    let mut world = three();
    let leader = world.elect();
    let token = world.token();
    world.input(leader, Input::ReadIndex { token });
    world.run(50);
    assert_eq!(world.reads_answered[&token], Ok(()));
    for node in world
        .nodes
        .keys()
        .copied()
        .filter(|node| *node != leader)
        .collect::<Vec<_>>()
    {
        world.cut.insert((leader, node));
        world.cut.insert((node, leader));
    }
    let late = world.token();
    world.input(leader, Input::ReadIndex { token: late });
    world.run(310);
    assert!(
        world.reads_answered[&late].is_err(),
        "{:?}",
        world.reads_answered[&late]
    );
}

#[test]
fn leadership_moves_where_it_is_sent_under_load() {
    let mut world = three();
    let mut number = 0;
    for _ in 0..12 {
        let leader = world.elect();
        world.run(20);
        let to = other_than(&world, leader);
        let token = world.token();
        world.input(leader, Input::Transfer { token, to });
        let mut proposed = Vec::new();
        for _ in 0..100 {
            number += 1;
            let leader = world.leader().unwrap_or(leader);
            proposed.push(world.propose(leader, Lane::Ordinary, join(number)));
            world.advance();
        }
        assert_eq!(world.transferred[&token], Ok(()));
        assert_eq!(world.leader(), Some(to));
        world.run(300);
        assert!(proposed.iter().all(|token| world.answers.contains_key(token)));
    }
    world.converge();
}

#[test]
fn a_transfer_to_a_dead_node_is_refused_or_given_up_and_the_leader_stays() {
    let mut world = three();
    let leader = world.elect();
    world.run(50);
    let to = other_than(&world, leader);
    world.crash(to, 500);
    let token = world.token();
    world.input(leader, Input::Transfer { token, to });
    world.run(120);
    assert!(world.transferred[&token].is_err());
    assert_eq!(world.leader(), Some(leader));
    assert!(matches!(world.commit(join(1)), Reply::Revision(_)));
}

#[test]
fn an_isolated_node_returns_without_deposing_the_leader() {
    let mut world = three();
    let leader = world.elect();
    world.run(50);
    let terms = world.leaders.len();
    let away = other_than(&world, leader);
    for node in world
        .nodes
        .keys()
        .copied()
        .filter(|node| *node != away)
        .collect::<Vec<_>>()
    {
        world.cut.insert((away, node));
        world.cut.insert((node, away));
    }
    world.run(6_000);
    world.cut.clear();
    world.converge();
    assert_eq!((world.leader(), world.leaders.len()), (Some(leader), terms));
}

/// F12: a command of a later version is not skipped.
#[test]
fn an_unknown_command_version_stops_the_group_everywhere() {
    let mut world = three();
    let leader = world.elect();
    world.commit(join(1));
    let command = v1::Command {
        version: 2,
        ..v1::Command::default()
    };
    let token = world.propose(leader, Lane::Ordinary, command.encode_to_vec().into());
    assert_eq!(answer(&mut world, token), Err(ProposeError::Stopped));
    world.run(100);
    assert_eq!(world.stopped.len(), 3);
    let token = world.propose(leader, Lane::Ordinary, join(2));
    assert_eq!(answer(&mut world, token), Err(ProposeError::Stopped));
    assert!(
        world
            .nodes
            .values()
            .all(|node| node.disk.visible.contains_key(&member_key(1)))
    );
}

fn status(world: &World, node: NodeId) -> super::super::Status {
    world.nodes[&node].group.as_ref().unwrap().status()
}

/// CO-5: a node with an empty disk is not listened to under its old name; it is removed, learns from the beginning, and votes
/// again, and the leader stays.
#[test]
fn a_wiped_node_is_replaced_by_its_new_self() {
    let mut world = three();
    for number in 0..100 {
        world.commit(join(number));
    }
    let leader = world.elect();
    let wiped = other_than(&world, leader);
    let members = |world: &World| world.nodes[&leader].group.as_ref().unwrap().members();
    assert!(
        members(&world)
            .iter()
            .all(|member| member.disk.0 == u64::from(member.node.0))
    );
    world.add_node(wiped, 99);
    world.start(wiped);
    world.run(10);
    assert!(
        status(&world, wiped).applied.0 <= 1,
        "it learns nothing under the old disk"
    );
    let reborn = Replica {
        node: wiped,
        disk: DiskBoot(99),
    };
    for _ in 0..1_500 {
        world.advance();
    }
    world.converge();
    assert!(members(&world).contains(&reborn), "{:?}", members(&world));
    assert_eq!(status(&world, wiped).voters.len(), 3);
    assert_eq!(world.leader(), Some(leader));
    assert!(world.replaced > 0);
}

/// CO-1: a member more, by learning first; and one less.
#[test]
fn a_node_joins_by_learning_and_leaves() {
    let mut world = three();
    for number in 0..100 {
        world.commit(join(number));
    }
    let leader = world.elect();
    let change = |world: &mut World, change| {
        let token = world.token();
        world.input(leader, Input::ChangeMember { token, change });
        answer(world, token)
    };
    let joiner = Replica {
        node: NodeId(4),
        disk: DiskBoot(40),
    };
    world.add_node(joiner.node, joiner.disk.0);
    world.start(joiner.node);
    assert_eq!(
        change(&mut world, MemberChange::Promote(joiner.node)),
        Err(ProposeError::Refused)
    );
    assert_eq!(
        change(&mut world, MemberChange::AddLearner(joiner)),
        Ok(Reply::Done)
    );
    assert_eq!(
        change(&mut world, MemberChange::Promote(joiner.node)),
        Err(ProposeError::Refused)
    );
    assert_eq!(
        change(&mut world, MemberChange::AddLearner(joiner)),
        Err(ProposeError::Refused)
    );
    world.run(500);
    assert_eq!(
        change(&mut world, MemberChange::Promote(joiner.node)),
        Ok(Reply::Done)
    );
    world.converge();
    assert_eq!(status(&world, joiner.node).voters.len(), 4);
    assert_eq!(
        change(&mut world, MemberChange::Remove(leader)),
        Err(ProposeError::Refused)
    );
    assert_eq!(
        change(&mut world, MemberChange::Remove(joiner.node)),
        Ok(Reply::Done)
    );
    world.run(50);
    assert_eq!(status(&world, leader).voters.len(), 3);
}

/// SL-9 over the whole way: a grant is committed while thousands of cursors wait.
#[test]
fn a_grant_overtakes_a_flood_of_cursors() {
    let limits = Limits {
        proposals_max: 10_000,
        ..limits()
    };
    let mut world = World::new(3, 3, limits, Faults::default());
    let leader = world.elect();
    let flood: Vec<Token> = (0..5_000)
        .map(|number| world.propose(leader, Lane::Background, join(number)))
        .collect();
    let grant = world.propose(
        leader,
        Lane::Reserved,
        put_channel(1, &channel(), ChannelFlags::default()),
    );
    while !world.answers.contains_key(&grant) {
        world.advance();
    }
    let before = flood
        .iter()
        .filter(|token| world.answers.contains_key(token))
        .count();
    assert!(before <= 512, "{before} cursors were served first");
}
