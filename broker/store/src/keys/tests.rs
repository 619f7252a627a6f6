use super::*;

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn keys() -> Vec<(Key, u32, Family, &'static str)> {
    let group = GroupId(0x0102_0304);
    let incarnation = Incarnation(0x1112_1314_1516_1718);
    let text = Bytes::from_static(b"ab");
    vec![
        (
            Key::Slot {
                slot: SlotId(0x0102),
                table: Table::Channel,
                key: text.clone(),
            },
            9,
            Family::Slot,
            "010200000009046162",
        ),
        (
            Key::Staged {
                slot: SlotId(0x0102),
                table: Table::ChannelStats,
                key: text.clone(),
            },
            9,
            Family::Slot,
            "01020000000a0f6162",
        ),
        (
            Key::RaftEntry {
                group,
                index: RaftIndex(5),
            },
            0,
            Family::Raft,
            "010203040000000000000005",
        ),
        (Key::RaftState { group }, 0, Family::Group, "0102030401"),
        (Key::Applied { group }, 0, Family::Group, "0102030402"),
        (Key::Install { group }, 0, Family::Group, "0102030403"),
        (
            Key::ChannelState { incarnation },
            0,
            Family::State,
            "1112131415161718",
        ),
        (
            Key::Dedupe {
                day: 0x4e20,
                incarnation,
                hash: 7,
            },
            0,
            Family::Dedupe,
            "4e2011121314151617180000000000000007",
        ),
        (
            Key::Cursor {
                incarnation,
                consumer: text.clone(),
            },
            0,
            Family::Cursor,
            "11121314151617186162",
        ),
        (Key::Node { name: text }, 0, Family::Node, "6162"),
    ]
}

#[test]
fn the_bytes_are_the_documented_ones() {
    for (key, generation, family, expected) in keys() {
        let (found_family, bytes) = point(&key, generation);
        assert_eq!(
            (found_family, hexadecimal(&bytes).as_str()),
            (family, expected),
            "{key:?}"
        );
        assert!(Family::of(key.instance()).contains(&family));
    }
    let value = records(Incarnation(1), Seq(0x0203));
    assert_eq!(hexadecimal(&value), "00000000000000010000000000000203");
    assert_eq!(parse_records(&value), Some((Incarnation(1), Seq(0x0203))));
}

#[test]
fn the_order_of_bytes_is_the_order_of_keys() {
    let numbers = [0_u64, 1, 255, 256, u64::from(u32::MAX), u64::MAX];
    for (left, right) in numbers.iter().zip(&numbers[1..]) {
        assert!(records(Incarnation(3), Seq(*left)) < records(Incarnation(3), Seq(*right)));
        assert!(records(Incarnation(*left), Seq(9)) < records(Incarnation(*right), Seq(0)));
        assert!(raft_entry(GroupId(1), RaftIndex(*left)) < raft_entry(GroupId(1), RaftIndex(*right)));
        assert!(dedupe(1, Incarnation(*left), 9) < dedupe(1, Incarnation(*right), 0));
        assert!(dedupe(1, Incarnation(1), *left) < dedupe(1, Incarnation(1), *right));
    }
    assert!(slot_row(SlotId(1), 2, Table::ChannelStats, b"z") < slot_row(SlotId(1), 3, Table::User, b"a"));
    assert!(slot_row(SlotId(1), 2, Table::User, b"z") < slot_row(SlotId(1), 2, Table::Device, b"a"));
}

#[test]
fn every_table_is_found_again() {
    for number in 1..=20_u8 {
        let table = table_of(number).expect("a known table");
        let bytes = slot_row(SlotId(300), 4, table, b"key");
        let parsed = parse_slot_row(&bytes);
        assert_eq!(parsed, Some((SlotId(300), 4, table, Bytes::from_static(b"key"))));
    }
    assert_eq!(table_of(0), None);
    assert_eq!(table_of(21), None);
}

#[test]
fn a_prefix_ends_before_the_next_one() {
    assert_eq!(after_prefix(&[1, 2]), [1, 3]);
    assert_eq!(after_prefix(&[1, 255]), [2]);
    assert!(after_prefix(&[255, 255]).as_slice() > [255, 255, 255].as_slice());
}

#[test]
fn bytes_that_nobody_wrote_are_refused() {
    assert_eq!(parse_slot_row(&[0, 1, 0, 0]), None);
    assert_eq!(parse_slot_row(&[0, 1, 0, 0, 0, 1, 99]), None);
    assert_eq!(parse_records(&[0; 15]), None);
    assert_eq!(parse_raft_entry(&[0; 13]), None);
    assert_eq!(parse_dedupe_hash(&[0; 9]), None);
    assert_eq!(parse_cursor(&[0; 7]), None);
}
