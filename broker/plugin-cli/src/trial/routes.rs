//! Fixtures of `route`: requests over HTTP, and what the plugin must answer.

use super::compare::is_body;
use super::fixtures::WALL_MS;
use bytes::Bytes;
use penstock_core::hooks::call::{HttpRequest, HttpResponse, Work};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Longest body that is shown of a difference, bytes.
const SHOWN_BYTES: usize = 200;

/// A request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asking {
    #[serde(default = "get")]
    method: String,
    /// The path below the plugin's own, with its query.
    #[serde(default = "root")]
    url: String,
    /// Names in small letters.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// A text, or any other JSON, which is sent as its text.
    body: Option<Value>,
}

fn get() -> String {
    "GET".to_owned()
}

fn root() -> String {
    "/".to_owned()
}

/// What must come of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ExpectedAnswer {
    /// This response.
    Response(ResponseParts),
}

/// A response. What is not named is not compared.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResponseParts {
    status: Option<u16>,
    /// Those that must be among the headers; names in small letters.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// A text, or JSON that the body must be in any form.
    body: Option<Value>,
}

impl Asking {
    /// A request with this body.
    pub(super) fn with_body(body: &str) -> Asking {
        Asking {
            method: "POST".to_owned(),
            url: root(),
            headers: BTreeMap::new(),
            body: Some(Value::String(body.to_owned())),
        }
    }

    /// As one call.
    pub(super) fn work(&self) -> Work {
        let body = match &self.body {
            None => Bytes::new(),
            Some(Value::String(text)) => Bytes::from(text.clone()),
            Some(other) => Bytes::from(other.to_string()),
        };
        Work::Route {
            request: Box::new(HttpRequest {
                method: self.method.clone(),
                url: self.url.clone(),
                headers: self.headers.clone().into_iter().collect(),
                body,
            }),
            wall_ms: WALL_MS,
        }
    }
}

/// How a response differs; nothing when it does not.
pub(super) fn difference(
    ExpectedAnswer::Response(parts): &ExpectedAnswer,
    found: &HttpResponse,
) -> Option<String> {
    let has = |(name, value): (&String, &String)| found.headers.iter().any(|(n, v)| (n, v) == (name, value));
    let fits = parts.status.is_none_or(|status| status == found.status)
        && parts.headers.iter().all(has)
        && is_body(parts.body.as_ref(), &found.body);
    (!fits).then(|| format!("expected {parts:?}, got {}", show(found)))
}

/// A response in words.
pub(super) fn show(response: &HttpResponse) -> String {
    let end = response.body.len().min(SHOWN_BYTES);
    let cut = if end < response.body.len() { "…" } else { "" };
    let body = String::from_utf8_lossy(&response.body[..end]);
    format!("{} {:?} {body}{cut}", response.status, response.headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_compared() {
        let found = HttpResponse {
            status: 201,
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            body: Bytes::from_static(b"{\"a\": 1}"),
        };
        let expected = |text: &str| serde_json::from_str::<ExpectedAnswer>(text).expect(text);
        for text in [
            r#"{"response":{}}"#,
            r#"{"response":{"status":201,"body":{"a":1}}}"#,
            r#"{"response":{"headers":{"content-type":"application/json"}}}"#,
        ] {
            assert_eq!(difference(&expected(text), &found), None, "{text}");
        }
        for text in [
            r#"{"response":{"status":200}}"#,
            r#"{"response":{"body":{"a":2}}}"#,
            r#"{"response":{"body":"{}"}}"#,
            r#"{"response":{"headers":{"content-type":"text/plain"}}}"#,
        ] {
            let said = difference(&expected(text), &found).expect(text);
            assert!(said.contains("got 201"), "{said}");
        }
    }
}
