//! What came against what must come.

use super::fixtures::{ExpectedOutcome, ExpectedRefusal, ExpectedRequest, ExpectedRewrite, ExpectedVerdict};
use penstock_core::hooks::call::{Answer, Failed, HttpRequest, Returned};
use penstock_core::hooks::pipeline::{Failure, Rewrite, Verdict};
use serde_json::Value;

/// Longest payload that is shown of a difference, bytes.
const SHOWN_BYTES: usize = 200;

/// How a verdict differs; nothing when it does not.
pub(super) fn verdict(expected: &ExpectedVerdict, found: &Verdict) -> Option<String> {
    let fits = match (expected, found) {
        (ExpectedVerdict::Allow(wanted), Verdict::Allow) => *wanted,
        (ExpectedVerdict::Allow(wanted), _) => !wanted,
        (ExpectedVerdict::Reject(ExpectedRefusal::Any(wanted)), found) => {
            *wanted == matches!(found, Verdict::Reject(_))
        }
        (ExpectedVerdict::Reject(ExpectedRefusal::With(parts)), Verdict::Reject(refusal)) => {
            parts.fit(refusal)
        }
        (ExpectedVerdict::Rewrite(expected), Verdict::Rewrite(found)) => is_rewrite(expected, found),
        _ => false,
    };
    (!fits).then(|| format!("expected {}, got {}", show_expected(expected), show(found)))
}

fn is_rewrite(expected: &ExpectedRewrite, found: &Rewrite) -> bool {
    is_body(expected.payload.as_ref(), &found.payload)
        && expected
            .topic
            .as_deref()
            .is_none_or(|topic| topic == &*found.topic)
        && expected.expire.is_none_or(|expire| expire == found.expire_s)
}

/// How the outcome of a batch of committed messages differs; nothing when it does not.
pub(super) fn outcome(expected: &ExpectedOutcome, found: &Returned) -> Option<String> {
    let fits = match (expected, found) {
        (ExpectedOutcome::Done(wanted), Ok(Answer::Done { messages, .. })) => wanted == messages,
        (ExpectedOutcome::Retry(wanted), found) => {
            *wanted == matches!(found, Err(Failed::Retry { .. } | Failed::Busy { .. }))
        }
        (ExpectedOutcome::Poison(wanted), found) => *wanted == matches!(found, Err(Failed::Poison)),
        (ExpectedOutcome::Requests(wanted), Ok(Answer::Requests(found))) => {
            wanted.len() == found.len()
                && wanted
                    .iter()
                    .zip(found)
                    .all(|(wanted, found)| is_request(wanted, found))
        }
        _ => false,
    };
    let found = match found {
        Ok(Answer::Done { messages, .. }) => format!("{messages} done"),
        Ok(Answer::Requests(requests)) => {
            let shown: Vec<String> = requests.iter().map(request).collect();
            format!("requests: {}", shown.join("; "))
        }
        Ok(Answer::Verdicts(_)) => "verdicts".to_owned(),
        Ok(Answer::Decision(_)) => "a decision".to_owned(),
        Ok(Answer::Response(_)) => "a response".to_owned(),
        Err(failed) => failure(failed),
    };
    let expected = match expected {
        ExpectedOutcome::Done(messages) => format!("{messages} done"),
        ExpectedOutcome::Retry(wanted) => format!("retry: {wanted}"),
        ExpectedOutcome::Poison(wanted) => format!("poison: {wanted}"),
        ExpectedOutcome::Requests(requests) => format!("requests: {requests:?}"),
    };
    (!fits).then(|| format!("expected {expected}, got {found}"))
}

/// Whether a request is as expected.
pub(super) fn is_request(expected: &ExpectedRequest, found: &HttpRequest) -> bool {
    let body = is_body(expected.body.as_ref(), &found.body);
    let has = |(name, value): (&String, &String)| found.headers.iter().any(|(n, v)| (n, v) == (name, value));
    body && expected
        .method
        .as_ref()
        .is_none_or(|method| *method == found.method)
        && expected.url.as_ref().is_none_or(|url| *url == found.url)
        && expected.headers.iter().all(has)
}

/// Whether a body is this text, or this JSON in any form.
pub(super) fn is_body(expected: Option<&Value>, found: &[u8]) -> bool {
    match expected {
        None => true,
        Some(Value::String(text)) => text.as_bytes() == found,
        Some(wanted) => serde_json::from_slice::<Value>(found).is_ok_and(|found| &found == wanted),
    }
}

/// A request in words.
fn request(request: &HttpRequest) -> String {
    let end = request.body.len().min(SHOWN_BYTES);
    let cut = if end < request.body.len() { "…" } else { "" };
    let body = String::from_utf8_lossy(&request.body[..end]);
    format!(
        "{} {} {:?} {body}{cut}",
        request.method, request.url, request.headers
    )
}

/// A failure in words, with what to do.
pub(super) fn failure(failed: &Failed) -> String {
    match failed {
        Failed::Call(failure) => match failure {
            Failure::Timeout => "no answer in time: the call was ended at its deadline (`deadline_ms`)",
            Failure::Trap => "a trap: the plugin panicked, or ran out of its stack",
            Failure::Memory => "no more memory: do with less, or raise `limits.memory_mib` in plugin.toml",
            Failure::BadOutput => "an answer that is not one",
            Failure::Busy => "no turn within the deadline: the machine is busy",
            Failure::NotReady => "no instance: it did not start",
            Failure::Host => "an error of the host",
            Failure::Suspended => "no call: it failed too often just before",
        }
        .to_owned(),
        Failed::Retry { after: None } => "a wish to be asked again".to_owned(),
        Failed::Retry { after: Some(after) } => {
            format!("a wish to be asked again in {} ms", after.as_millis())
        }
        Failed::Busy { .. } => "no time for it now".to_owned(),
        Failed::Poison => "poison".to_owned(),
        // Nothing is delivered here.
        Failed::Undelivered { .. } | Failed::Later { .. } | Failed::Gone => "no delivery".to_owned(),
    }
}

fn show_expected(expected: &ExpectedVerdict) -> String {
    match expected {
        ExpectedVerdict::Allow(true) => "allow".to_owned(),
        ExpectedVerdict::Allow(false) => "anything but allow".to_owned(),
        ExpectedVerdict::Reject(ExpectedRefusal::Any(true)) => "reject".to_owned(),
        ExpectedVerdict::Reject(ExpectedRefusal::Any(false)) => "anything but reject".to_owned(),
        ExpectedVerdict::Reject(ExpectedRefusal::With(parts)) => {
            let code = parts.code.map(|code| format!("code {code}"));
            let text = parts.text.as_ref().map(|text| format!("text {text:?}"));
            said("reject", [code, text, None])
        }
        ExpectedVerdict::Rewrite(parts) => {
            let payload = parts.payload.as_ref().map(|payload| match payload {
                Value::String(text) => format!("payload {text}"),
                other => format!("payload {other}"),
            });
            let topic = parts.topic.as_ref().map(|topic| format!("topic {topic:?}"));
            let expire = parts.expire.map(|expire| format!("expire {expire}"));
            said("rewrite", [payload, topic, expire])
        }
    }
}

fn said(verdict: &str, parts: [Option<String>; 3]) -> String {
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        verdict.to_owned()
    } else {
        format!("{verdict} ({})", parts.join(", "))
    }
}

/// A verdict in words.
pub(super) fn show(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Allow => "allow".to_owned(),
        Verdict::Reject(refusal) => {
            let text = refusal.text.as_ref().map(|text| format!("text {text:?}"));
            said("reject", [Some(format!("code {}", refusal.reason.0)), text, None])
        }
        Verdict::Rewrite(rewrite) => {
            let end = rewrite.payload.len().min(SHOWN_BYTES);
            let cut = if end < rewrite.payload.len() { "…" } else { "" };
            let payload = String::from_utf8_lossy(&rewrite.payload[..end]);
            let parts = [
                Some(format!("payload {payload}{cut}")),
                Some(format!("topic {:?}", &*rewrite.topic)),
                Some(format!("expire {}", rewrite.expire_s)),
            ];
            said("rewrite", parts)
        }
    }
}
