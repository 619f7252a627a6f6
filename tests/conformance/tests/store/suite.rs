//! One suite over every implementation of a store.

use crate::make::*;
use crate::subject::Subject;
use penstock_core::rows::{Instance, Key, Page, ReadRequest, Table, Write};
use penstock_core::types::{GroupId, Incarnation, RaftIndex, Seq, SlotId};

/// The name of a case and what it does to a store.
type Case<S> = (&'static str, fn(&mut S));

/// Every case, by name.
pub(crate) fn suite<S: Subject>(make: impl Fn() -> S) {
    let cases: &[Case<S>] = &[
        ("rows_are_put_and_deleted", rows_are_put_and_deleted),
        ("a_batch_applies_in_order", a_batch_applies_in_order),
        ("raft_logs_are_cut_at_both_ends", raft_logs_are_cut_at_both_ends),
        ("a_flip_replaces_a_slot", a_flip_replaces_a_slot),
        ("staged_rows_survive_a_restart", staged_rows_survive_a_restart),
        ("slot_rows_are_paged", slot_rows_are_paged),
        ("snapshots_are_paged", snapshots_are_paged),
        ("records_are_paged", records_are_paged),
        ("truncation_cuts_inside_a_value", truncation_cuts_inside_a_value),
        ("trimming_removes_whole_values", trimming_removes_whole_values),
        (
            "one_batch_may_append_cut_and_append",
            one_batch_may_append_cut_and_append,
        ),
        (
            "a_dropped_incarnation_leaves_nothing",
            a_dropped_incarnation_leaves_nothing,
        ),
        ("dedupe_rows_are_paged_by_day", dedupe_rows_are_paged_by_day),
        ("a_hole_in_a_log_is_corrupt", a_hole_in_a_log_is_corrupt),
    ];
    for (name, case) in cases {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut subject = make();
            case(&mut subject);
        }));
        assert!(outcome.is_ok(), "the case {name} failed, see above");
    }
}

fn write(subject: &mut impl Subject, writes: &[Write]) {
    let instance = writes[0].instance();
    subject.write(instance, writes).expect("written");
}

fn rows_are_put_and_deleted(subject: &mut impl Subject) {
    let keys = [
        slot(7, Table::User, "u"),
        slot(256, Table::Controller, ""),
        entry(0, 1),
        Key::RaftState { group: GroupId(3) },
        Key::Applied { group: GroupId(3) },
        Key::Install { group: GroupId(4) },
        node("floor"),
        Key::ChannelState {
            incarnation: Incarnation(9),
        },
        Key::Dedupe {
            day: 20_000,
            incarnation: Incarnation(9),
            hash: 3,
        },
        Key::Cursor {
            incarnation: Incarnation(9),
            consumer: bytes("delivery"),
        },
    ];
    for key in &keys {
        assert_eq!(subject.row(key), None, "{key:?}");
        write(subject, &[put(key.clone(), "1"), put(key.clone(), "2")]);
        assert_eq!(
            subject.row(key),
            Some(bytes("2")),
            "visible before any sync: {key:?}"
        );
    }
    subject.restart();
    for key in &keys {
        assert_eq!(subject.row(key), Some(bytes("2")), "after a restart: {key:?}");
        write(subject, &[Write::Delete { key: key.clone() }]);
        assert_eq!(subject.row(key), None, "{key:?}");
    }
    subject.restart();
    assert!(keys.iter().all(|key| subject.row(key).is_none()));
    assert_eq!(subject.groups(), []);
}

fn a_batch_applies_in_order(subject: &mut impl Subject) {
    let key = node("a");
    let delete = Write::Delete { key: key.clone() };
    write(
        subject,
        &[put(key.clone(), "1"), delete.clone(), put(key.clone(), "2")],
    );
    assert_eq!(subject.row(&key), Some(bytes("2")));
    write(subject, &[put(key.clone(), "3"), delete]);
    assert_eq!(subject.row(&key), None);
}

fn indexes(subject: &impl Subject, group: u32) -> Vec<u64> {
    let image = subject.group_image(GroupId(group));
    image.entries.iter().map(|(index, _)| index.0).collect()
}

fn raft_logs_are_cut_at_both_ends(subject: &mut impl Subject) {
    let group = GroupId(2);
    let neighbour = put(entry(3, 1), "other");
    let mut batch: Vec<Write> = (1..=200).map(|index| put(entry(2, index), "old")).collect();
    batch.push(neighbour);
    write(subject, &batch);
    let truncate = |from| Write::TruncateRaft {
        group,
        from: RaftIndex(from),
    };
    write(subject, &[truncate(198), put(entry(2, 198), "new")]);
    assert_eq!(indexes(subject, 2), (1..=198).collect::<Vec<_>>());
    assert_eq!(subject.row(&entry(2, 198)), Some(bytes("new")));
    let compact = |through| Write::CompactRaft {
        group,
        through: RaftIndex(through),
    };
    write(subject, &[compact(150)]);
    assert_eq!(indexes(subject, 2), (151..=198).collect::<Vec<_>>());
    subject.restart();
    write(
        subject,
        &[
            compact(160),
            truncate(170),
            put(entry(2, 170), "x"),
            put(entry(2, 171), "y"),
        ],
    );
    assert_eq!(indexes(subject, 2), (161..=171).collect::<Vec<_>>());
    write(subject, &[put(Key::Applied { group }, "171"), truncate(1)]);
    assert!(indexes(subject, 2).is_empty());
    assert_eq!(subject.group_image(group).applied, Some(bytes("171")));
    write(
        subject,
        &[put(entry(2, 500), "after a snapshot"), put(entry(2, 501), "z")],
    );
    assert_eq!(indexes(subject, 2), [500, 501]);
    assert_eq!(indexes(subject, 3), [1], "the neighbour keeps its log");
    assert_eq!(subject.groups(), [GroupId(2), GroupId(3)]);
}

fn names(subject: &impl Subject, number: u16) -> Vec<(Table, String)> {
    let (rows, more) = rows(subject.read(&ReadRequest::SnapshotRows {
        slot: SlotId(number),
        after: None,
        bytes_max: u32::MAX,
    }));
    assert!(!more);
    rows.into_iter()
        .map(|(table, key, _)| (table, String::from_utf8_lossy(&key).into_owned()))
        .collect()
}

fn a_flip_replaces_a_slot(subject: &mut impl Subject) {
    write(
        subject,
        &[
            put(slot(7, Table::User, "old"), "1"),
            put(slot(8, Table::User, "kept"), "1"),
        ],
    );
    let slots = || vec![SlotId(7)];
    write(subject, &[put(staged(7, Table::User, "half"), "1")]);
    write(
        subject,
        &[
            Write::ClearStaged { slots: slots() },
            put(staged(7, Table::Device, "new"), "2"),
        ],
    );
    assert_eq!(
        names(subject, 7),
        [(Table::User, "old".to_owned())],
        "staged rows are not shown"
    );
    write(
        subject,
        &[
            put(staged(7, Table::User, "new too"), "2"),
            Write::FlipGeneration { slots: slots() },
            put(slot(7, Table::Channel, "after"), "3"),
            put(Key::Applied { group: GroupId(1) }, "9"),
        ],
    );
    let expected = [
        (Table::User, "new too".to_owned()),
        (Table::Device, "new".to_owned()),
        (Table::Channel, "after".to_owned()),
    ];
    assert_eq!(names(subject, 7), expected);
    assert_eq!(subject.row(&slot(7, Table::User, "old")), None);
    assert_eq!(names(subject, 8), [(Table::User, "kept".to_owned())]);
    subject.restart();
    assert_eq!(names(subject, 7), expected, "the flip survives a restart");
    write(subject, &[Write::FlipGeneration { slots: slots() }]);
    assert_eq!(names(subject, 7), [], "nothing was staged since");
}

fn staged_rows_survive_a_restart(subject: &mut impl Subject) {
    write(subject, &[put(staged(7, Table::User, "a"), "1")]);
    subject.restart();
    write(subject, &[put(staged(7, Table::User, "b"), "1")]);
    write(
        subject,
        &[Write::FlipGeneration {
            slots: vec![SlotId(7)],
        }],
    );
    let expected = [(Table::User, "a".to_owned()), (Table::User, "b".to_owned())];
    assert_eq!(
        names(subject, 7),
        expected,
        "an install goes on after a restart (M-10)"
    );
}

fn slot_rows_are_paged(subject: &mut impl Subject) {
    let all = ["a", "b1", "b2", "b3", "b4", "c"];
    let batch: Vec<Write> = all
        .iter()
        .map(|key| put(slot(7, Table::User, key), key))
        .collect();
    write(subject, &batch);
    write(
        subject,
        &[
            put(slot(7, Table::Device, "b9"), "x"),
            put(slot(8, Table::User, "b0"), "x"),
        ],
    );
    let page = |subject: &_, prefix: &str, after: Option<&str>, rows_max| {
        let (rows, more) = rows(Subject::read(
            subject,
            &ReadRequest::SlotRows {
                slot: SlotId(7),
                table: Table::User,
                prefix: bytes(prefix),
                after: after.map(bytes),
                rows_max,
            },
        ));
        let keys: Vec<String> = rows
            .into_iter()
            .map(|(table, key, value)| {
                assert_eq!((table, &key), (Table::User, &value));
                String::from_utf8_lossy(&key).into_owned()
            })
            .collect();
        (keys.join(" "), more)
    };
    assert_eq!(page(subject, "", None, 100), (all.join(" "), false));
    assert_eq!(page(subject, "b", None, 2), ("b1 b2".to_owned(), true));
    assert_eq!(page(subject, "b", Some("b2"), 2), ("b3 b4".to_owned(), false));
    assert_eq!(page(subject, "b", Some("b4"), 2), (String::new(), false));
    assert_eq!(
        page(subject, "b", Some("a"), 1),
        ("b1".to_owned(), true),
        "resumed before the prefix"
    );
    assert_eq!(
        page(subject, "", Some("b11"), 1),
        ("b2".to_owned(), true),
        "resumed between rows"
    );
    assert_eq!(
        page(subject, "b", Some("d"), 9),
        (String::new(), false),
        "resumed behind the prefix"
    );
}

fn snapshots_are_paged(subject: &mut impl Subject) {
    let tables = [Table::User, Table::Device, Table::ChannelMeta];
    let mut batch = Vec::new();
    for table in tables {
        batch.extend((0..5).map(|number| put(slot(7, table, &format!("key{number}")), "value!")));
    }
    write(subject, &batch);
    write(subject, &[put(slot(8, Table::User, "next slot"), "x")]);
    let mut after = None;
    let mut found = Vec::new();
    loop {
        let (page, more) = rows(subject.read(&ReadRequest::SnapshotRows {
            slot: SlotId(7),
            after: after.clone(),
            bytes_max: 25,
        }));
        assert!(page.len() <= 2, "ten bytes a row");
        found.extend(page.iter().map(|(table, key, _)| (*table, key.clone())));
        after = found.last().cloned();
        if !more {
            break;
        }
    }
    let expected: Vec<_> = tables
        .iter()
        .flat_map(|table| (0..5).map(|number| (*table, bytes(&format!("key{number}")))))
        .collect();
    assert_eq!(found, expected);
}

fn records_are_paged(subject: &mut impl Subject) {
    write(subject, &[append(4, 1..=3, 1), append(5, 1..=9, 1)]);
    write(subject, &[append(4, 4..=4, 1)]);
    write(subject, &[append(4, 5..=9, 2)]);
    let page = |subject: &_, from, through, records_max, bytes_max| {
        let page = Subject::read(
            subject,
            &ReadRequest::Records {
                incarnation: Incarnation(4),
                from: Seq(from),
                through: Seq(through),
                records_max,
                bytes_max,
            },
        );
        positions(&page).iter().map(|(seq, _)| *seq).collect::<Vec<_>>()
    };
    assert_eq!(page(subject, 1, 9, 100, 10_000), (1..=9).collect::<Vec<_>>());
    assert_eq!(page(subject, 2, 6, 100, 10_000), (2..=6).collect::<Vec<_>>());
    assert_eq!(page(subject, 2, 6, 3, 10_000), [2, 3, 4]);
    assert_eq!(page(subject, 6, 9, 100, 1), [6], "at least one record");
    assert!(page(subject, 10, 20, 100, 100).is_empty());
    let wanted = record(7, 2);
    assert_eq!(
        subject.read(&ReadRequest::Records {
            incarnation: Incarnation(4),
            from: Seq(7),
            through: Seq(7),
            records_max: 1,
            bytes_max: 1,
        }),
        Page::Records(vec![wanted]),
        "verbatim"
    );
    let tail = |incarnation| ReadRequest::LogTail {
        incarnation: Incarnation(incarnation),
    };
    assert_eq!(positions(&subject.read(&tail(4))), [(9, 2)]);
    assert_eq!(positions(&subject.read(&tail(3))), []);
    assert_eq!(positions(&subject.read(&tail(6))), []);
}

fn truncation_cuts_inside_a_value(subject: &mut impl Subject) {
    write(subject, &[append(4, 1..=4, 1)]);
    write(subject, &[append(4, 5..=8, 1), append(5, 1..=2, 1)]);
    write(subject, &[append(4, 9..=9, 1)]);
    write(subject, &[truncate(4, 7)]);
    assert_eq!(positions(&subject.read(&all_records(4))).last(), Some(&(6, 1)));
    write(subject, &[truncate(4, 3), append(4, 3..=5, 2)]);
    let expected = [(1, 1), (2, 1), (3, 2), (4, 2), (5, 2)];
    assert_eq!(positions(&subject.read(&all_records(4))), expected);
    subject.restart();
    assert_eq!(positions(&subject.read(&all_records(4))), expected);
    write(subject, &[truncate(4, 9)]);
    assert_eq!(
        positions(&subject.read(&all_records(4))),
        expected,
        "nothing to cut"
    );
    write(subject, &[truncate(4, 0)]);
    assert_eq!(positions(&subject.read(&all_records(4))), []);
    assert_eq!(
        positions(&subject.read(&all_records(5))),
        [(1, 1), (2, 1)],
        "another channel"
    );
}

fn trimming_removes_whole_values(subject: &mut impl Subject) {
    write(
        subject,
        &[append(4, 1..=4, 1), append(4, 5..=8, 1), append(3, 1..=1, 1)],
    );
    write(subject, &[trim(4, 3)]);
    assert_eq!(
        positions(&subject.read(&all_records(4))).first(),
        Some(&(1, 1)),
        "part of a value stays"
    );
    write(subject, &[trim(4, 6)]);
    assert_eq!(positions(&subject.read(&all_records(4))).first(), Some(&(5, 1)));
    write(subject, &[trim(4, 8), append(4, 9..=9, 1)]);
    assert_eq!(positions(&subject.read(&all_records(4))), [(9, 1)]);
    write(subject, &[trim(4, 100)]);
    assert_eq!(positions(&subject.read(&all_records(4))), []);
    assert_eq!(
        positions(&subject.read(&all_records(3))),
        [(1, 1)],
        "another channel"
    );
}

fn one_batch_may_append_cut_and_append(subject: &mut impl Subject) {
    write(subject, &[append(4, 1..=3, 1)]);
    write(
        subject,
        &[
            append(4, 4..=6, 1),
            truncate(4, 5),
            append(4, 5..=6, 2),
            truncate(4, 3),
            append(4, 3..=4, 3),
        ],
    );
    assert_eq!(
        positions(&subject.read(&all_records(4))),
        [(1, 1), (2, 1), (3, 3), (4, 3)]
    );
    write(
        subject,
        &[
            append(4, 5..=6, 3),
            trim(4, 4),
            truncate(4, 6),
            append(4, 6..=6, 4),
        ],
    );
    let left = positions(&subject.read(&all_records(4)));
    assert_eq!(left, [(5, 3), (6, 4)]);
    subject.restart();
    assert_eq!(positions(&subject.read(&all_records(4))), left);
}

fn a_dropped_incarnation_leaves_nothing(subject: &mut impl Subject) {
    let state = |incarnation| Key::ChannelState {
        incarnation: Incarnation(incarnation),
    };
    let cursor = |incarnation| Key::Cursor {
        incarnation: Incarnation(incarnation),
        consumer: bytes("delivery"),
    };
    for incarnation in [4, 5] {
        let rows = [put(state(incarnation), "s"), put(cursor(incarnation), "c")];
        write(
            subject,
            &[append(incarnation, 1..=2, 1), rows[0].clone(), rows[1].clone()],
        );
    }
    let dropped = Write::DropIncarnation {
        incarnation: Incarnation(4),
    };
    write(subject, &[append(4, 3..=3, 1), dropped]);
    let cursors = |incarnation| ReadRequest::Cursors {
        incarnation: Incarnation(incarnation),
    };
    assert_eq!(positions(&subject.read(&all_records(4))), []);
    assert_eq!((subject.row(&state(4)), subject.row(&cursor(4))), (None, None));
    assert_eq!(subject.read(&cursors(4)), Page::Cursors(vec![]));
    let kept = Page::Cursors(vec![(bytes("delivery"), bytes("c"))]);
    assert_eq!(subject.read(&cursors(5)), kept);
    assert_eq!(positions(&subject.read(&all_records(5))), [(1, 1), (2, 1)]);
}

fn dedupe_rows_are_paged_by_day(subject: &mut impl Subject) {
    let key = |day, incarnation, hash| Key::Dedupe {
        day,
        incarnation: Incarnation(incarnation),
        hash,
    };
    let batch: Vec<Write> = [1, 5, u64::MAX]
        .iter()
        .flat_map(|hash| {
            [
                put(key(9, 4, *hash), "x"),
                put(key(10, 4, *hash), "y"),
                put(key(9, 5, *hash), "z"),
            ]
        })
        .collect();
    write(subject, &batch);
    let page = |subject: &_, after| match Subject::read(
        subject,
        &ReadRequest::Dedupe {
            incarnation: Incarnation(4),
            day: 9,
            after,
            rows_max: 2,
        },
    ) {
        Page::Dedupe { rows, more } => {
            assert!(rows.iter().all(|(_, value)| *value == bytes("x")));
            (rows.into_iter().map(|(hash, _)| hash).collect::<Vec<_>>(), more)
        }
        other => panic!("not a page of idempotency rows: {other:?}"),
    };
    assert_eq!(page(subject, None), (vec![1, 5], true));
    assert_eq!(page(subject, Some(5)), (vec![u64::MAX], false));
    assert_eq!(page(subject, Some(u64::MAX)), (vec![], false));
}

fn a_hole_in_a_log_is_corrupt(subject: &mut impl Subject) {
    write(subject, &[append(4, 1..=2, 1), append(4, 4..=5, 1)]);
    assert!(
        matches!(subject.read(&all_records(4)), Page::Corrupt { .. }),
        "record 3 is missing (R30)"
    );
    subject
        .sync(Instance::Data)
        .expect("a page that cannot be read stops nothing else");
}
