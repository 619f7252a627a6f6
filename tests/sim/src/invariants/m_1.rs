//! M-1: a follower's message proves what its sender durably holds: the promise of the message's epoch, the accepted epoch, the
//! log end.

use super::Log;
use crate::oracle::Oracle;
use penstock_core::channel::{Body, Message};
use penstock_core::types::{LeaderEpoch, Seq};

/// A message of a replica leaves its node.
pub(super) fn sent(log: &Log, node: usize, message: &Message, oracle: &mut Oracle) {
    let (accepted, end) = match &message.body {
        Body::Promised(evidence) => (evidence.accepted, evidence.log_end),
        Body::Progress(progress) => (progress.accepted, progress.log_end),
        _ => return,
    };
    let epoch = message.leader_epoch;
    let held = log.held.get(&node).cloned().unwrap_or_default();
    let what = if held.state.promised < epoch {
        format!(
            "answers epoch {epoch}, durably promised is {}",
            held.state.promised
        )
    } else if held.state.accepted < accepted {
        format!(
            "says that it accepted {accepted}, durable is {}",
            held.state.accepted
        )
    } else if held.state.accepted == accepted && accepted > LeaderEpoch(0) && held.end < end {
        // Within an epoch a log is never cut.
        format!("says that its log ends before {end}, durable is {}", held.end)
    } else {
        return;
    };
    debug_assert!(end >= Seq(1));
    oracle.violate("M-1", format!("{:?}: node {} {what}", log.channel, node + 1));
}
