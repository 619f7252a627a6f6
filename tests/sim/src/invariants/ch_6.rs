//! CH-6: nobody cuts a log at or below the high watermark that it durably knows.

use super::Held;
use crate::oracle::Oracle;
use penstock_core::types::{Incarnation, Seq};

/// A shard cuts a log.
pub(super) fn check(held: &Held, incarnation: Incarnation, from: Seq, oracle: &mut Oracle) {
    let known = held.state.high_watermark;
    if from <= known {
        oracle.violate(
            "CH-6",
            format!("incarnation {incarnation} is cut at {from}, {known} is known to be committed"),
        );
    }
}
