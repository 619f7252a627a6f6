//! What becomes of sessions that began or ended.

use super::tests::Store;
use super::*;
use crate::rows::Table;
use crate::slot::command::{advance_online_reader, note_sessions};
use crate::slot::keys;
use crate::slot::online::{EVENTS_MAX, EVENTS_OF_BATCH, SessionChange, number_of};
use penstock_wire::storage::v1::{OnlineBatch, OnlineQueue, OnlineSession};
use std::sync::Arc;

fn amy() -> Uid {
    Uid::new("amy")
}

fn session(connection: u64, flag: u32) -> OnlineSession {
    OnlineSession {
        node: 1,
        process: 2,
        connection,
        owner_seq: connection,
        flag,
    }
}

fn change(connection: u64, flag: u32, online: bool) -> SessionChange {
    SessionChange {
        uid: amy(),
        session: session(connection, flag),
        online,
    }
}

fn note(store: &mut Store, readers: &[(&str, u64)], changes: &[SessionChange]) -> Reply {
    let readers: Vec<(Arc<str>, u64)> = readers
        .iter()
        .map(|(binding, incarnation)| (Arc::from(*binding), *incarnation))
        .collect();
    store.apply(&note_sessions(77, amy().slot(), (5, &readers), changes))
}

fn advance(store: &mut Store, binding: &str, done: u64, given_up: bool) -> Reply {
    store.apply(&advance_online_reader(
        78,
        amy().slot(),
        (binding, 3),
        (done, given_up),
    ))
}

fn queue(store: &Store) -> OnlineQueue {
    store.value(&keys::online_queue(amy().slot())).unwrap_or_default()
}

/// Flag, whether online, connection, counts.
type Event = (u32, bool, u64, u32, u32);

fn batch(store: &Store, number: u64) -> Option<Vec<Event>> {
    let batch: OnlineBatch = store.value(&keys::online_batch(amy().slot(), number))?;
    let connection =
        |number: u64| (1..2_000).find(|connection| number_of(&session(*connection, 0)) == number);
    let event = |event: &v1::OnlineEvent| {
        let connection = connection(event.session).expect("one of the test's");
        (event.flag, event.online, connection, event.of_flag, event.of_user)
    };
    Some(batch.events.iter().map(event).collect())
}

#[test]
fn events_count_the_sessions_of_the_flag_and_of_the_user_and_come_once() {
    let mut store = Store::default();
    let changes = [
        change(1, 0, true),
        change(2, 1, true),
        change(3, 1, true),
        change(2, 1, false),
    ];
    assert_eq!(note(&mut store, &[("crm", 3)], &changes), Reply::Done);
    let expected = vec![
        (0, true, 1, 1, 1),
        (1, true, 2, 1, 2),
        (1, true, 3, 2, 3),
        (1, false, 2, 1, 2),
    ];
    assert_eq!(batch(&store, 1), Some(expected));
    let before = store.clone();
    // The next leader may propose what was noted.
    assert_eq!(note(&mut store, &[("crm", 3)], &changes[2..]), Reply::Done);
    assert_eq!(store, before);
    note(
        &mut store,
        &[("crm", 3)],
        &[change(1, 0, false), change(3, 1, false)],
    );
    assert_eq!(
        store.count(Table::OnlineUser),
        0,
        "nothing is kept of who is gone"
    );
}

#[test]
fn a_batch_that_may_be_handed_out_takes_no_more_and_goes_when_all_have_done_it() {
    let mut store = Store::default();
    let readers = [("crm", 3), ("push", 3)];
    for connection in 1..=3 {
        note(&mut store, &readers, &[change(connection, 0, true)]);
    }
    // The first is under way, the second gathers.
    assert_eq!(batch(&store, 1).map(|batch| batch.len()), Some(1));
    assert_eq!(batch(&store, 2).map(|batch| batch.len()), Some(2));
    assert_eq!(advance(&mut store, "crm", 1, false), Reply::Done);
    note(&mut store, &readers, &[change(4, 0, true)]);
    assert_eq!(queue(&store).sizes, [1, 2, 1], "the other one has done nothing");
    advance(&mut store, "push", 2, false);
    assert_eq!((queue(&store).sizes, batch(&store, 1)), (vec![2, 1], None));
    // One that comes later begins behind what is there.
    note(
        &mut store,
        &[("crm", 3), ("push", 3), ("late", 9)],
        &[change(5, 0, true)],
    );
    let late = queue(&store).readers.pop();
    assert_eq!(
        late.map(|late| (late.binding, late.done)),
        Some(("late".to_owned(), 3))
    );
    assert_eq!(batch(&store, 4).map(|batch| batch.len()), Some(1));
    // With the last reader everything goes, and nothing more comes.
    note(&mut store, &[], &[change(5, 0, false), change(6, 0, true)]);
    assert_eq!((queue(&store).sizes, queue(&store).last), (vec![], 4));
    assert_eq!(store.count(Table::OnlineQueue), 1);
}

#[test]
fn beyond_the_bound_the_oldest_are_dropped_and_counted_and_so_is_what_is_given_up() {
    let mut store = Store::default();
    let readers = [("crm", 3)];
    let on: Vec<SessionChange> = (1..=256).map(|number| change(number, 0, true)).collect();
    let off: Vec<SessionChange> = (1..=256).map(|number| change(number, 0, false)).collect();
    let both = [on, off].concat();
    assert_eq!(both.len(), EVENTS_OF_BATCH);
    let rounds = EVENTS_MAX / EVENTS_OF_BATCH as u64 + 3;
    for _ in 0..rounds {
        note(&mut store, &readers, &both);
    }
    let kept = EVENTS_MAX / EVENTS_OF_BATCH as u64;
    let after = queue(&store);
    assert_eq!(after.sizes.len() as u64, kept);
    assert_eq!(after.dropped, 3 * EVENTS_OF_BATCH as u64);
    assert_eq!(after.readers[0].done, 3, "it goes on with what is kept");
    advance(&mut store, "crm", 4, true);
    assert_eq!(queue(&store).dropped, 4 * EVENTS_OF_BATCH as u64);
    let before = store.clone();
    advance(&mut store, "crm", 4, true);
    advance(&mut store, "nobody", 9, false);
    assert_eq!(store, before);
    let malformed = Reply::Rejected(Rejection::Malformed);
    assert_eq!(advance(&mut store, "crm", 99, false), malformed);
}

#[test]
fn users_of_other_slots_and_too_many_changes_are_refused() {
    let mut store = Store::default();
    let mut other = change(1, 0, true);
    other.uid = (0..)
        .map(|number| Uid::new(&format!("u{number}")))
        .find(|uid| uid.slot() != amy().slot())
        .expect("another slot");
    let readers = [("crm", 3)];
    assert_eq!(
        note(&mut store, &readers, &[other]),
        Reply::Rejected(Rejection::Malformed)
    );
    let many = vec![change(1, 0, true); EVENTS_OF_BATCH + 1];
    assert_eq!(
        note(&mut store, &readers, &many),
        Reply::Rejected(Rejection::TooMany)
    );
    assert!(store.0.is_empty());
    let far = Machine::new([SlotId((amy().slot().0 + 1) % 256)]);
    let command = note_sessions(77, amy().slot(), (5, &[]), &[]);
    let foreign = store.try_apply(&far, &command).unwrap().reply;
    assert_eq!(foreign, Reply::Rejected(Rejection::WrongSlot));
}

#[test]
fn another_audience_was_told_of_nothing() {
    let mut store = Store::default();
    let all = [change(1, 0, true), change(2, 0, true)];
    note(&mut store, &[("crm", 3), ("push", 3)], &all);
    // One of them stays: nobody is told of it again.
    note(&mut store, &[("crm", 3), ("late", 9)], &all);
    assert_eq!((queue(&store).audience, queue(&store).last), (1, 1));
    // None stays: what the others were told of is news.
    note(&mut store, &[("erp", 10)], &all[..1]);
    assert_eq!(queue(&store).audience, 2);
    assert_eq!(batch(&store, 2), Some(vec![(0, true, 1, 1, 1)]));
    note(&mut store, &[("erp", 10)], &all);
    assert_eq!(
        batch(&store, 2).map(|batch| batch.len()),
        Some(1),
        "the second gathers"
    );
    assert_eq!(batch(&store, 3), Some(vec![(0, true, 2, 2, 2)]));
    // Nor is anybody told of an end of what was not told; its row goes.
    note(&mut store, &[("crm", 11)], &[change(1, 0, false)]);
    assert_eq!((queue(&store).audience, store.count(Table::OnlineUser)), (3, 0));
    assert_eq!(queue(&store).last, 3);
    // Without anybody it is the same audience until somebody comes.
    note(&mut store, &[], &[]);
    assert_eq!(queue(&store).audience, 3);
    note(&mut store, &[("crm", 11)], &[]);
    assert_eq!(queue(&store).audience, 4);
}
