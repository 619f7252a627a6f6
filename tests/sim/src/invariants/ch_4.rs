//! CH-4: one leader per epoch; who leads has promised nothing newer; a durable promise never falls.

use super::{Leading, Log};
use crate::oracle::Oracle;
use penstock_core::channel::StateRow;

/// A replica leads.
pub(super) fn leads(log: &Log, leading: &Leading<'_>, oracle: &mut Oracle) {
    let promised = leading.replica.promised();
    if promised > leading.epoch {
        let detail = format!(
            "node {} leads epoch {} of {:?} and has promised {promised}",
            leading.node + 1,
            leading.epoch,
            log.channel
        );
        oracle.violate("CH-4", detail);
    }
    if let Some(&(node, process)) = log.leaders.get(&leading.epoch)
        && (node, process) != (leading.node, leading.process)
    {
        let detail = format!(
            "epoch {} of {:?} is led by node {} ({process}) and by node {} ({})",
            leading.epoch,
            log.channel,
            node + 1,
            leading.node + 1,
            leading.process
        );
        oracle.violate("CH-4", detail);
    }
}

/// A state row became durable.
pub(super) fn promise(log: &mut Log, node: usize, state: &StateRow, oracle: &mut Oracle) {
    let before = log.promised.insert(node, state.promised).unwrap_or_default();
    if state.promised < before {
        let detail = format!(
            "node {} had durably promised {before} and now {}",
            node + 1,
            state.promised
        );
        oracle.violate("CH-4", detail);
    }
}
