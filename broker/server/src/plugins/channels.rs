//! Channels, as the threads of guests publish to them and read them through the node.

use super::asking::Asking;
use penstock_core::admin::{Answer, Ask, Failure, MessagesAsk, PublishAsk};
use penstock_core::message::{Committed, Outcome};
use penstock_core::types::Reason;
use penstock_plugin_host::{Channels, PublishError, ReadError};
use std::sync::Arc;
use std::time::Duration;

/// The node's channels, once it runs.
#[derive(Debug)]
pub(super) struct NodeChannels(pub(super) Arc<Asking>);

impl Channels for NodeChannels {
    fn publish(&self, message: PublishAsk, within: Duration) -> Result<(), PublishError> {
        let plugin = Arc::clone(&message.plugin);
        match self.0.ask(Ask::Publish(Box::new(message)), within) {
            Some(Answer::Sent(outcome)) => judged(&plugin, outcome),
            _ => Err(PublishError::Unavailable),
        }
    }

    fn read(&self, wanted: MessagesAsk, within: Duration) -> Result<Vec<Arc<Committed>>, ReadError> {
        match self.0.ask(Ask::ReadMessages(wanted), within) {
            Some(Answer::Messages { messages, .. }) => Ok(messages),
            // Nobody has ever written there.
            Some(Answer::Failed(Failure::NotFound(_))) => Ok(Vec::new()),
            _ => Err(ReadError::Unavailable),
        }
    }
}

/// What the outcome of a send means for its plugin.
fn judged(plugin: &str, outcome: Outcome) -> Result<(), PublishError> {
    match outcome {
        Outcome::Committed { .. } => Ok(()),
        // An earlier call for the same message has sent something else in this place: a version that writes other words, or words
        // that come from outside. Everybody has read that one, so it stands.
        Outcome::Refused(Reason::IDEMPOTENCY_CONFLICT) => {
            tracing::info!(
                plugin,
                "what it published when it was first asked stands; the other words are not sent"
            );
            Ok(())
        }
        Outcome::Refused(Reason::RATE_LIMITED | Reason::NODE_NOT_MATCH | Reason::SYSTEM_ERROR)
        | Outcome::Unknown => Err(PublishError::Unavailable),
        Outcome::Refused(reason) | Outcome::Rejected { reason, .. } => {
            tracing::debug!(plugin, reason = reason.0, "a message of a plugin is refused");
            Err(PublishError::Refused)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_core::types::{MessageId, Seq};

    #[test]
    fn what_may_come_about_later_is_unavailable_and_the_rest_is_refused() {
        let committed = Outcome::Committed {
            id: MessageId(1),
            seq: Seq(1),
            stamp_ms: 1,
        };
        assert_eq!(judged("p", committed), Ok(()));
        let refused = |reason| judged("p", Outcome::Refused(reason));
        assert_eq!(refused(Reason::IDEMPOTENCY_CONFLICT), Ok(()));
        for reason in [Reason::RATE_LIMITED, Reason::NODE_NOT_MATCH, Reason::SYSTEM_ERROR] {
            assert_eq!(refused(reason), Err(PublishError::Unavailable));
        }
        assert_eq!(judged("p", Outcome::Unknown), Err(PublishError::Unavailable));
        for reason in [
            Reason::BANNED,
            Reason::DISBANDED,
            Reason::CHANNEL_NOT_EXIST,
            Reason::PAYLOAD_DECODE,
        ] {
            assert_eq!(refused(reason), Err(PublishError::Refused));
        }
        let text = Arc::from("no");
        let rejected = Outcome::Rejected {
            reason: Reason::NOT_ALLOWED,
            text,
        };
        assert_eq!(judged("p", rejected), Err(PublishError::Refused));
    }
}
