//! CH-2: at the instant of commit, W voters of every set durably hold the record with accepted >= the leader's epoch, or
//! have left the epoch. The start of an epoch is committed before anything of it is: the same is asked of it.

use super::{Leading, Log, one_record, single};
use crate::oracle::Oracle;
use crate::world::Node;
use penstock_core::types::{Replica, Seq, VoterSet};

/// When a position was committed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Committed {
    /// In the leader's epoch, which may be what its start needs.
    Now,
    /// In an earlier epoch, whose leader ended in the very step: this one knows it from its disk, or from the promises.
    Before,
}

/// The leader's high watermark has just moved to this position, or its epoch start after it has just been committed.
pub(super) fn check(
    nodes: &[Node],
    (log, seq, committed): (&Log, Seq, Committed),
    leading: &Leading<'_>,
    damaged: &[usize],
    oracle: &mut Oracle,
) {
    let meta = leading.replica.meta();
    let seq = seq.0;
    let request = one_record(meta.incarnation, seq);
    let stored = |page| single(page, seq).map(|record| record.crc);
    let mut wanted = stored(leading.disk.read(&request));
    if damaged.contains(&leading.node) {
        // Its own copy may be the one that cannot be read: then the others are compared with each other.
        wanted = wanted.or_else(|| {
            let mut sound = nodes
                .iter()
                .enumerate()
                .filter(|(index, _)| !damaged.contains(index));
            sound.find_map(|(_, node)| stored(node.disk.durable_read(&request)))
        });
    }
    let written = single(leading.disk.read(&request), seq).map(|record| record.leader_epoch);
    let since = match committed {
        Committed::Now => leading.epoch,
        Committed::Before => written.unwrap_or(leading.epoch),
    };
    let holds = |voter: &Replica| {
        let index = usize::from(voter.node.0) - 1;
        let Some(node) = nodes.get(index) else {
            return false;
        };
        if damaged.contains(&index) || node.disk.boot() != voter.disk {
            return true;
        }
        let Some(held) = log.held.get(&index) else {
            return false;
        };
        let state = &held.state;
        if state.accepted > leading.epoch {
            return true;
        }
        state.accepted >= since
            && held.end.0 > seq
            && (seq < state.log_start.0 || stored(node.disk.durable_read(&request)) == wanted)
    };
    let mut sets: Vec<&VoterSet> = vec![&meta.voters];
    sets.extend(meta.previous.as_ref());
    for set in sets {
        let count = set.isr.iter().filter(|voter| holds(voter)).count();
        if count < usize::from(set.min_isr) {
            let detail = format!(
                "node {} calls {seq} committed in epoch {} while {count} of {:?} hold it durably, {} must",
                leading.node + 1,
                leading.epoch,
                set.isr.iter().map(|voter| voter.node.0).collect::<Vec<_>>(),
                set.min_isr
            );
            oracle.violate("CH-2", detail);
        }
    }
}
