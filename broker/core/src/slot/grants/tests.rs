use super::*;
use crate::replicated::{Overlay, StateMachine};
use crate::rows::{Row, Table, Write};
use crate::slot::fsm;
use crate::types::{Boots, ChannelKind, DiskBoot, ProcessBoot};
use std::time::Duration;

#[derive(Default)]
struct Store {
    rows: BTreeMap<Key, Row>,
}

impl Rows for Store {
    fn row(&self, key: &Key) -> Result<Option<Row>, Miss> {
        Ok(self.rows.get(key).cloned())
    }
}

type Answers = Vec<(ChannelKey, Result<ChannelMeta, Unresolved>)>;

struct Bench {
    grants: Grants,
    store: Store,
    proposals: usize,
    resolved: BTreeMap<Token, Answers>,
    /// Held back when the test wants an answer to come late.
    held: Option<Vec<(Token, Bytes)>>,
}

fn slots() -> Vec<SlotId> {
    (0..256).map(SlotId).collect()
}

fn now() -> Now {
    Now {
        monotonic: Duration::from_secs(1),
        wall_ms: 9,
    }
}

fn world(alive: &[bool]) -> World {
    let nodes = || (1..).map(NodeId).zip(alive);
    World {
        nodes: nodes()
            .map(|(node, alive)| {
                let boots = Boots {
                    process: ProcessBoot(u64::from(node.0) + 50),
                    disk: DiskBoot(u64::from(node.0)),
                };
                let dead_since = (!alive).then_some(Duration::ZERO);
                (node, NodeLife { boots, dead_since })
            })
            .collect(),
        placeable: nodes().map(|(node, _)| node).collect(),
        copies: 3,
        replace_after: Duration::from_secs(600),
    }
}

fn channel(number: u64) -> ChannelKey {
    ChannelKey::new(&format!("c{number}"), ChannelKind::GROUP)
}

impl Bench {
    fn new() -> Bench {
        let mut bench = Bench {
            grants: Grants::new(slots(), 1 << 20),
            store: Store::default(),
            proposals: 0,
            resolved: BTreeMap::new(),
            held: None,
        };
        bench.input(Input::World(world(&[true; 3])));
        bench.input(Input::Leads(true));
        bench
    }

    fn input(&mut self, input: Input) {
        let mut out = Vec::new();
        self.grants.handle(now(), input, &self.store, &mut out).unwrap();
        for output in out {
            match output {
                Output::Propose { token, command } => {
                    self.proposals += 1;
                    match &mut self.held {
                        Some(held) => held.push((token, command)),
                        None => self.commit(token, &command),
                    }
                }
                Output::Read { token, request } => {
                    let page = self.read(&request);
                    self.input(Input::ReadDone { token, page });
                }
                Output::Resolved { token, answers } => {
                    assert!(self.resolved.insert(token, answers).is_none());
                }
            }
        }
    }

    fn commit(&mut self, token: Token, command: &[u8]) {
        let machine = fsm::Machine::new(slots());
        let (reply, writes) = {
            let mut rows = Overlay::new(&self.store);
            let applied = machine.apply(command, &mut rows).unwrap();
            (applied.reply, rows.into_writes())
        };
        for write in writes {
            match write {
                Write::Put { key, value } => self.store.rows.insert(key, value),
                Write::Delete { key } => self.store.rows.remove(&key),
                other => panic!("{other:?}"),
            };
        }
        let result = Ok(reply);
        self.input(Input::Proposed { token, result });
    }

    fn read(&self, request: &ReadRequest) -> Page {
        let ReadRequest::SlotRows {
            slot,
            table,
            prefix,
            after,
            rows_max,
        } = request
        else {
            panic!("{request:?}")
        };
        let matching = self.store.rows.iter().filter_map(|(key, value)| match key {
            Key::Slot {
                slot: of,
                table: kind,
                key,
            } if of == slot && kind == table && key.starts_with(prefix) => {
                Some((*kind, key.clone(), value.clone()))
            }
            _ => None,
        });
        let mut rows: Vec<(Table, Bytes, Bytes)> = matching
            .filter(|(_, key, _)| after.as_ref().is_none_or(|after| key > after))
            .collect();
        let more = rows.len() > *rows_max as usize;
        rows.truncate(*rows_max as usize);
        Page::Rows { rows, more }
    }

    fn ask(&mut self, token: u64, channels: &[u64]) {
        self.input(Input::Resolve {
            token: Token(token),
            channels: channels.iter().copied().map(channel).collect(),
        });
    }

    fn leader_of(&self, number: u64) -> Option<NodeId> {
        let row = self.store.rows.get(&keys::meta(&channel(number)))?;
        Some(decode_meta(row).unwrap().leader.unwrap().node)
    }
}

#[test]
fn a_question_creates_what_is_missing_and_is_answered_in_its_order() {
    let mut bench = Bench::new();
    bench.ask(1, &[5, 3, 5]);
    let answers = &bench.resolved[&Token(1)];
    let named: Vec<ChannelKey> = answers.iter().map(|(channel, _)| channel.clone()).collect();
    assert_eq!(named, vec![channel(5), channel(3), channel(5)]);
    assert!(answers.iter().all(|(_, answer)| answer.is_ok()));
    assert_eq!(bench.proposals, 1);
    bench.ask(2, &[3]);
    assert_eq!(bench.proposals, 1, "a good row is answered without a proposal");
}

#[test]
fn questions_for_a_channel_share_the_grant_that_is_under_way() {
    let mut bench = Bench::new();
    bench.held = Some(Vec::new());
    bench.ask(1, &[1, 2]);
    bench.ask(2, &[2]);
    bench.ask(3, &[1, 2]);
    assert_eq!((bench.proposals, bench.resolved.len()), (1, 0));
    for (token, command) in bench.held.take().unwrap() {
        bench.commit(token, &command);
    }
    assert_eq!(bench.resolved.len(), 3);
    assert!(
        bench
            .resolved
            .values()
            .flatten()
            .all(|(_, answer)| answer.is_ok())
    );
}

/// M-5: nobody has to ask.
#[test]
fn the_channels_of_a_dead_leader_are_granted_to_others() {
    let mut bench = Bench::new();
    for start in 0..10 {
        let channels: Vec<u64> = (start * 100..start * 100 + 100).collect();
        bench.ask(start, &channels);
    }
    let led = (0..1_000)
        .filter(|number| bench.leader_of(*number) == Some(NodeId(2)))
        .count();
    assert!(led > 200, "{led}");
    bench.input(Input::World(world(&[true, false, true])));
    assert!((0..1_000).all(|number| bench.leader_of(number) != Some(NodeId(2))));
    bench.input(Input::World(world(&[true, false, false])));
    assert!((0..1_000).all(|number| bench.leader_of(number) == Some(NodeId(1))));
}

#[test]
fn a_new_slot_leader_sweeps_for_those_that_died_before() {
    let mut bench = Bench::new();
    bench.ask(1, &(0..50).collect::<Vec<_>>());
    bench.input(Input::Leads(false));
    bench.input(Input::World(world(&[false, true, true])));
    assert!((0..50).any(|number| bench.leader_of(number) == Some(NodeId(1))));
    bench.input(Input::Leads(true));
    assert!((0..50).all(|number| bench.leader_of(number) != Some(NodeId(1))));
}

#[test]
fn losing_leadership_answers_everybody() {
    let mut bench = Bench::new();
    bench.held = Some(Vec::new());
    bench.ask(1, &[1]);
    bench.input(Input::Leads(false));
    let refused = Err(Unresolved::NotLeader { hint: None });
    assert_eq!(bench.resolved[&Token(1)], vec![(channel(1), refused.clone())]);
    for (token, command) in bench.held.take().unwrap() {
        bench.commit(token, &command);
    }
    assert_eq!(bench.resolved.len(), 1, "a late outcome answers nobody twice");
    bench.ask(2, &[1]);
    assert_eq!(bench.resolved[&Token(2)], vec![(channel(1), refused)]);
}

#[test]
fn a_refused_proposal_is_an_answer_with_its_cause() {
    let mut bench = Bench::new();
    bench.held = Some(Vec::new());
    bench.ask(1, &[1]);
    let (token, _) = bench.held.take().unwrap().remove(0);
    let hint = Some(NodeId(3));
    let result = Err(ProposeError::NotLeader { hint });
    bench.input(Input::Proposed { token, result });
    assert_eq!(
        bench.resolved[&Token(1)],
        vec![(channel(1), Err(Unresolved::NotLeader { hint }))]
    );
}

#[test]
fn nobody_alive_is_said_and_more_than_the_bound_is_refused() {
    let mut bench = Bench::new();
    bench.input(Input::World(world(&[false; 3])));
    bench.ask(1, &[1]);
    assert_eq!(
        bench.resolved[&Token(1)],
        vec![(channel(1), Err(Unresolved::Unavailable))]
    );
    bench.ask(2, &(0..=CHANNELS_MAX as u64).collect::<Vec<_>>());
    assert!(
        bench.resolved[&Token(2)]
            .iter()
            .all(|(_, answer)| *answer == Err(Unresolved::Busy))
    );
}

/// CH-7 from end to end: learner, both sets, the old one cleared.
#[test]
fn reports_of_the_leader_carry_a_voter_change_through() {
    let mut bench = Bench::new();
    bench.input(Input::World(World {
        placeable: [NodeId(1)].into(),
        ..world(&[true; 3])
    }));
    bench.ask(1, &[1]);
    bench.input(Input::World(world(&[true; 3])));
    let meta = |bench: &Bench| decode_meta(&bench.store.rows[&keys::meta(&channel(1))]).unwrap();
    for voters in 2..=3 {
        bench.ask(10 + voters, &[1]);
        assert!(bench.resolved[&Token(10 + voters)][0].1.is_ok());
        let learner = meta(&bench).learners[0].node;
        let report = |report| Input::Report {
            channel: channel(1),
            report,
        };
        let leader_epoch = meta(&bench).leader_epoch;
        for leader_epoch in [LeaderEpoch(leader_epoch.0 - 1), leader_epoch] {
            assert!(meta(&bench).previous.is_none());
            bench.input(report(Report::CaughtUp {
                learner,
                leader_epoch,
            }));
        }
        let joint = meta(&bench);
        assert_eq!(
            (joint.voters.isr.len() as u64, joint.previous.is_some()),
            (voters, true)
        );
        let stale = LeaderEpoch(joint.leader_epoch.0 - 1);
        bench.input(report(Report::BothQuorums { leader_epoch: stale }));
        assert!(meta(&bench).previous.is_some());
        let leader_epoch = joint.leader_epoch;
        bench.input(report(Report::BothQuorums { leader_epoch }));
        assert!(meta(&bench).previous.is_none());
    }
}

/// R30: whoever withholds its evidence gets one newer epoch, however often it asks, and does not lead it.
#[test]
fn a_replica_that_needs_an_epoch_gets_one() {
    let mut bench = Bench::new();
    bench.ask(1, &[1]);
    let meta = |bench: &Bench| decode_meta(&bench.store.rows[&keys::meta(&channel(1))]).unwrap();
    let before = meta(&bench);
    let node = before.leader.unwrap().node;
    for _ in 0..3 {
        bench.input(Input::Report {
            channel: channel(1),
            report: Report::Withheld {
                node,
                epoch: before.leader_epoch.next(),
            },
        });
    }
    let granted = meta(&bench);
    assert_eq!(granted.leader_epoch, before.leader_epoch.next());
    assert_ne!(granted.leader.unwrap().node, node);
    assert_eq!(granted.voters, before.voters);
}
