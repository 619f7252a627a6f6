//! CH-1: what is committed at a position stays there. Whoever leads holds every record that was ever called committed.

use super::{Leading, Log};
use crate::oracle::Oracle;
use penstock_core::message::Record;
use penstock_core::rows::{Page, ReadRequest};
use penstock_core::types::Seq;

/// The records as far as they can be read: a damaged one is for R30 to find.
fn records(leading: &Leading<'_>, from: u64, through: u64) -> Option<Vec<Record>> {
    let request = ReadRequest::Records {
        incarnation: leading.replica.meta().incarnation,
        from: Seq(from),
        through: Seq(through),
        records_max: u32::MAX,
        bytes_max: u32::MAX,
    };
    match leading.disk.read(&request) {
        Page::Records(records) => Some(records),
        _ => None,
    }
}

/// A new leader is compared with everything committed so far.
pub(super) fn complete(log: &Log, leading: &Leading<'_>, oracle: &mut Oracle) {
    let from = leading.replica.log_start().0;
    let through = log.high_watermark;
    let Some(held) = records(leading, from, through) else {
        return;
    };
    for seq in from..=through {
        let wanted = log.checksums[usize::try_from(seq - 1).expect("a short log")];
        let found = held
            .iter()
            .find(|record| record.seq.0 == seq)
            .map_or(0, |record| record.crc);
        if wanted != 0 && found != wanted {
            let what = if found == 0 {
                "does not hold"
            } else {
                "holds something else at"
            };
            let detail = format!(
                "node {} leads epoch {} of {:?} and {what} {seq}, which was committed; its log ends before {}",
                leading.node + 1,
                leading.epoch,
                log.channel,
                leading.replica.log_end()
            );
            return oracle.violate("CH-1", detail);
        }
    }
}

/// Notes what is committed from now on.
pub(super) fn extend(log: &mut Log, leading: &Leading<'_>, high_watermark: u64) {
    let from = log.high_watermark + 1;
    let count = usize::try_from(high_watermark).expect("a short log");
    log.checksums.resize(count.max(log.checksums.len()), 0);
    for record in records(leading, from, high_watermark).unwrap_or_default() {
        if let Some(place) = usize::try_from(record.seq.0 - 1)
            .ok()
            .and_then(|at| log.checksums.get_mut(at))
        {
            *place = record.crc;
        }
    }
}
