//! CH-1: what is committed at a position stays there. Whoever leads an epoch holds every record that was called committed
//! in it or in an older one. A leader of the past that has not heard of its end yet need not know what came later: it cannot
//! commit any more.

use super::{Committed, Leading, Log};
use crate::oracle::Oracle;
use penstock_core::message::Record;
use penstock_core::rows::{Page, ReadRequest};
use penstock_core::types::{LeaderEpoch, Seq};

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

/// A new leader is compared with everything committed up to its epoch.
pub(super) fn complete(log: &Log, leading: &Leading<'_>, oracle: &mut Oracle) {
    let from = leading.replica.log_start().0;
    let Some(held) = records(leading, from, log.high_watermark) else {
        return;
    };
    if let Some((seq, found)) = lacking(log, leading.epoch, from, &held) {
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
        oracle.violate("CH-1", detail);
    }
}

/// The first position from `from` on at which `held` lacks what was committed in an epoch up to this one, and the checksum
/// that is found there.
fn lacking(log: &Log, epoch: LeaderEpoch, from: u64, held: &[Record]) -> Option<(u64, u32)> {
    (from..)
        .zip(log.committed.iter().skip(place(from)))
        .find_map(|(seq, wanted)| {
            let found = held
                .iter()
                .find(|record| record.seq.0 == seq)
                .map_or(0, |record| record.crc);
            let concerned = wanted.crc != 0 && wanted.epoch <= epoch;
            (concerned && found != wanted.crc).then_some((seq, found))
        })
}

/// Where a position stands in the list.
fn place(seq: u64) -> usize {
    usize::try_from(seq.saturating_sub(1)).expect("a short log")
}

/// Notes what is committed from now on.
pub(super) fn extend(log: &mut Log, leading: &Leading<'_>, high_watermark: u64) {
    let from = log.high_watermark + 1;
    let records = records(leading, from, high_watermark).unwrap_or_default();
    note(log, leading.epoch, high_watermark, &records);
}

fn note(log: &mut Log, epoch: LeaderEpoch, high_watermark: u64, records: &[Record]) {
    let count = usize::try_from(high_watermark).expect("a short log");
    log.committed
        .resize(count.max(log.committed.len()), Committed { crc: 0, epoch });
    for record in records {
        if let Some(committed) = log.committed.get_mut(place(record.seq.0)) {
            committed.crc = record.crc;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use penstock_core::types::MessageId;

    fn record(seq: u64, epoch: u64) -> Record {
        Record {
            seq: Seq(seq),
            leader_epoch: LeaderEpoch(epoch),
            stamp_ms: seq,
            id: MessageId(1),
            key: None,
            body: Bytes::new(),
            crc: 0,
        }
        .sealed()
    }

    #[test]
    fn a_leader_holds_what_older_epochs_committed_and_need_not_know_what_newer_ones_did() {
        let mut log = Log::default();
        let old = [record(1, 2), record(2, 2)];
        note(&mut log, LeaderEpoch(2), 2, &old);
        note(&mut log, LeaderEpoch(4), 3, &[record(3, 4)]);
        assert_eq!(lacking(&log, LeaderEpoch(3), 1, &old), None);
        assert_eq!(lacking(&log, LeaderEpoch(3), 1, &old[..1]), Some((2, 0)));
        assert_eq!(lacking(&log, LeaderEpoch(4), 1, &old), Some((3, 0)));
        assert_eq!(lacking(&log, LeaderEpoch(5), 1, &old), Some((3, 0)));
        let other = [record(1, 2), record(2, 3)];
        let crc = other[1].crc;
        assert_eq!(lacking(&log, LeaderEpoch(3), 1, &other), Some((2, crc)));
        assert_eq!(
            lacking(&log, LeaderEpoch(3), 3, &[]),
            None,
            "what retention removed"
        );
    }
}
