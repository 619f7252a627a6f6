use super::*;
use penstock_core::hooks::registry::Registry;
use penstock_core::message::{Draft, MessageFlags};
use penstock_core::types::{ChannelKind, Seq, Uid};

fn oracle() -> Oracle {
    let mut oracle = Oracle::default();
    oracle.users.push(Arc::from("alice"));
    oracle.add_channel(ChannelKey::new("g", ChannelKind::GROUP));
    // Nothing is bound, so every message passes.
    oracle.judged.learned(&Arc::new(Registry::default()));
    oracle
}

fn message(oracle: &Oracle, operation: usize, seq: u64, id: i64) -> Message {
    Message {
        id: MessageId(id),
        seq: Seq(seq),
        stamp_ms: 0,
        draft: Draft {
            from_uid: Uid::new("alice"),
            client_msg_no: Arc::from(number(operation).as_str()),
            flags: MessageFlags::default(),
            setting: 0,
            expire_s: 0,
            topic: Arc::from(""),
            payload: oracle.operations[operation].payload.clone(),
            origin: None,
            subscribers: Arc::from([]),
            attributes: None,
            hops: 0,
        },
    }
}

fn send(oracle: &mut Oracle) -> usize {
    let operation = oracle.invoke(Duration::ZERO, 0, 0, true, 3);
    oracle.attempt(operation);
    operation
}

fn rules(oracle: &Oracle) -> Vec<&'static str> {
    oracle.violations.iter().map(|violation| violation.rule).collect()
}

#[test]
fn a_truthful_history_passes() {
    let mut oracle = oracle();
    let key = oracle.channels[0].key.clone();
    let first = send(&mut oracle);
    oracle.acknowledge(first, MessageId(7), 1);
    oracle.acknowledge(first, MessageId(7), 1);
    let second = send(&mut oracle);
    oracle.refuse(second, Reason::NODE_NOT_MATCH);
    oracle.attempt(second);
    let shown = message(&oracle, second, 2, 8);
    oracle.saw(&key, &shown, "bob");
    oracle.acknowledge(second, MessageId(8), 2);
    assert_eq!(rules(&oracle), Vec::<&str>::new());
    assert_eq!((oracle.acknowledged, oracle.deduplicated), (2, 1));
}

#[test]
fn a_position_never_holds_two_messages() {
    let mut oracle = oracle();
    let key = oracle.channels[0].key.clone();
    let first = send(&mut oracle);
    let second = send(&mut oracle);
    oracle.acknowledge(first, MessageId(7), 1);
    let shown = message(&oracle, second, 1, 8);
    oracle.saw(&key, &shown, "bob");
    assert_eq!(rules(&oracle), ["check-1"]);
}

#[test]
fn a_message_never_holds_two_positions() {
    let mut oracle = oracle();
    let key = oracle.channels[0].key.clone();
    let first = send(&mut oracle);
    oracle.acknowledge(first, MessageId(7), 1);
    let shown = message(&oracle, first, 2, 7);
    oracle.saw(&key, &shown, "bob");
    assert_eq!(rules(&oracle), ["check-2"]);
}

#[test]
fn positions_follow_real_time() {
    let mut oracle = oracle();
    let early = send(&mut oracle);
    oracle.acknowledge(early, MessageId(9), 5);
    let late = send(&mut oracle);
    oracle.acknowledge(late, MessageId(10), 4);
    assert_eq!(rules(&oracle), ["check-3"]);
}

#[test]
fn what_was_refused_or_never_sent_is_not_seen() {
    let mut oracle = oracle();
    let key = oracle.channels[0].key.clone();
    let refused = send(&mut oracle);
    oracle.refuse(refused, Reason::NODE_NOT_MATCH);
    oracle.abandon(refused);
    let shown = message(&oracle, refused, 1, 7);
    oracle.saw(&key, &shown, "bob");
    let open = send(&mut oracle);
    oracle.abandon(open);
    let mut shown = message(&oracle, open, 2, 8);
    oracle.saw(&key, &shown, "bob");
    shown.draft.client_msg_no = Arc::from("op99");
    oracle.saw(&key, &shown, "bob");
    assert_eq!(rules(&oracle), ["check-4", "check-4"]);
}

#[test]
fn first_offers_increase() {
    let mut sessions = Sessions::default();
    assert!(sessions.offer(1, 0, 1, false).is_err());
    sessions.open(1, Duration::ZERO);
    assert_eq!(sessions.offer(1, 0, 2, false), Ok(()));
    assert_eq!(sessions.offer(1, 0, 2, true), Ok(()));
    assert!(sessions.offer(1, 0, 3, true).is_err());
    assert_eq!(sessions.offer(1, 0, 4, false), Ok(()));
    assert!(sessions.offer(1, 0, 3, false).is_err());
}
