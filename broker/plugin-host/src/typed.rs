//! The typed variant of `before-send`: what goes to a guest as records, and what comes back. It is held to the bounds of the
//! flat frame.

use crate::contract::{Outgoing, TypedVerdict};
use crate::frame::{BadFrame, TOPIC_BYTES_MAX};
use bytes::Bytes;
use penstock_core::hooks::pipeline::{Rewrite, Verdict};
use penstock_core::message::{Draft, REFUSAL_BYTES_MAX, Refusal};
use penstock_core::types::{ChannelKey, Reason};
use std::sync::Arc;

/// A draft as a record.
pub(crate) fn outgoing(channel: &ChannelKey, draft: &Draft) -> Outgoing {
    Outgoing {
        channel_id: channel.id.to_string(),
        channel_kind: channel.kind.0,
        sender: draft.from_uid.as_str().to_owned(),
        client_message_number: draft.client_msg_no.to_string(),
        topic: draft.topic.to_string(),
        expire_seconds: draft.expire_s,
        payload: draft.payload.to_vec(),
        attributes: attributes(draft),
    }
}

fn attributes(draft: &Draft) -> Vec<(String, String)> {
    let all = draft.attributes.iter().flat_map(|all| all.iter());
    all.map(|(name, value)| (name.to_string(), value.to_string()))
        .collect()
}

/// One verdict for each of the drafts, from what a guest returned.
///
/// # Errors
/// When the answer is not exactly that.
pub(crate) fn verdicts(
    found: Vec<TypedVerdict>,
    drafts: &[Draft],
    payload_bytes_max: usize,
) -> Result<Vec<Verdict>, BadFrame> {
    if found.len() != drafts.len() {
        return Err(BadFrame::Count {
            found: u32::try_from(found.len()).unwrap_or(u32::MAX),
            wanted: drafts.len(),
        });
    }
    let numbered = found.into_iter().zip(drafts).enumerate();
    numbered
        .map(|(entry, (verdict, draft))| verdict_of(entry, verdict, draft, payload_bytes_max))
        .collect()
}

fn verdict_of(
    entry: usize,
    verdict: TypedVerdict,
    draft: &Draft,
    payload_bytes_max: usize,
) -> Result<Verdict, BadFrame> {
    let within = |what: &'static str, found: usize, max: usize| {
        if found > max {
            return Err(BadFrame::Long {
                entry,
                what,
                found,
                max,
            });
        }
        Ok(())
    };
    match verdict {
        TypedVerdict::Allow => Ok(Verdict::Allow),
        TypedVerdict::Reject(rejection) => {
            within("text", rejection.text.len(), REFUSAL_BYTES_MAX)?;
            Ok(Verdict::Reject(Refusal {
                reason: refusal_code(rejection.code),
                text: (!rejection.text.is_empty()).then(|| Arc::from(rejection.text)),
            }))
        }
        TypedVerdict::Rewrite(rewrite) => {
            within(
                "payload",
                rewrite.payload.as_ref().map_or(0, Vec::len),
                payload_bytes_max,
            )?;
            within(
                "topic",
                rewrite.topic.as_ref().map_or(0, String::len),
                TOPIC_BYTES_MAX,
            )?;
            Ok(Verdict::Rewrite(Rewrite {
                payload: rewrite.payload.map_or_else(|| draft.payload.clone(), Bytes::from),
                expire_s: rewrite.expire_seconds.unwrap_or(draft.expire_s),
                topic: rewrite.topic.map_or_else(|| Arc::clone(&draft.topic), Arc::from),
            }))
        }
    }
}

/// The code that a client gets whose connection is denied: 0 leaves it to the broker. The core keeps the one of success from it.
pub(crate) fn denial_code(code: u8) -> Reason {
    match code {
        0 => Reason::AUTH_FAIL,
        code => Reason(code),
    }
}

/// The code that the sender gets: 0 leaves it to the broker. The core keeps the one of success from senders.
pub(crate) fn refusal_code(code: u8) -> Reason {
    match code {
        0 => Reason::NOT_ALLOWED,
        code => Reason(code),
    }
}
