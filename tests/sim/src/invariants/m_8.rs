//! M-8: what a sync covered is still there when a process opens the disk under the same boot. A disk that lost any of it comes
//! back under another boot, and is trusted with nothing that the old one had promised (M-4).

use super::Log;
use super::ledger::{Held, read_held};
use crate::disk::SimDisk;
use crate::oracle::Oracle;
use penstock_core::types::Incarnation;

/// A process starts on its disk: what is there of a channel log.
pub(super) fn opened(
    (incarnation, log): (Incarnation, &Log),
    node: usize,
    disk: &SimDisk,
    oracle: &mut Oracle,
) -> Held {
    let now = read_held(disk, incarnation);
    if let Some(before) = log.held.get(&node) {
        let (old, new) = (&before.state, &now.state);
        if new.promised < old.promised || new.accepted < old.accepted {
            let detail = format!(
                "{:?}: node {} starts with promise {} and accepted {} under the disk that durably held {} and {}",
                log.channel,
                node + 1,
                new.promised,
                new.accepted,
                old.promised,
                old.accepted
            );
            oracle.violate("M-8", detail);
        }
    }
    now
}
