//! Fixtures of `route`: requests over HTTP, and what the plugin must answer.

use super::compare::is_body;
use super::content::{Content, Forms};
use super::given::Scene;
use penstock_core::hooks::call::{HttpRequest, HttpResponse, Work};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Longest body that is shown of a difference, bytes.
const SHOWN_BYTES: usize = 200;

/// A request as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default = "get")]
    method: String,
    /// The path below the plugin's own, with its query.
    #[serde(default = "root")]
    url: String,
    /// Names in small letters.
    #[serde(default)]
    headers: Headers,
    /// A text, or any other JSON, which is sent as its text.
    body: Option<Value>,
    body_base64: Option<String>,
    body_bytes: Option<usize>,
}

/// Headers as an object, or as pairs where a name comes twice.
#[derive(Deserialize)]
#[serde(untagged)]
enum Headers {
    Named(BTreeMap<String, String>),
    Pairs(Vec<(String, String)>),
}

impl Default for Headers {
    fn default() -> Headers {
        Headers::Pairs(Vec::new())
    }
}

fn get() -> String {
    "GET".to_owned()
}

fn root() -> String {
    "/".to_owned()
}

/// A request.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Written")]
pub(super) struct Asking {
    method: String,
    url: String,
    headers: Vec<(String, String)>,
    body: Content,
}

impl TryFrom<Written> for Asking {
    type Error = String;

    fn try_from(written: Written) -> Result<Asking, String> {
        let forms = Forms {
            value: written.body,
            base64: written.body_base64,
            length: written.body_bytes,
        };
        let body = forms.read("body").map_err(|error| format!("{error:#}"))?;
        Ok(Asking {
            method: written.method,
            url: written.url,
            headers: match written.headers {
                Headers::Named(headers) => headers.into_iter().collect(),
                Headers::Pairs(headers) => headers,
            },
            body: body.unwrap_or_default(),
        })
    }
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
            headers: Vec::new(),
            body: Content::text(body),
        }
    }

    /// Whether its body is one that was not kept.
    pub(super) fn stands_in(&self) -> bool {
        self.body.stands_in
    }

    /// As one call.
    pub(super) fn work(&self, scene: Scene) -> Work {
        Work::Route {
            request: Box::new(HttpRequest {
                method: self.method.clone(),
                url: self.url.clone(),
                headers: self.headers.clone(),
                body: self.body.bytes.clone(),
            }),
            wall_ms: scene.time_ms,
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
    use bytes::Bytes;

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
