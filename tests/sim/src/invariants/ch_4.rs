//! CH-4: one leader per epoch; who leads has promised nothing newer; a durable promise never falls.

use super::{Leading, Log};
use crate::oracle::Oracle;
use penstock_core::channel::StateRow;
use penstock_core::types::ChannelKey;

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
    if let Some(&(node, life)) = log.leaders.get(&leading.epoch)
        && (node, life) != (leading.node, leading.life)
    {
        // Leadership does not survive a restart of the process (M-3): its log may have lost what it had shown to others.
        let detail = format!(
            "epoch {} of {:?} is led by node {} in its life {life} and by node {} in its life {}",
            leading.epoch,
            log.channel,
            node + 1,
            leading.node + 1,
            leading.life
        );
        oracle.violate("CH-4", detail);
    }
}

/// A state row became durable.
pub(super) fn promise(
    channel: Option<&ChannelKey>,
    node: usize,
    before: &StateRow,
    now: &StateRow,
    oracle: &mut Oracle,
) {
    if now.promised < before.promised {
        let detail = format!(
            "{channel:?}: node {} had durably promised {} and now {}",
            node + 1,
            before.promised,
            now.promised
        );
        oracle.violate("CH-4", detail);
    }
}
