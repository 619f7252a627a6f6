//! Fixtures of `connect`: who wants to connect, and what the plugin must decide.

use super::fixtures::RefusalParts;
use super::given::Scene;
use penstock_core::client::Secret;
use penstock_core::hooks::call::Work;
use penstock_core::hooks::gates::{Decision, Request};
use penstock_core::types::{DeviceFlag, DeviceLevel, Uid};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

/// Somebody who wants to connect.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Connecting {
    uid: String,
    #[serde(default)]
    token: String,
    #[serde(default)]
    device_id: String,
    /// 0 an app, 1 the web, 2 a computer.
    #[serde(default)]
    device_flag: u8,
    #[serde(default = "address")]
    address: String,
}

/// An address for documentation (RFC 5737).
fn address() -> String {
    "192.0.2.1".to_owned()
}

/// A decision. What is not named is not compared.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ExpectedDecision {
    /// Let in.
    Accept(AcceptanceParts),
    /// Refused.
    Deny(RefusalParts),
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AcceptanceParts {
    uid: Option<String>,
    /// 0 slave, 1 master.
    level: Option<u8>,
    /// All of them.
    attributes: Option<BTreeMap<String, String>>,
}

impl Connecting {
    /// Somebody in particular with this token.
    pub(super) fn with_token(token: &str) -> Connecting {
        Connecting {
            uid: "ann".to_owned(),
            token: token.to_owned(),
            device_id: String::new(),
            device_flag: 0,
            address: address(),
        }
    }

    /// As one call.
    pub(super) fn work(&self, scene: Scene) -> Work {
        Work::Connect {
            request: Box::new(Request {
                uid: Uid::new(&self.uid),
                token: Secret(Arc::from(self.token.as_str())),
                device_id: Arc::from(self.device_id.as_str()),
                flag: DeviceFlag(self.device_flag),
                address: Arc::from(self.address.as_str()),
            }),
            wall_ms: scene.time_ms,
        }
    }
}

/// How a decision differs; nothing when it does not.
pub(super) fn difference(expected: &ExpectedDecision, found: &Decision) -> Option<String> {
    let fits = match (expected, found) {
        (ExpectedDecision::Accept(parts), Ok(accepted)) => {
            let attributes = || -> BTreeMap<String, String> {
                let all = accepted.attributes.iter();
                all.map(|(name, value)| (name.to_string(), value.to_string()))
                    .collect()
            };
            parts
                .uid
                .as_deref()
                .is_none_or(|uid| uid == accepted.uid.as_str())
                && parts.level.is_none_or(|level| level == number(accepted.level))
                && parts
                    .attributes
                    .as_ref()
                    .is_none_or(|wanted| *wanted == attributes())
        }
        (ExpectedDecision::Deny(parts), Err(refusal)) => parts.fit(refusal),
        _ => false,
    };
    (!fits).then(|| format!("expected {expected:?}, got {}", show(found)))
}

/// A decision in words.
pub(super) fn show(decision: &Decision) -> String {
    match decision {
        Ok(accepted) => {
            let mut text = format!("accept ({}, level {}", accepted.uid, number(accepted.level));
            for (name, value) in &accepted.attributes {
                // Writing to a string cannot fail.
                let _ = write!(text, ", {name}={value}");
            }
            text.push(')');
            text
        }
        Err(refusal) => match &refusal.text {
            Some(text) => format!("deny (code {}, text {text:?})", refusal.reason.0),
            None => format!("deny (code {})", refusal.reason.0),
        },
    }
}

const fn number(level: DeviceLevel) -> u8 {
    match level {
        DeviceLevel::Slave => 0,
        DeviceLevel::Master => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_core::hooks::gates::Acceptance;
    use penstock_core::message::Refusal;
    use penstock_core::types::Reason;

    fn expected(text: &str) -> ExpectedDecision {
        serde_json::from_str(text).expect(text)
    }

    #[test]
    fn decisions_are_compared() {
        let accepted: Decision = Ok(Acceptance {
            uid: Uid::new("ann"),
            level: DeviceLevel::Master,
            attributes: vec![(Arc::from("team"), Arc::from("red"))],
        });
        let denied: Decision = Err(Refusal {
            reason: Reason(19),
            text: Some(Arc::from("banned")),
        });
        for (text, found) in [
            (r#"{"accept":{}}"#, &accepted),
            (
                r#"{"accept":{"uid":"ann","level":1,"attributes":{"team":"red"}}}"#,
                &accepted,
            ),
            (r#"{"deny":{}}"#, &denied),
            (r#"{"deny":{"code":19,"text":"banned"}}"#, &denied),
        ] {
            assert_eq!(difference(&expected(text), found), None, "{text}");
        }
        for (text, found, said) in [
            (
                r#"{"accept":{"uid":"bob"}}"#,
                &accepted,
                "accept (ann, level 1, team=red)",
            ),
            (r#"{"accept":{"level":0}}"#, &accepted, "level 1"),
            (r#"{"accept":{"attributes":{}}}"#, &accepted, "team=red"),
            (r#"{"accept":{}}"#, &denied, "deny (code 19, text \"banned\")"),
            (r#"{"deny":{"code":2}}"#, &denied, "code 19"),
            (r#"{"deny":{}}"#, &accepted, "got accept"),
        ] {
            let difference = difference(&expected(text), found).expect(text);
            assert!(difference.contains(said), "{difference}");
        }
    }
}
