//! What an authority does, step by step.

use super::ids::Generator;
use super::{Authority, Checked, Entry, Input, Leadership, Output, Role, ids, key_of};
use crate::limits::Limits;
use crate::message::{DedupeRow, Draft, Message, MessageFlags, Outcome, Record};
use crate::rows::{Key, Miss, Row, Rows};
use crate::types::{Incarnation, LeaderEpoch, MessageId, NodeId, Now, Reason, Seq, Token, Uid};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Rows in memory; those in `cold` must be loaded first.
#[derive(Debug, Default)]
pub(super) struct MemoryRows {
    pub(super) rows: BTreeMap<Key, Row>,
    pub(super) cold: BTreeSet<Key>,
    pub(super) all_cold: bool,
}

impl Rows for MemoryRows {
    fn row(&self, key: &Key) -> Result<Option<Row>, Miss> {
        if self.all_cold || self.cold.contains(key) {
            return Err(Miss(vec![key.clone()]));
        }
        Ok(self.rows.get(key).cloned())
    }
}

pub(super) const WALL_MS: u64 = 1_700_000_000_000;

pub(super) fn now(millis: u64) -> Now {
    Now {
        monotonic: Duration::from_millis(millis),
        wall_ms: WALL_MS + millis,
    }
}

pub(super) fn draft(number: &str, payload: &str) -> Draft {
    Draft {
        from_uid: Uid::new("u1"),
        client_msg_no: Arc::from(number),
        flags: MessageFlags::default(),
        setting: 0,
        expire_s: 0,
        topic: Arc::from(""),
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        origin: None,
        subscribers: Arc::from([]),
        attributes: None,
        hops: 0,
    }
}

pub(super) fn ready_ids() -> Generator {
    let mut ids = Generator::new(NodeId(1), 0);
    let mut out = Vec::new();
    ids.handle(now(0), ids::Input::Start, &MemoryRows::default(), &mut out)
        .expect("rows are in memory");
    for ids::Output::Store { token, .. } in out {
        ids.handle(
            now(0),
            ids::Input::Stored { token },
            &MemoryRows::default(),
            &mut Vec::new(),
        )
        .expect("rows are in memory");
    }
    ids
}

pub(super) fn leadership(epoch: u64, committed: u64) -> Leadership {
    Leadership {
        incarnation: Incarnation(1),
        leader_epoch: LeaderEpoch(epoch),
        meta_version: epoch,
        log_start: Seq(1),
        committed: Seq(committed),
        last_stamp_ms: 0,
    }
}

struct World {
    authority: Authority,
    ids: Generator,
    rows: MemoryRows,
}

impl World {
    fn new() -> World {
        World::bounded(|_| {})
    }

    fn bounded(change: impl Fn(&mut Limits)) -> World {
        let mut limits = Limits::default();
        change(&mut limits);
        let mut world = World {
            authority: Authority::new(&limits, crate::append::faults::Faults::default(), Token(1)),
            ids: ready_ids(),
            rows: MemoryRows::default(),
        };
        let role = Input::Role(Role::Leading(leadership(1, 0)));
        assert_eq!(world.input(0, role), vec![]);
        world
    }

    fn input(&mut self, millis: u64, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        self.authority
            .handle(now(millis), input, &self.rows, &mut self.ids, &mut out)
            .expect("rows are in memory");
        out
    }

    fn expire(&mut self, millis: u64) -> Vec<Output> {
        let mut out = Vec::new();
        self.authority.expire(now(millis), &mut self.ids, &mut out);
        out
    }

    fn submit(&mut self, token: u64, drafts: Vec<Draft>) -> Vec<Output> {
        let token = Token(token);
        self.input(0, Input::Submit { token, drafts })
    }

    /// Submits, lets the hooks allow everything, and gives the append.
    fn submit_to_append(&mut self, token: u64, drafts: Vec<Draft>) -> (Token, Vec<Entry>) {
        let (token, drafts) = hooks(&self.submit(token, drafts));
        let verdicts = drafts.into_iter().map(Ok).collect();
        appends(&self.input(0, Input::HooksDone { token, verdicts }))
    }

    fn commit(&mut self, through: u64) -> Vec<Output> {
        self.input(
            0,
            Input::Committed {
                leader_epoch: LeaderEpoch(1),
                through: Seq(through),
            },
        )
    }

    /// A stored row for a draft as if it were at this position.
    fn store_row(&mut self, draft: &Draft, seq: u64, stamp_ms: u64) -> Record {
        let record = record(draft, seq, stamp_ms);
        let key = Key::Dedupe {
            day: DedupeRow::day(stamp_ms),
            incarnation: Incarnation(1),
            hash: record.key.expect("a number").hash,
        };
        let row = DedupeRow::of(&record).expect("a number");
        self.rows.rows.insert(key, row.encode());
        record
    }
}

pub(super) fn record(draft: &Draft, seq: u64, stamp_ms: u64) -> Record {
    Record {
        seq: Seq(seq),
        leader_epoch: LeaderEpoch(1),
        stamp_ms,
        id: MessageId(1_000 + i64::try_from(seq).expect("small")),
        key: key_of(draft),
        body: Bytes::new(),
        crc: 0,
    }
}

fn hooks(out: &[Output]) -> (Token, Vec<Draft>) {
    match out {
        [Output::BeforeSend { token, drafts }] => (*token, drafts.clone()),
        other => panic!("not a question to the hooks: {other:?}"),
    }
}

fn appends(out: &[Output]) -> (Token, Vec<Entry>) {
    match out {
        [Output::Append(append)] => (append.token, append.entries.clone()),
        other => panic!("not an append: {other:?}"),
    }
}

fn check(out: &[Output], seq: u64) -> Token {
    match out {
        [Output::CheckRecord { token, seq: asked }] if *asked == Seq(seq) => *token,
        other => panic!("not a look at {seq}: {other:?}"),
    }
}

fn reply(token: u64, outcomes: &[Outcome]) -> Output {
    Output::Reply {
        token: Token(token),
        outcomes: outcomes.to_vec(),
    }
}

fn success(message: &Message, seq: u64) -> Outcome {
    Outcome::Committed {
        id: message.id,
        seq: Seq(seq),
        stamp_ms: message.stamp_ms,
    }
}

fn of_record(record: &Record) -> Outcome {
    Outcome::Committed {
        id: record.id,
        seq: record.seq,
        stamp_ms: record.stamp_ms,
    }
}

const RETRY: Outcome = Outcome::Refused(Reason::NODE_NOT_MATCH);
const BUSY: Outcome = Outcome::Refused(Reason::RATE_LIMITED);
const CONFLICT: Outcome = Outcome::Refused(Reason::IDEMPOTENCY_CONFLICT);

/// R25: the leader's own log is no acknowledgement.
#[test]
fn a_send_is_answered_by_its_commit_and_by_nothing_else() {
    let mut world = World::new();
    let (token, entries) = world.submit_to_append(7, vec![draft("a", "x"), draft("", "y")]);
    assert_eq!(entries.len(), 2);
    assert!(entries[0].key.is_some() && entries[1].key.is_none());
    assert!(entries[0].message.id < entries[1].message.id);
    assert_eq!(world.input(0, Input::Appended { token, first: Seq(1) }), vec![]);
    assert_eq!(world.commit(1), vec![], "the batch is answered as a whole");
    let outcomes = [success(&entries[0].message, 1), success(&entries[1].message, 2)];
    assert_eq!(world.commit(2), vec![reply(7, &outcomes)]);
    assert!(world.authority.is_idle());
    assert_eq!(
        world.authority.claimed(),
        0,
        "the stored row stands for the claim"
    );
    // Successes are built in one file only.
    for source in [
        include_str!("authority.rs"),
        include_str!("placing.rs"),
        include_str!("identity.rs"),
    ] {
        assert!(!source.contains("Outcome::Committed"));
    }
    assert_eq!(include_str!("placing.rs").matches("Output::Append(").count(), 1);
    assert!(!include_str!("authority.rs").contains("Output::Append("));
}

#[test]
fn repeats_in_one_batch_and_in_flight_share_one_record() {
    let mut world = World::new();
    let batch = vec![
        draft("a", "x"),
        draft("a", "x"),
        draft("a", "other"),
        draft("b", "x"),
    ];
    let (token, entries) = world.submit_to_append(1, batch);
    assert_eq!(entries.len(), 2);
    assert_eq!(
        world.submit(2, vec![draft("a", "x"), draft("a", "other")]),
        vec![]
    );
    assert_eq!(world.input(0, Input::Appended { token, first: Seq(1) }), vec![]);
    assert_eq!(world.submit(3, vec![draft("a", "x")]), vec![]);
    let (a, b) = (success(&entries[0].message, 1), success(&entries[1].message, 2));
    assert_eq!(
        world.commit(2),
        vec![
            reply(1, &[a.clone(), a.clone(), CONFLICT, b]),
            reply(2, &[a.clone(), CONFLICT]),
            reply(3, &[a])
        ]
    );
}

#[test]
fn a_known_key_gives_the_first_answer_again() {
    let mut world = World::new();
    world.commit(5);
    let known = draft("a", "x");
    let record = world.store_row(&known, 5, WALL_MS);
    let token = check(&world.submit(1, vec![known.clone()]), 5);
    let checked = Checked::Record(record.clone());
    let out = world.input(
        0,
        Input::RecordChecked {
            token,
            checked: checked.clone(),
        },
    );
    assert_eq!(out, vec![reply(1, &[of_record(&record)])], "no hook, no append");
    let token = check(&world.submit(2, vec![draft("a", "other")]), 5);
    let out = world.input(0, Input::RecordChecked { token, checked });
    assert_eq!(out, vec![reply(2, &[CONFLICT])]);
}

/// A message with other bytes comes while the true repeat of a stored record is still being looked up, and first.
#[test]
fn a_repeat_is_compared_with_the_record_and_not_with_its_neighbour() {
    let mut world = World::new();
    world.commit(5);
    let known = draft("a", "x");
    let record = world.store_row(&known, 5, WALL_MS);
    let token = check(&world.submit(1, vec![draft("a", "other"), known]), 5);
    let checked = Checked::Record(record.clone());
    let out = world.input(0, Input::RecordChecked { token, checked });
    assert_eq!(out, vec![reply(1, &[CONFLICT, of_record(&record)])]);
}

#[test]
fn a_record_above_the_high_watermark_is_waited_for() {
    let mut world = World::new();
    let known = draft("a", "x");
    let record = world.store_row(&known, 3, WALL_MS);
    let token = check(&world.submit(1, vec![known.clone()]), 3);
    let checked = Checked::Record(record.clone());
    assert_eq!(world.input(0, Input::RecordChecked { token, checked }), vec![]);
    assert_eq!(world.commit(2), vec![]);
    assert_eq!(world.commit(3), vec![reply(1, &[of_record(&record)])]);
}

/// A row may outlive its record when a leader's tail is cut.
#[test]
fn a_row_without_its_record_is_no_proof() {
    let others = record(&draft("b", "x"), 5, WALL_MS);
    let unnumbered = record(&draft("", "x"), 5, WALL_MS);
    for checked in [
        Checked::Record(others),
        Checked::Record(unnumbered),
        Checked::Missing,
    ] {
        let mut world = World::new();
        let known = draft("a", "x");
        world.store_row(&known, 5, WALL_MS);
        // The day before has the true one.
        let older = world.store_row(&known, 2, WALL_MS - 23 * 3_600_000);
        let token = check(&world.submit(1, vec![known.clone()]), 5);
        let token = check(
            &world.input(
                0,
                Input::RecordChecked {
                    token,
                    checked: checked.clone(),
                },
            ),
            2,
        );
        let fresh = world.input(
            0,
            Input::RecordChecked {
                token,
                checked: checked.clone(),
            },
        );
        assert_eq!(hooks(&fresh).1, vec![known.clone()]);
        // And with it, the older record is the answer.
        let mut world = World::new();
        world.commit(9);
        world.store_row(&known, 5, WALL_MS);
        world.store_row(&known, 2, WALL_MS - 23 * 3_600_000);
        let token = check(&world.submit(1, vec![known]), 5);
        let token = check(&world.input(0, Input::RecordChecked { token, checked }), 2);
        let checked = Checked::Record(older.clone());
        let out = world.input(0, Input::RecordChecked { token, checked });
        assert_eq!(out, vec![reply(1, &[of_record(&older)])]);
    }
}

#[test]
fn a_lookup_that_fails_is_worth_a_retry_and_leaves_no_claim() {
    let mut world = World::new();
    let known = draft("a", "x");
    world.store_row(&known, 5, WALL_MS);
    let token = check(&world.submit(1, vec![known]), 5);
    let out = world.input(
        0,
        Input::RecordChecked {
            token,
            checked: Checked::Failed,
        },
    );
    assert_eq!(out, vec![reply(1, &[RETRY])]);
    assert_eq!(world.authority.claimed(), 0);
}

/// Retention may pass a record between the question and its answer.
#[test]
fn a_record_that_retention_took_meanwhile_is_still_known() {
    let mut world = World::new();
    world.commit(9);
    let known = draft("a", "x");
    let record = world.store_row(&known, 5, WALL_MS);
    let token = check(&world.submit(1, vec![known.clone()]), 5);
    let checked = Checked::Removed { log_start: Seq(6) };
    let out = world.input(0, Input::RecordChecked { token, checked });
    assert_eq!(out, vec![reply(1, &[of_record(&record)])]);
    let again = reply(2, &[of_record(&record)]);
    assert_eq!(
        world.submit(2, vec![known]),
        vec![again],
        "the log start is known now"
    );
}

#[test]
fn below_the_log_start_the_row_alone_answers() {
    let mut world = World::new();
    world.commit(9);
    assert_eq!(world.input(0, Input::LogStart(Seq(6))), vec![]);
    let known = draft("a", "x");
    let record = world.store_row(&known, 5, WALL_MS);
    assert_eq!(
        world.submit(1, vec![known]),
        vec![reply(1, &[of_record(&record)])]
    );
    assert_eq!(
        world.submit(2, vec![draft("a", "other")]),
        vec![reply(2, &[CONFLICT])]
    );
}

#[test]
fn the_window_ends_and_a_faster_clock_of_another_leader_is_found() {
    let day_ms = 24 * 3_600_000;
    let known = draft("a", "x");
    let mut world = World::new();
    world.store_row(&known, 5, WALL_MS - day_ms - 1);
    assert_eq!(
        hooks(&world.submit(1, vec![known.clone()])).1.len(),
        1,
        "outside of the window"
    );
    let mut world = World::new();
    world.store_row(&known, 5, WALL_MS - day_ms + 1);
    check(&world.submit(1, vec![known.clone()]), 5);
    let mut world = World::new();
    let tomorrow = WALL_MS + day_ms;
    let leading = Leadership {
        last_stamp_ms: tomorrow,
        ..leadership(2, 0)
    };
    world.input(0, Input::Role(Role::Leading(leading)));
    world.store_row(&known, 5, tomorrow);
    check(&world.submit(1, vec![known]), 5);
    let mut stamps = Vec::new();
    for number in ["b", "c"] {
        let (_, entries) = world.submit_to_append_after(number);
        stamps.push(entries[0].message.stamp_ms);
    }
    assert_eq!(
        stamps,
        vec![tomorrow, tomorrow],
        "stamps of a channel do not go back"
    );
}

impl World {
    /// Like `submit_to_append`, behind a batch that is still looked up and is given up first.
    fn submit_to_append_after(&mut self, number: &str) -> (Token, Vec<Entry>) {
        self.expire(10_000);
        self.submit_to_append(9, vec![draft(number, "x")])
    }
}

#[test]
fn a_miss_changes_nothing_and_names_every_row() {
    let mut world = World::new();
    world.rows.all_cold = true;
    let drafts = vec![draft("a", "x"), draft("b", "x"), draft("", "x")];
    let input = Input::Submit {
        token: Token(1),
        drafts,
    };
    let mut out = Vec::new();
    let missed = world
        .authority
        .handle(now(0), input.clone(), &world.rows, &mut world.ids, &mut out);
    assert_eq!(
        missed.map_err(|Miss(keys)| keys.len()),
        Err(4),
        "two days for two numbers"
    );
    assert!(out.is_empty() && world.authority.is_idle() && world.authority.claimed() == 0);
    world.rows.all_cold = false;
    assert_eq!(hooks(&world.input(0, input)).1.len(), 3);
}

/// R21: never appended is a refusal, perhaps appended is unknown, and its claim stays.
#[test]
fn the_deadline_tells_a_refusal_from_an_unknown_outcome() {
    let mut world = World::new();
    let (in_hooks, drafts) = hooks(&world.submit(1, vec![draft("a", "x")]));
    assert_eq!(world.expire(4_999), vec![]);
    assert_eq!(world.authority.next_deadline(), Some(Duration::from_secs(5)));
    assert_eq!(world.expire(5_000), vec![reply(1, &[RETRY])]);
    let verdicts = drafts.into_iter().map(Ok).collect();
    let late = Input::HooksDone {
        token: in_hooks,
        verdicts,
    };
    assert_eq!(
        world.input(5_000, late),
        vec![],
        "what was refused is never appended"
    );
    assert_eq!(world.authority.claimed(), 0);

    let (token, entries) = world.submit_to_append(2, vec![draft("a", "x")]);
    assert_eq!(world.expire(5_000), vec![reply(2, &[Outcome::Unknown])]);
    assert_eq!(
        world.submit(3, vec![draft("a", "x")]),
        vec![],
        "joined to the append in flight"
    );
    assert_eq!(world.input(0, Input::Appended { token, first: Seq(1) }), vec![]);
    assert_eq!(world.expire(5_000), vec![reply(3, &[Outcome::Unknown])]);
    assert_eq!(
        world.submit(4, vec![draft("a", "x"), draft("a", "other")]),
        vec![]
    );
    let found = success(&entries[0].message, 1);
    assert_eq!(world.commit(1), vec![reply(4, &[found, CONFLICT])]);
}

#[test]
fn a_refused_append_refuses_whoever_repeats_it_and_frees_the_key() {
    let mut world = World::new();
    let (token, _) = world.submit_to_append(1, vec![draft("a", "x")]);
    assert_eq!(
        world.submit(2, vec![draft("a", "x"), draft("a", "other")]),
        vec![]
    );
    let reason = Reason::NODE_NOT_MATCH;
    let out = world.input(0, Input::AppendRefused { token, reason });
    assert_eq!(out, vec![reply(1, &[RETRY]), reply(2, &[RETRY, RETRY])]);
    assert_eq!(world.submit_to_append(3, vec![draft("a", "x")]).1.len(), 1);
}

#[test]
fn losing_the_leadership_ends_everything_in_order() {
    let mut world = World::new();
    let (token, _) = world.submit_to_append(1, vec![draft("a", "x")]);
    world.input(0, Input::Appended { token, first: Seq(1) });
    let (in_flight, _) = world.submit_to_append(2, vec![draft("b", "x")]);
    let (in_hooks, _) = hooks(&world.submit(3, vec![draft("c", "x"), draft("b", "x"), draft("c", "x")]));
    let out = world.input(0, Input::Role(Role::Not));
    let unknown = Outcome::Unknown;
    assert_eq!(
        out,
        vec![
            reply(1, std::slice::from_ref(&unknown)),
            reply(2, std::slice::from_ref(&unknown)),
            reply(3, &[RETRY, unknown, RETRY])
        ]
    );
    assert!(world.authority.is_idle() && world.authority.claimed() == 0);
    assert_eq!(world.submit(4, vec![draft("d", "x")]), vec![reply(4, &[RETRY])]);
    // Answers to the former leadership find nobody (CH-13).
    world.input(0, Input::Role(Role::Leading(leadership(2, 0))));
    assert_eq!(
        world.input(
            0,
            Input::Appended {
                token: in_flight,
                first: Seq(2)
            }
        ),
        vec![]
    );
    let late = Input::HooksDone {
        token: in_hooks,
        verdicts: vec![Ok(draft("c", "x"))],
    };
    assert_eq!(world.input(0, late), vec![]);
    assert_eq!(world.commit(9), vec![], "a commit of another epoch");
    let (token, _) = world.submit_to_append(5, vec![draft("a", "x")]);
    world.input(0, Input::Appended { token, first: Seq(1) });
    assert_eq!(
        world.commit(9),
        vec![],
        "a commit of another epoch proves nothing"
    );
}

#[test]
fn the_same_epoch_again_ends_nothing() {
    let mut world = World::new();
    let (token, entries) = world.submit_to_append(1, vec![draft("a", "x")]);
    let again = Leadership {
        meta_version: 7,
        log_start: Seq(1),
        ..leadership(1, 0)
    };
    assert_eq!(world.input(0, Input::Role(Role::Leading(again))), vec![]);
    world.input(0, Input::Appended { token, first: Seq(1) });
    assert_eq!(
        world.commit(1),
        vec![reply(1, &[success(&entries[0].message, 1)])]
    );
}

/// AP-3: hooks may answer in any order; the log and the replies keep the order of submission.
#[test]
fn batches_are_placed_and_answered_in_the_order_of_submission() {
    let mut world = World::new();
    let (first, _) = hooks(&world.submit(1, vec![draft("a", "x")]));
    let (second, _) = hooks(&world.submit(2, vec![draft("b", "x")]));
    let (third, _) = hooks(&world.submit(3, vec![draft("c", "x")]));
    let judged = |token, number| Input::HooksDone {
        token,
        verdicts: vec![Ok(draft(number, "x"))],
    };
    assert_eq!(world.input(0, judged(second, "b")), vec![]);
    let refusal = Input::HooksDone {
        token: third,
        verdicts: vec![Err(Reason::NOT_ALLOWED.into())],
    };
    assert_eq!(
        world.input(0, refusal),
        vec![],
        "its answer waits for those before it"
    );
    let out = world.input(0, judged(first, "a"));
    let [Output::Append(one), Output::Append(two)] = &out[..] else {
        panic!("{out:?}")
    };
    assert_eq!(&*one.entries[0].message.draft.client_msg_no, "a");
    assert_eq!(&*two.entries[0].message.draft.client_msg_no, "b");
    world.input(
        0,
        Input::Appended {
            token: one.token,
            first: Seq(1),
        },
    );
    world.input(
        0,
        Input::Appended {
            token: two.token,
            first: Seq(2),
        },
    );
    let outcomes = [
        success(&one.entries[0].message, 1),
        success(&two.entries[0].message, 2),
    ];
    assert_eq!(
        world.commit(2),
        vec![
            reply(1, &outcomes[..1]),
            reply(2, &outcomes[1..]),
            reply(3, &[Outcome::Refused(Reason::NOT_ALLOWED)])
        ]
    );
}

#[test]
fn hooks_change_payload_expiry_and_topic_and_nothing_else() {
    let mut world = World::new();
    let (token, drafts) = hooks(&world.submit(1, vec![draft("a", "x"), draft("b", "bad")]));
    let changed = Draft {
        from_uid: Uid::new("forged"),
        client_msg_no: Arc::from("forged"),
        payload: Bytes::from_static(b"clean"),
        topic: Arc::from("t"),
        expire_s: 9,
        ..drafts[0].clone()
    };
    let verdicts = vec![Ok(changed), Err(Reason::NOT_ALLOWED.into())];
    let (_, entries) = appends(&world.input(0, Input::HooksDone { token, verdicts }));
    let sent = &entries[0].message.draft;
    assert_eq!(entries.len(), 1, "a refused item never enters the log");
    assert_eq!((sent.from_uid.as_str(), &*sent.client_msg_no), ("u1", "a"));
    assert_eq!(
        (&sent.payload[..], &*sent.topic, sent.expire_s),
        (&b"clean"[..], "t", 9)
    );
    assert_eq!(
        entries[0].key,
        key_of(&draft("a", "x")),
        "the digest is of the client's bytes"
    );

    let mut world = World::new();
    let (token, _) = hooks(&world.submit(1, vec![draft("a", "x")]));
    let out = world.input(
        0,
        Input::HooksDone {
            token,
            verdicts: vec![],
        },
    );
    assert_eq!(
        out,
        vec![reply(1, &[RETRY])],
        "an answer that does not fit allows nothing"
    );
}

#[test]
fn the_door_is_shut_when_the_backlog_is_full_or_delivery_lags() {
    let mut world = World::bounded(|limits| limits.channel_backlog = 2);
    let (token, _) = world.submit_to_append(1, vec![draft("a", "x")]);
    assert_eq!(
        world.submit(2, vec![draft("b", "x"), draft("c", "x")]),
        vec![reply(2, &[BUSY, BUSY])]
    );
    world.input(0, Input::Appended { token, first: Seq(1) });
    world.expire(5_000);
    assert_eq!(
        world.authority.backlog(),
        1,
        "answered as unknown, and still not committed"
    );
    hooks(&world.submit(3, vec![draft("b", "x")]));
    assert_eq!(world.submit(4, vec![draft("c", "x")]), vec![reply(4, &[BUSY])]);
    world.commit(1);
    hooks(&world.submit(5, vec![draft("c", "x")]));

    let mut world = World::new();
    world.input(0, Input::DeliveryBusy(true));
    assert_eq!(world.submit(1, vec![draft("a", "x")]), vec![reply(1, &[BUSY])]);
    world.input(0, Input::DeliveryBusy(false));
    hooks(&world.submit(2, vec![draft("a", "x")]));
}

#[test]
fn without_a_lease_of_ids_a_send_is_busy_and_keeps_no_claim() {
    let mut world = World::new();
    world.ids = Generator::new(NodeId(1), 0);
    let (token, drafts) = hooks(&world.submit(1, vec![draft("a", "x")]));
    let verdicts = drafts.into_iter().map(Ok).collect();
    let out = world.input(0, Input::HooksDone { token, verdicts });
    assert_eq!(out, vec![reply(1, &[BUSY])]);
    assert_eq!(world.authority.claimed(), 0);
}

/// SF-1: not stored, in writer order, and success is what delivery accepted.
#[test]
fn a_message_that_is_not_stored_goes_to_delivery_after_what_came_before() {
    let mut world = World::new();
    let mut typing = draft("a", "typing");
    typing.flags.no_persist = true;
    let batch = vec![draft("a", "x"), typing.clone(), typing.clone()];
    let (token, entries) = world.submit_to_append(1, batch);
    assert_eq!(entries.len(), 1);
    assert_eq!(world.input(0, Input::Appended { token, first: Seq(1) }), vec![]);
    let out = world.commit(1);
    let [Output::Ephemeral { token, message }] = &out[..] else {
        panic!("{out:?}")
    };
    assert_eq!((message.seq, &message.draft), (Seq(0), &typing));
    let planned = Input::Planned {
        token: *token,
        accepted: true,
    };
    let out = world.input(0, planned);
    let [
        Output::Ephemeral {
            token,
            message: second,
        },
    ] = &out[..]
    else {
        panic!("{out:?}")
    };
    assert!(second.id > message.id);
    let planned = Input::Planned {
        token: *token,
        accepted: false,
    };
    let outcomes = [success(&entries[0].message, 1), success(message, 0), BUSY];
    assert_eq!(world.input(0, planned), vec![reply(1, &outcomes)]);
}
