//! What the cursors do, step by step.

mod busy;
mod patient;

use super::*;
use crate::hooks::faults::Faults;
use crate::rows::{Key, Miss, Row, Rows};
use crate::types::{ChannelKey, ChannelKind, MessageId, Now};
use bytes::Bytes;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
struct MemoryRows {
    rows: BTreeMap<Key, Row>,
    cold: bool,
}

impl Rows for MemoryRows {
    fn row(&self, key: &Key) -> Result<Option<Row>, Miss> {
        if self.cold {
            return Err(Miss(vec![key.clone()]));
        }
        Ok(self.rows.get(key).cloned())
    }
}

fn now(millis: u64) -> Now {
    Now {
        monotonic: Duration::from_millis(millis),
        wall_ms: millis,
    }
}

fn consumer(name: &str) -> Consumer {
    Consumer {
        name: Arc::from(name),
        start: Start::Earliest,
        exact: false,
        first_only: false,
        attempts_max: Some(3),
        run_max: 4,
        patience: None,
    }
}

/// A channel with a log, and the consumers of it.
struct World {
    cursors: Cursors,
    rows: MemoryRows,
    log: Vec<Record>,
    /// What the replicas were to hold.
    fixed: Vec<Cursor>,
    millis: u64,
}

impl World {
    fn new(consumers: Vec<Consumer>) -> World {
        World::with(consumers, Faults::default())
    }

    fn with(consumers: Vec<Consumer>, faults: Faults) -> World {
        World {
            cursors: Cursors::with(consumers, &Limits::default(), faults, Token(1)),
            rows: MemoryRows::default(),
            log: Vec::new(),
            fixed: Vec::new(),
            millis: 0,
        }
    }

    fn grow(&mut self, through: u64) {
        for seq in self.log.len() as u64 + 1..=through {
            self.log.push(Record {
                seq: Seq(seq),
                leader_epoch: LeaderEpoch(1),
                stamp_ms: seq,
                id: MessageId(1),
                key: None,
                body: Bytes::from_static(b"m"),
                crc: 0,
            });
        }
    }

    /// Takes an input, and answers the reads and writes that follow from it.
    fn input(&mut self, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        self.cursors
            .handle(now(self.millis), input, &self.rows, &mut out)
            .expect("in memory");
        self.serve(out)
    }

    fn serve(&mut self, out: Vec<Output>) -> Vec<Output> {
        let mut told = Vec::new();
        for output in out {
            match output {
                Output::Read { token, range } => {
                    let records = Some(self.records(range));
                    told.extend(self.input(Input::ReadDone { token, records }));
                }
                Output::Fix {
                    token,
                    consumer,
                    cursor,
                } => {
                    let key = Key::Cursor {
                        incarnation: Incarnation(1),
                        consumer: Bytes::copy_from_slice(consumer.as_bytes()),
                    };
                    self.rows.rows.insert(key, cursor.encode());
                    self.fixed.push(cursor);
                    told.extend(self.input(Input::Fixed { token }));
                }
                other => told.push(other),
            }
        }
        told
    }

    fn records(&self, range: Range) -> Vec<Record> {
        let wanted = usize::try_from(range.records_max).expect("small");
        let from = self.log.iter().filter(|record| record.seq >= range.from);
        from.take(wanted).cloned().collect()
    }

    fn wait(&mut self, millis: u64) -> Vec<Output> {
        self.millis += millis;
        let mut out = Vec::new();
        self.cursors.expire(now(self.millis), &mut out);
        self.serve(out)
    }

    fn lead(&mut self, epoch: u64, log_start: u64, committed: u64) -> Vec<Output> {
        self.grow(committed);
        self.input(Input::Role(leading(epoch, log_start, committed)))
    }

    fn commit(&mut self, through: u64) -> Vec<Output> {
        self.grow(through);
        self.input(Input::Committed {
            leader_epoch: LeaderEpoch(1),
            through: Seq(through),
        })
    }
}

fn leading(epoch: u64, log_start: u64, committed: u64) -> Role {
    Role::Leading {
        incarnation: Incarnation(1),
        leader_epoch: LeaderEpoch(epoch),
        log_start: Seq(log_start),
        committed: Seq(committed),
    }
}

fn at(done: u64, open_to: u64) -> Cursor {
    Cursor {
        done: Seq(done),
        cuts: 0,
        open_to: Seq(open_to),
        cut_to: Seq(open_to),
    }
}

/// The runs handed out: consumer, token, first and last position.
fn runs(out: &[Output]) -> Vec<(String, Token, u64, u64)> {
    out.iter()
        .filter_map(|output| match output {
            Output::Consume {
                token,
                consumer,
                records,
            } => {
                let seqs: Vec<u64> = records.iter().map(|record| record.seq.0).collect();
                assert!(seqs.windows(2).all(|pair| pair[1] == pair[0] + 1), "{seqs:?}");
                Some((consumer.to_string(), *token, seqs[0], seqs[seqs.len() - 1]))
            }
            _ => None,
        })
        .collect()
}

/// The one run handed out.
fn run(out: &[Output]) -> (Token, u64, u64) {
    match &runs(out)[..] {
        [(_, token, first, last)] => (*token, *first, *last),
        other => panic!("not one run: {other:?} in {out:?}"),
    }
}

fn done(token: Token, through: u64) -> Input {
    Input::Done {
        token,
        through: Seq(through),
    }
}

fn retry(token: Token) -> Input {
    Input::Failed {
        token,
        failure: Failure::Retry {
            after: None,
            cause: Cause::Asked,
        },
    }
}

/// The token of the one dead letter.
fn buried(out: &[Output]) -> Token {
    match out {
        [Output::DeadLetter(given_up)] => given_up.token,
        other => panic!("not one dead letter: {other:?}"),
    }
}

#[test]
fn causes_have_numbers_of_their_own() {
    let known: Vec<u32> = (0..64).filter(|&number| Cause::of(number).is_some()).collect();
    assert_eq!(known, [1, 2, 3, 16, 17, 18, 19, 20, 21, 22, 23, 49, 50, 51]);
    for number in known {
        assert_eq!(Cause::of(number).map(Cause::number), Some(number));
    }
}

#[test]
fn committed_records_go_out_in_order_one_run_at_a_time() {
    let mut world = World::new(vec![consumer("a")]);
    world.grow(20);
    assert_eq!(world.lead(1, 1, 0), vec![], "nothing is committed");
    let (token, first, last) = run(&world.commit(6));
    assert_eq!((first, last), (1, 4));
    assert_eq!(world.commit(7), vec![], "its window is one");
    let lag = |records, oldest_ms| Lag { records, oldest_ms };
    assert_eq!(world.cursors.lag("a"), lag(7, Some(1)));
    let out = world.input(done(token, 4));
    assert!(out.contains(&Output::Moved {
        consumer: Arc::from("a"),
        cursor: at(4, 4)
    }));
    let (token, first, last) = run(&out);
    assert_eq!((first, last), (5, 7));
    assert_eq!(world.cursors.lag("a"), lag(3, Some(5)));
    // A part of a run is done: the rest comes again.
    let (again, first, last) = run(&world.input(done(token, 5)));
    assert_eq!((first, last), (6, 7));
    assert_eq!(world.input(done(token, 7)), vec![], "an answer of a former call");
    let out = world.input(done(again, 99));
    assert!(runs(&out).is_empty() && world.cursors.is_idle());
    assert_eq!(world.cursors.lag("a"), Lag::default());
}

/// R27: an effect that was not reported done is done again by the next leader.
#[test]
fn a_new_leader_continues_at_the_stored_cursor() {
    let mut world = World::new(vec![consumer("a")]);
    let (token, ..) = run(&world.lead(1, 1, 8));
    let (late, first, _) = run(&world.input(done(token, 4)));
    assert_eq!(first, 5);
    world.input(Input::Role(Role::Not));
    assert!(world.cursors.is_idle());
    assert_eq!(world.input(done(late, 8)), vec![], "it leads no more");
    let key = Key::Cursor {
        incarnation: Incarnation(1),
        consumer: Bytes::from_static(b"a"),
    };
    world.rows.rows.insert(key, at(4, 4).encode());
    let (_, first, last) = run(&world.lead(2, 1, 8));
    assert_eq!((first, last), (5, 8));
    assert_eq!(
        world.input(Input::Role(leading(2, 1, 8))),
        vec![],
        "the same epoch again"
    );
}

#[test]
fn a_slow_consumer_delays_no_other() {
    let mut world = World::new(vec![consumer("slow"), consumer("fast")]);
    let out = world.lead(1, 1, 4);
    let both = runs(&out);
    assert_eq!(both.len(), 2);
    let out = world.input(done(both[1].1, 4));
    assert!(runs(&out).is_empty());
    let (_, first, last) = run(&world.commit(9));
    assert_eq!((first, last), (5, 8), "fast goes on while slow has its first run");
}

#[test]
fn failures_pause_longer_each_time_and_narrow_to_the_record_that_fails() {
    let mut world = World::new(vec![consumer("a"), consumer("b")]);
    let out = world.lead(1, 1, 4);
    let both = runs(&out);
    let (token, other) = (both[0].1, both[1].1);
    assert_eq!(world.input(retry(token)), vec![]);
    assert_eq!(world.cursors.next_deadline(), Some(Duration::from_millis(100)));
    assert!(!world.cursors.is_idle());
    assert!(
        !runs(&world.commit(5)).iter().any(|(name, ..)| name == "a"),
        "it pauses"
    );
    world.input(done(other, 4));
    assert_eq!(world.wait(99), vec![]);
    let (token, first, last) = run(&world.wait(1));
    assert_eq!((first, last), (1, 1));
    world.input(retry(token));
    assert_eq!(world.wait(199), vec![]);
    let (token, ..) = run(&world.wait(1));
    let out = world.input(retry(token));
    let token = buried(&out);
    assert_eq!(
        out,
        [Output::DeadLetter(GivenUp {
            token,
            consumer: Arc::from("a"),
            seq: Seq(1),
            attempts: 3,
            cause: Cause::Asked,
        })],
        "the cursor stands until the letter is kept"
    );
    let (_, first, last) = run(&world.input(done(token, 1)));
    assert_eq!((first, last), (2, 5), "the next record begins afresh");
}

#[test]
fn poison_is_given_up_at_once_and_a_wished_pause_is_kept() {
    let mut world = World::new(vec![consumer("a")]);
    let (token, ..) = run(&world.lead(1, 1, 2));
    let failure = Failure::Poison;
    let out = world.input(Input::Failed { token, failure });
    let token = buried(&out);
    assert!(matches!(
        out[0],
        Output::DeadLetter(GivenUp {
            seq: Seq(1),
            attempts: 1,
            cause: Cause::Poison,
            ..
        })
    ));
    let (token, first, _) = run(&world.input(done(token, 1)));
    assert_eq!(first, 2);
    let failure = Failure::Retry {
        after: Some(Duration::from_secs(5)),
        cause: Cause::Asked,
    };
    world.input(Input::Failed { token, failure });
    assert_eq!(world.cursors.next_deadline(), Some(Duration::from_secs(5)));
}

#[test]
fn what_was_not_tried_is_no_attempt_and_a_letter_that_is_not_kept_gives_nothing_up() {
    let mut world = World::new(vec![consumer("a")]);
    let mut out = world.lead(1, 1, 2);
    let failure = Failure::Untried;
    for _ in 0..10 {
        let (token, first, last) = run(&out);
        assert_eq!((first, last), (1, 2), "nothing says that one of them is to blame");
        assert_eq!(world.input(Input::Failed { token, failure }), vec![]);
        out = world.wait(60_000);
    }
    let (token, ..) = run(&out);
    let poison = Failure::Poison;
    let token = buried(&world.input(Input::Failed {
        token,
        failure: poison,
    }));
    assert_eq!(world.input(Input::Failed { token, failure }), vec![]);
    let (token, first, _) = run(&world.wait(60_000));
    assert_eq!(first, 1);
    let (_, first, _) = run(&world.input(done(token, 1)));
    assert_eq!(first, 2);
}

#[test]
fn a_consumer_without_a_bound_is_never_given_up() {
    let mut world = World::new(vec![Consumer {
        attempts_max: None,
        ..consumer("a")
    }]);
    let mut out = world.lead(1, 1, 1);
    for _ in 0..100 {
        let (token, first, last) = run(&out);
        assert_eq!((first, last), (1, 1));
        assert_eq!(world.input(retry(token)), vec![]);
        let (token, ..) = run(&world.wait(30_000));
        let failure = Failure::Poison;
        assert_eq!(world.input(Input::Failed { token, failure }), vec![]);
        out = world.wait(30_000);
    }
}

#[test]
fn starts() {
    for (start, first) in [(Start::Earliest, 3), (Start::Latest, 9), (Start::At(Seq(5)), 5)] {
        let mut world = World::new(vec![Consumer {
            start,
            ..consumer("a")
        }]);
        let begun = world.lead(1, 3, 8);
        let begins = Output::Moved {
            consumer: Arc::from("a"),
            cursor: at(first - 1, first - 1),
        };
        assert_eq!(begun.contains(&begins), start != Start::Earliest, "{start:?}");
        let out = [begun, world.commit(9)].concat();
        assert_eq!(runs(&out)[0].2, first, "{start:?}");
    }
}

#[test]
fn what_retention_removed_is_skipped_and_reported() {
    let mut world = World::new(vec![consumer("a")]);
    let (token, ..) = run(&world.lead(1, 1, 12));
    world.input(retry(token));
    world.input(Input::LogStart(Seq(10)));
    let out = world.wait(100);
    assert_eq!(
        out[0],
        Output::Skipped {
            consumer: Arc::from("a"),
            from: Seq(1),
            through: Seq(9)
        }
    );
    let (_, first, last) = run(&out);
    assert_eq!((first, last), (10, 12));
}

#[test]
fn a_read_that_fails_or_finds_nothing_pauses() {
    for records in [None, Some(Vec::new())] {
        let mut world = World::new(vec![consumer("a")]);
        world.grow(2);
        let token = asked(&mut world, leading(1, 1, 2)).0;
        let told = world.input(Input::ReadDone { token, records });
        assert_eq!(told, []);
        assert!(world.cursors.next_deadline().is_some());
        assert_eq!(run(&world.wait(250)).1, 1);
    }
}

/// The read that a new leader begins with.
fn asked(world: &mut World, role: Role) -> (Token, Range) {
    let mut out = Vec::new();
    world
        .cursors
        .handle(now(world.millis), Input::Role(role), &world.rows, &mut out)
        .expect("in memory");
    let [Output::Read { token, range }] = out[..] else {
        panic!("{out:?}")
    };
    (token, range)
}

/// M-18: what is in memory and what is on disk are measured differently, and a new leader may know of fewer commits.
#[test]
fn an_open_window_is_read_whole_or_not_at_all() {
    let exact = Consumer {
        exact: true,
        run_max: 2,
        ..consumer("kv")
    };
    let key = Key::Cursor {
        incarnation: Incarnation(1),
        consumer: Bytes::from_static(b"kv"),
    };
    let mut world = World::new(vec![exact]);
    world.rows.rows.insert(key, at(1, 4).encode());
    world.grow(6);
    assert_eq!(
        world.lead(1, 1, 3),
        [],
        "it is not known that all of the window is committed"
    );
    let mut out = Vec::new();
    let committed = Input::Committed {
        leader_epoch: LeaderEpoch(1),
        through: Seq(6),
    };
    world
        .cursors
        .handle(now(0), committed, &world.rows, &mut out)
        .expect("in memory");
    let [Output::Read { token, range }] = out[..] else {
        panic!("{out:?}")
    };
    assert_eq!(
        (range.from, range.records_max, range.bytes_max),
        (Seq(2), 3, u32::MAX)
    );
    let records = Some(world.log[1..3].to_vec());
    assert_eq!(
        world.input(Input::ReadDone { token, records }),
        [],
        "a part of it"
    );
    let (_, first, last) = run(&world.wait(250));
    assert_eq!((first, last), (2, 4));
}

/// M-18: the window is durable before it is handed out, and comes again exactly.
#[test]
fn an_exact_window_is_stored_first_and_redelivered_as_it_was() {
    let exact = Consumer {
        exact: true,
        ..consumer("kv")
    };
    let mut world = World::new(vec![exact]);
    world.grow(3);
    let token = asked(&mut world, leading(1, 1, 3)).0;
    let records = Some(world.log.clone());
    let mut out = Vec::new();
    world
        .cursors
        .handle(now(0), Input::ReadDone { token, records }, &world.rows, &mut out)
        .expect("in memory");
    assert!(
        matches!(out[..], [Output::Fix { cursor, .. }] if cursor == at(0, 3)),
        "nothing is handed out yet"
    );
    let (token, first, last) = run(&world.serve(out));
    assert_eq!((first, last), (1, 3));
    // More is committed, a part is done, a failure comes: the window stays what it was.
    world.commit(9);
    let (token, first, last) = run(&world.input(done(token, 1)));
    assert_eq!((first, last), (2, 3));
    world.input(retry(token));
    assert_eq!(run(&world.wait(100)).1, 2);
    // The next leader finds {1, 3} and repeats exactly 2..=3.
    let key = Key::Cursor {
        incarnation: Incarnation(1),
        consumer: Bytes::from_static(b"kv"),
    };
    world.rows.rows.insert(key, at(1, 3).encode());
    world.input(Input::Role(Role::Not));
    let (token, first, last) = run(&world.lead(2, 1, 9));
    assert_eq!((first, last), (2, 3));
    assert_eq!(
        world.fixed,
        [at(0, 3), at(1, 3)],
        "the next leader fixes it once more"
    );
    let (_, first, last) = run(&world.input(done(token, 3)));
    assert_eq!((first, last), (4, 7));
}

fn exact_world(attempts_max: Option<u32>) -> World {
    World::new(vec![Consumer {
        exact: true,
        attempts_max,
        ..consumer("kv")
    }])
}

/// What is done in part and has effects ends the window first, so that a redelivery has these records and no others.
#[test]
fn a_window_is_narrowed_to_what_is_done() {
    let mut world = exact_world(Some(3));
    let (token, first, last) = run(&world.lead(1, 1, 9));
    assert_eq!((first, last), (1, 4));
    let through = Seq(3);
    let narrowed = [Output::Narrowed { token }];
    assert_eq!(world.input(Input::Narrow { token, through }), narrowed);
    let three = Cursor {
        cuts: 1,
        cut_to: Seq(4),
        ..at(0, 3)
    };
    assert_eq!(world.fixed, [at(0, 4), three]);
    // The next leader hands out exactly these.
    world.input(Input::Role(Role::Not));
    let (token, first, last) = run(&world.lead(2, 1, 9));
    assert_eq!((first, last), (1, 3));
    // All of it needs no other window, and neither does what is over.
    let narrowed = [Output::Narrowed { token }];
    assert_eq!(world.input(Input::Narrow { token, through }), narrowed);
    // The whole window may have had its effects once: what is left of it ends where it ended, also under the next leader.
    let (rest, first, last) = run(&world.input(done(token, 3)));
    assert_eq!((first, last), (4, 4));
    assert_eq!(world.fixed[2..], [three, at(3, 4)]);
    let (_, first, last) = run(&world.input(done(rest, 4)));
    assert_eq!((first, last), (5, 8));
    let late = Input::Narrow { token, through };
    assert_eq!(world.input(late), vec![]);
}

/// Attempts at parts of a window may have had their effects too: what is left crosses none of their ends, whoever leads.
#[test]
fn the_rest_of_a_window_that_was_narrowed_comes_one_by_one() {
    let mut world = exact_world(Some(3));
    let (token, first, last) = run(&world.lead(1, 1, 9));
    assert_eq!((first, last), (1, 4));
    world.input(Input::Narrow {
        token,
        through: Seq(3),
    });
    world.input(Input::Narrow {
        token,
        through: Seq(1),
    });
    let (token, first, last) = run(&world.input(done(token, 1)));
    assert_eq!((first, last), (2, 2));
    world.input(Input::Role(Role::Not));
    assert_eq!(world.input(done(token, 2)), vec![], "of another leadership");
    let (mut token, ..) = run(&world.lead(2, 1, 9));
    for next in [3, 4] {
        let (then, first, last) = run(&world.input(done(token, next - 1)));
        assert_eq!((first, last), (next, next));
        token = then;
    }
    let (_, first, last) = run(&world.input(done(token, 4)));
    assert_eq!((first, last), (5, 8));
}

/// Which record of a window cannot be done is found one by one, and only that one is given up.
#[test]
fn a_window_that_fails_for_good_is_split() {
    let mut world = exact_world(Some(2));
    let (token, first, last) = run(&world.lead(1, 1, 5));
    assert_eq!((first, last), (1, 4));
    world.input(retry(token));
    let (token, first, last) = run(&world.wait(100));
    assert_eq!((first, last), (1, 4), "a redelivery is the same");
    let (token, first, last) = run(&world.input(retry(token)));
    assert_eq!((first, last), (1, 1));
    let (token, first, last) = run(&world.input(done(token, 1)));
    assert_eq!((first, last), (2, 2));
    world.input(retry(token));
    let (token, ..) = run(&world.wait(100));
    let letter = buried(&world.input(retry(token)));
    let (token, first, last) = run(&world.input(done(letter, 2)));
    assert_eq!(
        (first, last),
        (3, 3),
        "the rest of the window comes one by one too"
    );
    let (token, first, last) = run(&world.input(done(token, 3)));
    assert_eq!((first, last), (4, 4));
    let (_, first, last) = run(&world.input(done(token, 4)));
    assert_eq!((first, last), (5, 5));
    let cut_to = Seq(4);
    assert_eq!(
        world.fixed[1],
        Cursor {
            cuts: 1,
            cut_to,
            ..at(0, 1)
        }
    );
    // What is called poison is given up at once, and the rest of its window comes as it is.
    let mut world = exact_world(Some(2));
    let (token, ..) = run(&world.lead(1, 1, 5));
    let failure = Failure::Poison;
    let letter = buried(&world.input(Input::Failed { token, failure }));
    let (_, first, last) = run(&world.input(done(letter, 1)));
    assert_eq!((first, last), (2, 4));
}

#[test]
fn the_membership_rows_of_a_person_channel_are_written_once() {
    let limits = Limits::default();
    let person = ChannelKey::new("b@a", ChannelKind::PERSON);
    let mut world = World::new(vec![]);
    world.cursors = Cursors::new(&person, &limits, Faults::default(), Token(1));
    assert_eq!(world.lead(1, 1, 0), vec![]);
    let out = world.commit(3);
    assert_eq!(runs(&out)[0].0, crate::hooks::MEMBERSHIP);
    let (token, first, last) = run(&out);
    assert_eq!((first, last), (1, 1));
    assert!(runs(&world.input(done(token, 1))).is_empty());
    assert!(runs(&world.commit(4)).is_empty(), "later messages write nothing");
    assert!(world.cursors.is_idle());
    for (id, kind) in [("b@a____cmd", ChannelKind::PERSON), ("g", ChannelKind::GROUP)] {
        world.cursors = Cursors::new(&ChannelKey::new(id, kind), &limits, Faults::default(), Token(1));
        assert_eq!(world.lead(1, 1, 3), vec![], "{id}");
    }
}

#[test]
fn a_cursor_of_another_replica_is_merged() {
    let mut world = World::new(vec![consumer("a")]);
    let (token, ..) = run(&world.lead(1, 1, 8));
    let learned = |done| Input::Learned {
        consumer: Arc::from("a"),
        cursor: at(done, done),
    };
    let (token_after, first, last) = run(&world.input(learned(6)));
    assert_eq!((first, last), (7, 8));
    assert_eq!(world.input(done(token, 4)), vec![], "the former run is forgotten");
    assert_eq!(world.input(learned(2)), vec![], "it never goes back");
    world.input(done(token_after, 8));
    assert!(world.cursors.is_idle());
    assert_eq!(at(3, 9).max(at(5, 5)), at(5, 5));
    let narrowed = Cursor { cuts: 1, ..at(3, 5) };
    assert_eq!(at(3, 9).max(narrowed), narrowed);
}

#[test]
fn a_cold_row_is_asked_for_and_nothing_has_changed() {
    let mut world = World::new(vec![consumer("a"), consumer("b")]);
    world.grow(3);
    world.rows.cold = true;
    let role = Input::Role(leading(1, 1, 3));
    let mut out = Vec::new();
    let missed = world.cursors.handle(now(0), role.clone(), &world.rows, &mut out);
    assert_eq!(missed.map_err(|Miss(keys)| keys.len()), Err(2));
    assert!(out.is_empty() && world.cursors.is_idle());
    world.rows.cold = false;
    assert_eq!(runs(&world.input(role)).len(), 2);
}

#[test]
fn cursor_rows_order_like_cursors_and_reject_nonsense() {
    let cut = |cuts, open_to| Cursor {
        cuts,
        ..at(1, open_to)
    };
    let cursors = [
        at(0, 0),
        at(1, 1),
        at(1, 7),
        cut(1, 4),
        cut(256, 2),
        at(2, 2),
        at(256, 256),
    ];
    for pair in cursors.windows(2) {
        assert!(pair[0].encode() < pair[1].encode(), "merged by max as bytes");
    }
    for cursor in cursors {
        assert_eq!(Cursor::decode(&cursor.encode()), Some(cursor));
    }
    assert_eq!(Cursor::decode(b"short"), None);
    assert_eq!(Cursor::decode(&[9; 17]), None);
    let far = at(1, u64::MAX).encode();
    assert_eq!(
        Cursor::decode(&far),
        Some(at(1, (1 << 48) - 1)),
        "no position is that far"
    );
    let earlier = &at(3, 7).encode()[..16];
    assert_eq!(Cursor::decode(earlier), Some(at(3, 7)), "of an earlier version");
    let backwards = [2_u64.to_be_bytes(), 1_u64.to_be_bytes()].concat();
    assert_eq!(Cursor::decode(&backwards), None);
}

/// Every planted fault shows in what is handed out or moved.
#[cfg(feature = "mutants")]
mod planted {
    use super::*;

    fn world(consumer: Consumer, faults: Faults) -> World {
        World::with(vec![consumer], faults)
    }

    #[test]
    fn a_cursor_ahead_of_its_effect() {
        let faults = Faults {
            cursor_ahead_of_effect: true,
            ..Faults::default()
        };
        let out = world(consumer("a"), faults).lead(1, 1, 3);
        assert!(matches!(out[0], Output::Moved { cursor, .. } if cursor == at(3, 3)));
    }

    #[test]
    fn an_effect_before_the_commit() {
        let faults = Faults {
            before_commit_effects: true,
            ..Faults::default()
        };
        let mut world = world(consumer("a"), faults);
        world.grow(4);
        assert_eq!(run(&world.lead(1, 1, 1)).2, 4);
    }

    #[test]
    fn a_window_that_nobody_holds() {
        let faults = Faults {
            window_not_held: true,
            ..Faults::default()
        };
        let exact = Consumer {
            exact: true,
            ..consumer("kv")
        };
        let mut world = world(exact, faults);
        run(&world.lead(1, 1, 2));
        assert_eq!(world.fixed, []);
    }

    #[test]
    fn a_window_that_grows() {
        let faults = Faults {
            window_grows_on_redelivery: true,
            ..Faults::default()
        };
        let exact = Consumer {
            exact: true,
            ..consumer("kv")
        };
        let mut world = world(exact, faults);
        let (token, ..) = run(&world.lead(1, 1, 2));
        world.commit(4);
        world.input(retry(token));
        assert_eq!(run(&world.wait(100)).2, 4);
    }
}
