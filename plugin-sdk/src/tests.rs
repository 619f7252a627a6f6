use crate::frame::{self, Batch, FrameError};
use crate::verdict::{self, Rewrite, Verdict, Verdicts};

const PAGE: &str = include_str!("../../broker/docs/plugin-frame.md");

/// The word of the entry table below this heading whose description begins so.
fn documented(heading: &str, description: &str) -> usize {
    let part = PAGE.split("## ").find(|part| part.starts_with(heading)).unwrap();
    let table = part.split("| word of an entry |").nth(1).unwrap();
    let row = table
        .lines()
        .find(|line| {
            line.split('|')
                .nth(2)
                .is_some_and(|cell| cell.trim().starts_with(description))
        })
        .unwrap_or_else(|| panic!("{description}"));
    let first = row.split('|').nth(1).unwrap().split(',').next().unwrap();
    first.trim().parse().unwrap()
}

#[test]
fn words_of_messages_stand_where_the_page_says() {
    use frame::word;
    for (description, here) in [
        ("channel id", word::CHANNEL_ID),
        ("channel kind", word::CHANNEL_KIND),
        ("sender", word::SENDER),
        ("payload", word::PAYLOAD),
        ("client message number", word::CLIENT_MESSAGE_NUMBER),
        ("topic", word::TOPIC),
        ("expiry", word::EXPIRE_SECONDS),
        ("flags", word::FLAGS),
        ("setting", word::SETTING),
        ("message id", word::MESSAGE_ID),
        ("position", word::POSITION),
        ("server time", word::SERVER_TIME),
        ("event id", word::EVENT_ID),
        ("attributes", word::ATTRIBUTES),
        ("times", word::HOPS),
    ] {
        assert_eq!(
            documented("Layout 1: messages", description),
            here,
            "{description}"
        );
    }
    assert!(PAGE.contains(&format!("| 1 | words of the header, {} |", frame::HEADER_WORDS)));
    assert!(PAGE.contains(&format!("| 2 | words of an entry, {} |", frame::ENTRY_WORDS)));
}

#[test]
fn words_of_verdicts_stand_where_the_page_says() {
    use verdict::word;
    for (description, here) in [
        ("0 allow", word::KIND),
        ("reject: the code", word::CODE),
        ("reject: text", word::TEXT),
        ("rewrite: what is changed", word::CHANGED),
        ("rewrite: payload", word::PAYLOAD),
        ("rewrite: topic", word::TOPIC),
        ("rewrite: expiry", word::EXPIRE_SECONDS),
    ] {
        assert_eq!(
            documented("Layout 1: verdicts", description),
            here,
            "{description}"
        );
    }
    assert!(PAGE.contains(&format!("| 1 | words of the header, {} |", verdict::HEADER_WORDS)));
    assert!(PAGE.contains(&format!("| 2 | words of an entry, {} |", verdict::ENTRY_WORDS)));
}

const ARENA: &[u8] = b"roomamyhello\x01\x00k\x01\x00\x00\x00v";

/// A frame of one message whose header and entry are longer than this crate knows.
fn index() -> Vec<u32> {
    let mut index = vec![1, 6, 27, 1, 1, 99];
    index.extend([
        0, 4, 2, 4, 3, 7, 5, 0, 0, 0, 0, 60, 5, 1, 7, 1, 8, 2, 9, 3, 0, 0, 12, 8, 3, 0, 77,
    ]);
    index
}

#[test]
fn reads_a_message_and_skips_what_is_newer() {
    let index = index();
    let batch = Batch::parse(ARENA, &index).unwrap();
    assert!(batch.is_committed() && batch.len() == 1 && !batch.is_empty());
    let message = batch.messages().next().unwrap();
    assert_eq!(
        (message.channel_id(), message.channel_kind(), message.sender()),
        ("room", 2, "amy")
    );
    assert_eq!(
        (message.payload(), message.topic(), message.event_id()),
        (&b"hello"[..], "", "")
    );
    assert_eq!(
        (message.expire_seconds(), message.setting(), message.hops()),
        (60, 1, 3)
    );
    assert!(message.is_not_stored() && !message.counts_as_unread() && message.is_command());
    assert_eq!(message.message_id(), 1 << 32 | 7);
    assert_eq!(message.position(), 2 << 32 | 8);
    assert_eq!(message.server_time_ms(), 3 << 32 | 9);
    assert_eq!(message.attributes().collect::<Vec<_>>(), [("k", &b"v"[..])]);
}

#[test]
fn refuses_a_frame_that_is_not_whole() {
    let error = |arena, index: &[u32]| Batch::parse(arena, index).unwrap_err();
    let whole = index();
    assert_eq!(error(ARENA, &[]), FrameError::Short);
    assert_eq!(error(ARENA, &whole[..whole.len() - 1]), FrameError::Short);
    assert_eq!(error(&ARENA[..12], &whole), FrameError::Outside(0));
    let mut other = whole.clone();
    other[0] = 2;
    assert_eq!(error(ARENA, &other), FrameError::Layout(2));
    let mut many = whole;
    many[3] = u32::MAX;
    assert_eq!(error(ARENA, &many), FrameError::Short);
}

#[test]
fn verdicts_are_written_and_all_allowed_is_empty() {
    let mut verdicts = Verdicts::new();
    verdicts.push(&Verdict::Allow);
    assert_eq!(verdicts.clone().finish(), (vec![], vec![]));
    verdicts.push(&Verdict::Reject {
        code: 9,
        text: "no".to_owned(),
    });
    verdicts.push(&Verdict::Rewrite(Rewrite {
        payload: Some(b"abc".to_vec()),
        topic: Some("t".to_owned()),
        expire_seconds: Some(5),
    }));
    verdicts.push(&Verdict::Allow);
    let (arena, index) = verdicts.finish();
    assert_eq!(arena, b"noabct");
    assert_eq!(index[..4], [1, 4, 10, 4]);
    assert_eq!(index[4..14], [0; 10]);
    assert_eq!(index[14..24], [1, 9, 0, 2, 0, 0, 0, 0, 0, 0]);
    assert_eq!(index[24..34], [2, 0, 0, 0, 7, 2, 3, 5, 1, 5]);
    assert_eq!(index[34..], [0; 10]);
}
