//! `fsm_apply`: committed commands, of any bytes and in any order, to the state machines of slot groups and of the controller.
//!
//! Two replicas that are fed alike end alike, though one applies command by command and the other in batches with rows that must
//! be loaded first; a third that is made of a snapshot in between ends alike too. Nothing is touched of slots that are not the
//! group's, a rejected command leaves nothing behind, and the machine reads every row that it wrote.

mod commands;
mod online;

use crate::input::Input;
use bytes::Bytes;
use penstock_core::codec::COMMAND_VERSION;
use penstock_core::controller::{self, View};
use penstock_core::replicated::{Applied, Halt, Overlay, Reply, StateMachine};
use penstock_core::rows::{CONTROLLER_SLOT, Instance, Key, Miss, Page, ReadRequest, Row, Rows, Table, Write};
use penstock_core::slot::fsm;
use penstock_core::types::{DiskBoot, SLOT_COUNT, SlotId, Ticket};
use penstock_sim::disk::{Misses, SimDisk};
use penstock_wire::storage::v1;
use prost::Message as _;
use std::collections::BTreeSet;

pub use commands::seeds;

/// Most commands of one input.
const COMMANDS_MAX: usize = 32;

/// Runs one input.
///
/// # Panics
/// When something does not hold.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    if input.rarely(3) {
        let machine = controller::Machine;
        replicate(
            &mut input,
            &machine,
            &BTreeSet::from([CONTROLLER_SLOT]),
            commands::controller,
        );
    } else {
        // Three quarters of the slots: most names are the group's, some are not.
        let slots: BTreeSet<SlotId> = (0..SLOT_COUNT).filter(|slot| slot % 4 != 3).map(SlotId).collect();
        let machine = fsm::Machine::new(slots.iter().copied());
        replicate(&mut input, &machine, &slots, commands::slot);
    }
}

/// One replica: its rows, and the answers that it gave.
struct Replica {
    disk: SimDisk,
    ticket: u64,
    answers: Vec<Result<Applied, Halt>>,
}

impl Replica {
    fn new() -> Replica {
        Replica {
            disk: SimDisk::new(DiskBoot(1)),
            ticket: 0,
            answers: Vec::new(),
        }
    }

    fn write(&mut self, writes: &[Write]) {
        self.ticket += 1;
        self.disk
            .write(Instance::Meta, 0, Ticket(self.ticket), writes)
            .expect("a disk without faults");
    }

    /// Applies these commands in one batch. A group that stopped applies nothing more.
    fn apply(&mut self, machine: &dyn StateMachine, batch: &[Bytes], slots: &BTreeSet<SlotId>, misses: bool) {
        let mut loaded = Vec::new();
        loop {
            let rows = Slow {
                disk: &self.disk,
                loaded: &loaded,
                misses,
            };
            let mut overlay = Overlay::new(&rows);
            let mut answers = Vec::new();
            let missed = fill(machine, batch, &mut overlay, &mut answers);
            if let Some(Miss(keys)) = missed {
                assert!(
                    keys.iter().any(|key| !loaded.contains(key)),
                    "a miss that was loaded: {keys:?}"
                );
                loaded.extend(keys);
                continue;
            }
            let writes = overlay.into_writes();
            let changed = answers.iter().any(
                |answer| matches!(answer, Ok(Applied { reply, .. }) if !matches!(reply, Reply::Rejected(_))),
            );
            assert!(changed || writes.is_empty(), "a rejected command left {writes:?}");
            for write in &writes {
                let (Write::Put { key, .. } | Write::Delete { key }) = write else {
                    panic!("apply writes rows only: {write:?}");
                };
                assert!(
                    matches!(key, Key::Slot { slot, .. } if slots.contains(slot)),
                    "not the group's: {key:?}"
                );
            }
            self.write(&writes);
            self.answers.extend(answers);
            return;
        }
    }

    fn is_stopped(&self) -> bool {
        self.answers.last().is_some_and(Result::is_err)
    }
}

/// Applies commands until one halts; a miss is given back, for all of them to come again.
fn fill(
    machine: &dyn StateMachine,
    batch: &[Bytes],
    overlay: &mut Overlay<'_>,
    answers: &mut Vec<Result<Applied, Halt>>,
) -> Option<Miss> {
    for command in batch {
        if let Err(miss) = overlay.prefetch(machine.keys(command)) {
            return Some(miss);
        }
        match machine.apply(command, overlay) {
            Err(Halt::Miss(miss)) => return Some(miss),
            Err(stop) => {
                let version = v1::Command::decode(command.as_ref()).map(|command| command.version);
                assert!(
                    version.is_ok_and(|version| version != COMMAND_VERSION),
                    "stopped by a known command: {stop:?}"
                );
                answers.push(Err(stop));
                return None;
            }
            applied => answers.push(applied),
        }
    }
    None
}

/// Rows of which none is in memory before it was loaded.
struct Slow<'a> {
    disk: &'a SimDisk,
    loaded: &'a [Key],
    misses: bool,
}

impl Rows for Slow<'_> {
    fn row(&self, key: &Key) -> Result<Option<Row>, Miss> {
        if self.misses && !self.loaded.contains(key) {
            return Err(Miss(vec![key.clone()]));
        }
        self.disk.rows(Misses::default()).row(key)
    }
}

type Rowset = Vec<(SlotId, Table, Bytes, Bytes)>;

/// All rows of these slots, read as a snapshot reads them.
fn rows(disk: &SimDisk, slots: &BTreeSet<SlotId>, bytes_max: u32) -> Rowset {
    let mut all = Vec::new();
    for &slot in slots {
        let mut after = None;
        loop {
            let page = disk.read(&ReadRequest::SnapshotRows {
                slot,
                after,
                bytes_max,
            });
            let Page::Rows { rows, more } = page else {
                panic!("no answer to the question: {page:?}");
            };
            after = rows.last().map(|(table, key, _)| (*table, key.clone()));
            all.extend(
                rows.into_iter()
                    .map(|(table, key, value)| (slot, table, key, value)),
            );
            if !more {
                break;
            }
            assert!(after.is_some(), "a page without rows has no next one");
        }
    }
    all
}

/// A replica made of another's rows, as an installed snapshot makes it (M-10).
fn restored(from: &Replica, slots: &BTreeSet<SlotId>, bytes_max: u32) -> Replica {
    let mut to = Replica::new();
    let slots: Vec<SlotId> = slots.iter().copied().collect();
    to.write(&[Write::ClearStaged { slots: slots.clone() }]);
    for (slot, table, key, value) in rows(&from.disk, &slots.iter().copied().collect(), bytes_max) {
        to.write(&[Write::Put {
            key: Key::Staged { slot, table, key },
            value,
        }]);
    }
    to.write(&[Write::FlipGeneration { slots }]);
    to
}

fn replicate(
    input: &mut Input<'_>,
    machine: &dyn StateMachine,
    slots: &BTreeSet<SlotId>,
    make: fn(&mut Input<'_>, &SimDisk) -> Bytes,
) {
    let (mut one_by_one, mut batched) = (Replica::new(), Replica::new());
    let mut third: Option<(usize, Replica)> = None;
    let mut batch = Vec::new();
    let mut touched = slots.clone();
    for number in 0..COMMANDS_MAX {
        if input.is_empty() || one_by_one.is_stopped() {
            break;
        }
        let command = command(input, &one_by_one.disk, make);
        one_by_one.apply(machine, std::slice::from_ref(&command), slots, false);
        if let Some((_, third)) = &mut third {
            third.apply(machine, std::slice::from_ref(&command), slots, true);
        }
        batch.push(command);
        if input.rarely(4) || one_by_one.is_stopped() {
            batched.apply(machine, &batch, slots, true);
            batch.clear();
        }
        if third.is_none() && input.rarely(8) {
            let bytes_max = 1 + u32::from(input.u8()) * 4;
            third = Some((number + 1, restored(&one_by_one, slots, bytes_max)));
        }
    }
    batched.apply(machine, &batch, slots, true);
    assert_eq!(
        batched.answers, one_by_one.answers,
        "batches and misses change no answer"
    );
    touched.insert(CONTROLLER_SLOT);
    let end = rows(&one_by_one.disk, &touched, u32::MAX);
    assert_eq!(
        rows(&batched.disk, &touched, u32::MAX),
        end,
        "batches and misses change no row"
    );
    if let Some((from, third)) = third {
        assert_eq!(
            third.answers,
            one_by_one.answers[from..],
            "a restored replica answers alike"
        );
        assert_eq!(
            rows(&third.disk, &touched, 1),
            end,
            "a restored replica ends alike"
        );
    }
    readable(&end);
}

/// A command; sometimes with a changed byte, or bytes of which only version and time are right.
fn command(input: &mut Input<'_>, disk: &SimDisk, make: fn(&mut Input<'_>, &SimDisk) -> Bytes) -> Bytes {
    match input.below(16) {
        0 => Bytes::from([&[0x08, 1, 0x10, 5][..], input.chunk()].concat()),
        1 => Bytes::copy_from_slice(input.chunk()),
        2 => {
            let mut changed = make(input, disk).to_vec();
            let at = usize::from(input.u8()) % changed.len().max(1);
            changed[at] = input.u8();
            Bytes::from(changed)
        }
        _ => make(input, disk),
    }
}

/// What was written can be read by whoever reads it.
fn readable(rows: &Rowset) {
    let of_controller: Vec<(Table, Bytes, Bytes)> = rows
        .iter()
        .filter(|(slot, ..)| *slot == CONTROLLER_SLOT)
        .map(|(_, table, key, value)| (*table, key.clone(), value.clone()))
        .collect();
    let view = View::from_rows(&of_controller).expect("the controller's rows make a view");
    assert_eq!(view.is_some(), !of_controller.is_empty());
}
