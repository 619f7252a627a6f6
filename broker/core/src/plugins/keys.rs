//! Keys of plugins: rows of slots, which the messages of a channel change exactly once (M-18).

use crate::types::{Incarnation, LeaderEpoch, Seq, SlotId, Token, slot_of};
use bytes::Bytes;
use std::sync::Arc;

/// Longest key of a plugin, bytes.
pub const KEY_BYTES_MAX: usize = 512;
/// Largest value of a key, bytes.
pub const VALUE_BYTES_MAX: usize = 64 << 10;
/// Changes that one call may cause.
pub const KEY_CHANGES_MAX: usize = 4_096;
/// Bytes of the keys of one plugin in one slot: 64 MiB in all slots, shared out so that each slot decides alone.
pub const QUOTA_BYTES: u64 = 256 << 10;
/// What a key counts for besides its name and its value, bytes.
pub const KEY_OVERHEAD_BYTES: u64 = 32;
/// Longest life of a value, ms: a hundred years.
pub const TTL_MS_MAX: u64 = 100 * 366 * 24 * 3_600_000;

/// The slot that keeps a key of a plugin.
#[must_use]
pub fn key_slot(plugin: &str, key: &str) -> SlotId {
    // A name of a plugin has no NUL.
    slot_of(&format!("{plugin}\0{key}"))
}

/// Where changes of keys come from: a slot makes those of each message once, however often they come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySource {
    /// The binding.
    pub binding: Arc<str>,
    /// Revision of the registry at the binding's creation.
    pub binding_incarnation: u64,
    /// Creation of the channel.
    pub incarnation: Incarnation,
    /// Last position that is done with these changes.
    pub through: Seq,
    /// Leadership of the channel.
    pub leader_epoch: LeaderEpoch,
    /// Rises with every run of the leadership: changes that come after those of a newer run are refused.
    pub run: Token,
}

/// A change of one key of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyChange {
    /// The key.
    pub key: Arc<str>,
    /// The message that causes it; 0 without a source.
    pub seq: Seq,
    /// What happens.
    pub operation: KeyOperation,
}

/// What happens to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyOperation {
    /// It gets this value.
    Set(KeyValue),
    /// Its number grows by this. The value is the number in decimal; a key that is not there counts as 0. A life time that it
    /// has stays.
    Increment(i64),
    /// It goes.
    Delete,
    /// It gets the value if it has the expected one; none: if it is not there.
    CompareAndSet {
        /// What it must be.
        expected: Option<Bytes>,
        /// What it will be.
        value: KeyValue,
    },
    /// It goes if its life time is over.
    Forget,
}

/// A value with its life time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// The value, at most [`VALUE_BYTES_MAX`].
    pub value: Bytes,
    /// Milliseconds until it is forgotten; 0 keeps it.
    pub ttl_ms: u64,
}

/// What became of one change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOutcome {
    /// It is made.
    Done,
    /// The number after an increment.
    Sum(i64),
    /// Whether a compare-and-set was made.
    Swapped(bool),
    /// The changes of its message were made before.
    Repeated,
}

/// Why changes of keys are not made, none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyRefused {
    /// The plugin has no room left in the slot.
    Quota = 1,
    /// A value is no number, or has no room for the sum.
    NotANumber = 2,
    /// A key, a value or all changes together are too large.
    TooLarge = 3,
}

impl KeyRefused {
    /// Every reason.
    pub const ALL: [KeyRefused; 3] = [KeyRefused::Quota, KeyRefused::NotANumber, KeyRefused::TooLarge];

    /// Its name, as people read it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            KeyRefused::Quota => "quota",
            KeyRefused::NotANumber => "not-a-number",
            KeyRefused::TooLarge => "too-large",
        }
    }
}

/// A stored value as whoever reads it at this time sees it.
#[must_use]
pub fn is_alive(expires_ms: u64, wall_ms: u64) -> bool {
    expires_ms == 0 || expires_ms > wall_ms
}
