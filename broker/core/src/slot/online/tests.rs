//! The machine over real rows: what it proposes is applied as a group would.

use super::*;
use crate::patience::Patience;
use crate::replicated::{Overlay, StateMachine as _};
use crate::rows::{Page, ReadRequest, Row, Table, Write};
use crate::slot::fsm;
use std::collections::VecDeque;

#[derive(Default)]
struct Store(BTreeMap<Key, Row>);

impl Rows for Store {
    fn row(&self, key: &Key) -> Result<Option<Row>, Miss> {
        Ok(self.0.get(key).cloned())
    }
}

struct World {
    machine: OnlineStatus,
    store: Store,
    now: Now,
    delivered: Vec<Delivery>,
    dropped: u64,
    /// Who is online, as the authority knows it; none while it does not.
    online: Option<Vec<OnlineSession>>,
    /// Commands that are applied.
    commands: usize,
}

fn amy() -> Uid {
    Uid::new("amy")
}

fn session(connection: u64) -> OnlineSession {
    OnlineSession {
        node: 1,
        process: 7,
        connection,
        owner_seq: 1,
        flag: 0,
    }
}

fn change(connection: u64, online: bool) -> Input {
    Input::Changed {
        slot: amy().slot(),
        change: SessionChange {
            uid: amy(),
            session: session(connection),
            online,
        },
    }
}

fn readers(revision: u64, wanted: bool) -> Input {
    let one: &[(&str, u64)] = &[("crm", 3)];
    told(revision, if wanted { one } else { &[] })
}

/// These bindings are told.
fn told(revision: u64, bindings: &[(&str, u64)]) -> Input {
    let reader = |(binding, incarnation): &(&str, u64)| Reader {
        binding: Arc::from(*binding),
        incarnation: *incarnation,
        uids: BTreeSet::new(),
        enabled: true,
        patience: Patience {
            first: Duration::from_secs(1),
            longest: Duration::from_secs(8),
            total: Duration::from_secs(60),
        },
        attempts_max: 0,
    };
    Input::Readers(Readers {
        revision,
        all: bindings.iter().map(reader).collect(),
    })
}

impl World {
    fn new(faults: Faults) -> World {
        World {
            machine: OnlineStatus::new(vec![amy().slot()], faults),
            store: Store::default(),
            now: Now {
                monotonic: Duration::from_secs(1),
                wall_ms: 1_000,
            },
            delivered: Vec::new(),
            dropped: 0,
            online: Some(Vec::new()),
            commands: 0,
        }
    }

    /// Led, with one reader.
    fn told() -> World {
        let mut world = World::new(Faults::default());
        world.run(Input::Leads(Some(Term(1))));
        world.run(readers(5, true));
        world.wait(1_000);
        world
    }

    fn run(&mut self, input: Input) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let mut out = Vec::new();
            let done = self.machine.handle(self.now, input, &self.store, &mut out);
            done.expect("no row is far");
            for output in out {
                inputs.extend(self.answer(output));
            }
        }
    }

    /// Takes these inputs before anything that follows from them is done.
    fn run_at_once(&mut self, inputs: Vec<Input>) {
        let mut out = Vec::new();
        for input in inputs {
            let done = self.machine.handle(self.now, input, &self.store, &mut out);
            done.expect("no row is far");
        }
        for output in out {
            if let Some(input) = self.answer(output) {
                self.run(input);
            }
        }
    }

    /// Statuses that are under way, without the number of the session.
    fn statuses(&self) -> Vec<String> {
        let all = self.delivered.iter().flat_map(|delivery| &delivery.statuses);
        let of = |status: &String| status.replace(&format!("-{}-", number_of(&session(1))), "-s-");
        all.map(of).collect()
    }

    fn answer(&mut self, output: Output) -> Option<Input> {
        match output {
            Output::Propose { token, command } => {
                let result = Ok(self.apply(&command));
                Some(Input::Proposed { token, result })
            }
            Output::Read { token, request } => {
                let ReadRequest::SlotRows { table, after, .. } = request else {
                    panic!("{request:?}");
                };
                assert_eq!((table, after), (Table::OnlineUser, None));
                let rows = self.store.0.iter().filter_map(|(key, row)| match key {
                    Key::Slot { table, key, .. } if *table == Table::OnlineUser => {
                        Some((*table, key.clone(), row.clone()))
                    }
                    _ => None,
                });
                let rows = rows.collect();
                let page = Page::Rows { rows, more: false };
                Some(Input::ReadDone { token, page })
            }
            Output::WhoIsOnline { slot, .. } => Some(Input::Online {
                slot,
                sessions: self.online.clone(),
            }),
            Output::Deliver(delivery) => {
                self.delivered.push(delivery);
                None
            }
            Output::Dropped(events) => {
                self.dropped += events;
                None
            }
            Output::Work => Some(Input::Work),
        }
    }

    fn apply(&mut self, command: &[u8]) -> Reply {
        self.commands += 1;
        let machine = fsm::Machine::new([amy().slot()]);
        let mut overlay = Overlay::new(&self.store);
        let applied = machine.apply(command, &mut overlay).expect("applied");
        for write in overlay.into_writes() {
            match write {
                Write::Put { key, value } => self.store.0.insert(key, value),
                Write::Delete { key } => self.store.0.remove(&key),
                other => panic!("apply never makes {other:?}"),
            };
        }
        applied.reply
    }

    fn wait(&mut self, millis: u64) {
        self.now.monotonic += Duration::from_millis(millis);
        self.now.wall_ms += millis;
        while self
            .machine
            .next_deadline()
            .is_some_and(|at| at <= self.now.monotonic)
        {
            self.run(Input::Work);
        }
    }

    /// The deliveries since the last time: number, and whether each event is online.
    fn deliveries(&mut self) -> Vec<(u64, Vec<bool>)> {
        let online = |status: &String| status.split('-').nth(2) == Some("1");
        let line = |delivery: &Delivery| (delivery.number, delivery.statuses.iter().map(online).collect());
        let lines = self.delivered.iter().map(line).collect();
        self.delivered.drain(..self.delivered.len().saturating_sub(1));
        lines
    }

    fn returned(&mut self, outcome: Outcome) {
        let delivery = self.delivered.pop().expect("something is under way");
        self.run(Input::Returned {
            slot: delivery.slot,
            token: delivery.token,
            outcome,
        });
    }
}

#[test]
fn changes_become_batches_that_come_until_they_are_taken_and_in_order() {
    let mut world = World::told();
    world.run(change(1, true));
    world.wait(200);
    assert_eq!(world.deliveries(), [(1, vec![true])]);
    let expected = format!("amy-0-1-{}-1-1", number_of(&session(1)));
    assert_eq!(world.delivered[0].statuses, [expected]);
    // What comes meanwhile is gathered.
    world.run(change(2, true));
    world.wait(200);
    world.run(change(1, false));
    world.wait(200);
    world.returned(Outcome::Failed { after: None });
    assert_eq!(world.deliveries(), []);
    world.wait(1_000);
    assert_eq!(world.deliveries(), [(1, vec![true])], "it comes again");
    world.returned(Outcome::Done);
    assert_eq!(world.deliveries(), [(2, vec![true, false])]);
    world.returned(Outcome::Done);
    let count = |table| {
        let of = |key: &&Key| matches!(key, Key::Slot { table: of, .. } if *of == table);
        world.store.0.keys().filter(of).count()
    };
    assert_eq!(count(Table::OnlineQueue), 1, "what is done goes");
    let commands = world.commands;
    world.wait(60_000);
    assert_eq!((world.commands, world.dropped), (commands, 0));
}

#[test]
fn a_new_leader_tells_what_ended_meanwhile_and_nothing_that_was_told() {
    let mut world = World::told();
    world.run(change(1, true));
    world.run(change(2, true));
    world.wait(200);
    world.returned(Outcome::Done);
    world.run(Input::Leads(None));
    world.run(change(2, false));
    // Only the first one announces itself to the next leader, which does not know at once that this is all.
    world.online = None;
    let commands = world.commands;
    world.run(Input::Leads(Some(Term(2))));
    world.run(change(1, true));
    world.wait(2_000);
    assert_eq!((world.deliveries(), world.commands), (vec![], commands));
    world.online = Some(vec![session(1)]);
    world.wait(1_000);
    world.wait(200);
    assert_eq!(world.deliveries(), [(2, vec![false])]);
    let expected = format!("amy-0-0-{}-1-1", number_of(&session(2)));
    assert_eq!(world.delivered[0].statuses, [expected]);
}

#[test]
fn an_outage_gives_a_batch_up_when_its_time_is_over() {
    let mut world = World::told();
    world.run(change(1, true));
    world.wait(200);
    for _ in 0..10 {
        world.returned(Outcome::Failed { after: None });
        world.wait(8_000);
        if world.delivered.is_empty() {
            break;
        }
    }
    assert!(world.delivered.is_empty(), "it is not tried any more");
    assert_eq!(world.dropped, 1);
    world.run(change(1, false));
    world.wait(200);
    assert_eq!(world.deliveries(), [(2, vec![false])]);
}

#[test]
fn nothing_is_written_while_nobody_is_told_and_nothing_is_left_afterwards() {
    let mut world = World::new(Faults::default());
    world.run(Input::Leads(Some(Term(1))));
    world.run(readers(4, false));
    world.run(change(1, true));
    world.wait(1_000);
    assert_eq!((world.commands, world.store.0.len()), (0, 0));
    assert_eq!(world.machine.next_deadline(), None);
    world.run(readers(5, true));
    world.run(change(1, true));
    world.wait(1_000);
    assert_eq!(world.store.0.len(), 3);
    world.run(readers(6, false));
    world.wait(1_000);
    world.wait(1_000);
    assert_eq!(world.store.0.len(), 1, "numbers of batches are never given twice");
    assert!(world.machine.slots.is_empty());
}

/// Whoever is the first to be told hears of the sessions that are open, also when others were told until just now.
#[test]
fn who_comes_in_place_of_the_last_one_hears_of_the_sessions_that_are_open() {
    for (between, told_at_once) in [(true, true), (true, false), (false, true)] {
        let mut world = World::told();
        world.run(change(1, true));
        world.wait(200);
        world.returned(Outcome::Done);
        world.online = Some(vec![session(1)]);
        // The authority tells of all sessions when somebody is to be told again.
        let mut inputs = vec![told(7, &[("erp", 7)]), change(1, true)];
        if between {
            inputs.insert(0, told(6, &[]));
        }
        if told_at_once {
            world.run_at_once(inputs);
        } else {
            inputs.into_iter().for_each(|input| world.run(input));
        }
        world.wait(1_000);
        assert_eq!(world.statuses(), ["amy-0-1-s-1-1"], "{between} {told_at_once}");
        world.returned(Outcome::Done);
        world.run(change(1, false));
        world.wait(200);
        assert_eq!(world.statuses(), ["amy-0-0-s-0-0"]);
        world.returned(Outcome::Done);
        // A further one is no other audience.
        world.run(change(1, true));
        world.wait(200);
        world.returned(Outcome::Done);
        world.run(told(8, &[("erp", 7), ("late", 8)]));
        world.run(change(1, true));
        world.wait(1_000);
        assert_eq!(world.statuses(), Vec::<String>::new());
        // Nothing of another audience is left in the end.
        world.run(told(9, &[]));
        world.wait(2_000);
        assert_eq!(world.store.0.len(), 1);
    }
}

/// One that did not want to be told for a moment has missed nothing, and hears of no end that was none.
#[test]
fn who_changes_its_mind_hears_of_nothing_that_has_not_happened() {
    let mut world = World::told();
    world.run(change(1, true));
    world.wait(200);
    world.returned(Outcome::Done);
    world.online = Some(vec![session(1)]);
    // The rows are about to go, and the command is not made yet.
    world.run_at_once(vec![readers(6, false), Input::Work]);
    world.run_at_once(vec![readers(7, true), change(1, true)]);
    world.wait(1_000);
    let ended = world
        .statuses()
        .into_iter()
        .filter(|status| status.contains("-0-0-"));
    assert_eq!(ended.count(), 0, "{:?}", world.statuses());
    assert!(world.store.0.keys().any(|key| matches!(
        key,
        Key::Slot {
            table: Table::OnlineUser,
            ..
        }
    )));
}

#[test]
fn of_too_many_changes_the_oldest_are_dropped_and_counted() {
    let mut world = World::told();
    for connection in 0..=CHANGES_MAX as u64 {
        world.run(change(connection, true));
    }
    assert_eq!(world.dropped, 1);
}
