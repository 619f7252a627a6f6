//! One node: its process (the production shards), its disk, its clocks.

use crate::disk::{SimDisk, Sync};
use crate::rng::Rng;
use bytes::Bytes;
use penstock_core::effect::Event;
use penstock_core::rows::{Instance, Key};
use penstock_core::shard::{Image, Shard, group_shard};
use penstock_core::types::{GroupId, NodeId, Now, ProcessBoot, SlotId};
use std::collections::VecDeque;
use std::time::Duration;

/// Wall time at the start of every run, ms since 1970.
const WALL_START_MS: u64 = 1_900_000_000_000;

/// The clocks of a node. The monotonic one drifts, the wall clock also jumps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// When the process started.
    pub started: Duration,
    /// Parts of a million by which the monotonic clock is fast.
    pub drift_ppm: i64,
    /// How far the wall clock is off, ms.
    pub wall_offset_ms: i64,
}

impl Clock {
    /// What the node reads at a true time.
    #[must_use]
    pub fn read(&self, now: Duration) -> Now {
        let true_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        Now {
            monotonic: scale(
                now.saturating_sub(self.started),
                1_000_000 + self.drift_ppm,
                1_000_000,
            ),
            wall_ms: (WALL_START_MS + true_ms).saturating_add_signed(self.wall_offset_ms),
        }
    }

    /// The first true time at which the node's monotonic clock shows `deadline`.
    #[must_use]
    pub fn when(&self, deadline: Duration) -> Duration {
        let span = scale(deadline, 1_000_000, 1_000_000 + self.drift_ppm);
        // Both scales round down: one microsecond more is late enough.
        self.started
            .saturating_add(span)
            .saturating_add(Duration::from_micros(1))
    }
}

fn scale(time: Duration, numerator: i64, denominator: i64) -> Duration {
    let nanoseconds = i128::try_from(time.as_nanos()).unwrap_or(i128::MAX >> 32);
    let scaled = nanoseconds.min(1 << 80) * i128::from(numerator) / i128::from(denominator);
    Duration::from_nanos(u64::try_from(scaled).unwrap_or(u64::MAX))
}

/// A shard in its process, with what waits for it.
pub struct Host {
    /// The production value.
    pub shard: Shard,
    /// Events that wait, in order.
    pub mailbox: VecDeque<Event>,
    /// How many of them could have been refused.
    pub admissions: usize,
    /// Until when it is at work.
    pub busy_until: Duration,
    /// Whether a look at the mailbox is on the way.
    pub draining: bool,
    /// True time of the timer that is set, if any.
    pub timer: Option<Duration>,
    /// When the last message from inside the node arrives.
    pub last_inside: Duration,
    /// Until when every event takes long.
    pub slow_until: Duration,
    /// Times in a row that the deadline was reached without any time passing.
    pub stuck: u32,
}

/// The syncer of one store instance: group commit over all shards (M-9).
#[derive(Debug, Default)]
pub struct Syncer {
    /// The running sync, if any.
    pub running: Option<Sync>,
}

/// What a node is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its process runs.
    Running,
    /// It runs but stands still.
    Paused,
    /// No process.
    Down,
}

/// A node.
pub struct Node {
    /// Its id.
    pub id: NodeId,
    /// Boot of the present process; the disk knows its own.
    pub process: ProcessBoot,
    /// Rises with every start and end of a process: what was meant for an older one is dropped.
    pub life: u32,
    /// What it is doing.
    pub state: State,
    /// Its shards; empty while it is down.
    pub hosts: Vec<Host>,
    /// Its disk.
    pub disk: SimDisk,
    /// Its clocks.
    pub clock: Clock,
    /// One syncer per instance.
    pub syncers: [Syncer; 2],
    /// What happens to a paused node waits here.
    pub held: Vec<super::Happening>,
    /// What the disk held some time ago: only for a planted bug that opens an old log as if it were whole.
    pub earlier: Option<SimDisk>,
    /// Until when syncs take long.
    pub slow_until: Duration,
}

impl Node {
    /// The syncer of an instance.
    pub fn syncer(&mut self, instance: Instance) -> &mut Syncer {
        match instance {
            Instance::Meta => &mut self.syncers[0],
            Instance::Data => &mut self.syncers[1],
        }
    }

    /// What the disk holds for a shard at the start of its process.
    #[must_use]
    pub fn image(&self, shard: u16, shards: u16) -> Image {
        let groups = self
            .disk
            .groups()
            .into_iter()
            .filter(|&group| group_shard(group, shards) == shard);
        Image {
            groups: groups.map(|group| (group, self.group_rows(group))).collect(),
            node: Vec::new(),
        }
    }

    fn group_rows(&self, group: GroupId) -> Vec<(Key, Bytes)> {
        let image = self.disk.group_image(group);
        let single = [
            (Key::RaftState { group }, image.state),
            (Key::Applied { group }, image.applied),
            (Key::Install { group }, image.install),
        ];
        let entries = image
            .entries
            .into_iter()
            .map(|(index, row)| (Key::RaftEntry { group, index }, row));
        single
            .into_iter()
            .filter_map(|(key, row)| row.map(|row| (key, row)))
            .chain(entries)
            .collect()
    }

    /// The slots of a group, as the process knows them; none while it is down or does not know.
    #[must_use]
    pub fn slots_of(&self, group: GroupId) -> Vec<SlotId> {
        self.hosts
            .first()
            .map(|host| host.shard.slots_of(group))
            .unwrap_or_default()
    }

    /// New clocks for a process that starts.
    pub fn start_clock(&mut self, now: Duration, drift_ppm: u32, rng: &mut Rng) {
        let spread = i64::from(drift_ppm);
        let drift = i64::try_from(rng.below(u64::from(drift_ppm) * 2 + 1)).unwrap_or(0) - spread;
        self.clock = Clock {
            started: now,
            drift_ppm: drift,
            ..self.clock
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_has_passed_when_its_timer_rings() {
        for drift_ppm in [-20_000, -1, 0, 7, 20_000] {
            let clock = Clock {
                started: Duration::from_millis(1_234),
                drift_ppm,
                wall_offset_ms: -5,
            };
            for nanoseconds in [0, 1, 999, 1_000_003, 77_000_000_123] {
                let deadline = Duration::from_nanos(nanoseconds);
                let ring = clock.when(deadline);
                assert!(
                    clock.read(ring).monotonic >= deadline,
                    "{drift_ppm} {nanoseconds}"
                );
                assert!(ring < clock.started + deadline * 2 + Duration::from_micros(2));
            }
        }
    }
}
