//! Many seeds of faults, then healing: what was acknowledged is everywhere, once.

use super::super::Lane;
use super::super::faults::Faults;
use super::world::{World, limits};
use super::{channel, join, keys, member_key};
use crate::replicated::Reply;
use crate::types::{NodeId, Token};
use penstock_wire::storage::v1;
use prost::Message as _;
use std::collections::{BTreeMap, BTreeSet};

struct Totals {
    acknowledged: usize,
    elections: usize,
    snapshots: u64,
    misses: u64,
}

/// One seed: `steps` of chaos at 10 ms, then healing and the comparison.
fn run(seed: u64, nodes: u16, steps: u64, faults: Faults) -> Totals {
    let mut world = World::new(seed, nodes, limits(), faults);
    world.lossy = true;
    let mut proposed: BTreeMap<Token, u64> = BTreeMap::new();
    let mut number = 0;
    for _ in 0..steps {
        world.advance();
        let node = NodeId(1 + u16::try_from(world.random.below(u64::from(nodes))).unwrap());
        if world.random.one_in(2) {
            number += 1;
            let to = world.leader().unwrap_or(node);
            let token = world.propose(to, Lane::Ordinary, join(number));
            proposed.insert(token, number);
        }
        if world.random.one_in(150) {
            let down = world.random.below(120);
            world.crash(node, down);
        }
        if world.random.one_in(200) {
            let other = NodeId(1 + u16::try_from(world.random.below(u64::from(nodes))).unwrap());
            world.cut.insert((node, other));
            if world.random.one_in(2) {
                world.cut.insert((other, node));
            }
        }
        if world.random.one_in(120) {
            world.cut.clear();
        }
    }
    world.lossy = false;
    world.cut.clear();
    world.converge();
    let acknowledged: BTreeSet<u64> = proposed
        .iter()
        .filter(|(token, _)| matches!(world.answers.get(token), Some(Ok(Reply::Revision(_)))))
        .map(|(_, number)| *number)
        .collect();
    for (id, node) in &world.nodes {
        let rows = &node.disk.visible;
        let stats = rows.get(&keys::stats(&channel())).map_or(0, |row| {
            let stats = v1::ChannelStats::decode(row.clone()).unwrap();
            assert_eq!(stats.subscribers, stats.revision, "each member joined once");
            stats.subscribers
        });
        let present = (1..=number)
            .filter(|number| rows.contains_key(&member_key(*number)))
            .count();
        assert_eq!(stats, present as u64, "a command is applied once, whole, on {id}");
        for number in &acknowledged {
            assert!(
                rows.contains_key(&member_key(*number)),
                "{number} is acknowledged and lost on {id}"
            );
        }
    }
    Totals {
        acknowledged: acknowledged.len(),
        elections: world.leaders.len(),
        snapshots: world.replaced,
        misses: world.misses,
    }
}

#[test]
fn what_is_acknowledged_is_on_every_replica_once_whatever_crashes() {
    let mut sum = Totals {
        acknowledged: 0,
        elections: 0,
        snapshots: 0,
        misses: 0,
    };
    for seed in 0..25 {
        let totals = run(seed, 3, 1_500, Faults::default());
        sum.acknowledged += totals.acknowledged;
        sum.elections += totals.elections;
        sum.snapshots += totals.snapshots;
        sum.misses += totals.misses;
    }
    // The run proves nothing unless these things happened.
    assert!(sum.acknowledged > 4_000, "{} acknowledged", sum.acknowledged);
    assert!(sum.elections > 50, "{} elections", sum.elections);
    assert!(sum.snapshots > 3, "{} snapshots", sum.snapshots);
    assert!(sum.misses > 500, "{} misses", sum.misses);
}

#[test]
fn a_single_replica_survives_its_crashes() {
    for seed in 0..10 {
        let totals = run(1_000 + seed, 1, 1_500, Faults::default());
        assert!(totals.acknowledged > 50, "{}", totals.acknowledged);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let trace = || {
        let totals = run(77, 3, 800, Faults::default());
        (
            totals.acknowledged,
            totals.elections,
            totals.snapshots,
            totals.misses,
        )
    };
    assert_eq!(trace(), trace());
}

/// Every planted fault is found by the same checks within a few seeds.
#[cfg(feature = "mutants")]
mod mutants {
    use super::super::snapshots;
    use super::*;

    fn is_found(scenario: impl Fn() + std::panic::UnwindSafe) -> bool {
        std::panic::catch_unwind(scenario).is_err()
    }

    fn found_within(name: &str, nodes: u16, seeds: u64) {
        let faults = Faults::named(name).unwrap();
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let found = (0..seeds).any(|seed| {
            is_found(move || {
                run(seed, nodes, 1_500, faults);
            })
        });
        std::panic::set_hook(hook);
        assert!(found, "{name} is not found within {seeds} seeds");
    }

    #[test]
    fn planted_faults_are_found() {
        found_within("applied_not_atomic", 3, 20);
        found_within("persisted_messages_early", 3, 20);
        found_within("hard_state_skipped", 3, 60);
        found_within("applies_before_persisted", 1, 20);
        found_within("snapshot_without_changes", 3, 60);
    }

    #[test]
    fn rows_left_on_the_stage_are_found() {
        let faults = Faults::named("stage_not_cleared").unwrap();
        assert!(is_found(move || snapshots::interrupted_install(faults)));
    }
}
