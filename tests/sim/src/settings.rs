//! What one seed's cluster is like: sizes, bounds, speeds and the weights of its faults. Bounds are drawn tiny, so that
//! each of them is met (M-21).

use crate::faults::Weights;
use crate::network::Conditions;
use crate::rng::{Rng, Stream};
use penstock_core::limits::Limits;
use std::time::Duration;

/// Salt of the stream from which settings are drawn that belong to aimed faults.
const AIMED_SETTINGS: u64 = 10;

/// Everything that is drawn before a run starts.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The seed.
    pub seed: u64,
    /// Nodes of the cluster.
    pub nodes: usize,
    /// Shards of a node.
    pub shards: u16,
    /// Slot groups.
    pub groups: u32,
    /// Events that wait for a shard before admissions are refused (M-14).
    pub mailbox: usize,
    /// Bounds of the core.
    pub limits: Limits,
    /// Half of all syncs are faster than this.
    pub sync_latency: Duration,
    /// Half of all reads are faster than this.
    pub read_latency: Duration,
    /// How long a shard takes for one event.
    pub handling: Duration,
    /// Point reads of 1,000 that miss memory.
    pub miss_permille: u16,
    /// How the network behaves.
    pub network: Conditions,
    /// Which faults come, and how often.
    pub faults: Weights,
    /// When faults stop.
    pub chaos: Duration,
    /// How long the cluster may take to converge after that.
    pub convergence: Duration,
    /// Users.
    pub users: usize,
    /// Group channels.
    pub groups_of_users: usize,
    /// Time between two things that a user does.
    pub pause_between_actions: Duration,
    /// Whether tokens are checked.
    pub tokens: bool,
    /// How long a client goes on retrying a send.
    pub patience: Duration,
    /// Largest jump of a wall clock.
    pub clock_jump: Duration,
    /// The faults end with a power cut of all nodes, and nobody comes back until what follows the channels is through by itself.
    pub silent: bool,
}

impl Settings {
    /// Draws the settings of a seed.
    #[must_use]
    pub fn draw(seed: u64, nodes: usize) -> Settings {
        let rng = &mut Rng::new(seed, Stream::Settings);
        let shards = rng.pick(&[1, 1, 2, 4]);
        let mut limits = limits(rng);
        // A stream of its own: what is drawn here moves nothing else.
        let aimed = &mut Rng::salted(seed, AIMED_SETTINGS);
        let seconds = Duration::from_secs;
        limits.replace_after = aimed.pick(&[seconds(600), seconds(3), seconds(8)]);
        limits.channel_openings_max = aimed.pick(&[1, 2, 1_024]);
        limits.channel_tails_bytes = aimed.pick(&[0, 64 << 20]);
        let late_permille = aimed.pick(&[0, 5, 100]);
        let quick = Duration::from_micros(100);
        // Keys that are forgotten early must not be forgotten while a client still retries; a clock that jumps by more
        // than the difference would make the cluster forget them rightly.
        let short_window = limits.dedupe_window < Duration::from_secs(3_600);
        Settings {
            seed,
            nodes,
            shards,
            groups: rng.pick(&[1, 2, 3, 4]),
            mailbox: rng.pick(&[2, 2, 16, 1_024]),
            limits,
            sync_latency: rng.pick(&[quick, quick * 5, quick * 30]),
            read_latency: rng.pick(&[quick / 4, quick * 2]),
            handling: rng.pick(&[quick / 100, quick / 10]),
            miss_permille: rng.pick(&[0, 20, 200]),
            network: conditions(rng, late_permille),
            faults: Weights::draw(seed, rng, nodes),
            chaos: Duration::from_secs(rng.between(58, 70)),
            convergence: Duration::from_secs(30),
            users: rng.between(6, 12) as usize,
            groups_of_users: rng.between(2, 4) as usize,
            pause_between_actions: Duration::from_millis(rng.between(200, 600)),
            tokens: rng.permille(300),
            patience: if short_window {
                Duration::from_secs(15)
            } else {
                Duration::from_secs(600)
            },
            clock_jump: if short_window {
                Duration::from_secs(5)
            } else {
                Duration::from_secs(600)
            },
            silent: aimed.permille(400),
        }
    }
}

fn conditions(rng: &mut Rng, late_permille: u32) -> Conditions {
    Conditions {
        latency: Duration::from_micros(rng.pick(&[100, 500, 5_000])),
        loss_permille: rng.pick(&[0, 0, 5, 50]),
        duplicate_permille: rng.pick(&[0, 5, 50]),
        reorder_permille: rng.pick(&[0, 5, 50]),
        late_permille,
    }
}

fn limits(rng: &mut Rng) -> Limits {
    let seconds = Duration::from_secs;
    let milliseconds = Duration::from_millis;
    let mut limits = Limits {
        raft_compact_entries: rng.pick(&[16, 64, 64, 1_000]),
        snapshot_chunk_bytes: rng.pick(&[256, 4_096, 256 << 10]),
        channel_tail_records: rng.pick(&[4, 16, 256]),
        replicate_bytes: rng.pick(&[600, 4_096, 256 << 10]),
        link_credit_bytes: rng.pick(&[4_096, 64 << 10, 8 << 20]),
        channel_idle: rng.pick(&[seconds(1), seconds(3), seconds(300)]),
        channel_backlog: rng.pick(&[8, 64, 1_024]),
        append_timeout: rng.pick(&[seconds(2), seconds(5)]),
        dedupe_window: rng.pick(&[seconds(60), seconds(24 * 3_600), seconds(24 * 3_600)]),
        request_timeout: rng.pick(&[seconds(1), seconds(3)]),
        large_group_members: rng.pick(&[3, 500]),
        delivery_page: rng.pick(&[3, 3, 512]),
        delivery_run: rng.pick(&[4, 8, 128]),
        unacknowledged_max: rng.pick(&[4, 16, 1_024]),
        unacknowledged_patience: rng.pick(&[milliseconds(20), milliseconds(200), seconds(2)]),
        reoffer_interval: rng.pick(&[seconds(2), seconds(5), seconds(20)]),
        session_sends_max: rng.pick(&[16, 1_024]),
        activation_timeout: rng.pick(&[seconds(1), seconds(3)]),
        route_lease: rng.pick(&[seconds(12), seconds(90)]),
        touch_interval: seconds(3),
        cursor_interval: rng.pick(&[milliseconds(50), seconds(1)]),
        command_uids_max: rng.pick(&[2, 5, 1_000]),
        history_bytes_max: rng.pick(&[400, 8 << 20]),
        // What is over must be seen to be over at the end of a run: long pauses would outlast it.
        webhook_pause_first: rng.pick(&[milliseconds(50), milliseconds(500)]),
        webhook_pause_max: rng.pick(&[seconds(1), seconds(5)]),
        ..Limits::default()
    };
    // A heartbeat every two ticks and an election after ten: the ratio of production, sometimes slower.
    limits.raft_tick = rng.pick(&[
        milliseconds(100),
        milliseconds(100),
        milliseconds(50),
        milliseconds(30),
    ]);
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_repeat_and_differ() {
        let one = format!("{:?}", Settings::draw(1, 3));
        assert_eq!(one, format!("{:?}", Settings::draw(1, 3)));
        assert_ne!(one, format!("{:?}", Settings::draw(2, 3)));
    }

    #[test]
    fn clients_give_up_before_their_keys_are_forgotten() {
        for seed in 0..200 {
            let settings = Settings::draw(seed, 3);
            assert!(settings.patience + settings.clock_jump * 4 < settings.limits.dedupe_window);
        }
    }
}
