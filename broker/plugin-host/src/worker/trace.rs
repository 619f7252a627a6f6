//! What a call leaves in the node's own log, for those who ask for it: a span of each call, and a line when it ends.

use super::pace::Ran;
use super::{failure_of, messages};
use penstock_core::hooks::call::{Call, Returned, Work};
use std::time::Duration;
use tracing::Span;

/// The span of a call. What is logged within carries which plugin was asked about what: the channel and the first message, by the number
/// of its client or by its position.
pub(super) fn span(call: &Call) -> Span {
    let span = tracing::debug_span!(
        "plugin_call",
        binding = &*call.version.binding,
        digest = %call.version.digest,
        hook = call.work.hook().name(),
        channel = tracing::field::Empty,
        first = tracing::field::Empty,
        messages = messages(call),
    );
    if !span.is_disabled() {
        if let Some(channel) = &call.channel {
            span.record(
                "channel",
                tracing::field::display(format_args!("{}:{}", channel.kind.0, channel.id)),
            );
        }
        match &call.work {
            Work::BeforeSend { drafts, .. } => {
                if let Some(draft) = drafts.first() {
                    span.record("first", &*draft.client_msg_no);
                }
            }
            Work::PersistAfter { messages, .. } | Work::Webhook { messages, .. } => {
                if let Some(message) = messages.first() {
                    span.record("first", message.seq.0);
                }
            }
            Work::Offline { message, .. } => {
                span.record("first", message.seq.0);
            }
            Work::Connect { .. } | Work::Route { .. } | Work::OnlineStatus(_) => {}
        }
    }
    span
}

/// A call ended after it had waited for so long.
pub(super) fn ended(returned: &Returned, waited: Duration, ran: Option<&Ran>) {
    let outcome = returned
        .as_ref()
        .err()
        .map_or("done", |failed| failure_of(failed).name());
    tracing::debug!(
        outcome,
        inline = ran.is_some_and(|ran| ran.inline),
        queue_us = micros(waited),
        guest_us = ran.map_or(0, |ran| micros(ran.took)),
        "a plugin was called"
    );
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
