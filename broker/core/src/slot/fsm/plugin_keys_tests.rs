//! What becomes of changes of keys.

use super::tests::{Store, all};
use super::*;
use crate::plugins::{
    KEY_BYTES_MAX, KEY_CHANGES_MAX, KEY_OVERHEAD_BYTES, KeyChange, KeyOperation, KeyOutcome, KeyRefused,
    KeySource, KeyValue, QUOTA_BYTES, VALUE_BYTES_MAX, key_slot,
};
use crate::rows::Table;
use crate::slot::{command, keys};
use crate::types::{Incarnation, LeaderEpoch, Seq, Token};
use bytes::Bytes;
use std::sync::Arc;

const PLUGIN: &str = "tally";

fn source(through: u64) -> KeySource {
    KeySource {
        binding: Arc::from("count"),
        binding_incarnation: 4,
        incarnation: Incarnation(9),
        through: Seq(through),
        leader_epoch: LeaderEpoch(2),
        run: Token(7),
    }
}

fn set(value: &[u8], ttl_ms: u64) -> KeyOperation {
    KeyOperation::Set(KeyValue {
        value: Bytes::copy_from_slice(value),
        ttl_ms,
    })
}

fn one(key: &str, seq: u64, operation: KeyOperation) -> KeyChange {
    KeyChange {
        key: Arc::from(key),
        seq: Seq(seq),
        operation,
    }
}

fn by_hand(store: &mut Store, wall_ms: u64, key: &str, operation: KeyOperation) -> Reply {
    store.apply(&command::change_keys(
        wall_ms,
        PLUGIN,
        None,
        &[one(key, 0, operation)],
    ))
}

fn done() -> Reply {
    Reply::Keys(vec![KeyOutcome::Done])
}

fn refused(why: KeyRefused) -> Reply {
    Reply::Rejected(Rejection::Keys(why))
}

fn value(store: &Store, key: &str) -> Option<Bytes> {
    let row = store.value::<v1::PluginKey>(&keys::plugin_key(PLUGIN, key));
    row.map(|row| row.value)
}

fn charged(store: &Store, key: &str) -> Option<u64> {
    let row = store.value::<v1::Counter>(&keys::plugin_bytes(key_slot(PLUGIN, key), PLUGIN));
    row.map(|counter| counter.value)
}

/// Two keys of one slot.
fn neighbours() -> (String, String) {
    let slot = key_slot(PLUGIN, "k0");
    let other = (1..).map(|number| format!("k{number}"));
    let mut others = other.filter(|key| key_slot(PLUGIN, key) == slot);
    ("k0".to_owned(), others.next().expect("slots are few"))
}

#[test]
fn values_are_set_counted_and_removed() {
    let mut store = Store::default();
    assert_eq!(by_hand(&mut store, 1, "a", set(b"xyz", 0)), done());
    assert_eq!(value(&store, "a"), Some(Bytes::from_static(b"xyz")));
    assert_eq!(charged(&store, "a"), Some(1 + 3 + KEY_OVERHEAD_BYTES));
    assert_eq!(by_hand(&mut store, 1, "a", set(b"", 0)), done());
    assert_eq!(charged(&store, "a"), Some(1 + KEY_OVERHEAD_BYTES));
    assert_eq!(by_hand(&mut store, 1, "a", KeyOperation::Delete), done());
    assert_eq!(by_hand(&mut store, 1, "a", KeyOperation::Delete), done());
    assert_eq!((value(&store, "a"), charged(&store, "a")), (None, None));
    assert!(store.0.is_empty(), "nothing is left of it");
}

#[test]
fn numbers_grow_and_what_is_none_is_refused() {
    let mut store = Store::default();
    let add = KeyOperation::Increment;
    let sum = |sum| Reply::Keys(vec![KeyOutcome::Sum(sum)]);
    assert_eq!(by_hand(&mut store, 1, "n", add(5)), sum(5));
    assert_eq!(by_hand(&mut store, 1, "n", add(-7)), sum(-2));
    assert_eq!(value(&store, "n"), Some(Bytes::from_static(b"-2")));
    by_hand(&mut store, 1, "n", set(i64::MAX.to_string().as_bytes(), 0));
    let before = store.clone();
    assert_eq!(
        by_hand(&mut store, 1, "n", add(1)),
        refused(KeyRefused::NotANumber)
    );
    by_hand(&mut store, 1, "t", set(b"text", 0));
    assert_eq!(
        by_hand(&mut store, 1, "t", add(1)),
        refused(KeyRefused::NotANumber)
    );
    by_hand(&mut store, 1, "t", KeyOperation::Delete);
    assert_eq!(store, before);
}

#[test]
fn a_value_is_swapped_only_for_the_one_that_is_expected() {
    let mut store = Store::default();
    let swap = |expected: Option<&'static [u8]>, value: &'static [u8]| KeyOperation::CompareAndSet {
        expected: expected.map(Bytes::from_static),
        value: KeyValue {
            value: Bytes::from_static(value),
            ttl_ms: 0,
        },
    };
    let swapped = |was| Reply::Keys(vec![KeyOutcome::Swapped(was)]);
    assert_eq!(
        by_hand(&mut store, 1, "a", swap(Some(b"1"), b"2")),
        swapped(false)
    );
    assert_eq!(by_hand(&mut store, 1, "a", swap(None, b"1")), swapped(true));
    assert_eq!(by_hand(&mut store, 1, "a", swap(None, b"3")), swapped(false));
    assert_eq!(by_hand(&mut store, 1, "a", swap(Some(b"1"), b"2")), swapped(true));
    assert_eq!(value(&store, "a"), Some(Bytes::from_static(b"2")));
}

#[test]
fn a_value_is_forgotten_after_its_life() {
    let mut store = Store::default();
    by_hand(&mut store, 1_000, "a", set(b"7", 50));
    assert_eq!(by_hand(&mut store, 1_049, "a", KeyOperation::Forget), done());
    assert_eq!(value(&store, "a"), Some(Bytes::from_static(b"7")));
    let grown = by_hand(&mut store, 1_049, "a", KeyOperation::Increment(1));
    assert_eq!(grown, Reply::Keys(vec![KeyOutcome::Sum(8)]));
    let grown = by_hand(&mut store, 1_050, "a", KeyOperation::Increment(1));
    assert_eq!(
        grown,
        Reply::Keys(vec![KeyOutcome::Sum(1)]),
        "it begins again, without a life time"
    );
    by_hand(&mut store, 2_000, "a", set(b"7", 50));
    by_hand(&mut store, 2_050, "a", KeyOperation::Forget);
    assert!(store.0.is_empty(), "its bytes are free");
}

#[test]
fn the_changes_of_a_message_are_made_once() {
    let mut store = Store::default();
    let (left, right) = neighbours();
    let add = |key: &str, seq, by| one(key, seq, KeyOperation::Increment(by));
    let make =
        |through, changes: &[KeyChange]| command::change_keys(5, PLUGIN, Some(&source(through)), changes);
    let first = make(3, &[add(&left, 1, 1), add(&left, 3, 1), add(&right, 2, 10)]);
    let sums = [1, 2, 10].map(KeyOutcome::Sum).to_vec();
    assert_eq!(store.apply(&first), Reply::Keys(sums));
    assert_eq!(store.apply(&first), Reply::Keys(vec![KeyOutcome::Repeated; 3]));
    // What reaches further is made from there on.
    let second = make(5, &[add(&left, 3, 1), add(&left, 5, 1)]);
    assert_eq!(
        store.apply(&second),
        Reply::Keys(vec![KeyOutcome::Repeated, KeyOutcome::Sum(3)])
    );
    // The mark stands at the end of what is done, also where the last message changes nothing.
    assert_eq!(
        store.apply(&make(8, &[add(&left, 6, 1)])),
        Reply::Keys(vec![KeyOutcome::Sum(4)])
    );
    assert_eq!(
        store.apply(&make(8, &[add(&left, 8, 1)])),
        Reply::Keys(vec![KeyOutcome::Repeated])
    );
    // Another channel, creation or binding has marks of its own.
    let others = [
        KeySource {
            incarnation: Incarnation(10),
            ..source(1)
        },
        KeySource {
            binding_incarnation: 5,
            ..source(1)
        },
        KeySource {
            binding: Arc::from("other"),
            ..source(1)
        },
    ];
    for (other, sum) in others.iter().zip(5..) {
        let command = command::change_keys(5, PLUGIN, Some(other), &[add(&left, 1, 1)]);
        assert_eq!(store.apply(&command), Reply::Keys(vec![KeyOutcome::Sum(sum)]));
    }
    assert_eq!(store.count(Table::PluginMark), 4);
}

/// A run that was handed out again may have become smaller: what is still on its way of the former one must not count.
#[test]
fn changes_of_an_older_run_are_refused_after_those_of_a_newer_one() {
    let mut store = Store::default();
    let changes = [one("n", 3, KeyOperation::Increment(3))];
    let make = |epoch, run, through| {
        let source = KeySource {
            leader_epoch: LeaderEpoch(epoch),
            run: Token(run),
            ..source(through)
        };
        command::change_keys(5, PLUGIN, Some(&source), &changes)
    };
    assert_eq!(store.apply(&make(2, 7, 3)), Reply::Keys(vec![KeyOutcome::Sum(3)]));
    assert_eq!(
        store.apply(&make(2, 7, 3)),
        Reply::Keys(vec![KeyOutcome::Repeated]),
        "the same run"
    );
    for (epoch, run) in [(2, 6), (1, 8)] {
        assert_eq!(
            store.apply(&make(epoch, run, 9)),
            Reply::Rejected(Rejection::Fenced)
        );
    }
    for (epoch, run) in [(2, 8), (3, 1)] {
        assert_eq!(
            store.apply(&make(epoch, run, 3)),
            Reply::Keys(vec![KeyOutcome::Repeated])
        );
    }
    assert_eq!(value(&store, "n"), Some(Bytes::from_static(b"3")));
}

#[test]
fn all_changes_are_made_or_none() {
    let mut store = Store::default();
    let (left, right) = neighbours();
    by_hand(&mut store, 1, &right, set(b"text", 0));
    let before = store.clone();
    let add = |key: &str| one(key, 1, KeyOperation::Increment(1));
    let command = command::change_keys(5, PLUGIN, Some(&source(1)), &[add(&left), add(&right)]);
    assert_eq!(store.apply(&command), refused(KeyRefused::NotANumber));
    assert_eq!(store, before, "no mark either");
    by_hand(&mut store, 1, &right, KeyOperation::Delete);
    assert_eq!(store.apply(&command), Reply::Keys(vec![KeyOutcome::Sum(1); 2]));
}

#[test]
fn a_slot_has_room_for_so_much_of_a_plugin() {
    let mut store = Store::default();
    let slot = key_slot(PLUGIN, "0");
    let mut names = (0..)
        .map(|number: u32| number.to_string())
        .filter(|key| key_slot(PLUGIN, key) == slot);
    let large = vec![b'x'; VALUE_BYTES_MAX];
    for name in names.by_ref().take(3) {
        assert_eq!(by_hand(&mut store, 1, &name, set(&large, 0)), done());
    }
    let (fourth, fifth) = (names.next().unwrap(), names.next().unwrap());
    assert_eq!(
        by_hand(&mut store, 1, &fourth, set(&large, 0)),
        refused(KeyRefused::Quota)
    );
    let room = usize::try_from(QUOTA_BYTES - charged(&store, "0").unwrap() - KEY_OVERHEAD_BYTES).unwrap();
    let rest = &large[..room - fourth.len()];
    assert_eq!(by_hand(&mut store, 1, &fourth, set(rest, 0)), done());
    assert_eq!(charged(&store, "0"), Some(QUOTA_BYTES));
    assert_eq!(
        by_hand(&mut store, 1, &fifth, set(b"", 0)),
        refused(KeyRefused::Quota)
    );
    let shrunk = by_hand(&mut store, 1, &fourth, set(b"", 0));
    assert_eq!(shrunk, done(), "what is there may shrink");
    // Another plugin has room of its own.
    let name = (0..)
        .map(|number: u32| number.to_string())
        .find(|key| key_slot("other", key) == slot)
        .unwrap();
    let command = command::change_keys(1, "other", None, &[one(&name, 0, set(&large, 0))]);
    assert_eq!(store.apply(&command), done());
}

#[test]
fn what_is_too_large_or_no_command_is_refused() {
    let mut store = Store::default();
    let large = vec![b'x'; VALUE_BYTES_MAX + 1];
    let too_large = refused(KeyRefused::TooLarge);
    assert_eq!(by_hand(&mut store, 1, "a", set(&large, 0)), too_large);
    for key in [String::new(), "k".repeat(KEY_BYTES_MAX + 1)] {
        assert_eq!(by_hand(&mut store, 1, &key, set(b"", 0)), too_large);
    }
    let many = vec![one("a", 0, KeyOperation::Delete); KEY_CHANGES_MAX + 1];
    let command = command::change_keys(1, PLUGIN, None, &many);
    assert_eq!(store.apply(&command), Reply::Rejected(Rejection::TooMany));
    let malformed = Reply::Rejected(Rejection::Malformed);
    assert_eq!(
        store.apply(&command::change_keys(1, PLUGIN, None, &[])),
        malformed
    );
    let (left, _) = neighbours();
    let far = (0..)
        .map(|number| format!("f{number}"))
        .find(|key| key_slot(PLUGIN, key) != key_slot(PLUGIN, &left))
        .unwrap();
    let two = [
        one(&left, 0, KeyOperation::Delete),
        one(&far, 0, KeyOperation::Delete),
    ];
    assert_eq!(
        store.apply(&command::change_keys(1, PLUGIN, None, &two)),
        malformed
    );
    for (source, seq) in [(None, 1), (Some(source(3)), 0), (Some(source(3)), 4)] {
        let change = one("a", seq, KeyOperation::Delete);
        let command = command::change_keys(1, PLUGIN, source.as_ref(), &[change]);
        assert_eq!(store.apply(&command), malformed);
    }
    let foreign = Machine::new([SlotId((key_slot(PLUGIN, "a").0 + 1) % 256)]);
    let command = command::change_keys(1, PLUGIN, None, &[one("a", 0, KeyOperation::Delete)]);
    let answer = store.try_apply(&foreign, &command).unwrap().reply;
    assert_eq!(answer, Reply::Rejected(Rejection::WrongSlot));
    assert!(store.0.is_empty());
    assert!(
        all().keys(&command).len() == 2,
        "the key and the bytes of its plugin"
    );
}

/// The planted fault makes changes again.
#[cfg(feature = "mutants")]
#[test]
fn marks_that_are_ignored() {
    let machine = all().with_faults(Faults {
        key_marks_ignored: true,
        ..Faults::default()
    });
    let mut store = Store::default();
    let command = command::change_keys(
        5,
        PLUGIN,
        Some(&source(1)),
        &[one("n", 1, KeyOperation::Increment(1))],
    );
    for sum in [1, 2] {
        let answer = store.try_apply(&machine, &command).unwrap().reply;
        assert_eq!(answer, Reply::Keys(vec![KeyOutcome::Sum(sum)]));
    }
}
