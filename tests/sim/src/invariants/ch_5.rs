//! CH-5: who leads an epoch took the best log among N - W + 1 voters that had promised it: the highest (accepted, log
//! end). The checker knows what every voter held at the instant when its promise became durable.

use super::{Evidence, Held, Leading, Log, durable_tail, one_record, single};
use crate::disk::SimDisk;
use crate::oracle::Oracle;
use penstock_core::types::{Incarnation, LeaderEpoch, Seq, VoterSet};

/// A state row is durable: with a new promise, what the voter holds is its evidence.
pub(super) fn note(log: &mut Log, node: usize, disk: &SimDisk, incarnation: Incarnation) {
    let Some(Held { state, .. }) = log.held.get(&node) else {
        return;
    };
    let key = (state.promised, node);
    if state.accepted >= state.promised || log.evidence.contains_key(&key) {
        return;
    }
    let tail = durable_tail(disk, incarnation);
    log.evidence.insert(
        key,
        Evidence {
            accepted: state.accepted,
            log_end: tail.as_ref().map_or(state.log_start, |record| record.seq.next()),
            last_crc: tail.map_or(0, |record| record.crc),
        },
    );
}

fn has_promised(log: &Log, node: usize, epoch: LeaderEpoch) -> bool {
    log.held
        .get(&node)
        .is_some_and(|held| held.state.promised >= epoch)
}

/// A leader is seen in its epoch for the first time: enough voters of every set have promised it durably.
pub(super) fn promised(log: &Log, leading: &Leading<'_>, damaged: &[usize], oracle: &mut Oracle) {
    let meta = leading.replica.meta();
    for set in std::iter::once(&meta.voters).chain(&meta.previous) {
        let voters = set.isr.iter().map(|voter| usize::from(voter.node.0) - 1);
        let count = voters
            .filter(|node| damaged.contains(node) || has_promised(log, *node, leading.epoch))
            .count();
        if count < set.recovery_quorum() {
            let detail = format!(
                "node {} leads epoch {} of {:?}; {count} of {:?} have durably promised it, {} must",
                leading.node + 1,
                leading.epoch,
                log.channel,
                set.isr.iter().map(|voter| voter.node.0).collect::<Vec<_>>(),
                set.recovery_quorum()
            );
            oracle.violate("CH-5", detail);
        }
    }
}

/// A leader is seen in its epoch for the first time: the log that it took is as good as any that it had to hear of.
pub(super) fn check(log: &Log, leading: &Leading<'_>, damaged: &[usize], oracle: &mut Oracle) {
    let meta = leading.replica.meta();
    let start = leading.replica.view().epoch_start;
    let last = start.0 - 1;
    let last_crc = if last == 0 {
        0
    } else {
        single(leading.disk.read(&one_record(meta.incarnation, last)), last).map_or(0, |record| record.crc)
    };
    // Which of the logs the leader took is told by its content alone.
    let taken = log
        .evidence
        .iter()
        .filter(|((epoch, _), found)| {
            *epoch == leading.epoch && found.log_end == start && found.last_crc == last_crc
        })
        .map(|(_, found)| found.accepted)
        .max();
    let Some(accepted) = taken else { return };
    let mut sets: Vec<&VoterSet> = vec![&meta.voters];
    sets.extend(meta.previous.as_ref());
    for set in sets {
        let not_better = |node: usize| match evidence(log, leading.epoch, node) {
            Some(found) => (found.accepted, found.log_end) <= (accepted, start),
            None => has_promised(log, node, leading.epoch),
        };
        let count = set
            .isr
            .iter()
            .map(|voter| usize::from(voter.node.0) - 1)
            .filter(|&node| {
                let heard = log.heard.contains(&(leading.epoch, node));
                damaged.contains(&node) || node == leading.node || (heard && not_better(node))
            })
            .count();
        if count < set.recovery_quorum() {
            let detail = format!(
                "node {} leads epoch {} of {:?} with the log (accepted {accepted}, end {start}); only {count} of {} \
                 voters that must be heard had answered it and held nothing better: {:?}",
                leading.node + 1,
                leading.epoch,
                log.channel,
                set.recovery_quorum(),
                log.evidence
                    .iter()
                    .filter(|((epoch, _), _)| *epoch == leading.epoch)
                    .collect::<Vec<_>>()
            );
            oracle.violate("CH-5", detail);
        }
    }
}

fn evidence(log: &Log, epoch: LeaderEpoch, node: usize) -> Option<Evidence> {
    log.evidence
        .get(&(epoch, node))
        .copied()
        .filter(|found| found.log_end >= Seq(1))
}
