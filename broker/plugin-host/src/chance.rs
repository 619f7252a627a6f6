//! Numbers that look drawn, and are not.

use std::sync::atomic::{AtomicU32, Ordering};

/// FNV-1a over the number that the client gave the message, and the time: the same for a replay of it.
pub(crate) fn seed_of(number: &[u8], wall_ms: u64) -> u64 {
    number
        .iter()
        .fold(0xcbf2_9ce4_8422_2325 ^ wall_ms, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
}

/// Between 0.8 and 1.2 of this, so that instances made together are not replaced together: multiples of the golden ratio lie far
/// from those before them.
pub(crate) fn jittered(calls: u32) -> u32 {
    static MADE: AtomicU32 = AtomicU32::new(0);
    const GOLDEN: u32 = 0x9e37_79b9;
    let place = MADE.fetch_add(1, Ordering::Relaxed).wrapping_mul(GOLDEN);
    let share = 800 + u64::from(place) * 400 / u64::from(u32::MAX);
    u32::try_from(u64::from(calls) * share / 1_000)
        .unwrap_or(u32::MAX)
        .max(1)
}
