//! CH-3: nobody is shown what no leader has called committed.

use super::Log;
use crate::oracle::Oracle;
use penstock_core::message::Committed;
use penstock_core::types::Incarnation;
use std::collections::BTreeMap;

/// A client was shown a message.
pub(super) fn check(logs: &BTreeMap<Incarnation, Log>, message: &Committed, oracle: &mut Oracle) {
    let seq = message.message.seq.0;
    let committed = logs.get(&message.incarnation).map_or(0, |log| log.high_watermark);
    if seq > committed {
        let detail = format!("{seq} of {} is shown, committed is {committed}", message.channel);
        oracle.violate("CH-3", detail);
    }
}
