//! Idempotency keys: how they are made and looked up (AP-2, R20).

use crate::message::{DedupeKey, DedupeRow, Draft};
use crate::rows::{Key, Miss, Rows};
use crate::types::Incarnation;
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::time::Duration;

/// The idempotency key of a draft as its client sent it; none without a number, and for a message that is not stored.
#[must_use]
pub fn key_of(draft: &Draft) -> Option<DedupeKey> {
    if draft.client_msg_no.is_empty() || draft.flags.no_persist {
        return None;
    }
    let mut hasher = Sha256::new();
    for part in [draft.from_uid.as_str(), &draft.client_msg_no] {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part.as_bytes());
    }
    let hash = hasher.finalize();
    let digest = Sha256::digest(&draft.payload);
    Some(DedupeKey {
        hash: leading(&hash[..8]) as u64,
        digest: leading(&digest[..16]),
    })
}

/// The bytes as one big-endian number.
fn leading(bytes: &[u8]) -> u128 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u128::from(*byte))
}

/// Where to look for keys: the rows of one incarnation inside the window that ends now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) incarnation: Incarnation,
    /// Newest stamp that a row can have.
    pub(super) until_ms: u64,
    pub(super) length: Duration,
}

impl Window {
    /// The rows of a key that are inside the window, newest day first: two probes for a window of a day. Keys that must be
    /// loaded are added to `missing`.
    pub(super) fn probe(self, hash: u64, rows: &dyn Rows, missing: &mut Vec<Key>) -> VecDeque<DedupeRow> {
        let length_ms = u64::try_from(self.length.as_millis()).unwrap_or(u64::MAX);
        let since_ms = self.until_ms.saturating_sub(length_ms);
        let mut found = VecDeque::new();
        for day in (DedupeRow::day(since_ms)..=DedupeRow::day(self.until_ms)).rev() {
            let key = Key::Dedupe {
                day,
                incarnation: self.incarnation,
                hash,
            };
            match rows.row(&key) {
                Ok(Some(row)) => {
                    found.extend(DedupeRow::decode(&row).filter(|row| row.stamp_ms >= since_ms));
                }
                Ok(None) => {}
                Err(Miss(keys)) => missing.extend(keys),
            }
        }
        found
    }
}
