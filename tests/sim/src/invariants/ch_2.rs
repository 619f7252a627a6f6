//! CH-2: at the instant of commit, W voters of every set durably hold the record with accepted >= the leader's epoch, or
//! have left the epoch.

use super::{Leading, durable_state, durable_tail, one_record, single};
use crate::oracle::Oracle;
use crate::world::Node;
use penstock_core::types::{Replica, VoterSet};

/// The leader's high watermark has just moved.
pub(super) fn check(nodes: &[Node], leading: &Leading<'_>, damaged: &[usize], oracle: &mut Oracle) {
    let meta = leading.replica.meta();
    let seq = leading.replica.high_watermark().0;
    let wanted = single(leading.disk.read(&one_record(meta.incarnation, seq)), seq).map(|record| record.crc);
    let holds = |voter: &Replica| {
        let index = usize::from(voter.node.0) - 1;
        let Some(node) = nodes.get(index) else {
            return false;
        };
        if damaged.contains(&index) || node.disk.boot() != voter.disk {
            return true;
        }
        let state = durable_state(&node.disk, meta.incarnation);
        if state.accepted > leading.epoch {
            return true;
        }
        let end =
            durable_tail(&node.disk, meta.incarnation).map_or(state.log_start.0, |record| record.seq.0 + 1);
        let held = single(node.disk.durable_read(&one_record(meta.incarnation, seq)), seq);
        state.accepted == leading.epoch
            && end > seq
            && (seq < state.log_start.0 || held.map(|record| record.crc) == wanted)
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
