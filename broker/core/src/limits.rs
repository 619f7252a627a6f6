//! Every bound of the core in one place. Production takes the defaults, configuration changes some, and the simulator
//! draws tiny ones by seed so that bounds are met (M-21).

use std::time::Duration;

/// Bytes of committed records that a channel may always keep in memory: what was just committed is read for its delivery.
pub const TAIL_BYTES_MIN: usize = 4 << 10;

/// Bounds and intervals of a node. All of them are plain numbers, checked once by the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Raft: entries kept in memory since the last compaction before a new one is made.
    pub raft_compact_entries: u64,
    /// Raft: bytes of a group's log before a compaction is made (M-12).
    pub raft_compact_bytes: u64,
    /// Raft: interval of a tick (M-5: at most 50 ms).
    pub raft_tick: Duration,
    /// Raft: ticks of silence before an election; the drawn offset comes on top.
    pub raft_election_ticks: usize,
    /// Raft: ticks between heartbeats.
    pub raft_heartbeat_ticks: usize,
    /// Raft: largest proposal, bytes (F14).
    pub proposal_bytes_max: usize,
    /// Raft: proposals waiting in one group, ordinary lane (SL-6).
    pub proposals_max: usize,
    /// Raft: proposals waiting in one group, lane of grants, fences and placement (SL-9).
    pub proposals_reserved_max: usize,
    /// Snapshot chunk, bytes (SL-7).
    pub snapshot_chunk_bytes: u32,
    /// Node link: interval of heartbeats (M-5).
    pub heartbeat: Duration,
    /// Node link: silence after which a node counts as dead (M-5).
    pub node_dead_after: Duration,
    /// Channel: silence of a voter's node after which another node takes its place.
    pub replace_after: Duration,
    /// Channel: records kept in memory behind the log end for followers and readers.
    pub channel_tail_records: usize,
    /// Channel: bytes that the records of all channels of one shard may take in memory. Each channel has its share of it, and at
    /// least [`TAIL_BYTES_MIN`].
    pub channel_tails_bytes: usize,
    /// Channel: channels of one shard that may be on their way from cold to led; for more, sends are refused as busy.
    pub channel_openings_max: usize,
    /// Channel: bytes of one Replicate.
    pub replicate_bytes: usize,
    /// Channel: bytes in flight per node pair (M-2).
    pub link_credit_bytes: usize,
    /// Channel: interval for HW-only updates (M-2).
    pub high_watermark_interval: Duration,
    /// Channel: retry interval of promises, fetches and replication without an answer.
    pub channel_retry: Duration,
    /// Channel: idle time before eviction (CH-10).
    pub channel_idle: Duration,
    /// Append: appends in flight of one channel (AP-7).
    pub channel_backlog: usize,
    /// Append: how long a send waits for its commit (CH-8).
    pub append_timeout: Duration,
    /// Append: how long an idempotency key is kept (AP-2).
    pub dedupe_window: Duration,
    /// Requests to other machines: how long one is waited for.
    pub request_timeout: Duration,
    /// Payload of one message, bytes.
    pub payload_bytes_max: usize,
    /// Delivery: members up to which a list is read in one go (PC-2).
    pub large_group_members: u32,
    /// Delivery: members of one page.
    pub delivery_page: u32,
    /// Delivery: records of one run.
    pub delivery_run: u32,
    /// Delivery: records behind the high watermark at which sends are refused as busy (M-15).
    pub delivery_lag_max: u64,
    /// Session: messages offered and not acknowledged.
    pub unacknowledged_max: usize,
    /// Session: bytes offered and not acknowledged.
    pub unacknowledged_bytes_max: usize,
    /// Session: how long that window may stay full, not half acknowledged, before the session is closed. So long do the
    /// channels of a client that does not acknowledge wait for it (PC-4).
    pub unacknowledged_patience: Duration,
    /// Delivery: pause before more is pushed to a session whose window is full.
    pub full_window_pause: Duration,
    /// Session: interval of re-offers (PC-5).
    pub reoffer_interval: Duration,
    /// Session: re-offers before the session is closed.
    pub reoffers_max: u32,
    /// Session: sends in flight of one session.
    pub session_sends_max: usize,
    /// Session: ephemeral subscriptions of one session (PC-6).
    pub session_subscriptions_max: usize,
    /// Session: channels whose last offered position one session remembers (M-15).
    pub session_channels_max: usize,
    /// Presence: how long a candidate waits for old sessions to close (PR-3).
    pub activation_timeout: Duration,
    /// Presence: lease of a route, refreshed by inbound frames (PR-2). Longer than a gateway lets a client be idle: else
    /// an idle session ends with its lease.
    pub route_lease: Duration,
    /// Presence: interval in which owners refresh their routes.
    pub touch_interval: Duration,
    /// Presence: sessions of one user.
    pub sessions_per_uid: usize,
    /// Hook cursors: how often a moved cursor is stored (M-6: within 1 s).
    pub cursor_interval: Duration,
    /// Webhooks: pause after the first failed attempt; doubles with each one.
    pub webhook_pause_first: Duration,
    /// Webhooks: longest pause, also when the endpoint wants a longer one.
    pub webhook_pause_max: Duration,
    /// Shard: events held back behind loads (M-13).
    pub held_max: usize,
    /// Member ids of one command.
    pub command_uids_max: usize,
    /// History: bytes of one answer.
    pub history_bytes_max: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            raft_compact_entries: 10_000,
            raft_compact_bytes: 8 << 20,
            raft_tick: Duration::from_millis(50),
            raft_election_ticks: 10,
            raft_heartbeat_ticks: 2,
            proposal_bytes_max: 1 << 20,
            proposals_max: 4_096,
            proposals_reserved_max: 1_024,
            snapshot_chunk_bytes: 256 << 10,
            heartbeat: Duration::from_millis(100),
            node_dead_after: Duration::from_millis(600),
            replace_after: Duration::from_secs(600),
            channel_tail_records: 256,
            channel_tails_bytes: 64 << 20,
            channel_openings_max: 256,
            replicate_bytes: 256 << 10,
            link_credit_bytes: 8 << 20,
            high_watermark_interval: Duration::from_millis(50),
            channel_retry: Duration::from_millis(250),
            channel_idle: Duration::from_secs(300),
            channel_backlog: 1_024,
            append_timeout: Duration::from_secs(5),
            dedupe_window: Duration::from_secs(24 * 3_600),
            request_timeout: Duration::from_secs(3),
            payload_bytes_max: 32_767,
            large_group_members: 500,
            delivery_page: 512,
            delivery_run: 128,
            delivery_lag_max: 100_000,
            unacknowledged_max: 1_024,
            unacknowledged_bytes_max: 4 << 20,
            unacknowledged_patience: Duration::from_millis(200),
            full_window_pause: Duration::from_millis(2),
            reoffer_interval: Duration::from_secs(20),
            reoffers_max: 8,
            session_sends_max: 1_024,
            session_subscriptions_max: 256,
            session_channels_max: 1_024,
            activation_timeout: Duration::from_secs(3),
            route_lease: Duration::from_secs(200),
            touch_interval: Duration::from_secs(10),
            sessions_per_uid: 256,
            cursor_interval: Duration::from_secs(1),
            webhook_pause_first: Duration::from_secs(1),
            webhook_pause_max: Duration::from_secs(3_600),
            held_max: 65_536,
            command_uids_max: 1_000,
            history_bytes_max: 8 << 20,
        }
    }
}
